#include <math.h>
#include <stdio.h>

#include "accuracy.h"

#define WORST_FREE 8      /* few terms, one of them large and early: an element may be off by nearly K */
#define GROSS      0x1p-6 /* of the magnitude: no arithmetic of any precision is this far off */

static double value(const void *p, enum kfit_dtype t, int64_t i)
{
    return t == KFIT_F64 ? ((const double *)p)[i] : (double)((const float *)p)[i];
}

static bool same_bits(const void *a, const void *b, enum kfit_dtype t, int64_t i)
{
    size_t n = kfit_dtype_bytes(t);
    return !memcmp((const char *)a + (size_t)i * n, (const char *)b + (size_t)i * n, n);
}

enum { FINITE, NOT_A_NUMBER, PLUS_INFINITY, MINUS_INFINITY };

static int class_of(double v)
{
    return isnan(v) ? NOT_A_NUMBER : !isinf(v) ? FINITE : v > 0 ? PLUS_INFINITY : MINUS_INFINITY;
}

enum kfit_code kfit_accuracy_add(struct kfit_accuracy *a, const struct kfit_expected *e, const void *out,
                                 char at[64])
{
    const struct kfit_tensor *t = e->tensor;
    const double u = kfit_dtype_roundoff(t->type), tiny = t->type == KFIT_F64 ? 0x1p-1074 : 0x1p-149;
    int64_t unwritten = 0, wrong = 0, nonfinite = 0, total = t->batch * t->rows * t->cols, first_bad = -1;
    for (int64_t o = 0; o < total; o++) {
        int64_t s = o / (t->rows * t->cols), i = o / t->cols % t->rows, j = o % t->cols;
        int64_t x = s * t->batch_stride + i * t->ld + j;
        double y = value(out, t->type, x), ref = e->ref[o], mag = e->mag[o];
        int class = class_of(y), want = class_of(ref);
        bool bad = false;
        if (e->generic && class && (class == want || class == class_of(value(e->generic, t->type, x))))
            continue;
        if (want || class) {
            /* a generic may give a finite value where float64 says NaN: then so may the candidate */
            if (!(e->generic && !class && !class_of(value(e->generic, t->type, x)))) {
                nonfinite++;
                bad = true;
            }
        } else {
            double off = fabs(y - ref), scale = u * mag + tiny;
            if (!(off <= GROSS * mag + tiny)) {
                wrong++;
                bad = true;
            } else {
                double err = off / scale;
                a->sum_of_squares += err * err;
                a->worst = err > a->worst ? err : a->worst;
                a->n++;
            }
        }
        if (bad && same_bits(out, e->before, t->type, x))
            unwritten++;
        if (bad && first_bad < 0) {
            first_bad = o;
            snprintf(at, 64, "[%d,%d] %.6g, not %.6g", (int)i, (int)j, y, ref);
        }
    }
    if (unwritten == total)
        return KFIT_CODE_WRONG_UNWRITTEN;
    if (unwritten && unwritten == wrong + nonfinite)
        return KFIT_CODE_WRONG_PARTIAL;
    return nonfinite ? KFIT_CODE_WRONG_NONFINITE : wrong ? KFIT_CODE_WRONG_VALUES : KFIT_CODE_NONE;
}

double kfit_accuracy_rms(const struct kfit_accuracy *a)
{
    return a->n ? sqrt(a->sum_of_squares / (double)a->n) : 0;
}

/* Rounding each product and the result costs up to 0.7 u however few terms there are. */
static double absolute_bound(int64_t reduction)
{
    return 0.3 * sqrt((double)(reduction < 12 ? 12 : reduction));
}

static bool within(const struct kfit_accuracy *a, double bound)
{
    return kfit_accuracy_rms(a) <= bound && (a->worst <= 4 * bound || a->worst <= WORST_FREE);
}

bool kfit_accuracy_accept(const struct kfit_accuracy *a, const struct kfit_accuracy *generic,
                          int64_t reduction, bool uneven)
{
    double bound = absolute_bound(reduction) * (uneven ? 2 : 1), relative = 1.5 * kfit_accuracy_rms(generic);
    return within(a, relative > bound ? relative : bound);
}

bool kfit_accuracy_hopeless(const struct kfit_accuracy *generic, int64_t reduction)
{
    return !within(generic, 2 * absolute_bound(reduction));
}
