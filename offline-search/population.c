#include <math.h>
#include <stdlib.h>

#include "population.h"
#include "timing.h"

static unsigned below(struct population *p, unsigned n)
{
    return (unsigned)(kfit_random(&p->rng) % n);
}

/* Parents: the best, or the better of two drawn at random, so that a lead is followed but not exclusively. */
static int tournament(struct population *p)
{
    int best = -1;
    if (!p->count || below(p, 2))
        return p->best;
    for (unsigned i = 0; i < 2; i++) {
        int c = (int)below(p, p->count);
        if (p->all[c].fitness > 0 && (best < 0 || p->all[c].fitness > p->all[best].fitness))
            best = c;
    }
    return best >= 0 ? best : p->best;
}

static void random_choice(struct population *p, struct proposal *c)
{
    const struct kfit_knob *knobs;
    unsigned n = kfit_candidate_knobs(p->candidates[c->candidate], &knobs);
    memset(&c->choice, 0, sizeof c->choice);
    for (unsigned i = 0; i < n; i++)
        c->choice.index[i] = (uint8_t)below(p, knobs[i].count);
}

/* ---- operators: each makes one child, or says it has none ---- */

/* The starts of every template, each template's first before any second. */
static bool seed(struct population *p, struct proposal *c)
{
    for (; p->seeded_round < KFIT_STARTS_MAX; p->seeded_round++, p->seeded = 0)
        while (p->seeded < p->candidate_count) {
            const struct kfit_choice *starts;
            c->candidate = p->seeded++;
            if (p->seeded_round < kfit_candidate_starts(p->candidates[c->candidate], &starts)) {
                c->choice = starts[p->seeded_round];
                return true;
            }
        }
    return false;
}

/* What won at a neighbouring key. */
static bool transplant(struct population *p, struct proposal *c)
{
    if (p->transplanted >= p->transplant_count)
        return false;
    const struct transplant *t = &p->transplants[p->transplanted++];
    c->candidate = t->candidate;
    c->choice = t->choice;
    return true;
}

/* The index whose value is `steps` ranks above (below, if negative) that of `at`: files list values best
 * first, but neighbours are neighbours by size. Stops at the ends. */
static uint8_t step_by_rank(const struct kfit_knob *k, unsigned at, int steps)
{
    for (; steps; steps += steps > 0 ? -1 : 1) {
        unsigned next = at;
        for (unsigned i = 0; i < k->count; i++) {
            bool beyond = steps > 0 ? k->values[i] > k->values[at] : k->values[i] < k->values[at];
            bool nearer =
                next == at || (steps > 0 ? k->values[i] < k->values[next] : k->values[i] > k->values[next]);
            if (beyond && nearer)
                next = i;
        }
        at = next;
    }
    return (uint8_t)at;
}

static int rank(const struct kfit_knob *k, unsigned at)
{
    int n = 0;
    for (unsigned i = 0; i < k->count; i++)
        n += k->values[i] < k->values[at];
    return n;
}

/* One or two knobs of a good parent, mostly to a neighbouring value. */
static bool mutate(struct population *p, struct proposal *c)
{
    int parent = tournament(p);
    if (parent < 0)
        return false;
    const struct kfit_knob *knobs;
    unsigned n = kfit_candidate_knobs(p->candidates[p->all[parent].candidate], &knobs);
    if (!n)
        return false;
    c->candidate = p->all[parent].candidate;
    c->choice = p->all[parent].choice;
    c->parents[0] = parent;
    for (unsigned changes = 1 + (below(p, 3) == 0); changes; changes--) {
        static const int steps[] = {1, -1, 2, -2};
        unsigned i = below(p, n), kind = below(p, 5);
        c->choice.index[i] = kind < 4 ? step_by_rank(&knobs[i], c->choice.index[i], steps[kind])
                                      : (uint8_t)below(p, knobs[i].count);
    }
    return true;
}

/* The step from the best's parent to the best, once more. */
static bool follow(struct population *p, struct proposal *c)
{
    if (p->best < 0)
        return false;
    const struct individual *best = &p->all[p->best],
                            *from = best->parents[0] >= 0 ? &p->all[best->parents[0]] : NULL;
    if (!from || from->candidate != best->candidate)
        return false;
    const struct kfit_knob *knobs;
    unsigned n = kfit_candidate_knobs(p->candidates[best->candidate], &knobs);
    c->candidate = best->candidate;
    c->choice = best->choice;
    c->parents[0] = p->best;
    for (unsigned i = 0; i < n; i++)
        c->choice.index[i] =
            step_by_rank(&knobs[i], best->choice.index[i],
                         rank(&knobs[i], best->choice.index[i]) - rank(&knobs[i], from->choice.index[i]));
    return true;
}

/* Each knob from one of two parents of the same template. */
static bool crossover(struct population *p, struct proposal *c)
{
    int a = tournament(p), b = tournament(p);
    if (a < 0 || b < 0 || a == b || p->all[a].candidate != p->all[b].candidate)
        return false;
    c->candidate = p->all[a].candidate;
    c->choice = p->all[a].choice;
    c->parents[0] = a;
    c->parents[1] = b;
    for (unsigned i = 0; i < KFIT_KNOBS_MAX; i++)
        if (below(p, 2))
            c->choice.index[i] = p->all[b].choice.index[i];
    return true;
}

/* Another template, with the values of equally named knobs carried over. */
static bool switch_template(struct population *p, struct proposal *c)
{
    int parent = tournament(p);
    if (parent < 0 || p->candidate_count < 2)
        return false;
    const struct individual *from = &p->all[parent];
    const struct kfit_knob *have, *want;
    unsigned have_n = kfit_candidate_knobs(p->candidates[from->candidate], &have);
    c->candidate = (from->candidate + 1 + below(p, p->candidate_count - 1)) % p->candidate_count;
    c->parents[0] = parent;
    random_choice(p, c);
    unsigned want_n = kfit_candidate_knobs(p->candidates[c->candidate], &want);
    for (unsigned i = 0; i < want_n; i++)
        for (unsigned j = 0; j < have_n; j++)
            for (unsigned v = 0; v < want[i].count && !strcmp(want[i].name, have[j].name); v++)
                if (want[i].values[v] == have[j].values[from->choice.index[j]])
                    c->choice.index[i] = (uint8_t)v;
    return true;
}

static bool restart(struct population *p, struct proposal *c)
{
    if (!p->candidate_count)
        return false;
    c->candidate = below(p, p->candidate_count);
    random_choice(p, c);
    return true;
}

static const struct {
    const char *name;
    bool start; /* runs until it has none left, before the others */
    bool (*make)(struct population *, struct proposal *);
} operators[] = {
    {"transplant", true, transplant}, {"seed", true, seed},
    {"follow", false, follow},        {"mutate", false, mutate},
    {"crossover", false, crossover},  {"switch", false, switch_template},
    {"restart", false, restart},
};
enum { FOLLOW = 2, RESTART = 6, OPERATORS = sizeof operators / sizeof *operators };
_Static_assert(OPERATORS <= OPERATORS_MAX && RESTART == OPERATORS - 1, "rows above");

const char *population_operator_name(unsigned op)
{
    return op < OPERATORS ? operators[op].name : "?";
}

/* ---- choice of operator, bookkeeping ---- */

/* UCB1 (Auer et al. 2002) over what each operator's children brought, with two rules before it: a fresh lead
 * is followed; after a stall the present family is left alone now and then. */
static unsigned choose_operator(struct population *p)
{
    unsigned total = 0, best = RESTART;
    double best_value = -1;
    if (p->since_best == 0)
        return FOLLOW;
    if (p->since_best >= 8 && p->since_best % 4 == 0)
        return RESTART;
    for (unsigned i = 0; i < OPERATORS; i++)
        total += p->stats[i].tried;
    for (unsigned i = 0; i < OPERATORS; i++) {
        if (operators[i].start)
            continue;
        const struct operator_stats *s = &p->stats[i];
        double value =
            s->tried ? s->reward / s->tried + 0.5 * sqrt(2 * log(total + 1.0) / s->tried) : 10.0 - i;
        if (value > best_value) {
            best_value = value;
            best = i;
        }
    }
    return best;
}

static bool fresh(struct population *p, struct proposal *c)
{
    if (kfit_candidate_resolve(p->candidates[c->candidate], p->key, &c->choice, p->limits, &c->plan, NULL) !=
        KFIT_OK)
        return false;
    kfit_candidate_digest(p->candidates[c->candidate], &c->choice, c->digest);
    for (unsigned i = 0; i < p->count; i++)
        if (!memcmp(p->all[i].digest, c->digest, sizeof c->digest))
            return false;
    for (unsigned i = 0; i < p->out_count; i++)
        if (!memcmp(p->out[i], c->digest, sizeof c->digest))
            return false;
    return true;
}

static bool make_one(struct population *p, struct proposal *out)
{
    for (unsigned op = 0; op < OPERATORS; op++)
        while (operators[op].start) {
            *out = (struct proposal){.op = op, .parents = {-1, -1}};
            if (!operators[op].make(p, out))
                break;
            if (fresh(p, out))
                return true;
        }
    for (unsigned tries = 0; tries < 400; tries++) {
        unsigned op = tries < 40 ? choose_operator(p) : RESTART;
        *out = (struct proposal){.op = op, .parents = {-1, -1}};
        if (operators[op].make(p, out) && fresh(p, out))
            return true;
        p->since_best += op == FOLLOW;    /* asked once, or it would be asked forever */
        p->stats[op].tried += tries < 40; /* what makes nothing new is not worth asking */
    }
    return false;
}

bool population_propose(struct population *p, struct proposal *out)
{
    if (p->out_count == PROPOSALS_MAX || !make_one(p, out))
        return false;
    memcpy(p->out[p->out_count++], out->digest, sizeof out->digest);
    return true;
}

void population_forget(struct population *p, const struct proposal *from)
{
    for (unsigned i = 0; i < p->out_count; i++)
        if (!memcmp(p->out[i], from->digest, sizeof from->digest)) {
            memmove(p->out[i], p->out[--p->out_count], sizeof p->out[i]);
            return;
        }
}

enum kfit_status population_add(struct population *p, const struct proposal *from, double fitness,
                                const struct kfit_receipt *receipt, struct kfit_built *built,
                                struct kfit_error *err)
{
    if (p->count == p->capacity) {
        unsigned capacity = p->capacity ? 2 * p->capacity : 32;
        struct individual *all = realloc(p->all, capacity * sizeof *all);
        if (!all)
            return kfit_fail(err, KFIT_E_NOMEM, "search: no memory for %u candidates", capacity);
        p->all = all;
        p->capacity = capacity;
    }
    struct individual *i = &p->all[p->count];
    *i = (struct individual){.candidate = from->candidate,
                             .choice = from->choice,
                             .op = from->op,
                             .parents = {from->parents[0], from->parents[1]},
                             .fitness = fitness,
                             .receipt = *receipt,
                             .built = *built};
    memcpy(i->digest, from->digest, sizeof i->digest);
    memset(built, 0, sizeof *built);
    population_forget(p, from);

    struct operator_stats *s = &p->stats[from->op];
    double parent = from->parents[0] >= 0 ? p->all[from->parents[0]].fitness : 0;
    bool leads = fitness > 0 && (p->best < 0 || fitness > p->all[p->best].fitness);
    s->tried++;
    s->reward += leads ? 1.0 : parent > 0 && fitness > parent ? 0.3 : 0;
    p->since_best = leads ? 0 : p->since_best + 1;
    if (leads)
        p->best = (int)p->count;
    p->count++;
    return KFIT_OK;
}

void population_finish(struct population *p)
{
    for (unsigned i = 0; i < p->count; i++)
        kfit_built_finish(&p->all[i].built);
    free(p->all);
    p->all = NULL;
    p->count = p->capacity = 0;
}
