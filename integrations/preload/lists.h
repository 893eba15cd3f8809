/* What captures and graphs hold: lists of items of the trace, in order; for graphs.c. All under the handles' lock. */
#ifndef KFIT_PRELOAD_LISTS_H
#define KFIT_PRELOAD_LISTS_H

#include "driver.h"

struct kfit_list {
    uint32_t bytes; /* of the mapping that it begins */
    uint32_t count;
    uint32_t lost; /* calls and launches without room, or on another GPU than the first one's */
    uint32_t slabs; /* enum kfit_slabs */
    uint64_t given; /* to which executable graph, that the list has; 0: to something else */
    struct kfit_gpu *gpu;
    uint32_t *making; /* where it is counted: a kernel of kfit's in it is in nothing executable yet; NULL: not */
    struct kfit_trace_item items[];
};
/* Memory that kernels in it work in. */
enum kfit_slabs {
    KFIT_SLABS_NONE,
    KFIT_SLABS_OWN,   /* nobody else's */
    KFIT_SLABS_GIVEN, /* to what was made of it last */
};

static inline struct kfit_recorder *kfit_recorder_of(const struct kfit_gpu *gpu)
{
    return kfit_dispatcher_recorder(gpu->dispatcher);
}

/* What `kfit off` has to wait for: it may be replayed yet. */
uint32_t *kfit_making(const struct kfit_gpu *gpu);
void kfit_made(uint32_t *making);

/* The list at *at, a first one if there is none yet; NULL: no room. */
struct kfit_list *kfit_list_begun(struct kfit_list **at, struct kfit_gpu *gpu);
/* Adds an item, joined to the last one if alike. *at may move. */
void kfit_list_add(struct kfit_list **at, struct kfit_gpu *gpu, struct kfit_trace_item item);
void kfit_list_append(struct kfit_list **at, const struct kfit_list *more);
/* Its slabs, if it has any, went to this executable graph (0: to something else). */
void kfit_list_give(struct kfit_list *l, uint64_t to);
void kfit_list_free(struct kfit_list *l);

/* NULL: nothing is known of the graph. */
struct kfit_list *kfit_list_of(kfit_cu_graph graph);
/* graph has this list from now on, in place of the one it grew from. */
void kfit_list_put(kfit_cu_graph graph, struct kfit_list *l);

/* Some are where no list says so: in any graph, then. Without the lock. */
void kfit_slabs_lose(void);
bool kfit_slabs_are_lost(void);

#endif
