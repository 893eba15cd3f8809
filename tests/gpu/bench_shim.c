/* What stands before a library's function costs a call, in ns: bench_shim place|cold|warm SECONDS M N K [LIBCUBLAS], one
 * line per call: what it adds, the lower and upper end of its 95 % interval, what the call costs without. Knows nothing of kfit: under
 * LD_PRELOAD it measures what is preloaded, without, itself.
 *
 * Each call is made in two ways, as a program makes it and by the library's own pointer, in pairs of bursts of random order. Two
 * processes differ by more than what is sought. Pairs are made until all intervals are narrow enough, or for so many seconds.
 *
 *   place  bursts that fit into the GPU's queue, which is waited for in between: as calls are made, with caches as these leave them
 *   cold   the same, but before each call runs code and is read data of several times the size of the first caches, as a real driver
 *          does in each call of its own. So a test double shows what a call costs that finds nothing near.
 *   warm   the function that is called in the end does nothing (bench_shim_idle.c), the GPU none: what is before it in a hot loop.
 *          What that asks of the library and the driver is answered by them. */
#include <dlfcn.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "bench_shim.h"
#include "kfit/cuda.h"
#include "median.h"

/* PAIRS: whose intervals are looked at first, then those of twice as many */
enum { PAIRS_MIN = 100, PAIRS = 1500, PAIRS_MAX = PAIRS << 5, WARM_UPS = 50, WORKSPACE_BYTES = 32 << 20 };

static const char ptx[] = /* the comment is what a test double reads */
    "/*\nkfit-double 1\narch sm_90\nentry nothing nothing i\nend\n*/\n"
    ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry nothing(.param .u32 unused) { ret; }\n";
static void *arguments[] = {&(int){0}};

static const struct manner {
    const char *name;
    unsigned burst;
    double narrow_ns; /* half of an interval */
    bool cold, idle;
} manners[] = {
    {"place", 16, 12, false, false}, {"cold", 16, 12, true, false}, {"warm", 256, 0.5, false, true}};

typedef int launch_kernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                          unsigned bz, unsigned smem, void *stream, void **params, void **extra);

static struct bench {
    const struct manner *manner;
    const struct kfit_cuda *cu;
    struct bench_calls calls;
    int (*gemm_ex)(struct bench_calls *, bool own), (*lt_matmul)(struct bench_calls *, bool own);
    struct { /* as a program gets them, and the driver's own */
        launch_kernel *launch;
        __typeof__(((struct kfit_cuda *)0)->launch) launch_ex;
        __typeof__(((struct kfit_cuda *)0)->graph_launch) graph_launch;
    } driver[2];
    kfit_cu_kernel kernel;
    kfit_cu_exec graph;
} bench;

__attribute__((noreturn, format(printf, 1, 2))) static void give_up(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fputc('\n', stderr);
    exit(77);
}

static void need(int r, const char *what)
{
    if (r)
        give_up("bench_shim: %s failed: %d", what, r);
}

static int gemm_ex(bool own)
{
    return bench.gemm_ex(&bench.calls, own);
}

static int lt_matmul(bool own)
{
    return bench.lt_matmul(&bench.calls, own);
}

static int launch(bool own)
{
    return bench.driver[own].launch(bench.kernel, 1, 1, 1, 32, 1, 1, 0, bench.calls.stream, arguments, NULL);
}

static int launch_ex(bool own)
{
    const struct kfit_cu_launch_config c = {
        .grid = {1, 1, 1}, .block = {32, 1, 1}, .stream = bench.calls.stream};
    return bench.driver[own].launch_ex(&c, (kfit_cu_function)(void *)bench.kernel, arguments, NULL);
}

static int graph_launch(bool own)
{
    return bench.driver[own].graph_launch(bench.graph, bench.calls.stream);
}

static struct row {
    const char *name;
    int (*call)(bool own);
    double added[PAIRS_MAX], ns[PAIRS_MAX];
} rows[] = {{.name = "gemm_ex", .call = gemm_ex},
            {.name = "lt_matmul", .call = lt_matmul},
            {.name = "launch", .call = launch},
            {.name = "launch_ex", .call = launch_ex},
            {.name = "graph_launch", .call = graph_launch}};
enum { ROWS = sizeof rows / sizeof *rows };

static void *on_gpu(size_t bytes)
{
    kfit_cu_ptr p;
    need(bench.cu->mem_alloc(&p, bytes), "cuMemAlloc_v2");
    need(bench.cu->set32(p, 0x3c003c00, bytes / 4, bench.calls.stream), "cuMemsetD32Async");
    return (void *)(uintptr_t)p;
}

static void *open_or_say(const char *name, int flags)
{
    void *lib = dlopen(name, flags);
    if (!lib)
        give_up("bench_shim: %s", dlerror());
    return lib;
}

/* Where each function that is timed is found. Idle ones come first in the process' scope after what is preloaded: the driver's before
 * all that may ask for the driver when it is loaded, since who is preloaded looks for it once; cuBLAS's after libcublas, else theirs
 * would be another. */
static void open_libraries(const char *cublas, void **blas, void **lt, void **driver)
{
    const bool idle = bench.manner->idle;
    void *idle_driver = idle ? open_or_say(BENCH_IDLE_DRIVER, RTLD_NOW | RTLD_GLOBAL) : NULL;
    void *libcuda = open_or_say("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    *driver = idle ? idle_driver : libcuda;
    *blas = *lt = open_or_say(cublas, RTLD_NOW | (idle ? RTLD_LOCAL : RTLD_GLOBAL));
    if (idle)
        *blas = *lt = open_or_say(BENCH_IDLE, RTLD_NOW | RTLD_GLOBAL);
    else if (!dlsym(RTLD_DEFAULT, "cublasLtMatmul"))
        *lt = open_or_say("libcublasLt.so.13", RTLD_NOW | RTLD_GLOBAL);
}

static void find_functions(const char *cublas)
{
    struct bench_calls *c = &bench.calls;
    void *blas, *lt, *driver;
    void *(*libc_dlsym)(void *, const char *); /* libc's, whoever has one of that name too */
    open_libraries(cublas, &blas, &lt, &driver);
    *(void **)&libc_dlsym = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
    need(!libc_dlsym, "dlvsym of dlsym");
    c->gemm_ex = libc_dlsym(blas, "cublasGemmEx");
    c->lt_matmul = libc_dlsym(lt, "cublasLtMatmul");
    need(!c->gemm_ex || !c->lt_matmul, "dlsym of cuBLAS");
    for (int own = 0; own < 2; own++) {
        void *(*look_up)(void *, const char *) = own ? libc_dlsym : dlsym;
        *(void **)&bench.driver[own].launch = look_up(driver, "cuLaunchKernel");
        *(void **)&bench.driver[own].launch_ex = look_up(driver, "cuLaunchKernelEx");
        *(void **)&bench.driver[own].graph_launch = look_up(driver, "cuGraphLaunch");
    }
    need(!bench.driver[1].launch || !bench.driver[1].launch_ex || !bench.driver[1].graph_launch,
         "dlsym of the driver");
    if (getenv("LD_PRELOAD") && bench.driver[0].launch == bench.driver[1].launch) {
        fprintf(stderr, "bench_shim: what is preloaded does not stand before cuLaunchKernel\n");
        exit(1);
    }
}

static void start(const char *cublas)
{
    struct kfit_error err = {0};
    kfit_cu_device device;
    kfit_cu_context context;
    kfit_cu_stream stream;
    kfit_cu_library library;
    kfit_cu_graph graph;
    struct bench_calls *c = &bench.calls;
    const char *what = NULL;
    int (*opens)(struct bench_calls *, const char **);
    find_functions(cublas);
    void *lib = open_or_say(BENCH_CALLS,
                            RTLD_LAZY); /* finds them in the process' scope, after whatever is preloaded */
    *(void **)&opens = dlsym(lib, "bench_open");
    *(void **)&bench.gemm_ex = dlsym(lib, "bench_gemm_ex");
    *(void **)&bench.lt_matmul = dlsym(lib, "bench_lt_matmul");
    if (kfit_cuda_load(&bench.cu, &err) != KFIT_OK)
        give_up("bench_shim: %s", err.text);
    const struct kfit_cuda *cu = bench.cu;
    need(cu->init(0), "cuInit");
    need(cu->device_get(&device, 0), "cuDeviceGet");
    need(cu->context_retain(&context, device), "cuDevicePrimaryCtxRetain");
    need(cu->context_set(context), "cuCtxSetCurrent");
    need(cu->stream_create(&stream, KFIT_CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    c->stream = stream;
    c->workspace_bytes = WORKSPACE_BYTES;
    c->workspace = on_gpu(WORKSPACE_BYTES);
    c->x = on_gpu((size_t)c->m * (size_t)c->k * 2);
    c->w = on_gpu((size_t)c->n * (size_t)c->k * 2);
    c->y = on_gpu((size_t)c->m * (size_t)c->n * 2);
    c->bias = on_gpu((size_t)c->n * 2);
    need(opens(c, &what), what);
    need(cu->library_load(&library, ptx, NULL, NULL, 0, NULL, NULL, 0), "cuLibraryLoadData");
    need(cu->library_kernel(&bench.kernel, library, "nothing"), "cuLibraryGetKernel");
    need(gemm_ex(false), "cublasGemmEx");
    need(cu->stream_sync(stream), "cuStreamSynchronize");
    need(cu->capture_begin(stream, KFIT_CU_CAPTURE_THREAD_LOCAL), "cuStreamBeginCapture_v2");
    for (unsigned i = 0; i < 4; i++)
        need(gemm_ex(false), "cublasGemmEx in a capture");
    need(cu->capture_end(stream, &graph), "cuStreamEndCapture");
    need(cu->graph_instantiate(&bench.graph, graph, 0), "cuGraphInstantiateWithFlags");
    if (bench.manner->idle) {
        need(cu->stream_sync(stream), "cuStreamSynchronize");
        *(int *)dlsym(RTLD_DEFAULT, "bench_shim_idle") = 1;
    }
}

/* One line of code and one of data after the other, each line of code another jump. */
enum { COLD_LINES = 16384 };
void bench_cold(const char data[64 * COLD_LINES]);
__asm__(".text\n.balign 4096\n.globl bench_cold\nbench_cold:\n.set line, 0\n"
        ".rept 16384\n jmp 1f\n.balign 64, 0xcc\n1: movl 64*line(%rdi), %eax\n.set line, line + 1\n.endr\n "
        "ret\n");
static char cold_data[64 * COLD_LINES];

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static double burst(const struct row *r, bool own)
{
    const unsigned calls = bench.manner->burst;
    double ns = 0, begun = now_ns();
    for (unsigned k = 0; k < calls; k++) {
        if (bench.manner->cold) {
            bench_cold(cold_data);
            begun = now_ns();
        }
        need(r->call(own), r->name);
        if (bench.manner->cold || k == calls - 1)
            ns += now_ns() - begun;
    }
    if (!bench.manner->idle)
        need(bench.cu->stream_sync(bench.calls.stream), "cuStreamSynchronize");
    return ns / calls;
}

/* The median and its 95 % interval, by order statistics. Sorts a copy: pairs stay as they were made. */
struct middle {
    double lo, at, hi;
};

static struct middle middle_of(const double *v, unsigned n)
{
    static double sorted[PAIRS_MAX];
    const unsigned off = (unsigned)(1.96 * sqrt(n) / 2);
    memcpy(sorted, v, n * sizeof *v);
    qsort(sorted, n, sizeof *sorted, by_value);
    return (struct middle){sorted[n / 2 - off], sorted[n / 2], sorted[n / 2 + off]};
}

static bool narrow(unsigned n)
{
    for (unsigned r = 0; r < ROWS; r++) {
        const struct middle m = middle_of(rows[r].added, n);
        if (m.hi - m.lo > 2 * bench.manner->narrow_ns)
            return false;
    }
    return true;
}

static void pair(int i)
{
    static unsigned random = 12345;
    for (unsigned r = 0; r < ROWS; r++) { /* rows take turns, so that drift meets all */
        double ns[2];
        random = random * 1664525 + 1013904223;
        const bool first = random >> 31;
        ns[first] = burst(&rows[r], first);
        ns[!first] = burst(&rows[r], !first);
        if (i >= 0) {
            rows[r].added[i] = ns[0] - ns[1];
            rows[r].ns[i] = ns[1];
        }
    }
}

int main(int argc, char **argv)
{
    for (unsigned i = 0; argc > 1 && i < sizeof manners / sizeof *manners; i++)
        if (!strcmp(argv[1], manners[i].name))
            bench.manner = &manners[i];
    if (argc < 6 || argc > 7 || !bench.manner)
        return fprintf(stderr, "usage: bench_shim place|cold|warm SECONDS M N K [LIBCUBLAS]\n"), 2;
    const double seconds = atof(argv[2]);
    bench.calls.m = atoi(argv[3]);
    bench.calls.n = atoi(argv[4]);
    bench.calls.k = atoi(argv[5]);
    if (bench.calls.m < 1 || bench.calls.n < 1 || bench.calls.k < 1)
        return fprintf(stderr, "bench_shim: M, N and K are at least 1\n"), 2;
    memset(cold_data, 1, sizeof cold_data);
    start(argc > 6 ? argv[6] : "libcublas.so.13");
    for (int i = -WARM_UPS; i < 0; i++)
        pair(i);
    const double end = now_ns() + seconds * 1e9;
    unsigned n = 0;
    for (unsigned look = PAIRS; n < PAIRS_MAX && (n < PAIRS_MIN || now_ns() < end); n++) {
        if (n == look && narrow(n))
            break;
        look = n == look ? 2 * look : look;
        pair((int)n);
    }
    for (unsigned r = 0; r < ROWS; r++) {
        const struct middle m = middle_of(rows[r].added, n);
        printf("%s %.1f %.1f %.1f %.1f %u\n", rows[r].name, m.at, m.lo, m.hi, middle_of(rows[r].ns, n).at, n);
    }
    return 0;
}
