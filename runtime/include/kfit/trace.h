/* kfit/trace.h - the trace file: what one process called, how often, and what became of it.
 *
 * One file per process for its host calls and one for each of its GPUs, whose name has a suffix:
 * `<boot id>-<pid namespace>-<pid>-<start time>[-cuda<n>].kft`, mapped shared while the process lives, so that it
 * survives SIGKILL and can be read at any time. Layout, little-endian, version 1:
 *
 *   0                     struct kfit_trace_header (4096 bytes)
 *   header_bytes          slot_count x struct kfit_trace_slot, open addressing, linear probing from
 *                         hash & (slot_count - 1)
 *   live.kernels_at       live.kernel_count x struct kfit_trace_kernel, open addressing as slots   (cuda only)
 *   live.graphs_at        live.graph_count x struct kfit_trace_graph, in order of making           (cuda only)
 *   live.items_at         live.item_count x struct kfit_trace_item, each graph's in one piece, which graphs
 *                         that hold the same share                                                 (cuda only)
 *
 * A slot goes EMPTY -> CLAIMED -> READY; readers skip and count CLAIMED ones and slots whose key does not
 * pass kfit_key_check or does not match its hash. Only a bad header refuses a file. Counters are relaxed
 * atomics. Shapes and times only, never tensor contents.
 *
 * Version rules: golden bytes in tests/golden/. A field may be taken from the front of `reserved` within a
 * version if zero means "not known" in it: older writers left zero there, older readers pass over it. Any
 * other change of these structs is a new version.
 */
#ifndef KFIT_TRACE_H
#define KFIT_TRACE_H

#include <stdbool.h>
#include <stdint.h>

#include "kfit/env.h"
#include "kfit/key.h"
#include "kfit/log.h"
#include "kfit/reason.h"

#ifdef __cplusplus
extern "C" {
#endif

#define KFIT_TRACE_MAGIC         "kfittrc"
#define KFIT_TRACE_VERSION       1u
#define KFIT_TRACE_SLOTS_DEFAULT 16384u
#define KFIT_TRACE_SLOTS_MAX     (1u << 20)
#define KFIT_TRACE_KERNELS_MAX   (1u << 16)
#define KFIT_TRACE_GRAPHS_MAX    (1u << 16)
#define KFIT_TRACE_ITEMS_MAX     (1u << 20)
#define KFIT_TRACE_REASONS       20 /* counters per slot, >= KFIT_REASON_COUNT */
#define KFIT_TRACE_GENERICS      4

enum kfit_slot_state { KFIT_SLOT_EMPTY, KFIT_SLOT_CLAIMED, KFIT_SLOT_READY };
/* Bits of the control word: byte 0 says whether to run, byte 1 asks a process that follows new generations to
 * look for one. Each byte has one kind of writer, so that none undoes another's. */
enum kfit_control { KFIT_CONTROL_RUN = 0, KFIT_CONTROL_OFF = 1, KFIT_CONTROL_RELOAD = 0x100 };
enum kfit_mode { KFIT_MODE_OFF, KFIT_MODE_RECORD, KFIT_MODE_DISPATCH, KFIT_MODE_BOTH };

/* A library that provides the generic: where it lives, how it names its functions, what it says of itself. */
struct kfit_generic {
    char path[256];    /* file the process has loaded */
    char naming[32];   /* pattern with one %s, e.g. "cblas_%s", "scipy_cblas_%s64_" */
    char config[128];  /* e.g. "OpenBLAS 0.3.21 ... Zen MAX_THREADS=64" */
    int32_t threads;   /* at the time of the first call; 0 unknown */
    uint32_t int_bits; /* 32 or 64: width of its integers */
};

struct kfit_trace_slot {  /* 320 bytes */
    uint32_t state;       /* enum kfit_slot_state */
    uint32_t generic;     /* library last called for it: index into header.generics, if < generic_count */
    uint64_t hash;        /* kfit_key_hash(&key); never 0 in a slot in use */
    uint32_t last_seen_s; /* CLOCK_REALTIME_COARSE seconds, refreshed now and then */
    uint32_t zero;
    uint64_t zero2;
    uint64_t count[KFIT_TRACE_REASONS]; /* by enum kfit_reason; [0] = calls that ran a kfit kernel */
    union kfit_key key;
};

/* ---- cuda only: graphs and kernels ----
 *
 * A call made while its stream captures runs when the graph does. It is no count of its slot but an item of the
 * graph, in order with all others, and counts once per launch of the graph. Reading a trace adds these to the
 * slots' and kernels' counts, so that all who come after see calls, however they came about. */

/* A kernel that some library launched, seen at the driver: who else works on this GPU, and how often. Those beyond
 * the room share one entry, so that the launches are all there. */
#define KFIT_TRACE_OTHER_KERNELS "(others)"
enum kfit_launched_by { KFIT_LAUNCHED_OTHER, KFIT_LAUNCHED_IN_OP, KFIT_LAUNCHED_BY };
struct kfit_trace_kernel { /* 256 bytes */
    uint32_t state;        /* enum kfit_slot_state */
    uint32_t zero;
    uint64_t hash;                       /* of name and image_hash; never 0 in an entry in use */
    uint64_t image_hash;                 /* XXH3-64 of the image it was loaded from; 0: not known */
    uint64_t launches[KFIT_LAUNCHED_BY]; /* on its own; from within a hooked call, which has a slot */
    char name[216];                      /* cut if longer */
};

/* An executable graph. CLAIMED -> READY; GONE once destroyed or given other contents by an update (a new entry then).
 * One that is made again just as it was takes its GONE entry over. */
enum kfit_graph_state { KFIT_GRAPH_EMPTY, KFIT_GRAPH_CLAIMED, KFIT_GRAPH_READY, KFIT_GRAPH_GONE };
struct kfit_trace_graph {  /* 64 bytes */
    uint32_t state;        /* enum kfit_graph_state */
    uint32_t first, count; /* its items */
    uint32_t lost;         /* calls and launches that found no room among the items */
    uint32_t ours;         /* calls that are a kernel of kfit's in it */
    uint32_t device;       /* ordinal, as the process sees devices */
    uint64_t launches;
    int64_t made_unix_ns;
    uint32_t number, zero; /* its place, from 0: what people call it */
    uint64_t zero2[2];
};

/* One call or launch, or several alike in a row. */
enum { KFIT_ITEM_KERNEL = 1u << 31, KFIT_ITEM_INDEX = KFIT_ITEM_KERNEL - 1, KFIT_ITEM_UNKNOWN = UINT32_MAX };
struct kfit_trace_item { /* 8 bytes */
    uint32_t what;       /* index of a slot, or KFIT_ITEM_KERNEL | index of a kernel */
    uint16_t
        decision;   /* of a slot: enum kfit_reason, NONE: kfit's kernel; of a kernel: enum kfit_launched_by */
    uint16_t times; /* never 0 */
};

/* Whether it is a kernel of kfit's. */
static inline bool kfit_item_is_ours(const struct kfit_trace_item *item)
{
    return !(item->what & KFIT_ITEM_KERNEL) && item->decision == KFIT_REASON_NONE;
}

/* Where they are. All zero: there are none (host). */
struct kfit_trace_live {
    uint64_t kernels_at, graphs_at, items_at;       /* from the beginning of the file */
    uint32_t kernel_count, graph_count, item_count; /* room, not use */
    uint32_t kernels_used, graphs_used,
        items_used; /* graphs and items may exceed the room: what found none */
    uint32_t
        ours_unlisted; /* graphs that found none and hold kernels of kfit's: whether they live is not known */
    uint32_t zero;
};

/* What the process made of its generation. Written whenever one is loaded, before `generation`. */
struct kfit_trace_loaded {
    int64_t unix_ns;    /* when; 0: nothing was loaded, or by a kfit that did not say */
    uint32_t winners;   /* kernels loaded, stale and banned ones included */
    uint32_t stale;     /* of these: tuned with another compiler, BLAS or driver */
    uint32_t negatives; /* keys whose generic was kept */
    uint32_t banned, unusable;
    uint32_t loads; /* generations this process has loaded so far */
};

struct kfit_trace_header { /* 4096 bytes */
    char magic[8];         /* KFIT_TRACE_MAGIC, NUL-padded */
    uint32_t version, header_bytes, slot_bytes, slot_count;
    uint64_t file_bytes;
    uint32_t slots_used; /* slots claimed so far */
    uint32_t slots_busy; /* calls counted as unkeyed because another thread was still entering their key */
    int32_t pid;
    uint32_t uid;
    uint64_t start_ticks; /* field 22 of /proc/self/stat */
    int64_t start_unix_ns;
    int64_t end_unix_ns;   /* 0 while running or killed */
    int32_t rank;          /* as the launcher says (torchrun, MPI, Slurm); -1 unknown */
    uint32_t mode;         /* enum kfit_mode */
    uint32_t control;      /* enum kfit_control; written by `kfit off`, read by the dispatcher on each call */
    uint32_t state_reason; /* enum kfit_reason: why nothing is dispatched, NONE while dispatching */
    uint64_t generation;   /* 0: none */
    uint8_t generation_digest[32];
    uint64_t unkeyed[KFIT_TRACE_REASONS]; /* calls that never became a key, by reason */
    char boot_id[40];
    char label[64];       /* KFIT_LABEL, printable */
    char program[128];    /* command name and first argument */
    char state_text[256]; /* one sentence for people: what state, why */
    struct kfit_env env;
    uint32_t generic_count;
    uint32_t follows; /* 1: takes over new generations when asked to by KFIT_CONTROL_RELOAD */
    struct kfit_generic generics[KFIT_TRACE_GENERICS];
    uint64_t pid_namespace; /* inode of /proc/self/ns/pid: what pid means */
    /* taken from reserved since version 1 began: zero in older files */
    struct kfit_trace_loaded loaded;
    char cache[256]; /* directory the generation came from, as the process was told; "" if too long to fit */
    char job[96];    /* what the launcher says all ranks have in common; "": not known */
    struct kfit_trace_live live;
    char device[16]; /* "cuda0": the GPU whose calls these are; "": those of the host */
    /* Captures under way, and graphs of which nothing executable was made yet, that hold kernels of kfit's; and captured
     * calls that may become one just now. */
    uint32_t making;
    uint8_t reserved[620];
};

#define KFIT_TRACE_FILES_MAX 1024u /* a directory with more entries takes no new trace */

/* ---- reading (offline; any thread, one object per thread) ---- */

struct kfit_trace; /* a snapshot of a file in private memory */

/* Reads path. Refuses what is not a regular file, larger than the format allows, truncated, or of another
 * version (KFIT_E_FORMAT, KFIT_E_VERSION, KFIT_E_IO with a message). On success *out is owned
 * by the caller. */
enum kfit_status kfit_trace_read(const char *path, struct kfit_trace **out, struct kfit_error *err);
void kfit_trace_destroy(struct kfit_trace *t);

const struct kfit_trace_header *kfit_trace_header(const struct kfit_trace *t);

/* Ready and well-formed slots, in file order. */
size_t kfit_trace_count(const struct kfit_trace *t);
const struct kfit_trace_slot *kfit_trace_at(const struct kfit_trace *t, size_t i);
/* A snapshot's counts have the graphs' in them: each item's launches x times, by its decision. Live graphs and gone
 * ones count alike; what exceeds 64 bits stays at their end. */

/* Slots skipped: being written when read, or with a key that does not pass the check. */
size_t kfit_trace_skipped(const struct kfit_trace *t);

/* Ready and well-formed kernels, in file order. */
size_t kfit_trace_kernel_count(const struct kfit_trace *t);
const struct kfit_trace_kernel *kfit_trace_kernel_at(const struct kfit_trace *t, size_t i);
/* Ready and gone graphs, in order of making. */
size_t kfit_trace_graph_count(const struct kfit_trace *t);
const struct kfit_trace_graph *kfit_trace_graph_at(const struct kfit_trace *t, size_t i);
/* The g->count items of g, in order. Their indices are those of kfit_trace_at and kfit_trace_kernel_at; what names
 * nothing in the trace is KFIT_ITEM_UNKNOWN as a whole. */
const struct kfit_trace_item *kfit_trace_graph_items(const struct kfit_trace *t,
                                                     const struct kfit_trace_graph *g);
/* Kernels, graphs and items skipped: being written when read, or damaged. */
size_t kfit_trace_live_skipped(const struct kfit_trace *t);

/* Launches by who made them: kfit (one per call), a library in a call that kfit knows, anyone else. All zero where
 * no kernels were recorded. */
struct kfit_trace_launches {
    uint64_t ours, in_op, other;
};
struct kfit_trace_launches kfit_trace_launches(const struct kfit_trace *t);

static inline uint64_t kfit_slot_calls(const struct kfit_trace_slot *s)
{
    uint64_t n = 0;
    for (unsigned i = 0; i < KFIT_TRACE_REASONS; i++)
        n += s->count[i];
    return n;
}

/* Adds up the slots of n traces by key (and generic library, matched by path and naming) into a new trace
 * that has no process of its own (pid 0). The environment must be the same in all (KFIT_E_ENV says which
 * differ), unless force. Traces stay the caller's. */
enum kfit_status kfit_trace_merge(const struct kfit_trace *const *in, size_t n, bool force,
                                  struct kfit_trace **out, struct kfit_error *err);

/* Writes t as a new file, atomically (temporary file beside it, then rename): slots and kernels, without graphs. */
enum kfit_status kfit_trace_write(const struct kfit_trace *t, const char *path, struct kfit_error *err);

/* Whether one process wrote both: its host trace and those of its GPUs, or before and after an exec. */
bool kfit_trace_same_process(const struct kfit_trace_header *a, const struct kfit_trace_header *b);

/* Whether the process that wrote t still runs (same boot, pid and start time). A process of another pid
 * namespace cannot be asked for: it counts as running until its trace has an end. */
bool kfit_trace_alive(const struct kfit_trace *t);

/* Whether a control word says off: everything but RUN and a request does. */
static inline bool kfit_control_is_off(uint32_t control)
{
    return control & ~(uint32_t)KFIT_CONTROL_RELOAD;
}

/* Writes to the control word in the file of a live process; it takes effect with that process' next call.
 * RUN and OFF leave a request as it is; RELOAD leaves on and off as they are, and a process that does not
 * follow forgets it. KFIT_E_NOTFOUND if the process is gone. */
enum kfit_status kfit_trace_set_control(const char *path, enum kfit_control value, struct kfit_error *err);

/* Default directory: $KFIT_TRACE, else $XDG_RUNTIME_DIR/kfit, else /dev/shm/kfit-<uid>. Returns length. */
size_t kfit_trace_default_dir(char *buf, size_t size);

/* ---- writing (in the served process) ---- */

struct kfit_recorder;

struct kfit_recorder_params {
    const char *dir;     /* NULL: memory only; made 0700 if missing */
    const char *label;   /* may be NULL */
    uint32_t slot_count; /* power of two; 0: default */
    enum kfit_mode mode;
    const char *suffix; /* of the file's name, "-cuda0": a process has a trace per device. NULL: the host's */
    bool live;          /* with room for kernels and graphs */
};

/* Makes the file in full (O_EXCL | O_NOFOLLOW, 0600, posix_fallocate, so that a full disk is an error here
 * and never a SIGBUS later) and maps it. With dir NULL, or never failing for the caller's sake: on any error
 * the recorder is made memory-only, *out is valid, and the status and err say why no file exists. Only
 * KFIT_E_NOMEM leaves *out NULL. Makes no thread, no output, no malloc. */
enum kfit_status kfit_recorder_create(struct kfit_recorder **out, const struct kfit_recorder_params *params,
                                      struct kfit_error *err);

/* Notes the end in the header and unmaps. The file stays. */
void kfit_recorder_destroy(struct kfit_recorder *r);
/* In a forked child: lets go of the parent's file without a trace in it. Its mapping becomes private zeros,
 * so that a call cut in two by the fork still has memory to write to; r stays the caller's (one
 * page or two). */
void kfit_recorder_abandon(struct kfit_recorder *r);

/* The live header, always followed by the slots; fields other than counters are written only by the creating
 * thread at start, and the state again by the thread that takes over a new generation. */
struct kfit_trace_header *kfit_recorder_header(struct kfit_recorder *r);
const char *kfit_recorder_path(const struct kfit_recorder *r); /* "" if memory only */

/* Finds or makes the slot of key. Returns NULL if the table is full (7/8 in use) or, counted in slots_busy,
 * another thread has been writing that very slot for long. Bounded time, any thread. */
struct kfit_trace_slot *kfit_recorder_slot(struct kfit_recorder *r, const union kfit_key *key, uint64_t hash);

/* Notes the library (matched by path and naming) in the header; returns its index. When the table is full,
 * the last index. Any thread; rare. */
uint32_t kfit_recorder_generic(struct kfit_recorder *r, const struct kfit_generic *g);

/* Finds or makes the entry of a kernel (NULL name: "?"), the shared one if there is no room; NULL if the recorder has
 * none. Any thread; once per function, not per launch. */
struct kfit_trace_kernel *kfit_recorder_kernel(struct kfit_recorder *r, const char *name,
                                               uint64_t image_hash);

/* A new executable graph with these items (times 1 or more each), which are joined where alike neighbours stand; NULL
 * if there is no room. ours is counted here. Items beyond the room are counted as lost. Any thread; rare. Its launches
 * are one relaxed add on ->launches, its end a store of GONE to ->state, after which the entry is not the caller's. */
struct kfit_trace_graph *kfit_recorder_graph(struct kfit_recorder *r, uint32_t device,
                                             const struct kfit_trace_item *items, uint32_t count);

/* What an item says of a slot, of a kernel: h is the recorder's header. */
static inline uint32_t kfit_item_slot(const struct kfit_trace_header *h, const struct kfit_trace_slot *s)
{
    return (uint32_t)(s - (const struct kfit_trace_slot *)(const void *)(h + 1));
}

static inline uint32_t kfit_item_kernel(const struct kfit_trace_header *h, const struct kfit_trace_kernel *k)
{
    const char *first = (const char *)h + h->live.kernels_at;
    return KFIT_ITEM_KERNEL | (uint32_t)(k - (const struct kfit_trace_kernel *)(const void *)first);
}

/* Stores the time in s. Kept out of line: one call in 64. */
void kfit_slot_seen(struct kfit_trace_slot *s);

static inline void kfit_slot_count(struct kfit_trace_slot *s, unsigned reason)
{
    if (__builtin_expect((__atomic_fetch_add(&s->count[reason], 1, __ATOMIC_RELAXED) & 63) == 0, 0))
        kfit_slot_seen(s);
}

#ifdef __cplusplus
}
static_assert(sizeof(struct kfit_trace_header) == 4096 && sizeof(struct kfit_trace_slot) == 320, "format");
static_assert(sizeof(struct kfit_trace_kernel) == 256 && sizeof(struct kfit_trace_graph) == 64 &&
                  sizeof(struct kfit_trace_item) == 8,
              "format");
#else
_Static_assert(sizeof(struct kfit_trace_header) == 4096 && sizeof(struct kfit_trace_slot) == 320, "format");
_Static_assert(sizeof(struct kfit_trace_kernel) == 256 && sizeof(struct kfit_trace_graph) == 64 &&
                   sizeof(struct kfit_trace_item) == 8,
               "format");
#endif
#endif
