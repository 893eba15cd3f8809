/* Device memory for kernels that need some: taken once per GPU, before the first kernel of ours runs, under a cap, cut
 * into slabs of one size, and never given back.
 *
 *   a stream    has a slab for good: what is launched on it runs in order
 *   a capture   has one for each of its streams (graphs.c); they go with the graph
 *   a graph     gives its slabs to the first thing that is made of it, an executable graph or a copy. Before the next one
 *               its kernels are given others, since the two may run at once
 *
 * A slab is never used by anything else again: who destroys an executable graph need not wait for it to end. When there are
 * no more, calls go to the original. */
#include <stdlib.h>
#include <string.h>

#include "driver.h"
#include "kfit/cuda.h"
#include "kfit/op.h"
#include "kfit/process.h"
#include "preload.h"

#define LEGACY UINT64_MAX /* the stream that all threads of a context share: in place of an id */
enum { SLABS_MAX = 4096, ALIGN = 256, STREAMS = 1024, PROBES = 32, CAPTURED_MAX = 256 };

struct kfit_pool {
    char *base;
    size_t slab, scratch_at; /* what must stay zero is at the beginning */
    uint32_t count, used;
    int32_t who[SLABS_MAX]; /* struct kfit_hold */
    struct {
        uint64_t id; /* cuStreamGetId's, which no other stream ever has, + 1; 0: free */
        char *slab;  /* NULL: being found */
    } streams[STREAMS];
};

/* ---- taking memory ---- */

/* From the driver, all zero: legal whatever captures, on a stream that waits for nobody. */
static kfit_cu_result take_zeroed(size_t bytes, char **out)
{
    const struct kfit_cuda *cu;
    kfit_cu_ptr p = 0;
    kfit_cu_stream stream = NULL;
    int mode = KFIT_CU_CAPTURE_RELAXED;
    if (kfit_cuda_load(&cu, NULL) != KFIT_OK)
        return KFIT_CU_NO_DEVICE;
    kfit_cu_result r = cu->capture_mode(&mode);
    if (r)
        return r;
    if (!(r = cu->stream_create(&stream, KFIT_CU_STREAM_NON_BLOCKING))) {
        if (!(r = cu->mem_alloc(&p, bytes)) &&
            ((r = cu->set32(p, 0, bytes / 4, stream)) || (r = cu->stream_sync(stream))))
            cu->mem_free(p);
        cu->stream_destroy(stream);
    }
    cu->capture_mode(&mode);
    *out = (char *)(uintptr_t)p;
    return r;
}

static size_t whole(size_t bytes)
{
    return (bytes + ALIGN - 1) & ~(size_t)(ALIGN - 1);
}

void kfit_pool_make(struct kfit_gpu *gpu)
{
    size_t bytes[2], most;
    if (__atomic_exchange_n(&gpu->pool_made, true, __ATOMIC_RELAXED))
        return;
    kfit_gpu_memory(kfit_variable("KFIT_GPU_MEMORY"), &most);
    kfit_dispatcher_workspace(gpu->dispatcher, bytes);
    const size_t zero = whole(bytes[KFIT_WS_ZERO]), slab = zero + whole(bytes[KFIT_WS_SCRATCH]);
    const size_t fit = slab ? most / slab : 0, count = fit < SLABS_MAX ? fit : SLABS_MAX;
    struct kfit_pool *p = count ? calloc(1, sizeof *p) : NULL;
    if (!p)
        return;
    if (take_zeroed(count * slab, &p->base)) {
        free(p);
        return;
    }
    p->slab = slab;
    p->scratch_at = zero;
    p->count = (uint32_t)count;
    __atomic_store_n(&gpu->pool, p, __ATOMIC_RELEASE);
}

/* ---- slabs ---- */

char *kfit_slab_take(struct kfit_pool *p)
{
    uint32_t i = __atomic_load_n(&p->used, __ATOMIC_RELAXED);
    while (i < p->count)
        if (__atomic_compare_exchange_n(&p->used, &i, i + 1, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
            return p->base + i * p->slab;
    return NULL;
}

static size_t part(const struct kfit_pool *p, const struct kfit_kernel *k)
{
    return k->workspace_init == KFIT_WS_ZERO ? 0 : p->scratch_at;
}

/* A generation that came later may need more than there was reason to take. */
static bool fits(const struct kfit_pool *p, const struct kfit_kernel *k)
{
    return k->workspace_bytes <= (k->workspace_init == KFIT_WS_ZERO ? p->scratch_at : p->slab - p->scratch_at);
}

static char *slab_of_stream(struct kfit_pool *p, uint64_t id)
{
    uint32_t at = (uint32_t)(id * 0x9e3779b97f4a7c15u >> 54);
    for (unsigned i = 0; i < PROBES; i++, at = (at + 1) % STREAMS) {
        uint64_t have = __atomic_load_n(&p->streams[at].id, __ATOMIC_ACQUIRE);
        if (have == id)
            return __atomic_load_n(&p->streams[at].slab, __ATOMIC_ACQUIRE);
        if (!have && __atomic_compare_exchange_n(&p->streams[at].id, &have, id, false, __ATOMIC_ACQ_REL,
                                                 __ATOMIC_ACQUIRE)) {
            char *slab = kfit_slab_take(p);
            __atomic_store_n(&p->streams[at].slab, slab, __ATOMIC_RELEASE);
            return slab;
        }
    }
    return NULL;
}

/* ---- kernels in graphs ---- */

/* Kernels that graphs may hold with a slab, by which such nodes are known. */
static struct captured {
    const struct kfit_kernel *kernel;
    struct kfit_gpu *gpu;
} captured[CAPTURED_MAX];

static bool note_captured(struct kfit_gpu *gpu, const struct kfit_kernel *k)
{
    for (unsigned i = 0; i < CAPTURED_MAX; i++) {
        const struct kfit_kernel *have = __atomic_load_n(&captured[i].kernel, __ATOMIC_ACQUIRE);
        if (have == k)
            return true;
        if (!have) { /* under the handles' lock */
            captured[i].gpu = gpu;
            __atomic_store_n(&captured[i].kernel, k, __ATOMIC_RELEASE);
            return true;
        }
    }
    return false;
}

static const struct captured *captured_of(const void *function, unsigned *params)
{
    for (unsigned i = 0; function && i < CAPTURED_MAX; i++) {
        const struct kfit_kernel *k = __atomic_load_n(&captured[i].kernel, __ATOMIC_ACQUIRE);
        if (!k)
            break;
        if (kfit_cuda_launches(k, function, params))
            return &captured[i];
    }
    return NULL;
}

/* Threads that launch on one stream: what one launch of a kernel hands on to the next nobody else's may come between. Who
 * finds that it would does not wait. */
static bool hold(struct kfit_pool *p, const char *slab, const struct kfit_kernel *k, struct kfit_hold *h)
{
    int32_t *who = &p->who[(size_t)(slab - p->base) / p->slab], now = __atomic_load_n(who, __ATOMIC_RELAXED);
    const int32_t share = kfit_cuda_launch_count(k) > 1 ? -1 : 1;
    while (share > 0 ? now >= 0 : !now)
        if (__atomic_compare_exchange_n(who, &now, now + share, true, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
            *h = (struct kfit_hold){who, share};
            return true;
        }
    return false;
}

/* As graphs.c does not know: a program may have come by the driver's own functions, or by one that we never heard of. */
static bool captures_unseen(void *stream)
{
    int status = 0;
    uint64_t id;
    return (uintptr_t)stream > 1 &&
           (kfit_driver.cuStreamGetCaptureInfo_v2(stream, &status, &id, NULL, NULL, NULL) || status);
}

/* Of a stream that does not capture, or the question would break the capture: handles are used again. While another one
 * does, in a mode that no capture can forbid. */
static bool stream_id(void *stream, uint64_t *id)
{
    const struct kfit_cuda *cu;
    unsigned long long known = LEGACY - 1;
    int mode = KFIT_CU_CAPTURE_RELAXED, failed = 0;
    const bool beside = __atomic_load_n(&kfit_driver.captures, __ATOMIC_RELAXED) && kfit_cuda_load(&cu, NULL) == KFIT_OK;
    if (beside && cu->capture_mode(&mode))
        return false;
    if ((uintptr_t)stream > 1)
        failed = kfit_driver.cuStreamGetId(stream, &known);
    if (beside)
        cu->capture_mode(&mode);
    *id = known + 1;
    return !failed;
}

void *kfit_workspace(struct kfit_gpu *gpu, const struct kfit_kernel *k, void *stream, const uint64_t *capture,
                     struct kfit_hold *h)
{
    struct kfit_pool *p = __atomic_load_n(&gpu->pool, __ATOMIC_ACQUIRE);
    char *slab = NULL;
    uint64_t id;
    if (!p || !fits(p, k))
        return NULL;
    if (!capture) {
        slab = captures_unseen(stream) || !stream_id(stream, &id) ? NULL : slab_of_stream(p, id);
    } else {
        struct kfit_manners manners = kfit_manners_begin();
        if (kfit_handles_lock()) {
            if (note_captured(gpu, k))
                slab = kfit_capture_slab(*capture, gpu, stream);
            kfit_handles_unlock();
        }
        kfit_manners_end(manners);
    }
    return slab && hold(p, slab, k, h) ? slab + part(p, k) : NULL;
}

/* ---- other slabs for a graph ---- */

/* One for each that it had: the launches of one kernel hand on what they wrote. */
struct renewal {
    unsigned count, room;
    struct renewed {
        char *old, *new;
    } * slab;
};

/* What a graph must not share it gets beyond the cap, if need be. */
static kfit_cu_result renew_slab(struct renewal *r, struct kfit_gpu *gpu, char *old, char **new)
{
    const struct kfit_cuda *cu;
    kfit_cu_context was = NULL;
    for (unsigned i = r->count; i-- > 0;)
        if (r->slab[i].old == old)
            return *new = r->slab[i].new, 0;
    if (r->count == r->room) {
        const unsigned room = r->room ? 2 * r->room : 16;
        struct renewed *more = realloc(r->slab, room * sizeof *more);
        if (!more)
            return KFIT_CU_OUT_OF_MEMORY;
        r->slab = more;
        r->room = room;
    }
    if (!(*new = kfit_slab_take(gpu->pool))) {
        kfit_cu_result failed = KFIT_CU_OUT_OF_MEMORY;
        if (kfit_cuda_load(&cu, NULL) == KFIT_OK && !cu->context_current(&was)) {
            failed = cu->context_set((kfit_cu_context)gpu->context);
            failed = failed ? failed : take_zeroed(gpu->pool->slab, new);
            cu->context_set(was);
        }
        if (failed)
            return failed;
    }
    r->slab[r->count++] = (struct renewed){old, *new};
    return 0;
}

static kfit_cu_result renew_kernel(struct renewal *r, void *node)
{
    struct kfit_kernel_node n = {0};
    void *params[KFIT_ARGS_MAX + 1 + KFIT_TENSORMAPS_MAX];
    char *had, *slab;
    unsigned count;
    kfit_cu_result failed = kfit_driver.cuGraphKernelNodeGetParams_v2(node, &n);
    if (failed)
        return failed;
    const struct captured *c = captured_of(n.f ? (const void *)n.f : (const void *)n.kernel, &count);
    if (!c || !n.params)
        return 0;
    memcpy(params, n.params, count * sizeof *params);
    memcpy(&had, params[c->kernel->nargs], sizeof had);
    const size_t at = part(c->gpu->pool, c->kernel);
    if ((failed = renew_slab(r, c->gpu, had - at, &slab)))
        return failed;
    slab += at;
    params[c->kernel->nargs] = &slab;
    n.params = params;
    n.extra = NULL;
    return kfit_driver.cuGraphKernelNodeSetParams_v2(node, &n);
}

static kfit_cu_result renew_nodes(struct renewal *r, kfit_cu_graph graph);

static kfit_cu_result renew_node(struct renewal *r, void *node)
{
    kfit_cu_graph child;
    int type;
    kfit_cu_result failed = kfit_driver.cuGraphNodeGetType(node, &type);
    if (failed || (type != KFIT_NODE_KERNEL && type != KFIT_NODE_CHILD))
        return failed;
    if (type == KFIT_NODE_KERNEL)
        return renew_kernel(r, node);
    failed = kfit_driver.cuGraphChildGraphNodeGetGraph(node, &child);
    return failed ? failed : renew_nodes(r, child);
}

static kfit_cu_result renew_nodes(struct renewal *r, kfit_cu_graph graph)
{
    size_t n = 0;
    kfit_cu_result failed = kfit_driver.cuGraphGetNodes(graph, NULL, &n);
    if (failed || !n)
        return failed;
    void **nodes = malloc(n * sizeof *nodes);
    failed = nodes ? kfit_driver.cuGraphGetNodes(graph, nodes, &n) : KFIT_CU_OUT_OF_MEMORY;
    for (size_t i = 0; !failed && i < n; i++)
        failed = renew_node(r, nodes[i]);
    free(nodes);
    return failed;
}

int kfit_renew_graph(kfit_cu_graph graph)
{
    struct renewal r = {0};
    struct kfit_manners manners = kfit_manners_begin();
    kfit_cu_result failed = renew_nodes(&r, graph);
    free(r.slab);
    kfit_manners_end(manners);
    return failed;
}
