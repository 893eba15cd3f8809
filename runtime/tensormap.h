/* Tensor maps of a plan, encoded for the pointers of a call and remembered by them: weights come back again and again. */
#ifndef KFIT_TENSORMAP_H
#define KFIT_TENSORMAP_H

#include "kfit/cuda.h"
#include "kfit/plan.h"

#define KFIT_MAPS_REMEMBERED 16 /* pointers per map; beyond these each call encodes anew */

struct kfit_map_memo {
    uint32_t state; /* 0, being written, READY */
    const void *at;
    struct kfit_cu_tensormap map;
};

/* The map for an argument at `at`: a remembered one, or in *spare. NULL if the driver refuses it, a pointer that is not
 * aligned to 16 for one. Any thread, without lock; memo has KFIT_MAPS_REMEMBERED entries, zero at first. */
const struct kfit_cu_tensormap *kfit_tensormap(const struct kfit_cuda *cu, const struct kfit_tensormap *m,
                                               struct kfit_map_memo *memo, void *at,
                                               struct kfit_cu_tensormap *spare);

#endif
