/* libcublasLt: takes a matmul only as PyTorch's F.linear with a bias says it. Anything else (a descriptor or
 * preference that it does not set, an alignment that is not the pointer's, an algorithm of another call's heuristic, too
 * little workspace) is refused, so that a test of the judge is one of the call too. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "blas.h"

enum { COMPUTE_32F = 68, EPILOGUE_BIAS = 4, WORKSPACE = 32 << 20, ATTRIBUTES = 40 };
enum { DESC_TRANSA = 3, DESC_TRANSB = 4, DESC_EPILOGUE = 7, DESC_BIAS_POINTER = 8 };
enum { PREF_WORKSPACE = 1, PREF_ALIGN_A = 5, PREF_ALIGN_D = 8 };

struct attributes { /* a descriptor or a preference */
    uint64_t value[ATTRIBUTES];
    uint64_t set; /* one bit each */
    int compute, scale;
};

struct layout {
    int type;
    uint64_t rows, cols;
    int64_t ld;
};

struct algo {
    uint64_t magic, align[4], made_for, rest[2];
};
#define MAGIC 0x6b66697461676c6f

struct result {
    struct algo algo;
    size_t workspace_bytes;
    int state;
    float waves;
    int reserved[4];
};

EXPORT int cublasLtMatmulDescCreate(struct attributes **, int, int);
EXPORT int cublasLtMatmulDescSetAttribute(struct attributes *, int, const void *, size_t);
EXPORT int cublasLtMatmulDescDestroy(struct attributes *);
EXPORT int cublasLtMatrixLayoutCreate(struct layout **, int, uint64_t, uint64_t, int64_t);
EXPORT int cublasLtMatrixLayoutDestroy(struct layout *);
EXPORT int cublasLtMatmulPreferenceCreate(struct attributes **);
EXPORT int cublasLtMatmulPreferenceSetAttribute(struct attributes *, int, const void *, size_t);
EXPORT int cublasLtMatmulPreferenceDestroy(struct attributes *);
EXPORT int cublasLtMatmulAlgoGetHeuristic(struct handle *, struct attributes *, struct layout *, struct layout *, struct layout *,
                                          struct layout *, struct attributes *, int, struct result *, int *);
EXPORT int cublasLtMatmul(struct handle *, struct attributes *, const float *, const void *, struct layout *, const void *,
                          struct layout *, const float *, const void *, struct layout *, void *, struct layout *,
                          const struct algo *, void *, size_t, kfit_cu_stream);

int kfit_double_lt(void)
{
    return OK;
}

int cublasLtMatmulDescCreate(struct attributes **out, int compute, int scale)
{
    struct attributes *d = calloc(1, sizeof *d);
    if (d) {
        d->compute = compute;
        d->scale = scale;
    }
    *out = d;
    return d ? OK : NOT_INITIALIZED;
}

static int set(struct attributes *d, int which, const void *value, size_t bytes, size_t want)
{
    if (which < 0 || which >= ATTRIBUTES || bytes != want)
        return INVALID_VALUE;
    memcpy(&d->value[which], value, bytes);
    d->set |= UINT64_C(1) << which;
    return OK;
}

int cublasLtMatmulDescSetAttribute(struct attributes *d, int which, const void *value, size_t bytes)
{
    return set(d, which, value, bytes, which == DESC_BIAS_POINTER ? sizeof(void *) : 4);
}

int cublasLtMatmulPreferenceSetAttribute(struct attributes *d, int which, const void *value, size_t bytes)
{
    return set(d, which, value, bytes, which == PREF_WORKSPACE ? 8 : 4);
}

int cublasLtMatmulPreferenceCreate(struct attributes **out)
{
    return cublasLtMatmulDescCreate(out, 0, 0);
}

int cublasLtMatmulDescDestroy(struct attributes *d)
{
    free(d);
    return OK;
}

int cublasLtMatmulPreferenceDestroy(struct attributes *d)
{
    free(d);
    return OK;
}

int cublasLtMatrixLayoutCreate(struct layout **out, int type, uint64_t rows, uint64_t cols, int64_t ld)
{
    struct layout *l = calloc(1, sizeof *l);
    *out = l;
    if (!l)
        return NOT_INITIALIZED;
    *l = (struct layout){type, rows, cols, ld};
    return ld >= (int64_t)rows ? OK : INVALID_VALUE;
}

int cublasLtMatrixLayoutDestroy(struct layout *l)
{
    free(l);
    return OK;
}

/* What the choice of an algorithm depends on. */
static uint64_t digest(const struct attributes *d, const struct layout *a, const struct layout *b, const struct layout *c)
{
    const struct layout *const all[] = {a, b, c};
    uint64_t h = d->value[DESC_TRANSA] * 2 + d->value[DESC_TRANSB] + 1;
    for (unsigned i = 0; i < 3; i++) {
        h = (h ^ (uint64_t)all[i]->type) * 0x9e3779b97f4a7c15;
        h = (h ^ all[i]->rows) * 0x9e3779b97f4a7c15;
        h = (h ^ all[i]->cols) * 0x9e3779b97f4a7c15;
        h = (h ^ (uint64_t)all[i]->ld) * 0x9e3779b97f4a7c15;
    }
    return h;
}

static bool as_pytorch(const struct attributes *d, const struct layout *a, const struct layout *b, const struct layout *c)
{
    const uint64_t want = 1 << DESC_TRANSA | 1 << DESC_TRANSB | 1 << DESC_EPILOGUE | 1 << DESC_BIAS_POINTER;
    const bool ta = d->value[DESC_TRANSA], tb = d->value[DESC_TRANSB];
    return d->compute == COMPUTE_32F && d->scale == CUDA_R_32F && d->set == want && d->value[DESC_EPILOGUE] == EPILOGUE_BIAS &&
           d->value[DESC_BIAS_POINTER] && a->type == b->type && (ta ? a->cols : a->rows) == c->rows &&
           (tb ? b->rows : b->cols) == c->cols && (ta ? a->rows : a->cols) == (tb ? b->cols : b->rows);
}

static bool none_found(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    const char *(*text)(const char *, const char *) = NULL;
    if (driver)
        *(void **)&text = dlsym(driver, "kfit_double_text");
    return text && !strcmp(text("lt", ""), "none");
}

int cublasLtMatmulAlgoGetHeuristic(struct handle *h, struct attributes *d, struct layout *a, struct layout *b, struct layout *c,
                                   struct layout *to, struct attributes *preference, int wanted, struct result *result, int *found)
{
    const uint64_t want = 1 << PREF_WORKSPACE | 0xf << PREF_ALIGN_A;
    *found = 0;
    if (!h->gemm || wanted != 1 || c != to || !as_pytorch(d, a, b, c) || preference->set != want ||
        preference->value[PREF_WORKSPACE] != WORKSPACE)
        return INVALID_VALUE;
    if (none_found())
        return OK;
    *result = (struct result){.algo = {.magic = MAGIC, .made_for = digest(d, a, b, c)}, .workspace_bytes = 1 << 20};
    memcpy(result->algo.align, &preference->value[PREF_ALIGN_A], sizeof result->algo.align);
    *found = 1;
    return OK;
}

/* Exactly the alignment of the pointer, up to 256: a smaller one would get another algorithm, a larger one fail. */
static bool aligned(const void *p, uint64_t align)
{
    uint64_t bits = (uintptr_t)p | 256;
    return align == (bits & -bits);
}

int cublasLtMatmul(struct handle *h, struct attributes *d, const float *alpha, const void *a, struct layout *la, const void *b,
                   struct layout *lb, const float *beta, const void *c, struct layout *lc, void *to, struct layout *lto,
                   const struct algo *algo, void *workspace, size_t workspace_bytes, kfit_cu_stream stream)
{
    const void *bias = (const void *)(uintptr_t)d->value[DESC_BIAS_POINTER];
    if (!as_pytorch(d, la, lb, lc) || *alpha != 1 || c != to || lc != lto || !algo || algo->magic != MAGIC ||
        algo->made_for != digest(d, la, lb, lc) || !aligned(a, algo->align[0]) || !aligned(b, algo->align[1]) ||
        !aligned(c, algo->align[2]) || !aligned(bias, algo->align[3]) || workspace != h->workspace ||
        workspace_bytes != WORKSPACE || h->workspace_bytes != WORKSPACE || stream != h->stream)
        return INVALID_VALUE;
    const bool ta = d->value[DESC_TRANSA];
    const struct blas_call call = {.ta = ta, .tb = (int)d->value[DESC_TRANSB], .m = (int)lc->rows, .n = (int)lc->cols,
                                   .k = (int)(ta ? la->rows : la->cols), .type_ab = la->type, .type_c = lc->type,
                                   .lda = (int)la->ld, .ldb = (int)lb->ld, .ldc = (int)lc->ld, .batch = 1, .a = a, .b = b,
                                   .bias = bias, .c = to, .beta = *beta != 0};
    return blas_launch(h, &call);
}
