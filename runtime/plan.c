#include <string.h>

#include "kfit/key.h"
#include "kfit/op.h"
#include "kfit/plan.h"

/* What cuTensorMapEncodeTiled asks for, and that no product of these overflows. */
static bool map_ok(const struct kfit_tensormap *m)
{
    const uint64_t size = kfit_dtype_bytes(m->type), box_row = m->box_cols * size, limit = UINT64_C(1) << 32;
    return m->arg < KFIT_ARGS_MAX && size && !m->zero && m->box_rows - 1 < 256 && m->box_cols - 1 < 256 &&
           box_row % 16 == 0 && (!m->swizzle || box_row <= m->swizzle) &&
           (!m->swizzle || m->swizzle == 32 || m->swizzle == 64 || m->swizzle == 128) && m->batch - 1 < limit &&
           m->rows - 1 < limit && m->cols - 1 < limit && m->row_bytes % 16 == 0 && m->matrix_bytes % 16 == 0 &&
           m->row_bytes < limit * 256 && m->matrix_bytes < limit * 256 && m->row_bytes >= m->cols * size;
}

enum kfit_status kfit_plan_check(const struct kfit_plan *plan, uint64_t image_bytes, struct kfit_error *err)
{
    if (plan->workspace_bytes > 1u << 30 || plan->workspace_init > KFIT_WS_ZERO)
        return kfit_fail(err, KFIT_E_FORMAT, "plan: workspace of %llu bytes, init %u",
                         (unsigned long long)plan->workspace_bytes, plan->workspace_init);
    if (!plan->launch_count || plan->launch_count > KFIT_LAUNCHES_MAX)
        return kfit_fail(err, KFIT_E_FORMAT, "plan: %u launches, expected 1 to %d", plan->launch_count,
                         KFIT_LAUNCHES_MAX);
    for (unsigned i = 0; i < plan->launch_count; i++) {
        const struct kfit_launch *l = &plan->launches[i];
        if (!l->entry[0] || !memchr(l->entry, 0, sizeof l->entry))
            return kfit_fail(err, KFIT_E_FORMAT, "plan: launch %u has no entry name", i);
        if (l->entry_offset >= image_bytes)
            return kfit_fail(err, KFIT_E_FORMAT, "plan: launch %u starts beyond its image", i);
        for (unsigned d = 0; d < 3; d++)
            if (!l->grid[d] || !l->block[d] || !l->cluster[d])
                return kfit_fail(err, KFIT_E_FORMAT, "plan: launch %u has an empty grid", i);
    }
    if (plan->tensormap_count > KFIT_TENSORMAPS_MAX || plan->zero)
        return kfit_fail(err, KFIT_E_FORMAT, "plan: %u tensor maps, at most %d", plan->tensormap_count, KFIT_TENSORMAPS_MAX);
    for (unsigned i = 0; i < plan->tensormap_count; i++)
        if (!map_ok(&plan->tensormaps[i]))
            return kfit_fail(err, KFIT_E_FORMAT,
                             "plan: tensor map %u, of argument %u, boxes of %u x %u: boxes have 1 to 256 rows and columns, box "
                             "rows and strides multiples of 16 bytes, a swizzled box row at most 32, 64 or 128",
                             i, plan->tensormaps[i].arg, plan->tensormaps[i].box_rows, plan->tensormaps[i].box_cols);
    return KFIT_OK;
}
