/* timing.h - the decision of gate 4 from paired times, apart from where the times come from.
 *
 * Pure arithmetic, so that tests can drive it with simulated noise.
 */
#ifndef KFIT_TIMING_H
#define KFIT_TIMING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kfit/receipt.h"

#define KFIT_PAIRS_FIRST 30u
#define KFIT_PAIRS_MAX   240u
#define KFIT_PAIRS_ROUND 10u /* pairs in a round; every round must be ahead */

struct kfit_interval {
    double mid, lo, hi;
};

/* Median of n > 0 values; reorders them. */
double kfit_median(double *values, size_t n);

/* Median of n > 0 values (n <= KFIT_PAIRS_MAX) and its 95 % bootstrap interval. */
struct kfit_interval kfit_median_interval(const double *values, size_t n, uint64_t seed);

/* Where pairs come from: fills ns[0][i] (incumbent) and ns[1][i] (candidate, or the incumbent again when
 * against_itself) for n pairs. */
typedef enum kfit_status kfit_pair_source(void *ctx, bool against_itself, unsigned n, double *const ns[2],
                                          struct kfit_error *err);

struct kfit_decision_params {
    kfit_pair_source *source;
    void *ctx;
    double call_ns;        /* added to each candidate time */
    double call_spread_ns; /* how much that differs between programs: a gain must exceed it */
    double timer_step_ns;
    uint64_t seed;
    unsigned pairs_first, pairs_max; /* 0: the constants above */
};

struct kfit_timing_decision {
    struct kfit_interval ratio; /* incumbent / candidate */
    double noise;               /* half-width of the A/A interval */
    double threshold;
    double ns_incumbent, ns_candidate; /* medians; the candidate's with call_ns */
    unsigned pairs;
    enum kfit_code code; /* NONE: accepted; slow:tie, slow:behind, timing:noise */
};

/* Errors: those of the source. */
enum kfit_status kfit_timing_decide(const struct kfit_decision_params *params, struct kfit_timing_decision *d,
                                    struct kfit_error *err);

/* splitmix64, the generator of everything random in the judge. */
static inline uint64_t kfit_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

#endif
