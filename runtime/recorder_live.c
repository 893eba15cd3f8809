/* The writing end of a trace, for a GPU: which kernels others launch, and what executable graphs hold. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "kfit/hash.h"
#include "proc.h"
#include "recorder.h"
#include "trace_layout.h"

uint64_t kfit_trace_kernel_hash(const char *name, uint64_t image_hash)
{
    uint64_t hash = XXH3_64bits_withSeed(name, strlen(name), image_hash);
    return hash ? hash : 1;
}

/* ---- kernels ---- */

/* Claimed by hash, as slots are. An entry that another thread is still writing will be of the same kernel: two of
 * one hash are taken for one. NULL if limit entries are in use. */
static struct kfit_trace_kernel *kernel_of(struct kfit_recorder *r, const char *name, uint64_t image_hash,
                                           uint32_t limit)
{
    enum { MASK = KFIT_LIVE_KERNELS - 1 };
    const uint64_t hash = kfit_trace_kernel_hash(name, image_hash);
    uint32_t *used = &r->header->live.kernels_used;
    for (uint32_t i = 0, at = (uint32_t)hash & MASK; i <= MASK; i++, at = (at + 1) & MASK) {
        struct kfit_trace_kernel *k = &r->kernels[at];
        uint64_t seen = __atomic_load_n(&k->hash, __ATOMIC_ACQUIRE);
        if (seen == hash)
            return k;
        if (seen)
            continue;
        if (__atomic_load_n(used, __ATOMIC_RELAXED) >= limit)
            return NULL;
        if (!__atomic_compare_exchange_n(&k->hash, &seen, hash, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
            if (seen == hash)
                return k;
            continue;
        }
        __atomic_fetch_add(used, 1, __ATOMIC_RELAXED);
        __atomic_store_n(&k->state, KFIT_SLOT_CLAIMED, __ATOMIC_RELAXED);
        k->image_hash = image_hash;
        snprintf(k->name, sizeof k->name, "%s", name);
        __atomic_store_n(&k->state, KFIT_SLOT_READY, __ATOMIC_RELEASE);
        return k;
    }
    return NULL;
}

struct kfit_trace_kernel *kfit_recorder_kernel(struct kfit_recorder *r, const char *name, uint64_t image_hash)
{
    char text[sizeof((struct kfit_trace_kernel *)0)->name];
    if (!r || !r->kernels)
        return NULL;
    kfit_copy_printable(text, sizeof text, name ? name : "?");
    struct kfit_trace_kernel *k = kernel_of(r, text, image_hash, KFIT_LIVE_KERNELS - KFIT_LIVE_KERNELS / 8);
    return k ? k : kernel_of(r, KFIT_TRACE_OTHER_KERNELS, 0, KFIT_LIVE_KERNELS);
}

/* ---- graphs ---- */

/* Takes n of room; returns where they begin, which may be beyond it. The counter ends at its largest value. */
static uint32_t take(uint32_t *used, uint32_t n)
{
    uint32_t at = __atomic_load_n(used, __ATOMIC_RELAXED), then;
    do
        then = n > UINT32_MAX - at ? UINT32_MAX : at + n;
    while (!__atomic_compare_exchange_n(used, &at, then, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    return at;
}

/* The next item of a list, alike neighbours joined; *at moves on. */
static struct kfit_trace_item next(const struct kfit_trace_item *items, uint32_t count, uint32_t *at)
{
    struct kfit_trace_item item = items[(*at)++];
    while (*at < count && items[*at].what == item.what && items[*at].decision == item.decision &&
           items[*at].times <= UINT16_MAX - item.times)
        item.times = (uint16_t)(item.times + items[(*at)++].times);
    return item;
}

/* Whether what graph g has in the trace is just these. */
static bool same_items(const struct kfit_recorder *r, const struct kfit_trace_graph *g,
                       const struct kfit_trace_item *items, uint32_t count)
{
    const struct kfit_trace_item *have = r->items + g->first;
    uint32_t n = 0;
    for (uint32_t at = 0; at < count; n++) {
        if (n == g->count)
            return false;
        const struct kfit_trace_item item = next(items, count, &at);
        if (memcmp(&have[n], &item, sizeof item))
            return false;
    }
    return n == g->count;
}

static uint32_t in_use(const struct kfit_recorder *r)
{
    uint32_t used = __atomic_load_n(&r->header->live.graphs_used, __ATOMIC_RELAXED);
    return used < KFIT_LIVE_GRAPHS ? used : KFIT_LIVE_GRAPHS;
}

/* Gives g its items: those of a graph with just these, or room of their own, cut where it ends. */
static void fill(struct kfit_recorder *r, struct kfit_trace_graph *g, const struct kfit_trace_item *items,
                 uint32_t count, uint32_t joined)
{
    for (uint32_t i = 0, n = in_use(r); i < n; i++) {
        const struct kfit_trace_graph *other = &r->graphs[i];
        if (__atomic_load_n(&other->state, __ATOMIC_ACQUIRE) >= KFIT_GRAPH_READY && other->count == joined &&
            same_items(r, other, items, count)) {
            g->first = other->first;
            g->count = joined;
            return;
        }
    }
    const uint32_t first = take(&r->header->live.items_used, joined);
    const uint32_t room = first < KFIT_LIVE_ITEMS ? KFIT_LIVE_ITEMS - first : 0;
    g->first = room ? first : 0;
    g->count = joined < room ? joined : room;
    uint32_t at = 0;
    for (uint32_t i = 0; i < g->count; i++)
        r->items[first + i] = next(items, count, &at);
    for (; at < count; at++)
        g->lost += items[at].times;
}

/* A graph that is gone and was just this one: a program that captures the same again and again needs one entry. */
static struct kfit_trace_graph *revive(struct kfit_recorder *r, uint32_t device,
                                       const struct kfit_trace_item *items, uint32_t count)
{
    for (uint32_t i = 0, n = in_use(r); i < n; i++) {
        struct kfit_trace_graph *g = &r->graphs[i];
        uint32_t gone = KFIT_GRAPH_GONE;
        if (__atomic_load_n(&g->state, __ATOMIC_ACQUIRE) == gone && g->device == device && !g->lost &&
            same_items(r, g, items, count) &&
            __atomic_compare_exchange_n(&g->state, &gone, KFIT_GRAPH_READY, false, __ATOMIC_ACQ_REL,
                                        __ATOMIC_RELAXED))
            return g;
    }
    return NULL;
}

struct kfit_trace_graph *kfit_recorder_graph(struct kfit_recorder *r, uint32_t device,
                                             const struct kfit_trace_item *items, uint32_t count)
{
    if (!r || !r->graphs)
        return NULL;
    struct kfit_trace_graph *g = revive(r, device, items, count);
    if (g)
        return g;
    uint32_t ours = 0, joined = 0;
    for (uint32_t at = 0; at < count; joined++) {
        const struct kfit_trace_item item = next(items, count, &at);
        if (kfit_item_is_ours(&item))
            ours += item.times;
    }
    const uint32_t index = take(&r->header->live.graphs_used, 1);
    if (index >= KFIT_LIVE_GRAPHS) {
        if (ours)
            take(&r->header->live.ours_unlisted, 1);
        return NULL;
    }
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    g = &r->graphs[index];
    __atomic_store_n(&g->state, KFIT_GRAPH_CLAIMED, __ATOMIC_RELAXED);
    g->number = index;
    g->device = device;
    g->ours = ours;
    g->made_unix_ns = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
    fill(r, g, items, count, joined);
    __atomic_store_n(&g->state, KFIT_GRAPH_READY, __ATOMIC_RELEASE);
    return g;
}
