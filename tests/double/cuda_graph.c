#include <stdlib.h>
#include <string.h>

#include "cuda.h"

/* ---- captures ---- */

static struct capture *captures; /* the last first; those that are over stay */
static __thread int thread_mode;

struct capture *capturing(const struct CUstream_st *s)
{
    return s && s->capture && !s->capture->over ? s->capture : NULL;
}

kfit_cu_result refused_in(struct capture *c)
{
    c->broken = true;
    return KFIT_CU_CAPTURING;
}

kfit_cu_result refused_by_captures(void)
{
    for (struct capture *c = captures; c; c = c->next)
        if (!c->over && thread_mode != CAPTURE_RELAXED &&
            (c->mode == CAPTURE_GLOBAL ||
             (c->mode == CAPTURE_THREAD_LOCAL && pthread_equal(c->thread, pthread_self()))))
            return refused_in(c);
    return 0;
}

kfit_cu_result cuThreadExchangeStreamCaptureMode(int *mode)
{
    int was = thread_mode;
    thread_mode = *mode;
    *mode = was;
    return 0;
}

static kfit_cu_result begin(kfit_cu_stream handle, int mode, struct CUgraph_st *graph)
{
    static uint64_t last;
    struct CUstream_st *s = stream_of(handle);
    ENTER;
    if (!s || capturing(s) || !graph)
        return graph ? INVALID_VALUE : KFIT_CU_OUT_OF_MEMORY;
    struct capture *c = calloc(1, sizeof *c);
    if (!c)
        return KFIT_CU_OUT_OF_MEMORY;
    *c = (struct capture){++last, mode, false, false, pthread_self(), s, graph, captures, NULL};
    s->capture = captures = c;
    return 0;
}

static kfit_cu_result end(kfit_cu_stream handle, kfit_cu_graph *out)
{
    struct CUstream_st *s = stream_of(handle);
    struct capture *c = capturing(s);
    ENTER;
    *out = NULL;
    if (!c)
        return INVALID_VALUE;
    if (c->origin != s)
        return CAPTURE_UNMATCHED;
    if (c->mode != CAPTURE_RELAXED && !pthread_equal(c->thread, pthread_self()))
        return CAPTURE_WRONG_THREAD;
    c->over = true;
    if (c->broken)
        return cuGraphDestroy(c->graph), CAPTURE_BROKEN;
    *out = c->graph;
    return 0;
}

static kfit_cu_stream own(kfit_cu_stream s)
{
    return s ? s : (kfit_cu_stream)2;
}

static unsigned queries;

unsigned kfit_double_capture_queries(void)
{
    return queries;
}

kfit_cu_result cuStreamGetCaptureInfo_v2(kfit_cu_stream s, int *status, uint64_t *id, kfit_cu_graph *graph,
                                         void *const **nodes, size_t *n)
{
    struct capture *c = capturing(stream_of(s));
    queries++;
    ENTER;
    for (const struct capture *other = captures; !stream_of(s) && other; other = other->next)
        if (!other->over)
            return CAPTURE_IMPLICIT;
    *status = c ? 1 + c->broken : 0;
    if (c && !c->broken) {
        *id = c->id;
        if (graph)
            *graph = c->graph;
        if (nodes) {
            *nodes = &c->last;
            *n = c->last != NULL;
        }
    }
    return 0;
}

static kfit_cu_result update_dependencies(kfit_cu_stream s)
{
    ENTER;
    return capturing(stream_of(s)) ? 0 : INVALID_VALUE;
}

kfit_cu_result cuStreamUpdateCaptureDependencies(kfit_cu_stream s, void **after, size_t n, unsigned flags)
{
    (void)after, (void)n, (void)flags;
    return update_dependencies(s);
}

kfit_cu_result cuStreamUpdateCaptureDependencies_v2(kfit_cu_stream s, void **after, const void *edges, size_t n,
                                                    unsigned flags)
{
    (void)after, (void)edges, (void)n, (void)flags;
    return update_dependencies(s);
}

/* ---- graphs ---- */

static struct CUgraph_st *free_graphs;

static struct CUgraph_st *graph_new(void)
{
    struct CUgraph_st *g = free_graphs ? free_graphs : calloc(1, sizeof *g);
    if (g) {
        free_graphs = g->free;
        *g = (struct CUgraph_st){NULL, 0, 0, NULL};
    }
    return g;
}

static kfit_cu_result append_all(struct CUgraph_st *g, const struct CUgraph_st *from)
{
    kfit_cu_result r = g ? 0 : KFIT_CU_OUT_OF_MEMORY;
    for (unsigned i = 0; !r && i < from->count; i++) {
        const struct CUgraphNode_st *n = from->node[i];
        struct CUgraphNode_st *made;
        r = n->child ? graph_append_child(g, n->child, &made) : graph_append(g, &n->call, &made);
        if (!r) {
            made->of = from->node[i];
            made->disabled = from->node[i]->disabled;
        }
    }
    return r;
}

kfit_cu_result graph_append_child(struct CUgraph_st *g, const struct CUgraph_st *from, struct CUgraphNode_st **out)
{
    struct CUgraph_st *child = graph_new();
    kfit_cu_result r = append_all(child, from);
    r = r ? r : graph_append(g, &(struct call){.f = NULL}, out);
    if (!r)
        (*out)->child = child;
    return r;
}

static kfit_cu_result copy(void *out, const struct CUgraph_st *g)
{
    struct CUgraph_st *made = graph_new();
    ENTER;
    kfit_cu_result r = append_all(made, g);
    memcpy(out, &made, sizeof made);
    return r;
}

kfit_cu_result cuGraphCreate(kfit_cu_graph *out, unsigned flags)
{
    (void)flags;
    ENTER;
    *out = graph_new();
    return *out ? 0 : KFIT_CU_OUT_OF_MEMORY;
}

kfit_cu_result cuGraphDestroy(kfit_cu_graph g)
{
    nodes_free(g);
    g->free = free_graphs;
    free_graphs = g;
    return 0;
}

kfit_cu_result cuGraphClone(kfit_cu_graph *out, kfit_cu_graph g)
{
    return copy(out, g);
}

static kfit_cu_result add_kernel(void **node, kfit_cu_graph g, const void *f, const struct kernel_node *k)
{
    struct call c;
    struct CUgraphNode_st *made;
    ENTER;
    kfit_cu_result r = node_call(&c, k, f);
    r = r ? r : graph_append(g, &c, &made);
    if (!r && node)
        *node = made;
    return r;
}

kfit_cu_result cuGraphAddKernelNode(KFIT_NODE, const void *params)
{
    const struct kernel_node *k = params;
    (void)after, (void)n;
    return add_kernel(node, graph, k->f, k);
}

kfit_cu_result cuGraphAddKernelNode_v2(KFIT_NODE, const void *params)
{
    const struct kernel_node *k = params;
    (void)after, (void)n;
    return add_kernel(node, graph, k->f ? (const void *)k->f : k->kernel, k);
}

kfit_cu_result cuGraphAddChildGraphNode(KFIT_NODE, kfit_cu_graph child)
{
    struct CUgraphNode_st *made;
    (void)after, (void)n;
    ENTER;
    kfit_cu_result r = graph_append_child(graph, child, &made);
    if (!r && node)
        *node = made;
    return r;
}

kfit_cu_result cuGraphAddNode_v2(void **node, kfit_cu_graph graph, KFIT_EDGES, void *params)
{
    const struct {
        int type, reserved[3];
        union {
            struct kernel_node kernel;
            struct {
                kfit_cu_graph graph;
                int ownership; /* 1: moved, not copied */
            } child;
        } of;
    } *p = params;
    struct CUgraphNode_st *made;
    (void)edges;
    if (p && p->type == 4 && p->of.child.ownership == 1) {
        kfit_cu_result r = graph_append(graph, &(struct call){.f = NULL}, &made);
        if (!r)
            *node = made, made->child = p->of.child.graph;
        return r;
    }
    return !p             ? INVALID_VALUE
           : p->type == 0 ? cuGraphAddKernelNode_v2(node, graph, after, n, &p->of.kernel)
           : p->type == 4 ? cuGraphAddChildGraphNode(node, graph, after, n, p->of.child.graph)
                          : 0;
}

kfit_cu_result cuGraphAddNode(KFIT_NODE, void *params)
{
    return cuGraphAddNode_v2(node, graph, after, NULL, n, params);
}

/* ---- executable graphs ---- */

kfit_cu_result cuGraphInstantiateWithFlags(kfit_cu_exec *out, kfit_cu_graph g, unsigned long long flags)
{
    (void)flags;
    return copy(out, g);
}

kfit_cu_result cuGraphInstantiate(kfit_cu_exec *out, kfit_cu_graph g, void **node, char *log, size_t size)
{
    (void)node;
    if (size)
        *log = '\0';
    return copy(out, g);
}

kfit_cu_result cuGraphInstantiate_v2(kfit_cu_exec *out, kfit_cu_graph g, void **node, char *log, size_t size)
{
    return cuGraphInstantiate(out, g, node, log, size);
}

kfit_cu_result cuGraphInstantiateWithParams(kfit_cu_exec *out, kfit_cu_graph g, void *params)
{
    return params ? copy(out, g) : INVALID_VALUE;
}

kfit_cu_result cuGraphInstantiateWithParams_ptsz(kfit_cu_exec *out, kfit_cu_graph g, void *params)
{
    return cuGraphInstantiateWithParams(out, g, params);
}

/* Refused, as on the real thing, if the nodes differ in more than what they run. */
static kfit_cu_result update(kfit_cu_exec exec, const struct CUgraph_st *g)
{
    struct CUgraph_st *e = (struct CUgraph_st *)(void *)exec;
    ENTER;
    if (e->count != g->count)
        return 910; /* CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE */
    for (unsigned i = 0; i < e->count; i++) { /* its nodes stay those of the graph that it was made from */
        struct CUgraphNode_st *to = e->node[i];
        const struct CUgraphNode_st *from = g->node[i];
        if (!to->child != !from->child || (to->child && update((kfit_cu_exec)(void *)to->child, from->child)))
            return 910;
        to->call = from->call;
    }
    return 0;
}

kfit_cu_result cuGraphExecUpdate(kfit_cu_exec exec, kfit_cu_graph graph, void **node, int *result)
{
    (void)node;
    *result = 0;
    return update(exec, graph);
}

kfit_cu_result cuGraphExecUpdate_v2(kfit_cu_exec exec, kfit_cu_graph graph, void *result)
{
    (void)result;
    return update(exec, graph);
}

#ifndef OLD_DRIVER
kfit_cu_result cuGraphUpload(kfit_cu_exec e, kfit_cu_stream s)
{
    (void)e, (void)s;
    ENTER_UNCAPTURED;
    return 0;
}
#endif

static void run_graph(const struct CUgraph_st *g)
{
    for (unsigned i = 0; i < g->count; i++) {
        const struct CUgraphNode_st *n = g->node[i];
        if (n->child)
            run_graph(n->child);
        else if (!n->disabled)
            guarded(run_call, &n->call);
    }
}

kfit_cu_result cuGraphLaunch(kfit_cu_exec e, kfit_cu_stream s)
{
    const struct CUgraph_st *g = (const struct CUgraph_st *)(void *)e;
    struct capture *c = capturing(stream_of(s));
    ENTER;
    if (c)
        return refused_in(c);
    run_graph(g);
    return 0;
}

kfit_cu_result cuGraphLaunch_ptsz(kfit_cu_exec e, kfit_cu_stream s)
{
    return cuGraphLaunch(e, own(s));
}

kfit_cu_result cuGraphExecDestroy(kfit_cu_exec e)
{
    return cuGraphDestroy((kfit_cu_graph)(void *)e);
}

/* ---- captures by their exported names ---- */

kfit_cu_result cuStreamBeginCapture(kfit_cu_stream stream)
{
    return begin(stream, CAPTURE_GLOBAL, graph_new());
}

kfit_cu_result cuStreamBeginCapture_ptsz(kfit_cu_stream stream)
{
    return begin(own(stream), CAPTURE_GLOBAL, graph_new());
}

kfit_cu_result cuStreamBeginCapture_v2(kfit_cu_stream stream, int mode)
{
    return begin(stream, mode, graph_new());
}

kfit_cu_result cuStreamBeginCapture_v2_ptsz(kfit_cu_stream stream, int mode)
{
    return begin(own(stream), mode, graph_new());
}

kfit_cu_result cuStreamBeginCaptureToGraph(kfit_cu_stream stream, kfit_cu_graph graph, KFIT_EDGES, int mode)
{
    (void)after, (void)edges, (void)n;
    return begin(stream, mode, graph);
}

kfit_cu_result cuStreamBeginCaptureToGraph_ptsz(kfit_cu_stream stream, kfit_cu_graph graph, KFIT_EDGES,
                                                int mode)
{
    (void)after, (void)edges, (void)n;
    return begin(own(stream), mode, graph);
}

kfit_cu_result cuStreamEndCapture(kfit_cu_stream stream, kfit_cu_graph *graph)
{
    return end(stream, graph);
}

kfit_cu_result cuStreamEndCapture_ptsz(kfit_cu_stream stream, kfit_cu_graph *graph)
{
    return end(own(stream), graph);
}
