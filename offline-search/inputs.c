#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "clones.h"
#include "inputs.h"
#include "session.h"

struct kfit_row {
    double *x;                        /* standard normal when the distribution gets it */
    int64_t cols, row, rows, special; /* special: a row that this seed singles out */
    unsigned arg, victim;             /* victim: the argument that this seed singles out */
    bool output;                      /* an output that accumulates: of the size of products */
    enum kfit_dtype type;
    uint64_t *random;
};

static double uniform(uint64_t *state)
{
    return (double)(kfit_random(state) >> 11) * 0x1p-53;
}

static int64_t below(uint64_t *state, int64_t n)
{
    return (int64_t)(uniform(state) * (double)n);
}

static void scale(struct kfit_row *r, double by)
{
    for (int64_t j = 0; j < r->cols; j++)
        r->x[j] *= by;
}

static void normal(struct kfit_row *r)
{
    (void)r;
}

/* An accumulator far larger than what is added to it would cost an honest sum as much as an early spike does.
 */
static void scale_all(struct kfit_row *r, double by)
{
    scale(r, r->output ? by * by : by);
}

static void times_10(struct kfit_row *r)
{
    scale_all(r, 10);
}

static void times_0_01(struct kfit_row *r)
{
    scale_all(r, 0.01);
}

static void times_1000(struct kfit_row *r)
{
    scale_all(r, 1000);
}

static void shifted(struct kfit_row *r)
{
    for (int64_t j = 0; j < r->cols; j++)
        r->x[j] += 1;
}

/* Slowly falling tails, as activations have: a few elements many times the rest. Not so many that one early
 * term outweighs its whole sum: rounding what follows then costs an honest sequential sum 0.4 sqrt(K) and
 * more. */
static void heavy(struct kfit_row *r)
{
    for (int64_t j = 0; j < r->cols; j++)
        r->x[j] /= uniform(r->random) + 0.05;
}

/* Rows of the victim have a single 1: the result is rows of the other argument, exactly. */
static void one_hot(struct kfit_row *r)
{
    if (r->arg != r->victim)
        return;
    memset(r->x, 0, (size_t)r->cols * sizeof *r->x);
    r->x[below(r->random, r->cols)] = 1;
}

/* Few bits, so that sums of them are exact: equal terms would round the same way each time. */
static void constant(struct kfit_row *r)
{
    for (int64_t j = 0; j < r->cols; j++)
        r->x[j] = r->arg ? 0.75 : 1.5;
}

static void alternating(struct kfit_row *r)
{
    for (int64_t j = 0; j < r->cols; j++)
        r->x[j] = ((r->row + j) & 1 ? -1 : 1) * (r->arg ? 0.75 : 1.25);
}

static void late_spike(struct kfit_row *r)
{
    if (r->arg == r->victim)
        r->x[r->cols - 1] *= 30;
}

/* One element of one argument stands out. */
static void one_changed(struct kfit_row *r)
{
    if (r->arg == r->victim && r->row == r->special)
        r->x[below(r->random, r->cols)] = 20;
}

static void negative_rows(struct kfit_row *r)
{
    for (int64_t j = 0; j < r->cols; j++)
        r->x[j] = r->row & 1 || r->arg != r->victim ? r->x[j] : -1e4 * fabs(r->x[j]);
}

static void zeros(struct kfit_row *r)
{
    for (int64_t j = 0; j < r->cols; j++)
        r->x[j] = copysign(r->arg == r->victim ? 0 : r->x[j], r->x[j]);
}

/* Below the smallest normal number in one argument, scaled back by the others. */
static void denormal(struct kfit_row *r)
{
    bool f64 = r->type == KFIT_F64;
    if (!r->output)
        scale(r, r->arg == r->victim ? (f64 ? 0x1p-1050 : 0x1p-135) : (f64 ? 0x1p80 : 0x1p40));
}

static void nonfinite(struct kfit_row *r)
{
    static const double values[] = {NAN, INFINITY, -INFINITY};
    if (r->arg == r->victim && r->row % 3 == 1 % r->rows)
        r->x[below(r->random, r->cols)] = values[kfit_random(r->random) % 3];
}

static void mixed_scale(struct kfit_row *r)
{
    scale(r, exp2((double)below(r->random, 9) - 4));
}

static void sparse(struct kfit_row *r)
{
    for (int64_t j = 0; j < r->cols; j++)
        if (uniform(r->random) < 0.9)
            r->x[j] = 0;
}

static void log_uniform(struct kfit_row *r)
{
    for (int64_t j = 0; j < r->cols; j++)
        r->x[j] = copysign(exp2(uniform(r->random) * 8 - 4), r->x[j]);
}

static void early_zero(struct kfit_row *r)
{
    memset(r->x, 0, (size_t)(r->cols < 8 ? r->cols - 1 : 8) * sizeof *r->x);
    if (r->row == 0)
        scale(r, 0);
}

const struct kfit_distribution kfit_distributions[] = {
    {"normal", normal, false, KFIT_JUDGED_REFERENCE, false},
    {"x10", times_10, false, KFIT_JUDGED_REFERENCE, false},
    {"heavy", heavy, false, KFIT_JUDGED_REFERENCE, true},
    {"one_changed", one_changed, false, KFIT_JUDGED_REFERENCE, true},
    {"mixed_scale", mixed_scale, true, KFIT_JUDGED_REFERENCE, true},
    {"early_zero", early_zero, true, KFIT_JUDGED_REFERENCE, true},
    {"late_spike", late_spike, false, KFIT_JUDGED_REFERENCE, true},
    {"denormal", denormal, false, KFIT_JUDGED_REFERENCE, false},
    {"shifted", shifted, false, KFIT_JUDGED_REFERENCE, false},
    {"one_hot", one_hot, false, KFIT_JUDGED_REFERENCE, false},
    {"negative_rows", negative_rows, false, KFIT_JUDGED_REFERENCE, false},
    {"nonfinite", nonfinite, false, KFIT_JUDGED_GENERIC, false},
    {"zeros", zeros, false, KFIT_JUDGED_REFERENCE, false},
    {"x0.01", times_0_01, false, KFIT_JUDGED_REFERENCE, false},
    {"constant", constant, false, KFIT_JUDGED_REFERENCE, false},
    {"alternating", alternating, false, KFIT_JUDGED_REFERENCE, false},
    {"x1000", times_1000, true, KFIT_JUDGED_REFERENCE, true},
    {"sparse", sparse, true, KFIT_JUDGED_REFERENCE, true},
    {"log_uniform", log_uniform, true, KFIT_JUDGED_REFERENCE, true},
};
const unsigned kfit_distribution_count = sizeof kfit_distributions / sizeof *kfit_distributions;

/* Four uniform numbers added up are normal up to 3.46 sigma, at a fraction of the cost; the tails beyond have
 * distributions of their own. */
CLONES
static void fill_normal(double *x, int64_t n, uint64_t *state)
{
    for (int64_t j = 0; j < n; j++) {
        uint64_t a = kfit_random(state), b = kfit_random(state);
        int64_t sum = (int64_t)(int32_t)a + (int32_t)(a >> 32) + (int32_t)b + (int32_t)(b >> 32);
        x[j] = (double)sum * (0x1p-31 * 0.8660254037844386); /* variance of the sum: 4/3 */
    }
}

CLONES
static void narrow_row(const double *x, int64_t n, float *out)
{
    for (int64_t j = 0; j < n; j++)
        out[j] = (float)x[j];
}

bool kfit_inputs_fill(const struct kfit_distribution *d, uint64_t seed, const struct kfit_tensor *t,
                      unsigned arg, unsigned nargs, void *out)
{
    uint64_t pick = seed ^ 0x5eed, state = seed + 0x1000003 * (arg + 1), row_random;
    unsigned victim =
        (unsigned)(kfit_random(&pick) % (nargs > 1 ? nargs - 1 : 1)); /* an input, not the output */
    int64_t special = below(&pick, t->rows);
    double *row = malloc((size_t)t->cols * sizeof *row);
    if (!row)
        return false;
    size_t gap = (size_t)(t->ld - t->cols) * kfit_dtype_bytes(t->type);
    for (int64_t s = 0; s < t->batch; s++) {
        for (int64_t i = 0; i < t->rows; i++) {
            size_t first = (size_t)(s * t->batch_stride + i * t->ld);
            row_random = state ^ 0x2545f4914f6cdd1du;
            fill_normal(row, t->cols, &state);
            struct kfit_row r = {row,    t->cols,           i,       t->rows,    special, arg,
                                 victim, t->dir != KFIT_IN, t->type, &row_random};
            d->shape(&r);
            if (t->type == KFIT_F64)
                memcpy((double *)out + first, row, (size_t)t->cols * sizeof *row);
            else
                narrow_row(row, t->cols, (float *)out + first);
            if (i + 1 < t->rows) {
                size_t end = (first + (size_t)t->cols) * kfit_dtype_bytes(t->type);
                kfit_band_fill(out, end, end + gap);
            }
        }
    }
    free(row);
    return true;
}
