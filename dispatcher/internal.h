/* What the files of the dispatcher share. */
#ifndef KFIT_DISPATCHER_INTERNAL_H
#define KFIT_DISPATCHER_INTERNAL_H

#include "kfit/dispatch.h"

/* The used bytes of a key: in place where they are few, else elsewhere. The length is kept by the holder. */
union kfit_short_key {
    uint64_t words[KFIT_GEMM_KEY_BYTES / 8];
    const union kfit_key *far_key;
};

static inline bool kfit_short_key_equal(const union kfit_short_key *s, unsigned len,
                                        const union kfit_key *key)
{
    if (len != key->h.len)
        return false;
    if (__builtin_expect(len == sizeof s->words, 1)) { /* the usual length, without a loop */
        const uint64_t *a = s->words, *b = key->words;
        return !((a[0] ^ b[0]) | (a[1] ^ b[1]) | (a[2] ^ b[2]) | (a[3] ^ b[3]) | (a[4] ^ b[4]));
    }
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
    float ratio;         /* as measured when tuned */
};

struct kfit_table;

struct kfit_table_info {
    uint64_t generation;
    uint8_t digest[32];
    unsigned winners, negatives, banned, stale, failed;
    size_t workspace[2]; /* largest, by enum kfit_ws_init */
};

/* Opens the generation, loads the images of its winners for this environment and device, applies the bans.
 * *info is filled also on failure, as far as known. On failure *reason is what to tell each call. */
enum kfit_status kfit_table_load(struct kfit_table **out, struct kfit_table_info *info,
                                 const struct kfit_dispatcher_params *params,
                                 const struct kfit_device *device, enum kfit_reason *reason,
                                 struct kfit_error *err);

/* NULL if there is none; table may be NULL. */
const struct kfit_table_entry *kfit_table_find(const struct kfit_table *t, const union kfit_key *key,
                                               uint64_t hash);
size_t kfit_table_count(const struct kfit_table *t);
const struct kfit_table_entry *kfit_table_at(const struct kfit_table *t, size_t i);
void kfit_table_key(const struct kfit_table_entry *e, union kfit_key *key);
void kfit_table_destroy(struct kfit_table *t);

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

#endif
