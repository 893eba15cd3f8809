/* kfit/status.h - one status for every layer.
 *
 * Functions that can fail return `enum kfit_status` (0 is success) and put the details into the caller's
 * `struct kfit_error`, which says what went wrong, where, and what to do. Library code never prints,
 * exits or aborts.
 *
 * Rules that hold for every header of kfit:
 *  - parameter structs live only for the call; zero means "default";
 *  - `destroy(NULL)` and `finish` of a zeroed object are legal and do nothing;
 *  - a NULL log, recorder, generation or error is legal and means "none";
 *  - names end in the unit (`_ns`, `_bytes`) where one could be mistaken.
 */
#ifndef KFIT_STATUS_H
#define KFIT_STATUS_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* X(name, text). The order is part of the library ABI: append only. */
#define KFIT_STATUS_LIST(X)                                                                                  \
    X(OK, "ok")                                                                                              \
    X(E_ARG, "bad argument")                                                                                 \
    X(E_NOMEM, "out of memory")                                                                              \
    X(E_IO, "input/output error")                                                                            \
    X(E_FORMAT, "damaged or foreign data")                                                                   \
    X(E_VERSION, "made by another version")                                                                  \
    X(E_DIGEST, "digest does not match")                                                                     \
    X(E_PERM, "owner or mode not safe")                                                                      \
    X(E_NOTFOUND, "not found")                                                                               \
    X(E_EXISTS, "already there")                                                                             \
    X(E_FULL, "no room")                                                                                     \
    X(E_BUSY, "in use by another process")                                                                   \
    X(E_UNSUPPORTED, "not supported here")                                                                   \
    X(E_ENV, "environment does not match")                                                                   \
    X(E_REFUSED, "refused by the judge")                                                                     \
    X(E_TIMEOUT, "took too long")                                                                            \
    X(E_CRASH, "child process crashed")                                                                      \
    X(E_INTERRUPTED, "interrupted")                                                                          \
    X(E_TRUST, "not signed by a trusted key")

enum kfit_status {
#define KFIT_X(name, text) KFIT_##name,
    KFIT_STATUS_LIST(KFIT_X)
#undef KFIT_X
        KFIT_STATUS_COUNT
};

/* Details of a failure. Caller storage; zero-initialise. Always NUL-terminated, never holds secrets. */
struct kfit_error {
    char text[512];
};

/* A constant English phrase for s; never NULL. Thread-safety: any. */
const char *kfit_status_str(enum kfit_status s);

/* Formats into err (which may be NULL) and returns s, so that `return kfit_fail(err, KFIT_E_IO, ...)` reads
 * well. A text that does not fit is cut at the end. Thread-safety: as err. */
#if defined(__GNUC__)
__attribute__((format(printf, 3, 4)))
#endif
enum kfit_status
kfit_fail(struct kfit_error *err, enum kfit_status s, const char *fmt, ...);

#ifdef __cplusplus
}
#endif
#endif
