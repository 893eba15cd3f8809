/* Tables from the driver's handles to what we know of them: open addressing, in memory that a fork wipes. A place whose
 * handle went is used again, so that a program that makes and destroys for days finds short chains. */
#include <sched.h>
#include <string.h>
#include <sys/mman.h>

#include "driver.h"

enum { FREE, TAKEN_OUT, KEYS }; /* a key; handles are addresses, and none of the first. Such a place has no value */
enum { SIZE = KFIT_PLACES, ROOM = KFIT_PLACES_TAKEN };

bool kfit_handles_lock(void)
{
    struct kfit_tables *t = __atomic_load_n(&kfit_driver.handles, __ATOMIC_ACQUIRE), *first = NULL;
    if (!t) {
        t = mmap(NULL, sizeof *t, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (t == MAP_FAILED)
            return false;
        if (madvise(t, sizeof *t,
                    MADV_WIPEONFORK)) { /* Linux before 4.14: the dispatcher does not start either */
            munmap(t, sizeof *t);
            return false;
        }
        if (!__atomic_compare_exchange_n(&kfit_driver.handles, &first, t, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
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
    __atomic_store_n(&kfit_driver.handles->lock, 0, __ATOMIC_RELEASE);
}

static inline uint16_t *owned_by(struct kfit_tables *t, enum kfit_handles which, uint64_t owner)
{
    return &t->owned[which][owner * 0x9e3779b97f4a7c15u >> (64 - KFIT_OWNERS_LOG2)];
}

static inline uint32_t after(uint32_t at)
{
    return (at + 1) & (SIZE - 1);
}

static inline struct kfit_handle *find(struct kfit_tables *t, enum kfit_handles which, uint64_t key)
{
    struct kfit_handle *h = t->at[which];
    for (uint32_t at = kfit_handle_place(key), n = 0; n < SIZE; at = after(at), n++) {
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
    struct kfit_tables *t = __atomic_load_n(&kfit_driver.handles, __ATOMIC_ACQUIRE);
    return t && key >= KEYS ? find(t, which, key) : NULL;
}

bool kfit_handle_put(enum kfit_handles which, const struct kfit_handle *new)
{
    struct kfit_tables *t = kfit_driver.handles;
    struct kfit_handle *h = new->key >= KEYS ? find(t, which, new->key) : NULL;
    if (!h) {
        if (new->key < KEYS || t->used[which] >= ROOM)
            return false;
        t->used[which]++;
        uint32_t at = kfit_handle_place(new->key);
        while (t->at[which][at].key >= KEYS)
            at = after(at);
        h = &t->at[which][at];
    } else
        --*owned_by(t, which, h->owner);
    h->owner = new->owner;
    ++*owned_by(t, which, h->owner);
    __atomic_store_n(&h->given, new->given, __ATOMIC_RELAXED);
    __atomic_store_n(&h->value, new->value, __ATOMIC_RELAXED);
    __atomic_store_n(&h->key, new->key, __ATOMIC_RELEASE);
    return true;
}

/* The last of a chain leaves free places behind it, any other one that a search goes on from. The value goes last: who sees
 * none sees that the key is gone, too. */
static void remove_at(struct kfit_tables *t, enum kfit_handles which, uint32_t at)
{
    struct kfit_handle *h = t->at[which];
    uint64_t key = h[after(at)].key == FREE ? FREE : TAKEN_OUT;
    t->used[which]--;
    --*owned_by(t, which, h[at].owner);
    __atomic_store_n(&h[at].key, key, __ATOMIC_RELEASE);
    __atomic_store_n(&h[at].value, 0, __ATOMIC_RELEASE);
    while (key == FREE && h[at = (at - 1) & (SIZE - 1)].key == TAKEN_OUT)
        __atomic_store_n(&h[at].key, FREE, __ATOMIC_RELEASE);
}

bool kfit_handle_take(enum kfit_handles which, uint64_t key, struct kfit_handle *out)
{
    struct kfit_handle *h = key >= KEYS ? find(kfit_driver.handles, which, key) : NULL;
    if (!h)
        return false;
    *out = *h;
    remove_at(kfit_driver.handles, which, (uint32_t)(h - kfit_driver.handles->at[which]));
    return true;
}

void kfit_handle_drop(enum kfit_handles which, uint64_t owner)
{
    struct kfit_tables *t = kfit_driver.handles;
    const uint16_t *left = owned_by(t, which, owner);
    for (uint32_t at = 0; (owner ? *left : t->used[which]) && at < SIZE; at++)
        if (t->at[which][at].key >= KEYS && (!owner || t->at[which][at].owner == owner))
            remove_at(t, which, at);
}
