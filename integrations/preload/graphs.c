/* Captures and graphs: what a capture holds, in order, from its begin to the launches of the executable graphs made of
 * it.
 *
 *   capture (by stream and id) --end--> graph --instantiate--> executable graph: an entry of the trace
 *
 * A list is known by its capture while that lasts, then by its graph until that is destroyed. A launch of an executable
 * graph is one lookup and one add. */
#include "lists.h"
#include "preload.h"

enum { ACTIVE = 1, CAPTURES = 64 };
enum { STREAMS = 4 }; /* of one capture that have a slab */
struct capture {
    uint64_t id; /* never used again in a process; 0: free */
    uint64_t stream;
    kfit_cu_graph graph; /* what may be done with it before it ends is nearly everything */
    struct kfit_list *list;
    bool into_graph;
    struct {
        uint64_t stream;
        char *slab; /* NULL: free */
    } on[STREAMS];
};

static struct capture captures[CAPTURES]; /* under the handles' lock, as the lists are */
static bool captured_slabs; /* there are some in graphs */
static uint64_t givings;

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

/* As a stream that captures is known by. Its handle will do until it is destroyed, but that one stands for each thread's
 * own, on each GPU. Not cuStreamGetId, which breaks the capture. */
static uint64_t capture_key_on(void *stream, uint32_t ordinal)
{
    static uint64_t threads;
    static __thread uint64_t thread __attribute__((tls_model("initial-exec"))); /* odd, as no handle is */
    if ((uintptr_t)stream != KFIT_STREAM_PER_THREAD)
        return kfit_handle_key(stream);
    if (!thread)
        thread = __atomic_fetch_add(&threads, 2, __ATOMIC_RELAXED) | 1;
    return thread ^ (uint64_t)ordinal << 48;
}

static uint64_t capture_key(void *stream)
{
    const struct kfit_cuda *cu;
    kfit_cu_device ordinal;
    if ((uintptr_t)stream != KFIT_STREAM_PER_THREAD || kfit_cuda_load(&cu, NULL) != KFIT_OK || cu->context_device(&ordinal))
        ordinal = 0;
    return capture_key_on(stream, (uint32_t)ordinal);
}

/* The legacy stream (0 or 1) cannot capture, and must not be asked while another one does. */
bool kfit_capture_of(void *stream, uint64_t *id)
{
    return __builtin_expect(__atomic_load_n(&kfit_driver.captures, __ATOMIC_RELAXED) != 0, 0) && (uintptr_t)stream > 1 &&
           capture_status(stream, id) == ACTIVE;
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
    uint32_t n = __atomic_load_n(&kfit_driver.captures, __ATOMIC_RELAXED);
    while (n && !__atomic_compare_exchange_n(&kfit_driver.captures, &n, n - 1, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
}

void kfit_capture_begun(int r, void *stream, bool into_graph)
{
    uint64_t id;
    kfit_cu_graph graph = NULL;
    if (r)
        return;
    struct kfit_manners manners = kfit_manners_begin();
    __atomic_fetch_add(&kfit_driver.captures, 1, __ATOMIC_RELAXED);
    const uint64_t of = capture_key(stream);
    if (capture_info(stream, &id, &graph) == ACTIVE && kfit_handles_lock()) {
        struct capture *c = capture_begun_on(of);
        if (c) { /* ended where we did not see it */
            if (c->list && c->list->slabs)
                kfit_slabs_lose();
            kfit_list_free(c->list);
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
    const uint64_t of = capture_key(stream);
    if (kfit_handles_lock()) {
        unplaced = !capture_begun_on(of);
        kfit_handles_unlock();
    }
    kfit_manners_end(manners);
    return unplaced;
}

/* A capture that was broken ends with an error, and the one that ended wrongly goes on. One without a place is counted only if
 * there are more than have one: else its begin was not seen. */
void kfit_capture_ended(int r, void *stream, const kfit_cu_graph *graph, bool unplaced)
{
    uint64_t id;
    uint32_t placed = 0;
    struct capture ended = {0};
    if (capture_status(stream, &id))
        return;
    struct kfit_manners manners = kfit_manners_begin();
    const uint64_t of = capture_key(stream);
    if (kfit_handles_lock()) {
        struct capture *c = capture_begun_on(of);
        if (c) {
            ended = *c;
            *c = (struct capture){0};
        }
        for (unsigned i = 0; i < CAPTURES; i++)
            placed += captures[i].id != 0;
        if (!r && graph && *graph) { /* which may have been there before */
            struct kfit_list *l = kfit_list_of(*graph);
            kfit_list_append(&l, ended.list);
            kfit_list_put(*graph, l);
        }
        kfit_list_free(ended.list);
        kfit_handles_unlock();
    }
    if (ended.id || ((!r || unplaced) && __atomic_load_n(&kfit_driver.captures, __ATOMIC_RELAXED) > placed))
        capture_fewer();
    kfit_manners_end(manners);
}

static void capture_add(uint64_t id, struct kfit_gpu *gpu, struct kfit_trace_item item)
{
    struct kfit_manners manners = kfit_manners_begin();
    if (kfit_handles_lock()) {
        struct capture *c = capture_find(id);
        if (c)
            kfit_list_add(&c->list, gpu, item);
        kfit_handles_unlock();
    }
    kfit_manners_end(manners);
}

char *kfit_capture_slab(uint64_t id, struct kfit_gpu *gpu, void *of)
{
    const uint64_t stream = capture_key_on(of, gpu->ordinal);
    struct capture *c = capture_find(id);
    struct kfit_list *l = c && !c->into_graph ? kfit_list_begun(&c->list, gpu) : NULL;
    if (!l || l->gpu != gpu) /* else nobody would know */
        return NULL;
    unsigned i = 0;
    while (i < STREAMS && c->on[i].slab && c->on[i].stream != stream)
        i++;
    if (i == STREAMS || (!c->on[i].slab && !(c->on[i].slab = kfit_slab_take(gpu->pool))))
        return NULL;
    c->on[i].stream = stream;
    l->slabs = KFIT_SLABS_OWN;
    __atomic_store_n(&captured_slabs, true, __ATOMIC_RELEASE);
    return c->on[i].slab;
}

/* What comes with this handle next is no work that goes on. NULL: of this capture. */
static void untie(void *stream, const uint64_t *id)
{
    struct kfit_manners manners = kfit_manners_begin();
    const uint64_t of = capture_key(stream);
    if (kfit_handles_lock()) {
        for (struct capture *c = captures; c < captures + CAPTURES; c++)
            for (unsigned i = 0; i < STREAMS && (!id || c->id == *id); i++)
                if (c->on[i].stream == of)
                    c->on[i].stream = 0; /* the slab stays: it is in use */
        kfit_handles_unlock();
    }
    kfit_manners_end(manners);
}

/* What the stream launches next need not wait for what it launched last. */
void kfit_capture_untied(int r, void *stream, unsigned flags)
{
    enum { SET = 1 }; /* CU_STREAM_SET_CAPTURE_DEPENDENCIES */
    uint64_t id;
    if (!r && flags == SET && __atomic_load_n(&captured_slabs, __ATOMIC_ACQUIRE) && kfit_capture_of(stream, &id))
        untie(stream, &id);
}

void kfit_stream_going(void *stream)
{
    if (__atomic_load_n(&captured_slabs, __ATOMIC_ACQUIRE) && __atomic_load_n(&kfit_driver.captures, __ATOMIC_RELAXED))
        untie(stream, NULL);
}

uint32_t *kfit_capture_calls(const struct kfit_gpu *gpu)
{
    return kfit_making(gpu);
}

void kfit_capture_note(uint64_t id, struct kfit_gpu *gpu, int32_t slot, enum kfit_reason decision,
                       uint32_t *making)
{
    if (slot >= 0)
        capture_add(id, gpu, (struct kfit_trace_item){(uint32_t)slot, (uint16_t)decision, 1});
    kfit_made(making);
}

static struct kfit_trace_item kernel_item(const struct kfit_gpu *gpu, const struct kfit_trace_kernel *k)
{
    const struct kfit_trace_header *h = kfit_recorder_header(kfit_recorder_of(gpu));
    return (struct kfit_trace_item){kfit_item_kernel(h, k), (uint16_t)kfit_launcher(), 1};
}

void kfit_capture_launch(uint64_t id, struct kfit_gpu *gpu, const struct kfit_trace_kernel *k)
{
    capture_add(id, gpu, kernel_item(gpu, k));
}

/* ---- graphs ---- */

static void graph_add(kfit_cu_graph graph, struct kfit_gpu *gpu, struct kfit_trace_item item)
{
    struct kfit_manners manners = kfit_manners_begin();
    if (kfit_handles_lock()) {
        struct kfit_list *l = kfit_list_of(graph);
        kfit_list_add(&l, gpu, item);
        kfit_list_put(graph, l);
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
        struct kfit_list *l = kfit_list_of(graph), *source = kfit_list_of(from);
        kfit_list_append(&l, source);
        kfit_list_put(graph, l);
        kfit_list_give(source, 0);
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
        kfit_slabs_lose();
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
        struct kfit_list *l = kfit_list_of(graph);
        const struct kfit_handle *h = exec ? kfit_handle_find(KFIT_EXECS, kfit_handle_key(exec)) : NULL;
        renew = (l && l->slabs == KFIT_SLABS_GIVEN && !(h && h->given && h->given == l->given)) || kfit_slabs_are_lost();
        for (unsigned i = 0; i < CAPTURES; i++) /* goes on with those that what is made now has */
            if (captures[i].id && captures[i].graph == graph && captures[i].list && captures[i].list->slabs)
                kfit_slabs_lose();
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
        struct kfit_list *l = kfit_list_of(graph);
        kfit_list_give(l, 0);
        if (l && l->slabs)
            kfit_slabs_lose();
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
            kfit_list_free((struct kfit_list *)(uintptr_t)h.value);
        kfit_handles_unlock();
    }
    kfit_manners_end(manners);
}

/* ---- executable graphs ---- */

static struct kfit_trace_graph *entry_of(uint64_t value)
{
    return (struct kfit_trace_graph *)(uintptr_t)value;
}

static void exec_gone(kfit_cu_exec exec)
{
    struct kfit_handle h;
    if (kfit_handle_take(KFIT_EXECS, kfit_handle_key(exec), &h) && h.value) /* a fork in a handler of signals wipes it */
        __atomic_store_n(&entry_of(h.value)->state, KFIT_GRAPH_GONE, __ATOMIC_RELEASE);
}

/* exec holds what graph does: newly made, or updated. What it held until now is gone, unless that is the same. */
void kfit_exec_made(int r, const kfit_cu_exec *exec, kfit_cu_graph graph)
{
    if (r)
        return;
    struct kfit_manners manners = kfit_manners_begin();
    if (kfit_handles_lock()) {
        struct kfit_list *l = kfit_list_of(graph);
        struct kfit_trace_graph *g = NULL;
        bool kept = false;
        exec_gone(*exec);
        if (l)
            g = kfit_recorder_graph(kfit_recorder_of(l->gpu), l->gpu->ordinal, l->items, l->count);
        if (g) {
            const struct kfit_handle h = {kfit_handle_key(*exec), 0, kfit_handle_key(g),
                                          {l->slabs ? ++givings : 0}};
            if (l->lost)
                __atomic_store_n(&g->lost, l->lost, __ATOMIC_RELAXED);
            if (!(kept = kfit_handle_put(KFIT_EXECS, &h)))
                __atomic_store_n(&g->state, KFIT_GRAPH_GONE, __ATOMIC_RELEASE);
        }
        if (l) { /* its entry says so from now on */
            kfit_made(l->making);
            l->making = NULL;
            kfit_list_give(l, kept ? givings : 0);
            if (l->slabs && !kept)
                kfit_slabs_lose();
        }
        kfit_handles_unlock();
    }
    kfit_manners_end(manners);
}

void kfit_exec_launched_far(int r, kfit_cu_exec exec)
{
    const struct kfit_handle *h = r ? NULL : kfit_handle_find(KFIT_EXECS, kfit_handle_key(exec));
    const uint64_t value = h ? __atomic_load_n(&h->value, __ATOMIC_RELAXED) : 0; /* once, as in kfit_handle_near */
    if (value)
        __atomic_fetch_add(&entry_of(value)->launches, 1, __ATOMIC_RELAXED);
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
