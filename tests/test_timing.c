/* Power and false alarms of gate 4's statistics, with simulated noise. */
#include <math.h>

#include "kfit_test.h"
#include "timing.h"

struct machine {
    double gain;  /* true incumbent / candidate */
    double noise; /* relative, of one batch */
    double drift; /* slow common change of speed, which pairing must cancel */
    double spike; /* probability of a batch that takes three times as long */
    uint64_t seed;
    unsigned calls;
};

static double uniform(uint64_t *seed)
{
    return (double)(kfit_random(seed) >> 11) * 0x1p-53;
}

static double batch(struct machine *m, double ns)
{
    double u = sqrt(-2 * log(1 - uniform(&m->seed))) * cos(2 * M_PI * uniform(&m->seed));
    double speed = 1 + m->drift * sin(m->calls++ / 20.0);
    return ns * speed * (1 + m->noise * u) * (uniform(&m->seed) < m->spike ? 3 : 1);
}

static enum kfit_status simulate(void *ctx, bool same, unsigned n, double *const ns[2],
                                 struct kfit_error *err)
{
    (void)err;
    struct machine *m = ctx;
    for (unsigned i = 0; i < n; i++) {
        ns[0][i] = batch(m, 1e5);
        ns[1][i] = batch(m, same ? 1e5 : 1e5 / m->gain);
    }
    return KFIT_OK;
}

static unsigned accepted(double gain, double noise, double drift, double spike, unsigned trials)
{
    unsigned n = 0;
    for (unsigned i = 0; i < trials; i++) {
        struct machine m = {gain, noise, drift, spike, kfit_test_random(), 0};
        struct kfit_timing_decision d;
        struct kfit_error err;
        CHECK_OK(kfit_timing_decide(
                     &(struct kfit_decision_params){.source = simulate, .ctx = &m, .seed = m.seed}, &d, &err),
                 err);
        n += d.code == KFIT_CODE_NONE;
    }
    return n;
}

static void a_gain_of_three_percent_over_the_threshold_is_seen(void)
{
    unsigned n = accepted(1.05, 0.01, 0, 0, 200);
    CHECK_MSG(n >= 180, "%u of 200 accepted", n);
    n = accepted(1.05, 0.01, 0.1, 0.05, 200);
    CHECK_MSG(n >= 160, "with drift and spikes %u of 200 accepted", n);
}

static void no_gain_is_not_seen(void)
{
    unsigned n = accepted(1, 0.01, 0, 0, 200);
    CHECK_MSG(n <= 2, "%u of 200 accepted", n);
    n = accepted(1, 0.05, 0.2, 0.1, 200);
    CHECK_MSG(n <= 2, "with much noise %u of 200 accepted", n);
    n = accepted(1.015, 0.005, 0, 0, 200);
    CHECK_MSG(n <= 4, "below the threshold %u of 200 accepted", n);
}

static void call_cost_counts_against_the_candidate(void)
{
    struct machine m = {2, 0.001, 0, 0, 1, 0};
    struct kfit_timing_decision d;
    struct kfit_error err;
    struct kfit_decision_params p = {.source = simulate, .ctx = &m, .seed = 1, .call_ns = 60000};
    CHECK_OK(kfit_timing_decide(&p, &d, &err), err);
    CHECK_INT(d.code, KFIT_CODE_SLOW_BEHIND);
    CHECK(fabs(d.ns_candidate - 110000) < 1000);
}

static void pairs_double_while_undecided(void)
{
    struct machine clear = {2, 0.01, 0, 0, 3, 0}, close = {1.0201, 0.01, 0, 0, 3, 0};
    struct kfit_timing_decision d;
    struct kfit_error err;
    CHECK_OK(kfit_timing_decide(&(struct kfit_decision_params){.source = simulate, .ctx = &clear}, &d, &err),
             err);
    CHECK_INT(d.pairs, KFIT_PAIRS_FIRST);
    CHECK_OK(kfit_timing_decide(&(struct kfit_decision_params){.source = simulate, .ctx = &close}, &d, &err),
             err);
    CHECK(d.pairs > KFIT_PAIRS_FIRST && d.pairs <= KFIT_PAIRS_MAX);
}

/* A slow timer, or a noisy A/A run, raises the bar. */
static void threshold_follows_timer_and_noise(void)
{
    struct machine m = {1.5, 0.001, 0, 0, 4, 0}, noisy = {1.5, 0.5, 0, 0, 4, 0};
    struct kfit_timing_decision d;
    struct kfit_error err;
    CHECK_OK(
        kfit_timing_decide(
            &(struct kfit_decision_params){.source = simulate, .ctx = &m, .timer_step_ns = 4e4}, &d, &err),
        err);
    CHECK(d.threshold > 1.75 && d.code == KFIT_CODE_SLOW_TIE);
    CHECK_OK(kfit_timing_decide(&(struct kfit_decision_params){.source = simulate, .ctx = &noisy}, &d, &err),
             err);
    CHECK(d.noise > 0.1 && d.threshold == 1 + 2 * d.noise);
}

static struct kfit_timing_decision cold(double gain, double noise, double call_ns)
{
    struct machine m = {gain, noise, 0.1, 0.05, kfit_test_random(), 0};
    struct kfit_timing_decision d;
    struct kfit_error err;
    CHECK_OK(
        kfit_timing_not_slower(
            &(struct kfit_decision_params){.source = simulate, .ctx = &m, .seed = m.seed, .call_ns = call_ns},
            &d, &err),
        err);
    CHECK(d.pairs >= KFIT_PAIRS_FIRST && d.pairs <= KFIT_PAIRS_MAX);
    return d;
}

/* What is as fast passes, what is slower does not, and what noise hides is called noise. */
static void not_slower_is_told_from_slower(void)
{
    unsigned as_fast = 0, slower = 0, slower_named = 0, hidden = 0;
    for (unsigned i = 0; i < 200; i++) {
        as_fast += !cold(1, 0.01, 0).code;
        enum kfit_code code = cold(0.94, 0.01, 0).code;
        slower += !code;
        slower_named += code == KFIT_CODE_SLOW_COLD;
        hidden += cold(0.985, 1.0 / 3, 0).code == KFIT_CODE_TIMING_NOISE;
    }
    CHECK_MSG(as_fast >= 180, "as fast: %u of 200 passed", as_fast);
    CHECK_MSG(slower <= 2 && slower_named >= 195, "slower: %u of 200 passed, %u were named", slower,
              slower_named);
    CHECK_MSG(hidden >= 100, "%u of 200 were called noise", hidden);
    CHECK_INT(cold(1, 0.001, 1e4).code, KFIT_CODE_SLOW_COLD); /* the cost of the call counts */
    CHECK_INT(cold(2, 0.001, 1e4).code, KFIT_CODE_NONE);
    CHECK_INT(cold(2, 0.01, 0).pairs, KFIT_PAIRS_FIRST);
}

static void median_is_the_middle(void)
{
    for (unsigned n = 1; n < 60; n++) {
        double v[60], sorted[60];
        for (unsigned i = 0; i < n; i++)
            v[i] = (double)(kfit_test_random() % 20);
        memcpy(sorted, v, sizeof v);
        for (unsigned i = 0; i < n; i++)
            for (unsigned j = i + 1; j < n; j++)
                if (sorted[j] < sorted[i]) {
                    double t = sorted[i];
                    sorted[i] = sorted[j];
                    sorted[j] = t;
                }
        CHECK(kfit_median(v, n) == (n % 2 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2));
    }
}

static const struct kfit_test tests[] = {TEST(a_gain_of_three_percent_over_the_threshold_is_seen),
                                         TEST(no_gain_is_not_seen),
                                         TEST(call_cost_counts_against_the_candidate),
                                         TEST(pairs_double_while_undecided),
                                         TEST(threshold_follows_timer_and_noise),
                                         TEST(not_slower_is_told_from_slower),
                                         TEST(median_is_the_middle)};
TEST_MAIN(tests)
