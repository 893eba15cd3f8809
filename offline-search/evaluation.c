#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "evaluation.h"

double tuner_seconds(const struct tuner *t)
{
    return (kfit_now_ns() - t->start_ns) * 1e-9;
}

bool tuner_stopped(const struct tuner *t)
{
    return t->p->stop && *t->p->stop;
}

bool tuner_out_of_time(const struct tuner *t)
{
    return tuner_stopped(t) || (t->p->seconds > 0 && tuner_seconds(t) > t->p->seconds);
}

enum kfit_status tuner_interrupted(struct kfit_error *err)
{
    return kfit_fail(err, KFIT_E_INTERRUPTED,
                     "stopped; nothing evaluated is lost: run the same command again to go on");
}

void evaluation_identify(const struct tuner *t, const struct kfit_candidate *c, const union kfit_key *key,
                         const struct kfit_choice *choice, const char *operator_name, struct kfit_receipt *r)
{
    *r = (struct kfit_receipt){.key = *key, .env = *t->p->env, .made_unix_s = (int64_t)time(NULL)};
    kfit_candidate_digest(c, choice, r->digest);
    kfit_choice_format(c, choice, r->knobs, sizeof r->knobs);
    snprintf(r->name, sizeof r->name, "%s", kfit_candidate_name(c));
    snprintf(r->proposer, sizeof r->proposer, "%s", t->p->proposer ? t->p->proposer : "kfit");
    snprintf(r->model, sizeof r->model, "%s", t->p->model ? t->p->model : "");
    snprintf(r->operator_name, sizeof r->operator_name, "%s", operator_name);
    snprintf(r->campaign, sizeof r->campaign, "%s", t->p->campaign ? t->p->campaign : "default");
    if (r->model[0])
        snprintf(r->origin, sizeof r->origin, "llm:%s", r->model);
    else if (t->p->proposer)
        snprintf(r->origin, sizeof r->origin, "person:%s", r->proposer);
    else
        snprintf(r->origin, sizeof r->origin, "seed:%s", kfit_candidate_name(c));
}

void evaluation_gate_0(struct kfit_receipt *r, const struct kfit_built *built, bool ok)
{
    r->compile_ns = built->compile_ns;
    snprintf(r->isolation, sizeof r->isolation, "%s", built->isolation);
    if (!ok) {
        enum kfit_code code = kfit_code_parse(built->code);
        r->verdict = KFIT_VERDICT_REFUSED;
        r->code = code < KFIT_CODE_COUNT ? code : KFIT_CODE_STATIC_COMPILE;
        snprintf(r->detail, sizeof r->detail, "%.255s", built->detail);
    }
    r->gates[r->gate_count++] = (struct kfit_gate_result){.name = "static", .ok = ok, .code = r->code};
    r->plan = built->plan;
    r->data_oblivious = built->data_oblivious;
}

enum kfit_status evaluation_compile(const struct tuner *t, const struct kfit_candidate *c,
                                    const union kfit_key *key, const struct kfit_choice *choice,
                                    struct kfit_receipt *r, struct kfit_built *built, struct kfit_error *err)
{
    const struct kfit_compile_params params = {.candidate = c,
                                               .key = key,
                                               .choice = choice,
                                               .cc = t->p->cc,
                                               .isa = t->isa,
                                               .allow_no_isolation = t->p->allow_no_isolation};
    enum kfit_status s = kfit_compile(&params, built, err);
    if (s == KFIT_OK || s == KFIT_E_REFUSED)
        evaluation_gate_0(r, built, s == KFIT_OK);
    return s;
}

void evaluation_compiled(struct tuner *t, const struct kfit_built *built)
{
    t->result->compiled++;
    t->result->compile_seconds += built->compile_ns * 1e-9;
}

enum kfit_status evaluation_judge(struct tuner *t, const struct kfit_built *built,
                                  const struct kfit_record *incumbent, enum evaluation_depth depth,
                                  struct kfit_receipt *r, struct kfit_error *err)
{
    double start = kfit_now_ns();
    struct kfit_judge_job job = {.key = &r->key,
                                 .image = built->image,
                                 .image_bytes = built->image_bytes,
                                 .plan = &built->plan,
                                 .screen = depth != EVALUATION_FULL,
                                 .cold = depth == EVALUATION_LEADER};
    if (incumbent && incumbent->kind == KFIT_RECORD_WINNER) {
        job.incumbent_image = incumbent->image;
        job.incumbent_bytes = incumbent->image_bytes;
        job.incumbent_plan = &incumbent->plan;
    }
    enum kfit_status s = KFIT_E_CRASH;
    /* A runner that somebody killed, or that died on its own, says nothing about the candidate: once more. */
    for (unsigned tries = 0; tries < 2 && (s == KFIT_E_CRASH || s == KFIT_E_INTERRUPTED) && !tuner_stopped(t);
         tries++)
        s = kfit_judge_run(t->p->judge, &job, r, err);
    if (tuner_stopped(t) && s != KFIT_OK)
        s = tuner_interrupted(err);
    r->evaluate_ns = kfit_now_ns() - start;
    t->result->evaluate_seconds += r->evaluate_ns * 1e-9;
    t->result->again_seconds += r->again_ns * 1e-9;
    t->result->evaluations++;
    return s;
}

bool evaluation_found_slow(const struct kfit_receipt *r)
{
    return r->code == KFIT_CODE_SLOW_TIE || r->code == KFIT_CODE_SLOW_BEHIND || r->code == KFIT_CODE_SLOW_COLD;
}

/* ---- batches ---- */

static double fitness_of(const struct kfit_receipt *r)
{
    return r->verdict == KFIT_VERDICT_REFUSED || !r->timing_count ? 0 : r->timings[0].ratio;
}

/* A proposal on its way: compiled by a thread of its own, or answered by the store. */
struct work {
    const struct tuner *t;
    const struct population *pop;
    struct proposal proposal;
    struct kfit_receipt receipt;
    struct kfit_built built;
    struct kfit_error err;
    enum kfit_status status;
    pthread_t thread;
    bool threaded, known;
};

static void *compile_work(void *arg)
{
    struct work *w = arg;
    w->status = evaluation_compile(w->t, w->pop->candidates[w->proposal.candidate], w->pop->key,
                                   &w->proposal.choice, &w->receipt, &w->built, &w->err);
    return NULL;
}

/* Proposes up to n and starts their compilations; returns how many there are. */
static unsigned start_batch(struct tuner *t, struct population *pop, struct work *batch, unsigned n)
{
    unsigned made = 0;
    for (; made < n; made++) {
        struct work *w = &batch[made];
        *w = (struct work){.t = t, .pop = pop};
        if (!population_propose(pop, &w->proposal))
            break;
        evaluation_identify(t, pop->candidates[w->proposal.candidate], pop->key, &w->proposal.choice,
                            population_operator_name(w->proposal.op), &w->receipt);
        for (int i = 0; i < 2; i++)
            if (w->proposal.parents[i] >= 0)
                memcpy(w->receipt.parents[i], pop->all[w->proposal.parents[i]].digest,
                       sizeof w->receipt.parents[i]);
        struct kfit_receipt old;
        w->known = archive_find(t->p, pop->key, w->receipt.digest, &old);
        if (w->known)
            w->receipt = old;
        else if (n > 1)
            w->threaded = !pthread_create(&w->thread, NULL, compile_work, w);
        if (!w->known && !w->threaded)
            compile_work(w);
    }
    return made;
}

static void join(struct work *batch, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        if (batch[i].threaded)
            pthread_join(batch[i].thread, NULL);
}

static enum kfit_status finish_work(struct tuner *t, struct population *pop, struct work *w,
                                    struct kfit_error *err)
{
    enum kfit_status s = KFIT_OK;
    if (w->known) {
        t->result->resumed++;
    } else {
        evaluation_compiled(t, &w->built);
        s = w->status;
        if (s == KFIT_OK)
            s = evaluation_judge(t, &w->built, NULL, EVALUATION_SCREEN, &w->receipt, err);
        else if (s == KFIT_E_REFUSED)
            s = KFIT_OK;
        else if (err)
            *err = w->err;
        if (s == KFIT_OK)
            s = archive_note(t->p, &w->receipt, err);
    }
    return s == KFIT_OK
               ? population_add(pop, &w->proposal, fitness_of(&w->receipt), &w->receipt, &w->built, err)
               : s;
}

enum kfit_status evaluation_screen(struct tuner *t, struct population *pop, unsigned budget,
                                   void (*seen)(void *ctx, const struct population *pop, int best_before),
                                   void *ctx, struct kfit_error *err)
{
    struct work *batches = calloc(2 * BATCH_MAX, sizeof *batches), *now = batches,
                *next = batches + BATCH_MAX;
    enum kfit_status s = KFIT_OK;
    unsigned n = 0, n_next = 0, started = 0;
    if (!batches)
        return kfit_fail(err, KFIT_E_NOMEM, "search: out of memory");
    for (;;) {
        unsigned room = budget - started < t->batch ? budget - started : t->batch;
        bool go_on = s == KFIT_OK && !tuner_out_of_time(t);
        if (!n) {
            n = go_on ? start_batch(t, pop, now, room) : 0;
            started += n;
            room = budget - started < t->batch ? budget - started : t->batch;
        }
        if (!n)
            break;
        join(now, n);
        n_next = t->overlap && go_on ? start_batch(t, pop, next, room) : 0;
        started += n_next;
        for (unsigned i = 0; i < n; i++) {
            int before = pop->best;
            if (s == KFIT_OK && !tuner_stopped(t)) {
                s = finish_work(t, pop, &now[i], err);
                if (s == KFIT_OK)
                    seen(ctx, pop, before);
            }
            population_forget(pop, &now[i].proposal);
            kfit_built_finish(&now[i].built);
        }
        struct work *swap = now;
        now = next;
        next = swap;
        n = n_next;
    }
    free(batches);
    return s;
}
