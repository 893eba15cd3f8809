/* kfit/reason.h - why a call went to the original. Fixed numbers: stored in traces, shown to people. */
#ifndef KFIT_REASON_H
#define KFIT_REASON_H

#ifdef __cplusplus
extern "C" {
#endif

/* X(name, text for people). NONE means: kfit's kernel ran. Append only. */
#define KFIT_REASON_LIST(X)                                                                                  \
    X(NONE, "none", "ran a kfit kernel")                                                                     \
    X(OFF, "off", "kfit is off or only records")                                                             \
    X(NO_RECORD, "no_record", "no kernel for this key in the generation")                                    \
    X(NEGATIVE, "negative", "tuned before, the generic was kept")                                            \
    X(BANNED, "banned", "the key is banned")                                                                 \
    X(FLAGS, "flags", "a dimension, stride or flag kfit does not handle")                                    \
    X(EPILOGUE, "epilogue", "unknown epilogue")                                                              \
    X(SCALE_MODE, "scale_mode", "unknown scale mode")                                                        \
    X(POINTER_MODE, "pointer_mode", "alpha or beta live on the device")                                      \
    X(ALIGN, "align", "pointers less aligned than any kernel needs")                                         \
    X(THREADS, "threads", "the BLAS thread count differs from the tuned one")                                \
    X(STREAM_STATE, "stream_state", "the stream is in a state kfit does not handle")                         \
    X(CAPTURE, "capture", "first seen inside a graph capture")                                               \
    X(WORKSPACE, "workspace", "no workspace free")                                                           \
    X(ENV, "env", "the generation was made for another environment")                                         \
    X(LOAD_FAILED, "load_failed", "the generation or the kernel could not be loaded")                        \
    X(POLICY, "policy", "not allowed by policy")                                                             \
    X(FULL, "full", "more keys than the trace holds")

enum kfit_reason {
#define KFIT_X(name, word, text) KFIT_REASON_##name,
    KFIT_REASON_LIST(KFIT_X)
#undef KFIT_X
        KFIT_REASON_COUNT
};

const char *kfit_reason_name(unsigned reason); /* "no_record"; "?" if unknown. Never NULL */
const char *kfit_reason_text(unsigned reason); /* one sentence for people. Never NULL */

#ifdef __cplusplus
}
#endif
#endif
