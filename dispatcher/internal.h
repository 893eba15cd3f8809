/* What the files of the dispatcher share. */
#ifndef KFIT_DISPATCHER_INTERNAL_H
#define KFIT_DISPATCHER_INTERNAL_H

#include <limits.h>

#include "kfit/dispatch.h"
#include "kfit/state.h"

/* The used bytes of a key: in place where they are few, else elsewhere. The length is kept by the holder. */
union kfit_short_key {
    uint64_t words[KFIT_GEMM_KEY_BYTES / 8];
    const union kfit_key *far_key;
};

/* Both of the usual length: without a loop. */
static inline bool kfit_usual_key_equal(const union kfit_short_key *s, const union kfit_key *key)
{
    const uint64_t *a = s->words, *b = key->words;
    return !((a[0] ^ b[0]) | (a[1] ^ b[1]) | (a[2] ^ b[2]) | (a[3] ^ b[3]) | (a[4] ^ b[4]));
}

static inline bool kfit_short_key_equal(const union kfit_short_key *s, unsigned len,
                                        const union kfit_key *key)
{
    if (len != key->h.len)
        return false;
    if (__builtin_expect(len == sizeof s->words, 1))
        return kfit_usual_key_equal(s, key);
    const uint64_t *w = len < sizeof s->words ? s->words : s->far_key->words;
    uint64_t diff = 0;
    for (unsigned i = 0; i < len / 8; i++)
        diff |= w[i] ^ key->words[i];
    return diff == 0;
}

/* Anonymous memory, zero; NULL if there is none. */
void *kfit_map(size_t bytes);
void kfit_unmap(void *p, size_t bytes);

/* ---- table.c: what a generation says of each key; immutable, shared with forked children ---- */

struct kfit_table_entry {
    uint64_t hash;
    struct kfit_kernel kernel;
    union kfit_short_key key;
    uint8_t len, reason; /* enum kfit_reason, NONE: kernel runs */
    uint8_t stale;       /* made with another compiler, BLAS or driver */
    uint8_t origin;      /* index for kfit_table_origin */
    float ratio;         /* as measured when tuned */
};

struct kfit_table;

struct kfit_table_info {
    uint64_t generation;
    uint8_t digest[32];
    unsigned winners, negatives, banned, stale, failed;
    unsigned refused;    /* by params.allow */
    bool of_others;      /* nothing in the generation is for a device of our kind */
    size_t workspace[2]; /* largest, by enum kfit_ws_init */
};

/* Opens the generation, loads the images of its winners for this environment and device, applies the bans of
 * params and those of the host (may be NULL). *info is filled also on failure, as far as known. On failure
 * *reason is what to tell each call. */
enum kfit_status kfit_table_load(struct kfit_table **out, struct kfit_table_info *info,
                                 const struct kfit_dispatcher_params *params, const char *host_bans,
                                 const struct kfit_device *device, enum kfit_reason *reason,
                                 struct kfit_error *err);

/* NULL if there is none; table may be NULL. */
const struct kfit_table_entry *kfit_table_find(const struct kfit_table *t, const union kfit_key *key,
                                               uint64_t hash);
size_t kfit_table_count(const struct kfit_table *t);
const struct kfit_table_entry *kfit_table_at(const struct kfit_table *t, size_t i);
void kfit_table_key(const struct kfit_table_entry *e, union kfit_key *key);
/* Who made it: "seed:colblock". "" if the table holds too many to remember. */
const char *kfit_table_origin(const struct kfit_table *t, const struct kfit_table_entry *e);
void kfit_table_destroy(struct kfit_table *t);

/* ---- allow.c: whose kernels may run ---- */

/* A list of patterns, separated by commas and blanks: an origin, or the beginning of one and a *. Refuses one
 * that names nothing or cannot be meant: then nobody knows whom it allows. list NULL allows all. */
enum kfit_status kfit_allow_check(const char *list, struct kfit_error *err);
bool kfit_allowed(const char *list, const char *origin);

/* ---- explain.c ---- */

/* As kfit_dispatcher_explain, for a dispatcher in this state. */
size_t kfit_explain(const struct kfit_table *table, enum kfit_reason state, const char *state_text,
                    const union kfit_key *key, char *buf, size_t size);

/* alpha or beta that no kernel is made for */
static inline bool kfit_key_scaled(const union kfit_key *key)
{
    return key->h.op == KFIT_OP_GEMM &&
           (key->gemm.alpha == KFIT_SCALAR_OTHER || key->gemm.beta == KFIT_SCALAR_OTHER);
}

/* ---- workspace.c: memory for kernels that need some, made beforehand ---- */

#define KFIT_HOST_WORKSPACE_BYTES (4u << 20) /* in all, half for each kind */

struct kfit_workspaces {
    struct kfit_workspace_pool {
        char *base;
        size_t size;   /* of one */
        uint32_t free; /* bit i: block i is free */
    } pools[2];        /* by enum kfit_ws_init */
};

/* Makes as many workspaces of each size as fit (at most 32). A size of 0 needs none. */
bool kfit_workspaces_init(struct kfit_workspaces *w, const size_t size[2]);
void kfit_workspaces_finish(struct kfit_workspaces *w);

/* Lock-free; NULL if all are in use. */
static inline void *kfit_workspace_take(struct kfit_workspaces *w, unsigned kind, unsigned *index)
{
    struct kfit_workspace_pool *p = &w->pools[kind];
    uint32_t have = __atomic_load_n(&p->free, __ATOMIC_RELAXED);
    while (have)
        if (__atomic_compare_exchange_n(&p->free, &have, have & (have - 1), true, __ATOMIC_ACQUIRE,
                                        __ATOMIC_RELAXED)) {
            *index = (unsigned)__builtin_ctz(have);
            return p->base + *index * p->size;
        }
    return NULL;
}

static inline void kfit_workspace_give(struct kfit_workspaces *w, unsigned kind, unsigned index)
{
    __atomic_fetch_or(&w->pools[kind].free, 1u << index, __ATOMIC_RELEASE);
}

/* ---- the dispatcher: dispatch.c (calls), life.c (creation, fork, end), follow.c (new generations) ---- */

enum {
    KFIT_SEEN = KFIT_TRACE_SLOTS_DEFAULT, /* keys remembered; as many as the trace has slots */
    KFIT_NO_SLOT = -1,
};

/* One key that was called: one cache line. Claimed by its hash, readable once READY. */
struct kfit_seen {
    uint64_t hash;
    const struct kfit_kernel *kernel;
    int32_t slot; /* in the trace; NO_SLOT: counted as unkeyed, by reason or, if full, as FULL */
    uint8_t state, len, reason, full;
    union kfit_short_key key;
};
_Static_assert(sizeof(struct kfit_seen) == 64, "one cache line");

/* KFIT_MARK_NONE -> CLAIMED -> MADE, or from any of them to RETIRED, for good. */
enum kfit_marked { KFIT_MARK_NONE, KFIT_MARK_CLAIMED, KFIT_MARK_MADE, KFIT_MARK_RETIRED };

/* What is decided from one table. A call takes the book once and stays with it. */
struct kfit_book {
    struct kfit_seen seen[KFIT_SEEN];
    union kfit_key *far_keys; /* KFIT_SEEN, taken in order */
    uint32_t seen_used, far_used;
    struct kfit_workspaces workspaces;
    struct kfit_table *table;
    bool borrowed; /* the table belongs to the book of the process that forked this one */
    struct kfit_table_info info;
    uint64_t host_bans; /* hash of the bans of this host it was made with */
    enum kfit_reason state_reason;
    char state_text[256];
    char shown[256]; /* the same, and why there is no trace file */
    uint32_t marked; /* enum kfit_marked */
    struct kfit_state_mark mark;
    struct kfit_book *before;
};

/* Zeroed in a forked child by the kernel (MADV_WIPEONFORK), so that a child knows it is one, and so that a
 * lock held by a thread it does not have is free. */
struct kfit_guard {
    uint32_t born;   /* this process has a trace and a book of its own */
    uint32_t lock;   /* on being born */
    uint32_t reload; /* on taking over a generation */
};

struct kfit_dispatcher {
    struct kfit_guard *guard;
    /* of this process only */
    struct kfit_book *book; /* the last of a list */
    struct kfit_trace_header *header;
    struct kfit_trace_slot *slots;
    struct kfit_recorder *recorder;
    unsigned followed;
    /* set at creation */
    const struct kfit_device *device;
    int threads;
    bool follows, forked;
    struct kfit_dispatcher_params params; /* its texts are copies, in `texts` */
    char *texts;
    size_t texts_bytes;
    struct kfit_env env;
    char record_problem[100]; /* why there is no trace file */
};

static inline bool kfit_born(const struct kfit_dispatcher *d)
{
    return __atomic_load_n(&d->guard->born, __ATOMIC_ACQUIRE);
}

static inline struct kfit_book *kfit_book(const struct kfit_dispatcher *d)
{
    return __atomic_load_n(&d->book, __ATOMIC_ACQUIRE);
}

/* In a forked child: gives it a trace and a book. False if another thread is at it, or nothing can be had. */
bool kfit_reborn(struct kfit_dispatcher *d);
/* A new, empty book; NULL if there is no memory. */
struct kfit_book *kfit_book_make(void);
/* What a process that started now would do: mode, a file named off, a generation, what is remembered of it.
 * False if there is no memory for its workspaces. */
bool kfit_book_choose(struct kfit_dispatcher *d, struct kfit_book *b);
void kfit_book_destroy(struct kfit_book *b);
/* Puts the book's state into the trace's header. */
void kfit_book_show(struct kfit_dispatcher *d, struct kfit_book *b);
/* Before the first kernel of a book runs: once, in one thread, some system calls. */
void kfit_book_mark(struct kfit_dispatcher *d, struct kfit_book *b);
/* No end of this process is an unclean one for the book's generation any more. */
void kfit_book_retire(struct kfit_book *b);

/* Around work in the middle of a program's call: errno stays, and nobody is cancelled half-way. */
struct kfit_visit {
    int error, cancel;
};
struct kfit_visit kfit_visit_begin(void);
void kfit_visit_end(struct kfit_visit v);

/* Whether this process may follow; says so if it was asked to and may not. */
bool kfit_follow_allowed(const struct kfit_dispatcher_params *params);
/* control is not RUN: handles what it asks for, tells whether the original shall run. */
bool kfit_attend(struct kfit_dispatcher *d, uint32_t control);
/* Whether <cache_dir>/off is there; text receives its first line. A file we may not read counts. */
bool kfit_switched_off(const char *cache_dir, char *text, size_t size);

/* ---- fork.c ---- */

/* Around whatever loads libraries: no child of fork() has them half loaded. */
void kfit_load_begin(void);
void kfit_load_end(void);

#endif
