/* Tables from the driver's handles to what we know of them: open addressing, in memory that a fork wipes. A place whose
 * handle went is used again, so that a program that makes and destroys for days finds short chains. */
#include <sched.h>
#include <string.h>
#include <sys/mman.h>

#include "driver.h"

enum { FREE, TAKEN_OUT, KEYS }; /* a key; handles are addresses, and none of the first */
/* Places that went in the midst of chains are never all free again. Where less than a quarter is taken they stay few, however
 * long handles come and go; at a half the free ones run out, and a search for what is not there goes through all. */
enum { SIZE_LOG2 = 16, SIZE = 1 << SIZE_LOG2, ROOM = 12 << 10, OWNERS_LOG2 = 12 };

static struct tables {
    uint32_t lock;
    uint32_t used[KFIT_HANDLES];
    uint16_t owned[KFIT_HANDLES][1 << OWNERS_LOG2]; /* by hash of the owner: most have nothing to look for */
    struct kfit_handle at[KFIT_HANDLES][SIZE];
} * tables;

bool kfit_handles_lock(void)
{
    struct tables *t = __atomic_load_n(&tables, __ATOMIC_ACQUIRE), *first = NULL;
    if (!t) {
        t = mmap(NULL, sizeof *t, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (t == MAP_FAILED)
            return false;
        if (madvise(t, sizeof *t,
                    MADV_WIPEONFORK)) { /* Linux before 4.14: the dispatcher does not start either */
            munmap(t, sizeof *t);
            return false;
        }
        if (!__atomic_compare_exchange_n(&tables, &first, t, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
            munmap(t, sizeof *t);
            t = first;
        }
    }
    while (__atomic_exchange_n(&t->lock, 1, __ATOMIC_ACQUIRE))
        sched_yield();
    return true;
}

void kfit_handles_unlock(void)
{
    __atomic_store_n(&tables->lock, 0, __ATOMIC_RELEASE);
}

static inline uint32_t place_of(uint64_t key)
{
    return (uint32_t)(key * 0x9e3779b97f4a7c15u >> (64 - SIZE_LOG2));
}

static inline uint16_t *owned_by(struct tables *t, enum kfit_handles which, uint64_t owner)
{
    return &t->owned[which][owner * 0x9e3779b97f4a7c15u >> (64 - OWNERS_LOG2)];
}

static inline uint32_t after(uint32_t at)
{
    return (at + 1) & (SIZE - 1);
}

static inline struct kfit_handle *find(struct tables *t, enum kfit_handles which, uint64_t key)
{
    struct kfit_handle *h = t->at[which];
    for (uint32_t at = place_of(key), n = 0; n < SIZE; at = after(at), n++) {
        uint64_t seen = __atomic_load_n(&h[at].key, __ATOMIC_ACQUIRE);
        if (seen == key)
            return &h[at];
        if (seen == FREE)
            return NULL;
    }
    return NULL;
}

const struct kfit_handle *kfit_handle_find(enum kfit_handles which, uint64_t key)
{
    struct tables *t = __atomic_load_n(&tables, __ATOMIC_ACQUIRE);
    return t && key >= KEYS ? find(t, which, key) : NULL;
}

bool kfit_handle_put(enum kfit_handles which, const struct kfit_handle *new)
{
    struct tables *t = tables;
    struct kfit_handle *h = new->key >= KEYS ? find(t, which, new->key) : NULL;
    if (!h) {
        if (new->key < KEYS || t->used[which] >= ROOM)
            return false;
        t->used[which]++;
        uint32_t at = place_of(new->key);
        while (t->at[which][at].key >= KEYS)
            at = after(at);
        h = &t->at[which][at];
    } else
        --*owned_by(t, which, h->owner);
    h->owner = new->owner;
    ++*owned_by(t, which, h->owner);
    h->given = new->given;
    __atomic_store_n(&h->value, new->value, __ATOMIC_RELAXED);
    __atomic_store_n(&h->gpu, new->gpu, __ATOMIC_RELAXED);
    __atomic_store_n(&h->key, new->key, __ATOMIC_RELEASE);
    return true;
}

/* The last of a chain leaves free places behind it, any other one that a search goes on from. */
static void remove_at(struct tables *t, enum kfit_handles which, uint32_t at)
{
    struct kfit_handle *h = t->at[which];
    uint64_t key = h[after(at)].key == FREE ? FREE : TAKEN_OUT;
    t->used[which]--;
    --*owned_by(t, which, h[at].owner);
    __atomic_store_n(&h[at].key, key, __ATOMIC_RELEASE);
    while (key == FREE && h[at = (at - 1) & (SIZE - 1)].key == TAKEN_OUT)
        __atomic_store_n(&h[at].key, FREE, __ATOMIC_RELEASE);
}

bool kfit_handle_take(enum kfit_handles which, uint64_t key, struct kfit_handle *out)
{
    struct kfit_handle *h = key >= KEYS ? find(tables, which, key) : NULL;
    if (!h)
        return false;
    *out = *h;
    remove_at(tables, which, (uint32_t)(h - tables->at[which]));
    return true;
}

void kfit_handle_drop(enum kfit_handles which, uint64_t owner)
{
    struct tables *t = tables;
    const uint16_t *left = owned_by(t, which, owner);
    for (uint32_t at = 0; (owner ? *left : t->used[which]) && at < SIZE; at++)
        if (t->at[which][at].key >= KEYS && (!owner || t->at[which][at].owner == owner))
            remove_at(t, which, at);
}
