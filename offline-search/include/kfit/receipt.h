/* kfit/receipt.h - the machine-readable record of every gate and timing of one evaluation. */
#ifndef KFIT_RECEIPT_H
#define KFIT_RECEIPT_H

#include <stdbool.h>
#include <stdint.h>

#include "kfit/env.h"
#include "kfit/key.h"
#include "kfit/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

#define KFIT_RECEIPT_VERSION 1u

/* X(name, code): every reason a candidate can be refused for; `gate:detail`. Append only. */
#define KFIT_CODE_LIST(X)                                                                                    \
    X(NONE, "")                                                                                              \
    X(STATIC_HEADER, "static:header")                                                                        \
    X(STATIC_SIZE, "static:size")                                                                            \
    X(STATIC_REQUIRE, "static:require")                                                                      \
    X(STATIC_COMPILE, "static:compile")                                                                      \
    X(STATIC_INCLUDE, "static:include")                                                                      \
    X(STATIC_MACRO, "static:macro")                                                                          \
    X(STATIC_ASM, "static:asm")                                                                              \
    X(STATIC_EXTERN, "static:extern")                                                                        \
    X(STATIC_WRITABLE, "static:writable")                                                                    \
    X(STATIC_RELOC, "static:reloc")                                                                          \
    X(STATIC_SECTION, "static:section")                                                                      \
    X(STATIC_INSTRUCTION, "static:instruction")                                                              \
    X(STATIC_ENTRY, "static:entry")                                                                          \
    X(STATIC_TIMEOUT, "static:timeout")                                                                      \
    X(WRONG_UNWRITTEN, "wrong:unwritten")                                                                    \
    X(WRONG_PARTIAL, "wrong:partial")                                                                        \
    X(WRONG_INPUT, "wrong:input_written")                                                                    \
    X(WRONG_BOUNDS, "wrong:out_of_bounds")                                                                   \
    X(WRONG_VALUES, "wrong:values")                                                                          \
    X(WRONG_ACCURACY, "wrong:accuracy")                                                                      \
    X(WRONG_NONFINITE, "wrong:nonfinite")                                                                    \
    X(WRONG_REPEAT, "wrong:not_repeatable")                                                                  \
    X(WRONG_LATER, "wrong:later_calls")                                                                      \
    X(WRONG_WORKSPACE, "wrong:workspace")                                                                    \
    X(WRONG_STACK, "wrong:stack")                                                                            \
    X(WRONG_CRASH, "wrong:crash")                                                                            \
    X(WRONG_HANG, "wrong:hang")                                                                              \
    X(WRONG_SYSCALL, "wrong:system_call")                                                                    \
    X(HIDDEN_WRONG, "hidden:wrong")                                                                          \
    X(SLOW_TIE, "slow:tie")                                                                                  \
    X(SLOW_BEHIND, "slow:behind")                                                                            \
    X(TIMING_CLOCKS, "timing:clocks")                                                                        \
    X(TIMING_NOISE, "timing:noise")                                                                          \
    X(SUSPECT_ROOFLINE, "suspect:beyond-roofline")                                                           \
    X(REPEAT_FAILED, "repeat:failed")                                                                        \
    X(GENERIC_WRONG, "generic:wrong")                                                                        \
    X(MODEL_FURTHER, "model:further")                                                                        \
    X(STATIC_PRAGMA, "static:pragma")                                                                        \
    X(STATIC_ATTRIBUTE, "static:attribute")                                                                  \
    X(WRONG_FP_STATE, "wrong:fp_state")                                                                      \
    X(STATIC_RESOURCES, "static:resources")                                                                  \
    X(SLOW_COLD, "slow:cold")

enum kfit_code {
#define KFIT_X(name, str) KFIT_CODE_##name,
    KFIT_CODE_LIST(KFIT_X)
#undef KFIT_X
        KFIT_CODE_COUNT
};
const char *kfit_code_str(enum kfit_code c);
enum kfit_code kfit_code_parse(const char *s); /* KFIT_CODE_COUNT if unknown */

enum kfit_verdict { KFIT_VERDICT_KEPT, KFIT_VERDICT_PROMOTED, KFIT_VERDICT_REFUSED, KFIT_VERDICT_REVIEW };
const char *kfit_verdict_str(enum kfit_verdict v); /* "kept": right, but not enough faster */

struct kfit_gate_result {
    char name[16]; /* "static", "correct", "hidden", "fast", "clocks", "repeat" */
    bool ok;
    enum kfit_code code;
    uint32_t seeds;
    char distribution[24];     /* where it failed, or the worst one */
    double err_rms, err_worst; /* in units of the accuracy rule */
    char at[64];               /* element, call or address, for people */
};

struct kfit_timing {
    char mode[8];  /* "warm", "cold" */
    char clock[8]; /* "inner", "outer", "cupti" */
    uint32_t n;    /* pairs */
    double ratio, lo, hi;
    double ns_candidate, ns_incumbent, ns_generic;
};

#define KFIT_GATES_MAX   8
#define KFIT_TIMINGS_MAX 8

struct kfit_receipt {
    union kfit_key key;
    uint8_t digest[32], parents[2][32]; /* zero: none */
    char name[64], knobs[128];          /* of the candidate, for people */
    char proposer[32], operator_name[32], campaign[64], origin[96];
    char approver[64]; /* who let it into a generation; "": nobody yet */
    char model[64];    /* "" unless a language model proposed it */
    struct kfit_plan plan;
    struct kfit_env env;
    unsigned gate_count, timing_count;
    struct kfit_gate_result gates[KFIT_GATES_MAX];
    struct kfit_timing timings[KFIT_TIMINGS_MAX]; /* [0] decides */
    double noise;                                 /* half-width of the A/A interval, as a ratio */
    double bound_ns;                              /* measured floor for this key */
    double compile_ns, evaluate_ns;
    double again_ns; /* of these, gate 5: all that happens in a fresh process. Not kept in files */
    bool deterministic, data_oblivious;
    char isolation[16];
    uint64_t seed;
    enum kfit_verdict verdict;
    enum kfit_code code;
    char detail[256];
    int64_t made_unix_s;
};

/* JSON text, malloc'ed, the caller's; NULL when out of memory. */
char *kfit_receipt_to_json(const struct kfit_receipt *r);
enum kfit_status kfit_receipt_from_json(const char *json, size_t bytes, struct kfit_receipt *r,
                                        struct kfit_error *err);

#ifdef __cplusplus
}
#endif
#endif
