/* Inputs, float64 references and the accuracy rule: honest arithmetic passes, sloppy arithmetic does not. */
#include <math.h>

#include "accuracy.h"
#include "inputs.h"
#include "kfit_test.h"
#include "reference.h"

static union kfit_key key_of(const char *text)
{
    union kfit_key key;
    struct kfit_error err;
    CHECK_OK(kfit_key_parse(text, &key, &err), err);
    return key;
}

static union kfit_key key_mnk(int m, int n, int k, const char *type, const char *letters, int beta)
{
    char text[KFIT_KEY_TEXT_MAX];
    bool ta = letters[0] == 't', tb = letters[1] == 't';
    snprintf(text, sizeof text,
             "gemm/%s,%s,%s/acc=%s/m=%d,n=%d,k=%d/%s/lda=%d,ldb=%d,ldc=%d/alpha=1,beta=%d/align=%d", type,
             type, type, type, m, n, k, letters, (ta ? m : k) + 2, (tb ? k : n) + 4, n + 6, beta,
             type[1] == '6' ? 8 : 4);
    return key_of(text);
}

struct data {
    union kfit_key key;
    struct kfit_tensor t[3];
    void *arg[3];
    double *ref, *mag;
};

static struct data make(const union kfit_key *key, const struct kfit_distribution *d, uint64_t seed)
{
    struct data x = {.key = *key};
    const struct kfit_op *op = kfit_op_of(key);
    for (unsigned i = 0; i < 3; i++) {
        op->tensor(key, i, &x.t[i]);
        x.arg[i] = malloc(kfit_tensor_bytes(&x.t[i]));
        CHECK(kfit_inputs_fill(d, seed, &x.t[i], i, 3, x.arg[i]));
    }
    size_t n = (size_t)(x.t[2].rows * x.t[2].cols);
    x.ref = malloc(n * sizeof *x.ref);
    x.mag = malloc(n * sizeof *x.mag);
    CHECK(kfit_reference(key, (const void *const *)x.arg, x.ref, x.mag));
    return x;
}

static void release(struct data *x)
{
    for (unsigned i = 0; i < 3; i++)
        free(x->arg[i]);
    free(x->ref);
    free(x->mag);
}

static double element(const struct data *x, unsigned arg, int64_t i, int64_t j)
{
    int64_t at = i * x->t[arg].ld + j;
    return x->t[arg].type == KFIT_F64 ? ((double *)x->arg[arg])[at] : (double)((float *)x->arg[arg])[at];
}

/* f32 sums in order of k, with one rounding per term (fused) or two; bits: mantissa bits of a product's
 * factors. */
static float sequential(const struct data *x, int64_t i, int64_t j, bool fused, int bits)
{
    const struct kfit_gemm_key *g = &x->key.gemm;
    float s = 0, unit = (float)(1 << (24 - bits));
    for (int64_t p = 0; p < g->k; p++) {
        float a = (float)element(x, 0, g->ta ? p : i, g->ta ? i : p),
              b = (float)element(x, 1, g->tb ? j : p, g->tb ? p : j);
        if (bits < 24) { /* Dekker's split: the upper bits */
            volatile float t = a * (unit + 1);
            a = t - (t - a);
            t = b * (unit + 1);
            b = t - (t - b);
        }
        volatile float product = a * b;
        s = fused ? fmaf(a, b, s) : s + product;
    }
    return s;
}

static const struct kfit_accuracy exact; /* a generic without error: the absolute bound decides */

static void reference_agrees_with_the_op(void)
{
    static const char *const letters[] = {"nn", "nt", "tn", "tt"}, *const types[] = {"f32", "f64"};
    for (unsigned c = 0; c < 4 * 2 * 2 * 4; c++) {
        int odd = (int)(c >> 4);
        union kfit_key key =
            key_mnk(1 + 3 * odd, 7 + odd, 1 + 13 * odd, types[c >> 2 & 1], letters[c & 3], c >> 3 & 1);
        struct data x = make(&key, &kfit_distributions[c % 3], c);
        double ref[200], mag[200];
        CHECK(key.gemm.m * key.gemm.n <= 200);
        kfit_op_of(&key)->reference(&key, (const void *const *)x.arg, ref, mag);
        for (int i = 0; i < key.gemm.m * key.gemm.n; i++) {
            CHECK(fabs(ref[i] - x.ref[i]) <= 1e-13 * mag[i]);
            CHECK(fabs(mag[i] - x.mag[i]) <= 1e-13 * mag[i]);
        }
        release(&x);
    }
}

/* Every distribution, several lengths and seeds: the plainest kernel there is stays within the absolute
 * bound. */
static void sequential_sums_are_never_refused(void)
{
    static const int lengths[] = {1, 2, 3, 5, 16, 64, 300, 768};
    double worst = 0;
    for (unsigned l = 0; l < sizeof lengths / sizeof *lengths; l++) {
        for (unsigned d = 0; d < kfit_distribution_count * 4; d++) {
            union kfit_key key = key_mnk(8, 32, lengths[l], "f32", d & 1 ? "nt" : "nn", 0);
            const struct kfit_distribution *dist = &kfit_distributions[d / 4];
            struct data x = make(&key, dist, kfit_test_random());
            struct kfit_accuracy a = {0};
            char at[64] = "";
            memset(x.arg[2], 0x55, kfit_tensor_bytes(&x.t[2]));
            float *out = malloc(kfit_tensor_bytes(&x.t[2]));
            for (int64_t i = 0; i < x.t[2].rows; i++)
                for (int64_t j = 0; j < x.t[2].cols; j++)
                    out[i * x.t[2].ld + j] = sequential(&x, i, j, d & 2, 24);
            struct kfit_expected e = {&x.t[2], x.arg[2], x.ref, x.mag,
                                      dist->judged == KFIT_JUDGED_GENERIC ? out : NULL};
            enum kfit_code code = kfit_accuracy_add(&a, &e, out, at);
            CHECK_MSG(code == KFIT_CODE_NONE && kfit_accuracy_accept(&a, &exact, lengths[l], dist->uneven),
                      "%s, K %d: %s %s, rms %g, worst %g", dist->name, lengths[l], kfit_code_str(code), at,
                      kfit_accuracy_rms(&a), a.worst);
            double share = kfit_accuracy_rms(&a) / sqrt(lengths[l] < 12 ? 12 : lengths[l]);
            worst = share > worst ? share : worst;
            free(out);
            release(&x);
        }
    }
    printf("  worst rms of a sequential sum: %.3f sqrt(K)\n", worst);
}

static void half_the_mantissa_is_refused(void)
{
    union kfit_key key = key_mnk(3, 16, 100, "f32", "nn", 0);
    struct data x = make(&key, &kfit_distributions[0], kfit_test_random());
    struct kfit_accuracy a = {0};
    char at[64];
    float *out = malloc(kfit_tensor_bytes(&x.t[2]));
    for (int64_t i = 0; i < 3; i++)
        for (int64_t j = 0; j < 16; j++)
            out[i * x.t[2].ld + j] = sequential(&x, i, j, true, 12);
    struct kfit_expected e = {&x.t[2], x.arg[2], x.ref, x.mag, NULL};
    CHECK_INT(kfit_accuracy_add(&a, &e, out, at), KFIT_CODE_NONE); /* not grossly wrong */
    CHECK(!kfit_accuracy_accept(&a, &exact, 100, false));
    struct kfit_accuracy poor = {.sum_of_squares = 1e8, .worst = 1e5, .n = 100};
    CHECK_MSG(kfit_accuracy_accept(&a, &poor, 100, false), "as good as its generic");
}

static void each_kind_of_wrong_has_its_code(void)
{
    union kfit_key key = key_mnk(2, 5, 9, "f64", "tn", 0);
    struct data x = make(&key, &kfit_distributions[0], 7);
    struct kfit_accuracy a = {0};
    char at[64];
    double out[64], before[64], right[64];
    memset(before, 0x7f, sizeof before);
    for (int o = 0; o < 10; o++)
        right[o / 5 * x.t[2].ld + o % 5] = x.ref[o];
    struct kfit_expected e = {&x.t[2], before, x.ref, x.mag, NULL};
    CHECK_INT(kfit_accuracy_add(&a, &e, right, at), KFIT_CODE_NONE);
    CHECK_INT(kfit_accuracy_add(&a, &e, before, at), KFIT_CODE_WRONG_UNWRITTEN);
    memcpy(out, right, sizeof out);
    memcpy(out + 4, before + 4, 8);
    CHECK_INT(kfit_accuracy_add(&a, &e, out, at), KFIT_CODE_WRONG_PARTIAL);
    memcpy(out, right, sizeof out);
    out[2] = NAN;
    CHECK_INT(kfit_accuracy_add(&a, &e, out, at), KFIT_CODE_WRONG_NONFINITE);
    out[2] = right[2] + 1;
    CHECK_INT(kfit_accuracy_add(&a, &e, out, at), KFIT_CODE_WRONG_VALUES);
    CHECK(!strncmp(at, "[0,2]", 5));
}

/* A swallowed NaN is wrong where the generic keeps it, right where the generic swallows it too. */
static void nonfinite_is_judged_by_the_generic(void)
{
    union kfit_key key = key_mnk(1, 2, 2, "f32", "nn", 0);
    struct data x = make(&key, &kfit_distributions[0], 7);
    struct kfit_accuracy a = {0};
    char at[64];
    x.ref[0] = NAN;
    float with_nan[8] = {NAN, (float)x.ref[1]}, swallowed[8] = {0, (float)x.ref[1]},
          infinite[8] = {INFINITY, (float)x.ref[1]};
    struct kfit_expected keeps = {&x.t[2], x.arg[2], x.ref, x.mag, with_nan},
                         swallows = {&x.t[2], x.arg[2], x.ref, x.mag, swallowed};
    CHECK_INT(kfit_accuracy_add(&a, &keeps, with_nan, at), KFIT_CODE_NONE);
    CHECK_INT(kfit_accuracy_add(&a, &keeps, swallowed, at), KFIT_CODE_WRONG_NONFINITE);
    CHECK_INT(kfit_accuracy_add(&a, &keeps, infinite, at), KFIT_CODE_WRONG_NONFINITE);
    CHECK_INT(kfit_accuracy_add(&a, &swallows, swallowed, at), KFIT_CODE_NONE);
    CHECK_INT(kfit_accuracy_add(&a, &swallows, with_nan, at), KFIT_CODE_NONE);
}

static void inputs_follow_their_seed(void)
{
    union kfit_key key = key_mnk(5, 33, 40, "f32", "nn", 1);
    for (unsigned d = 0; d < kfit_distribution_count; d++) {
        struct data x = make(&key, &kfit_distributions[d], 1), y = make(&key, &kfit_distributions[d], 1),
                    z = make(&key, &kfit_distributions[d], 2);
        bool differs = false;
        for (unsigned i = 0; i < 3; i++) {
            CHECK(!memcmp(x.arg[i], y.arg[i], kfit_tensor_bytes(&x.t[i])));
            differs |= !!memcmp(x.arg[i], z.arg[i], kfit_tensor_bytes(&x.t[i]));
        }
        CHECK_MSG(differs || !strcmp(kfit_distributions[d].name, "constant") ||
                      !strcmp(kfit_distributions[d].name, "alternating"),
                  "%s", kfit_distributions[d].name);
        release(&x), release(&y), release(&z);
    }
    /* standard normal: mean and variance */
    struct data x = make(&key, &kfit_distributions[0], 3);
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < 40; i++)
        for (int64_t j = 0; j < 33; j++) {
            double v = element(&x, 1, i, j);
            sum += v;
            squares += v * v;
        }
    CHECK(fabs(sum / 1320) < 0.15 && fabs(squares / 1320 - 1) < 0.2);
}

static const struct kfit_test tests[] = {
    TEST(reference_agrees_with_the_op),       TEST(sequential_sums_are_never_refused),
    TEST(half_the_mantissa_is_refused),       TEST(each_kind_of_wrong_has_its_code),
    TEST(nonfinite_is_judged_by_the_generic), TEST(inputs_follow_their_seed)};
TEST_MAIN(tests)
