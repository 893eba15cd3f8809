/* The GPUs that this process serves calls on: one dispatcher each, found by the context that is current.
 *
 * Kernels are loaded into a GPU's primary context, the one that CUDA's runtime uses. A call in any other goes to the
 * original. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kfit/cuda.h"
#include "kfit/device.h"
#include "kfit/process.h"
#include "preload.h"

/* What an operator says who needs the same bits every time, whatever the batch. Kernels chosen by shape would break that,
 * unless he knows better (KFIT_PINNED). */
static const char *pinned(void)
{
    const bool invariant = kfit_switch(kfit_variable("VLLM_BATCH_INVARIANT")) != 0;
    if (kfit_switch(kfit_variable("KFIT_PINNED")) == 1)
        return NULL;
    return kfit_variable("CUBLAS_WORKSPACE_CONFIG")
               ? "CUBLAS_WORKSPACE_CONFIG pins cuBLAS's workspace (KFIT_PINNED=1: kernels run all the same)"
           : invariant
               ? "VLLM_BATCH_INVARIANT asks for batch invariance (KFIT_PINNED=1: kernels run all the same)"
               : NULL;
}

struct seen {
    const struct kfit_cuda *cu;
    kfit_cu_context context;
    kfit_cu_device ordinal;
    struct kfit_device_info info;
};

/* As kfit_judge_cuda_env has it: records made there are to match here. */
static void look(struct kfit_server *s, struct kfit_surroundings *o, const void *ctx)
{
    const struct seen *at = ctx;
    char driver[32] = "", blas[48];
    int version = 0;
    (void)s;
    if (!at->cu->driver_version(&version))
        snprintf(driver, sizeof driver, "CUDA %d.%d", version / 1000, version % 1000 / 10);
    kfit_cublas_name(blas, sizeof blas, NULL);
    kfit_env_cuda(&o->env, at->info.arch, at->info.model, at->info.units, driver[0] ? driver : NULL,
                  blas[0] ? blas : NULL, NULL);
    snprintf(o->suffix, sizeof o->suffix, "-cuda%d", at->ordinal);
    o->hold = pinned();
}

/* A context not seen before. *stray: the GPU served, if the context is another one of it. */
__attribute__((noinline)) static struct kfit_gpu *meet(kfit_cu_context context, struct kfit_gpu **stray,
                                                      bool call)
{
    struct seen at;
    struct kfit_gpu *gpu = NULL;
    struct kfit_manners manners = kfit_manners_begin();
    if (kfit_cuda_load(&at.cu, NULL) == KFIT_OK && !at.cu->context_device(&at.ordinal) && at.ordinal >= 0 &&
        at.ordinal < KFIT_GPUS_MAX) {
        struct kfit_gpu *g = &kfit_gpus.at[at.ordinal];
        struct kfit_server *s = &kfit_servers[KFIT_SERVER_GPU + at.ordinal];
        void *known = __atomic_load_n(&g->context, __ATOMIC_ACQUIRE);
        if (known == (void *)context) { /* met meanwhile, by another thread */
            gpu = g->dispatcher ? g : NULL;
        } else if (known) {
            *stray = g->dispatcher ? g : NULL;
        } else if (kfit_cuda_attach(&at.context, &at.ordinal, &at.info, NULL) == KFIT_OK) {
            struct kfit_dispatcher *d = kfit_serve(s, look, &at, call);
            if (d || __atomic_load_n(&s->off, __ATOMIC_ACQUIRE)) {
                g->ordinal = (uint32_t)at.ordinal;
                g->dispatcher = d;
                if (d)
                    kfit_pool_make(g);
                __atomic_store_n(&g->context, (void *)at.context, __ATOMIC_RELEASE);
                gpu = d ? g : NULL;
            }
        }
    }
    kfit_manners_end(manners);
    return gpu;
}

static kfit_cu_result no_driver(kfit_cu_context *context)
{
    (void)context;
    return KFIT_CU_NO_DEVICE;
}

static kfit_cu_result first(kfit_cu_context *context);
_Alignas(64) struct kfit_gpus kfit_gpus = {.context_current = first};

static kfit_cu_result first(kfit_cu_context *context)
{
    const struct kfit_cuda *cu;
    struct kfit_manners manners = kfit_manners_begin();
    kfit_cu_result (*ask)(kfit_cu_context *) =
        kfit_asked() && kfit_cuda_load(&cu, NULL) == KFIT_OK ? cu->context_current : no_driver;
    kfit_manners_end(manners);
    __atomic_store_n(&kfit_gpus.context_current, ask, __ATOMIC_RELAXED);
    return ask(context);
}

/* met: of a context that is none of ours, as yet. */
static inline struct kfit_gpu *current(struct kfit_gpu *met(kfit_cu_context context))
{
    kfit_cu_context context = NULL;
    if (__atomic_load_n(&kfit_gpus.context_current, __ATOMIC_RELAXED)(&context) || !context)
        return NULL;
    for (struct kfit_gpu *g = kfit_gpus.at; g < kfit_gpus.at + KFIT_GPUS_MAX; g++)
        if (__atomic_load_n(&g->context, __ATOMIC_ACQUIRE) == (void *)context)
            return g->dispatcher ? g : NULL;
    return met(context);
}

static __attribute__((cold)) struct kfit_gpu *of_launch(kfit_cu_context context)
{
    struct kfit_gpu *stray = NULL;
    return meet(context, &stray, false);
}

static __attribute__((cold)) struct kfit_gpu *of_call(kfit_cu_context context)
{
    struct kfit_gpu *stray = NULL, *gpu = meet(context, &stray, true);
    if (stray)
        kfit_dispatch_unkeyed(stray->dispatcher, KFIT_REASON_STREAM_STATE);
    return gpu;
}

struct kfit_gpu *kfit_gpu_current(void)
{
    return current(of_launch);
}

struct kfit_gpu *kfit_gpu_of_new_handle(const void *handle)
{
    const uint64_t key = kfit_handle_key(handle);
    const struct kfit_handle *known = kfit_handle_find(KFIT_BLAS_HANDLES, key);
    struct kfit_gpu *gpu = known ? (struct kfit_gpu *)(uintptr_t)__atomic_load_n(&known->value, __ATOMIC_RELAXED) : NULL;
    if (gpu || !(gpu = current(of_call)))
        return gpu;
    const struct kfit_handle h = {.key = key, .value = kfit_handle_key(gpu)};
    struct kfit_manners manners = kfit_manners_begin();
    if (kfit_handles_lock()) {
        kfit_handle_put(KFIT_BLAS_HANDLES, &h); /* without room for it, each call asks */
        kfit_handles_unlock();
    }
    kfit_manners_end(manners);
    return gpu;
}

void kfit_handle_unowned(const void *handle)
{
    struct kfit_handle h;
    struct kfit_manners manners = kfit_manners_begin();
    if (kfit_handle_find(KFIT_BLAS_HANDLES, kfit_handle_key(handle)) && kfit_handles_lock()) {
        kfit_handle_take(KFIT_BLAS_HANDLES, kfit_handle_key(handle), &h);
        kfit_handles_unlock();
    }
    kfit_manners_end(manners);
}
