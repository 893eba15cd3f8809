/* What the parts of libcuda's double share: libcuda.c (settings, faults, the device), cuda_memory.c, cuda_launch.c
 * (images, launches), cuda_stream.c (streams, events), cuda_graph.c, cuda_nodes.c. */
#ifndef KFIT_TEST_DOUBLE_CUDA_H
#define KFIT_TEST_DOUBLE_CUDA_H

#include <pthread.h>

#include "double.h"
#include "driver_hooks.h"

/* The driver's own header, made from our list: a definition that differs does not compile. */
#define KFIT_X(member, symbol, args) EXPORT kfit_cu_result symbol args;
KFIT_CUDA_LIST(KFIT_X)
#undef KFIT_X
/* What the shim hooks, and what it asks. */
#define KFIT_X(symbol, flags, asked, since, params, args, before, after) EXPORT kfit_cu_result symbol params;
KFIT_DRIVER_LIST(KFIT_X)
#undef KFIT_X
#define KFIT_X(symbol, params, args) EXPORT kfit_cu_result symbol params;
KFIT_DRIVER_QUERIES(KFIT_X)
#undef KFIT_X

enum {
    INVALID_VALUE = 1,
    NOT_INITIALIZED = 3,
    INVALID_IMAGE = 200,
    INVALID_CONTEXT = 201,
    INVALID_HANDLE = 400
};
enum { NOT_FOUND = 500, CLUSTER_SIZE = 912 };
enum { COOPERATIVE_TOO_LARGE = 720 };
enum { CAPTURE_BROKEN = 901, CAPTURE_UNMATCHED = 903, CAPTURE_IMPLICIT = 906, CAPTURE_WRONG_THREAD = 908 };
enum { CAPTURE_GLOBAL, CAPTURE_THREAD_LOCAL, CAPTURE_RELAXED }; /* modes */

enum { GPUS_MAX = 16 };
struct CUctx_st {
    int device;
    bool primary, active;
};
extern __thread struct CUctx_st *current; /* as on the real thing, each thread's own */
struct CUstream_st {
    struct CUctx_st *context;
    struct capture *capture; /* stays when over: see capturing() */
    uint64_t id;
    struct CUstream_st *free; /* the next one, last freed first */
};
struct capture {
    uint64_t id;
    int mode;
    bool broken, over;
    pthread_t thread; /* that began it */
    const struct CUstream_st *origin;
    struct CUgraph_st *graph;
    struct capture *next;
    void *last; /* node */
};
struct CUgraph_st {
    struct CUgraph_st *free; /* the next one, last freed first: handles are used again as soon as can be */
    unsigned count, room;
    struct CUgraphNode_st **node;
};
struct CUgraphNode_st {
    struct call call;
    struct CUgraph_st *child;        /* in place of the call */
    const struct CUgraph_st *graph;  /* NULL: it went with its graph */
    const struct CUgraphNode_st *of; /* what it was copied from: a clone's and an executable graph's */
    struct CUgraphNode_st *free;     /* as above */
    void *params[PARAMS_MAX];        /* as it tells them */
    bool disabled;
};
/* CUDA_KERNEL_NODE_PARAMS_v2; the first version ends before `kernel`. */
struct kernel_node {
    kfit_cu_function f;
    unsigned grid[3], block[3], smem_bytes;
    void **params, **extra;
    void *kernel;
};

struct gpu {
    bool ready, forked, hung;
    kfit_cu_result sticky;
    double now_ns;
    size_t used;
};
extern struct gpu gpu;

/* A context that is not the primary one. */
EXPORT kfit_cu_result cuGraphCreate(kfit_cu_graph *, unsigned flags);
EXPORT kfit_cu_result cuGraphNodeFindInClone(void **out, void *node, kfit_cu_graph clone);
EXPORT kfit_cu_result cuGraphNodeSetEnabled(kfit_cu_exec, void *node, unsigned enabled);
EXPORT kfit_cu_result cuGraphKernelNodeGetParams(void *node, void *params);
EXPORT kfit_cu_result cuGraphKernelNodeSetParams(void *node, const void *params);
EXPORT kfit_cu_result cuGraphKernelNodeGetAttribute(void *node, int id, void *value);
EXPORT kfit_cu_result cuGraphKernelNodeSetAttribute(void *node, int id, const void *value);
EXPORT kfit_cu_result cuGraphExecKernelNodeSetParams(kfit_cu_exec, void *node, const void *params);
EXPORT kfit_cu_result cuGraphExecKernelNodeSetParams_v2(kfit_cu_exec, void *node, const void *params);
EXPORT kfit_cu_result cuStreamWaitEvent(kfit_cu_stream, kfit_cu_event, unsigned flags);
EXPORT kfit_cu_result cuModuleGetFunction(kfit_cu_function *, void *module, const char *name);
EXPORT kfit_cu_result cuCtxCreate_v2(kfit_cu_context *, unsigned flags, kfit_cu_device);

/* Bytes of device memory in all. */
size_t memory(void);

/* Runs f with a real fault turned into the driver's: the context is lost from then on. */
void guarded(void (*f)(const void *), const void *arg);
/* Nothing runs later than the call that asked for it, except what never ends. */
kfit_cu_result wait_for_all(void);
/* One launch, now (of a struct call; for guarded). */
void run_call(const void *arg);
/* A node more, and its handle. */
kfit_cu_result graph_append(struct CUgraph_st *g, const struct call *c, struct CUgraphNode_st **out);
/* One that is a copy of a graph. */
kfit_cu_result graph_append_child(struct CUgraph_st *g, const struct CUgraph_st *from, struct CUgraphNode_st **out);
void nodes_free(struct CUgraph_st *g);
/* What a kernel node's parameters ask for; handle: of its function or kernel. */
kfit_cu_result node_call(struct call *c, const struct kernel_node *k, const void *handle);
/* The stream meant by a handle, which may be the thread's own; NULL: the legacy one. */
struct CUstream_st *stream_of(kfit_cu_stream s);
/* The capture that a stream is in now. */
struct capture *capturing(const struct CUstream_st *s);
/* 900, and the capture is broken: what no stream may be asked for in one. */
kfit_cu_result refused_in(struct capture *c);
/* The same, if one forbids this thread what would wait for, or change, other work. */
kfit_cu_result refused_by_captures(void);
/* A kernel's handle belongs to no context and is no function's; both name an entry of an image. */
static inline struct CUfunc_st *function_of(const void *handle)
{
    return (struct CUfunc_st *)((uintptr_t)handle & ~(uintptr_t)1);
}
static inline bool is_kernel(const void *handle)
{
    return (uintptr_t)handle & 1;
}
kfit_cu_result image_load(struct image **out, const void *data);
void image_unload(struct image *i);

#define ENTER                                                                                                \
    do {                                                                                                     \
        if (!gpu.ready || !current)                                                                          \
            return NOT_INITIALIZED;                                                                          \
        if (gpu.sticky)                                                                                      \
            return gpu.sticky;                                                                               \
    } while (0)
/* What would wait for, or change, work that a capture only notes. */
#define ENTER_UNCAPTURED                                                                                     \
    do {                                                                                                     \
        ENTER;                                                                                               \
        kfit_cu_result refused_ = refused_by_captures();                                                     \
        if (refused_)                                                                                        \
            return refused_;                                                                                 \
    } while (0)

#endif
