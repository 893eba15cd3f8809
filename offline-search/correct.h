/* correct.h - gates 1 and 2: the outputs of an image against float64, its manners against bands and poison.
 */
#ifndef KFIT_CORRECT_H
#define KFIT_CORRECT_H

#include "accuracy.h"
#include "session.h"

/* One set of inputs and what must come out. Made without the candidate, kept in the parent only. */
struct kfit_case {
    const struct kfit_distribution *distribution;
    uint64_t seed;
    uint8_t *arg[KFIT_RUNNER_ARGS]; /* pristine bytes, NULL for a pure output */
    double *ref, *mag;
    uint8_t *generic_out; /* NULL until the generic ran */
    struct kfit_accuracy generic;
};

/* Cases of one distribution lie beside each other; their errors are pooled. */
struct kfit_cases {
    union kfit_key key;
    unsigned count;
    struct kfit_case *cases;
};

/* Makes the cases of gate 1 (hidden false: every distribution that is not hidden) or of gate 2 (hidden true:
 * seeds of their own, hidden distributions first). Large keys get fewer. Caller storage; finish it. */
enum kfit_status kfit_cases_make(struct kfit_cases *c, const union kfit_key *key, uint64_t seed, bool hidden,
                                 struct kfit_error *err);
void kfit_cases_finish(struct kfit_cases *c);

/* Runs all cases and, with later, the long run on the first one. The result's code, distribution, errors and
 * place are filled; KFIT_OK also when the image is refused. generic: KFIT_RUN_GEMM or KFIT_RUN_GEMV. */
enum kfit_status kfit_correct(struct kfit_session *s, struct kfit_cases *c, enum kfit_who who,
                              enum kfit_who generic, bool later, struct kfit_gate_result *result,
                              struct kfit_error *err);

/* Puts the inputs of a case at the present placement, with bands around; the output as it is before a call
 * (poison 0: NaN, 1: 2^100), here and in the restore region. */
void kfit_case_load(struct kfit_session *s, const struct kfit_case *c, unsigned poison);
/* Checks one output of `calls` accumulated calls (1 unless the output is INOUT) of a case. */
enum kfit_code kfit_case_check_output(const struct kfit_session *s, const struct kfit_case *c,
                                      const uint8_t *out, unsigned calls, char at[64]);

#endif
