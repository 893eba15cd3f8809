/* timing.h - the decision of gate 4 from paired times, apart from where the times come from.
 *
 * Pure arithmetic, so that tests can drive it with simulated noise.
 */
#ifndef KFIT_TIMING_H
#define KFIT_TIMING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kfit/interval.h"
#include "kfit/receipt.h"

#define KFIT_PAIRS_FIRST 30u
#define KFIT_PAIRS_MAX   KFIT_INTERVAL_MAX
#define KFIT_PAIRS_ROUND 10u /* pairs in a round; every round must be ahead */

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
    enum kfit_code code; /* NONE: accepted; slow:tie, slow:behind, slow:cold, timing:noise */
};

/* Errors: those of the source. */
enum kfit_status kfit_timing_decide(const struct kfit_decision_params *params, struct kfit_timing_decision *d,
                                    struct kfit_error *err);

/* Whether the candidate is not slower, to within KFIT_NOT_SLOWER: accepted if the interval's lower end is above
 * it, slow:cold if it is not and the upper end is below 1, else timing:noise. No A/A run; noise is 0. */
#define KFIT_NOT_SLOWER 0.97
enum kfit_status kfit_timing_not_slower(const struct kfit_decision_params *params,
                                        struct kfit_timing_decision *d, struct kfit_error *err);

#endif
