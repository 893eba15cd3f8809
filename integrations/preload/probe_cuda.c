/* kfit-probe-cuda LIBCUBLAS: makes a known number of calls, for `kfit doctor` to compare with what the shim counts.
 *
 * Prints "CALLS REPLAYED": calls of cublasGemmEx made one by one, and those that replays of a graph made. Exit status 77
 * and a line on stderr where that cannot be done. cuBLAS is called as frameworks call it, by a symbol that whoever comes
 * first in the process defines; the driver by dlopen and dlsym. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>

#include "kfit/cuda.h"

/* Weak: nobody defines them until the library is opened. The linker leaves them to the first call (meson.build). */
#define WEAK __attribute__((weak))
typedef struct cublas *handle;
extern WEAK int cublasCreate_v2(handle *);
extern WEAK int cublasSetStream_v2(handle, kfit_cu_stream);
extern WEAK int cublasSetWorkspace_v2(handle, void *workspace, size_t bytes);
extern WEAK int cublasGemmEx(handle, int transa, int transb, int m, int n, int k, const void *alpha,
                             const void *a, int type_a, int lda, const void *b, int type_b, int ldb,
                             const void *beta, void *c, int type_c, int ldc, int compute, int algo);

enum { OP_N, OP_T, R_16BF = 14, COMPUTE_32F = 68, TENSOR_OP = 99 };
enum { M = 8, N = 64, K = 32, CALLS = 5, CAPTURED = 2, LAUNCHES = 4, WORKSPACE_BYTES = 32 << 20 };

static const struct kfit_cuda *cu;
static kfit_cu_stream stream;
static handle blas;
static kfit_cu_ptr memory, workspace;

static int start(void)
{
    kfit_cu_device device;
    kfit_cu_context context;
    return cu->init(0) || cu->device_get(&device, 0) || cu->context_retain(&context, device) ||
           cu->context_set(context) || cu->stream_create(&stream, KFIT_CU_STREAM_NON_BLOCKING) ||
           cu->mem_alloc(&workspace, WORKSPACE_BYTES) ||
           cu->mem_alloc(&memory, 2 * (M * K + N * K + M * N)) ||
           cu->set32(memory, 0x3c003c00, (M * K + N * K + M * N) / 2, stream);
}

static int gemm(void)
{
    static const float one = 1, zero;
    const kfit_cu_ptr x = memory, w = x + 2 * M * K, y = w + 2 * N * K;
    return cublasGemmEx(blas, OP_T, OP_N, N, M, K, &one, (void *)(uintptr_t)w, R_16BF, K,
                        (void *)(uintptr_t)x, R_16BF, K, &zero, (void *)(uintptr_t)y, R_16BF, N, COMPUTE_32F,
                        TENSOR_OP);
}

static int calls(void)
{
    kfit_cu_graph graph;
    kfit_cu_exec exec;
    int r = cublasCreate_v2(&blas) || cublasSetStream_v2(blas, stream) ||
            cublasSetWorkspace_v2(blas, (void *)(uintptr_t)workspace, WORKSPACE_BYTES);
    for (unsigned i = 0; i < CALLS; i++)
        r = r || gemm();
    r = r || cu->stream_sync(stream) || cu->capture_begin(stream, KFIT_CU_CAPTURE_THREAD_LOCAL);
    for (unsigned i = 0; i < CAPTURED; i++)
        r = r || gemm();
    r = r || cu->capture_end(stream, &graph) || cu->graph_instantiate(&exec, graph, 0);
    for (unsigned i = 0; i < LAUNCHES; i++)
        r = r || cu->graph_launch(exec, stream);
    return r || cu->stream_sync(stream);
}

int main(int argc, char **argv)
{
    struct kfit_error err = {0};
    if (argc != 2)
        return fprintf(stderr, "usage: kfit-probe-cuda LIBCUBLAS\n"), 2;
    if (kfit_cuda_load(&cu, &err) != KFIT_OK)
        return fprintf(stderr, "%s\n", err.text), 77;
    if (start())
        return fprintf(stderr, "no GPU that can be used\n"), 77;
    if (!dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL))
        return fprintf(stderr, "%s\n", dlerror()), 77;
    if (calls())
        return fprintf(stderr, "cuBLAS or a graph of its calls failed\n"), 1;
    printf("%d %d\n", CALLS, CAPTURED * LAUNCHES);
    return 0;
}
