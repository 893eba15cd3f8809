#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "narrow.h"

#define GROSS 0x1p-6 /* of the magnitude: no arithmetic of any precision is this far off */

/* To float by rounding to odd, so that the second rounding below sees whether anything was lost. */
static uint32_t to_odd_float(double x)
{
    float f = (float)x;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    if (isfinite(f) ? (double)f == x : isinf(x))
        return bits;
    if (isnan(x))
        return 0x7fc00000;
    if (!isfinite(f) || fabs((double)f) > fabs(x))
        bits--;
    return bits | 1;
}

uint16_t narrow_round(double x, enum kfit_dtype type)
{
    uint32_t f = to_odd_float(x), sign = f >> 16 & 0x8000, mag = f & 0x7fffffff;
    if (mag > 0x7f800000)
        return (uint16_t)(sign | (type == KFIT_BF16 ? 0x7fc0 : 0x7e00));
    if (type == KFIT_BF16)
        return (uint16_t)((f + 0x7fff + (f >> 16 & 1)) >> 16);
    if (mag >= 0x47800000) /* 65536 and beyond */
        return (uint16_t)(sign | 0x7c00);
    if (mag < 0x38800000) { /* below 2^-14: units of 2^-24; below 2^-25 all is lost anyway */
        uint32_t shift = 126 - (mag >> 23), m = (mag & 0x7fffff) | 0x800000;
        if (shift > 25)
            return (uint16_t)sign;
        uint32_t half = 1u << (shift - 1), q = m >> shift, rest = m & ((1u << shift) - 1);
        return (uint16_t)(sign | (q + (rest > half || (rest == half && (q & 1)))));
    }
    uint32_t h = mag - 0x38000000;
    return (uint16_t)(sign | ((h + 0xfff + (h >> 13 & 1)) >> 13));
}

double narrow_value(uint16_t bits, enum kfit_dtype type)
{
    if (type == KFIT_BF16) {
        uint32_t f = (uint32_t)bits << 16;
        float v;
        memcpy(&v, &f, sizeof v);
        return v;
    }
    int e = bits >> 10 & 31, m = bits & 1023;
    double v = e == 31 ? (m ? NAN : INFINITY) : e ? ldexp(1024 + m, e - 25) : ldexp(m, -24);
    return bits >> 15 ? -v : v;
}

/* The distance from the type's value at |x| to the next larger. */
static double ulp(double x, enum kfit_dtype type)
{
    int digits = type == KFIT_BF16 ? 8 : 11, least = type == KFIT_BF16 ? -126 : -14, e = least;
    if (x != 0 && isfinite(x) && ilogb(x) > least)
        e = ilogb(x);
    return ldexp(1, e - digits + 1);
}

/* Numbers in order, so that neighbours differ by one; infinity is next to the largest finite value. */
static int order(uint16_t bits)
{
    return bits >> 15 ? -(bits & 0x7fff) : bits & 0x7fff;
}

static bool finite_bits(uint16_t b, enum kfit_dtype type)
{
    return type == KFIT_BF16 ? (b & 0x7f80) != 0x7f80 : (b & 0x7c00) != 0x7c00;
}

enum kfit_code narrow_add(struct narrow *a, const struct kfit_tensor *t, uint16_t before, const double *ref,
                          const double *mag, int64_t reduction, const uint16_t *generic, const uint16_t *out,
                          char at[64])
{
    const double f32 = 4 * 0.3 * sqrt((double)(reduction < 4 ? 4 : reduction)) * 0x1p-24;
    int64_t unwritten = 0, wrong = 0, nonfinite = 0, total = t->batch * t->rows * t->cols,
            first_bad = -1;
    for (int64_t o = 0; o < total; o++) {
        int64_t row = o / t->cols, x = row / t->rows * t->batch_stride + row % t->rows * t->ld + o % t->cols;
        uint16_t y = out[x], want = narrow_round(ref[o], t->type);
        bool bad = false;
        a->n++;
        if (!finite_bits(y, t->type) || !finite_bits(want, t->type)) {
            /* overflow by a hair, or what the generic gives for inputs that are not finite, is fine */
            bool near =
                !isnan(narrow_value(y, t->type)) && isfinite(ref[o]) && abs(order(y) - order(want)) <= 2;
            bool same = y == want || (isnan(ref[o]) && isnan(narrow_value(y, t->type)));
            if (generic && !same)
                same = isnan(narrow_value(generic[x], t->type)) ? isnan(narrow_value(y, t->type))
                                                                : generic[x] == y;
            bad = !near && !same;
            nonfinite += bad;
            a->misrounded += bad;
        } else {
            double v = narrow_value(y, t->type), off = fabs(v - ref[o]);
            double allowed = 2 * ulp(ref[o], t->type) + f32 * mag[o];
            a->misrounded += y != want && off > 0;
            a->worst = off / allowed > a->worst ? off / allowed : a->worst;
            bad = !(off <= GROSS * mag[o] + 4 * ulp(ref[o], t->type));
            wrong += bad;
        }
        if (bad && y == before)
            unwritten++;
        if (bad && first_bad < 0) {
            first_bad = o;
            snprintf(at, 64, "[%d,%d] is %.6g, expected %.6g", (int)(o / t->cols), (int)(o % t->cols),
                     narrow_value(y, t->type), ref[o]);
        }
    }
    if (unwritten == total)
        return KFIT_CODE_WRONG_UNWRITTEN;
    if (unwritten && unwritten == wrong + nonfinite)
        return KFIT_CODE_WRONG_PARTIAL;
    return nonfinite ? KFIT_CODE_WRONG_NONFINITE : wrong ? KFIT_CODE_WRONG_VALUES : KFIT_CODE_NONE;
}

bool narrow_accept(const struct narrow *a, const struct narrow *generic)
{
    double share = a->n ? (double)a->misrounded / (double)a->n : 1, limit = 0.01;
    if (generic && generic->n && 4.0 * (double)generic->misrounded / (double)generic->n > limit)
        limit = 4.0 * (double)generic->misrounded / (double)generic->n;
    return share <= limit && a->worst <= 1;
}
