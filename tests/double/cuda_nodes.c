/* Nodes of graphs: kernels', and child graphs. */
#include <stdlib.h>
#include <string.h>

#include "cuda.h"

static struct CUgraphNode_st *free_nodes;

kfit_cu_result graph_append(struct CUgraph_st *g, const struct call *c, struct CUgraphNode_st **out)
{
    if (g->count == g->room) {
        unsigned room = g->room ? 2 * g->room : 64;
        struct CUgraphNode_st **more = realloc(g->node, room * sizeof *more);
        if (!more)
            return KFIT_CU_OUT_OF_MEMORY;
        g->node = more;
        g->room = room;
    }
    struct CUgraphNode_st *n = free_nodes ? free_nodes : calloc(1, sizeof *n);
    if (!n)
        return KFIT_CU_OUT_OF_MEMORY;
    free_nodes = n->free;
    *n = (struct CUgraphNode_st){.call = *c, .graph = g};
    *out = g->node[g->count++] = n;
    return 0;
}

void nodes_free(struct CUgraph_st *g)
{
    for (unsigned i = 0; i < g->count; i++) {
        if (g->node[i]->child)
            cuGraphDestroy(g->node[i]->child);
        g->node[i]->graph = NULL;
        g->node[i]->free = free_nodes;
        free_nodes = g->node[i];
    }
    free(g->node);
}

kfit_cu_result node_call(struct call *c, const struct kernel_node *k, const void *handle)
{
    *c = (struct call){
        .f = function_of(handle), .config.smem_bytes = k->smem_bytes, .cluster = 1, .in_graph = true};
    memcpy(c->config.grid, k->grid, sizeof k->grid);
    memcpy(c->config.block, k->block, sizeof k->block);
    if (!c->f || (int)k->smem_bytes > c->f->smem_max || (c->f->params[0] && !k->params))
        return INVALID_VALUE;
    for (unsigned i = 0; c->f->params[i]; i++)
        memcpy(&c->param[i], k->params[i], c->f->params[i] == 'i' ? 4 : 8);
    return 0;
}

/* A node that is there, or NULL. */
static struct CUgraphNode_st *node_of(void *handle)
{
    struct CUgraphNode_st *n = handle;
    return n && n->graph ? n : NULL;
}

/* The one made of it by cuGraphClone or by instantiating; NULL: it is of another graph, or is gone. */
static struct CUgraphNode_st *copy_in(const struct CUgraph_st *g, void *handle)
{
    for (unsigned i = 0; node_of(handle) && i < g->count; i++)
        if (g->node[i]->of == handle)
            return g->node[i];
    return NULL;
}

/* What runs changes; what was set by attributes stays. */
static kfit_cu_result set(struct CUgraphNode_st *n, const struct kernel_node *k, const void *handle)
{
    struct call c;
    kfit_cu_result r = n && !n->child ? node_call(&c, k, handle) : INVALID_VALUE;
    if (r)
        return r;
    c.cluster = n->call.cluster;
    c.cooperative = n->call.cooperative;
    n->call = c;
    return 0;
}

static const void *either(const struct kernel_node *k)
{
    return k->f ? (const void *)k->f : k->kernel;
}

/* ---- what a graph has ---- */

kfit_cu_result cuGraphGetNodes(kfit_cu_graph g, void **nodes, size_t *n)
{
    ENTER;
    for (size_t i = 0; nodes && i < *n; i++)
        nodes[i] = i < g->count ? g->node[i] : NULL;
    if (!nodes || *n > g->count)
        *n = g->count;
    return 0;
}

kfit_cu_result cuGraphNodeGetType(void *node, int *type)
{
    ENTER;
    *type = node_of(node) && node_of(node)->child ? 4 : 0;
    return node_of(node) ? 0 : INVALID_VALUE;
}

kfit_cu_result cuGraphChildGraphNodeGetGraph(void *node, kfit_cu_graph *out)
{
    ENTER;
    *out = node_of(node) ? node_of(node)->child : NULL;
    return *out ? 0 : INVALID_VALUE;
}

kfit_cu_result cuGraphNodeFindInClone(void **out, void *node, kfit_cu_graph clone)
{
    ENTER;
    *out = copy_in(clone, node);
    return *out ? 0 : INVALID_VALUE;
}

/* ---- kernels ---- */

kfit_cu_result cuGraphKernelNodeGetParams(void *node, void *params)
{
    struct CUgraphNode_st *n = node_of(node);
    ENTER;
    if (!n || n->child)
        return INVALID_VALUE;
    struct kernel_node k = {.f = n->call.f, .smem_bytes = n->call.config.smem_bytes, .params = n->params};
    memcpy(k.grid, n->call.config.grid, sizeof k.grid);
    memcpy(k.block, n->call.config.block, sizeof k.block);
    for (unsigned i = 0; i < PARAMS_MAX; i++)
        n->params[i] = &n->call.param[i];
    memcpy(params, &k, offsetof(struct kernel_node, kernel));
    return 0;
}

kfit_cu_result cuGraphKernelNodeGetParams_v2(void *node, void *params)
{
    const kfit_cu_result r = cuGraphKernelNodeGetParams(node, params);
    if (!r)
        memset((char *)params + offsetof(struct kernel_node, kernel), 0,
               2 * sizeof(void *)); /* and the context */
    return r;
}

kfit_cu_result cuGraphKernelNodeSetParams(void *node, const void *params)
{
    const struct kernel_node *k = params;
    ENTER;
    return set(node_of(node), k, k->f);
}

kfit_cu_result cuGraphKernelNodeSetParams_v2(void *node, const void *params)
{
    ENTER;
    return set(node_of(node), params, either(params));
}

kfit_cu_result cuGraphKernelNodeGetAttribute(void *node, int id, void *value)
{
    const struct CUgraphNode_st *n = node_of(node);
    ENTER;
    if (!n || (id != KFIT_CU_LAUNCH_CLUSTER && id != KFIT_CU_LAUNCH_COOPERATIVE))
        return INVALID_VALUE;
    const unsigned cluster[] = {n->call.cluster, 1, 1}, cooperative = n->call.cooperative;
    if (id == KFIT_CU_LAUNCH_CLUSTER)
        memcpy(value, cluster, sizeof cluster);
    else
        memcpy(value, &cooperative, sizeof cooperative);
    return 0;
}

kfit_cu_result cuGraphKernelNodeSetAttribute(void *node, int id, const void *value)
{
    struct CUgraphNode_st *n = node_of(node);
    unsigned cluster[3];
    int cooperative;
    ENTER;
    if (!n || (id != KFIT_CU_LAUNCH_CLUSTER && id != KFIT_CU_LAUNCH_COOPERATIVE))
        return INVALID_VALUE;
    memcpy(cluster, value, sizeof cluster);
    memcpy(&cooperative, value, sizeof cooperative);
    for (int i = 0; i < 3 && id == KFIT_CU_LAUNCH_CLUSTER; i++)
        if (!cluster[i] || n->call.config.grid[i] % cluster[i])
            return CLUSTER_SIZE;
    if (id == KFIT_CU_LAUNCH_CLUSTER)
        n->call.cluster = cluster[0] * cluster[1] * cluster[2];
    else
        n->call.cooperative = cooperative;
    return 0;
}

/* ---- in an executable graph: known by the nodes of the graph that it was made from ---- */

kfit_cu_result cuGraphExecKernelNodeSetParams(kfit_cu_exec exec, void *node, const void *params)
{
    const struct kernel_node *k = params;
    ENTER;
    return set(copy_in((const struct CUgraph_st *)(void *)exec, node), k, k->f);
}

kfit_cu_result cuGraphExecKernelNodeSetParams_v2(kfit_cu_exec exec, void *node, const void *params)
{
    ENTER;
    return set(copy_in((const struct CUgraph_st *)(void *)exec, node), params, either(params));
}

kfit_cu_result cuGraphNodeSetEnabled(kfit_cu_exec exec, void *node, unsigned enabled)
{
    struct CUgraphNode_st *n = copy_in((const struct CUgraph_st *)(void *)exec, node);
    ENTER;
    if (!n)
        return INVALID_VALUE;
    n->disabled = !enabled;
    return 0;
}
