/* session.h - the parent's side of one runner: start it, give commands, find out what became of it. */
#ifndef KFIT_SESSION_H
#define KFIT_SESSION_H

#include "clock.h"
#include "kfit/judge.h"

#include "runner.h"

/* Where arguments lie in their regions. END and START touch the inaccessible guard; MIDDLE has bands on both
 * sides and exactly the least alignment the key allows. */
enum kfit_placement { KFIT_PLACE_END, KFIT_PLACE_START, KFIT_PLACE_MIDDLE, KFIT_PLACEMENTS };

struct kfit_session_params {
    const char *runner;
    const struct kfit_generic *generic;
    int threads; /* of the generic; 0: its own choice */
    const union kfit_key *key;
    const void *image[2]; /* KFIT_RUN_CANDIDATE, KFIT_RUN_INCUMBENT; NULL: none */
    size_t image_bytes[2];
    const struct kfit_plan *plan[2];
    size_t cold_bytes; /* memory that a cold timing may rotate over */
};

struct kfit_session {
    pid_t pid; /* 0: not running */
    int socket, arena_fd, schedstat;
    uint8_t *arena;
    size_t arena_bytes;
    struct kfit_runner_control *control;
    const struct kfit_op *op;
    union kfit_key key;
    unsigned nargs; /* of the op; argument nargs is the workspace, nargs + 1 the incumbent's */
    struct kfit_tensor tensor[KFIT_RUNNER_ARGS];
    size_t bytes[KFIT_RUNNER_ARGS]; /* of each argument */
    uint64_t at[KFIT_RUNNER_ARGS];  /* present placement */
    double call_ns;                 /* rough time of the generic, for time limits */
};

/* Starts a runner and waits until it is isolated. *s is caller storage; finish it also after an error. */
enum kfit_status kfit_session_start(struct kfit_session *s, const struct kfit_session_params *params,
                                    struct kfit_error *err);
void kfit_session_finish(struct kfit_session *s);

void kfit_session_place(struct kfit_session *s, enum kfit_placement where);
uint8_t *kfit_session_arg(const struct kfit_session *s, unsigned i); /* at its present placement */
uint8_t *kfit_session_snapshot(const struct kfit_session *s, unsigned i);
uint8_t *kfit_session_restore(const struct kfit_session *s);

/* Runs one command and waits at most limit_ns. KFIT_OK with *code NONE: done. KFIT_OK with a code: the image
 * that ran did it (`at` says where), the runner is gone unless the code is one it survives (wrong:stack,
 * wrong:fp_state). Any other status is not the image's fault. outer_ns may be NULL. */
enum kfit_status kfit_session_command(struct kfit_session *s, enum kfit_runner_command command,
                                      double limit_ns, double *outer_ns, enum kfit_code *code, char at[64],
                                      struct kfit_error *err);

/* LAUNCH at the present placement; the limit follows from the generic's time. */
enum kfit_status kfit_session_launch(struct kfit_session *s, enum kfit_who who, unsigned count,
                                     bool restore_each, double *outer_ns, enum kfit_code *code, char at[64],
                                     struct kfit_error *err);

/* What lies around and between the elements of arguments: NaN read as f32 or f64, wherever it starts. */
#define KFIT_BAND UINT64_C(0x7ffc5a5a7fc5a5a5)
void kfit_band_fill(uint8_t *region, size_t from, size_t to);          /* byte i of a region has byte i % 8 */
size_t kfit_band_check(const uint8_t *region, size_t from, size_t to); /* first byte that differs, or to */

/* Time the runner's own thread spent on a processor so far: the second clock, kept by the kernel, out of
 * reach of the runner and deaf to whatever else runs here. The runner must be waiting for a command. Negative
 * if there is none. */
double kfit_session_cpu_ns(const struct kfit_session *s);
/* How long all threads of the runner together have been ready and had no processor; 0 where the kernel keeps no
 * account. */
double kfit_session_waited_ns(const struct kfit_session *s);

#endif
