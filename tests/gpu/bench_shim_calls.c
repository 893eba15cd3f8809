/* Calls cuBLAS as a framework does: by undefined symbols of a shared library, which whoever comes first in the
 * process' scope defines. bench_shim loads it. */
#include "bench_shim.h"

typedef struct cublas *handle;
extern int cublasCreate_v2(handle *);
extern int cublasSetStream_v2(handle, void *stream);
extern int cublasSetWorkspace_v2(handle, void *workspace, size_t bytes);
extern int cublasGemmEx(handle, int transa, int transb, int m, int n, int k, const void *alpha, const void *a,
                        int type_a, int lda, const void *b, int type_b, int ldb, const void *beta, void *c,
                        int type_c, int ldc, int compute, int algo);
extern int cublasLtMatmulDescCreate(void **, int compute, int scale_type);
extern int cublasLtMatmulDescSetAttribute(void *, int attribute, const void *, size_t bytes);
extern int cublasLtMatrixLayoutCreate(void **, int type, uint64_t rows, uint64_t cols, int64_t ld);
extern int cublasLtMatmulPreferenceCreate(void **);
extern int cublasLtMatmulPreferenceSetAttribute(void *, int attribute, const void *, size_t bytes);
extern int cublasLtMatmulAlgoGetHeuristic(void *, void *desc, void *a, void *b, void *c, void *d,
                                          void *preference, int want, void *results, int *found);
extern int cublasLtMatmul(void *, void *desc, const void *alpha, const void *a, void *layout_a, const void *b,
                          void *layout_b, const void *beta, const void *c, void *layout_c, void *d,
                          void *layout_d, const void *algo, void *workspace, size_t bytes, void *stream);

enum {
    OP_N,
    OP_T,
    R_16BF = 14,
    COMPUTE_32F = 68,
    TENSOR_OP = 99,
    TRANSA = 3,
    TRANSB = 4,
    EPILOGUE = 7,
    BIAS_POINTER = 8,
    WORKSPACE = 1,
    ALIGN_A = 5
};

static const float one = 1, zero;

/* Returns the first error, and which call it was. */
static int open_lt(struct bench_calls *c, const char **what)
{
    const int t = OP_T, n = OP_N, epilogue = 4; /* bias */
    const size_t workspace = c->workspace_bytes;
    const uint32_t align = 256;
    const struct {
        uint64_t rows, cols;
        int64_t ld;
    } layout[3] = {{(uint64_t)c->k, (uint64_t)c->n, c->k},
                   {(uint64_t)c->k, (uint64_t)c->m, c->k},
                   {(uint64_t)c->n, (uint64_t)c->m, c->n}};
    struct { /* cublasLtMatmulHeuristicResult_t */
        char algo[64];
        size_t workspace;
        int status;
        float waves;
        int reserved[4];
    } result = {0};
    void *preference;
    int found = 0, r = cublasLtMatmulDescCreate(&c->desc, COMPUTE_32F, 0);
    *what = "cublasLt's descriptors";
    r = r ? r : cublasLtMatmulDescSetAttribute(c->desc, TRANSA, &t, sizeof t);
    r = r ? r : cublasLtMatmulDescSetAttribute(c->desc, TRANSB, &n, sizeof n);
    r = r ? r : cublasLtMatmulDescSetAttribute(c->desc, EPILOGUE, &epilogue, sizeof epilogue);
    r = r ? r : cublasLtMatmulDescSetAttribute(c->desc, BIAS_POINTER, &c->bias, sizeof c->bias);
    for (unsigned i = 0; i < 3; i++)
        r = r ? r
              : cublasLtMatrixLayoutCreate(&c->layout[i], R_16BF, layout[i].rows, layout[i].cols,
                                           layout[i].ld);
    r = r ? r : cublasLtMatmulPreferenceCreate(&preference);
    r = r ? r : cublasLtMatmulPreferenceSetAttribute(preference, WORKSPACE, &workspace, sizeof workspace);
    for (int i = 0; i < 4; i++)
        r = r ? r : cublasLtMatmulPreferenceSetAttribute(preference, ALIGN_A + i, &align, sizeof align);
    if (r)
        return r;
    *what = "cublasLtMatmulAlgoGetHeuristic";
    r = cublasLtMatmulAlgoGetHeuristic(c->handle, c->desc, c->layout[0], c->layout[1], c->layout[2],
                                       c->layout[2], preference, 1, &result, &found);
    memcpy(c->algo, result.algo, sizeof c->algo);
    return r ? r : found != 1;
}

int bench_open(struct bench_calls *c, const char **what)
{
    int r = cublasCreate_v2((handle *)&c->handle);
    *what = "cublasCreate_v2";
    r = r ? r : cublasSetStream_v2(c->handle, c->stream);
    r = r ? r : cublasSetWorkspace_v2(c->handle, c->workspace, c->workspace_bytes);
    return r ? r : open_lt(c, what);
}

int bench_gemm_ex(struct bench_calls *c, bool own)
{
    __typeof__(&cublasGemmEx) f = own ? (__typeof__(&cublasGemmEx))c->gemm_ex : cublasGemmEx;
    return f(c->handle, OP_T, OP_N, c->n, c->m, c->k, &one, c->w, R_16BF, c->k, c->x, R_16BF, c->k, &zero, c->y, R_16BF, c->n,
             COMPUTE_32F, TENSOR_OP);
}

int bench_lt_matmul(struct bench_calls *c, bool own)
{
    __typeof__(&cublasLtMatmul) f = own ? (__typeof__(&cublasLtMatmul))c->lt_matmul : cublasLtMatmul;
    return f(c->handle, c->desc, &one, c->w, c->layout[0], c->x, c->layout[1], &zero, c->y, c->layout[2], c->y, c->layout[2],
             c->algo, c->workspace, c->workspace_bytes, c->stream);
}
