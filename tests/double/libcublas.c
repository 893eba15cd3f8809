/* libcublas. */
#include <dlfcn.h>
#include <stdlib.h>

#include "blas.h"

enum { COMPUTE_32F = 68, DEFAULT_TENSOR_OP = 99 };
#ifndef MINOR
#define MINOR 1 /* of its version, 13.1.0 */
#endif

EXPORT int cublasCreate_v2(struct handle **);
EXPORT int cublasDestroy_v2(struct handle *);
EXPORT int cublasSetStream_v2(struct handle *, kfit_cu_stream);
EXPORT int cublasSetWorkspace_v2(struct handle *, void *, size_t);
EXPORT int cublasGetVersion_v2(struct handle *, int *);
EXPORT int cublasGetProperty(int, int *);
EXPORT int cublasGetStream_v2(struct handle *, kfit_cu_stream *);
EXPORT int cublasGetPointerMode_v2(struct handle *, int *);
EXPORT int cublasSetPointerMode_v2(struct handle *, int);
EXPORT int cublasGetMathMode(struct handle *, int *);
EXPORT int cublasSetMathMode(struct handle *, int);
int cublasLtMatmul(struct handle *, void *, const void *, const void *, void *, const void *, void *, const void *, const void *,
                   void *, void *, void *, const void *, void *, size_t, kfit_cu_stream);
EXPORT int cublasGemmEx(struct handle *, int, int, int, int, int, const void *, const void *, int, int, const void *, int, int,
                        const void *, void *, int, int, int, int);
EXPORT int cublasGemmStridedBatchedEx(struct handle *, int, int, int, int, int, const void *, const void *, int, int, long long,
                                      const void *, int, int, long long, const void *, void *, int, int, long long, int, int, int);
EXPORT int cublasSgemm_v2(struct handle *, int, int, int, int, int, const float *, const float *, int, const float *, int,
                          const float *, float *, int);
EXPORT int cublasSgemmStridedBatched(struct handle *, int, int, int, int, int, const float *, const float *, int, long long,
                                     const float *, int, long long, const float *, float *, int, long long, int);

/* The same with 64-bit integers. */
#define WIDE(function, parameters, arguments)                                                                \
    EXPORT int function##_64 parameters;                                                                     \
    int function##_64 parameters                                                                             \
    {                                                                                                        \
        return function arguments;                                                                           \
    }
#define I int64_t
WIDE(cublasGemmEx,
     (struct handle * h, int ta, int tb, I m, I n, I k, const void *alpha, const void *a, int type_a, I lda, const void *b,
      int type_b, I ldb, const void *beta, void *c, int type_c, I ldc, int compute, int algo),
     (h, ta, tb, (int)m, (int)n, (int)k, alpha, a, type_a, (int)lda, b, type_b, (int)ldb, beta, c, type_c, (int)ldc, compute,
      algo))
WIDE(cublasGemmStridedBatchedEx,
     (struct handle * h, int ta, int tb, I m, I n, I k, const void *alpha, const void *a, int type_a, I lda, long long sa,
      const void *b, int type_b, I ldb, long long sb, const void *beta, void *c, int type_c, I ldc, long long sc, I batch,
      int compute, int algo),
     (h, ta, tb, (int)m, (int)n, (int)k, alpha, a, type_a, (int)lda, sa, b, type_b, (int)ldb, sb, beta, c, type_c, (int)ldc, sc,
      (int)batch, compute, algo))
WIDE(cublasSgemm_v2,
     (struct handle * h, int ta, int tb, I m, I n, I k, const float *alpha, const float *a, I lda, const float *b, I ldb,
      const float *beta, float *c, I ldc),
     (h, ta, tb, (int)m, (int)n, (int)k, alpha, a, (int)lda, b, (int)ldb, beta, c, (int)ldc))
WIDE(cublasSgemmStridedBatched,
     (struct handle * h, int ta, int tb, I m, I n, I k, const float *alpha, const float *a, I lda, long long sa, const float *b,
      I ldb, long long sb, const float *beta, float *c, I ldc, long long sc, I batch),
     (h, ta, tb, (int)m, (int)n, (int)k, alpha, a, (int)lda, sa, b, (int)ldb, sb, beta, c, (int)ldc, sc, (int)batch))

/* As the real one does for many shapes: cuBLASLt inside. 2: found by dlsym, in a function that is not hooked. */
static int inner_matmul(void)
{
    static double (*number)(const char *, double); /* threads that look for it at once find the same */
    void *driver = number ? NULL : dlopen("libcuda.so.1", RTLD_NOW);
    if (driver)
        *(void **)&number = dlsym(driver, "kfit_double_number");
    return number ? (int)number("inner_matmul", 0) : 0;
}

/* Stands for all that cuBLAS offers beside: it ends in a function that is hooked, by its name. */
EXPORT int cublasUnhooked(struct handle *, int, int, int, const float *, const void *, int, const void *, int, const float *,
                          void *, int);
int cublasUnhooked(struct handle *h, int m, int n, int k, const float *alpha, const void *a, int lda, const void *b, int ldb,
                   const float *beta, void *c, int ldc)
{
    if (inner_matmul() == 2) {
        void *lt = dlopen("libcublasLt.so.13", RTLD_NOW);
        int (*matmul)(struct handle *, void *, const void *, const void *, void *, const void *, void *, const void *,
                      const void *, void *, void *, void *, const void *, void *, size_t, kfit_cu_stream) = NULL;
        if (lt)
            *(void **)&matmul = dlsym(lt, "cublasLtMatmul");
        if (!matmul)
            return NOT_INITIALIZED;
        matmul(h, NULL, alpha, a, NULL, b, NULL, alpha, c, NULL, c, NULL, NULL, NULL, 0, h->stream);
    }
    return cublasGemmEx(h, 0, 0, m, n, k, alpha, a, CUDA_R_16BF, lda, b, CUDA_R_16BF, ldb, beta, c, CUDA_R_16BF, ldc, COMPUTE_32F,
                        DEFAULT_TENSOR_OP);
}

int cublasCreate_v2(struct handle **out)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    kfit_cu_function (*builtin)(const char *) = NULL;
    struct handle *h = kfit_double_handle();
    if (h && driver) {
        *(void **)&builtin = dlsym(driver, "kfit_double_builtin");
        *(void **)&h->launch = dlsym(driver, "cuLaunchKernelEx");
    }
    if (h && builtin)
        h->gemm = builtin("cublas");
    *out = h;
    return h && h->gemm ? OK : NOT_INITIALIZED;
}

int cublasDestroy_v2(struct handle *h)
{
    return kfit_double_destroy(h);
}

int cublasSetStream_v2(struct handle *h, kfit_cu_stream s)
{
    h->stream = s;
    return OK;
}

int cublasSetWorkspace_v2(struct handle *h, void *p, size_t bytes)
{
    h->workspace = p;
    h->workspace_bytes = bytes;
    return p && bytes ? OK : NOT_INITIALIZED;
}

int cublasGetVersion_v2(struct handle *h, int *version)
{
    (void)h;
    *version = 130100;
    return OK;
}

int cublasGetProperty(int which, int *value)
{
    *value = which == 0 ? 13 : which == 1 ? MINOR : 0;
    return OK;
}

int cublasGetStream_v2(struct handle *h, kfit_cu_stream *s)
{
    if (!h)
        return NOT_INITIALIZED;
    *s = h->stream;
    return OK;
}

int cublasGetPointerMode_v2(struct handle *h, int *mode)
{
    *mode = h->pointer_mode;
    return OK;
}

int cublasSetPointerMode_v2(struct handle *h, int mode)
{
    h->pointer_mode = mode;
    return OK;
}

int cublasGetMathMode(struct handle *h, int *mode)
{
    *mode = h->math_mode;
    return OK;
}

int cublasSetMathMode(struct handle *h, int mode)
{
    h->math_mode = mode;
    return OK;
}

static unsigned calls;

unsigned kfit_double_cublas_calls(void)
{
    return calls;
}

/* On the device they are not ours to read here: 1 and 0 are assumed. */
static float scalar(const struct handle *h, const void *p, float on_device)
{
    return h->pointer_mode ? on_device : *(const float *)p;
}

/* What is not called as PyTorch calls it is refused: alpha 1, one type of A and B, and of the call what it always says. */
static int gemm(struct handle *h, const struct blas_call *c, const void *alpha, int type_b, int compute, int algo)
{
    calls++;
    if (!h)
        return NOT_INITIALIZED;
    if (inner_matmul() == 1)
        cublasLtMatmul(h, NULL, alpha, c->a, NULL, c->b, NULL, alpha, c->c, NULL, c->c, NULL, NULL, NULL, 0, h->stream);
    if (scalar(h, alpha, 1) != 1 || c->type_ab != type_b || compute != COMPUTE_32F || algo != DEFAULT_TENSOR_OP || c->batch < 1)
        return INVALID_VALUE;
    return blas_launch(h, c);
}

int cublasGemmEx(struct handle *h, int ta, int tb, int m, int n, int k, const void *alpha, const void *a, int type_a, int lda,
                 const void *b, int type_b, int ldb, const void *beta, void *c, int type_c, int ldc, int compute, int algo)
{
    const struct blas_call call = {.ta = ta, .tb = tb, .m = m, .n = n, .k = k, .type_ab = type_a, .type_c = type_c, .lda = lda,
                                   .ldb = ldb, .ldc = ldc, .batch = 1, .a = a, .b = b, .c = c,
                                   .beta = h && scalar(h, beta, 0) != 0};
    return gemm(h, &call, alpha, type_b, compute, algo);
}

int cublasGemmStridedBatchedEx(struct handle *h, int ta, int tb, int m, int n, int k, const void *alpha, const void *a,
                               int type_a, int lda, long long sa, const void *b, int type_b, int ldb, long long sb,
                               const void *beta, void *c, int type_c, int ldc, long long sc, int batch, int compute, int algo)
{
    const struct blas_call call = {.ta = ta, .tb = tb, .m = m, .n = n, .k = k, .type_ab = type_a, .type_c = type_c, .lda = lda,
                                   .ldb = ldb, .ldc = ldc, .batch = batch, .sa = sa, .sb = sb, .sc = sc, .a = a, .b = b,
                                   .c = c, .beta = h && scalar(h, beta, 0) != 0};
    return gemm(h, &call, alpha, type_b, compute, algo);
}

int cublasSgemm_v2(struct handle *h, int ta, int tb, int m, int n, int k, const float *alpha, const float *a, int lda,
                   const float *b, int ldb, const float *beta, float *c, int ldc)
{
    return cublasGemmEx(h, ta, tb, m, n, k, alpha, a, CUDA_R_32F, lda, b, CUDA_R_32F, ldb, beta, c, CUDA_R_32F, ldc,
                        COMPUTE_32F, DEFAULT_TENSOR_OP);
}

int cublasSgemmStridedBatched(struct handle *h, int ta, int tb, int m, int n, int k, const float *alpha, const float *a, int lda,
                              long long sa, const float *b, int ldb, long long sb, const float *beta, float *c, int ldc,
                              long long sc, int batch)
{
    return cublasGemmStridedBatchedEx(h, ta, tb, m, n, k, alpha, a, CUDA_R_32F, lda, sa, b, CUDA_R_32F, ldb, sb, beta, c,
                                      CUDA_R_32F, ldc, sc, batch, COMPUTE_32F, DEFAULT_TENSOR_OP);
}
