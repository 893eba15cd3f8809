/* kfit/device.h - a device as a table of functions; host now, cuda beside it.
 *
 * Images are loaded all at once (a generation, or one candidate in a runner) into one immutable module set;
 * kernels are launched through it. Compiling is offline-search's part.
 */
#ifndef KFIT_DEVICE_H
#define KFIT_DEVICE_H

#include <stddef.h>
#include <stdint.h>

#include "kfit/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

struct kfit_device_info {
    char model[64];                         /* CPU brand string or GPU name */
    char arch[32];                          /* "x86-64-v4", "sm_90a" */
    uint32_t units;                         /* online CPUs, SMs */
    uint64_t l1_bytes, l2_bytes, llc_bytes; /* data caches: per core, per core, whole */
    uint64_t memory_bytes;
    char id[48];          /* GPU: "GPU-" and its UUID (of the MIG instance, if it is one); host: "host" */
    double timer_step_ns; /* smallest step seen of the clock used by the device's timings */
};

struct kfit_image {
    const void *data; /* borrowed for the call */
    size_t bytes;
    const struct kfit_plan *plan; /* borrowed for the call; checked by the caller */
};

struct kfit_modules; /* loaded images; immutable, usable from any thread */

/* What a launch needs, small enough for a table of 10,000. entry is device-specific. */
struct kfit_kernel {
    const void *entry;
    uint64_t workspace_bytes;
    uint32_t workspace_init;
    uint32_t nargs;
};

struct kfit_device {
    const char *name;
    /* Is the device here and usable? The message says what is missing. */
    enum kfit_status (*probe)(struct kfit_error *err);
    enum kfit_status (*describe)(struct kfit_device_info *info, struct kfit_error *err);

    /* Loading one at a time, for images that come and go: open, then add (the image's memory and plan may go
     * after each call; KFIT_E_FORMAT leaves the set as it was, other errors spoil it), then seal, which fills
     * kernels[i] for the i-th image added and makes all of them runnable. unload frees a set in any state. */
    enum kfit_status (*open)(struct kfit_modules **out, struct kfit_error *err);
    enum kfit_status (*add)(struct kfit_modules *m, const struct kfit_image *image, unsigned nargs,
                            struct kfit_error *err);
    enum kfit_status (*seal)(struct kfit_modules *m, struct kfit_kernel *kernels, struct kfit_error *err);

    /* The three in one. Loads n images; *out is owned by the caller, kernels[i] receives image i's kernel
     * (valid until unload). The images' memory may go after the call. All or nothing. */
    enum kfit_status (*load)(const struct kfit_image *images, size_t n, unsigned nargs,
                             struct kfit_modules **out, struct kfit_kernel *kernels, struct kfit_error *err);
    void (*unload)(struct kfit_modules *m); /* only when no call can be running; NULL is legal */

    /* Launches with nargs pointers and the workspace (device memory of kernel->workspace_bytes, or NULL).
     * On host returns when the result is there. stream is ignored on host. Hot path: cannot fail on host. */
    enum kfit_status (*launch)(const struct kfit_kernel *k, void *const args[], void *workspace,
                               void *stream);

    enum kfit_status (*alloc)(size_t bytes, void **out, struct kfit_error *err);
    void (*free)(void *p, size_t bytes);
    enum kfit_status (*copy)(void *dst, const void *src, size_t bytes);
    /* Makes caches cold for all data used before. On host the first call takes up to 256 MB and keeps it. */
    void (*flush)(void);
};

extern const struct kfit_device kfit_device_host, kfit_device_cuda;

const struct kfit_device *kfit_device_by_name(const char *name); /* NULL if unknown */

/* Alignment of every flat host image inside the mapping, for vector constants. */
#define KFIT_HOST_IMAGE_ALIGN 64u

#ifdef __cplusplus
}
#endif
#endif
