/* The recorder's own state: never in the file, which others can write to. */
#ifndef KFIT_RECORDER_H
#define KFIT_RECORDER_H

#include <limits.h>

#include "kfit/trace.h"

/* Room in a trace of a GPU. Alike graphs share their items, so that a server that captures each of its layers at
 * 67 batch sizes needs thousands of the first and few of the second. */
enum { KFIT_LIVE_KERNELS = 2048, KFIT_LIVE_GRAPHS = 4096, KFIT_LIVE_ITEMS = 131072 };

struct kfit_recorder {
    struct kfit_trace_header *header; /* the mapping; slots follow */
    struct kfit_trace_slot *slots;
    struct kfit_trace_kernel *kernels; /* NULL, as the next two: no GPU's trace */
    struct kfit_trace_graph *graphs;
    struct kfit_trace_item *items;
    size_t bytes;
    uint32_t mask, limit;
    uint32_t generics_lock;
    char path[PATH_MAX];
};

/* How often a thread waits for one that is writing what it looks for. */
enum { KFIT_RECORDER_SPINS = 4000 };

#endif
