/* Launches, counted per kernel in the trace of the GPU they run on; and images, so that a kernel is known by more than
 * its name. */
#include "driver.h"
#include "preload.h"

static uint64_t key_on(const void *kernel, const struct kfit_gpu *gpu)
{
    return kfit_handle_key(kernel) | (uint64_t)(gpu->ordinal + 1) << 48; /* above user addresses */
}

/* ---- images ---- */

static void image_put(const void *handle, const void *owner, uint64_t hash)
{
    const struct kfit_handle image = {kfit_handle_key(handle), kfit_handle_key(owner), hash, {0}};
    if (!kfit_handles_lock())
        return;
    kfit_handle_drop(KFIT_FUNCTIONS, image.owner); /* of one unloaded where we did not see it */
    kfit_handle_put(KFIT_IMAGES, &image);
    kfit_handles_unlock();
}

void kfit_loaded(int r, void *const *handle, const void *image)
{
    if (r)
        return;
    struct kfit_manners manners = kfit_manners_begin();
    image_put(*handle, *handle, kfit_image_hash(image));
    kfit_manners_end(manners);
}

void kfit_loaded_file(int r, void *const *handle, const char *path)
{
    if (r)
        return;
    struct kfit_manners manners = kfit_manners_begin();
    image_put(*handle, *handle, kfit_image_hash_file(path));
    kfit_manners_end(manners);
}

/* Before the call: what it frees may be another thread's new handle when it returns. */
void kfit_unloading(const void *handle)
{
    const uint64_t key = kfit_handle_key(handle);
    struct kfit_manners manners = kfit_manners_begin();
    if (key && kfit_handles_lock()) {
        kfit_handle_drop(KFIT_FUNCTIONS, key);
        kfit_handle_drop(KFIT_IMAGES, key);
        kfit_handles_unlock();
    }
    kfit_manners_end(manners);
}

/* With a context go its modules, and handles of cuBLAS; those of another one are only met again. */
void kfit_unloading_all(void)
{
    struct kfit_manners manners = kfit_manners_begin();
    if (kfit_handles_lock()) {
        kfit_handle_drop(KFIT_FUNCTIONS, 0);
        kfit_handle_drop(KFIT_BLAS_HANDLES, 0);
        kfit_handles_unlock();
    }
    kfit_manners_end(manners);
}

/* A library has a module in each context, and goes with all of them. */
static void is_module_of(const void *module, const void *library)
{
    const struct kfit_handle *known = kfit_handle_find(KFIT_IMAGES, kfit_handle_key(module)),
                             *image = kfit_handle_find(KFIT_IMAGES, kfit_handle_key(library));
    if (image && (!known || known->owner != image->key))
        image_put(module, library, image->value);
}

void kfit_library_module(int r, void *const *module, kfit_cu_library library)
{
    if (!r)
        is_module_of(*module, library);
}

void kfit_kernel_function(int r, const kfit_cu_function *f, kfit_cu_kernel kernel)
{
    void *module;
    kfit_cu_library library;
    if (!r && !kfit_handle_find(KFIT_FUNCTIONS, kfit_handle_key(*f)) &&
        !kfit_driver.cuFuncGetModule(&module, *f) && !kfit_driver.cuKernelGetLibrary(&library, kernel))
        is_module_of(module, library);
}

/* ---- launches ---- */

/* A CUkernel has the entry of the first GPU that it ran on under its own key, those of others under a key for each. Meets a
 * function for the first time there. False: there is nowhere to count, as yet. */
static bool meet(kfit_cu_function f, struct kfit_handle *out)
{
    kfit_cu_kernel kernel = (kfit_cu_kernel)(void *)f;
    struct kfit_gpu *gpu = kfit_gpu_current();
    kfit_cu_library library = NULL;
    void *module = NULL;
    const char *name = NULL;
    if (!gpu)
        return false;
    bool is_kernel = kfit_driver.cuFuncGetName(&name, f) && !kfit_driver.cuKernelGetName(&name, kernel);
    const void *from = is_kernel ? kfit_driver.cuKernelGetLibrary(&library, kernel) ? NULL : (void *)library
                       : kfit_driver.cuFuncGetModule(&module, f) ? NULL
                                                                 : module;
    *out = (struct kfit_handle){.key = kfit_handle_key(f), .owner = kfit_handle_key(from), .on = {gpu->ordinal, is_kernel}};
    if (!kfit_handles_lock())
        return false;
    const struct kfit_handle *image = kfit_handle_find(KFIT_IMAGES, out->owner);
    if (image)
        out->owner = image->owner;
    const struct kfit_handle *first = is_kernel ? kfit_handle_find(KFIT_FUNCTIONS, out->key) : NULL;
    if (first && first->on.gpu != gpu->ordinal)
        out->key = key_on(f, gpu);
    out->value = kfit_handle_key(
        kfit_recorder_kernel(kfit_dispatcher_recorder(gpu->dispatcher), name, image ? image->value : 0));
    kfit_handle_put(KFIT_FUNCTIONS, out); /* without room for it, it is met at each launch */
    kfit_handles_unlock();
    return true;
}

static bool find(kfit_cu_function f, struct kfit_handle *out)
{
    uint64_t key = kfit_handle_key(f);
    const struct kfit_handle *h = kfit_handle_find(KFIT_FUNCTIONS, key);
    if (h && h->on.anywhere && !kfit_gpu_is_current(h->on.gpu)) {
        const struct kfit_gpu *gpu = kfit_gpu_current();
        h = gpu ? kfit_handle_find(KFIT_FUNCTIONS, key = key_on(f, gpu)) : NULL;
    }
    if (__builtin_expect(h != NULL, 1)) {
        *out = *h;
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        if (out->value && __atomic_load_n(&h->key, __ATOMIC_RELAXED) == key) /* else all were dropped meanwhile */
            return true;
    }
    struct kfit_manners manners = kfit_manners_begin();
    bool met = meet(f, out);
    kfit_manners_end(manners);
    return met;
}

struct kfit_trace_kernel *kfit_kernel_of(kfit_cu_function f, struct kfit_gpu **gpu)
{
    struct kfit_handle h;
    if (!find(f, &h))
        return NULL;
    *gpu = &kfit_gpus.at[h.on.gpu];
    return (struct kfit_trace_kernel *)(uintptr_t)h.value;
}

void kfit_launched_far(int r, kfit_cu_function f, void *stream)
{
    struct kfit_gpu *gpu;
    struct kfit_trace_kernel *k;
    uint64_t capture;
    if (r || !(k = kfit_kernel_of(f, &gpu)))
        return;
    if (kfit_capture_of(stream, &capture))
        kfit_capture_launch(capture, gpu, k);
    else
        __atomic_fetch_add(&k->launches[kfit_launcher()], 1, __ATOMIC_RELAXED);
}
