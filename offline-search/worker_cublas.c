/* cuBLAS called exactly as PyTorch calls it: the same entry points, compute type, algorithm and workspace.
 *
 * F.linear without bias: cublasGemmEx, float32 cublasSgemm. bmm: cublasGemmStridedBatchedEx, float32
 * cublasSgemmStridedBatched. F.linear with bias: cublasLtMatmul (worker_cublaslt.c). */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "worker_cublas.h"

bool cublas_failed(struct worker *w, const char *what, int status)
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
#define KFIT_X(table, symbol)                                                                                \
    if (!(*(void **)&(table) = dlsym(lib, #symbol))) {                                                       \
        snprintf(w->reply->message, sizeof w->reply->message, "%.180s lacks %s", g->path, #symbol);          \
        w->reply->error = 1;                                                                                 \
        free(b);                                                                                             \
        return false;                                                                                        \
    }
#define IN_BLAS(member, symbol, args) KFIT_X(b->member, symbol)
#define IN_LT(member, symbol, args) KFIT_X(b->lt.member, symbol)
    CUBLAS_LIST(IN_BLAS)
    CUBLASLT_LIST(IN_LT)
#undef KFIT_X
    w->generic = b;
    int r = b->create(&b->handle);
    if (r)
        return cublas_failed(w, "cublasCreate", r);
    if (!CU(w, mem_alloc(&b->workspace, CUBLAS_WORKSPACE_BYTES)))
        return false;
    r = b->set_stream(b->handle, w->stream);
    if (!r) /* after the stream: setting a stream resets the workspace */
        r = b->set_workspace(b->handle, (void *)(uintptr_t)b->workspace, CUBLAS_WORKSPACE_BYTES);
    return r ? cublas_failed(w, "cublasSetWorkspace", r) : true;
}

int generic_cuda_version(struct worker *w)
{
    int version = 0;
    return w->generic->version(w->generic->handle, &version) ? 0 : version;
}

int cublas_data_type(unsigned dtype)
{
    return dtype == KFIT_F16 ? CUDA_R_16F : dtype == KFIT_BF16 ? CUDA_R_16BF : CUDA_R_32F;
}

/* Row-major C[m,n] = op(A) op(B) is column-major C^T = op(B)^T op(A)^T: B first, n before m. */
bool generic_cuda_call(struct worker *w, const kfit_cu_ptr args[KFIT_CU_ARGS])
{
    const struct kfit_gemm_key *g = &w->key.gemm;
    const struct kfit_tensor *t = w->tensor;
    struct generic_cuda *b = w->generic;
    const int ta = g->ta ? CUBLAS_OP_T : CUBLAS_OP_N, tb = g->tb ? CUBLAS_OP_T : CUBLAS_OP_N;
    const int type_a = cublas_data_type(g->type_a), type_b = cublas_data_type(g->type_b), type_c = cublas_data_type(g->type_c);
    const float alpha = g->alpha, beta = g->beta;
    const bool batched = t[2].batch > 1;
    void *a_ = (void *)(uintptr_t)args[0], *b_ = (void *)(uintptr_t)args[1], *c_ = (void *)(uintptr_t)args[2];
    int r;
    if (g->epi == KFIT_EPI_BIAS)
        return generic_cuda_bias(w, args);
    if (g->type_a == KFIT_F32 && !batched)
        r = b->sgemm(b->handle, tb, ta, g->n, g->m, g->k, &alpha, b_, g->ldb, a_, g->lda, &beta, c_, g->ldc);
    else if (g->type_a == KFIT_F32)
        r = b->sgemm_batched(b->handle, tb, ta, g->n, g->m, g->k, &alpha, b_, g->ldb, t[1].batch_stride, a_, g->lda,
                             t[0].batch_stride, &beta, c_, g->ldc, t[2].batch_stride, (int)t[2].batch);
    else if (!batched)
        r = b->gemm_ex(b->handle, tb, ta, g->n, g->m, g->k, &alpha, b_, type_b, g->ldb, a_, type_a, g->lda, &beta, c_, type_c,
                       g->ldc, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT_TENSOR_OP);
    else
        r = b->gemm_batched_ex(b->handle, tb, ta, g->n, g->m, g->k, &alpha, b_, type_b, g->ldb, t[1].batch_stride, a_, type_a,
                               g->lda, t[0].batch_stride, &beta, c_, type_c, g->ldc, t[2].batch_stride, (int)t[2].batch,
                               CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT_TENSOR_OP);
    return r ? cublas_failed(w, batched ? "cublasGemmStridedBatched" : "cublasGemm", r) : true;
}
