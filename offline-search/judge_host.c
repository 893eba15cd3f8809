/* The host device's gates: candidates run in a fresh runner for each evaluation. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bound.h"
#include "fast.h"
#include "judge_device.h"

#define CALL_NS 30.0 /* what dispatching a host call costs, key included */

struct host {
    const struct kfit_judge_params *p;
    char runner[512];
    uint64_t seed;
    double call_ns, timer_step_ns;
    int threads;
    struct kfit_cases cases; /* gate 1's, of the key last judged */
    struct kfit_ceilings ceilings;
    bool measured;
    struct kfit_session session; /* of the present trial */
    enum kfit_who generic;       /* the faster of its forms */
};

static enum kfit_status host_open(const struct kfit_judge_params *p, uint64_t seed, void **device,
                                  struct kfit_error *err)
{
    char threads[16];
    struct host *h = calloc(1, sizeof *h);
    if (!h)
        return kfit_fail(err, KFIT_E_NOMEM, "judge: out of memory");
    *h = (struct host){.p = p,
                       .seed = seed,
                       .call_ns = p->call_ns > 0 ? p->call_ns : CALL_NS,
                       .timer_step_ns = kfit_timer_step_ns()};
    if (kfit_env_get(p->env->hard, "threads", threads, sizeof threads))
        h->threads = atoi(threads);
    enum kfit_status st = judge_find_program(p->runner, "kfit-runner", h->runner, err);
    if (st != KFIT_OK) {
        free(h);
        return st;
    }
    kfit_logf(&p->log, KFIT_LOG_INFO, "judge: generic %s with %d threads, seed %llu", p->generic->path,
              h->threads, (unsigned long long)seed);
    *device = h;
    return KFIT_OK;
}

static void host_close(void *device)
{
    struct host *h = device;
    kfit_cases_finish(&h->cases);
    free(h);
}

static enum kfit_status check_key(const union kfit_key *key, struct kfit_error *err)
{
    const struct kfit_gemm_key *g = &key->gemm;
    if (g->epi || g->len != KFIT_GEMM_KEY_BYTES)
        return kfit_fail(err, KFIT_E_UNSUPPORTED,
                         "judge: the host's BLAS has no %s, so there is nothing to beat; such keys are for the "
                         "cuda device",
                         g->epi ? "epilogue" : "strided batch");
    if (g->op != KFIT_OP_GEMM || g->type_a != g->type_c ||
        g->type_b != g->type_c || g->type_acc != g->type_c ||
        (g->type_c != KFIT_F32 && g->type_c != KFIT_F64) || g->alpha == KFIT_SCALAR_OTHER ||
        g->beta == KFIT_SCALAR_OTHER)
        return kfit_fail(err, KFIT_E_UNSUPPORTED,
                         "judge: the host device judges plain gemm in f32 or f64 with alpha and beta 0 or 1");
    return KFIT_OK;
}

/* A fresh runner for job, and the generic that it is to beat. */
static enum kfit_status start(struct host *h, const struct kfit_judge_job *job, struct kfit_error *err)
{
    struct kfit_session_params p = {.runner = h->runner,
                                    .generic = h->p->generic,
                                    .threads = h->threads,
                                    .key = job->key,
                                    .image = {job->image, job->incumbent_image},
                                    .image_bytes = {job->image_bytes, job->incumbent_bytes},
                                    .plan = {job->plan, job->incumbent_plan},
                                    .cold_bytes = job->screen && !job->cold ? 0 : kfit_cold_bytes()};
    enum kfit_status st = kfit_session_start(&h->session, &p, err);
    if (st == KFIT_OK)
        st = kfit_fast_generic(&h->session, &h->cases.cases[0], &h->generic, NULL, err);
    return st;
}

static enum kfit_status fixed_cases(struct host *h, const union kfit_key *key, struct kfit_error *err)
{
    if (h->cases.count && kfit_key_equal(&h->cases.key, key))
        return KFIT_OK;
    kfit_cases_finish(&h->cases);
    return kfit_cases_make(&h->cases, key, h->seed ^ kfit_key_hash(key), false, err);
}

static enum kfit_status begin(struct judge_trial *t, struct kfit_error *err)
{
    enum kfit_status st = fixed_cases(t->device, t->job->key, err);
    return st == KFIT_OK ? start(t->device, t->job, err) : st;
}

static void end(struct judge_trial *t)
{
    kfit_session_finish(&((struct host *)t->device)->session);
}

/* ---- gates ---- */

static enum kfit_status gate_correct(struct judge_trial *t, struct kfit_gate_result *g,
                                     struct kfit_error *err)
{
    struct host *h = t->device;
    enum kfit_status st = kfit_correct(&h->session, &h->cases, KFIT_RUN_CANDIDATE, h->generic, true, g, err);
    t->r->deterministic = st == KFIT_OK && g->ok;
    return st;
}

/* Seeds from the OS, for this evaluation only. What is found goes no further than the code. */
static enum kfit_status gate_hidden(struct judge_trial *t, struct kfit_gate_result *g, struct kfit_error *err)
{
    struct host *h = t->device;
    struct kfit_cases cases;
    enum kfit_status st = kfit_cases_make(&cases, t->job->key, judge_os_random(), true, err);
    if (st != KFIT_OK)
        return st;
    st = kfit_correct(&h->session, &cases, KFIT_RUN_CANDIDATE, h->generic, false, g, err);
    if (g->code && g->code != KFIT_CODE_GENERIC_WRONG)
        g->code = KFIT_CODE_HIDDEN_WRONG;
    g->distribution[0] = g->at[0] = '\0';
    kfit_cases_finish(&cases);
    return st;
}

static enum kfit_status time_it(struct judge_trial *t, const struct kfit_case *inputs, bool brief, bool cold,
                                struct kfit_gate_result *g, struct kfit_error *err)
{
    struct host *h = t->device;
    struct kfit_fast_params p = {.session = &h->session,
                                 .inputs = inputs,
                                 .generic = h->generic,
                                 .has_incumbent = t->job->incumbent_image,
                                 .call_ns = h->call_ns,
                                 .timer_step_ns = h->timer_step_ns,
                                 .seed = judge_os_random(),
                                 .brief = brief,
                                 .cold = cold};
    struct kfit_fast_result f;
    enum kfit_status st = kfit_fast(&p, &f, err);
    if (st != KFIT_OK)
        return st;
    g->code = f.code;
    memcpy(g->at, f.at, sizeof g->at);
    g->ok = !f.code;
    memcpy(t->r->timings, f.timing, sizeof f.timing);
    t->r->timing_count = f.timings;
    t->r->noise = f.noise;
    return KFIT_OK;
}

static enum kfit_status gate_screen(struct judge_trial *t, struct kfit_gate_result *g, struct kfit_error *err)
{
    return time_it(t, &((struct host *)t->device)->cases.cases[0], true, t->job->cold, g, err);
}

static enum kfit_status gate_fast(struct judge_trial *t, struct kfit_gate_result *g, struct kfit_error *err)
{
    return time_it(t, &((struct host *)t->device)->cases.cases[0], false, true, g, err);
}

/* A winner once more: fresh process, fresh seeds; these numbers stay. */
static enum kfit_status gate_repeat(struct judge_trial *t, struct kfit_gate_result *g, struct kfit_error *err)
{
    struct host *h = t->device;
    struct kfit_cases cases = {0};
    kfit_session_finish(&h->session);
    enum kfit_status st = kfit_cases_make(&cases, t->job->key, judge_os_random(), true, err);
    if (st == KFIT_OK)
        st = start(h, t->job, err);
    if (st == KFIT_OK)
        st = kfit_correct(&h->session, &cases, KFIT_RUN_CANDIDATE, h->generic, true, g, err);
    bool wrong = g->code;
    if (st == KFIT_OK && !wrong)
        st = time_it(t, &cases.cases[0], false, true, g, err);
    judge_repeat_verdict(t, g, wrong);
    kfit_cases_finish(&cases);
    return st;
}

static const struct judge_gate gates[] = {
    {"correct", gate_correct, true, true},
    {"screen", gate_screen, true, false},
    {"hidden", gate_hidden, false, true},
    {"fast", gate_fast, false, true},
    {"bound", judge_gate_bound, false, true},
    {"repeat", gate_repeat, false, true},
    {0},
};

static enum kfit_status time_generic(void *device, const union kfit_key *key, double *ns,
                                     struct kfit_error *err)
{
    struct host *h = device;
    const struct kfit_judge_job job = {.key = key, .screen = true};
    enum kfit_status st = fixed_cases(h, key, err);
    if (st == KFIT_OK)
        st = start(h, &job, err);
    if (st == KFIT_OK)
        st = kfit_fast_generic(&h->session, &h->cases.cases[0], &h->generic, ns, err);
    kfit_session_finish(&h->session);
    return st;
}

static enum kfit_status bound(void *device, const union kfit_key *key, double *ns, struct kfit_error *err)
{
    struct host *h = device;
    if (!h->measured && !kfit_ceilings_measure(&h->ceilings))
        return kfit_fail(err, KFIT_E_NOMEM, "judge: no memory to measure this machine's bandwidth");
    h->measured = true;
    *ns = kfit_bound_ns(&h->ceilings, key);
    return KFIT_OK;
}

const struct judge_device judge_host = {
    .name = "host",
    .gates = gates,
    .open = host_open,
    .close = host_close,
    .check_key = check_key,
    .begin = begin,
    .end = end,
    .time_generic = time_generic,
    .bound = bound,
};
