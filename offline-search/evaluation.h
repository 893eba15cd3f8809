/* evaluation.h - the tuner's state, and one evaluation: compile, judge, note. */
#ifndef KFIT_EVALUATION_H
#define KFIT_EVALUATION_H

#include <pthread.h>

#include "archive.h"
#include "clock.h"
#include "population.h"

enum { CANDIDATES_MAX = 64, BATCH_MAX = 16 };

struct tuner {
    const struct kfit_tune_params *p;
    struct kfit_tune_result *result;
    struct kfit_candidate *candidates[CANDIDATES_MAX];
    unsigned candidate_count;
    struct kfit_limits limits;
    char device[16], isa[32]; /* of the environment */
    unsigned batch;           /* compilations at a time */
    bool overlap;             /* compile while judging: not where both use the same cores */
    uint64_t seed;
    double start_ns;
};

double tuner_seconds(const struct tuner *t);   /* since start */
bool tuner_stopped(const struct tuner *t);     /* by a signal: nothing is concluded */
bool tuner_out_of_time(const struct tuner *t); /* also by the budget: what is there is concluded */
enum kfit_status tuner_interrupted(struct kfit_error *err);

/* Fills what says who this is: key, digest, names, origin. */
void evaluation_identify(const struct tuner *t, const struct kfit_candidate *c, const union kfit_key *key,
                         const struct kfit_choice *choice, const char *operator_name, struct kfit_receipt *r);

/* Writes what gate 0 found of built into r. */
void evaluation_gate_0(struct kfit_receipt *r, const struct kfit_built *built, bool ok);
/* Gate 0. KFIT_E_REFUSED leaves the reason in r. Thread-safety: any; evaluation_compiled
 * counts it afterwards. */
enum kfit_status evaluation_compile(const struct tuner *t, const struct kfit_candidate *c,
                                    const union kfit_key *key, const struct kfit_choice *choice,
                                    struct kfit_receipt *r, struct kfit_built *built, struct kfit_error *err);
void evaluation_compiled(struct tuner *t, const struct kfit_built *built);

/* How far a judgement goes: to a first impression, to one with cold caches as well, through all gates. */
enum evaluation_depth { EVALUATION_SCREEN, EVALUATION_LEADER, EVALUATION_FULL };

/* The other gates, against the generic and (not NULL) the present winner. */
enum kfit_status evaluation_judge(struct tuner *t, const struct kfit_built *built,
                                  const struct kfit_record *incumbent, enum evaluation_depth depth,
                                  struct kfit_receipt *r, struct kfit_error *err);

/* "Keep the generic" is a finding only where timing said so; noise, or a winner that did not repeat, is none. */
bool evaluation_found_slow(const struct kfit_receipt *r);

/* Screens up to budget children of pop: a batch is compiled in parallel, then judged one by one; with overlap
 * the next batch compiles meanwhile. Ends early when time is up or nothing new can be made. seen
 * is called after each. */
enum kfit_status evaluation_screen(struct tuner *t, struct population *pop, unsigned budget,
                                   void (*seen)(void *ctx, const struct population *pop, int best_before),
                                   void *ctx, struct kfit_error *err);

#endif
