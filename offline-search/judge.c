/* The gates in order of cost, and what they mean for the verdict. Each gate is a row of a table. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "bound.h"
#include "device_lock.h"
#include "fast.h"
#include "kfit/judge.h"

#define CALL_NS 30.0 /* what dispatching a host call costs, key included */

struct kfit_judge {
    char runner[512];
    struct kfit_generic generic;
    struct kfit_env env;
    struct kfit_log log;
    uint64_t seed;
    double call_ns, timer_step_ns;
    int threads, lock;
    struct kfit_cases cases; /* gate 1's, of the key last judged */
    struct kfit_ceilings ceilings;
    bool measured;
};

/* One evaluation in flight. */
struct trial {
    struct kfit_judge *j;
    const struct kfit_judge_job *job;
    struct kfit_receipt *r;
    struct kfit_session session;
    enum kfit_who generic;
};

static uint64_t os_random(void)
{
    uint64_t v = 0;
    while (getrandom(&v, sizeof v, 0) < 0 && errno == EINTR)
        ;
    return v;
}

/* ---- create, destroy ---- */

static enum kfit_status find_runner(const char *given, char out[512], struct kfit_error *err)
{
    /* beside the program; in an installed tree; in a build tree */
    static const char *const places[] = {"kfit-runner", "../libexec/kfit/kfit-runner",
                                         "../../offline-search/kfit-runner"};
    char dir[400];
    ssize_t n = readlink("/proc/self/exe", dir, sizeof dir - 1);
    dir[n > 0 ? n : 0] = '\0';
    char *slash = strrchr(dir, '/');
    if (slash)
        slash[1] = '\0';
    for (size_t i = 0; i < (given ? 1 : sizeof places / sizeof *places); i++) {
        snprintf(out, 512, "%s%s", given ? "" : dir, given ? given : places[i]);
        if (!access(out, X_OK))
            return KFIT_OK;
    }
    return kfit_fail(err, KFIT_E_NOTFOUND, "judge: no runner at %s: %s; kfit-runner belongs beside kfit", out,
                     strerror(errno));
}

enum kfit_status kfit_judge_create(const struct kfit_judge_params *p, struct kfit_judge **out,
                                   struct kfit_error *err)
{
    char threads[16];
    *out = NULL;
    if (!p->generic || !p->generic->path[0] || !p->env)
        return kfit_fail(err, KFIT_E_ARG, "judge: needs the program's BLAS library and its environment");
    struct kfit_judge *j = calloc(1, sizeof *j);
    if (!j)
        return kfit_fail(err, KFIT_E_NOMEM, "judge: out of memory");
    j->generic = *p->generic;
    j->env = *p->env;
    j->log = p->log;
    j->seed = p->seed ? p->seed : os_random();
    j->call_ns = p->call_ns > 0 ? p->call_ns : CALL_NS;
    j->timer_step_ns = kfit_timer_step_ns();
    if (kfit_env_get(j->env.hard, "threads", threads, sizeof threads))
        j->threads = atoi(threads);
    enum kfit_status st = find_runner(p->runner, j->runner, err);
    if (st == KFIT_OK)
        st = kfit_device_lock("host", p->lock_dir, &j->lock, err);
    if (st != KFIT_OK) {
        free(j);
        return st;
    }
    kfit_logf(&j->log, KFIT_LOG_INFO, "judge: generic %s with %d threads, seed %llu", j->generic.path,
              j->threads, (unsigned long long)j->seed);
    *out = j;
    return KFIT_OK;
}

void kfit_judge_destroy(struct kfit_judge *j)
{
    if (!j)
        return;
    kfit_cases_finish(&j->cases);
    kfit_device_unlock(j->lock);
    free(j);
}

/* ---- shared by gates ---- */

static enum kfit_status check_key(const union kfit_key *key, struct kfit_error *err)
{
    enum kfit_status st = kfit_key_check(key, err);
    const struct kfit_gemm_key *g = &key->gemm;
    if (st != KFIT_OK)
        return st;
    if (g->op != KFIT_OP_GEMM || g->len != KFIT_GEMM_KEY_BYTES || g->type_a != g->type_c ||
        g->type_b != g->type_c || g->type_acc != g->type_c ||
        (g->type_c != KFIT_F32 && g->type_c != KFIT_F64) || g->alpha == KFIT_SCALAR_OTHER ||
        g->beta == KFIT_SCALAR_OTHER)
        return kfit_fail(err, KFIT_E_UNSUPPORTED,
                         "judge: the host device judges plain gemm in f32 or f64 with alpha and beta 0 or 1");
    return KFIT_OK;
}

static enum kfit_status fixed_cases(struct kfit_judge *j, const union kfit_key *key, struct kfit_error *err)
{
    if (j->cases.count && kfit_key_equal(&j->cases.key, key))
        return KFIT_OK;
    kfit_cases_finish(&j->cases);
    return kfit_cases_make(&j->cases, key, j->seed ^ kfit_key_hash(key), false, err);
}

static enum kfit_status start(struct trial *t, struct kfit_error *err)
{
    const struct kfit_judge_job *job = t->job;
    struct kfit_session_params p = {.runner = t->j->runner,
                                    .generic = &t->j->generic,
                                    .threads = t->j->threads,
                                    .key = job->key,
                                    .image = {job->image, job->incumbent_image},
                                    .image_bytes = {job->image_bytes, job->incumbent_bytes},
                                    .plan = {job->plan, job->incumbent_plan},
                                    .cold_bytes = job->screen ? 0 : kfit_cold_bytes()};
    enum kfit_status st = kfit_session_start(&t->session, &p, err);
    if (st == KFIT_OK)
        st = kfit_fast_generic(&t->session, &t->j->cases.cases[0], &t->generic, NULL, err);
    return st;
}

/* ---- gates ---- */

static enum kfit_status gate_correct(struct trial *t, struct kfit_gate_result *g, struct kfit_error *err)
{
    enum kfit_status st =
        kfit_correct(&t->session, &t->j->cases, KFIT_RUN_CANDIDATE, t->generic, true, g, err);
    t->r->deterministic = st == KFIT_OK && g->ok;
    return st;
}

/* Seeds from the OS, for this evaluation only. What is found goes no further than the code. */
static enum kfit_status gate_hidden(struct trial *t, struct kfit_gate_result *g, struct kfit_error *err)
{
    struct kfit_cases cases;
    enum kfit_status st = kfit_cases_make(&cases, t->job->key, os_random(), true, err);
    if (st != KFIT_OK)
        return st;
    st = kfit_correct(&t->session, &cases, KFIT_RUN_CANDIDATE, t->generic, false, g, err);
    if (g->code && g->code != KFIT_CODE_GENERIC_WRONG)
        g->code = KFIT_CODE_HIDDEN_WRONG;
    g->distribution[0] = g->at[0] = '\0';
    kfit_cases_finish(&cases);
    return st;
}

static enum kfit_status time_it(struct trial *t, const struct kfit_case *inputs, bool brief, bool cold,
                                struct kfit_gate_result *g, struct kfit_error *err)
{
    struct kfit_fast_params p = {.session = &t->session,
                                 .inputs = inputs,
                                 .generic = t->generic,
                                 .has_incumbent = t->job->incumbent_image,
                                 .call_ns = t->j->call_ns,
                                 .timer_step_ns = t->j->timer_step_ns,
                                 .seed = os_random(),
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

static enum kfit_status gate_screen(struct trial *t, struct kfit_gate_result *g, struct kfit_error *err)
{
    return time_it(t, &t->j->cases.cases[0], true, false, g, err);
}

static enum kfit_status gate_fast(struct trial *t, struct kfit_gate_result *g, struct kfit_error *err)
{
    return time_it(t, &t->j->cases.cases[0], false, false, g, err);
}

/* Faster than this machine can be is a reason to look, then to disbelieve. */
static enum kfit_status gate_bound(struct trial *t, struct kfit_gate_result *g, struct kfit_error *err)
{
    enum kfit_status st = kfit_judge_bound(t->j, t->job->key, &t->r->bound_ns, err);
    if (st != KFIT_OK)
        return st;
    double times = t->r->bound_ns / t->r->timings[0].ns_candidate;
    g->ok = times <= 10;
    g->code = times > 1 ? KFIT_CODE_SUSPECT_ROOFLINE : KFIT_CODE_NONE;
    if (times > 1)
        snprintf(g->at, sizeof g->at, "%.2f times faster than the measured bound", times);
    return KFIT_OK;
}

/* A winner once more: fresh process, fresh seeds; these numbers stay. */
static enum kfit_status gate_repeat(struct trial *t, struct kfit_gate_result *g, struct kfit_error *err)
{
    struct kfit_cases cases = {0};
    kfit_session_finish(&t->session);
    enum kfit_status st = kfit_cases_make(&cases, t->job->key, os_random(), true, err);
    if (st == KFIT_OK)
        st = start(t, err);
    if (st == KFIT_OK)
        st = kfit_correct(&t->session, &cases, KFIT_RUN_CANDIDATE, t->generic, true, g, err);
    bool wrong = g->code;
    if (st == KFIT_OK && !wrong)
        st = time_it(t, &cases.cases[0], false, true, g, err);
    if (g->code)
        snprintf(t->r->detail, sizeof t->r->detail, "%s the second time: %s",
                 wrong ? "wrong" : kfit_code_str(g->code), g->at);
    if (g->code && g->code != KFIT_CODE_GENERIC_WRONG)
        g->code = KFIT_CODE_REPEAT_FAILED;
    g->distribution[0] = '\0';
    t->r->verdict = wrong ? KFIT_VERDICT_REFUSED : KFIT_VERDICT_KEPT;
    kfit_cases_finish(&cases);
    return st;
}

static const struct gate {
    const char *name;
    enum kfit_status (*run)(struct trial *, struct kfit_gate_result *, struct kfit_error *);
    bool screen, full; /* part of a screening, of a full evaluation */
} gates[] = {
    {"correct", gate_correct, true, true}, {"screen", gate_screen, true, false},
    {"hidden", gate_hidden, false, true},  {"fast", gate_fast, false, true},
    {"bound", gate_bound, false, true},    {"repeat", gate_repeat, false, true},
};

/* ---- verdict ---- */

static enum kfit_verdict verdict_of(const struct kfit_receipt *r, enum kfit_code code)
{
    switch (code) {
    case KFIT_CODE_SLOW_TIE:
    case KFIT_CODE_SLOW_BEHIND:
    case KFIT_CODE_TIMING_NOISE:
        return KFIT_VERDICT_KEPT;
    case KFIT_CODE_REPEAT_FAILED: /* said by the gate: wrong, or only not faster again */
        return r->verdict;
    case KFIT_CODE_SUSPECT_ROOFLINE:
        return r->bound_ns / r->timings[0].ns_candidate > 100 ? KFIT_VERDICT_REFUSED : KFIT_VERDICT_REVIEW;
    default:
        return KFIT_VERDICT_REFUSED;
    }
}

enum kfit_status kfit_judge_run(struct kfit_judge *j, const struct kfit_judge_job *job,
                                struct kfit_receipt *r, struct kfit_error *err)
{
    struct trial t = {.j = j, .job = job, .r = r};
    double begun = kfit_now_ns();
    enum kfit_status st = check_key(job->key, err);
    if (st == KFIT_OK)
        st = kfit_plan_check(job->plan, job->image_bytes, err);
    if (st == KFIT_OK && job->incumbent_image)
        st = kfit_plan_check(job->incumbent_plan, job->incumbent_bytes, err);
    if (st == KFIT_OK)
        st = fixed_cases(j, job->key, err);
    if (st != KFIT_OK)
        return st;

    r->key = *job->key;
    r->plan = *job->plan;
    r->env = j->env;
    r->seed = j->seed;
    r->made_unix_s = time(NULL);
    r->verdict = KFIT_VERDICT_KEPT;
    r->code = KFIT_CODE_NONE;
    r->timing_count = 0;
    r->gate_count = r->gate_count && !strcmp(r->gates[0].name, "static") ? 1 : 0;

    st = start(&t, err);
    kfit_logf(&j->log, KFIT_LOG_DEBUG, "judge: started in %.0f ms", (kfit_now_ns() - begun) / 1e6);
    bool stopped = false;
    for (unsigned i = 0; i < sizeof gates / sizeof *gates && st == KFIT_OK && !stopped; i++) {
        struct kfit_gate_result *g = &r->gates[r->gate_count];
        if (!(job->screen ? gates[i].screen : gates[i].full))
            continue;
        memset(g, 0, sizeof *g);
        snprintf(g->name, sizeof g->name, "%s", gates[i].name);
        double gate_begun = kfit_now_ns();
        st = gates[i].run(&t, g, err);
        kfit_logf(&j->log, KFIT_LOG_DEBUG, "judge: gate %s: %s%s in %.0f ms", g->name,
                  g->ok ? "passed" : "not passed ", kfit_code_str(g->code),
                  (kfit_now_ns() - gate_begun) / 1e6);
        r->gate_count += st == KFIT_OK;
        if (st == KFIT_OK && !g->ok) {
            stopped = true;
            r->code = g->code;
            r->verdict = verdict_of(r, g->code);
            if (!r->detail[0] && g->code != KFIT_CODE_HIDDEN_WRONG)
                snprintf(r->detail, sizeof r->detail, "%s%s%s", g->distribution,
                         g->distribution[0] ? ": " : "", g->at);
        }
    }
    if (st == KFIT_OK && !stopped)
        r->verdict = job->screen ? KFIT_VERDICT_KEPT : KFIT_VERDICT_PROMOTED;
    kfit_session_finish(&t.session);
    r->evaluate_ns = kfit_now_ns() - begun;
    return st;
}

enum kfit_status kfit_judge_time_generic(struct kfit_judge *j, const union kfit_key *key, double *ns,
                                         struct kfit_error *err)
{
    const struct kfit_judge_job job = {.key = key, .screen = true};
    struct trial t = {.j = j, .job = &job};
    enum kfit_status st = check_key(key, err);
    if (st == KFIT_OK)
        st = fixed_cases(j, key, err);
    if (st == KFIT_OK)
        st = start(&t, err);
    if (st == KFIT_OK)
        st = kfit_fast_generic(&t.session, &j->cases.cases[0], &t.generic, ns, err);
    kfit_session_finish(&t.session);
    return st;
}

enum kfit_status kfit_judge_bound(struct kfit_judge *j, const union kfit_key *key, double *ns,
                                  struct kfit_error *err)
{
    enum kfit_status st = check_key(key, err);
    if (st != KFIT_OK)
        return st;
    if (!j->measured && !kfit_ceilings_measure(&j->ceilings))
        return kfit_fail(err, KFIT_E_NOMEM, "judge: no memory to measure this machine's bandwidth");
    j->measured = true;
    *ns = kfit_bound_ns(&j->ceilings, key);
    return KFIT_OK;
}
