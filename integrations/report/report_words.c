/* What a receipt's code means, for people who run servers. */
#include "report.h"

/* One row a code; a code without one is shown as it is, and tests/test_report.c asks for a row. */
static const char *const words[KFIT_CODE_COUNT] = {
    [KFIT_CODE_STATIC_HEADER] = "the candidate's header could not be read",
    [KFIT_CODE_STATIC_SIZE] = "the candidate's source or code is too large",
    [KFIT_CODE_STATIC_REQUIRE] = "the candidate does not fit this shape, by its own rules",
    [KFIT_CODE_STATIC_COMPILE] = "the candidate does not compile",
    [KFIT_CODE_STATIC_INCLUDE] = "the candidate includes a file it may not",
    [KFIT_CODE_STATIC_MACRO] = "the candidate redefines what the harness gives it",
    [KFIT_CODE_STATIC_ASM] = "the candidate holds inline assembly, which is not allowed",
    [KFIT_CODE_STATIC_EXTERN] = "the candidate calls something outside itself",
    [KFIT_CODE_STATIC_WRITABLE] = "the candidate keeps state between calls",
    [KFIT_CODE_STATIC_RELOC] = "the candidate's code cannot be placed anywhere in memory",
    [KFIT_CODE_STATIC_SECTION] = "the candidate's object holds a section it may not",
    [KFIT_CODE_STATIC_INSTRUCTION] = "the candidate holds an instruction that is not allowed",
    [KFIT_CODE_STATIC_ENTRY] = "the candidate has no proper entry point",
    [KFIT_CODE_STATIC_TIMEOUT] = "the candidate took too long to compile",
    [KFIT_CODE_STATIC_PRAGMA] = "the candidate changes the compiler's settings",
    [KFIT_CODE_STATIC_ATTRIBUTE] = "the candidate uses a compiler attribute that is not allowed",
    [KFIT_CODE_STATIC_RESOURCES] = "the candidate needs more of the device than there is",
    [KFIT_CODE_WRONG_UNWRITTEN] = "the candidate left the result unwritten",
    [KFIT_CODE_WRONG_PARTIAL] = "the candidate left a part of the result unwritten",
    [KFIT_CODE_WRONG_INPUT] = "the candidate wrote to its inputs",
    [KFIT_CODE_WRONG_BOUNDS] = "the candidate wrote outside the result",
    [KFIT_CODE_WRONG_VALUES] = "the candidate computed wrong values",
    [KFIT_CODE_WRONG_ACCURACY] = "the candidate is less accurate than the rule allows",
    [KFIT_CODE_WRONG_NONFINITE] = "the candidate treats infinities or NaNs differently",
    [KFIT_CODE_WRONG_REPEAT] = "the candidate's result differs from call to call",
    [KFIT_CODE_WRONG_LATER] = "the candidate is right at first and wrong in later calls",
    [KFIT_CODE_WRONG_WORKSPACE] = "the candidate misuses its workspace",
    [KFIT_CODE_WRONG_STACK] = "the candidate damaged the caller's stack or registers",
    [KFIT_CODE_WRONG_CRASH] = "the candidate crashed",
    [KFIT_CODE_WRONG_HANG] = "the candidate did not end",
    [KFIT_CODE_WRONG_SYSCALL] = "the candidate made a system call",
    [KFIT_CODE_WRONG_FP_STATE] = "the candidate left the floating-point settings changed",
    [KFIT_CODE_HIDDEN_WRONG] = "the candidate is wrong on inputs it had not seen",
    [KFIT_CODE_SLOW_TIE] = "the best candidate is as fast as the original: a tie keeps the original",
    [KFIT_CODE_SLOW_BEHIND] = "the best candidate is slower than the original",
    [KFIT_CODE_SLOW_COLD] = "the best candidate is faster with warm data and slower with cold data",
    [KFIT_CODE_TIMING_CLOCKS] = "two clocks disagreed about the candidate, so its time is not believed",
    [KFIT_CODE_TIMING_NOISE] = "the machine was too noisy to tell; tune again when it is idle",
    [KFIT_CODE_SUSPECT_ROOFLINE] = "faster than the measured bound allows: a person must look at it",
    [KFIT_CODE_REPEAT_FAILED] = "the gain did not show again in a fresh process",
    [KFIT_CODE_GENERIC_WRONG] =
        "the original itself did not pass the check, so there is nothing to compare with",
    [KFIT_CODE_MODEL_FURTHER] = "the candidate is further from the exact result than the original",
};

const char *kfit_report_counted(const struct kfit_report *r)
{
    return r->launches.ours || r->launches.in_op || r->launches.other ? "all launches on GPUs" : "them";
}

const char *kfit_report_code_words(const char *code)
{
    enum kfit_code c = kfit_code_parse(code);
    if (!*code)
        return "the reason is not in this store";
    return c < KFIT_CODE_COUNT && words[c] ? words[c] : code;
}
