/* What the doubles of libcublas and libcublasLt share: a handle of the one is one of the other, as on the real thing, and
 * every call becomes a launch of the double's one gemm kernel. */
#ifndef KFIT_TEST_DOUBLE_BLAS_H
#define KFIT_TEST_DOUBLE_BLAS_H

#include "double.h"

enum { CUDA_R_32F = 0, CUDA_R_16F = 2, CUDA_R_16BF = 14 };
enum { F32 = 1, F64, F16, BF16 }; /* enum kfit_dtype */
enum { OK = 0, NOT_INITIALIZED = 1, INVALID_VALUE = 7, EXECUTION_FAILED = 13, NOT_SUPPORTED = 15 };

struct handle {
    kfit_cu_stream stream;
    kfit_cu_function gemm;
    kfit_cu_result (*launch)(const struct kfit_cu_launch_config *, kfit_cu_function, void **, void **);
    void *workspace;
    size_t workspace_bytes;
    int pointer_mode, math_mode;
};

/* Calls that came to a library itself, whoever made them. */
EXPORT unsigned kfit_double_cublas_calls(void);
EXPORT unsigned kfit_double_cublaslt_calls(void);
/* How often an attribute was asked for. */
EXPORT unsigned kfit_double_cublaslt_reads(void);

/* Handles come from libcublasLt, which libcublas needs, on the real thing and here: it is found through it. A new one lies where
 * the last lay that was destroyed. */
EXPORT struct handle *kfit_double_handle(void);
EXPORT int kfit_double_destroy(struct handle *);

/* As the column-major caller said it. */
struct blas_call {
    int ta, tb, m, n, k, type_ab, type_c, lda, ldb, ldc, batch;
    long long sa, sb, sc;
    const void *a, *b, *bias;
    void *c;
    bool beta;
};

/* C^T[n,m] = op(B)^T op(A)^T row-major is what the column-major caller asked for. */
static inline int blas_launch(struct handle *h, const struct blas_call *c)
{
    const struct kfit_cu_launch_config config = {.grid = {1, 1, 1}, .block = {128, 1, 1}, .stream = h->stream};
    struct blas_call x = *c;
    int beta = c->beta, type = c->type_ab == CUDA_R_16F ? F16 : c->type_ab == CUDA_R_16BF ? BF16 : F32;
    int type_c = c->type_c == CUDA_R_16F ? F16 : c->type_c == CUDA_R_16BF ? BF16 : F32;
    void *params[] = {&x.b,  &x.a,    &x.c,  &x.bias, &x.n,   &x.m,   &x.k,     &x.tb, &x.ta, &type,
                      &type_c, &beta, &x.ldb, &x.lda,  &x.ldc, &x.batch, &x.sb,  &x.sa, &x.sc};
    return h->launch(&config, h->gemm, params, NULL) ? EXECUTION_FAILED : OK;
}

#endif
