/* What the shim adds to a call of cuBLAS and of cuBLASLt, in nanoseconds, on the double of a GPU: children with and without
 * it in turn. The libraries here take no time, so what a call takes is the shim; of a call that a kernel serves, what the
 * double's launch takes is taken off, measured in the same child. A GPU's own libraries and driver: tests/gpu/bench_shim. */
#include "double/judging.h"

#include <time.h>

#include "kfit/cuda.h"
#include "kfit/generation.h"
#include "median.h"

#define KFIT_X(member, symbol, args) kfit_cu_result symbol args;
KFIT_CUDA_LIST(KFIT_X)
#undef KFIT_X
void *quick_handle(void *stream);
int cublasGemmEx(void *, int, int, int, int, int, const void *, const void *, int, int, const void *, int,
                 int, const void *, void *, int, int, int, int);
int cublasLtMatmulDescCreate(void **, int, int);
int cublasLtMatmulDescSetAttribute(void *, int, const void *, size_t);
int cublasLtMatrixLayoutCreate(void **, int, uint64_t, uint64_t, int64_t);
int cublasLtMatmul(void *, void *, const void *, const void *, void *, const void *, void *, const void *,
                   const void *, void *, void *, void *, const void *, void *, size_t, void *);

enum { ROUNDS = 11, BLOCKS = 40, CALLS = 5000, BF16 = 14 };
enum { M = 4, N = 16, K = 32 };
#define KEY "gemm/bf16,bf16,bf16/acc=f32/m=4,n=16,k=32/nt/lda=32,ldb=32,ldc=16/alpha=1,beta=0/align=16"

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* ---- the child ---- */

static const float one = 1, zero = 0;
static _Alignas(256) char a[4096], b[4096], c[4096], bias[4096];
static void *handle, *desc, *layout[3];
static kfit_cu_stream stream;
static kfit_cu_function nothing;

static void gemm(void)
{
    cublasGemmEx(handle, 1, 0, N, M, K, &one, a, BF16, K, b, BF16, K, &zero, c, BF16, N, 68, 99);
}

/* The double refuses it at once, because one attribute more than PyTorch's is set, to what it is anyway. */
static void matmul(void)
{
    cublasLtMatmul(handle, desc, &one, a, layout[0], b, layout[1], &zero, c, layout[2], c, layout[2], NULL,
                   NULL, 0, stream);
}

static void launch(void)
{
    const struct kfit_cu_launch_config config = {.grid = {4, 1, 1}, .block = {64, 1, 1}, .stream = stream};
    void *value = NULL, *params[] = {&value, &value, &value, &value, &value};
    cuLaunchKernelEx(&config, nothing, params, NULL);
}

static double best(void (*call)(void))
{
    double least = 1e9;
    for (int block = 0; block < BLOCKS; block++) {
        double start = now_ns();
        for (int i = 0; i < CALLS; i++)
            call();
        double ns = (now_ns() - start) / CALLS;
        least = ns < least ? ns : least;
    }
    return least;
}

/* image: the kernel that is published for the calls. */
static int child(const char *image, const char *entry)
{
    kfit_cu_library library;
    kfit_cu_kernel kernel;
    kfit_cu_context context;
    const int t = 1, n = 0, epilogue = 4, type = -1;
    const void *bias_at = bias;
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context) ||
        cuStreamCreate(&stream, 1) || cublasLtMatmulDescCreate(&desc, 68, 0) ||
        cublasLtMatmulDescSetAttribute(desc, 3, &t, 4) || cublasLtMatmulDescSetAttribute(desc, 4, &n, 4) ||
        cublasLtMatmulDescSetAttribute(desc, 7, &epilogue, 4) ||
        cublasLtMatmulDescSetAttribute(desc, 8, &bias_at, 8) ||
        cublasLtMatmulDescSetAttribute(desc, 26, &type, 4) ||
        cublasLtMatrixLayoutCreate(&layout[0], BF16, K, N, K) ||
        cublasLtMatrixLayoutCreate(&layout[1], BF16, K, M, K) ||
        cublasLtMatrixLayoutCreate(&layout[2], BF16, N, M, N))
        return 1;
    handle = quick_handle(stream);
    if (cuLibraryLoadData(&library, kfit_test_read(image, NULL), NULL, NULL, 0, NULL, NULL, 0) ||
        cuLibraryGetKernel(&kernel, library, entry) || cuKernelGetFunction(&nothing, kernel))
        return 1;
    double first = now_ns();
    gemm();
    first = now_ns() - first;
    printf("%.2f %.2f %.2f %.0f\n", best(gemm), best(matmul), best(launch), first);
    return 0;
}

/* ---- the parent ---- */

/* Leaves the image in a file, for the child to launch it by itself; its entry in `entry`. */
static void publish(const char *dir, const char *image, char entry[64])
{
    static const char *const keys[] = {KEY, KEY "/epi=bias"};
    struct kfit_record r[2] = {0};
    struct kfit_built built[2];
    uint64_t number;
    for (int i = 0; i < 2; i++) {
        const union kfit_key key = key_of(keys[i]);
        built[i] = build("at_once", "ns=1", "", &key);
        r[i] = (struct kfit_record){.key = key,
                                    .kind = KFIT_RECORD_WINNER,
                                    .op_version = 1,
                                    .env_hard = env.hard_hash,
                                    .env_soft = env.soft_hash,
                                    .ns_candidate = 1,
                                    .ns_incumbent = 2,
                                    .ns_generic = 2,
                                    .ratio = 2,
                                    .lo = 2,
                                    .hi = 2,
                                    .origin = "person:bench",
                                    .plan = built[i].plan,
                                    .image = built[i].image,
                                    .image_bytes = built[i].image_bytes};
    }
    kfit_test_write(image, built[1].image, built[1].image_bytes);
    snprintf(entry, 64, "%s", built[1].plan.launches[0].entry);
    const struct kfit_publish_params p = {
        .dir = dir, .records = r, .count = 2, .envs = &env, .env_count = 1, .approver = "bench"};
    CHECK_OK(kfit_generation_publish(&p, &number, &err), err);
}

static void what_the_shim_adds(void)
{
    static char self[512];
    char cache[320], cache_env[340], trace[320], only[340], image[320], entry[64];
    enum { WITHOUT, OFF, RECORD, MISS, HIT, WAYS };
    static double ns[WAYS][4][ROUNDS], more[WAYS][2][ROUNDS];
    setup("");
    snprintf(cache, sizeof cache, "%s/cache", kfit_test_dir());
    snprintf(cache_env, sizeof cache_env, "KFIT_CACHE=%s", cache);
    snprintf(trace, sizeof trace, "KFIT_TRACE=%s/trace", kfit_test_dir());
    snprintf(only, sizeof only, "KFIT_BAN=%s %s", KEY, KEY "/epi=bias");
    snprintf(image, sizeof image, "%s/image", kfit_test_dir());
    publish(cache, image, entry);
    CHECK(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    static const char shim[] = "LD_PRELOAD=" SHIM;
    const struct {
        const char *name, *env[5];
    } ways[WAYS] = {{"without", {"KFIT_LOG=none", NULL}},
                    {"off", {shim, "KFIT_LOG=none", NULL}},
                    {"record", {shim, "KFIT_LOG=none", trace, NULL}},
                    {"miss", {shim, "KFIT_LOG=none", trace, cache_env, only}},
                    {"hit", {shim, "KFIT_LOG=none", trace, cache_env, NULL}}};
    for (int r = 0; r < ROUNDS; r++)
        for (int w = 0; w < WAYS; w++) {
            const char *const given[] = {ways[w].env[0], ways[w].env[1], ways[w].env[2],
                                         ways[w].env[3], ways[w].env[4], NULL};
            char *out, *said;
            CHECK(!kfit_test_run((const char *[]){self, "child", image, entry, NULL}, given, &out, &said));
            CHECK(sscanf(out, "%lf %lf %lf %lf", &ns[w][0][r], &ns[w][1][r], &ns[w][2][r], &ns[w][3][r]) ==
                  4);
            for (int f = 0; f < 2; f++)
                more[w][f][r] = ns[w][f][r] - (w == HIT ? ns[w][2][r] : ns[0][f][r]);
        }
    printf("%d rounds in turn, median ns per call more than without the shim (hit: more than the launch):\n",
           ROUNDS);
    for (int w = 0; w < WAYS; w++)
        printf("  %-8s cublasGemmEx %+7.1f   cublasLtMatmul %+7.1f   first call %8.1f us\n", ways[w].name,
               median(more[w][0], ROUNDS), median(more[w][1], ROUNDS), median(ns[w][3], ROUNDS) / 1e3);
    printf("  (without: %.1f and %.1f ns; the double's launch: %.1f ns)\n", median(ns[0][0], ROUNDS),
           median(ns[0][1], ROUNDS), median(ns[HIT][2], ROUNDS));
}

int main(int argc, char **argv)
{
    static const struct kfit_test tests[] = {TEST(what_the_shim_adds)};
    return argc == 4 && !strcmp(argv[1], "child") ? child(argv[2], argv[3])
                                                  : kfit_test_main(argc, argv, tests, 1);
}
