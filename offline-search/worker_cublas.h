/* The generic of a GPU worker, from within: cuBLAS and cuBLASLt, called as PyTorch calls them. */
#ifndef KFIT_WORKER_CUBLAS_H
#define KFIT_WORKER_CUBLAS_H

#include "worker_cuda.h"

enum { CUBLAS_OP_N = 0, CUBLAS_OP_T = 1, CUBLAS_COMPUTE_32F = 68, CUBLAS_GEMM_DEFAULT_TENSOR_OP = 99 };
enum { CUDA_R_32F = 0, CUDA_R_16F = 2, CUDA_R_16BF = 14 };

/* PyTorch's default on Hopper, for cuBLAS and cuBLASLt alike: the same memory. */
#define CUBLAS_WORKSPACE_BYTES ((size_t)32 << 20)

struct lt_heuristic { /* cublasLtMatmulHeuristicResult_t */
    struct {
        uint64_t data[8];
    } algo;
    size_t workspace_bytes;
    int state;
    float waves;
    int reserved[4];
};

/* X(member, symbol, arguments) */
#define CUBLAS_LIST(X)                                                                                       \
    X(create, cublasCreate_v2, (void **))                                                                    \
    X(set_stream, cublasSetStream_v2, (void *, kfit_cu_stream))                                              \
    X(set_workspace, cublasSetWorkspace_v2, (void *, void *, size_t))                                        \
    X(version, cublasGetVersion_v2, (void *, int *))                                                         \
    X(gemm_ex, cublasGemmEx,                                                                                 \
      (void *, int ta, int tb, int m, int n, int k, const void *alpha, const void *a, int type_a, int lda,   \
       const void *b, int type_b, int ldb, const void *beta, void *c, int type_c, int ldc, int compute,      \
       int algo))                                                                                            \
    X(gemm_batched_ex, cublasGemmStridedBatchedEx,                                                           \
      (void *, int ta, int tb, int m, int n, int k, const void *alpha, const void *a, int type_a, int lda,   \
       long long sa, const void *b, int type_b, int ldb, long long sb, const void *beta, void *c,            \
       int type_c, int ldc, long long sc, int batch, int compute, int algo))                                 \
    X(sgemm, cublasSgemm_v2,                                                                                 \
      (void *, int ta, int tb, int m, int n, int k, const float *alpha, const float *a, int lda,             \
       const float *b, int ldb, const float *beta, float *c, int ldc))                                       \
    X(sgemm_batched, cublasSgemmStridedBatched,                                                              \
      (void *, int ta, int tb, int m, int n, int k, const float *alpha, const float *a, int lda,             \
       long long sa, const float *b, int ldb, long long sb, const float *beta, float *c, int ldc,            \
       long long sc, int batch))

/* Of libcublasLt, which libcublas links: found through it. */
#define CUBLASLT_LIST(X)                                                                                     \
    X(desc_create, cublasLtMatmulDescCreate, (void **, int compute, int scale_type))                         \
    X(desc_set, cublasLtMatmulDescSetAttribute, (void *, int attribute, const void *value, size_t bytes))    \
    X(desc_destroy, cublasLtMatmulDescDestroy, (void *))                                                     \
    X(layout_create, cublasLtMatrixLayoutCreate, (void **, int type, uint64_t rows, uint64_t cols, int64_t ld)) \
    X(layout_destroy, cublasLtMatrixLayoutDestroy, (void *))                                                 \
    X(preference_create, cublasLtMatmulPreferenceCreate, (void **))                                          \
    X(preference_set, cublasLtMatmulPreferenceSetAttribute,                                                  \
      (void *, int attribute, const void *value, size_t bytes))                                              \
    X(preference_destroy, cublasLtMatmulPreferenceDestroy, (void *))                                         \
    X(heuristic, cublasLtMatmulAlgoGetHeuristic,                                                             \
      (void *lt, void *desc, void *a, void *b, void *c, void *d, void *preference, int wanted,               \
       struct lt_heuristic *, int *found))                                                                   \
    X(matmul, cublasLtMatmul,                                                                                \
      (void *lt, void *desc, const void *alpha, const void *a, void *layout_a, const void *b, void *layout_b, \
       const void *beta, const void *c, void *layout_c, void *d, void *layout_d, const void *algo,           \
       void *workspace, size_t workspace_bytes, kfit_cu_stream))

struct generic_cuda {
    void *handle; /* of cuBLAS; also one of cuBLASLt */
    kfit_cu_ptr workspace;
#define KFIT_X(member, symbol, args) int(*member) args;
    CUBLAS_LIST(KFIT_X)
#undef KFIT_X
    struct {
#define KFIT_X(member, symbol, args) int(*member) args;
        CUBLASLT_LIST(KFIT_X)
#undef KFIT_X
    } lt;
    /* what cuBLASLt chose last, and for what: it depends on the key and on how the pointers are aligned */
    struct {
        union kfit_key key;
        uint32_t align[4];
        struct lt_heuristic choice;
    } chosen;
};

/* The int that cudaDataType_t calls this type. */
int cublas_data_type(unsigned dtype);
/* Notes what failed and with which cuBLAS status; returns false. */
bool cublas_failed(struct worker *w, const char *what, int status);

/* F.linear with a bias: cublasLtMatmul with CUBLASLT_EPILOGUE_BIAS (worker_cublaslt.c). */
bool generic_cuda_bias(struct worker *w, const kfit_cu_ptr args[KFIT_CU_ARGS]);

#endif
