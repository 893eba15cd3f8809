/* kfit/tune.h - targets, and the search over each of them.
 *
 * Targets are ranked by calls x (incumbent time - bound). For each, a population starts from the seed
 * kernels; operators make children; every evaluation, also a failed one, is stored at once, so that a
 * campaign killed at any moment loses only the evaluation in flight and goes on where it stopped.
 */
#ifndef KFIT_TUNE_H
#define KFIT_TUNE_H

#include "kfit/judge.h"
#include "kfit/store.h"
#include "kfit/trace.h"

#ifdef __cplusplus
extern "C" {
#endif

struct kfit_target {
    union kfit_key key;
    uint64_t calls;
    uint32_t generic;              /* index into the trace's generics */
    double ns_incumbent, ns_bound; /* measured by kfit_targets_measure; 0 before */
    double score;                  /* calls x (incumbent - bound), ns */
};

/* Keys of t that can be tuned (op and scalars known), at least min_calls each, ranked by calls. *out is
 * malloc'ed. *skipped (may be NULL) counts those left out. */
enum kfit_status kfit_targets_from_trace(const struct kfit_trace *t, uint64_t min_calls,
                                         struct kfit_target **out, size_t *count, size_t *skipped,
                                         struct kfit_error *err);
/* Measures incumbent and bound, fills the score, sorts by it. */
enum kfit_status kfit_targets_measure(struct kfit_judge *j, struct kfit_target *targets, size_t count,
                                      struct kfit_error *err);

enum kfit_tune_event { KFIT_TUNE_TARGET, KFIT_TUNE_EVALUATED, KFIT_TUNE_BEST, KFIT_TUNE_DONE };

struct kfit_tune_progress {
    enum kfit_tune_event event;
    size_t target, targets;
    unsigned evaluation, evaluations; /* of this target */
    const struct kfit_target *at;
    const struct kfit_receipt *last, *best; /* may be NULL */
};

struct kfit_tune_params {
    struct kfit_store *store;
    struct kfit_judge *judge;
    const struct kfit_env *env;
    struct kfit_target *targets;
    size_t count;
    unsigned evaluations; /* budget per target; 0: default */
    double seconds;       /* budget for all; 0: none */
    uint64_t seed;        /* of the search's own choices; 0: from the OS */
    const char *cc;
    const char *campaign; /* name; NULL: "default" */
    /* Whose candidates they are: a person's or a program's name, and the language model that wrote them, if
     * any. NULL: kfit's own. Their origin is "seed:CANDIDATE", "person:PROPOSER" or "llm:MODEL". */
    const char *proposer, *model;
    bool allow_no_isolation;
    /* Extra candidate sources beside the seeds (NULL-terminated), e.g. from people. */
    const char *const *extra_sources;
    void (*progress)(void *ctx, const struct kfit_tune_progress *p); /* may be NULL */
    void *progress_ctx;
    const volatile int *stop; /* set non-zero (signal handler) to end after the present evaluation */
    struct kfit_log log;
};

struct kfit_tune_result {
    unsigned promoted, kept, refused_targets;
    unsigned evaluations, compiled, resumed; /* resumed: answers taken from the store */
    double seconds, compile_seconds, evaluate_seconds;
    double again_seconds; /* of evaluate_seconds, in fresh processes (gate 5) */
};

/* Stages winners (and negative records for kept targets) in the store. KFIT_E_INTERRUPTED when stopped: all
 * that was evaluated is kept. */
enum kfit_status kfit_tune(const struct kfit_tune_params *params, struct kfit_tune_result *result,
                           struct kfit_error *err);

/* One candidate from source against one key, all gates: `kfit eval`. Stored and staged like any other. */
enum kfit_status kfit_eval(const struct kfit_tune_params *params, const union kfit_key *key,
                           const char *source, size_t bytes, const struct kfit_choice *choice,
                           struct kfit_receipt *receipt, struct kfit_error *err);

enum kfit_retimed {
    KFIT_RETIMED_CONFIRMED, /* promoted again: staged with the present environment and the new times */
    KFIT_RETIMED_RETIRED,   /* wrong, or no longer faster: "keep the generic" is staged */
    KFIT_RETIMED_UNDECIDED  /* noise, or for a person to decide: nothing is staged, it stays as it was */
};

/* Judges an existing winner (its image, whole, against the generic) in the present environment, whose hard part must
 * be the record's (KFIT_E_ENV). Only store, judge, env, campaign, stop and log of params are used. */
enum kfit_status kfit_retime(const struct kfit_tune_params *params, const struct kfit_record *winner,
                             enum kfit_retimed *outcome, struct kfit_receipt *receipt,
                             struct kfit_error *err);

#ifdef __cplusplus
}
#endif
#endif
