/* The part of compiling that every device shares: requirements, the device's compiler, the plan's last check.
 */
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "compile_cuda.h"
#include "compile_host.h"
#include "gate0.h"

static const struct {
    const char *device;
    enum kfit_status (*compile)(const struct kfit_compile_params *params, struct kfit_built *built,
                                struct kfit_error *err);
} compilers[] = {
    {"host", kfit_compile_host},
    {"cuda", kfit_compile_cuda},
};

enum kfit_status kfit_compile(const struct kfit_compile_params *params, struct kfit_built *built,
                              struct kfit_error *err)
{
    const char *device = kfit_candidate_device(params->candidate);
    double start = kfit_now_ns();
    size_t i = 0, n = sizeof compilers / sizeof *compilers;
    memset(built, 0, sizeof *built);
    while (i < n && strcmp(compilers[i].device, device))
        i++;
    if (i == n)
        return kfit_fail(err, KFIT_E_UNSUPPORTED, "compile: no compiler for device \"%s\" in this build",
                         device);
    enum kfit_status s = compilers[i].compile(params, built, err);
    if (s == KFIT_OK)
        s = kfit_plan_check(&built->plan, built->image_bytes, err);
    built->compile_ns = kfit_now_ns() - start;
    if (s == KFIT_E_REFUSED)
        kfit_fail(err, s, "%s: %.400s", built->code, built->detail);
    else if (s == KFIT_E_NOMEM)
        kfit_fail(err, s, "compile: out of memory");
    if (s != KFIT_OK)
        kfit_built_finish(built);
    return s;
}

void kfit_built_finish(struct kfit_built *built)
{
    if (!built)
        return;
    free(built->image);
    built->image = NULL;
    built->image_bytes = 0;
}
