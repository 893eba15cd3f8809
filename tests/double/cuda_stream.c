#include <stdlib.h>
#include <unistd.h>

#include "cuda.h"

struct CUevent_st {
    bool recorded, never;
    double at_ns;
    struct capture *capture; /* that it was recorded in */
};

/* ---- streams ---- */

static struct CUstream_st *free_streams;

static void name(struct CUstream_st *s)
{
    static uint64_t last;
    if (!s->id)
        s->id = __atomic_add_fetch(&last, 1, __ATOMIC_RELAXED);
}

struct CUstream_st *stream_of(kfit_cu_stream s)
{
    static __thread struct CUstream_st on[GPUS_MAX]; /* the thread has one in each context */
    if ((uintptr_t)s == 2) {                         /* CU_STREAM_PER_THREAD */
        struct CUstream_st *own = &on[current ? current->device : 0];
        own->context = current;
        name(own);
        return own;
    }
    return (uintptr_t)s == 1 ? NULL : s;
}

kfit_cu_result cuStreamCreate(kfit_cu_stream *out, unsigned flags)
{
    (void)flags;
    ENTER;
    *out = free_streams ? free_streams : calloc(1, sizeof **out);
    if (*out) {
        free_streams = (*out)->free;
        **out = (struct CUstream_st){.context = current};
        name(*out);
    }
    return *out ? 0 : KFIT_CU_OUT_OF_MEMORY;
}

/* A driver was seen to refuse it of a stream in a capture; this one does of others as well, where the mode forbids. */
kfit_cu_result cuStreamGetId(kfit_cu_stream s, unsigned long long *id)
{
    const struct CUstream_st *known = stream_of(s);
    ENTER_UNCAPTURED;
    if (capturing(known))
        return refused_in(capturing(known));
    *id = known ? known->id : 0;
    return 0;
}

kfit_cu_result cuStreamDestroy_v2(kfit_cu_stream s)
{
    s->free = free_streams;
    free_streams = s;
    return 0;
}

kfit_cu_result cuStreamDestroy(kfit_cu_stream s)
{
    return cuStreamDestroy_v2(s);
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
    ENTER;
    *e = (struct CUevent_st){true, gpu.hung, gpu.now_ns, capturing(stream_of(s))};
    return 0;
}

/* A stream that waits for work of a capture is in it from then on. */
kfit_cu_result cuStreamWaitEvent(kfit_cu_stream s, kfit_cu_event e, unsigned flags)
{
    (void)flags;
    ENTER;
    if (e->capture && !e->capture->over && stream_of(s))
        stream_of(s)->capture = e->capture;
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
