/* kfit/dispatch.h - which kernel for this key? Exact shape or the original.
 *
 * A dispatcher has an immutable table built from one generation (or none), and a grow-only table of the keys
 * seen, one cache line each, which says what to do and where to count. The hot path takes no lock, makes no
 * system call and allocates nothing. It is created lazily and lives until exit. The first call in a forked
 * child gives the child a trace file and a table of seen keys of its own; generation and images are shared,
 * copy on write. One that follows makes both tables anew for each generation it takes over.
 */
#ifndef KFIT_DISPATCH_H
#define KFIT_DISPATCH_H

#include "kfit/device.h"
#include "kfit/env.h"
#include "kfit/key.h"
#include "kfit/op.h"
#include "kfit/reason.h"
#include "kfit/trace.h"

#ifdef __cplusplus
extern "C" {
#endif

struct kfit_dispatcher;

struct kfit_dispatcher_params {
    enum kfit_mode mode;
    const char *cache_dir;  /* NULL: dispatch nothing */
    const char *generation; /* as kfit_generation_open; NULL: current */
    const char *trust;      /* as kfit_generation_open_trusted; NULL: signed or not */
    const char *bans;       /* key texts separated by spaces or newlines; may be NULL */
    const char *allow;      /* origins of records that may run, "seed:*,person:alice"; NULL: all */
    bool strict;            /* what would be stale does not run */
    bool follow;            /* take over newly approved generations: see below */
    const char *state_dir;  /* kfit/state.h: bans of this host, crashes remembered; NULL: neither */
    bool state_optional;    /* nobody asked for state_dir: INFO, not WARN, if it cannot be used */
    const char *trace_dir;  /* NULL: memory-only trace */
    const char *label;
    bool asks_only;             /* for explain, on any machine: images are not loaded, no call may be dispatched */
    const char *hold;           /* why no kernel shall run, whatever mode says; NULL: they may */
    const char *device_suffix;  /* cuda: "-cuda0", of the trace's name; NULL: host */
    size_t workspace_most;      /* cuda: bytes that a kernel may need, to be loaded; host: the dispatcher's own */
    const struct kfit_env *env; /* required: the running process' environment */
    struct kfit_log log;
};

/* Never fails the process: when the generation or the trace cannot be used, the dispatcher works without, and
 * the trace header's state_reason and state_text say why. No object: KFIT_E_NOMEM, KFIT_E_ARG,
 * KFIT_E_UNSUPPORTED (Linux before 4.14). In KFIT_MODE_DISPATCH only keys of the generation are counted one
 * by one, all others in the header's `unkeyed`. */
enum kfit_status kfit_dispatcher_create(struct kfit_dispatcher **out,
                                        const struct kfit_dispatcher_params *params, struct kfit_error *err);
/* Only when no thread can be in a call. */
void kfit_dispatcher_destroy(struct kfit_dispatcher *d);
/* The process is about to end, in order: noted in the trace and in state_dir. Calls may still come, in any
 * thread. Nothing in a forked child that has made no call, or in the child of a vfork. */
void kfit_dispatcher_end(struct kfit_dispatcher *d);

/* Following. The call that finds KFIT_CONTROL_RELOAD in the control word looks for the current generation and,
 * if there is something new, loads it: that one call takes milliseconds; others go on with what they have.
 * Afterwards the process is in the state in which it would be had it started now. What was loaded before stays
 * until exit, since calls may be running it; after KFIT_FOLLOW_MAX generations the process follows no more.
 * Not with `generation`, and not in one of several ranks (as the launcher says): all must hold one table. */
#define KFIT_FOLLOW_MAX 16

/* What to do for one call. */
struct kfit_decision {
    const struct kfit_kernel *kernel; /* NULL: run the original */
    struct kfit_trace_slot *slot;     /* where to count; may be NULL (table full) */
    enum kfit_reason reason;          /* NONE iff kernel */
    int32_t index;                    /* of the slot in the trace; -1: there is none */
    bool full;                        /* that is why, and what is counted */
    bool nowhere;                     /* there is no trace (yet): not counted */
};

/* Looks up and counts one call. Any thread. Cost: see tests/bench. */
struct kfit_decision kfit_dispatch(struct kfit_dispatcher *d, const union kfit_key *key);

/* Counts a call that could not become a key. */
void kfit_dispatch_unkeyed(struct kfit_dispatcher *d, enum kfit_reason reason);

/* The whole of a host gemm: key, lookup, launch. Returns KFIT_REASON_NONE if the result is in c; any other
 * reason means nothing was touched and the original must run. threads: the BLAS thread count now; if it is
 * not the environment's, the original runs. generic: index from kfit_recorder_generic. Any thread. */
enum kfit_reason kfit_dispatch_gemm(struct kfit_dispatcher *d, const struct kfit_gemm_call *call, int threads,
                                    uint32_t generic);

/* A call on a GPU, in steps. None takes a lock, allocates, or makes a CUDA call but the launch. Any thread. generic: index
 * from kfit_recorder_generic.
 *
 * True: counted, and the original must run, as for most calls: then this is all. False: *decision says what to do, and nothing
 * is counted yet. */
bool kfit_dispatch_passes(struct kfit_dispatcher *d, const union kfit_key *key, uint32_t generic, struct kfit_decision *decision);
/* The same, but whatever it is, nothing is counted. */
void kfit_dispatch_decide(struct kfit_dispatcher *d, const union kfit_key *key, uint32_t generic, struct kfit_decision *decision);
/* Runs decision->kernel. args: device pointers in the order of the key's op, nargs of them; workspace: kernel->workspace_bytes
 * that nothing else uses before this launch has ended, zero if the kernel leaves it so. NONE: launched, or captured;
 * LOAD_FAILED: nothing was launched and the original must run. */
enum kfit_reason kfit_dispatch_launch(struct kfit_dispatcher *d, const struct kfit_decision *decision, const void *const args[],
                                      void *workspace, void *stream);
/* Counts what became of it: decision->reason, which the caller may have changed. */
void kfit_dispatch_count(struct kfit_dispatcher *d, const struct kfit_decision *decision);

/* Of so much memory of a GPU, what one kernel may need: there are two kinds. */
static inline size_t kfit_workspace_most(size_t memory)
{
    return memory / 2;
}
/* The most that a kernel of the loaded generation needs, by enum kfit_ws_init. */
void kfit_dispatcher_workspace(struct kfit_dispatcher *d, size_t bytes[2]);

/* This process' recorder; in a forked child its own. NULL if the child could not make one. */
struct kfit_recorder *kfit_dispatcher_recorder(struct kfit_dispatcher *d);

/* One sentence: what state this process is in and why. Valid until destroyed. Any thread. */
const char *kfit_dispatcher_state(struct kfit_dispatcher *d);

/* Text for people: what would happen for key and why, near misses included (same op, one field differs:
 * "differs from a tuned key only in n: 2688, tuned 2624"). Returns the length written. Not a hot path. */
size_t kfit_dispatcher_explain(struct kfit_dispatcher *d, const union kfit_key *key, char *buf, size_t size);

#ifdef __cplusplus
}
#endif
#endif
