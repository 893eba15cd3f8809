#include <stdlib.h>
#include <unistd.h>

#include "cuda.h"

struct CUevent_st {
    bool recorded, never;
    double at_ns;
};

/* ---- streams ---- */

kfit_cu_result cuStreamCreate(kfit_cu_stream *out, unsigned flags)
{
    (void)flags;
    ENTER;
    *out = calloc(1, sizeof **out);
    if (*out)
        (*out)->context = current;
    return *out ? 0 : KFIT_CU_OUT_OF_MEMORY;
}

kfit_cu_result cuStreamDestroy_v2(kfit_cu_stream s)
{
    free(s);
    return 0;
}

kfit_cu_result cuStreamSynchronize(kfit_cu_stream s)
{
    (void)s;
    return wait_for_all();
}

kfit_cu_result cuStreamQuery(kfit_cu_stream s)
{
    (void)s;
    ENTER_UNCAPTURED;
    return gpu.hung ? KFIT_CU_NOT_READY : 0;
}

/* ---- graphs ---- */

kfit_cu_result graph_append(struct CUgraph_st *g, const struct call *c)
{
    if (g->count == g->room) {
        unsigned room = g->room ? 2 * g->room : 64;
        struct call *more = realloc(g->call, room * sizeof *more);
        if (!more)
            return KFIT_CU_OUT_OF_MEMORY;
        g->call = more;
        g->room = room;
    }
    g->call[g->count++] = *c;
    return 0;
}

kfit_cu_result cuStreamBeginCapture_v2(kfit_cu_stream s, int mode)
{
    (void)mode;
    ENTER_UNCAPTURED;
    s->capture = calloc(1, sizeof *s->capture);
    gpu.capturing += s->capture != NULL;
    return s->capture ? 0 : KFIT_CU_OUT_OF_MEMORY;
}

kfit_cu_result cuStreamEndCapture(kfit_cu_stream s, kfit_cu_graph *out)
{
    ENTER;
    if (!s->capture)
        return INVALID_VALUE;
    *out = s->capture;
    s->capture = NULL;
    gpu.capturing--;
    bool broken = gpu.broken;
    gpu.broken = gpu.broken && gpu.capturing;
    return broken ? INVALIDATED : 0;
}

kfit_cu_result cuGraphDestroy(kfit_cu_graph g)
{
    free(g->call);
    free(g);
    return 0;
}

kfit_cu_result cuGraphInstantiateWithFlags(kfit_cu_exec *out, kfit_cu_graph g, unsigned long long flags)
{
    (void)flags;
    ENTER;
    struct CUgraph_st *copy = calloc(1, sizeof *copy);
    kfit_cu_result r = copy ? 0 : KFIT_CU_OUT_OF_MEMORY;
    for (unsigned i = 0; !r && i < g->count; i++)
        r = graph_append(copy, &g->call[i]);
    *out = (kfit_cu_exec)(void *)copy;
    return r;
}

#ifndef OLD_DRIVER
kfit_cu_result cuGraphUpload(kfit_cu_exec e, kfit_cu_stream s)
{
    (void)e, (void)s;
    ENTER_UNCAPTURED;
    return 0;
}
#endif

kfit_cu_result cuGraphLaunch(kfit_cu_exec e, kfit_cu_stream s)
{
    const struct CUgraph_st *g = (const struct CUgraph_st *)(void *)e;
    (void)s;
    ENTER_UNCAPTURED;
    for (unsigned i = 0; i < g->count; i++)
        guarded(run_call, &g->call[i]);
    return 0;
}

kfit_cu_result cuGraphExecDestroy(kfit_cu_exec e)
{
    return cuGraphDestroy((kfit_cu_graph)(void *)e);
}

/* ---- events ---- */

kfit_cu_result cuEventCreate(kfit_cu_event *out, unsigned flags)
{
    (void)flags;
    ENTER;
    *out = calloc(1, sizeof **out);
    return *out ? 0 : KFIT_CU_OUT_OF_MEMORY;
}

kfit_cu_result cuEventDestroy_v2(kfit_cu_event e)
{
    free(e);
    return 0;
}

kfit_cu_result cuEventRecord(kfit_cu_event e, kfit_cu_stream s)
{
    (void)s;
    ENTER_UNCAPTURED;
    *e = (struct CUevent_st){true, gpu.hung, gpu.now_ns};
    return 0;
}

kfit_cu_result cuEventQuery(kfit_cu_event e)
{
    ENTER_UNCAPTURED;
    return e->never ? KFIT_CU_NOT_READY : 0;
}

kfit_cu_result cuEventSynchronize(kfit_cu_event e)
{
    ENTER_UNCAPTURED;
    while (e->never)
        pause();
    return 0;
}

kfit_cu_result cuEventElapsedTime(float *ms, kfit_cu_event start, kfit_cu_event end)
{
    ENTER_UNCAPTURED;
    if (!start->recorded || !end->recorded)
        return INVALID_VALUE;
    if (end->never)
        return KFIT_CU_NOT_READY;
    *ms = (float)((end->at_ns - start->at_ns) * 1e-6);
    return 0;
}
