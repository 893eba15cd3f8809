#include <string.h>

#include "kfit/plan.h"

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
    return KFIT_OK;
}
