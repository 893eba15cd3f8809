/* cuda_judge.h - what the cuda device's gates share: the judge's state, workers, cases, timing.
 *
 * judge_cuda.c: workers, trials, the device's row. cuda_reference.c: float64. cuda_correct.c: gates 1 and 2. cuda_fast.c: gate 4. */
#ifndef KFIT_CUDA_JUDGE_H
#define KFIT_CUDA_JUDGE_H

#include "accuracy.h"
#include "judge_device.h"
#include "kfit/ceilings.h"
#include "narrow.h"
#include "session_cuda.h"
#include "timing.h"

#define CUDA_ARENA_BYTES     ((size_t)64 << 20)
#define CUDA_LAUNCH_LIMIT_MS 1000u
#define CUDA_OTHERS_BYTES    ((uint64_t)1 << 30) /* more than contexts and a desktop take */
#define CUDA_BATCH_MAX       65535 /* matrices: one row of a grid each */
enum { CUDA_NORMAL = 0, CUDA_CASES_MAX = 32 }; /* the first distribution; room for one case of each */

/* Inputs that are judged: the float64 values, and what the generic made of them. */
struct case_cuda {
    unsigned distribution;
    uint64_t seed;
    double *ref, *mag;
    uint8_t *generic;
    struct narrow generic_narrow;
    struct kfit_accuracy generic_wide;
};

struct cuda {
    const struct kfit_judge_params *p;
    char program[512];
    uint64_t seed;
    char *cubin;
    size_t cubin_bytes;
    struct kfit_device_info info;
    struct session_cuda runner, referee;
    union kfit_key key, referee_key; /* what each worker is set up for; zero: nothing */
    size_t workspace_bytes;
    unsigned sets;     /* copies of the inputs that a cold timing goes round */
    unsigned launches; /* of one cold graph */
    struct kfit_tensor out;
    size_t out_bytes, out_count;
    union kfit_key cases_key;
    struct case_cuda cases[CUDA_CASES_MAX]; /* gate 1's, of `cases_key`; they outlive a runner */
    unsigned case_count;
    struct kfit_store *store; /* where ceilings are kept, or NULL */
    struct kfit_gpu_ceilings ceilings; /* measured_unix_s 0: not known yet */
    bool reference_checked, told;
    unsigned incumbent; /* who was timed against the candidate: the generic or the winner */
    enum kfit_code broken; /* why the runner was lost while the candidate ran */
    char broken_at[64];
};

/* ---- workers (judge_cuda.c) ---- */

/* Sets a worker up for a key; nothing to do if it is. */
enum kfit_status cuda_prepare(struct cuda *c, struct session_cuda *s, union kfit_key *now,
                              const union kfit_key *key, const struct kfit_generic *generic, size_t workspace,
                              struct kfit_error *err);
/* Was the worker lost while the candidate ran? Then that is the candidate's doing (c->broken), and no error of ours. */
enum kfit_status cuda_blame(struct cuda *c, enum kfit_status st, bool candidate, struct kfit_error *err);
/* Inputs of a distribution and seed, at a placement. */
enum kfit_status cuda_fill(struct session_cuda *s, unsigned distribution, uint64_t seed, unsigned placement,
                           struct kfit_error *err);

/* ---- the reference (cuda_reference.c) ---- */

/* float64 values, then magnitudes, of inputs; from the referee. */
enum kfit_status cuda_reference(struct cuda *c, unsigned distribution, uint64_t seed, double *ref,
                                struct kfit_error *err);
/* Once per judge: does the referee compute what the op's own definition does on the CPU? KFIT_E_UNSUPPORTED if not. */
enum kfit_status cuda_check_reference(struct cuda *c, struct kfit_error *err);

/* ---- cases (cuda_correct.c) ---- */

/* Compares an output with a case; fills the statistics of its type. */
enum kfit_code cuda_compare(struct cuda *c, const struct case_cuda *k, unsigned poison, const void *out,
                            struct narrow *narrow, struct kfit_accuracy *wide, char at[64]);
/* Gate 1's cases for c->key. */
enum kfit_status cuda_fixed_cases(struct cuda *c, struct kfit_error *err);
void cuda_drop_cases(struct cuda *c);
enum kfit_status cuda_gate_correct(struct judge_trial *t, struct kfit_gate_result *g, struct kfit_error *err);
enum kfit_status cuda_gate_hidden(struct judge_trial *t, struct kfit_gate_result *g, struct kfit_error *err);
/* Gate 2 with what it found left in g. */
enum kfit_status cuda_hidden(struct judge_trial *t, struct kfit_gate_result *g, struct kfit_error *err);

/* ---- the bound (cuda_ceilings.c) ---- */

enum kfit_status cuda_bound(void *device, const union kfit_key *key, double *ns, struct kfit_error *err);

/* ---- timing (cuda_fast.c) ---- */

struct bench {
    struct cuda *c;
    unsigned incumbent, mode;
    uint64_t seed, fill_seed;
    bool filled;
};

/* Median of a few calls of who, cold. */
enum kfit_status cuda_median_of(struct bench *b, unsigned who, double *ns, struct kfit_error *err);
enum kfit_status cuda_time_it(struct judge_trial *t, bool brief, struct kfit_gate_result *g,
                              struct kfit_error *err);
enum kfit_status cuda_gate_screen(struct judge_trial *t, struct kfit_gate_result *g, struct kfit_error *err);
enum kfit_status cuda_clocks(struct judge_trial *t, struct kfit_gate_result *g, struct kfit_error *err); /* cuda_clocks.c */
enum kfit_status cuda_gate_fast(struct judge_trial *t, struct kfit_gate_result *g, struct kfit_error *err);

#endif
