/* Calls of cuBLAS as the arguments say them, one call an argument: "gemmex m=13,n=7,k=5,ta=1". Each prints the status,
 * whether the product is right, and how many calls came to libcublas and to libcublasLt themselves.
 *
 * Loaded with RTLD_LOCAL by cuda_host.c, as Python loads such libraries; or a program by itself (-DPROGRAM); or one with
 * NVIDIA's own libcublasLt (-DLT_ONLY), which makes descriptors without a GPU, though no product; or one that takes all of
 * cuBLAS by dlsym (-DTAKEN, cuda_taken.c). The values are small
 * whole numbers, so that every type has the product exactly. */
#include <fcntl.h>
#include <glob.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cuda_taken.h"
#include "double/blas.h"
#include "kfit/trace.h"

#define KFIT_X(member, symbol, args) kfit_cu_result symbol args;
KFIT_CUDA_LIST(KFIT_X)
#undef KFIT_X
kfit_cu_result cuCtxCreate_v2(kfit_cu_context *, unsigned, kfit_cu_device);
kfit_cu_result cuCtxDestroy_v2(kfit_cu_context);
kfit_cu_result cuGraphClone(kfit_cu_graph *, kfit_cu_graph);
kfit_cu_result cuGraphExecUpdate_v2(kfit_cu_exec, kfit_cu_graph, void *);

typedef void *any;
int cublasCreate_v2(any *);
int cublasDestroy_v2(any);
int cublasLtDestroy(any);
int cublasSetStream_v2(any, kfit_cu_stream);
int cublasSetWorkspace_v2(any, void *, size_t);
int cublasSetPointerMode_v2(any, int);
int cublasSetMathMode(any, int);
int cublasLtMatmulDescCreate(any *, int, int);
int cublasLtMatmulDescSetAttribute(any, int, const void *, size_t);
int cublasLtMatmulDescDestroy(any);
int cublasLtMatrixLayoutCreate(any *, int, uint64_t, uint64_t, int64_t);
int cublasLtMatrixLayoutSetAttribute(any, int, const void *, size_t);
int cublasLtMatrixLayoutDestroy(any);
int cublasLtMatmulPreferenceCreate(any *);
int cublasLtMatmulPreferenceSetAttribute(any, int, const void *, size_t);
int cublasLtMatmulPreferenceDestroy(any);
int cublasLtMatmulAlgoGetHeuristic(any, any, any, any, any, any, any, int, void *, int *);
int cublasLtMatmul(any, any, const void *, const void *, any, const void *, any, const void *, const void *,
                   any, void *, any, const void *, void *, size_t, kfit_cu_stream);
/* One list for both widths. */
#define WIDTH(after, integer)                                                                                \
    int cublasGemmEx##after(any, int, int, integer, integer, integer, const void *, const void *, int,       \
                            integer, const void *, int, integer, const void *, void *, int, integer, int,    \
                            int);                                                                            \
    int cublasGemmStridedBatchedEx##after(any, int, int, integer, integer, integer, const void *,            \
                                          const void *, int, integer, long long, const void *, int, integer, \
                                          long long, const void *, void *, int, integer, long long, integer, \
                                          int, int);                                                         \
    int cublasSgemm_v2##after(any, int, int, integer, integer, integer, const float *, const float *,        \
                              integer, const float *, integer, const float *, float *, integer);             \
    int cublasSgemmStridedBatched##after(any, int, int, integer, integer, integer, const float *,            \
                                         const float *, integer, long long, const float *, integer,          \
                                         long long, const float *, float *, integer, long long, integer);
WIDTH(, int)
WIDTH(_64, int64_t)
int cublasUnhooked(any, int, int, int, const float *, const void *, int, const void *, int, const float *,
                   void *, int);

enum { GPUS = 2, BYTES = 1 << 16, WORKSPACE = 32 << 20 };

static kfit_cu_context primary[GPUS];
static any handles[GPUS];
static void *workspace[GPUS];
static _Alignas(256) char mem_a[BYTES], mem_b[BYTES], mem_c[BYTES], mem_bias[BYTES], before[BYTES];

/* ---- arguments ---- */

static const char *said; /* the call */

static long get(const char *name, long otherwise)
{
    size_t n = strlen(name);
    const char *p = strchr(said, ' ');
    for (; p; p = strchr(p, ','))
        if (p++, !strncmp(p, name, n) && p[n] == '=')
            return strtol(p + n + 1, NULL, 0);
    return otherwise;
}

static bool is(const char *name)
{
    size_t n = strcspn(said, " ");
    return strlen(name) == n && !strncmp(said, name, n);
}

/* ---- values ---- */

static unsigned bytes_of(int type)
{
    return type == CUDA_R_32F ? 4 : 2;
}

static double load(const void *p, int type, int64_t i)
{
    uint32_t bits = type == CUDA_R_32F ? ((const uint32_t *)p)[i] : ((const uint16_t *)p)[i];
    float f;
    if (type == CUDA_R_16F) { /* whole numbers: no denormals */
        int e = bits >> 10 & 31;
        double size = e ? __builtin_ldexp(1024 + (bits & 1023), e - 25) : 0;
        return bits >> 15 ? -size : size;
    }
    bits = type == CUDA_R_16BF ? bits << 16 : bits;
    memcpy(&f, &bits, sizeof f);
    return (double)f;
}

static void store(void *p, int type, int64_t i, int value)
{
    static const uint16_t half[] = {0xc000, 0xbc00, 0, 0x3c00, 0x4000}; /* -2 .. 2 */
    float f = (float)value;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    if (type == CUDA_R_32F)
        ((uint32_t *)p)[i] = bits;
    else
        ((uint16_t *)p)[i] = type == CUDA_R_16F ? half[value + 2] : (uint16_t)(bits >> 16);
}

static void fill(void *p, int type, unsigned seed)
{
    for (int64_t i = 0; i < BYTES / 4; i++, seed = seed * 1664525 + 1013904223)
        store(p, type, i, (int)(seed >> 16) % 5 - 2);
}

/* ---- one call ---- */

struct shape {
    int ta, tb, m, n, k, type, type_c, lda, ldb, ldc, batch;
    int64_t sa, sb, sc;
    float alpha, beta;
    bool bias;
    void *a, *b, *c, *bias_at;
};

/* "right", "same" (untouched), "wrong": also what lies between the rows belongs to it. */
static const char *judge(const struct shape *s)
{
    char *want = malloc(BYTES);
    const char *verdict;
    memcpy(want, before, BYTES);
    void *c = want + ((char *)s->c - mem_c);
    for (int z = 0; z < s->batch; z++)
        for (int j = 0; j < s->n; j++)
            for (int i = 0; i < s->m; i++) {
                int64_t at = z * s->sc + (int64_t)j * s->ldc + i;
                double sum = 0;
                for (int p = 0; p < s->k; p++)
                    sum += load(s->a, s->type,
                                z * s->sa + (s->ta ? (int64_t)i * s->lda + p : (int64_t)p * s->lda + i)) *
                           load(s->b, s->type,
                                z * s->sb + (s->tb ? (int64_t)p * s->ldb + j : (int64_t)j * s->ldb + p));
                sum = (double)s->alpha * sum + (s->beta != 0 ? (double)s->beta * load(c, s->type_c, at) : 0);
                if (s->bias)
                    sum += load(s->bias_at, s->type_c, i);
                if (load(s->c, s->type_c, at) != sum) {
                    verdict = memcmp(mem_c, before, BYTES) ? "wrong" : "same";
                    free(want);
                    return verdict;
                }
                memcpy((char *)c + at * bytes_of(s->type_c), (char *)s->c + at * bytes_of(s->type_c),
                       bytes_of(s->type_c));
            }
    verdict = memcmp(mem_c, want, BYTES) ? "wrong" : "right";
    free(want);
    return verdict;
}

static int matmul(any handle, struct shape *s, const void *alpha, const void *beta, kfit_cu_stream stream,
                  void *ws)
{
    any desc, layout[3], other = NULL, preference;
    uint64_t algo[16];
    const int epilogue = (int)get("epilogue", s->bias ? 4 : 1), compute = (int)get("compute", 68);
    const size_t ws_bytes = WORKSPACE;
    const struct {
        uint64_t rows, cols;
        int type, ld;
        int64_t stride;
    } l[3] = {{(uint64_t)(s->ta ? s->k : s->m), (uint64_t)(s->ta ? s->m : s->k), s->type, s->lda, s->sa},
              {(uint64_t)(s->tb ? s->n : s->k), (uint64_t)(s->tb ? s->k : s->n), s->type, s->ldb, s->sb},
              {(uint64_t)s->m, (uint64_t)s->n, s->type_c, s->ldc, s->sc}};
    const long attribute = get("attr", -1), value = get("value", 1);
    int found = 0, r = cublasLtMatmulDescCreate(&desc, compute, 0);
    r = r ? r : cublasLtMatmulDescSetAttribute(desc, 3, &s->ta, 4);
    r = r ? r : cublasLtMatmulDescSetAttribute(desc, 4, &s->tb, 4);
    r = r ? r : cublasLtMatmulDescSetAttribute(desc, 7, &epilogue, 4);
    if (s->bias)
        r = r ? r : cublasLtMatmulDescSetAttribute(desc, 8, &s->bias_at, 8);
    if (attribute >= 0)
        r = r ? r : cublasLtMatmulDescSetAttribute(desc, (int)attribute, &value, (size_t)get("bytes", 4));
    for (int i = 0; i < 3; i++) {
        const int order = (int)get("order", 0);
        r = r ? r : cublasLtMatrixLayoutCreate(&layout[i], l[i].type, l[i].rows, l[i].cols, l[i].ld);
        r = r ? r : cublasLtMatrixLayoutSetAttribute(layout[i], 1, &order, 4);
        if (s->batch > 1) {
            r = r ? r : cublasLtMatrixLayoutSetAttribute(layout[i], 5, &s->batch, 4);
            r = r ? r : cublasLtMatrixLayoutSetAttribute(layout[i], 6, &l[i].stride, 8);
        }
    }
    r = r ? r : cublasLtMatmulPreferenceCreate(&preference);
    r = r ? r : cublasLtMatmulPreferenceSetAttribute(preference, 1, &ws_bytes, 8);
    const void *const pointers[] = {s->a, s->b, s->c, s->bias_at};
    for (int i = 0; i < 4; i++) {
        const uint64_t bits = (uintptr_t)pointers[i] | 256;
        const uint32_t align = (uint32_t)(bits & -bits);
        r = r ? r : cublasLtMatmulPreferenceSetAttribute(preference, 5 + i, &align, 4);
    }
    memset(algo, 0, sizeof algo);
    if (!r)
        cublasLtMatmulAlgoGetHeuristic(handle, desc, layout[0], layout[1], layout[2], layout[2], preference,
                                       1, algo, &found);
    if (get("other_d", 0))
        r = r ? r : cublasLtMatrixLayoutCreate(&other, l[2].type, l[2].rows, l[2].cols, l[2].ld + 1);
    void *c = get("other_c", 0) ? before : s->c;
    r = r ? r
          : cublasLtMatmul(handle, desc, alpha, s->a, layout[0], s->b, layout[1], beta, c,
                           other ? other : layout[2], s->c, layout[2], algo, ws, ws_bytes, stream);
    cublasLtMatmulPreferenceDestroy(preference);
    for (int i = 0; i < 3; i++)
        cublasLtMatrixLayoutDestroy(layout[i]);
    cublasLtMatmulDescDestroy(desc);
    return r;
}

#ifdef LT_ONLY
static int threaded_call(any h, const float *one, const float *zero)
{
    (void)h, (void)one, (void)zero;
    return 0;
}

static int open_handle(int device)
{
    (void)device;
    return 0;
}

static unsigned reads(void)
{
    return 0;
}

static int destroy_handle(any h)
{
    (void)h;
    return 0;
}

static void prepare(any h, kfit_cu_stream stream)
{
    (void)h, (void)stream;
}

static void count(unsigned *blas, unsigned *lt)
{
    *blas = *lt = 0;
}

static int dispatch(any h, struct shape *s, const void *alpha, const void *beta, kfit_cu_stream stream,
                    void *ws)
{
    return matmul(h, s, alpha, beta, stream, ws);
}
#else
static int threaded_call(any h, const float *one, const float *zero)
{
    return cublasGemmEx(h, 0, 0, 13, 7, 5, one, mem_a, CUDA_R_16BF, 13, mem_b, CUDA_R_16BF, 5, zero, mem_c,
                        CUDA_R_16BF, 13, 68, 99);
}

static int open_handle(int device)
{
    int r = cublasCreate_v2(&handles[device]);
    return r ? r : cublasSetWorkspace_v2(handles[device], workspace[device], WORKSPACE);
}

static unsigned reads(void)
{
    return kfit_double_cublaslt_reads();
}

static int destroy_handle(any h)
{
    return get("lt", 0) ? cublasLtDestroy(h) : cublasDestroy_v2(h);
}

static void prepare(any h, kfit_cu_stream stream)
{
    cublasSetStream_v2(h, stream);
    cublasSetPointerMode_v2(h, (int)get("pointers", 0));
    cublasSetMathMode(h, (int)get("math", 0));
}

static void count(unsigned *blas, unsigned *lt)
{
    *blas = kfit_double_cublas_calls();
    *lt = kfit_double_cublaslt_calls();
}

static int dispatch(any h, struct shape *s, const void *alpha, const void *beta, kfit_cu_stream stream,
                    void *ws)
{
    const int compute = (int)get("compute", 68), algo = (int)get("algo", 99),
              type_b = (int)get("type_b", s->type);
#define GEMM(after)                                                                                          \
    if (is("gemmex" #after))                                                                                 \
        return cublasGemmEx##after(h, s->ta, s->tb, s->m, s->n, s->k, alpha, s->a, s->type, s->lda, s->b,    \
                                   type_b, s->ldb, beta, s->c, s->type_c, s->ldc, compute, algo);            \
    if (is("batched" #after))                                                                                \
        return cublasGemmStridedBatchedEx##after(h, s->ta, s->tb, s->m, s->n, s->k, alpha, s->a, s->type,    \
                                                 s->lda, s->sa, s->b, type_b, s->ldb, s->sb, beta, s->c,     \
                                                 s->type_c, s->ldc, s->sc, s->batch, compute, algo);         \
    if (is("sgemm" #after))                                                                                  \
        return cublasSgemm_v2##after(h, s->ta, s->tb, s->m, s->n, s->k, alpha, s->a, s->lda, s->b, s->ldb,   \
                                     beta, s->c, s->ldc);                                                    \
    if (is("sbatched" #after))                                                                               \
        return cublasSgemmStridedBatched##after(h, s->ta, s->tb, s->m, s->n, s->k, alpha, s->a, s->lda,      \
                                                s->sa, s->b, s->ldb, s->sb, beta, s->c, s->ldc, s->sc,       \
                                                s->batch);
    GEMM()
    GEMM(_64)
    if (is("unhooked"))
        return cublasUnhooked(h, s->m, s->n, s->k, alpha, s->a, s->lda, s->b, s->ldb, beta, s->c, s->ldc);
    return matmul(h, s, alpha, beta, stream, ws);
}
#endif

static kfit_cu_stream streams[GPUS];

static kfit_cu_stream stream_of(int device)
{
    if (!streams[device])
        cuStreamCreate(&streams[device], KFIT_CU_STREAM_NON_BLOCKING);
    return streams[device];
}

static void call(void)
{
    const int device = (int)get("device", 0),
              type = (int)get("type", is("sgemm") || is("sgemm_64") || is("sbatched") || is("sbatched_64")
                                          ? CUDA_R_32F
                                          : CUDA_R_16BF);
    struct shape s = {.ta = (int)get("ta", 0),
                      .tb = (int)get("tb", 0),
                      .m = (int)get("m", 13),
                      .n = (int)get("n", 7),
                      .k = (int)get("k", 5),
                      .type = type,
                      .type_c = (int)get("type_c", type),
                      .batch = (int)get("batch", 1),
                      .alpha = (float)get("alpha", 1),
                      .beta = (float)get("beta", 0),
                      .bias = get("bias", 0) != 0};
    if (get("denormal", 0)) { /* and one that the processor is told to take for 0 */
        s.beta = 0x1p-140f;
        __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | 0x40);
    }
    s.lda = (int)get("lda", s.ta ? s.k : s.m);
    s.ldb = (int)get("ldb", s.tb ? s.n : s.k);
    s.ldc = (int)get("ldc", s.m);
    s.sa = get("sa", (int64_t)s.lda * (s.ta ? s.m : s.k));
    s.sb = get("sb", (int64_t)s.ldb * (s.tb ? s.k : s.n));
    s.sc = get("sc", (int64_t)s.ldc * s.n);
    s.a = mem_a + get("offset_a", 0);
    s.b = mem_b + get("offset_b", 0);
    s.c = mem_c + get("offset_c", 0);
    s.bias_at = mem_bias + get("offset_bias", 0);
    fill(mem_a, type, 1);
    fill(mem_b, type, 2);
    fill(mem_c, s.type_c, 3);
    fill(mem_bias, s.type_c, 4);
    memcpy(before, mem_c, BYTES);
    any h = handles[get("handle", device)];
    if (get("context", 0)) {
        kfit_cu_context other;
        cuCtxCreate_v2(&other, 0, device);
    } else
        cuCtxSetCurrent(primary[device]);
    kfit_cu_stream stream = get("stream", 0) ? stream_of(device) : NULL;
    prepare(h, stream);
    /* what lies on the device is not to be read here: a page that nobody may read */
    void *unreadable = get("pointers", 0) || get("lt_pointers", 0)
                           ? mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                           : NULL;
    unsigned blas, lt, blas_now, lt_now;
    count(&blas, &lt);
    kfit_cu_context context, after;
    kfit_cu_graph graph;
    kfit_cu_exec exec;
    cuCtxGetCurrent(&context);
    if (get("capture", 0) && cuStreamBeginCapture_v2(stream, 0))
        exit(4);
    int r = dispatch(get("no_handle", 0) ? NULL : h, &s, unreadable ? unreadable : &s.alpha,
                     unreadable ? unreadable : &s.beta, stream, workspace[device]);
    if (get("capture", 0)) {
        if (cuStreamEndCapture(stream, &graph) || cuGraphInstantiateWithFlags(&exec, graph, 0) ||
            strcmp(judge(&s), "same"))
            r = 900;
        for (long n = get("launches", 1); !r && n; n--)
            r = cuGraphLaunch(exec, stream);
    }
    cuCtxGetCurrent(&after);
    count(&blas_now, &lt_now);
    printf("%d %s %u %u%s\n", r, judge(&s), blas_now - blas, lt_now - lt,
           after == context ? "" : " in another context");
    cuCtxSetCurrent(primary[device]);
}

/* The same call in a child, where no GPU is any more. */
static void call_in_child(void)
{
    int status;
    pid_t pid = fork();
    if (!pid) {
        call();
        exit(0);
    }
    if (waitpid(pid, &status, 0) != pid || status)
        printf("child: %x\n", (unsigned)status);
}

/* ---- a capture in steps, on the device's own stream ---- */

struct captured {
    kfit_cu_stream stream;
    kfit_cu_graph graph, former;
    kfit_cu_exec exec;
};

static int step_begin(struct captured *c)
{
    return cuStreamBeginCapture_v2(c->stream, 0);
}

static int step_break(struct captured *c) /* by what is not legal in it */
{
    kfit_cu_event event;
    (void)c;
    return cuEventCreate(&event, 0) || !cuEventQuery(event);
}

static int step_end(struct captured *c)
{
    return cuStreamEndCapture(c->stream, &c->graph);
}

static int step_clone(struct captured *c) /* which takes its place */
{
    c->former = c->graph;
    return cuGraphClone(&c->graph, c->former);
}

static int step_destroy(struct captured *c)
{
    int r = cuGraphDestroy(c->former ? c->former : c->graph);
    c->former = NULL;
    return r;
}

static int step_instantiate(struct captured *c)
{
    return cuGraphInstantiateWithFlags(&c->exec, c->graph, 0);
}

static int step_update(struct captured *c)
{
    char info[64];
    return cuGraphExecUpdate_v2(c->exec, c->graph, info);
}

static bool step(void)
{
    static struct captured captured[GPUS];
    static const struct {
        const char *name;
        int (*play)(struct captured *);
    } steps[] = {
        {"begin", step_begin},   {"break", step_break},     {"end", step_end},
        {"clone", step_clone},   {"destroy", step_destroy}, {"instantiate", step_instantiate},
        {"update", step_update},
    };
    const int device = (int)get("device", 0);
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        if (is(steps[i].name)) {
            cuCtxSetCurrent(primary[device]);
            captured[device].stream = stream_of(device);
            int r = steps[i].play(&captured[device]);
            if (r)
                printf("%s: %d\n", said, r);
            return true;
        }
    return false;
}

/* The device gets a new handle, where the one of device 0 lay. */
static void move_handle(void)
{
    const int device = (int)get("device", 0);
    any was = handles[0];
    cuCtxSetCurrent(primary[device]);
    if (destroy_handle(was) || open_handle(device) || handles[device] != was)
        exit(8);
}

static void other_context_goes(void)
{
    kfit_cu_context other;
    if (cuCtxCreate_v2(&other, 0, 0) || cuCtxDestroy_v2(other))
        exit(9);
}

/* What a device's trace says is on its way into a graph. */
static void print_making(void)
{
    struct kfit_trace_header h;
    char pattern[512];
    glob_t found;
    snprintf(pattern, sizeof pattern, "%s/*-cuda%ld.kft", getenv("KFIT_TRACE"), get("device", 0));
    int fd = glob(pattern, 0, NULL, &found) ? -1 : open(found.gl_pathv[0], O_RDONLY);
    if (fd < 0 || read(fd, &h, sizeof h) != sizeof h)
        exit(7);
    printf("%u\n", h.making);
}

/* Many threads, each with the same call, from the first one on. The product is nobody's: they all write it. */
static void *calls_of_thread(void *times)
{
    const float one = 1, zero = 0;
    int failed = 0;
    cuCtxSetCurrent(primary[0]);
    for (long i = 0; i < (long)(intptr_t)times; i++)
        failed += threaded_call(handles[0], &one, &zero) != 0;
    return (void *)(intptr_t)failed;
}

static void call_in_threads(void)
{
    pthread_t thread[64];
    long n = get("threads", 1), failed = 0;
    for (long i = 0; i < n; i++)
        if (pthread_create(&thread[i], NULL, calls_of_thread, (void *)(intptr_t)get("times", 1)))
            exit(5);
    for (long i = 0; i < n; i++) {
        void *r;
        pthread_join(thread[i], &r);
        failed += (long)(intptr_t)r;
    }
    printf("%ld failed\n", failed);
}

static void begin(void)
{
    int gpus = 0;
#ifdef TAKEN
    taken_command("take", 0, false);
#endif
    cuInit(0);
    cuDeviceGetCount(&gpus);
    for (int i = 0; i < gpus && i < GPUS; i++) {
        cuDevicePrimaryCtxRetain(&primary[i], i);
        cuCtxSetCurrent(primary[i]);
        workspace[i] = malloc(64);
        if (open_handle(i))
            exit(3);
    }
}

#ifdef PROGRAM
#define CUDA_MAIN main
#else
#define CUDA_MAIN cuda_main
__attribute__((visibility("default"))) int cuda_main(int argc, char **argv);
#endif

int CUDA_MAIN(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    begin();
    for (int i = 1; i < argc; i++) {
        said = argv[i];
        if (is("die"))
            kill(getpid(), SIGKILL);
        if (is("threads")) {
            call_in_threads();
            continue;
        }
        if (is("memory")) {
            size_t free_bytes, total;
            cuMemGetInfo_v2(&free_bytes, &total);
            printf("%zu KiB\n", (total - free_bytes) >> 10);
            continue;
        }
        if (is("reads")) {
            static unsigned last;
            printf("%sread\n", reads() == last ? "not " : "");
            last = reads();
            continue;
        }
        if (is("move") || is("context_goes")) {
            (is("move") ? move_handle : other_context_goes)();
            continue;
        }
        if (is("making") || is("sh")) {
            is("sh") ? printf("%d\n", system(getenv("KFIT_TEST_SH")) >> 8) : print_making();
            continue;
        }
        if (step())
            continue;
#ifdef TAKEN
        if (taken_command(said, (unsigned)get("library", 0), get("elsewhere", 0) != 0))
            continue;
#endif
        for (long n = get("times", 1); n; n--)
            (get("fork", 0) ? call_in_child : call)();
    }
    return 0;
}
