/* The search over each target: propose, compile, screen; then the full judgement of the best few. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "evaluation.h"
#include "kfit/hash.h"

enum {
    EVALUATIONS_DEFAULT = 24,
    LEADERS = 4,   /* timed again before the finals */
    FINALISTS = 3, /* how many of the best are judged in full before the generic is kept */
    TRANSPLANTS_MAX = 3,
};

/* ---- candidates ---- */

static enum kfit_status add_candidate(struct tuner *t, const char *source, size_t bytes,
                                      struct kfit_error *err)
{
    struct kfit_candidate *c;
    if (t->candidate_count == CANDIDATES_MAX)
        return kfit_fail(err, KFIT_E_FULL, "search: more than %d candidate sources", CANDIDATES_MAX);
    enum kfit_status s = kfit_candidate_parse(source, bytes, &c, err);
    if (s != KFIT_OK)
        return s;
    if (strcmp(kfit_candidate_device(c), t->device))
        kfit_candidate_destroy(c);
    else
        t->candidates[t->candidate_count++] = c;
    return KFIT_OK;
}

static enum kfit_status tuner_init(struct tuner *t, const struct kfit_tune_params *p,
                                   struct kfit_tune_result *result, struct kfit_error *err)
{
    *t = (struct tuner){.p = p, .result = result, .seed = p->seed, .start_ns = kfit_now_ns()};
    *result = (struct kfit_tune_result){0};
    if (!t->seed && getrandom(&t->seed, sizeof t->seed, 0) != sizeof t->seed)
        return kfit_fail(err, KFIT_E_IO, "search: no random seed from the system");
    if (!kfit_env_get(p->env->hard, "device", t->device, sizeof t->device) ||
        !kfit_env_get(p->env->hard, "isa", t->isa, sizeof t->isa))
        return kfit_fail(err, KFIT_E_ARG, "search: the environment names no device: %s", p->env->hard);
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    t->overlap = !strcmp(t->device, "cuda");
    t->batch = cores < 2 ? 1 : cores > BATCH_MAX ? BATCH_MAX : (unsigned)cores;
    (strcmp(t->device, "cuda") ? kfit_host_limits : kfit_cuda_limits)(t->isa, &t->limits);
    for (unsigned i = 0; i < kfit_seed_count; i++) {
        enum kfit_status s = add_candidate(t, kfit_seeds[i].source, kfit_seeds[i].bytes, err);
        if (s != KFIT_OK)
            return s;
    }
    for (const char *const *e = p->extra_sources; e && *e; e++) {
        enum kfit_status s = add_candidate(t, *e, strlen(*e), err);
        if (s != KFIT_OK)
            return s;
    }
    return KFIT_OK;
}

static void tuner_finish(struct tuner *t)
{
    for (unsigned i = 0; i < t->candidate_count; i++)
        kfit_candidate_destroy(t->candidates[i]);
}

/* ---- one target ---- */

struct neighbours {
    struct tuner *t;
    const union kfit_key *key;
    struct transplant found[TRANSPLANTS_MAX];
    double distance[TRANSPLANTS_MAX];
    unsigned count;
};

static double key_distance(const struct kfit_gemm_key *a, const struct kfit_gemm_key *b)
{
    if (a->type_a != b->type_a || a->ta != b->ta || a->tb != b->tb)
        return INFINITY;
    return fabs(log2((double)a->m / b->m)) * 2 + fabs(log2((double)a->n / b->n)) +
           fabs(log2((double)a->k / b->k));
}

/* Keeps the nearest few winners whose template we have. */
static int note_neighbour(void *ctx, const struct kfit_receipt *r)
{
    struct neighbours *n = ctx;
    double d = key_distance(&n->key->gemm, &r->key.gemm);
    struct transplant found = {0};
    if (!isfinite(d) || kfit_key_equal(n->key, &r->key))
        return 0;
    for (; found.candidate < n->t->candidate_count; found.candidate++)
        if (!strcmp(kfit_candidate_name(n->t->candidates[found.candidate]), r->name))
            break;
    if (found.candidate == n->t->candidate_count ||
        kfit_choice_parse(n->t->candidates[found.candidate], r->knobs, &found.choice, NULL) != KFIT_OK)
        return 0;
    unsigned at = n->count < TRANSPLANTS_MAX ? n->count++ : TRANSPLANTS_MAX;
    for (; at && n->distance[at - 1] > d; at--)
        if (at < TRANSPLANTS_MAX) {
            n->found[at] = n->found[at - 1];
            n->distance[at] = n->distance[at - 1];
        }
    if (at < TRANSPLANTS_MAX) {
        n->found[at] = found;
        n->distance[at] = d;
    }
    return 0;
}

static void report(struct tuner *t, enum kfit_tune_event event, size_t target, unsigned evaluation,
                   unsigned budget, const struct kfit_receipt *last, const struct kfit_receipt *best)
{
    if (!t->p->progress)
        return;
    const struct kfit_tune_progress p = {
        event, target, t->p->count, evaluation, budget, &t->p->targets[target], last, best};
    t->p->progress(t->p->progress_ctx, &p);
}

struct seen {
    struct tuner *t;
    size_t target;
    unsigned budget;
};

static void screened(void *ctx, const struct population *pop, int best_before)
{
    struct seen *s = ctx;
    report(s->t, pop->best != best_before ? KFIT_TUNE_BEST : KFIT_TUNE_EVALUATED, s->target, pop->count,
           s->budget, &pop->all[pop->count - 1].receipt,
           pop->best >= 0 ? &pop->all[pop->best].receipt : NULL);
}

/* The fittest of those that `taken` does not mark; -1: none. */
static int fittest(const struct population *pop, const bool *taken)
{
    int best = -1;
    for (unsigned i = 0; i < pop->count; i++)
        if (!taken[i] && pop->all[i].fitness > 0 &&
            (best < 0 || pop->all[i].fitness > pop->all[best].fitness))
            best = (int)i;
    return best;
}

/* Judges one of the population (compiled anew if its image is gone), whole or as a screening, into a receipt of its own. */
static enum kfit_status judge_individual(struct tuner *t, struct population *pop, struct individual *in,
                                         const struct kfit_record *incumbent, enum evaluation_depth depth,
                                         struct kfit_receipt *r, struct kfit_error *err)
{
    const struct kfit_candidate *c = pop->candidates[in->candidate];
    evaluation_identify(t, c, pop->key, &in->choice, population_operator_name(in->op), r);
    memcpy(r->parents, in->receipt.parents, sizeof r->parents);
    enum kfit_status s = KFIT_OK;
    if (in->built.image) { /* still there from its screening: the same image is judged again */
        evaluation_gate_0(r, &in->built, true);
    } else {
        s = evaluation_compile(t, c, pop->key, &in->choice, r, &in->built, err);
        evaluation_compiled(t, &in->built);
    }
    if (s == KFIT_OK)
        s = evaluation_judge(t, &in->built, incumbent, depth, r, err);
    return s == KFIT_E_REFUSED ? KFIT_OK : s;
}

/* Warm decides who is best; what is behind with cold caches would not be promoted, however far ahead it is warm. */
static double leader_fitness(const struct kfit_receipt *r)
{
    double fitness = r->timing_count ? r->timings[0].ratio : 0;
    for (unsigned i = 1; i < r->timing_count; i++)
        if (!strcmp(r->timings[i].mode, "cold") && r->timings[i].ratio < 1 && r->timings[i].ratio < fitness)
            fitness = r->timings[i].ratio;
    return fitness;
}

/* The best of many first impressions is mostly the luckiest: the leaders are timed again, the lower
 * of two counts. */
static enum kfit_status time_leaders_again(struct tuner *t, struct population *pop, struct kfit_error *err)
{
    bool *taken = calloc(pop->count + 1, sizeof *taken);
    enum kfit_status s = taken ? KFIT_OK : kfit_fail(err, KFIT_E_NOMEM, "search: out of memory");
    for (unsigned n = 0; s == KFIT_OK && n < LEADERS && !tuner_stopped(t); n++) {
        int i = fittest(pop, taken);
        if (i < 0)
            break;
        struct kfit_receipt r;
        taken[i] = true;
        s = judge_individual(t, pop, &pop->all[i], NULL, EVALUATION_LEADER, &r, err);
        double again = s == KFIT_OK && r.verdict != KFIT_VERDICT_REFUSED ? leader_fitness(&r) : 0;
        if (again < pop->all[i].fitness)
            pop->all[i].fitness = again;
    }
    free(taken);
    return s;
}

/* Judges the best few in full, best first, until one is promoted. The outcome's receipt is
 * left in *outcome. */
static enum kfit_status finals(struct tuner *t, struct population *pop, const struct kfit_record *incumbent,
                               struct kfit_receipt *outcome, int *winner, struct kfit_error *err)
{
    bool *judged = calloc(pop->count + 1, sizeof *judged);
    enum kfit_status s =
        judged ? time_leaders_again(t, pop, err) : kfit_fail(err, KFIT_E_NOMEM, "search: out of memory");
    unsigned n = 0;
    *winner = -1;
    while (s == KFIT_OK && n < FINALISTS && *winner < 0 && !(n && tuner_stopped(t))) {
        int i = fittest(pop, judged);
        /* One honest full judgement is always made; more only where there is something to win. */
        if (i < 0 || (n && pop->all[i].fitness < 1))
            break;
        struct kfit_receipt r;
        judged[i] = true;
        s = judge_individual(t, pop, &pop->all[i], incumbent, EVALUATION_FULL, &r, err);
        if (s == KFIT_OK)
            s = archive_note(t->p, &r, err);
        if (s != KFIT_OK)
            break;
        if (!n++ || r.verdict == KFIT_VERDICT_PROMOTED ||
            (outcome->verdict == KFIT_VERDICT_REFUSED && r.verdict != KFIT_VERDICT_REFUSED))
            *outcome = r;
        if (r.verdict == KFIT_VERDICT_PROMOTED)
            *winner = i;
    }
    free(judged);
    return s == KFIT_OK && !n ? KFIT_E_NOTFOUND : s;
}

/* The outcome of an earlier campaign stands. */
static void resume_target(struct tuner *t, size_t index, unsigned budget, const struct kfit_record *staged)
{
    struct kfit_receipt r;
    bool known = archive_find(t->p, &staged->key, staged->source_digest, &r);
    t->result->resumed++;
    *(staged->kind == KFIT_RECORD_WINNER ? &t->result->promoted : &t->result->kept) += 1;
    report(t, KFIT_TUNE_DONE, index, budget, budget, known ? &r : NULL, known ? &r : NULL);
}

static enum kfit_status tune_target(struct tuner *t, size_t index, struct kfit_error *err)
{
    const struct kfit_target *target = &t->p->targets[index];
    unsigned budget = t->p->evaluations ? t->p->evaluations : EVALUATIONS_DEFAULT;
    struct kfit_record incumbent;
    void *incumbent_bytes = NULL;
    bool staged = archive_staged(t->p, &target->key, &incumbent, &incumbent_bytes);
    if (staged && archive_count(t->p, &target->key) >= budget) { /* an earlier campaign finished this one */
        resume_target(t, index, budget, &incumbent);
        free(incumbent_bytes);
        return KFIT_OK;
    }

    struct neighbours near = {.t = t, .key = &target->key};
    archive_each_winner(t->p, note_neighbour, &near, NULL);
    struct population pop = {
        .key = &target->key,
        .candidates = t->candidates,
        .candidate_count = t->candidate_count,
        .limits = &t->limits,
        .transplants = near.found,
        .transplant_count = near.count,
        .rng = t->seed ^ kfit_key_hash(&target->key),
        .best = -1,
    };
    report(t, KFIT_TUNE_TARGET, index, 0, budget, NULL, NULL);
    unsigned evaluations = t->result->evaluations;
    struct seen seen = {t, index, budget};
    enum kfit_status s = evaluation_screen(t, &pop, budget, screened, &seen, err);
    if (s == KFIT_OK && tuner_stopped(t)) /* nothing is concluded from half a search; it goes on next time */
        s = tuner_interrupted(err);

    struct kfit_receipt outcome;
    int winner = -1;
    if (s == KFIT_OK && staged && t->result->evaluations == evaluations) { /* nothing new to judge */
        resume_target(t, index, budget, &incumbent);
        goto out;
    }
    if (s == KFIT_OK)
        s = finals(t, &pop, staged ? &incumbent : NULL, &outcome, &winner, err);
    if (s == KFIT_E_NOTFOUND) { /* no candidate survived gate 1 */
        t->result->refused_targets++;
        report(t, KFIT_TUNE_DONE, index, pop.count, budget, NULL, NULL);
        s = KFIT_OK;
    } else if (s == KFIT_OK) {
        bool won = winner >= 0, keeps = staged && incumbent.kind == KFIT_RECORD_WINNER;
        /* Without a finding the next campaign tries again. A present winner stays unless it was beaten. */
        bool finding = won || evaluation_found_slow(&outcome);
        if (won || (finding && !keeps)) {
            const struct individual *in = won ? &pop.all[winner] : NULL;
            size_t bytes = 0;
            const char *source = "";
            for (unsigned i = 0; i < pop.count; i++)
                if (!memcmp(pop.all[i].digest, outcome.digest, sizeof outcome.digest))
                    source = kfit_candidate_source(pop.candidates[pop.all[i].candidate], &bytes);
            s = archive_stage(t->p, &outcome, won ? in->built.image : NULL, won ? in->built.image_bytes : 0,
                              source, bytes, err);
        }
        *(won || keeps ? &t->result->promoted : &t->result->kept) += 1;
        report(t, KFIT_TUNE_DONE, index, pop.count, budget, &outcome, &outcome);
    }
out:
    population_finish(&pop);
    free(incumbent_bytes);
    return s;
}

enum kfit_status kfit_tune(const struct kfit_tune_params *params, struct kfit_tune_result *result,
                           struct kfit_error *err)
{
    struct tuner t;
    enum kfit_status s = tuner_init(&t, params, result, err);
    for (size_t i = 0; s == KFIT_OK && i < params->count && !tuner_out_of_time(&t); i++) {
        s = tune_target(&t, i, err);
        if (s == KFIT_E_REFUSED) { /* this key cannot be judged (its generic is wrong); the others can */
            kfit_logf(&params->log, KFIT_LOG_WARN, "%s", err ? err->text : "a target was refused");
            result->refused_targets++;
            s = KFIT_OK;
        }
    }
    if (s == KFIT_OK && tuner_stopped(&t))
        s = tuner_interrupted(err);
    result->seconds = tuner_seconds(&t);
    tuner_finish(&t);
    return s;
}

enum kfit_status kfit_eval(const struct kfit_tune_params *params, const union kfit_key *key,
                           const char *source, size_t bytes, const struct kfit_choice *choice,
                           struct kfit_receipt *receipt, struct kfit_error *err)
{
    struct tuner t;
    struct kfit_tune_result result;
    struct kfit_candidate *c = NULL;
    struct kfit_built built = {0};
    struct kfit_record incumbent;
    void *incumbent_bytes = NULL;
    static const struct kfit_choice first;
    enum kfit_status s = tuner_init(&t, params, &result, err);
    if (s == KFIT_OK)
        s = kfit_judge_takes(params->judge, key, err);
    if (s == KFIT_OK)
        kfit_judge_keep(params->judge, params->store);
    if (s == KFIT_OK)
        s = kfit_candidate_parse(source, bytes, &c, err);
    if (s != KFIT_OK)
        goto out;
    if (!choice)
        choice = &first;
    evaluation_identify(&t, c, key, choice, "eval", receipt);
    s = evaluation_compile(&t, c, key, choice, receipt, &built, err);
    if (s == KFIT_OK) {
        bool staged = params->store && archive_staged(params, key, &incumbent, &incumbent_bytes);
        s = evaluation_judge(&t, &built, staged ? &incumbent : NULL, EVALUATION_FULL, receipt, err);
    } else if (s == KFIT_E_REFUSED) {
        s = KFIT_OK;
    }
    if (s == KFIT_OK && params->store)
        s = receipt->verdict == KFIT_VERDICT_PROMOTED
                ? archive_stage(params, receipt, built.image, built.image_bytes, source, bytes, err)
                : archive_note(params, receipt, err);
out:
    free(incumbent_bytes);
    kfit_built_finish(&built);
    kfit_candidate_destroy(c);
    tuner_finish(&t);
    return s;
}
