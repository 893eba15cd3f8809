/* kfit/state.h - what a host remembers between processes: which keys must not run here, and which generations
 * end badly.
 *
 * A directory (KFIT_STATE), made at the first kernel that a process runs, holds
 *   bans                      keys that must not run on this host, one a line; what follows a # is a comment
 *   run-<pid>-<time>          a process that has run a kernel. It holds a lock on the file (flock, through a
 *                             mapping and not through a descriptor) that ends with it, however it ends, and
 *                             is seen from any PID namespace; a process that ends in order removes the file
 *   held-<digest>-<program>   a generation that this program only records with, until someone clears it
 *
 * An unclean end is a run- file without its lock. A start dates those that it is the first to find; an end
 * counts for KFIT_STATE_WINDOW_S from then. Two ends count as two only if the later process began after the
 * earlier end was found: the ranks of one job that die together are one end, a process killed twice by its
 * supervisor is two. KFIT_STATE_ENDS of one program with one generation make the held- file.
 *
 * What is not seen as a crash: an end by exit(), also with a failure; a process that ran no kernel; one that
 * came by fork and never exec'd (workers of a pool end by _exit and signals as a matter of course); an end
 * before the last boot. What looks like one: any signal that ends the process, SIGTERM and the orchestrator's
 * SIGKILL included, and _exit.
 *
 * Program: command name, first argument and label, as the trace's header has them. Whoever can write there can
 * only take kernels away, never add one. Thread-safety: any, one thread per mark.
 */
#ifndef KFIT_STATE_H
#define KFIT_STATE_H

#include <limits.h>
#include <stdbool.h>

#include "kfit/trace.h"

#ifdef __cplusplus
extern "C" {
#endif

#define KFIT_STATE_ENDS     2
#define KFIT_STATE_WINDOW_S 600

/* $KFIT_STATE, else $XDG_STATE_HOME/kfit, else $HOME/.local/state/kfit. Returns the length, 0 if there is no
 * such place, or if it is /dev/null: nothing shall be remembered. *asked (may be NULL): somebody set KFIT_STATE. */
size_t kfit_state_default_dir(char *buf, size_t size, bool *asked);

/* Of one program with one generation. Texts may hold anything a hostile file held, but end. */
struct kfit_state_held {
    uint64_t generation;
    uint8_t digest[32];
    char program[128], label[64];
    unsigned ends;     /* that led to it; 0: the file does not say */
    int64_t at_unix_s; /* when the last of them was found; 0: the file does not say */
};

/* Whether the process `me` may run kernels of this generation: *is_held, and then *held says why. Dates the
 * ends it finds, removes those out of date, makes the held- file. Errors (the directory cannot be read or is
 * not safe: KFIT_E_PERM, KFIT_E_IO ...) leave *is_held false; a directory that is missing is none. */
enum kfit_status kfit_state_check(const char *dir, const struct kfit_trace_header *me, uint64_t generation,
                                  const uint8_t digest[32], struct kfit_state_held *held, bool *is_held,
                                  struct kfit_error *err);

/* That this process has run a kernel; zero is "no mark". */
struct kfit_state_mark {
    void *lock;
    char path[PATH_MAX];
};
/* Makes the directory (0700) where it is missing. On failure *mark is zero, and nothing is left behind. Holds
 * no descriptor. */
enum kfit_status kfit_state_mark(const char *dir, const struct kfit_trace_header *me, uint64_t generation,
                                 const uint8_t digest[32], struct kfit_state_mark *mark,
                                 struct kfit_error *err);
/* The process ends in order, or has nothing to do with that generation any more. Not in a forked child. */
void kfit_state_unmark(struct kfit_state_mark *mark);

/* The text of the file bans, malloc'ed, at most 1 MiB. KFIT_E_NOTFOUND: there is none, or the directory cannot
 * be looked into. Any other error: it is there and cannot be read. */
enum kfit_status kfit_state_bans(const char *dir, char **text, struct kfit_error *err);

/* Calls fn for each held- file, in no order; fn returns 0 to go on. A directory that is missing has none. */
enum kfit_status kfit_state_each(const char *dir, int (*fn)(void *ctx, const struct kfit_state_held *h),
                                 void *ctx, struct kfit_error *err);

/* Forgets every unclean end and held generation; *cleared counts the latter. */
enum kfit_status kfit_state_clear(const char *dir, unsigned *cleared, struct kfit_error *err);

#ifdef __cplusplus
}
#endif
#endif
