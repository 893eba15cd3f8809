/* Captures and graphs: what a capture holds, in order, from its begin to the launches of the executable graphs made of
 * it.
 *
 *   capture (by stream and id) --end--> graph --instantiate--> executable graph: an entry of the trace
 *
 * A list is known by its capture while that lasts, then by its graph until that is destroyed. A launch of an executable
 * graph is one lookup and one add. */
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>

#include "driver.h"
#include "preload.h"

/* ---- lists ---- */

struct list {
    uint32_t bytes; /* of the mapping that it begins */
    uint32_t count;
    uint32_t lost; /* calls and launches without room, or on another GPU than the first one's */
    uint32_t slabs; /* enum slabs */
    uint64_t given; /* to which executable graph, that the list has; 0: to something else */
    struct kfit_gpu *gpu;
    uint32_t *making; /* where it is counted: a kernel of kfit's in it is in nothing executable yet; NULL: not */
    struct kfit_trace_item items[];
};
/* Memory that kernels in it work in. */
enum slabs {
    NO_SLABS,
    OWN,   /* nobody else's */
    GIVEN, /* to what was made of it last */
};
/* All lists together, so that a program which never destroys a graph costs no more. */
enum { LIST_BYTES = 4096, LISTS_BYTES = 4 << 20 };

enum { ACTIVE = 1, CAPTURES = 64 };
enum { STREAMS = 4 }; /* of one capture that have a slab */
struct capture {
    uint64_t id; /* never used again in a process; 0: free */
    uint64_t stream;
    kfit_cu_graph graph; /* what may be done with it before it ends is nearly everything */
    struct list *list;
    bool into_graph;
    struct {
        uint64_t stream;
        char *slab; /* NULL: free */
    } on[STREAMS];
};

static struct capture captures[CAPTURES]; /* under the handles' lock, as the lists are */
static uint32_t lists_bytes;
static bool captured_slabs; /* there are some in graphs */
static uint64_t givings;
static bool lost_slabs;     /* where we do not know: in any graph, then */
uint32_t kfit_captures;

static struct kfit_recorder *recorder_of(const struct kfit_gpu *gpu)
{
    return kfit_dispatcher_recorder(gpu->dispatcher);
}

/* What `kfit off` has to wait for: it may be replayed yet. */
static uint32_t *making_on(const struct kfit_gpu *gpu)
{
    uint32_t *making = &kfit_recorder_header(recorder_of(gpu))->making;
    __atomic_fetch_add(making, 1, __ATOMIC_SEQ_CST);
    return making;
}

static void made(uint32_t *making)
{
    if (making)
        __atomic_fetch_sub(making, 1, __ATOMIC_RELEASE);
}

static void lose_slabs(void)
{
    __atomic_store_n(&lost_slabs, true, __ATOMIC_RELAXED);
}

static bool slabs_are_lost(void)
{
    return __atomic_load_n(&lost_slabs, __ATOMIC_RELAXED);
}

static void give(struct list *l, uint64_t to)
{
    if (l && l->slabs) {
        l->slabs = GIVEN;
        l->given = to;
    }
}

static void list_free(struct list *l)
{
    if (l) {
        made(l->making);
        lists_bytes -= l->bytes;
        munmap(l, l->bytes);
    }
}

/* A larger one in its place, or a first one; NULL: no room, and the old one as it was. */
static struct list *list_grow(struct list *l)
{
    uint32_t had = l ? l->bytes : 0, want = l ? 2 * had : LIST_BYTES;
    if (want - had > LISTS_BYTES - lists_bytes)
        return NULL;
    struct list *more = l ? mremap(l, had, want, MREMAP_MAYMOVE)
                          : mmap(NULL, want, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (more == MAP_FAILED)
        return NULL;
    more->bytes = want;
    lists_bytes += want - had;
    return more;
}

static struct list *list_begun(struct list **at, struct kfit_gpu *gpu)
{
    if (!*at && (*at = list_grow(NULL)))
        (*at)->gpu = gpu;
    return *at;
}

/* Adds an item, joined to the last one if alike. *at may move. */
static void list_add(struct list **at, struct kfit_gpu *gpu, struct kfit_trace_item item)
{
    struct list *l = list_begun(at, gpu);
    if (!l)
        return;
    if (kfit_item_is_ours(&item) && !l->making)
        l->making = making_on(l->gpu);
    struct kfit_trace_item *last = l->count ? &l->items[l->count - 1] : NULL;
    if (gpu == l->gpu && last && last->what == item.what && last->decision == item.decision &&
        last->times <= UINT16_MAX - item.times) {
        last->times = (uint16_t)(last->times + item.times);
        return;
    }
    if (gpu == l->gpu && offsetof(struct list, items[l->count + 1]) > l->bytes) {
        struct list *more = list_grow(l);
        l = more ? *at = more : l;
    }
    if (gpu == l->gpu && offsetof(struct list, items[l->count + 1]) <= l->bytes)
        l->items[l->count++] = item;
    else
        l->lost += item.times;
}

static void list_append(struct list **at, const struct list *more)
{
    for (uint32_t i = 0; more && i < more->count; i++)
        list_add(at, more->gpu, more->items[i]);
    if (more && *at)
        (*at)->lost += more->lost;
    if (more && more->slabs) {
        struct list *l = list_begun(at, more->gpu);
        if (!l)
            lose_slabs();
        else if (!l->slabs) /* else what was made of the others may still run */
            l->slabs = OWN;
    }
}

static struct list *list_of(kfit_cu_graph graph)
{
    const struct kfit_handle *h = kfit_handle_find(KFIT_GRAPHS, kfit_handle_key(graph));
    return h ? (struct list *)(uintptr_t)h->value : NULL;
}

/* graph has this list from now on, in place of the one it grew from. */
static void list_put(kfit_cu_graph graph, struct list *l)
{
    const struct kfit_handle h = {kfit_handle_key(graph), 0, kfit_handle_key(l), NULL, 0};
    if (l && !kfit_handle_put(KFIT_GRAPHS, &h)) {
        if (l->slabs)
            lose_slabs();
        list_free(l);
    }
}

/* ---- captures ---- */

static int capture_info(void *stream, uint64_t *id, kfit_cu_graph *graph)
{
    int status = 0;
    return kfit_driver.cuStreamGetCaptureInfo_v2(stream, &status, id, graph, NULL, NULL) ? 0 : status;
}

static int capture_status(void *stream, uint64_t *id)
{
    return capture_info(stream, id, NULL);
}

/* Handles are used again, and one stands for each thread's own stream. */
static uint64_t stream_id(void *stream)
{
    unsigned long long id;
    return kfit_driver.cuStreamGetId(stream, &id) ? kfit_handle_key(stream) : id + 1;
}

/* The legacy stream (0 or 1) cannot capture, and must not be asked while another one does. */
static bool is_active(void *stream, uint64_t *id)
{
    return (uintptr_t)stream > 1 && capture_status(stream, id) == ACTIVE;
}

bool kfit_capture_of(void *stream, uint64_t *id)
{
    return __builtin_expect(__atomic_load_n(&kfit_captures, __ATOMIC_RELAXED) != 0, 0) && is_active(stream, id);
}

static struct capture *capture_find(uint64_t id)
{
    for (unsigned i = 0; i < CAPTURES; i++)
        if (captures[i].id == id)
            return &captures[i];
    return NULL;
}

static struct capture *capture_begun_on(uint64_t stream)
{
    for (unsigned i = 0; i < CAPTURES; i++)
        if (captures[i].id && captures[i].stream == stream)
            return &captures[i];
    return NULL;
}

/* Not below none: the begin of one may not have been seen. */
static void capture_fewer(void)
{
    uint32_t n = __atomic_load_n(&kfit_captures, __ATOMIC_RELAXED);
    while (n && !__atomic_compare_exchange_n(&kfit_captures, &n, n - 1, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
}

void kfit_capture_begun(int r, void *stream, bool into_graph)
{
    uint64_t id;
    kfit_cu_graph graph = NULL;
    if (r)
        return;
    struct kfit_manners manners = kfit_manners_begin();
    __atomic_fetch_add(&kfit_captures, 1, __ATOMIC_RELAXED);
    const uint64_t of = stream_id(stream);
    if (capture_info(stream, &id, &graph) == ACTIVE && kfit_handles_lock()) {
        struct capture *c = capture_begun_on(of);
        if (c) { /* ended where we did not see it */
            if (c->list && c->list->slabs)
                lose_slabs();
            list_free(c->list);
            capture_fewer();
        } else {
            c = capture_find(0);
        }
        if (c) /* else its calls are in no graph */
            *c = (struct capture){.id = id, .stream = of, .graph = graph, .into_graph = into_graph};
        kfit_handles_unlock();
    }
    kfit_manners_end(manners);
}

/* That one without a place was there to be ended is known from its stream alone, beforehand. One with a place is known by
 * that, and so counted once, whoever else tries to end it. */
bool kfit_capture_unplaced(void *stream)
{
    uint64_t id;
    bool unplaced = false;
    if ((uintptr_t)stream <= 1 || !capture_status(stream, &id))
        return false;
    struct kfit_manners manners = kfit_manners_begin();
    const uint64_t of = stream_id(stream);
    if (kfit_handles_lock()) {
        unplaced = !capture_begun_on(of);
        kfit_handles_unlock();
    }
    kfit_manners_end(manners);
    return unplaced;
}

/* A capture that was broken ends with an error, and the one that ended wrongly goes on. */
void kfit_capture_ended(int r, void *stream, const kfit_cu_graph *graph, bool unplaced)
{
    uint64_t id;
    struct capture ended = {0};
    if (capture_status(stream, &id))
        return;
    struct kfit_manners manners = kfit_manners_begin();
    const uint64_t of = stream_id(stream);
    if (kfit_handles_lock()) {
        struct capture *c = capture_begun_on(of);
        if (c) {
            ended = *c;
            *c = (struct capture){0};
        }
        if (!r && graph && *graph) { /* which may have been there before */
            struct list *l = list_of(*graph);
            list_append(&l, ended.list);
            list_put(*graph, l);
        }
        list_free(ended.list);
        kfit_handles_unlock();
    }
    if (!r || ended.id || unplaced)
        capture_fewer();
    kfit_manners_end(manners);
}

static void capture_add(uint64_t id, struct kfit_gpu *gpu, const struct kfit_trace_item *items,
                        uint32_t count, bool slabs)
{
    struct kfit_manners manners = kfit_manners_begin();
    if (kfit_handles_lock()) {
        struct capture *c = capture_find(id);
        for (uint32_t i = 0; c && i < count; i++)
            list_add(&c->list, gpu, items[i]);
        if (slabs) {
            struct list *l = c ? list_begun(&c->list, gpu) : NULL;
            if (l)
                l->slabs = OWN;
            else
                lose_slabs();
        }
        kfit_handles_unlock();
    }
    kfit_manners_end(manners);
}

char *kfit_capture_slab(uint64_t id, struct kfit_gpu *gpu, uint64_t stream)
{
    struct capture *c = capture_find(id);
    struct list *l = c && !c->into_graph ? list_begun(&c->list, gpu) : NULL;
    if (!l || l->gpu != gpu) /* else nobody would know */
        return NULL;
    unsigned i = 0;
    while (i < STREAMS && c->on[i].slab && c->on[i].stream != stream)
        i++;
    if (i == STREAMS || (!c->on[i].slab && !(c->on[i].slab = kfit_slab_take(gpu->pool))))
        return NULL;
    c->on[i].stream = stream;
    l->slabs = OWN;
    __atomic_store_n(&captured_slabs, true, __ATOMIC_RELEASE);
    return c->on[i].slab;
}

/* What the stream launches next need not wait for what it launched last. */
void kfit_capture_untied(int r, void *stream, unsigned flags)
{
    enum { SET = 1 }; /* CU_STREAM_SET_CAPTURE_DEPENDENCIES */
    uint64_t id;
    if (r || flags != SET || !kfit_capture_of(stream, &id))
        return;
    struct kfit_manners manners = kfit_manners_begin();
    const uint64_t of = stream_id(stream);
    if (kfit_handles_lock()) {
        struct capture *c = capture_find(id);
        for (unsigned i = 0; c && i < STREAMS; i++)
            if (c->on[i].stream == of)
                c->on[i].stream = 0; /* the slab stays: it is in use */
        kfit_handles_unlock();
    }
    kfit_manners_end(manners);
}

uint32_t *kfit_capture_calls(const struct kfit_gpu *gpu)
{
    return making_on(gpu);
}

void kfit_capture_note(uint64_t id, struct kfit_gpu *gpu, int32_t slot, enum kfit_reason decision,
                       uint32_t *making)
{
    const struct kfit_trace_item item = {(uint32_t)slot, (uint16_t)decision, 1};
    if (slot >= 0)
        capture_add(id, gpu, &item, 1, false);
    made(making);
}

static struct kfit_trace_item kernel_item(const struct kfit_gpu *gpu, const struct kfit_trace_kernel *k)
{
    const struct kfit_trace_header *h = kfit_recorder_header(recorder_of(gpu));
    return (struct kfit_trace_item){kfit_item_kernel(h, k), (uint16_t)kfit_launcher(), 1};
}

void kfit_capture_launch(uint64_t id, struct kfit_gpu *gpu, const struct kfit_trace_kernel *k)
{
    const struct kfit_trace_item item = kernel_item(gpu, k);
    capture_add(id, gpu, &item, 1, false);
}

/* ---- graphs ---- */

static void graph_add(kfit_cu_graph graph, struct kfit_gpu *gpu, struct kfit_trace_item item)
{
    struct kfit_manners manners = kfit_manners_begin();
    if (kfit_handles_lock()) {
        struct list *l = list_of(graph);
        list_add(&l, gpu, item);
        list_put(graph, l);
        kfit_handles_unlock();
    }
    kfit_manners_end(manners);
}

/* CUgraphNodeParams */
struct node {
    int type, reserved[3];
    union {
        struct kfit_kernel_node kernel;
        struct {
            kfit_cu_graph graph;
            int ownership; /* 0: copied; else moved, and goes with its parent */
        } child;
    } params;
};

static kfit_cu_graph child_of(const struct node *node)
{
    return node && node->type == KFIT_NODE_CHILD ? node->params.child.graph : NULL;
}

void kfit_graph_kernel(int r, kfit_cu_graph graph, const void *params, bool has_kernel)
{
    const struct kfit_kernel_node *node = params;
    struct kfit_gpu *gpu;
    struct kfit_trace_kernel *k;
    if (!r && (k = kfit_kernel_of(node->f || !has_kernel ? node->f : (kfit_cu_function)(void *)node->kernel, &gpu)))
        graph_add(graph, gpu, kernel_item(gpu, k));
}

/* graph has what `from` has, after its own. */
static void graph_append(kfit_cu_graph graph, kfit_cu_graph from)
{
    struct kfit_manners manners = kfit_manners_begin();
    if (kfit_handles_lock()) {
        struct list *l = list_of(graph), *source = list_of(from);
        list_append(&l, source);
        list_put(graph, l);
        give(source, 0);
        kfit_handles_unlock();
    }
    kfit_manners_end(manners);
}

void kfit_graph_child(int r, kfit_cu_graph graph, kfit_cu_graph child)
{
    if (!r)
        graph_append(graph, child);
}

void kfit_graph_cloned(int r, const kfit_cu_graph *clone, kfit_cu_graph graph)
{
    if (!r)
        graph_append(*clone, graph);
}

void kfit_graph_node(int r, kfit_cu_graph graph, const void *params)
{
    const struct node *node = params;
    const kfit_cu_graph child = child_of(node);
    if (r)
        return;
    if (node->type == KFIT_NODE_KERNEL)
        kfit_graph_kernel(r, graph, &node->params.kernel, true);
    if (child)
        kfit_graph_child(r, graph, child);
    if (child && node->params.child.ownership) {
        kfit_graph_shown(r);
        kfit_graph_going(child);
    }
}

void kfit_graph_shown(int r)
{
    if (!r && __atomic_load_n(&captured_slabs, __ATOMIC_ACQUIRE))
        lose_slabs();
}

/* Two things made of one graph may run at once: the second gets slabs of its own. exec: what is made is this one, and may
 * be the first. */
static int use(kfit_cu_graph graph, kfit_cu_exec exec)
{
    bool renew = false;
    int failed = 0;
    if (!graph || !__atomic_load_n(&captured_slabs, __ATOMIC_ACQUIRE))
        return 0;
    struct kfit_manners manners = kfit_manners_begin();
    if (kfit_handles_lock()) {
        struct list *l = list_of(graph);
        const struct kfit_handle *h = exec ? kfit_handle_find(KFIT_EXECS, kfit_handle_key(exec)) : NULL;
        renew = (l && l->slabs == GIVEN && !(h && h->given && h->given == l->given)) || slabs_are_lost();
        for (unsigned i = 0; i < CAPTURES; i++) /* goes on with those that what is made now has */
            if (captures[i].id && captures[i].graph == graph && captures[i].list && captures[i].list->slabs)
                lose_slabs();
        kfit_handles_unlock();
    }
    if (renew)
        failed = kfit_renew_graph(graph);
    kfit_manners_end(manners);
    return failed;
}

int kfit_graph_use(kfit_cu_graph graph)
{
    return use(graph, NULL);
}

int kfit_graph_update(kfit_cu_exec exec, kfit_cu_graph graph)
{
    return use(graph, exec);
}

/* Copied into a node that is there already, of whatever graph. */
void kfit_graph_used(int r, kfit_cu_graph graph)
{
    if (r || !graph)
        return;
    struct kfit_manners manners = kfit_manners_begin();
    if (kfit_handles_lock()) {
        struct list *l = list_of(graph);
        give(l, 0);
        if (l && l->slabs)
            lose_slabs();
        kfit_handles_unlock();
    }
    kfit_manners_end(manners);
}

int kfit_graph_use_node(const void *params)
{
    return kfit_graph_use(child_of(params));
}

void kfit_graph_used_node(int r, const void *params)
{
    kfit_graph_used(r, child_of(params));
}

/* Before the call, as everything that goes: the next graph may have this address. */
void kfit_graph_going(kfit_cu_graph graph)
{
    struct kfit_handle h;
    struct kfit_manners manners = kfit_manners_begin();
    if (kfit_handles_lock()) {
        if (kfit_handle_take(KFIT_GRAPHS, kfit_handle_key(graph), &h))
            list_free((struct list *)(uintptr_t)h.value);
        kfit_handles_unlock();
    }
    kfit_manners_end(manners);
}

/* ---- executable graphs ---- */

static struct kfit_trace_graph *entry_of(const struct kfit_handle *h)
{
    return (struct kfit_trace_graph *)(uintptr_t)h->value;
}

static void exec_gone(kfit_cu_exec exec)
{
    struct kfit_handle h;
    if (kfit_handle_take(KFIT_EXECS, kfit_handle_key(exec), &h))
        __atomic_store_n(&entry_of(&h)->state, KFIT_GRAPH_GONE, __ATOMIC_RELEASE);
}

/* Where its items are, as we wrote it: the file is not ours alone. */
static uint64_t pack(uint32_t first, uint32_t count)
{
    return (uint64_t)first << 32 | count;
}
static uint32_t first_of(const struct kfit_handle *h)
{
    return (uint32_t)(h->owner >> 32);
}
static uint32_t count_of(const struct kfit_handle *h)
{
    return (uint32_t)h->owner;
}

/* exec holds what graph does: newly made, or updated. What it held until now is gone, unless that is the same. */
void kfit_exec_made(int r, const kfit_cu_exec *exec, kfit_cu_graph graph)
{
    if (r)
        return;
    struct kfit_manners manners = kfit_manners_begin();
    if (kfit_handles_lock()) {
        struct list *l = list_of(graph);
        struct kfit_trace_graph *g = NULL;
        bool kept = false;
        exec_gone(*exec);
        if (l)
            g = kfit_recorder_graph(recorder_of(l->gpu), l->gpu->ordinal, l->items, l->count);
        if (g) {
            const struct kfit_handle h = {kfit_handle_key(*exec), pack(g->first, g->count), kfit_handle_key(g),
                                          l->gpu, l->slabs ? ++givings : 0};
            if (l->lost)
                __atomic_store_n(&g->lost, l->lost, __ATOMIC_RELAXED);
            if (!(kept = kfit_handle_put(KFIT_EXECS, &h)))
                __atomic_store_n(&g->state, KFIT_GRAPH_GONE, __ATOMIC_RELEASE);
        }
        if (l) { /* its entry says so from now on */
            made(l->making);
            l->making = NULL;
            give(l, kept ? givings : 0);
            if (l->slabs && !kept)
                lose_slabs();
        }
        kfit_handles_unlock();
    }
    kfit_manners_end(manners);
}

/* In a capture it is a copy. */
static int exec_captured(const struct kfit_handle *h, uint64_t capture, void *stream)
{
    if (h) {
        const struct kfit_trace_header *header = kfit_recorder_header(recorder_of(h->gpu));
        const char *items = (const char *)header + header->live.items_at;
        capture_add(capture, h->gpu, (const struct kfit_trace_item *)(const void *)items + first_of(h),
                    count_of(h), h->given);
    }
    return (h && h->given) || slabs_are_lost() ? kfit_renew_captured(stream) : 0;
}

int kfit_exec_launched(int r, kfit_cu_exec exec, void *stream)
{
    uint64_t capture;
    if (r)
        return r;
    const struct kfit_handle *h = kfit_handle_find(KFIT_EXECS, kfit_handle_key(exec));
    const bool slabs = (h && h->given) || slabs_are_lost(); /* then captures whose begin was not seen matter too */
    if (__builtin_expect(kfit_capture_of(stream, &capture) || (slabs && is_active(stream, &capture)), 0))
        return exec_captured(h, capture, stream);
    if (h)
        __atomic_fetch_add(&entry_of(h)->launches, 1, __ATOMIC_RELAXED);
    return 0;
}

void kfit_exec_going(kfit_cu_exec exec)
{
    struct kfit_manners manners = kfit_manners_begin();
    if (kfit_handles_lock()) {
        exec_gone(exec);
        kfit_handles_unlock();
    }
    kfit_manners_end(manners);
}
