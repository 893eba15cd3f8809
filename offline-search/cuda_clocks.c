/* The second clock on cuda: the GPU's own kernel records (CUPTI), in a pass after all timing, in the fresh process.
 *
 * They must have the plan's kernels, by name and number and no others; the incumbent's as many in each call. Of both, what
 * events measured per call, less the kernels' time, must be what launching costs: from 0 to 2 us per kernel
 * (LAUNCH_NS), where 0 is taken less ERROR of the time: with CUPTI on, kernels do not run back to back, and may take a little
 * longer than timed. And by kernel time too the candidate must be ahead. A kernel whose work escapes the events, or
 * events that are not what they seem, show here.
 *
 * A machine without CUPTI, or where it is refused, judges without it; the receipt then says so. */
#include <stdio.h>
#include <string.h>

#include "cuda_judge.h"

#define LAUNCH_NS 2000.0
#define ERROR     0.05

/* Are the records those of `plan`, `calls` times? */
static bool kernels_of_plan(const struct kfit_plan *plan, const struct kfit_cu_side_kernels *s, char at[64])
{
    if (s->records != s->calls * plan->launch_count) {
        snprintf(at, 64, "%u kernels seen in %u calls, expected %u", s->records, s->calls, s->calls * plan->launch_count);
        return false;
    }
    for (unsigned l = 0; l < plan->launch_count; l++) {
        unsigned times = 0, found = 0;
        for (unsigned i = 0; i < plan->launch_count; i++)
            times += !strcmp(plan->launches[i].entry, plan->launches[l].entry);
        for (unsigned i = 0; i < s->names; i++)
            found += strcmp(s->name[i].text, plan->launches[l].entry) ? 0 : s->name[i].count;
        if (found != times * s->calls) {
            snprintf(at, 64, "%.32s seen %u times, expected %u", plan->launches[l].entry, found, times * s->calls);
            return false;
        }
    }
    return true;
}

static bool times_agree(const char *whose, double event_ns, const struct kfit_cu_side_kernels *s, char at[64])
{
    double kernel_ns = s->kernel_ns / s->calls, kernels = (double)s->records / s->calls, launching = event_ns - kernel_ns;
    if (launching >= -ERROR * event_ns && launching <= LAUNCH_NS * kernels)
        return true;
    snprintf(at, 64, "%s: %.0f ns by events, %.0f by its kernels", whose, event_ns, kernel_ns);
    return false;
}

/* What the records say against the verdict so far; "" in at if nothing. */
static bool agrees(const struct judge_trial *t, const struct kfit_cu_kernels *k, bool generic, char at[64])
{
    const struct kfit_timing *timed = &t->r->timings[0];
    const struct kfit_cu_side_kernels *incumbent = &k->side[0], *candidate = &k->side[1];
    if (!candidate->calls || !incumbent->calls || !kernels_of_plan(t->job->plan, candidate, at))
        return false;
    if (generic && (!incumbent->records || incumbent->records % incumbent->calls)) {
        snprintf(at, 64, "incumbent: %u kernels seen in %u calls", incumbent->records, incumbent->calls);
        return false;
    }
    if (!generic && !kernels_of_plan(t->job->incumbent_plan, incumbent, at))
        return false;
    if (!times_agree("incumbent", timed->ns_incumbent, incumbent, at) ||
        !times_agree("candidate", timed->ns_candidate, candidate, at))
        return false;
    double ratio = incumbent->kernel_ns / incumbent->calls / (candidate->kernel_ns / candidate->calls);
    if (ratio <= 1)
        snprintf(at, 64, "ratio %.4f by events, %.4f by kernel time", timed->ratio, ratio);
    return ratio > 1;
}

/* The runner is not used again: CUPTI slows all its launches from now on. */
enum kfit_status cuda_clocks(struct judge_trial *t, struct kfit_gate_result *g, struct kfit_error *err)
{
    struct cuda *c = t->device;
    struct kfit_receipt *r = t->r;
    struct kfit_cu_command m = {.what = KFIT_CU_KERNELS,
                                .who = c->incumbent,
                                .who2 = KFIT_CU_CANDIDATE,
                                .count = 1,
                                .generic = *c->p->generic,
                                .limit_ms = 5000};
    enum kfit_status st = cuda_blame(c, session_cuda_do(&c->runner, &m, err), true, err);
    if (st == KFIT_OK && c->broken) {
        g->code = c->broken;
        snprintf(g->at, sizeof g->at, "under CUPTI: %.40s", c->broken_at);
        return KFIT_OK;
    }
    if (st != KFIT_OK)
        return st;
    struct kfit_cu_kernels k;
    memcpy(&k, c->runner.arena, sizeof k);
    k.why[sizeof k.why - 1] = '\0';
    session_cuda_close(&c->runner);
    memset(&c->key, 0, sizeof c->key);
    if (!k.seen) {
        snprintf(g->at, sizeof g->at, "NOT CHECKED: %.50s", k.why);
        snprintf(r->detail, sizeof r->detail, "kernel times not checked: %.200s", k.why);
    } else if (!agrees(t, &k, c->incumbent == KFIT_CU_GENERIC, g->at)) {
        g->code = KFIT_CODE_TIMING_CLOCKS;
    } else {
        const struct kfit_cu_side_kernels *a = &k.side[0], *z = &k.side[1];
        double ns[2] = {a->kernel_ns / a->calls, z->kernel_ns / z->calls};
        snprintf(g->at, sizeof g->at, "%u against %u kernels a call, %.4f by kernel time", z->records / z->calls,
                 a->records / a->calls, ns[0] / ns[1]);
        if (r->timing_count < KFIT_TIMINGS_MAX)
            r->timings[r->timing_count++] = (struct kfit_timing){
                "cold", "cupti", z->calls, ns[0] / ns[1], ns[0] / ns[1], ns[0] / ns[1], ns[1], ns[0], 0};
    }
    g->ok = !g->code;
    return KFIT_OK;
}
