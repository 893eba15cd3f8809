/* kfit/candidate.h - one source file with a header: knobs, requirements, workspace, launches.
 *
 *     kfit-candidate 1
 *     {"op":"gemm", "device":"host", "knobs":{"NV":[1,2,4]}, "require":["N % (NV*VL) == 0"],
 *      "workspace":{"bytes":"0","init":"scratch"}, "launches":[{"entry":"kfit_main"}]}
 *
 * "name", "knobs", "starts", "require" and "workspace" may be left out. Unknown fields are errors. "starts": choices of
 * all knobs, "NV=4 MR=2", that did well somewhere; a search tries them first.
 *
 * On cuda also "arch":">=90" and "tensormaps":[{"arg":"b","box":["BN",64],"swizzle":128}]: each an argument as the copy engine
 * sees it (kfit/plan.h), box in rows and columns, passed to every entry after the workspace, in order.
 *
 * Expressions: integers, key dimensions (op's dims), knobs, device limits, VL (lanes of the op's type), + - *
 * / % ( ) comparisons && || ! ceil(a,b) min(a,b) max(a,b); nothing else. All arithmetic is int64 with
 * overflow and division by zero as errors. Hostile input is expected: depth, length and counts are bounded.
 *
 * Thread-safety: a parsed candidate is immutable.
 */
#ifndef KFIT_CANDIDATE_H
#define KFIT_CANDIDATE_H

#include "kfit/op.h"
#include "kfit/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

#define KFIT_SOURCE_BYTES_MAX (1u << 20)
#define KFIT_KNOBS_MAX        16
#define KFIT_KNOB_VALUES_MAX  32
#define KFIT_STARTS_MAX       32

struct kfit_knob {
    char name[32];
    unsigned count;
    int64_t values[KFIT_KNOB_VALUES_MAX];
};

/* One choice: index into values per knob, in the candidate's order. */
struct kfit_choice {
    uint8_t index[KFIT_KNOBS_MAX];
};

struct kfit_candidate; /* parsed */

/* source is copied. Errors: KFIT_E_FORMAT with line and what was expected, KFIT_E_FULL: larger than
 * KFIT_SOURCE_BYTES_MAX. kfit_candidate_code gives the gate code of either. */
enum kfit_status kfit_candidate_parse(const char *source, size_t bytes, struct kfit_candidate **out,
                                      struct kfit_error *err);
void kfit_candidate_destroy(struct kfit_candidate *c);
/* The gate-0 code of an error of parse or resolve: "static:size", "static:header" or "static:require". */
const char *kfit_candidate_code(enum kfit_status s);

const char *kfit_candidate_source(const struct kfit_candidate *c, size_t *bytes);
const struct kfit_op *kfit_candidate_op(const struct kfit_candidate *c);
const char *kfit_candidate_device(const struct kfit_candidate *c); /* "host", "cuda" */
const char *kfit_candidate_name(const struct kfit_candidate *c);   /* header "name", else "unnamed" */
/* The function that launch i calls, as the source names it (the plan has the public name); NULL beyond the
 * last. */
const char *kfit_candidate_entry(const struct kfit_candidate *c, unsigned launch);
unsigned kfit_candidate_knobs(const struct kfit_candidate *c, const struct kfit_knob **knobs);
/* What to try first, at least one: the header's "starts", or else every knob's first value. */
unsigned kfit_candidate_starts(const struct kfit_candidate *c, const struct kfit_choice **starts);

/* Limits and constants of the device visible to expressions, e.g. {"VL", 16}, {"SMS", 132}. */
struct kfit_limits {
    struct kfit_dim entry[16];
    unsigned count;
};

/* Every name that expressions see, and sources as KFIT_<name>; returns how many. The names live as long as c
 * and limits. */
#define KFIT_NAMES_MAX (KFIT_DIMS_MAX + KFIT_KNOBS_MAX + 16 + 1)
unsigned kfit_candidate_names(const struct kfit_candidate *c, const union kfit_key *key,
                              const struct kfit_choice *choice, const struct kfit_limits *limits,
                              struct kfit_dim out[KFIT_NAMES_MAX]);

/* Evaluates requirements, workspace and launches for key and choice. KFIT_E_REFUSED with the requirement that
 * does not hold; KFIT_E_FORMAT for expressions that cannot be evaluated. plan->launches[].entry_offset is 0.
 */
enum kfit_status kfit_candidate_resolve(const struct kfit_candidate *c, const union kfit_key *key,
                                        const struct kfit_choice *choice, const struct kfit_limits *limits,
                                        struct kfit_plan *plan, struct kfit_error *err);

/* SHA-256 over source, a NUL, and "NAME=value;" for each knob: the identity of a choice. */
void kfit_candidate_digest(const struct kfit_candidate *c, const struct kfit_choice *choice, uint8_t out[32]);
/* "NV=4 MR=2" for people and receipts; kfit_choice_parse reads it back (every knob, values as declared). */
size_t kfit_choice_format(const struct kfit_candidate *c, const struct kfit_choice *choice, char *buf,
                          size_t size);
enum kfit_status kfit_choice_parse(const struct kfit_candidate *c, const char *text,
                                   struct kfit_choice *choice, struct kfit_error *err);

/* The seed kernels that ship in the library. */
struct kfit_seed {
    const char *name, *device, *source;
    size_t bytes;
};
extern const struct kfit_seed kfit_seeds[];
extern const unsigned kfit_seed_count;

#ifdef __cplusplus
}
#endif
#endif
