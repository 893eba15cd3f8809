#include <stddef.h>
#include <sys/mman.h>

#include "lists.h"

/* All lists together, so that a program which never destroys a graph costs no more. */
enum { LIST_BYTES = 4096, LISTS_BYTES = 4 << 20 };

static uint32_t lists_bytes;
static bool lost_slabs;

uint32_t *kfit_making(const struct kfit_gpu *gpu)
{
    uint32_t *making = &kfit_recorder_header(kfit_recorder_of(gpu))->making;
    __atomic_fetch_add(making, 1, __ATOMIC_SEQ_CST);
    return making;
}

void kfit_made(uint32_t *making)
{
    if (making)
        __atomic_fetch_sub(making, 1, __ATOMIC_RELEASE);
}

void kfit_slabs_lose(void)
{
    __atomic_store_n(&lost_slabs, true, __ATOMIC_RELAXED);
}

bool kfit_slabs_are_lost(void)
{
    return __atomic_load_n(&lost_slabs, __ATOMIC_RELAXED);
}

void kfit_list_give(struct kfit_list *l, uint64_t to)
{
    if (l && l->slabs) {
        l->slabs = KFIT_SLABS_GIVEN;
        l->given = to;
    }
}

void kfit_list_free(struct kfit_list *l)
{
    if (l) {
        kfit_made(l->making);
        lists_bytes -= l->bytes;
        munmap(l, l->bytes);
    }
}

/* A larger one in its place, or a first one; NULL: no room, and the old one as it was. */
static struct kfit_list *list_grow(struct kfit_list *l)
{
    uint32_t had = l ? l->bytes : 0, want = l ? 2 * had : LIST_BYTES;
    if (want - had > LISTS_BYTES - lists_bytes)
        return NULL;
    struct kfit_list *more = l ? mremap(l, had, want, MREMAP_MAYMOVE)
                               : mmap(NULL, want, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (more == MAP_FAILED)
        return NULL;
    more->bytes = want;
    lists_bytes += want - had;
    return more;
}

struct kfit_list *kfit_list_begun(struct kfit_list **at, struct kfit_gpu *gpu)
{
    if (!*at && (*at = list_grow(NULL)))
        (*at)->gpu = gpu;
    return *at;
}

void kfit_list_add(struct kfit_list **at, struct kfit_gpu *gpu, struct kfit_trace_item item)
{
    struct kfit_list *l = kfit_list_begun(at, gpu);
    if (!l)
        return;
    if (kfit_item_is_ours(&item) && !l->making)
        l->making = kfit_making(l->gpu);
    struct kfit_trace_item *last = l->count ? &l->items[l->count - 1] : NULL;
    if (gpu == l->gpu && last && last->what == item.what && last->decision == item.decision &&
        last->times <= UINT16_MAX - item.times) {
        last->times = (uint16_t)(last->times + item.times);
        return;
    }
    if (gpu == l->gpu && offsetof(struct kfit_list, items[l->count + 1]) > l->bytes) {
        struct kfit_list *more = list_grow(l);
        l = more ? *at = more : l;
    }
    if (gpu == l->gpu && offsetof(struct kfit_list, items[l->count + 1]) <= l->bytes)
        l->items[l->count++] = item;
    else
        l->lost += item.times;
}

void kfit_list_append(struct kfit_list **at, const struct kfit_list *more)
{
    for (uint32_t i = 0; more && i < more->count; i++)
        kfit_list_add(at, more->gpu, more->items[i]);
    if (more && *at)
        (*at)->lost += more->lost;
    if (more && more->slabs) {
        struct kfit_list *l = kfit_list_begun(at, more->gpu);
        if (!l)
            kfit_slabs_lose();
        else if (!l->slabs) /* else what was made of the others may still run */
            l->slabs = KFIT_SLABS_OWN;
    }
}

struct kfit_list *kfit_list_of(kfit_cu_graph graph)
{
    const struct kfit_handle *h = kfit_handle_find(KFIT_GRAPHS, kfit_handle_key(graph));
    return h ? (struct kfit_list *)(uintptr_t)h->value : NULL;
}

void kfit_list_put(kfit_cu_graph graph, struct kfit_list *l)
{
    const struct kfit_handle h = {kfit_handle_key(graph), 0, kfit_handle_key(l), {0}};
    if (l && !kfit_handle_put(KFIT_GRAPHS, &h)) {
        if (l->slabs)
            kfit_slabs_lose();
        kfit_list_free(l);
    }
}
