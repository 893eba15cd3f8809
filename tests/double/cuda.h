/* What the parts of libcuda's double share: libcuda.c (settings, faults, the device), cuda_memory.c, cuda_launch.c
 * (images, launches), cuda_stream.c (streams, graphs, events). */
#ifndef KFIT_TEST_DOUBLE_CUDA_H
#define KFIT_TEST_DOUBLE_CUDA_H

#include "double.h"

/* The driver's own header, made from our list: a definition that differs does not compile. */
#define KFIT_X(member, symbol, args) EXPORT kfit_cu_result symbol args;
KFIT_CUDA_LIST(KFIT_X)
#undef KFIT_X

enum { INVALID_VALUE = 1, NOT_INITIALIZED = 3, INVALID_IMAGE = 200, INVALID_CONTEXT = 201, INVALID_HANDLE = 400 };
enum { NOT_FOUND = 500, INVALIDATED = 901, CLUSTER_SIZE = 912 };
enum { COOPERATIVE_TOO_LARGE = 720 };

struct CUctx_st {
    int device;
    bool primary, active;
};
extern __thread struct CUctx_st *current; /* as on the real thing, each thread's own */
struct CUstream_st {
    struct CUctx_st *context;
    struct CUgraph_st *capture;
};
struct CUgraph_st {
    unsigned count, room;
    struct call *call;
};

struct gpu {
    bool ready, forked, hung;
    kfit_cu_result sticky;
    double now_ns;
    size_t used;
    int capturing;
    bool broken; /* what captures was disturbed: it comes to nothing */
};
extern struct gpu gpu;

/* A context that is not the primary one. */
EXPORT kfit_cu_result cuCtxCreate_v2(kfit_cu_context *, unsigned flags, kfit_cu_device);

/* Bytes of device memory in all. */
size_t memory(void);

/* Runs f with a real fault turned into the driver's: the context is lost from then on. */
void guarded(void (*f)(const void *), const void *arg);
/* Nothing runs later than the call that asked for it, except what never ends. */
kfit_cu_result wait_for_all(void);
/* One launch, now (of a struct call; for guarded). */
void run_call(const void *arg);
kfit_cu_result graph_append(struct CUgraph_st *g, const struct call *c);

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
        if (gpu.capturing) {                                                                                 \
            gpu.broken = true;                                                                               \
            return KFIT_CU_CAPTURING;                                                                        \
        }                                                                                                    \
    } while (0)

#endif
