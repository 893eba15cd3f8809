/* The reading end of a GPU's trace: its kernels, its graphs, and their replays added to what was counted. */
#include <stdlib.h>
#include <string.h>

#include "trace_layout.h"
#include "trace_snapshot.h"

/* ---- kernels ---- */

static bool kernel_is_well_formed(const struct kfit_trace_kernel *k)
{
    return k->state == KFIT_SLOT_READY && memchr(k->name, '\0', sizeof k->name) &&
           k->hash == kfit_trace_kernel_hash(k->name, k->image_hash);
}

static struct kfit_trace_kernel *append(struct kfit_trace *t)
{
    if (t->kernel_count == t->kernel_room) {
        size_t room = t->kernel_room ? 2 * t->kernel_room : 256;
        void *p = realloc(t->kernels, room * sizeof *t->kernels);
        if (!p)
            return NULL;
        t->kernels = p;
        t->kernel_room = room;
    }
    return &t->kernels[t->kernel_count++];
}

/* Finds kernels by hash: place in t + 1, by linear probing. */
struct finder {
    uint32_t *at;
    size_t mask;
};

static bool finder_init(struct finder *f, size_t entries)
{
    size_t room = 16;
    while (room < 2 * entries)
        room *= 2;
    *f = (struct finder){calloc(room, sizeof *f->at), room - 1};
    return f->at != NULL;
}

/* The sum for kernels like k; made if there is none. NULL: no memory. */
static struct kfit_trace_kernel *sum_of(struct kfit_trace *t, struct finder *f,
                                        const struct kfit_trace_kernel *k)
{
    size_t i = k->hash & f->mask;
    for (; f->at[i]; i = (i + 1) & f->mask) {
        struct kfit_trace_kernel *have = &t->kernels[f->at[i] - 1];
        if (have->hash == k->hash && have->image_hash == k->image_hash && !strcmp(have->name, k->name))
            return have;
    }
    struct kfit_trace_kernel *fresh = append(t);
    if (fresh) {
        memset(fresh, 0, sizeof *fresh);
        fresh->state = KFIT_SLOT_READY;
        fresh->hash = k->hash;
        fresh->image_hash = k->image_hash;
        memcpy(fresh->name, k->name, strlen(k->name));
        f->at[i] = (uint32_t)t->kernel_count;
    }
    return fresh;
}

static void add_launches(struct kfit_trace_kernel *sum, const struct kfit_trace_kernel *k)
{
    for (unsigned by = 0; by < KFIT_LAUNCHED_BY; by++)
        kfit_add_sat(&sum->launches[by], k->launches[by]);
}

/* ---- reading ---- */

/* n entries of a file into memory; *out is NULL where there are none. */
static enum kfit_status read_part(int fd, uint64_t at, size_t n, size_t bytes, void *out, const char *path,
                                  struct kfit_error *err)
{
    void *p = NULL;
    if (n && !(p = malloc(n * bytes)))
        return kfit_fail(err, KFIT_E_NOMEM, "trace: no memory for the graphs of %s", path);
    if (n && !kfit_trace_read_at(fd, p, n * bytes, (off_t)at)) {
        free(p);
        return kfit_fail(err, KFIT_E_IO, "trace: cannot read %s: truncated while being read?", path);
    }
    memcpy(out, &p, sizeof p);
    return KFIT_OK;
}

/* Whether the graph can be taken as it is; EMPTY and CLAIMED ones are not there yet. */
static bool graph_is_well_formed(const struct kfit_trace_graph *g, uint32_t item_room)
{
    return (g->state == KFIT_GRAPH_READY || g->state == KFIT_GRAPH_GONE) &&
           (uint64_t)g->first + g->count <= item_room;
}

/* Graphs before their items, items before what they name: what an earlier part names is in a later one. */
enum kfit_status kfit_trace_read_live(struct kfit_trace *t, int fd, uint32_t *where, const char *path,
                                      struct kfit_error *err)
{
    const struct kfit_trace_live *l = &t->header.live;
    struct kfit_trace_kernel *raw = NULL;
    struct finder f = {0};
    enum kfit_status s =
        read_part(fd, l->graphs_at, l->graph_count, sizeof *t->graphs, &t->graphs, path, err);
    if (s == KFIT_OK)
        s = read_part(fd, l->items_at, l->item_count, sizeof *t->items, &t->items, path, err);
    if (s == KFIT_OK)
        s = read_part(fd, l->kernels_at, l->kernel_count, sizeof *raw, &raw, path, err);
    if (s != KFIT_OK)
        return s;
    for (uint32_t i = 0; i < l->graph_count; i++) {
        struct kfit_trace_graph *g = &t->graphs[i];
        g->number = i;
        if (graph_is_well_formed(g, l->item_count))
            t->graphs[t->graph_count++] = *g;
        else
            t->live_skipped += g->state != KFIT_GRAPH_EMPTY;
    }
    if (!finder_init(&f, l->kernel_count))
        goto no_memory;
    for (uint32_t i = 0; i < l->kernel_count; i++) {
        if (!raw[i].state && !raw[i].hash)
            continue;
        if (!kernel_is_well_formed(&raw[i])) {
            t->live_skipped++;
            continue;
        }
        struct kfit_trace_kernel *k = sum_of(t, &f, &raw[i]);
        if (!k)
            goto no_memory;
        add_launches(k, &raw[i]);
        where[t->header.slot_count + i] = (uint32_t)(k - t->kernels) + 1;
    }
    free(f.at);
    free(raw);
    return KFIT_OK;
no_memory:
    free(f.at);
    free(raw);
    return kfit_fail(err, KFIT_E_NOMEM, "trace: no memory for the kernels of %s", path);
}

/* Where what an item counts is in t: a slot's reason or a kernel's kind of launch; NULL if there is no such thing. */
static uint64_t *counter_of(struct kfit_trace *t, struct kfit_trace_item *item, const uint32_t *where)
{
    const bool kernel = item->what & KFIT_ITEM_KERNEL;
    const uint32_t index = item->what & KFIT_ITEM_INDEX;
    const uint32_t room = kernel ? t->header.live.kernel_count : t->header.slot_count;
    const unsigned kinds = kernel ? KFIT_LAUNCHED_BY : KFIT_TRACE_REASONS;
    const uint32_t at = index < room ? where[(kernel ? t->header.slot_count : 0) + index] : 0;
    if (!at || !item->times || item->decision >= kinds) {
        item->what = KFIT_ITEM_UNKNOWN;
        return NULL;
    }
    item->what = (kernel ? KFIT_ITEM_KERNEL : 0) | (at - 1);
    return kernel ? &t->kernels[at - 1].launches[item->decision] : &t->slots[at - 1].count[item->decision];
}

/* Graphs share items. What all graphs launched, item by item, comes of one pass over where each begins and ends:
 * a file that lets every graph hold every item costs no more than another. */
enum kfit_status kfit_trace_fold(struct kfit_trace *t, const uint32_t *where, struct kfit_error *err)
{
    const uint32_t room = t->header.live.item_count;
    if (!room)
        return KFIT_OK;
    struct {
        unsigned __int128 launches; /* as a difference to the item before */
        int64_t graphs;
    } *step = calloc((size_t)room + 1, sizeof *step);
    if (!step)
        return kfit_fail(err, KFIT_E_NOMEM, "trace: no memory for %u items of graphs", room);
    for (size_t i = 0; i < t->graph_count; i++) {
        const struct kfit_trace_graph *g = &t->graphs[i];
        step[g->first].launches += g->launches;
        step[g->first].graphs++;
        step[g->first + g->count].launches -= g->launches;
        step[g->first + g->count].graphs--;
    }
    unsigned __int128 launches = 0;
    int64_t graphs = 0;
    for (uint32_t i = 0; i < room; i++) {
        launches += step[i].launches;
        graphs += step[i].graphs;
        if (!graphs)
            continue;
        uint64_t *counter = counter_of(t, &t->items[i], where);
        if (!counter) {
            t->live_skipped++;
            continue;
        }
        const unsigned __int128 calls = launches * t->items[i].times; /* at most 2^96 */
        kfit_add_sat(counter, calls > UINT64_MAX ? UINT64_MAX : (uint64_t)calls);
    }
    free(step);
    return KFIT_OK;
}

/* ---- what others see ---- */

size_t kfit_trace_kernel_count(const struct kfit_trace *t)
{
    return t->kernel_count;
}

const struct kfit_trace_kernel *kfit_trace_kernel_at(const struct kfit_trace *t, size_t i)
{
    return &t->kernels[i];
}

size_t kfit_trace_graph_count(const struct kfit_trace *t)
{
    return t->graph_count;
}

const struct kfit_trace_graph *kfit_trace_graph_at(const struct kfit_trace *t, size_t i)
{
    return &t->graphs[i];
}

const struct kfit_trace_item *kfit_trace_graph_items(const struct kfit_trace *t,
                                                     const struct kfit_trace_graph *g)
{
    return t->items + g->first;
}

size_t kfit_trace_live_skipped(const struct kfit_trace *t)
{
    return t->live_skipped;
}

struct kfit_trace_launches kfit_trace_launches(const struct kfit_trace *t)
{
    struct kfit_trace_launches sum = {0};
    for (size_t i = 0; i < t->kernel_count; i++) {
        kfit_add_sat(&sum.other, t->kernels[i].launches[KFIT_LAUNCHED_OTHER]);
        kfit_add_sat(&sum.in_op, t->kernels[i].launches[KFIT_LAUNCHED_IN_OP]);
    }
    if (t->kernel_count)
        for (size_t i = 0; i < t->count; i++)
            kfit_add_sat(&sum.ours, t->slots[i].count[KFIT_REASON_NONE]);
    return sum;
}

/* ---- merge, write ---- */

enum kfit_status kfit_trace_merge_kernels(struct kfit_trace *out, const struct kfit_trace *const *in,
                                          size_t n, struct kfit_error *err)
{
    size_t total = 0;
    struct finder f;
    for (size_t i = 0; i < n; i++)
        total += in[i]->kernel_count;
    bool ok = finder_init(&f, total);
    for (size_t i = 0; ok && i < n; i++)
        for (size_t k = 0; ok && k < in[i]->kernel_count; k++) {
            struct kfit_trace_kernel *sum = sum_of(out, &f, &in[i]->kernels[k]);
            if ((ok = sum != NULL))
                add_launches(sum, &in[i]->kernels[k]);
        }
    free(f.at);
    return ok ? KFIT_OK : kfit_fail(err, KFIT_E_NOMEM, "trace merge: no memory for %zu kernels", total);
}

enum kfit_status kfit_trace_kernel_table(const struct kfit_trace *t, struct kfit_trace_kernel **out,
                                         uint32_t *room, struct kfit_error *err)
{
    *out = NULL;
    *room = 0;
    if (!t->kernel_count)
        return KFIT_OK;
    for (*room = 8; *room - *room / 8 < t->kernel_count;)
        *room *= 2;
    if (*room > KFIT_TRACE_KERNELS_MAX)
        return kfit_fail(err, KFIT_E_FULL, "trace: %zu kernels are more than one trace file holds",
                         t->kernel_count);
    struct kfit_trace_kernel *table = *out = calloc(*room, sizeof *table);
    if (!table)
        return kfit_fail(err, KFIT_E_NOMEM, "trace: no memory for %zu kernels", t->kernel_count);
    for (size_t i = 0; i < t->kernel_count; i++) {
        size_t at = t->kernels[i].hash & (*room - 1);
        while (table[at].state)
            at = (at + 1) & (*room - 1);
        table[at] = t->kernels[i];
    }
    return KFIT_OK;
}
