/* What the GPU suite shares: the generic, the environment, or the reason to skip. */
#ifndef KFIT_TEST_GPU_H
#define KFIT_TEST_GPU_H

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "kfit/judge.h"

/* libcublas as KFIT_GENERIC names it, else the toolkit's. Returns NULL, or why there is nothing
 * to test on. */
static inline const char *gpu_find(struct kfit_generic *generic, struct kfit_env *env,
                                   struct kfit_device_info *info)
{
    static const char *const places[] = {"/usr/local/cuda/lib64/libcublas.so.13",
                                         "/usr/local/cuda/lib64/libcublas.so.12"};
    static struct kfit_error err;
    const char *given = getenv("KFIT_GENERIC");
    *generic = (struct kfit_generic){.naming = "cublas%s", .int_bits = 32};
    for (size_t i = 0; i < 2 && !generic->path[0]; i++)
        if (given || access(places[i], R_OK) == 0)
            snprintf(generic->path, sizeof generic->path, "%s", given ? given : places[i]);
    if (!generic->path[0])
        return "no libcublas in /usr/local/cuda/lib64; name one with KFIT_GENERIC";
    enum kfit_status s = kfit_judge_cuda_env(NULL, generic, env, info, &err);
    snprintf(generic->config, sizeof generic->config, "%.127s", env->soft);
    return s == KFIT_OK ? NULL : err.text;
}

#endif
