/* A trace in private memory: only what passed every check. */
#ifndef KFIT_TRACE_SNAPSHOT_H
#define KFIT_TRACE_SNAPSHOT_H

#include <sys/types.h>

#include "kfit/trace.h"

struct kfit_trace {
    struct kfit_trace_header header;
    struct kfit_trace_slot *slots; /* ready ones only */
    size_t count, room, skipped;
    struct kfit_trace_kernel *kernels; /* ready ones only */
    size_t kernel_count, kernel_room;
    struct kfit_trace_graph *graphs; /* those with an end or none yet, their items within the pool */
    size_t graph_count;
    struct kfit_trace_item *items; /* the pool; indices into slots and kernels above */
    size_t live_skipped;
};

bool kfit_trace_read_at(int fd, void *buf, size_t bytes, off_t at);
void kfit_add_sat(uint64_t *sum, uint64_t v);

/* Reads kernels, graphs and items. where[slot_count + i] becomes 1 + the place of the file's kernel i in t, 0: none. */
enum kfit_status kfit_trace_read_live(struct kfit_trace *t, int fd, uint32_t *where, const char *path,
                                      struct kfit_error *err);
/* Adds what the graphs ran to the counts of slots and kernels, and lets items say where these are in t; where as
 * above, slots first. */
enum kfit_status kfit_trace_fold(struct kfit_trace *t, const uint32_t *where, struct kfit_error *err);

/* A table of t's kernels as a file has it. On success the caller frees *out. */
enum kfit_status kfit_trace_kernel_table(const struct kfit_trace *t, struct kfit_trace_kernel **out,
                                         uint32_t *room, struct kfit_error *err);
/* Adds the kernels of all n traces into out, which has none. */
enum kfit_status kfit_trace_merge_kernels(struct kfit_trace *out, const struct kfit_trace *const *in,
                                          size_t n, struct kfit_error *err);

#endif
