/* The gates in order of cost, and what they mean for the verdict. The gates themselves are the device's. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"
#include "device_lock.h"
#include "judge_device.h"

static const struct judge_device *const devices[] = {&judge_host, &judge_cuda};

struct kfit_judge {
    struct kfit_judge_params params; /* points at the copies below */
    struct kfit_generic generic;
    struct kfit_env env;
    uint64_t seed;
    int lock;
    const struct judge_device *ops;
    void *device;
};

/* ---- what devices share ---- */

uint64_t judge_os_random(void)
{
    uint64_t v = 0;
    while (getrandom(&v, sizeof v, 0) < 0 && errno == EINTR)
        ;
    return v;
}

enum kfit_status judge_find_program(const char *given, const char *name, char out[512],
                                    struct kfit_error *err)
{
    static const char *const places[] = {"", "../libexec/kfit/", "../../offline-search/",
                                         "../offline-search/", "../../../offline-search/"};
    char dir[400];
    ssize_t n = readlink("/proc/self/exe", dir, sizeof dir - 1);
    dir[n > 0 ? n : 0] = '\0';
    char *slash = strrchr(dir, '/');
    if (slash)
        slash[1] = '\0';
    for (size_t i = 0; i < (given ? 1 : sizeof places / sizeof *places); i++) {
        snprintf(out, 512, "%s%s%s", given ? given : dir, given ? "" : places[i], given ? "" : name);
        if (!access(out, X_OK))
            return KFIT_OK;
    }
    return kfit_fail(err, KFIT_E_NOTFOUND, "%s is not at %s: %s; install kfit whole", name,
                     given ? given : "its place beside this program", strerror(errno));
}

enum kfit_status judge_gate_bound(struct judge_trial *t, struct kfit_gate_result *g, struct kfit_error *err)
{
    enum kfit_status st = t->ops->bound(t->device, t->job->key, &t->r->bound_ns, err);
    if (st != KFIT_OK)
        return st;
    double times = t->r->bound_ns / t->r->timings[0].ns_candidate;
    g->ok = times <= 10;
    g->code = times > 1 ? KFIT_CODE_SUSPECT_ROOFLINE : KFIT_CODE_NONE;
    if (times > 1)
        snprintf(g->at, sizeof g->at, "%.2f times faster than the measured bound", times);
    return KFIT_OK;
}

void judge_repeat_verdict(struct judge_trial *t, struct kfit_gate_result *g, bool wrong)
{
    if (g->code)
        snprintf(t->r->detail, sizeof t->r->detail, "%s the second time: %s",
                 wrong ? "wrong" : kfit_code_str(g->code), g->at);
    if (g->code && g->code != KFIT_CODE_GENERIC_WRONG)
        g->code = KFIT_CODE_REPEAT_FAILED;
    g->distribution[0] = '\0';
    t->r->verdict = wrong ? KFIT_VERDICT_REFUSED : KFIT_VERDICT_KEPT;
}

/* ---- create, destroy ---- */

static const struct judge_device *device_of(const char *name)
{
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++)
        if (!strcmp(devices[i]->name, name))
            return devices[i];
    return NULL;
}

enum kfit_status kfit_judge_device_id(const char *device, const char *runner, char id[48], struct kfit_error *err)
{
    const struct judge_device *d = device_of(device);
    if (!d)
        return kfit_fail(err, KFIT_E_ARG, "judge: there is no device \"%.40s\"", device);
    if (d->identify)
        return d->identify(runner, id, err);
    snprintf(id, 48, "%s", d->name);
    return KFIT_OK;
}

void kfit_judge_keep(struct kfit_judge *j, struct kfit_store *store)
{
    if (j->ops->keep)
        j->ops->keep(j->device, store);
}

enum kfit_status kfit_judge_create(const struct kfit_judge_params *p, struct kfit_judge **out,
                                   struct kfit_error *err)
{
    char name[16], id[48];
    *out = NULL;
    if (!p->generic || !p->generic->path[0] || !p->env)
        return kfit_fail(err, KFIT_E_ARG, "judge: needs the program's BLAS library and its environment");
    struct kfit_judge *j = calloc(1, sizeof *j);
    if (!j)
        return kfit_fail(err, KFIT_E_NOMEM, "judge: out of memory");
    j->generic = *p->generic;
    j->env = *p->env;
    j->params = *p;
    j->params.generic = &j->generic;
    j->params.env = &j->env;
    j->seed = p->seed ? p->seed : judge_os_random();
    j->lock = -1;
    if (!kfit_env_get(j->env.hard, "device", name, sizeof name))
        strcpy(name, "host");
    j->ops = device_of(name);
    enum kfit_status st = KFIT_OK;
    if (p->device_id)
        snprintf(id, sizeof id, "%s", p->device_id);
    else
        st = kfit_judge_device_id(name, p->runner, id, err);
    if (st == KFIT_OK)
        st = kfit_device_lock(id, p->lock_dir, &j->lock, err);
    if (st == KFIT_OK)
        st = j->ops->open(&j->params, j->seed, &j->device, err);
    if (st != KFIT_OK) {
        kfit_judge_destroy(j);
        return st;
    }
    *out = j;
    return KFIT_OK;
}

void kfit_judge_destroy(struct kfit_judge *j)
{
    if (!j)
        return;
    if (j->device)
        j->ops->close(j->device);
    if (j->lock >= 0)
        kfit_device_unlock(j->lock);
    free(j);
}

/* ---- verdict ---- */

static enum kfit_verdict verdict_of(const struct kfit_receipt *r, enum kfit_code code)
{
    switch (code) {
    case KFIT_CODE_SLOW_TIE:
    case KFIT_CODE_SLOW_BEHIND:
    case KFIT_CODE_SLOW_COLD:
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

/* ---- one evaluation ---- */

enum kfit_status kfit_judge_takes(const struct kfit_judge *j, const union kfit_key *key,
                                  struct kfit_error *err)
{
    enum kfit_status st = kfit_key_check(key, err);
    return st == KFIT_OK ? j->ops->check_key(key, err) : st;
}

enum kfit_status kfit_judge_run(struct kfit_judge *j, const struct kfit_judge_job *job,
                                struct kfit_receipt *r, struct kfit_error *err)
{
    struct judge_trial t = {.ops = j->ops, .device = j->device, .job = job, .r = r};
    double begun = kfit_now_ns();
    enum kfit_status st = kfit_judge_takes(j, job->key, err);
    if (st == KFIT_OK)
        st = kfit_plan_check(job->plan, job->image_bytes, err);
    if (st == KFIT_OK && job->incumbent_image)
        st = kfit_plan_check(job->incumbent_plan, job->incumbent_bytes, err);
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

    st = j->ops->begin(&t, err);
    kfit_logf(&j->params.log, KFIT_LOG_DEBUG, "judge: started in %.0f ms", (kfit_now_ns() - begun) / 1e6);
    bool stopped = false, again = false;
    r->again_ns = 0;
    for (const struct judge_gate *gate = j->ops->gates; gate->name && st == KFIT_OK && !stopped; gate++) {
        struct kfit_gate_result *g = &r->gates[r->gate_count];
        if (!(job->screen ? gate->screen : gate->full))
            continue;
        memset(g, 0, sizeof *g);
        snprintf(g->name, sizeof g->name, "%s", gate->name);
        double gate_begun = kfit_now_ns();
        again |= !strcmp(gate->name, "repeat"); /* and what comes after it */
        st = gate->run(&t, g, err);
        r->again_ns += again ? kfit_now_ns() - gate_begun : 0;
        kfit_logf(&j->params.log, KFIT_LOG_DEBUG, "judge: gate %s: %s%s in %.0f ms", g->name,
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
    if (st == KFIT_OK && !job->screen && r->verdict == KFIT_VERDICT_KEPT && !(r->bound_ns > 0))
        st = j->ops->bound(j->device, job->key, &r->bound_ns, err); /* how far the generic is from it */
    if (st == KFIT_OK && !stopped)
        r->verdict = job->screen ? KFIT_VERDICT_KEPT : KFIT_VERDICT_PROMOTED;
    j->ops->end(&t);
    r->evaluate_ns = kfit_now_ns() - begun;
    return st;
}

enum kfit_status kfit_judge_time_generic(struct kfit_judge *j, const union kfit_key *key, double *ns,
                                         struct kfit_error *err)
{
    enum kfit_status st = kfit_judge_takes(j, key, err);
    return st == KFIT_OK ? j->ops->time_generic(j->device, key, ns, err) : st;
}

enum kfit_status kfit_judge_bound(struct kfit_judge *j, const union kfit_key *key, double *ns,
                                  struct kfit_error *err)
{
    enum kfit_status st = kfit_judge_takes(j, key, err);
    return st == KFIT_OK ? j->ops->bound(j->device, key, ns, err) : st;
}
