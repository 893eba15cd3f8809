/* Rounding to 16 bits, and the accuracy rule for 16-bit outputs: what passes, what must not. */
#include <math.h>

#include "kfit_test.h"

#include "narrow.h"

/* The nearest value by trying all 65536, ties to the even one. */
static uint16_t nearest(double x, enum kfit_dtype type)
{
    uint16_t best = 0;
    double distance = INFINITY;
    int top = type == KFIT_BF16 ? 0x7f80 : 0x7c00;
    double last = narrow_value((uint16_t)(top - 1), type),
           ulp = last - narrow_value((uint16_t)(top - 2), type);
    if (fabs(x) >= last + ulp / 2)
        return (uint16_t)(top | (signbit(x) ? 0x8000 : 0));
    for (int b = 0; b < top; b++) {
        double d = fabs(fabs(x) - narrow_value((uint16_t)b, type));
        if (d < distance || (d == distance && !(b & 1))) {
            distance = d;
            best = (uint16_t)b;
        }
    }
    return (uint16_t)(best | (signbit(x) ? 0x8000 : 0));
}

static void rounds_to_nearest_even(void)
{
    static const enum kfit_dtype types[] = {KFIT_BF16, KFIT_F16};
    for (int t = 0; t < 2; t++) {
        for (int b = 0; b < 65536;
             b++) { /* every value is itself; halfway to the next goes to the even one */
            double v = narrow_value((uint16_t)b, types[t]), next = narrow_value((uint16_t)(b + 1), types[t]);
            if (!isfinite(v))
                continue;
            CHECK_INT(narrow_round(v, types[t]), b);
            if (isfinite(next) && (b + 1) % 0x8000 && isfinite(next - v)) {
                CHECK_INT(narrow_round((v + next) / 2, types[t]), b & 1 ? b + 1 : b);
                CHECK_INT(narrow_round((v + next) / 2 * (1 + 0x1p-50), types[t]), b + 1);
                CHECK_INT(narrow_round((v + next) / 2 * (1 - 0x1p-50), types[t]), b);
            }
        }
        for (int i = 0; i < 300; i++) {
            double x =
                ldexp((double)(int64_t)kfit_test_random() * 0x1p-63, (int)(kfit_test_random() % 40) - 25);
            CHECK_MSG(narrow_round(x, types[t]) == nearest(x, types[t]), "%a", x);
        }
    }
    CHECK_INT(narrow_round(65519.999, KFIT_F16), 0x7bff);
    CHECK_INT(narrow_round(65520, KFIT_F16), 0x7c00);
    CHECK_INT(narrow_round(-1e300, KFIT_BF16), 0xff80);
    CHECK(isnan(narrow_value(narrow_round(NAN, KFIT_BF16), KFIT_BF16)));
}

enum { M = 8, N = 512, K = 512 };
static double a[M][K], b[N][K], ref[M * N], mag[M * N];
static uint16_t out[M * N];
static const struct kfit_tensor tensor = {KFIT_OUT, KFIT_BF16, 1, M, N, N, 0};

static void make(void)
{
    for (int i = 0; i < M; i++)
        for (int k = 0; k < K; k++)
            a[i][k] = narrow_value(narrow_round((double)(int64_t)kfit_test_random() * 0x1p-62, KFIT_BF16),
                                   KFIT_BF16);
    for (int j = 0; j < N; j++)
        for (int k = 0; k < K; k++)
            b[j][k] = narrow_value(narrow_round((double)(int64_t)kfit_test_random() * 0x1p-62, KFIT_BF16),
                                   KFIT_BF16);
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++) {
            ref[i * N + j] = mag[i * N + j] = 0;
            for (int k = 0; k < K; k++) {
                ref[i * N + j] += a[i][k] * b[j][k];
                mag[i * N + j] += fabs(a[i][k] * b[j][k]);
            }
        }
}

/* The same products through narrower and narrower sums. */
enum how { FLOAT32, TRUNCATED, HALF, BF16_PARTIAL, TAIL_LOST };

static void compute(enum how how)
{
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++) {
            float sum = 0;
            double narrow = 0;
            for (int k = 0; k < (how == TAIL_LOST ? K - 1 : K); k++) {
                sum += (float)(a[i][k] * b[j][k]);
                narrow = narrow_value(narrow_round(narrow + a[i][k] * b[j][k], KFIT_F16), KFIT_F16);
                if (how == BF16_PARTIAL && k % 128 == 127)
                    sum = (float)narrow_value(narrow_round(sum, KFIT_BF16), KFIT_BF16);
            }
            uint32_t bits;
            memcpy(&bits, &sum, sizeof bits);
            out[i * N + j] = how == TRUNCATED ? (uint16_t)(bits >> 16)
                                              : narrow_round(how == HALF ? narrow : sum, KFIT_BF16);
        }
}

static void the_rule_separates(void)
{
    static const struct {
        enum how how;
        bool ok;
    } cases[] = {
        {FLOAT32, true}, {TRUNCATED, false}, {HALF, false}, {BF16_PARTIAL, false}, {TAIL_LOST, false}};
    make();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct narrow n = {0};
        char at[64] = "";
        compute(cases[i].how);
        enum kfit_code code = narrow_add(&n, &tensor, 0x7fc5, ref, mag, K, NULL, out, at);
        CHECK_MSG((code == KFIT_CODE_NONE && narrow_accept(&n, NULL)) == cases[i].ok,
                  "case %zu: %s, %.3f %% misrounded, worst %.3f, %s", i, kfit_code_str(code),
                  100.0 * (double)n.misrounded / (double)n.n, n.worst, at);
    }
}

static void poison_is_told_from_wrong(void)
{
    struct narrow n = {0};
    char at[64];
    make();
    compute(FLOAT32);
    for (int j = 0; j < N; j++)
        out[3 * N + j] = 0x7fc5;
    CHECK_INT(narrow_add(&n, &tensor, 0x7fc5, ref, mag, K, NULL, out, at), KFIT_CODE_WRONG_PARTIAL);
    for (int o = 0; o < M * N; o++)
        out[o] = 0x7fc5;
    CHECK_INT(narrow_add(&n, &tensor, 0x7fc5, ref, mag, K, NULL, out, at), KFIT_CODE_WRONG_UNWRITTEN);
    compute(FLOAT32);
    out[5] = 0x7fc0;
    CHECK_INT(narrow_add(&n, &tensor, 0x7fc5, ref, mag, K, NULL, out, at), KFIT_CODE_WRONG_NONFINITE);
    compute(FLOAT32);
    out[5] = narrow_round(ref[5] + mag[5] * 0.5, KFIT_BF16);
    CHECK_INT(narrow_add(&n, &tensor, 0x7fc5, ref, mag, K, NULL, out, at), KFIT_CODE_WRONG_VALUES);
    CHECK(strstr(at, "[0,5]"));
}

static void the_generic_judges_what_is_not_finite(void)
{
    struct narrow n = {0};
    char at[64];
    make();
    compute(FLOAT32);
    ref[7] = NAN;
    out[7] = 0x7fc0;
    ref[8] = INFINITY;
    out[8] = 0x7f80;
    CHECK_INT(narrow_add(&n, &tensor, 0, ref, mag, K, out, out, at), KFIT_CODE_NONE);
    uint16_t generic[M * N];
    memcpy(generic, out, sizeof out);
    out[8] = 0xff80;
    CHECK_INT(narrow_add(&n, &tensor, 0, ref, mag, K, generic, out, at), KFIT_CODE_WRONG_NONFINITE);
    out[8] = 0x7f80;
    out[7] = 0x3f80; /* NaN swallowed */
    CHECK_INT(narrow_add(&n, &tensor, 0, ref, mag, K, generic, out, at), KFIT_CODE_WRONG_NONFINITE);
}

static const struct kfit_test tests[] = {
    TEST(rounds_to_nearest_even),
    TEST(the_rule_separates),
    TEST(poison_is_told_from_wrong),
    TEST(the_generic_judges_what_is_not_finite),
};
TEST_MAIN(tests)
