/* What the CUDA parts of the shim share. Two levels see one program:
 *
 *   library   cublas.c, cublaslt.c   calls of cuBLAS and cuBLASLt: a key each, and the dispatcher's answer
 *   driver    driver.c, graphs.c     launches, captures, graphs: how often captured calls ran, and what else runs
 *
 * The library level asks the driver level whether a stream captures, and hands it the calls made there; the driver level
 * asks the library level whether a launch comes from within a hooked call. Nothing here costs a program anything that
 * does not use CUDA. */
#ifndef KFIT_PRELOAD_GPU_H
#define KFIT_PRELOAD_GPU_H

#include <stdbool.h>
#include <stdint.h>

#include "kfit/cuda.h"
#include "kfit/dispatch.h"

/* ---- served.c: what this process does with calls of one GPU ---- */

#define KFIT_GPUS_MAX 16
#define KFIT_BLAS_MAX 16

struct kfit_gpu {
    struct kfit_dispatcher *dispatcher; /* NULL until started, or off */
    void *context;                      /* the primary one; calls in another go to the original */
    struct kfit_pool *pool;             /* memory for kernels that need some; NULL: there is none */
    uint32_t ordinal;                   /* as the process sees devices */
    bool pool_made;                     /* or tried */
    uint8_t generic[KFIT_BLAS_MAX];     /* a library's index in the trace + 1; 0: not asked yet */
};

/* By ordinal; a context is written last, and once. All of this that a call on one GPU touches is one cache line: a driver
 * has run for microseconds since the last call, and none of ours is near. */
struct kfit_gpus {
    int (*context_current)(kfit_cu_context *); /* cuCtxGetCurrent, once the environment asks for anything */
    struct kfit_gpu at[KFIT_GPUS_MAX];
};
extern _Alignas(64) struct kfit_gpus kfit_gpus;

/* On the way of a call that is counted and passed on: such functions lie next to each other, for the same reason. */
#define KFIT_HOT __attribute__((hot))

/* Whether this one's primary context, in which it was met, is current. */
static inline bool kfit_gpu_is_current(uint32_t ordinal)
{
    kfit_cu_context context = NULL;
    return !__atomic_load_n(&kfit_gpus.context_current, __ATOMIC_RELAXED)(&context) && context &&
           (void *)context == __atomic_load_n(&kfit_gpus.at[ordinal].context, __ATOMIC_ACQUIRE);
}

/* The GPU of the current context, its dispatcher started if need be; NULL: off, no context, too many GPUs, another
 * thread is starting it just now, or the context is not a primary one. Legal while a stream captures. */
struct kfit_gpu *kfit_gpu_current(void);
/* The same for a hooked library call made with a handle of cuBLAS or cuBLASLt, which is remembered as that GPU's. A call
 * in another context of a served GPU is counted. */
struct kfit_gpu *kfit_gpu_of_new_handle(const void *handle);
/* Before a handle goes, or where it was not whose it was taken for. */
void kfit_handle_unowned(const void *handle);

/* ---- cublas.c ---- */

/* How many hooked library calls this thread is in: cuBLAS calls cuBLASLt, and both launch. */
extern __thread unsigned kfit_library_depth __attribute__((tls_model("initial-exec")));

/* ---- workspace.c ---- */

/* Takes the GPU's memory, at most KFIT_GPU_MEMORY, the first time; nothing if its kernels need none. Its context is
 * current. */
void kfit_pool_make(struct kfit_gpu *gpu);

/* Who launches with it just now: so many kernels of one launch, or -1: one of several. */
struct kfit_hold {
    int32_t *who;
    int32_t share;
};

/* k->workspace_bytes for a launch of k on `stream`, in this capture if it is in one; NULL: none left, or another thread
 * is in the midst of launching there what must not be mixed with k. Without a capture no lock, and two queries of
 * the stream. */
void *kfit_workspace(struct kfit_gpu *gpu, const struct kfit_kernel *k, void *stream, const uint64_t *capture,
                     struct kfit_hold *hold);
/* k was launched, or was not. */
static inline void kfit_workspace_end(struct kfit_hold hold)
{
    if (hold.who)
        __atomic_fetch_sub(hold.who, hold.share, __ATOMIC_RELEASE);
}

/* ---- graphs.c ---- */

/* Whether `stream` captures now, and in which capture. One load if nothing does. */
bool kfit_capture_of(void *stream, uint64_t *id);

/* A hooked call made in a capture, before and after: what became of it. In between it counts as a kernel
 * of kfit's on its way into a graph, so that whoever switches kfit off, and looks then, either sees it there or
 * was seen by it. */
uint32_t *kfit_capture_calls(const struct kfit_gpu *gpu);
void kfit_capture_note(uint64_t id, struct kfit_gpu *gpu, int32_t slot, enum kfit_reason decision,
                       uint32_t *making);

#endif
