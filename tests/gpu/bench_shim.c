/* What stands before a library's function costs a call, in ns: bench_shim [--cold] M N K [LIBCUBLAS], one line per call: what it
 * adds, the lower and upper end of its 95 % interval, what the call costs without. Knows nothing of kfit: under LD_PRELOAD
 * it measures what is preloaded, without, itself.
 *
 * Each call is made in two ways, as a program makes it and by the library's own pointer, in bursts that fit into the GPU's
 * queue, in pairs of random order, with the GPU waited for in between. Two processes differ by more than what is sought.
 *
 * --cold: before each call runs code and is read data of several times the size of the first caches, as a real driver does in
 * each call of its own. So a test double shows what it does not in a hot loop: what a call costs that finds nothing near. */
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

enum { BURST = 16, PAIRS = 1500, WARM_UPS = 50, WORKSPACE_BYTES = 32 << 20 };

static const char ptx[] = /* the comment is what a test double reads */
    "/*\nkfit-double 1\narch sm_90\nentry nothing nothing i\nend\n*/\n"
    ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry nothing(.param .u32 unused) { ret; }\n";
static void *arguments[] = {&(int){0}};

typedef int launch_kernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                          unsigned bz, unsigned smem, void *stream, void **params, void **extra);

static struct bench {
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
    bool needs_kernel;
    double added[PAIRS], ns[PAIRS];
} rows[] = {{.name = "gemm_ex", .call = gemm_ex},
            {.name = "lt_matmul", .call = lt_matmul},
            {.name = "launch", .call = launch, .needs_kernel = true},
            {.name = "launch_ex", .call = launch_ex, .needs_kernel = true},
            {.name = "graph_launch", .call = graph_launch}};

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

static void start(const char *cublas)
{
    struct kfit_error err = {0};
    kfit_cu_device device;
    kfit_cu_context context;
    kfit_cu_stream stream;
    kfit_cu_library library;
    kfit_cu_graph graph;
    struct bench_calls *c = &bench.calls;
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
    /* global: the calls' library finds them there, after whatever is preloaded */
    void *blas = open_or_say(cublas, RTLD_NOW | RTLD_GLOBAL), *lt = blas;
    if (!dlsym(RTLD_DEFAULT, "cublasLtMatmul"))
        lt = open_or_say("libcublasLt.so.13", RTLD_NOW | RTLD_GLOBAL);
    void *lib = open_or_say(BENCH_CALLS, RTLD_LAZY), *libcuda = open_or_say("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    const char *what = NULL;
    int (*opens)(struct bench_calls *, const char **);
    void *(*libc_dlsym)(void *, const char *); /* libc's, whoever has one of that name too */
    *(void **)&libc_dlsym = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
    need(!libc_dlsym, "dlvsym of dlsym");
    *(void **)&opens = dlsym(lib, "bench_open");
    *(void **)&bench.gemm_ex = dlsym(lib, "bench_gemm_ex");
    *(void **)&bench.lt_matmul = dlsym(lib, "bench_lt_matmul");
    c->gemm_ex = libc_dlsym(blas, "cublasGemmEx");
    c->lt_matmul = libc_dlsym(lt, "cublasLtMatmul");
    need(!c->gemm_ex || !c->lt_matmul, "dlsym of cuBLAS");
    for (int own = 0; own < 2; own++) {
        void *(*look_up)(void *, const char *) = own ? libc_dlsym : dlsym;
        *(void **)&bench.driver[own].launch = look_up(libcuda, "cuLaunchKernel");
        *(void **)&bench.driver[own].launch_ex = look_up(libcuda, "cuLaunchKernelEx");
        *(void **)&bench.driver[own].graph_launch = look_up(libcuda, "cuGraphLaunch");
    }
    int r = opens(c, &what);
    need(r, what);
    if (!bench.driver[1].launch || cu->library_load(&library, ptx, NULL, NULL, 0, NULL, NULL, 0) ||
        cu->library_kernel(&bench.kernel, library, "nothing"))
        bench.kernel = NULL; /* not this driver: the rows that need one are left out */
    need(gemm_ex(false), "cublasGemmEx");
    need(cu->stream_sync(stream), "cuStreamSynchronize");
    need(cu->capture_begin(stream, KFIT_CU_CAPTURE_THREAD_LOCAL), "cuStreamBeginCapture_v2");
    for (unsigned i = 0; i < 4; i++)
        need(gemm_ex(false), "cublasGemmEx in a capture");
    need(cu->capture_end(stream, &graph), "cuStreamEndCapture");
    need(cu->graph_instantiate(&bench.graph, graph, 0), "cuGraphInstantiateWithFlags");
}

/* One line of code and one of data after the other, each line of code another jump. */
enum { COLD_LINES = 16384 };
void bench_cold(const char data[64 * COLD_LINES]);
__asm__(".text\n.balign 4096\n.globl bench_cold\nbench_cold:\n.set line, 0\n"
        ".rept 16384\n jmp 1f\n.balign 64, 0xcc\n1: movl 64*line(%rdi), %eax\n.set line, line + 1\n.endr\n ret\n");
static char cold_data[64 * COLD_LINES];
static bool cold;

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static double burst(const struct row *r, bool own)
{
    double ns = 0, begun = now_ns();
    for (unsigned k = 0; k < BURST; k++) {
        if (cold) {
            bench_cold(cold_data);
            begun = now_ns();
        }
        need(r->call(own), r->name);
        if (cold || k == BURST - 1)
            ns += now_ns() - begun;
    }
    ns /= BURST;
    need(bench.cu->stream_sync(bench.calls.stream), "cuStreamSynchronize");
    return ns;
}

int main(int argc, char **argv)
{
    cold = argc > 1 && !strcmp(argv[1], "--cold");
    if (cold) {
        memset(cold_data, 1, sizeof cold_data);
        argc--;
        argv++;
    }
    if (argc < 4 || argc > 5)
        return fprintf(stderr, "usage: bench_shim [--cold] M N K [LIBCUBLAS]\n"), 2;
    bench.calls.m = atoi(argv[1]);
    bench.calls.n = atoi(argv[2]);
    bench.calls.k = atoi(argv[3]);
    if (bench.calls.m < 1 || bench.calls.n < 1 || bench.calls.k < 1)
        return fprintf(stderr, "bench_shim: M, N and K are at least 1\n"), 2;
    start(argc > 4 ? argv[4] : "libcublas.so.13");
    unsigned random = 12345;
    for (int i = -WARM_UPS; i < PAIRS; i++) /* rows take turns, so that drift meets all */
        for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
            if (rows[r].needs_kernel && !bench.kernel)
                continue;
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
    const int off = (int)(1.96 * sqrt(PAIRS) / 2); /* of the median's interval, in order statistics */
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        if (rows[r].needs_kernel && !bench.kernel)
            continue;
        qsort(rows[r].added, PAIRS, sizeof(double), by_value);
        qsort(rows[r].ns, PAIRS, sizeof(double), by_value);
        printf("%s %.1f %.1f %.1f %.1f\n", rows[r].name, rows[r].added[PAIRS / 2], rows[r].added[PAIRS / 2 - off],
               rows[r].added[PAIRS / 2 + off], rows[r].ns[PAIRS / 2]);
    }
    return 0;
}
