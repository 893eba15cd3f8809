/* kfit/kfit.h - kfit for servers that link it, rather than run under the preload shim.
 *
 *     struct kfit_open_params params = kfit_params_from_environment();
 *     params.blas = (const void *)cblas_sgemm;
 *     struct kfit *k = NULL;
 *     if (kfit_open(&k, &params, message, sizeof message) != 0)
 *         fprintf(stderr, "%s\n", message);     // k is NULL: all below is legal with it, and does nothing
 *     ...
 *     if (!kfit_try_sgemm(k, order, ta, tb, m, n, p, alpha, a, lda, b, ldb, beta, c, ldc))
 *         cblas_sgemm(order, ta, tb, m, n, p, alpha, a, lda, b, ldb, beta, c, ldc);
 *     ...
 *     kfit_close(k);
 *
 * Each try is counted in the trace; it computes only where the published generation has a kernel proved for
 * exactly this shape. It takes no lock, makes no system call and allocates nothing. After fork the child's
 * first try gives it a trace of its own. Never prints, exits or starts a thread.
 *
 * This header stands alone: nothing else of kfit is needed. Symbols and structs grow only at their ends
 * within one soversion.
 */
#ifndef KFIT_KFIT_H
#define KFIT_KFIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define KFIT_API __attribute__((visibility("default")))
#else
#define KFIT_API
#endif

struct kfit;

/* Zero or NULL is the default everywhere. Texts live only for the call. */
struct kfit_open_params {
    /* "off", "record", "dispatch", "both"; NULL: record if trace_dir is set, dispatch if cache_dir is, off
     * with neither */
    const char *mode;
    const char *cache_dir;  /* where generations are published */
    const char *generation; /* number or 64 hex digits; NULL: the current one */
    const char *trust; /* public keys, or a file of them, one of which must have signed it; NULL: no matter */
    const char *bans;  /* keys that must not run, separated by blanks or newlines */
    /* NULL: $KFIT_TRACE, $XDG_RUNTIME_DIR/kfit or /dev/shm/kfit-<uid>; it is used also when only dispatching:
     * `kfit off` acts through the trace. "" or one that cannot be used: counts in memory only */
    const char *trace_dir;
    const char *label; /* of the deployment */
    /* One function of the BLAS that runs otherwise, such as (const void *)cblas_sgemm: tells tuning what to
     * beat, and asks OpenBLAS for its threads */
    const void *blas;
    const char *blas_naming; /* how that BLAS names cblas functions; NULL: "cblas_%s" */
    int blas_threads;        /* if it is not an OpenBLAS, which is asked; 0: unknown */
    /* Directory of this host's bans and of the memory of crashes. NULL: neither. With it, a process that has run
     * a kernel and ends without kfit_close counts as crashed; two such ends in ten minutes, and this program
     * only records until `kfit on` */
    const char *state_dir;
    const char *allow; /* origins of kernels that may run, "seed:*,person:alice"; NULL: all */
    bool strict;       /* kernels tuned with another BLAS or compiler do not run */
    bool follow;       /* take over newly approved generations; never in one of several ranks */
};

/* KFIT_MODE, KFIT_CACHE, KFIT_GENERATION, KFIT_TRUST, KFIT_BAN, KFIT_TRACE, KFIT_LABEL, KFIT_STATE, KFIT_ALLOW,
 * KFIT_STRICT, KFIT_FOLLOW (none in a setuid program). The texts are the environment's own. A KFIT_STRICT that is neither 0
 * nor 1 is taken as 1, such a KFIT_FOLLOW as 0. */
KFIT_API struct kfit_open_params kfit_params_from_environment(void);

/* Returns 0 and an object, or a negative number, *out NULL and the reason in message (may be NULL). A missing
 * or damaged generation or trace directory is not a failure: kfit_state says what runs and why. Mode "off"
 * gives *out NULL and 0. Thread-safety: any thread; the object may be used by all threads at once. */
KFIT_API int kfit_open(struct kfit **out, const struct kfit_open_params *params, char *message, size_t size);

/* Only when no thread can be in a try. NULL is legal. */
KFIT_API void kfit_close(struct kfit *k);

/* Arguments as cblas_{s,d}gemm takes them; order 101 row-major, 102 column-major; transposes 111 no, 112 and
 * 113 yes. True: the result is in c. False: nothing was touched, call your BLAS. Any thread, k
 * NULL is legal. */
KFIT_API bool kfit_try_sgemm(struct kfit *k, int order, int trans_a, int trans_b, int64_t m, int64_t n,
                             int64_t p, float alpha, const float *a, int64_t lda, const float *b, int64_t ldb,
                             float beta, float *c, int64_t ldc);
KFIT_API bool kfit_try_dgemm(struct kfit *k, int order, int trans_a, int trans_b, int64_t m, int64_t n,
                             int64_t p, double alpha, const double *a, int64_t lda, const double *b,
                             int64_t ldb, double beta, double *c, int64_t ldc);

/* Notes one call that cannot be tried (another operation), so that reports know their share. */
KFIT_API void kfit_note_other(struct kfit *k);

/* Tells that the BLAS now runs with this many threads: kernels tuned for another count stay
 * away. Any thread. */
KFIT_API void kfit_note_threads(struct kfit *k, int blas_threads);

/* One line for people: the generation and its kernels, or why nothing is dispatched; then the trace file.
 * Returns its length, cut to size. */
KFIT_API size_t kfit_state(struct kfit *k, char *buf, size_t size);

#ifdef __cplusplus
}
#endif
#endif
