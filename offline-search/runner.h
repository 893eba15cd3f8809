/* runner.h - what the judge (parent) and the runner (child) share: one memfd, the arena, mapped by both.
 *
 *   control block | argument regions | workspace | restore | candidate stack | images
 *
 * The runner gets three descriptors: 0 commands (one byte each), 1 replies (one byte each), 3 the arena. It
 * maps every part at an address of its own choosing, far from all others, between inaccessible guards, so
 * that the candidate holds pointers to its arguments and its stack only. Numbers are the machine's own: both
 * sides are the same build, which `version` checks.
 */
#ifndef KFIT_RUNNER_H
#define KFIT_RUNNER_H

#include "kfit/device.h"
#include "kfit/op.h"
#include "kfit/trace.h"

#include "timing.h"

#define KFIT_RUNNER_VERSION  1u
#define KFIT_RUNNER_ARENA_FD 3

#define KFIT_RUNNER_ARGS      6             /* regions; also the pointers that fit into registers */
#define KFIT_RUNNER_GUARD     (16ul << 20)  /* inaccessible bytes on both sides of every region */
#define KFIT_RUNNER_STACK     (256ul << 10) /* bytes of candidate stack below its entry frame */
#define KFIT_RUNNER_CANARY    4096ul        /* bytes above the entry frame that must not change */
#define KFIT_RUNNER_SNAPSHOTS 3u            /* outputs kept per timing command */

enum kfit_who { KFIT_RUN_CANDIDATE, KFIT_RUN_INCUMBENT, KFIT_RUN_GEMM, KFIT_RUN_GEMV };

static inline bool kfit_who_is_image(unsigned who)
{
    return who <= KFIT_RUN_INCUMBENT;
}

enum kfit_runner_command {
    KFIT_RUNNER_LAUNCH = 'l', /* control.launch, on the arena's memory */
    KFIT_RUNNER_FILL = 'c',   /* control.fill: private copies of the arguments, for timing */
    KFIT_RUNNER_PAIRS = 'p',  /* control.pairs, on the private copies */
};
enum kfit_runner_reply { KFIT_RUNNER_READY = 'r', KFIT_RUNNER_DONE = 'd', KFIT_RUNNER_FAILED = 'f' };

struct kfit_runner_region {
    uint64_t offset, bytes; /* in the arena, whole pages */
    uint64_t address;       /* where the runner mapped it; written by the runner */
};

struct kfit_runner_image {
    uint64_t offset, bytes, entry; /* in the arena; entry from its first byte */
};

/* Calls who `count` times. The output is restored from the restore region before each call if restore_each.
 */
struct kfit_runner_launch {
    uint32_t who, count, restore_each;
    uint64_t at[KFIT_RUNNER_ARGS]; /* byte offset of each argument in its region */
};

/* Copies all arguments into `sets` places, laid out as a program's own heap has them. */
struct kfit_runner_fill {
    uint32_t sets;
    uint64_t at[KFIT_RUNNER_ARGS]; /* where they are in their regions */
    uint64_t bytes[KFIT_RUNNER_ARGS];
};

/* Times n pairs of batches: side 0 and side 1, each `reps` calls, in the order given by first[]. With one set
 * the output is restored before each batch, untimed; with more, calls go round all sets (cold). */
struct kfit_runner_pairs {
    uint32_t who[2], reps[2], n;
    uint8_t first[KFIT_PAIRS_MAX];            /* which side goes first */
    uint32_t snapshot[KFIT_RUNNER_SNAPSHOTS]; /* ascending: after side 1 of these pairs the output is kept */
    double ns[2][KFIT_PAIRS_MAX];             /* out: time of each batch by the runner's clock */
};

/* Bytes from one set to the next, and of one argument in a set: 16 bytes into a line, as malloc places
 * arrays. */
static inline uint64_t kfit_runner_slot_bytes(uint64_t bytes)
{
    return bytes ? (bytes + 16 + 127) & ~127ull : 0;
}

struct kfit_runner_control {
    /* written by the parent before the start */
    uint32_t version, nargs; /* nargs: of the op; then come the candidate's and the incumbent's workspace */
    int32_t parent;
    uint32_t threads;
    union kfit_key key;
    struct kfit_generic generic;
    struct kfit_runner_region region[KFIT_RUNNER_ARGS];
    struct kfit_runner_region restore, snapshots, stack;
    struct kfit_runner_image image[2];
    uint64_t out_bytes, private_bytes; /* private: most that fill may ask for */
    uint32_t out_arg, workspace_init;  /* of the candidate: the parent prepares the workspace */

    /* written by the runner */
    uint32_t running;          /* 1 + who while an image runs, else 0 */
    uint32_t done;             /* commands finished */
    uint32_t fp_state_changed; /* MXCSR, x87 control word or direction flag, since the parent cleared it */
    uint32_t has_gemv;
    int32_t fault_signal;
    uint64_t fault_address, fault_ip;
    double enter_ns; /* cost of entering and leaving an image that does nothing */
    char message[256];

    /* one command at a time */
    struct kfit_runner_launch launch;
    struct kfit_runner_fill fill;
    struct kfit_runner_pairs pairs;
};

/* What happens inside `kfit-runner` (isolate.c): no system call but the few that a BLAS thread needs, for
 * every thread, from now on. Returns what is wrong, or NULL. */
const char *kfit_isolate(void);

/* The way into candidate code and back (enter.S). kfit_enter_begin..end is position-independent and is copied
 * to a page of its own. State lives behind %gs. */
struct kfit_enter_state {
    uint64_t saved_sp;     /* offset 0 */
    uint64_t stack_top;    /* offset 8 */
    uint8_t clear_vectors; /* offset 16: AVX is there */
};
typedef uint64_t kfit_enter_fn(const void *entry, void *const args[KFIT_RUNNER_ARGS]); /* returns RFLAGS */
extern const char kfit_enter_begin[], kfit_enter_end[];

#endif
