/* kfit/plan.h - a resolved plan: what to launch, as numbers only.
 *
 * A plan belongs to one image. On `host` it has one launch; grid, block, smem and cluster are 1, 1, 0 and 1
 * there, and `entry_offset` is the byte offset of the entry in the flat image. Entries receive the op's
 * pointers in the op's argument order, then the workspace pointer (NULL if workspace_bytes is 0), then the tensor maps.
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
#define KFIT_TENSORMAPS_MAX 4

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

/* cuda, sm_90 and up: one argument as the copy engine sees it, matrices of rows x cols elements, of which each copy brings
 * a box. Encoded for the pointer of each call; 128 bytes, aligned to 64, passed by value (CUtensorMap). */
struct kfit_tensormap {
    uint32_t arg;                /* argument of the op */
    uint32_t type;               /* enum kfit_dtype */
    uint32_t box_rows, box_cols; /* 1 to 256 each; a box of one matrix */
    uint32_t swizzle;            /* bytes: 0, 32, 64 or 128; then a row of the box has at most as many */
    uint32_t zero;
    uint64_t batch, rows, cols;
    uint64_t row_bytes, matrix_bytes; /* from one to the next: multiples of 16 */
};

struct kfit_plan {
    uint64_t workspace_bytes;
    uint32_t workspace_init; /* enum kfit_ws_init */
    uint32_t launch_count;
    struct kfit_launch launches[KFIT_LAUNCHES_MAX];
    uint32_t tensormap_count, zero;
    struct kfit_tensormap tensormaps[KFIT_TENSORMAPS_MAX];
};

/* Bounds: counts, names terminated, grids non-zero, host entry inside image_bytes, workspace at most 1 GiB, tensor maps
 * as the driver takes them. Every plan that comes from a file is checked before use. Errors: KFIT_E_FORMAT. */
enum kfit_status kfit_plan_check(const struct kfit_plan *plan, uint64_t image_bytes, struct kfit_error *err);

#ifdef __cplusplus
}
#endif
#endif
