#include <stdlib.h>

#include "clones.h"
#include "reference.h"

typedef double v4d __attribute__((vector_size(32)));
typedef int64_t v4i __attribute__((vector_size(32)));

#define ABS(v) ((v4d)((v4i)(v)&INT64_MAX))

static double value(const void *p, bool f64, int64_t i)
{
    return f64 ? ((const double *)p)[i] : (double)((const float *)p)[i];
}

/* One row widened to float64, zero up to the next multiple of four. */
static void widen(const void *p, bool f64, int64_t first, int64_t stride, int64_t n, double *out)
{
    for (int64_t j = 0; j < n; j++)
        out[j] = value(p, f64, first + j * stride);
    for (int64_t j = n; j & 3; j++)
        out[j] = 0;
}

/* r += x y, w += |x y| over n4 vectors */
static void add_scaled(v4d *r, v4d *w, double x, const v4d *y, int64_t n4)
{
    for (int64_t j = 0; j < n4; j++) {
        v4d t = x * y[j];
        r[j] += t;
        w[j] += ABS(t);
    }
}

static double sum(const v4d *v)
{
    return ((*v)[0] + (*v)[1]) + ((*v)[2] + (*v)[3]);
}

CLONES
bool kfit_reference(const union kfit_key *key, const void *const args[], double *ref, double *mag)
{
    const struct kfit_gemm_key *g = &key->gemm;
    bool f64 = g->type_c == KFIT_F64;
    if (g->op != KFIT_OP_GEMM || g->len != KFIT_GEMM_KEY_BYTES || g->type_a != g->type_c ||
        g->type_b != g->type_c || (g->type_c != KFIT_F32 && !f64) || g->alpha != KFIT_SCALAR_ONE) {
        kfit_op_of(key)->reference(key, args, ref, mag);
        return true;
    }
    int64_t m = g->m, n = g->n, k = g->k, n4 = (n + 3) / 4, k4 = (k + 3) / 4;
    /* all of A, one row of B (of its transpose), sums and magnitudes of all of C */
    v4d *a = aligned_alloc(32, (size_t)(m * k4 + (k4 > n4 ? k4 : n4) + 2 * m * n4) * sizeof *a);
    if (!a)
        return false;
    v4d *row = a + m * k4, *r = row + (k4 > n4 ? k4 : n4), *w = r + m * n4;
    for (int64_t i = 0; i < m; i++)
        widen(args[0], f64, g->ta ? i : i * g->lda, g->ta ? g->lda : 1, k, (double *)(a + i * k4));
    memset(r, 0, (size_t)(2 * m * n4) * sizeof *r);
    if (g->tb) { /* rows of B are columns of op(B): inner products */
        for (int64_t j = 0; j < n; j++) {
            widen(args[1], f64, j * g->ldb, 1, k, (double *)row);
            for (int64_t i = 0; i < m; i++) {
                v4d s = {0}, t = {0};
                for (int64_t p = 0; p < k4; p++) {
                    v4d y = a[i * k4 + p] * row[p];
                    s += y;
                    t += ABS(y);
                }
                ((double *)(r + i * n4))[j] = sum(&s);
                ((double *)(w + i * n4))[j] = sum(&t);
            }
        }
    } else {
        for (int64_t p = 0; p < k; p++) {
            widen(args[1], f64, p * g->ldb, 1, n, (double *)row);
            for (int64_t i = 0; i < m; i++)
                add_scaled(r + i * n4, w + i * n4, ((const double *)(a + i * k4))[p], row, n4);
        }
    }
    for (int64_t i = 0; i < m; i++) {
        for (int64_t j = 0; j < n; j++) {
            double old = g->beta == KFIT_SCALAR_ONE ? value(args[2], f64, i * g->ldc + j) : 0;
            ref[i * n + j] = ((const double *)(r + i * n4))[j] + old;
            mag[i * n + j] = ((const double *)(w + i * n4))[j] + (old < 0 ? -old : old);
        }
    }
    free(a);
    return true;
}
