/* The hot path: one call's key, found among those seen, decided, counted, run. */
#include <string.h>

#include "kfit/gemm_key.h"
#include "internal.h"

enum { SEEN = KFIT_SEEN, NO_SLOT = KFIT_NO_SLOT, SPINS = 4000 };

/* ---- keys seen ---- */

/* By which a key is found among those seen; never 0, which marks an unused entry. Of the usual length it takes two lines of
 * code, of which a call of cuBLAS leaves none near; the key's own hash takes eight. All bytes decide. */
static inline uint64_t seen_hash_usual(const union kfit_key *key)
{
    const uint64_t prime = 0x9e3779b97f4a7c15u, *w = key->words;
    const uint64_t a = (w[0] ^ w[1] * prime) * prime ^ w[2], b = (w[3] * prime ^ w[4]) * prime;
    const uint64_t h = (a ^ a >> 32) * prime ^ (b ^ b >> 29);
    return (h ^ h >> 32) | 1;
}

static inline uint64_t seen_hash(const union kfit_key *key)
{
    return __builtin_expect(key->h.len == KFIT_GEMM_KEY_BYTES, 1) ? seen_hash_usual(key)
                                                                  : kfit_key_hash(key) | 1;
}

static inline uint32_t seen_place(uint64_t hash)
{
    return (uint32_t)(hash >> 1) & (SEEN - 1);
}

/* What shall become of calls with this key. */
static void decide(struct kfit_dispatcher *d, struct kfit_book *b, const union kfit_key *key, uint64_t hash,
                   struct kfit_seen *e)
{
    const struct kfit_table_entry *t = b->state_reason ? NULL : kfit_table_find(b->table, key, hash);
    bool scaled = kfit_key_scaled(key);
    e->reason = b->state_reason ? (uint8_t)b->state_reason
                : scaled        ? KFIT_REASON_FLAGS
                : t             ? t->reason
                                : KFIT_REASON_NO_RECORD;
    e->kernel = e->reason ? NULL : &t->kernel;
    e->full = false;
    e->slot = NO_SLOT;
    if (e->kernel && __atomic_load_n(&b->marked, __ATOMIC_RELAXED) == KFIT_MARK_NONE)
        kfit_book_mark(d, b);
}

static void fill(struct kfit_dispatcher *d, struct kfit_book *b, const union kfit_key *key, uint64_t hash,
                 struct kfit_seen *e)
{
    decide(d, b, key, hash, e);
    e->len = key->h.len;
    if (e->len <= sizeof e->key.words) {
        memcpy(e->key.words, key->bytes, e->len);
    } else {
        union kfit_key *far_key = &b->far_keys[__atomic_fetch_add(&b->far_used, 1, __ATOMIC_RELAXED)];
        memcpy(far_key->bytes, key->bytes, e->len);
        e->key.far_key = far_key;
    }
    /* a dispatcher that does not record gives slots to keys of its generation only */
    if (d->params.mode != KFIT_MODE_DISPATCH || e->reason == KFIT_REASON_NONE ||
        e->reason == KFIT_REASON_NEGATIVE) {
        struct kfit_trace_slot *slot = kfit_recorder_slot(d->recorder, key, hash);
        e->slot = slot ? (int32_t)(slot - d->slots) : NO_SLOT;
        e->full = !slot;
    }
}

static inline bool ready(const struct kfit_seen *e)
{
    return __atomic_load_n(&e->state, __ATOMIC_ACQUIRE) == KFIT_SLOT_READY;
}

/* A key that finds no room (now): decided anew each time, in the caller's memory. */
static const struct kfit_seen *decide_only(struct kfit_dispatcher *d, struct kfit_book *b,
                                           const union kfit_key *key, bool full, struct kfit_seen *spare)
{
    decide(d, b, key, kfit_key_hash(key), spare);
    spare->full = full;
    return spare;
}

/* Everything but a key that stands where its hash says. NULL: this process has no trace (yet),
 * do not count. */
__attribute__((cold)) static const struct kfit_seen *find_far(struct kfit_dispatcher *d,
                                                              const union kfit_key *key, uint64_t hash,
                                                              struct kfit_seen *spare,
                                                              struct kfit_book **book)
{
    if (!kfit_born(d) && !kfit_reborn(d))
        return NULL;
    struct kfit_book *b = *book = kfit_book(d);
    for (uint32_t at = seen_place(hash);; at = (at + 1) & (SEEN - 1)) {
        struct kfit_seen *e = &b->seen[at];
        uint64_t have = __atomic_load_n(&e->hash, __ATOMIC_ACQUIRE);
        if (!have) {
            if (__atomic_fetch_add(&b->seen_used, 1, __ATOMIC_RELAXED) >= SEEN - SEEN / 8) {
                __atomic_fetch_sub(&b->seen_used, 1, __ATOMIC_RELAXED);
                return decide_only(d, b, key, true, spare);
            }
            if (__atomic_compare_exchange_n(&e->hash, &have, hash, false, __ATOMIC_ACQ_REL,
                                            __ATOMIC_ACQUIRE)) {
                fill(d, b, key, kfit_key_hash(key), e);
                __atomic_store_n(&e->state, KFIT_SLOT_READY, __ATOMIC_RELEASE);
                return e;
            }
            __atomic_fetch_sub(&b->seen_used, 1, __ATOMIC_RELAXED);
        }
        if (have != hash)
            continue;
        for (int spin = 0; !ready(e); spin++) {
            if (spin == SPINS) { /* its thread was stopped half-way: do without */
                __atomic_fetch_add(&d->header->slots_busy, 1, __ATOMIC_RELAXED);
                return decide_only(d, b, key, false, spare);
            }
            __builtin_ia32_pause();
        }
        if (kfit_short_key_equal(&e->key, e->len, key))
            return e;
    }
}

__attribute__((always_inline)) static inline const struct kfit_seen *
find(struct kfit_dispatcher *d, const union kfit_key *key, struct kfit_seen *spare, struct kfit_book **book)
{
    const uint64_t hash = seen_hash(key);
    if (__builtin_expect(kfit_born(d), 1)) {
        struct kfit_book *b = *book = kfit_book(d);
        const struct kfit_seen *e = &b->seen[seen_place(hash)];
        if (__atomic_load_n(&e->hash, __ATOMIC_RELAXED) == hash && ready(e) &&
            kfit_short_key_equal(&e->key, e->len, key))
            return e;
    }
    return find_far(d, key, hash, spare, book);
}

static inline bool is_off(struct kfit_dispatcher *d)
{
    uint32_t control = __atomic_load_n(&d->header->control, __ATOMIC_RELAXED);
    return __builtin_expect(control != KFIT_CONTROL_RUN, 0) && kfit_attend(d, control);
}

static inline struct kfit_trace_slot *slot_of(const struct kfit_dispatcher *d, const struct kfit_seen *e)
{
    return __builtin_expect(e->slot != NO_SLOT, 1) ? &d->slots[e->slot] : NULL;
}

static inline void count(struct kfit_dispatcher *d, struct kfit_trace_slot *slot, bool full, unsigned reason)
{
    if (__builtin_expect(slot != NULL, 1))
        kfit_slot_count(slot, reason);
    else
        __atomic_fetch_add(&d->header->unkeyed[full ? KFIT_REASON_FULL : reason], 1, __ATOMIC_RELAXED);
}

static inline void note_generic(struct kfit_dispatcher *d, const struct kfit_seen *e, uint32_t generic)
{
    if (e->slot != NO_SLOT && __atomic_load_n(&d->slots[e->slot].generic, __ATOMIC_RELAXED) != generic)
        __atomic_store_n(&d->slots[e->slot].generic, generic, __ATOMIC_RELAXED);
}

/* Field by field: a struct that is made and then copied is read in larger parts than it was written, for which the CPU waits. */
static inline void decided(struct kfit_dispatcher *d, const struct kfit_seen *e, struct kfit_decision *x)
{
    const bool nowhere = !e;
    const enum kfit_reason reason = nowhere || is_off(d) ? KFIT_REASON_OFF : (enum kfit_reason)e->reason;
    x->kernel = reason ? NULL : e->kernel;
    x->reason = reason;
    x->index = nowhere ? NO_SLOT : e->slot;
    x->slot = nowhere ? NULL : slot_of(d, e);
    x->full = !nowhere && e->full;
    x->nowhere = nowhere;
}

struct kfit_decision kfit_dispatch(struct kfit_dispatcher *d, const union kfit_key *key)
{
    struct kfit_seen spare;
    struct kfit_book *b = NULL;
    const struct kfit_seen *e = find(d, key, &spare, &b);
    struct kfit_decision x;
    decided(d, e, &x);
    if (e)
        count(d, x.slot, x.full, x.reason);
    return x;
}

void kfit_dispatch_unkeyed(struct kfit_dispatcher *d, enum kfit_reason reason)
{
    if (kfit_born(d) || kfit_reborn(d))
        __atomic_fetch_add(&d->header->unkeyed[reason], 1, __ATOMIC_RELAXED);
}

enum kfit_reason kfit_dispatch_gemm(struct kfit_dispatcher *d, const struct kfit_gemm_call *call, int threads,
                                    uint32_t generic)
{
    union kfit_key key;
    const void *args[3];
    if (!kfit_gemm_key_fill_inline(call, &key, args)) {
        kfit_dispatch_unkeyed(d, KFIT_REASON_FLAGS);
        return KFIT_REASON_FLAGS;
    }
    struct kfit_seen spare;
    struct kfit_book *b = NULL;
    const struct kfit_seen *e = find(d, &key, &spare, &b);
    if (!e)
        return KFIT_REASON_OFF;

    unsigned reason = is_off(d) ? KFIT_REASON_OFF : e->reason, index = 0;
    void *workspace = NULL;
    if (reason == KFIT_REASON_NONE) {
        if (threads != d->threads)
            reason = KFIT_REASON_THREADS;
        else if (e->kernel->workspace_bytes &&
                 !(workspace = kfit_workspace_take(&b->workspaces, e->kernel->workspace_init, &index)))
            reason = KFIT_REASON_WORKSPACE;
    }
    note_generic(d, e, generic);
    count(d, slot_of(d, e), e->full, reason);
    if (reason == KFIT_REASON_NONE) {
        d->device->launch(e->kernel, (void *const *)args, workspace, NULL);
        if (workspace)
            kfit_workspace_give(&b->workspaces, e->kernel->workspace_init, index);
    }
    return (enum kfit_reason)reason;
}

static inline void decide_known(struct kfit_dispatcher *d, const struct kfit_seen *e, uint32_t generic,
                                struct kfit_decision *decision)
{
    decided(d, e, decision);
    if (e)
        note_generic(d, e, generic);
}

void kfit_dispatch_decide(struct kfit_dispatcher *d, const union kfit_key *key, uint32_t generic,
                          struct kfit_decision *decision)
{
    struct kfit_seen spare;
    struct kfit_book *b = NULL;
    decide_known(d, find(d, key, &spare, &b), generic, decision);
}

void kfit_dispatch_count(struct kfit_dispatcher *d, const struct kfit_decision *x)
{
    if (!x->nowhere)
        count(d, x->slot, x->full, x->reason);
}

static inline bool counted(struct kfit_dispatcher *d, const struct kfit_decision *decision)
{
    if (decision->reason == KFIT_REASON_NONE)
        return false;
    kfit_dispatch_count(d, decision);
    return true;
}

__attribute__((noinline)) static bool passes_far(struct kfit_dispatcher *d, const union kfit_key *key,
                                                 uint32_t generic, struct kfit_decision *decision)
{
    kfit_dispatch_decide(d, key, generic, decision);
    return counted(d, decision);
}

__attribute__((hot, noinline)) static bool passes_known(struct kfit_dispatcher *d, const struct kfit_seen *e,
                                                        uint32_t generic, struct kfit_decision *decision)
{
    decide_known(d, e, generic, decision);
    return counted(d, decision);
}

/* All that the call takes which is one of many: of a key of the usual length, that stands where its hash says. */
__attribute__((hot)) bool kfit_dispatch_passes(struct kfit_dispatcher *d, const union kfit_key *key,
                                               uint32_t generic, struct kfit_decision *decision)
{
    if (__builtin_expect(key->h.len != KFIT_GEMM_KEY_BYTES || !kfit_born(d), 0))
        return passes_far(d, key, generic, decision);
    const uint64_t hash = seen_hash_usual(key);
    const struct kfit_seen *e = &kfit_book(d)->seen[seen_place(hash)];
    if (__builtin_expect(__atomic_load_n(&e->hash, __ATOMIC_RELAXED) != hash || !ready(e) ||
                             e->len != KFIT_GEMM_KEY_BYTES || !kfit_usual_key_equal(&e->key, key),
                         0))
        return passes_far(d, key, generic, decision);
    struct kfit_trace_slot *s = &d->slots[e->slot];
    if (__builtin_expect(!e->reason || e->slot == NO_SLOT ||
                             __atomic_load_n(&d->header->control, __ATOMIC_RELAXED) != KFIT_CONTROL_RUN ||
                             __atomic_load_n(&s->generic, __ATOMIC_RELAXED) != generic,
                         0))
        return passes_known(d, e, generic, decision);
    kfit_slot_count(s, e->reason);
    return true;
}

enum kfit_reason kfit_dispatch_launch(struct kfit_dispatcher *d, const struct kfit_decision *decision,
                                      const void *const args[], void *workspace, void *stream)
{
    return d->device->launch(decision->kernel, (void *const *)(uintptr_t)args, workspace, stream) == KFIT_OK
               ? KFIT_REASON_NONE
               : KFIT_REASON_LOAD_FAILED;
}
