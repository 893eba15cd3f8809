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

/* A descriptor or a preference: plain bytes of a fixed size, as on the real thing, one value per attribute in the order
 * of these rows. */
struct attributes {
    uint64_t value[31];
    uint64_t set; /* by attribute, one bit each */
};
_Static_assert(sizeof(struct attributes) == 256, "cublasLtMatmulDescOpaque_t");

/* attribute, bytes, as made */
static const struct row {
    int which, bytes, fresh;
} desc_rows[] = {
    {0, 4, 0},  {1, 4, 0},  {2, 4, 0},  {3, 4, 0},  {4, 4, 0},  {5, 4, 0},  {6, 4, 2},  {7, 4, 1},
    {8, 8, 0},  {10, 8, 0}, {11, 8, 0}, {12, 8, 0}, {13, 8, 0}, {14, 8, 0}, {15, 4, 0}, {17, 8, 0},
    {18, 8, 0}, {19, 8, 0}, {20, 8, 0}, {21, 8, 0}, {25, 1, 0}, {26, 4, -1}, {31, 4, 0}, {32, 4, 0},
    {33, 4, 0}, {34, 4, 0}, {38, 8, 0},
};
static const struct row layout_rows[] = {
    {0, 4, 0}, {1, 4, 0}, {2, 8, 0}, {3, 8, 0}, {4, 8, 0}, {5, 4, 1}, {6, 8, 0}, {7, 8, 0}, {8, 4, 0},
};
enum { DESC_ROWS = sizeof desc_rows / sizeof *desc_rows, LAYOUT_ROWS = sizeof layout_rows / sizeof *layout_rows };

static int row_of(const struct row *rows, int n, int which)
{
    for (int i = 0; i < n; i++)
        if (rows[i].which == which)
            return i;
    return -1;
}

static uint64_t value(const struct attributes *d, int which)
{
    uint64_t v = 0;
    int i = row_of(desc_rows, DESC_ROWS, which);
    memcpy(&v, &d->value[i], (size_t)desc_rows[i].bytes);
    return v;
}

struct layout {
    int type, order;
    uint64_t rows, cols;
    int64_t ld, stride;
    int batch, mode;
    int64_t plane, rest;
};
_Static_assert(sizeof(struct layout) == 64, "cublasLtMatrixLayoutOpaque_t");

static void *layout_field(struct layout *l, int which)
{
    void *const fields[] = {&l->type, &l->order, &l->rows, &l->cols, &l->ld, &l->batch, &l->stride, &l->plane, &l->mode};
    return fields[which];
}

static unsigned calls, reads;

unsigned kfit_double_cublaslt_calls(void)
{
    return calls;
}

unsigned kfit_double_cublaslt_reads(void)
{
    return reads;
}

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

EXPORT size_t cublasLtGetVersion(void);
EXPORT int cublasLtDestroy(struct handle *);
EXPORT int cublasLtMatmulDescCreate(struct attributes **, int, int);
EXPORT int cublasLtMatmulDescSetAttribute(struct attributes *, int, const void *, size_t);
EXPORT int cublasLtMatmulDescGetAttribute(const struct attributes *, int, void *, size_t, size_t *);
EXPORT int cublasLtMatmulDescDestroy(struct attributes *);
EXPORT int cublasLtMatrixLayoutCreate(struct layout **, int, uint64_t, uint64_t, int64_t);
EXPORT int cublasLtMatrixLayoutSetAttribute(struct layout *, int, const void *, size_t);
EXPORT int cublasLtMatrixLayoutGetAttribute(struct layout *, int, void *, size_t, size_t *);
EXPORT int cublasLtMatrixLayoutDestroy(struct layout *);
EXPORT int cublasLtMatmulPreferenceCreate(struct attributes **);
EXPORT int cublasLtMatmulPreferenceSetAttribute(struct attributes *, int, const void *, size_t);
EXPORT int cublasLtMatmulPreferenceDestroy(struct attributes *);
EXPORT int cublasLtMatmulAlgoGetHeuristic(struct handle *, struct attributes *, struct layout *, struct layout *, struct layout *,
                                          struct layout *, struct attributes *, int, struct result *, int *);
EXPORT int cublasLtMatmul(struct handle *, struct attributes *, const float *, const void *, struct layout *, const void *,
                          struct layout *, const float *, const void *, struct layout *, void *, struct layout *,
                          const struct algo *, void *, size_t, kfit_cu_stream);

static struct handle *destroyed;

struct handle *kfit_double_handle(void)
{
    struct handle *h = destroyed ? destroyed : malloc(sizeof *h);
    destroyed = NULL;
    if (h)
        memset(h, 0, sizeof *h);
    return h;
}

int kfit_double_destroy(struct handle *h)
{
    destroyed = h;
    return OK;
}

int cublasLtDestroy(struct handle *h)
{
    return kfit_double_destroy(h);
}

size_t cublasLtGetVersion(void)
{
    return 130100;
}

int cublasLtMatmulDescCreate(struct attributes **out, int compute, int scale)
{
    struct attributes *d = calloc(1, sizeof *d);
    *out = d;
    if (!d)
        return NOT_INITIALIZED;
    for (int i = 0; i < DESC_ROWS; i++) {
        int v = i == 0 ? compute : i == 1 ? scale : desc_rows[i].fresh;
        memcpy(&d->value[i], &v, desc_rows[i].bytes < 4 ? 1 : 4);
    }
    return OK;
}

static int get(const void *from, int bytes, void *to, size_t size, size_t *needed)
{
    *needed = (size_t)bytes;
    if (size && size != (size_t)bytes)
        return INVALID_VALUE;
    memcpy(to, from, size);
    return OK;
}

int cublasLtMatmulDescGetAttribute(const struct attributes *d, int which, void *to, size_t size, size_t *needed)
{
    reads++;
    int i = row_of(desc_rows, DESC_ROWS, which);
    return i < 0 ? INVALID_VALUE : get(&d->value[i], desc_rows[i].bytes, to, size, needed);
}

int cublasLtMatrixLayoutGetAttribute(struct layout *l, int which, void *to, size_t size, size_t *needed)
{
    reads++;
    int i = row_of(layout_rows, LAYOUT_ROWS, which);
    return i < 0 ? INVALID_VALUE : get(layout_field(l, i), layout_rows[i].bytes, to, size, needed);
}

int cublasLtMatrixLayoutSetAttribute(struct layout *l, int which, const void *from, size_t size)
{
    int i = row_of(layout_rows, LAYOUT_ROWS, which);
    if (i < 0 || size != (size_t)layout_rows[i].bytes)
        return INVALID_VALUE;
    memcpy(layout_field(l, i), from, size);
    return OK;
}

int cublasLtMatmulDescSetAttribute(struct attributes *d, int which, const void *from, size_t size)
{
    int i = row_of(desc_rows, DESC_ROWS, which);
    if (i < 0 || size != (size_t)desc_rows[i].bytes)
        return INVALID_VALUE;
    memcpy(&d->value[i], from, size);
    d->set |= UINT64_C(1) << which;
    return OK;
}

int cublasLtMatmulPreferenceSetAttribute(struct attributes *d, int which, const void *from, size_t size)
{
    if (which < 0 || which > PREF_ALIGN_D || size != (which == PREF_WORKSPACE ? 8 : 4))
        return INVALID_VALUE;
    memcpy(&d->value[which], from, size);
    d->set |= UINT64_C(1) << which;
    return OK;
}

int cublasLtMatmulPreferenceCreate(struct attributes **out)
{
    *out = calloc(1, sizeof **out);
    return *out ? OK : NOT_INITIALIZED;
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
    *l = (struct layout){.type = type, .rows = rows, .cols = cols, .ld = ld, .batch = 1};
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
    uint64_t h = value(d, DESC_TRANSA) * 2 + value(d, DESC_TRANSB) + 1;
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
    const bool ta = value(d, DESC_TRANSA), tb = value(d, DESC_TRANSB);
    return value(d, 0) == COMPUTE_32F && value(d, 1) == CUDA_R_32F && d->set == want && value(d, DESC_EPILOGUE) == EPILOGUE_BIAS &&
           value(d, DESC_BIAS_POINTER) && a->type == b->type && (ta ? a->cols : a->rows) == c->rows &&
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
    calls++;
    if (!d) /* libcublas, from within */
        return OK;
    const void *bias = (const void *)(uintptr_t)value(d, DESC_BIAS_POINTER);
    if (!as_pytorch(d, la, lb, lc) || *alpha != 1 || c != to || lc != lto || !algo || algo->magic != MAGIC ||
        algo->made_for != digest(d, la, lb, lc) || !aligned(a, algo->align[0]) || !aligned(b, algo->align[1]) ||
        !aligned(c, algo->align[2]) || !aligned(bias, algo->align[3]) || workspace != h->workspace ||
        workspace_bytes != WORKSPACE || h->workspace_bytes != WORKSPACE || stream != h->stream)
        return INVALID_VALUE;
    const bool ta = value(d, DESC_TRANSA);
    const struct blas_call call = {.ta = ta, .tb = (int)value(d, DESC_TRANSB), .m = (int)lc->rows, .n = (int)lc->cols,
                                   .k = (int)(ta ? la->rows : la->cols), .type_ab = la->type, .type_c = lc->type,
                                   .lda = (int)la->ld, .ldb = (int)lb->ld, .ldc = (int)lc->ld, .batch = 1, .a = a, .b = b,
                                   .bias = bias, .c = to, .beta = *beta != 0};
    return blas_launch(h, &call);
}
