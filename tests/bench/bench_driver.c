/* What the shim adds to calls of the driver, in nanoseconds, on the double of libcuda: children with and without it in
 * turn, the best of many blocks each. A launch of the double's own costs about as much as the real one's host side. */
#include <dlfcn.h>
#include <spawn.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "driver_hooks.h"
#include "kfit/cuda.h"
#include "kfit_test.h"
#include "median.h"

enum { ROUNDS = 7, BLOCKS = 20, CALLS = 500 };

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* ---- the child ---- */

static void *libcuda;
static kfit_cu_stream stream;
static kfit_cu_function f;
static kfit_cu_kernel kernel;
static kfit_cu_exec exec;
static kfit_cu_result (*launch_kernel)(KFIT_LAUNCH_SHAPE, void **, void **);
static kfit_cu_result (*launch_graph)(kfit_cu_exec, kfit_cu_stream);
static kfit_cu_result (*get)(const char *, void **, int, uint64_t, int *);

static void launch(void)
{
    void *params[] = {&(int){0}};
    launch_kernel(f, 1, 1, 1, 32, 1, 1, 0, stream, params, NULL);
}

static void launch_by_kernel(void)
{
    void *params[] = {&(int){0}};
    launch_kernel((kfit_cu_function)(void *)kernel, 1, 1, 1, 32, 1, 1, 0, stream, params, NULL);
}

static void replay(void)
{
    launch_graph(exec, stream);
}

static void ask_hooked(void)
{
    void *p;
    get("cuLaunchKernel", &p, 12000, 0, NULL);
}

static void ask_other(void)
{
    void *p;
    get("cuMemcpyBatchAsync", &p, 13000, 0, NULL);
}

static void find_other(void)
{
    dlsym(libcuda, "cuMemcpyBatchAsync");
}

static const struct {
    const char *name;
    void (*call)(void);
} cases[] = {
    {"cuLaunchKernel", launch},
    {"cuLaunchKernel of a CUkernel", launch_by_kernel},
    {"cuGraphLaunch", replay},
    {"cuGetProcAddress, hooked", ask_hooked},
    {"cuGetProcAddress, other", ask_other},
    {"dlsym, other", find_other},
};
enum { CASES = sizeof cases / sizeof *cases };

static void *find(const char *name)
{
    void *p = dlsym(libcuda, name);
    CHECK_MSG(p, "no %s", name);
    return p;
}

static int child(void)
{
    static const char image[] = "// PTX\nkfit-double 1\narch sm_90\nentry k nothing i\nend\n";
    kfit_cu_context context;
    kfit_cu_library library;
    kfit_cu_graph graph;
    libcuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    CHECK(libcuda);
    CHECK(!((kfit_cu_result(*)(unsigned))find("cuInit"))(0));
    CHECK(!((kfit_cu_result(*)(kfit_cu_context *, int))find("cuDevicePrimaryCtxRetain"))(&context, 0));
    CHECK(!((kfit_cu_result(*)(kfit_cu_context))find("cuCtxSetCurrent"))(context));
    CHECK(!((kfit_cu_result(*)(kfit_cu_stream *, unsigned))find("cuStreamCreate"))(&stream, 0));
    kfit_cu_result (*load)(kfit_cu_library *, const void *, KFIT_LOAD_OPTIONS) =
        (kfit_cu_result(*)(kfit_cu_library *, const void *, KFIT_LOAD_OPTIONS))find("cuLibraryLoadData");
    CHECK(!load(&library, image, NULL, NULL, 0, NULL, NULL, 0));
    CHECK(!((kfit_cu_result(*)(kfit_cu_kernel *, kfit_cu_library, const char *))find("cuLibraryGetKernel"))(
        &kernel, library, "k"));
    CHECK(!((kfit_cu_result(*)(kfit_cu_function *, kfit_cu_kernel))find("cuKernelGetFunction"))(&f, kernel));
    launch_kernel = (kfit_cu_result(*)(KFIT_LAUNCH_SHAPE, void **, void **))find("cuLaunchKernel");
    launch_graph = (kfit_cu_result(*)(kfit_cu_exec, kfit_cu_stream))find("cuGraphLaunch");
    get = (kfit_cu_result(*)(const char *, void **, int, uint64_t, int *))find("cuGetProcAddress_v2");
    CHECK(!((kfit_cu_result(*)(kfit_cu_stream, int))find("cuStreamBeginCapture_v2"))(stream, 0));
    launch();
    CHECK(!((kfit_cu_result(*)(kfit_cu_stream, kfit_cu_graph *))find("cuStreamEndCapture"))(stream, &graph));
    CHECK(!((kfit_cu_result(*)(kfit_cu_exec *, kfit_cu_graph, unsigned long long))find(
        "cuGraphInstantiateWithFlags"))(&exec, graph, 0));
    for (unsigned c = 0; c < CASES; c++) {
        double best = 1e9;
        for (int block = 0; block < BLOCKS; block++) {
            double start = now_ns();
            for (int i = 0; i < CALLS; i++)
                cases[c].call();
            double ns = (now_ns() - start) / CALLS;
            best = ns < best ? ns : best;
        }
        printf("%.2f\n", best);
    }
    return 0;
}

/* ---- the parent ---- */

static void costs(void)
{
    static double ns[2][CASES][ROUNDS], more[CASES][ROUNDS];
    char self[512] = "", trace[320], home[320], *out;
    CHECK(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    snprintf(trace, sizeof trace, "KFIT_TRACE=%s", kfit_test_dir());
    snprintf(home, sizeof home, "HOME=%s", kfit_test_dir());
    for (int r = 0; r < ROUNDS; r++)
        for (int w = 0; w < 2; w++) {
            const char *const env[] = {"LD_LIBRARY_PATH=" DOUBLE, home, trace,
                                       w ? "LD_PRELOAD=" SHIM : "LD_PRELOAD", NULL};
            CHECK_INT(kfit_test_run((const char *[]){self, "child", NULL}, env, &out, NULL), 0);
            for (unsigned c = 0; c < CASES; c++)
                ns[w][c][r] = strtod(out, &out);
        }
    printf("# %d rounds in turn: ns per call without the shim, what it adds, ratio\n", ROUNDS);
    for (unsigned c = 0; c < CASES; c++) {
        for (int r = 0; r < ROUNDS; r++)
            more[c][r] = ns[1][c][r] - ns[0][c][r];
        qsort(ns[0][c], ROUNDS, sizeof(double), by_value);
        qsort(more[c], ROUNDS, sizeof(double), by_value);
        double bare = ns[0][c][ROUNDS / 2], add = more[c][ROUNDS / 2];
        printf("  %-30s %8.1f %+8.1f   %.3f\n", cases[c].name, bare, add, (bare + add) / bare);
    }
}

static const struct kfit_test tests[] = {TEST_SLOW(costs, 300)};

int main(int argc, char **argv)
{
    return argc == 2 && !strcmp(argv[1], "child") ? child() : kfit_test_main(argc, argv, tests, 1);
}
