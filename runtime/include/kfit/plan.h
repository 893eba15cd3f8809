/* kfit/plan.h - a resolved plan: what to launch, as numbers only.
 *
 * A plan belongs to one image. On `host` it has one launch; grid, block, smem and cluster are 1, 1, 0 and 1
 * there, and `entry_offset` is the byte offset of the entry in the flat image. Entries receive the op's
 * pointers in the op's argument order, then the workspace pointer (NULL if workspace_bytes is 0).
 */
#ifndef KFIT_PLAN_H
#define KFIT_PLAN_H

#include <stdint.h>

#include "kfit/status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define KFIT_LAUNCHES_MAX   4
#define KFIT_ENTRY_NAME_MAX 64

enum kfit_ws_init {
    KFIT_WS_SCRATCH, /* contents undefined before and after */
    KFIT_WS_ZERO     /* zero when allocated; the plan leaves it zero */
};

struct kfit_launch {
    char entry[KFIT_ENTRY_NAME_MAX]; /* symbol, NUL-terminated */
    uint64_t entry_offset;           /* host only */
    uint32_t grid[3], block[3], cluster[3];
    uint32_t smem_bytes;
    uint32_t cooperative;
};

struct kfit_plan {
    uint64_t workspace_bytes;
    uint32_t workspace_init; /* enum kfit_ws_init */
    uint32_t launch_count;
    struct kfit_launch launches[KFIT_LAUNCHES_MAX];
};

/* Bounds: counts, names terminated, grids non-zero, host entry inside image_bytes and workspace at most 1
 * GiB. Every plan that comes from a file is checked before use. Errors: KFIT_E_FORMAT. */
enum kfit_status kfit_plan_check(const struct kfit_plan *plan, uint64_t image_bytes, struct kfit_error *err);

#ifdef __cplusplus
}
#endif
#endif
