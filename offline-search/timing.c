#include <string.h>

#include "timing.h"

#define MIN_GAIN    1.02 /* below this a winner is not worth its risk */
#define NOISE_LIMIT 0.10 /* an A/A interval this wide says nothing about a candidate */

/* The share of rounds behind does not matter: one is enough to say that the gain is not there every time. */
static bool every_round_ahead(const double *ratios, unsigned n)
{
    double round[2 * KFIT_PAIRS_ROUND];
    unsigned rounds = n / KFIT_PAIRS_ROUND ? n / KFIT_PAIRS_ROUND : 1;
    for (unsigned i = 0; i < rounds; i++) {
        unsigned from = i * n / rounds, to = (i + 1) * n / rounds;
        memcpy(round, ratios + from, (to - from) * sizeof *ratios);
        if (!(kfit_median(round, to - from) > 1))
            return false;
    }
    return true;
}

static double median_of(const double *values, unsigned n)
{
    double copy[KFIT_PAIRS_MAX];
    memcpy(copy, values, n * sizeof *values);
    return kfit_median(copy, n);
}

struct pairs {
    double incumbent[KFIT_PAIRS_MAX], candidate[KFIT_PAIRS_MAX], ratio[KFIT_PAIRS_MAX];
};

/* Until there are `want` pairs. */
static enum kfit_status more_pairs(const struct kfit_decision_params *p, struct pairs *a, unsigned want,
                                   struct kfit_timing_decision *d, struct kfit_error *err)
{
    enum kfit_status s = p->source(p->ctx, false, want - d->pairs,
                                   (double *[]){a->incumbent + d->pairs, a->candidate + d->pairs}, err);
    if (s != KFIT_OK)
        return s;
    for (; d->pairs < want; d->pairs++) {
        a->candidate[d->pairs] += p->call_ns;
        a->ratio[d->pairs] = a->incumbent[d->pairs] / a->candidate[d->pairs];
    }
    d->ratio = kfit_median_interval(a->ratio, d->pairs, p->seed + d->pairs);
    d->ns_incumbent = median_of(a->incumbent, d->pairs);
    d->ns_candidate = median_of(a->candidate, d->pairs);
    return KFIT_OK;
}

/* What is worth more pairs. */
static bool undecided(const struct kfit_timing_decision *d)
{
    return d->ratio.lo <= d->threshold && d->ratio.hi > d->threshold;
}

enum kfit_status kfit_timing_decide(const struct kfit_decision_params *p, struct kfit_timing_decision *d,
                                    struct kfit_error *err)
{
    struct pairs a;
    unsigned first = p->pairs_first ? p->pairs_first : KFIT_PAIRS_FIRST;
    unsigned max = p->pairs_max ? p->pairs_max : KFIT_PAIRS_MAX;
    memset(d, 0, sizeof *d);

    enum kfit_status s = p->source(p->ctx, true, first, (double *[]){a.incumbent, a.candidate}, err);
    if (s != KFIT_OK)
        return s;
    for (unsigned i = 0; i < first; i++)
        a.ratio[i] = a.incumbent[i] / a.candidate[i];
    struct kfit_interval same = kfit_median_interval(a.ratio, first, p->seed);
    d->noise = (same.hi - same.lo) / 2;

    for (unsigned want = first; d->pairs < want;) {
        s = more_pairs(p, &a, want, d, err);
        if (s != KFIT_OK)
            return s;
        d->threshold = MIN_GAIN;
        if (d->threshold < 1 + 2 * d->noise)
            d->threshold = 1 + 2 * d->noise;
        if (d->threshold < 1 + 2 * p->timer_step_ns / d->ns_incumbent)
            d->threshold = 1 + 2 * p->timer_step_ns / d->ns_incumbent;
        if (d->threshold < 1 + p->call_spread_ns / d->ns_candidate)
            d->threshold = 1 + p->call_spread_ns / d->ns_candidate;
        if (undecided(d) && 2 * want <= max)
            want *= 2;
    }
    if (d->ratio.lo > d->threshold && every_round_ahead(a.ratio, d->pairs))
        d->code = KFIT_CODE_NONE;
    else if (d->ratio.hi < 1)
        d->code = KFIT_CODE_SLOW_BEHIND;
    else if (d->noise > NOISE_LIMIT && d->ratio.hi > MIN_GAIN)
        d->code = KFIT_CODE_TIMING_NOISE;
    else
        d->code = KFIT_CODE_SLOW_TIE;
    return KFIT_OK;
}

enum kfit_status kfit_timing_not_slower(const struct kfit_decision_params *p, struct kfit_timing_decision *d,
                                        struct kfit_error *err)
{
    struct pairs a;
    unsigned first = p->pairs_first ? p->pairs_first : KFIT_PAIRS_FIRST;
    unsigned max = p->pairs_max ? p->pairs_max : KFIT_PAIRS_MAX;
    memset(d, 0, sizeof *d);
    d->threshold = KFIT_NOT_SLOWER;
    for (unsigned want = first; d->pairs < want;) {
        enum kfit_status s = more_pairs(p, &a, want, d, err);
        if (s != KFIT_OK)
            return s;
        if (undecided(d) && 2 * want <= max)
            want *= 2;
    }
    d->code = d->ratio.lo > d->threshold ? KFIT_CODE_NONE
              : d->ratio.hi < 1          ? KFIT_CODE_SLOW_COLD
                                         : KFIT_CODE_TIMING_NOISE;
    return KFIT_OK;
}
