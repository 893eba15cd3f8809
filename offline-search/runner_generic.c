#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "runner_generic.h"

enum { ROW_MAJOR = 101, NO_TRANS = 111, TRANS = 112 };

/* naming has one %s, which becomes the function; nothing else in it is interpreted. */
static void *find(void *lib, const char *naming, const char *function)
{
    char name[96];
    const char *at = strstr(naming, "%s");
    if (!at)
        return NULL;
    snprintf(name, sizeof name, "%.*s%s%s", (int)(at - naming), naming, function, at + 2);
    return dlsym(lib, name);
}

bool kfit_generic_open(struct kfit_generic_calls *g, const struct kfit_generic *lib,
                       const union kfit_key *key, char message[256])
{
    const struct kfit_gemm_key *k = &key->gemm;
    bool single = k->type_c == KFIT_F32;
    void *handle = dlopen(lib->path, RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        snprintf(message, 256, "cannot load the generic: %.200s", dlerror());
        return false;
    }
    *g = (struct kfit_generic_calls){
        .cblas = strstr(lib->naming, "cblas_"), .wide = lib->int_bits == 64, .key = *key};
    g->gemm = find(handle, lib->naming, single ? "sgemm" : "dgemm");
    if (k->m == 1 || k->n == 1)
        g->gemv = find(handle, lib->naming, single ? "sgemv" : "dgemv");
    if (!g->gemm)
        snprintf(message, 256, "%.120s has no %cgemm under the name %.31s", lib->path, single ? 's' : 'd',
                 lib->naming);
    return g->gemm;
}

/* Row-major C = op(A) op(B). Fortran's BLAS is column-major: it computes the transpose, C' = op(B)' op(A)'.
 * A product with one row or column is also y = op(matrix) x. */
#define DEFINE(T, I, suffix)                                                                                 \
    typedef void cblas_gemm_##suffix(int, int, int, I, I, I, T, const T *, I, const T *, I, T, T *, I);      \
    typedef void fortran_gemm_##suffix(const char *, const char *, const I *, const I *, const I *,          \
                                       const T *, const T *, const I *, const T *, const I *, const T *,     \
                                       T *, const I *, size_t, size_t);                                      \
    typedef void cblas_gemv_##suffix(int, int, I, I, T, const T *, I, const T *, I, T, T *, I);              \
    typedef void fortran_gemv_##suffix(const char *, const I *, const I *, const T *, const T *, const I *,  \
                                       const T *, const I *, const T *, T *, const I *, size_t);             \
    static void call_gemm_##suffix(const struct kfit_generic_calls *g, const T *a, const T *b, T *c)         \
    {                                                                                                        \
        const struct kfit_gemm_key *k = &g->key.gemm;                                                        \
        const T alpha = k->alpha == KFIT_SCALAR_ONE, beta = k->beta == KFIT_SCALAR_ONE;                      \
        const I m = k->m, n = k->n, kk = k->k, lda = k->lda, ldb = k->ldb, ldc = k->ldc;                     \
        if (g->cblas)                                                                                        \
            ((cblas_gemm_##suffix *)g->gemm)(ROW_MAJOR, k->ta ? TRANS : NO_TRANS, k->tb ? TRANS : NO_TRANS,  \
                                             m, n, kk, alpha, a, lda, b, ldb, beta, c, ldc);                 \
        else                                                                                                 \
            ((fortran_gemm_##suffix *)g->gemm)(k->tb ? "T" : "N", k->ta ? "T" : "N", &n, &m, &kk, &alpha, b, \
                                               &ldb, a, &lda, &beta, c, &ldc, 1, 1);                         \
    }                                                                                                        \
    static void call_gemv_##suffix(const struct kfit_generic_calls *g, const T *a, const T *b, T *c)         \
    {                                                                                                        \
        const struct kfit_gemm_key *k = &g->key.gemm;                                                        \
        const T alpha = k->alpha == KFIT_SCALAR_ONE, beta = k->beta == KFIT_SCALAR_ONE;                      \
        bool row = k->m == 1; /* C = a' op(B), so y = op(B)' a; else y = op(A) b */                          \
        const T *matrix = row ? b : a, *x = row ? a : b;                                                     \
        bool transposed = row ? !k->tb : k->ta;                                                              \
        const I rows = row ? (k->tb ? k->n : k->k) : (k->ta ? k->k : k->m);                                  \
        const I cols = row ? (k->tb ? k->k : k->n) : (k->ta ? k->m : k->k);                                  \
        const I ld = row ? k->ldb : k->lda, incy = row ? 1 : k->ldc;                                         \
        const I incx = row ? (k->ta ? k->lda : 1) : (k->tb ? 1 : k->ldb);                                    \
        if (g->cblas)                                                                                        \
            ((cblas_gemv_##suffix *)g->gemv)(ROW_MAJOR, transposed ? TRANS : NO_TRANS, rows, cols, alpha,    \
                                             matrix, ld, x, incx, beta, c, incy);                            \
        else                                                                                                 \
            ((fortran_gemv_##suffix *)g->gemv)(transposed ? "N" : "T", &cols, &rows, &alpha, matrix, &ld, x, \
                                               &incx, &beta, c, &incy, 1);                                   \
    }
DEFINE(float, int32_t, s32)
DEFINE(float, int64_t, s64)
DEFINE(double, int32_t, d32)
DEFINE(double, int64_t, d64)

void kfit_generic_call(const struct kfit_generic_calls *g, enum kfit_who who, void *const args[])
{
    bool gemv = who == KFIT_RUN_GEMV;
#define CALL(suffix) (gemv ? call_gemv_##suffix : call_gemm_##suffix)(g, args[0], args[1], args[2])
    if (g->key.gemm.type_c == KFIT_F32)
        g->wide ? CALL(s64) : CALL(s32);
    else
        g->wide ? CALL(d64) : CALL(d32);
#undef CALL
}
