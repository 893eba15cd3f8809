/* Gate 4 on cuda: cold pairs in graph replay decide, plain launches can veto, warm is reported. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_judge.h"

static enum kfit_status pairs(struct bench *b, unsigned who, unsigned who2, unsigned n, double *const ns[2],
                              struct kfit_error *err)
{
    struct kfit_cu_command m = {.what = KFIT_CU_PAIRS,
                                .who = who,
                                .who2 = who2,
                                .count = n,
                                .mode = b->mode,
                                .seed = kfit_random(&b->seed),
                                .fill = !b->filled,
                                .fill_seed = b->fill_seed,
                                .limit_ms = 5000};
    struct session_cuda *s = &b->c->runner;
    enum kfit_status st = cuda_blame(b->c, session_cuda_do(s, &m, err), who2 == KFIT_CU_CANDIDATE, err);
    if (st != KFIT_OK || b->c->broken)
        return st;
    b->filled = true;
    const struct kfit_cu_times *times = (const struct kfit_cu_times *)s->arena;
    for (unsigned side = 0; side < 2; side++)
        memcpy(ns[side], times->ns[side], n * sizeof(double));
    return KFIT_OK;
}

static enum kfit_status source(void *ctx, bool against_itself, unsigned n, double *const ns[2],
                               struct kfit_error *err)
{
    struct bench *b = ctx;
    enum kfit_status st =
        pairs(b, b->incumbent, against_itself ? b->incumbent : KFIT_CU_CANDIDATE, n, ns, err);
    if (st == KFIT_OK && b->c->broken)
        st = KFIT_E_REFUSED; /* the decision cannot go on; the caller knows why */
    return st;
}

/* Median of a few calls of who, cold. */
enum kfit_status cuda_median_of(struct bench *b, unsigned who, double *ns, struct kfit_error *err)
{
    double a[12], z[12];
    enum kfit_status st = pairs(b, who, who, 12, (double *[]){a, z}, err);
    if (st == KFIT_OK)
        *ns = kfit_median(a, 12);
    return st;
}

/* After timing, what was computed while timed must be right: the first slot and a few others. */
static enum kfit_status check_timed(struct bench *b, struct kfit_gate_result *g, struct kfit_error *err)
{
    struct cuda *c = b->c;
    struct case_cuda k = {.distribution = CUDA_NORMAL, .ref = malloc(2 * c->out_count * sizeof(double))};
    enum kfit_status st = k.ref ? KFIT_OK : kfit_fail(err, KFIT_E_NOMEM, "judge: out of memory");
    k.mag = k.ref ? k.ref + c->out_count : NULL;
    for (unsigned i = 0; st == KFIT_OK && !g->code && i < KFIT_CU_CHECKED; i++) {
        struct narrow narrow = {0};
        struct kfit_accuracy wide = {0};
        unsigned slot =
            i ? (unsigned)(kfit_random(&b->seed) % c->launches) : 0; /* of the graph that surely ran */
        const struct kfit_cu_command m = {
            .what = KFIT_CU_OUTPUT, .who = 1, .slot = slot, .limit_ms = CUDA_LAUNCH_LIMIT_MS};
        st = cuda_reference(c, CUDA_NORMAL, b->fill_seed + slot % c->sets, k.ref, err);
        if (st == KFIT_OK)
            st = session_cuda_do(&c->runner, &m, err);
        if (st != KFIT_OK)
            break;
        if (cuda_compare(c, &k, 0, c->runner.arena, &narrow, &wide, g->at))
            g->code = KFIT_CODE_WRONG_LATER;
    }
    free(k.ref);
    return st;
}

enum kfit_status cuda_time_it(struct judge_trial *t, bool brief, struct kfit_gate_result *g,
                              struct kfit_error *err)
{
    struct cuda *c = t->device;
    struct bench b = {.c = c,
                      .incumbent = KFIT_CU_GENERIC,
                      .mode = KFIT_CU_COLD,
                      .seed = judge_os_random(),
                      .fill_seed = judge_os_random()};
    struct kfit_timing *out = t->r->timings;
    struct kfit_timing_decision d;
    double ns_generic = 0, ns_winner = 0;
    enum kfit_status st = KFIT_OK;
    if (t->job->incumbent_image && !brief) {
        st = cuda_median_of(&b, KFIT_CU_GENERIC, &ns_generic, err);
        if (st == KFIT_OK)
            st = cuda_median_of(&b, KFIT_CU_INCUMBENT, &ns_winner, err);
        if (st == KFIT_OK && ns_winner < ns_generic)
            b.incumbent = KFIT_CU_INCUMBENT;
    }
    c->incumbent = b.incumbent;
    const struct kfit_decision_params how = {.source = source,
                                             .ctx = &b,
                                             .timer_step_ns = c->info.timer_step_ns / c->launches,
                                             .seed = judge_os_random(),
                                             .pairs_first = brief ? 6 : 0,
                                             .pairs_max = brief ? 6 : 0};
    if (st == KFIT_OK)
        st = kfit_timing_decide(&how, &d, err);
    if (c->broken) {
        g->code = c->broken;
        snprintf(g->at, sizeof g->at, "while timed: %.40s", c->broken_at);
        return KFIT_OK;
    }
    if (st != KFIT_OK)
        return st;
    out[0] = (struct kfit_timing){
        "cold",         "inner",        d.pairs,
        d.ratio.mid,    d.ratio.lo,     d.ratio.hi,
        d.ns_candidate, d.ns_incumbent, b.incumbent == KFIT_CU_GENERIC ? d.ns_incumbent : ns_generic};
    t->r->timing_count = 1;
    t->r->noise = d.noise;
    g->code = brief ? KFIT_CODE_NONE : d.code;
    snprintf(g->at, sizeof g->at, "%.4f [%.4f, %.4f], threshold %.4f", d.ratio.mid, d.ratio.lo, d.ratio.hi,
             d.threshold);
    if (!brief && !g->code)
        st = check_timed(&b, g, err);
    /* Warm and plain launches are reported; plain ones can veto. */
    for (unsigned mode = KFIT_CU_WARM; mode < KFIT_CU_MODES && !brief && !g->code && st == KFIT_OK; mode++) {
        double a[KFIT_PAIRS_FIRST], z[KFIT_PAIRS_FIRST], ratio[KFIT_PAIRS_FIRST];
        b.mode = mode;
        st = pairs(&b, b.incumbent, KFIT_CU_CANDIDATE, KFIT_PAIRS_FIRST, (double *[]){a, z}, err);
        if (st != KFIT_OK || c->broken)
            break;
        for (unsigned i = 0; i < KFIT_PAIRS_FIRST; i++)
            ratio[i] = a[i] / z[i];
        struct kfit_interval r = kfit_median_interval(ratio, KFIT_PAIRS_FIRST, b.seed);
        out[t->r->timing_count++] = (struct kfit_timing){"",
                                                         "inner",
                                                         KFIT_PAIRS_FIRST,
                                                         r.mid,
                                                         r.lo,
                                                         r.hi,
                                                         kfit_median(z, KFIT_PAIRS_FIRST),
                                                         kfit_median(a, KFIT_PAIRS_FIRST),
                                                         0};
        snprintf(out[t->r->timing_count - 1].mode, sizeof out->mode, "%s",
                 mode == KFIT_CU_WARM ? "warm" : "plain");
        if (mode == KFIT_CU_PLAIN && r.hi < 1) {
            g->code = KFIT_CODE_SLOW_BEHIND;
            snprintf(g->at, sizeof g->at, "plain launches: %.4f [%.4f, %.4f]", r.mid, r.lo, r.hi);
        }
    }
    if (st == KFIT_OK && !brief && !g->code &&
        c->out.dir == KFIT_OUT) /* inout was added to more than once when warm */
        st = check_timed(&b, g, err);
    g->ok = !g->code;
    return st;
}

enum kfit_status cuda_gate_screen(struct judge_trial *t, struct kfit_gate_result *g, struct kfit_error *err)
{
    return cuda_time_it(t, true, g, err);
}

enum kfit_status cuda_gate_fast(struct judge_trial *t, struct kfit_gate_result *g, struct kfit_error *err)
{
    return cuda_time_it(t, false, g, err);
}
