/* The candidates of one target: where they came from, how well they did, and how children are made. */
#ifndef KFIT_POPULATION_H
#define KFIT_POPULATION_H

#include "kfit/compile.h"
#include "kfit/receipt.h"

struct individual {
    unsigned candidate; /* index into population.candidates */
    struct kfit_choice choice;
    unsigned op;    /* index into operators */
    int parents[2]; /* indices, -1: none */
    uint8_t digest[32];
    double fitness; /* incumbent / candidate as screened; 0: refused */
    struct kfit_receipt receipt;
    struct kfit_built built; /* empty once it is out of the race */
};

struct operator_stats {
    unsigned tried;
    double reward;
};

#define OPERATORS_MAX 8
#define PROPOSALS_MAX 64

/* A winner of another key, to start from. */
struct transplant {
    unsigned candidate;
    struct kfit_choice choice;
};

struct population {
    const union kfit_key *key;
    struct kfit_candidate *const *candidates; /* those that fit the op and device */
    unsigned candidate_count;
    const struct kfit_limits *limits;
    const struct transplant *transplants; /* nearest first */
    unsigned transplant_count;
    uint64_t rng;

    struct individual *all;
    unsigned count, capacity;
    int best;                      /* index, -1: none */
    unsigned since_best;           /* evaluations since best changed */
    unsigned seeded, seeded_round, transplanted; /* progress of the two starting operators */
    struct operator_stats stats[OPERATORS_MAX];
    uint8_t out[PROPOSALS_MAX][32]; /* digests proposed and not yet added or forgotten */
    unsigned out_count;
};

struct proposal {
    unsigned candidate, op;
    struct kfit_choice choice;
    int parents[2];
    uint8_t digest[32];
    struct kfit_plan plan;
};

/* Makes the next child that has not been tried, is not out already and whose requirements hold. false: the
 * space is exhausted as far as the operators can see, or PROPOSALS_MAX are out. */
bool population_propose(struct population *p, struct proposal *out);
/* A proposal that will not be added after all (harmless after population_add). */
void population_forget(struct population *p, const struct proposal *from);

/* Takes what came of a proposal (receipt and built are moved in) and rewards the operator that made it. */
enum kfit_status population_add(struct population *p, const struct proposal *from, double fitness,
                                const struct kfit_receipt *receipt, struct kfit_built *built,
                                struct kfit_error *err);
void population_finish(struct population *p);

const char *population_operator_name(unsigned op);

#endif
