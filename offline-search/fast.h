/* fast.h - gate 4: paired timing in a runner, by two clocks. */
#ifndef KFIT_FAST_H
#define KFIT_FAST_H

#include "correct.h"

struct kfit_fast_params {
    struct kfit_session *session;
    const struct kfit_case *inputs; /* its reference checks what was timed */
    enum kfit_who generic;          /* the faster of its forms */
    bool has_incumbent;             /* an image beside the generic: the faster of the two is to be beaten */
    double call_ns, timer_step_ns;
    uint64_t seed;
    bool brief; /* a first impression: few pairs, no verdict */
    bool cold;  /* also time with cold caches; unless brief, it must not be slower there */
};

struct kfit_fast_result {
    struct kfit_timing
        timing[3]; /* warm by the inner clock (decides), warm by the outer (not if brief), cold */
    unsigned timings;
    double noise;
    enum kfit_code code;
    char at[64];
};

/* KFIT_OK also when the candidate is not faster, or misbehaves while timed: see result->code. */
enum kfit_status kfit_fast(const struct kfit_fast_params *params, struct kfit_fast_result *result,
                           struct kfit_error *err);

/* Which form of the generic a program calls, as the faster one, and its median time. */
enum kfit_status kfit_fast_generic(struct kfit_session *s, const struct kfit_case *inputs,
                                   enum kfit_who *generic, double *ns, struct kfit_error *err);

double kfit_timer_step_ns(void);
size_t kfit_cold_bytes(void); /* min(twice the last-level cache, 256 MB) */

#endif
