/* A program that uses the driver: how it comes by each function, and what its scenes (driver_calls.c, driver_graphs.c)
 * share. */
#ifndef DRIVER_CALLS_H
#define DRIVER_CALLS_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "double.h"
#include "driver_hooks.h"
#include "kfit/cuda.h"

/* Beyond what is hooked. */
#define PLAIN_LIST(X)                                                                                        \
    X(kfit_cu_result, cuInit, (unsigned))                                                                    \
    X(kfit_cu_result, cuDevicePrimaryCtxRetain, (kfit_cu_context *, kfit_cu_device))                         \
    X(kfit_cu_result, cuCtxSetCurrent, (kfit_cu_context))                                                    \
    X(kfit_cu_result, cuCtxCreate_v2, (kfit_cu_context *, unsigned, kfit_cu_device))                         \
    X(kfit_cu_result, cuStreamCreate, (kfit_cu_stream *, unsigned))                                          \
    X(kfit_cu_result, cuModuleGetFunction, (kfit_cu_function *, void *, const char *))                       \
    X(kfit_cu_result, cuLibraryGetKernel, (kfit_cu_kernel *, kfit_cu_library, const char *))                 \
    X(kfit_cu_result, cuGraphCreate, (kfit_cu_graph *, unsigned))                                            \
    X(kfit_cu_result, cuEventCreate, (kfit_cu_event *, unsigned))                                            \
    X(kfit_cu_result, cuEventRecord, (kfit_cu_event, kfit_cu_stream))                                        \
    X(kfit_cu_result, cuEventQuery, (kfit_cu_event))                                                         \
    X(kfit_cu_result, cuStreamWaitEvent, (kfit_cu_stream, kfit_cu_event, unsigned))                          \
    X(kfit_cu_result, cuThreadExchangeStreamCaptureMode, (int *))
/* Of the double only: NULL on a GPU. */
#define DOUBLE_LIST(X)                                                                                       \
    X(const struct kfit_double_launch *, kfit_double_last_launch, (void))                                    \
    X(unsigned, kfit_double_launches, (void))                                                                \
    X(unsigned, kfit_double_capture_queries, (void))                                                         \
    X(void *, kfit_double_pointer, (const char *, int, uint64_t))                                            \
    X(const char *, kfit_double_name, (unsigned))

struct functions {
#define X(symbol, flags, asked, since, params, args, before, after) kfit_cu_result(*symbol) params;
    KFIT_DRIVER_LIST(X)
#undef X
#define X(type, symbol, params) type(*symbol) params;
    PLAIN_LIST(X)
    DOUBLE_LIST(X)
#undef X
};
extern struct functions cu;

#define OK(call)                                                                                             \
    do {                                                                                                     \
        int r_ = (call);                                                                                     \
        if (r_) {                                                                                            \
            fprintf(stderr, "%s:%d: %s: %d\n", __FILE__, __LINE__, #call, r_);                               \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)
#define IS(have, want)                                                                                       \
    do {                                                                                                     \
        long long have_ = (long long)(have), want_ = (long long)(want);                                      \
        if (have_ != want_) {                                                                                \
            fprintf(stderr, "%s:%d: %s is %lld, not %lld\n", __FILE__, __LINE__, #have, have_, want_);       \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)

/* What a driver refuses, with one error or another. */
#define FAILS(call) IS((call) != 0, 1)
/* What only the double can tell. */
#define ON_DOUBLE (cu.kfit_double_launches != NULL)
#define SEEN(have, want)                                                                                     \
    do {                                                                                                     \
        if (ON_DOUBLE)                                                                                       \
            IS(have, want);                                                                                  \
    } while (0)

extern void *libcuda; /* its handle */
extern kfit_cu_stream stream, second;

/* cuInit, the primary context of GPU 0, two streams. */
void start_gpu(void);
/* An image of one kernel that does nothing: PTX, with what the double reads in a comment. Good until the next call. */
const char *image_of(const char *kernel);
/* Its function, from a module of its own that is never unloaded. */
kfit_cu_function function(const char *kernel);
/* Launches it so often. */
void launch_on(kfit_cu_stream s, kfit_cu_function f, int times);

struct scene {
    const char *name;
    void (*play)(int argc, char **argv);
};
extern const struct scene graph_scenes[]; /* ends with a NULL name */

#endif
