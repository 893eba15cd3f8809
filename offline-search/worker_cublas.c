/* cuBLAS called exactly as PyTorch calls it: the same entry point, compute type, algorithm and workspace. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "worker_cuda.h"

enum { CUBLAS_OP_N = 0, CUBLAS_OP_T = 1, CUBLAS_COMPUTE_32F = 68, CUBLAS_GEMM_DEFAULT_TENSOR_OP = 99 };
enum { CUDA_R_32F = 0, CUDA_R_16F = 2, CUDA_R_16BF = 14 };
#define WORKSPACE_BYTES ((size_t)32 << 20) /* PyTorch's default on Hopper */

/* X(member, symbol, arguments) */
#define CUBLAS_LIST(X)                                                                                       \
    X(create, cublasCreate_v2, (void **))                                                                    \
    X(set_stream, cublasSetStream_v2, (void *, kfit_cu_stream))                                              \
    X(set_workspace, cublasSetWorkspace_v2, (void *, void *, size_t))                                        \
    X(version, cublasGetVersion_v2, (void *, int *))                                                         \
    X(gemm_ex, cublasGemmEx,                                                                                 \
      (void *, int ta, int tb, int m, int n, int k, const void *alpha, const void *a, int type_a, int lda,   \
       const void *b, int type_b, int ldb, const void *beta, void *c, int type_c, int ldc, int compute, int algo)) \
    X(sgemm, cublasSgemm_v2,                                                                                 \
      (void *, int ta, int tb, int m, int n, int k, const float *alpha, const float *a, int lda, const float *b, \
       int ldb, const float *beta, float *c, int ldc))                                                       \
    X(dgemm, cublasDgemm_v2,                                                                                 \
      (void *, int ta, int tb, int m, int n, int k, const double *alpha, const double *a, int lda,           \
       const double *b, int ldb, const double *beta, double *c, int ldc))

struct generic_cuda {
    void *handle;
    kfit_cu_ptr workspace;
#define KFIT_X(member, symbol, args) int(*member) args;
    CUBLAS_LIST(KFIT_X)
#undef KFIT_X
};

static bool failed(struct worker *w, const char *what, int status)
{
    snprintf(w->reply->message, sizeof w->reply->message, "%s: cuBLAS status %d", what, status);
    w->reply->error = status ? status : 1;
    return false;
}

bool generic_cuda_open(struct worker *w, const struct kfit_generic *g)
{
    void *lib = dlopen(g->path, RTLD_NOW | RTLD_LOCAL);
    struct generic_cuda *b = calloc(1, sizeof *b);
    if (!lib || !b) {
        snprintf(w->reply->message, sizeof w->reply->message, "cannot open the generic: %s", lib ? "no memory" : dlerror());
        w->reply->error = 1;
        free(b);
        return false;
    }
#define KFIT_X(member, symbol, args)                                                                         \
    if (!(*(void **)&b->member = dlsym(lib, #symbol))) {                                                     \
        snprintf(w->reply->message, sizeof w->reply->message, "%.180s lacks %s", g->path, #symbol);          \
        w->reply->error = 1;                                                                                 \
        free(b);                                                                                             \
        return false;                                                                                        \
    }
    CUBLAS_LIST(KFIT_X)
#undef KFIT_X
    w->generic = b;
    int r = b->create(&b->handle);
    if (r)
        return failed(w, "cublasCreate", r);
    if (!CU(w, mem_alloc(&b->workspace, WORKSPACE_BYTES)))
        return false;
    r = b->set_stream(b->handle, w->stream);
    if (!r) /* after the stream: setting a stream resets the workspace */
        r = b->set_workspace(b->handle, (void *)(uintptr_t)b->workspace, WORKSPACE_BYTES);
    return r ? failed(w, "cublasSetWorkspace", r) : true;
}

int generic_cuda_version(struct worker *w)
{
    int version = 0;
    return w->generic->version(w->generic->handle, &version) ? 0 : version;
}

static int data_type(unsigned dtype)
{
    return dtype == KFIT_F16 ? CUDA_R_16F : dtype == KFIT_BF16 ? CUDA_R_16BF : CUDA_R_32F;
}

/* Row-major C[m,n] = op(A) op(B) is column-major C^T = op(B)^T op(A)^T: B first, n before m. */
bool generic_cuda_call(struct worker *w, const kfit_cu_ptr args[KFIT_CU_ARGS])
{
    const struct kfit_gemm_key *g = &w->key.gemm;
    struct generic_cuda *b = w->generic;
    const int ta = g->ta ? CUBLAS_OP_T : CUBLAS_OP_N, tb = g->tb ? CUBLAS_OP_T : CUBLAS_OP_N;
    void *a_ = (void *)(uintptr_t)args[0], *b_ = (void *)(uintptr_t)args[1], *c_ = (void *)(uintptr_t)args[2];
    int r;
    if (g->type_a == KFIT_F64) {
        const double alpha = g->alpha, beta = g->beta;
        r = b->dgemm(b->handle, tb, ta, g->n, g->m, g->k, &alpha, b_, g->ldb, a_, g->lda, &beta, c_, g->ldc);
    } else {
        const float alpha = g->alpha, beta = g->beta;
        if (g->type_a == KFIT_F32)
            r = b->sgemm(b->handle, tb, ta, g->n, g->m, g->k, &alpha, b_, g->ldb, a_, g->lda, &beta, c_, g->ldc);
        else
            r = b->gemm_ex(b->handle, tb, ta, g->n, g->m, g->k, &alpha, b_, data_type(g->type_b), g->ldb, a_,
                           data_type(g->type_a), g->lda, &beta, c_, data_type(g->type_c), g->ldc, CUBLAS_COMPUTE_32F,
                           CUBLAS_GEMM_DEFAULT_TENSOR_OP);
    }
    return r ? failed(w, "cublasGemm", r) : true;
}
