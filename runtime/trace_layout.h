/* Where the parts of a trace file lie, given how many of each there are: one answer for who writes and who reads. */
#ifndef KFIT_TRACE_LAYOUT_H
#define KFIT_TRACE_LAYOUT_H

#include "kfit/trace.h"

/* Fills in where kernels, graphs and items begin, and how large the file is. */
static inline void kfit_trace_layout(struct kfit_trace_header *h)
{
    struct kfit_trace_live *l = &h->live;
    const bool any = l->kernel_count || l->graph_count || l->item_count;
    const uint64_t slots_end = sizeof *h + (uint64_t)h->slot_count * sizeof(struct kfit_trace_slot);
    const uint64_t kernels_end = slots_end + (uint64_t)l->kernel_count * sizeof(struct kfit_trace_kernel);
    const uint64_t graphs_end = kernels_end + (uint64_t)l->graph_count * sizeof(struct kfit_trace_graph);
    l->kernels_at = any ? slots_end : 0;
    l->graphs_at = any ? kernels_end : 0;
    l->items_at = any ? graphs_end : 0;
    h->file_bytes = graphs_end + (uint64_t)l->item_count * sizeof(struct kfit_trace_item);
}

/* 0 means "none" in a table. name is terminated. */
uint64_t kfit_trace_kernel_hash(const char *name, uint64_t image_hash);

#endif
