/* What the scenes of workspace_calls.c and workspace_odd.c share. */
#ifndef KFIT_TEST_WORKSPACE_CALLS_H
#define KFIT_TEST_WORKSPACE_CALLS_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "kfit/cuda.h"

/* What kfit itself does not call. */
#define MORE(X)                                                                                              \
    X(cuGraphCreate, (kfit_cu_graph *, unsigned))                                                            \
    X(cuGraphClone, (kfit_cu_graph *, kfit_cu_graph))                                                        \
    X(cuGraphAddChildGraphNode, (void **node, kfit_cu_graph, void *const *, size_t, kfit_cu_graph child))    \
    X(cuGraphAddNode_v2,                                                                                     \
      (void **node, kfit_cu_graph, void *const *, const void *edges, size_t, void *params))                  \
    X(cuGraphChildGraphNodeGetGraph, (void *node, kfit_cu_graph *))                                          \
    X(cuStreamGetCaptureInfo_v2,                                                                             \
      (kfit_cu_stream, int *status, uint64_t *id, kfit_cu_graph *, void *const **, size_t *))                \
    X(cuGraphExecUpdate_v2, (kfit_cu_exec, kfit_cu_graph, void *info))                                       \
    X(cuGraphInstantiate_v2, (kfit_cu_exec *, kfit_cu_graph, void **, char *, size_t))                       \
    X(cuStreamWaitEvent, (kfit_cu_stream, kfit_cu_event, unsigned))                                          \
    X(cuStreamUpdateCaptureDependencies, (kfit_cu_stream, void **, size_t, unsigned))                        \
    X(cuStreamBeginCaptureToGraph,                                                                           \
      (kfit_cu_stream, kfit_cu_graph, void *const *, const void *, size_t, int mode))
#define X(symbol, parameters) extern kfit_cu_result(*symbol) parameters;
MORE(X)
#undef X

#define OK(call)                                                                                             \
    do {                                                                                                     \
        const int r_ = (call);                                                                               \
        if (r_) {                                                                                            \
            printf("%s:%d: %s: %d\n", __FILE__, __LINE__, #call, r_);                                        \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)
#define THAT(condition)                                                                                      \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            printf("%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                                   \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)

enum { RELAXED = 2 };
enum { RUNS_MAX = 1000, C_BYTES = 512, CALLS_MAX = 1000 };

extern const struct kfit_cuda *cu;
extern kfit_cu_context context;
extern kfit_cu_stream one, two, own; /* the last is each thread's */
extern unsigned calls;               /* each has a result of its own */
extern bool capturing;
extern struct seen {
    uint64_t count;
    struct run {
        uint64_t at, c, first; /* workspace, result, what was in the workspace */
    } run[RUNS_MAX];
} seen;

/* A product; returns its number. */
unsigned gemm(kfit_cu_stream stream);
/* How many kernels of ours have run. */
unsigned runs(void);
/* Where the i-th run worked; where the last run of this call did. */
uint64_t at(unsigned i);
uint64_t at_call(unsigned call);
void launch(kfit_cu_exec exec);
/* Where this executable graph works, all of it in one slab. */
uint64_t slab_of(kfit_cu_exec exec);
/* Captures on `one`. */
void begin(void);
kfit_cu_graph end(void);
kfit_cu_graph captured(int n);
kfit_cu_exec made_of(kfit_cu_graph graph);
void all_differ(const uint64_t *slab, unsigned n);

extern const struct scene {
    const char *name;
    void (*play)(void);
} odd_scenes[]; /* to one without a name */

#endif
