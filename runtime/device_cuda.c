/* An NVIDIA GPU as a device: cubins through the library API, plans of up to four launches.
 *
 * A program of ours works on the primary context of device 0 as CUDA_VISIBLE_DEVICES orders them, made current on the
 * calling thread by probe; a guest in a server (kfit_cuda_attach) on the context it finds. Everything is opened at run
 * time; nothing here needs CUDA headers. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "kfit/cuda.h"
#include "kfit/device.h"
#include "kfit/op.h"
#include "tensormap.h"

/* What kfit_kernel.entry points to. */
struct loaded {
    kfit_cu_library library;
    unsigned launches;
    kfit_cu_kernel kernel[KFIT_LAUNCHES_MAX];
    kfit_cu_function function[KFIT_LAUNCHES_MAX];
    struct kfit_cu_launch_config config[KFIT_LAUNCHES_MAX];
    struct kfit_cu_launch_attribute attr[KFIT_LAUNCHES_MAX][2];
    uint64_t workspace_bytes;
    uint32_t workspace_init, nargs, maps;
    struct kfit_tensormap map[KFIT_TENSORMAPS_MAX];
    struct kfit_map_memo *memo; /* KFIT_MAPS_REMEMBERED per map */
};

struct kfit_modules {
    void *mark;
    size_t count, room;
    struct loaded **item; /* each stays where it is: kernels point to it */
};

enum { MARK_BYTES = 4096 };

static const struct kfit_cuda *cu;
static kfit_cu_device device;
static bool guest;

static enum kfit_status check(kfit_cu_result r, const char *what, struct kfit_error *err)
{
    return r ? kfit_cuda_fail(cu, r, what, err) : KFIT_OK;
}

#define TRY(call)                                                                                            \
    do {                                                                                                     \
        enum kfit_status s_ = check(cu->call, #call, err);                                                   \
        if (s_ != KFIT_OK)                                                                                   \
            return s_;                                                                                       \
    } while (0)

/* Without a context. */
static enum kfit_status find(struct kfit_error *err)
{
    enum kfit_status s = kfit_cuda_load(&cu, err);
    if (s != KFIT_OK)
        return s;
    kfit_cu_result r = cu->init(0);
    int count = 0;
    if (r && r != KFIT_CU_NO_DEVICE)
        return kfit_cuda_fail(cu, r, "cuInit", err);
    if (!r)
        TRY(device_count(&count));
    if (!count)
        return kfit_fail(err, KFIT_E_UNSUPPORTED,
                         "cuda: the driver is here, but no GPU is visible (see CUDA_VISIBLE_DEVICES)");
    TRY(device_get(&device, 0));
    return KFIT_OK;
}

static enum kfit_status identify(kfit_cu_device d, char id[48], struct kfit_error *err)
{
    struct kfit_cu_uuid u;
    TRY(device_uuid(&u, d));
    strcpy(id, "GPU-");
    char *p = id + 4;
    for (unsigned i = 0; i < 16; i++)
        p += sprintf(p, i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x", (unsigned char)u.bytes[i]);
    return KFIT_OK;
}

enum kfit_status kfit_cuda_identify(char id[48], struct kfit_error *err)
{
    enum kfit_status s = find(err);
    return s == KFIT_OK ? identify(device, id, err) : s;
}

static enum kfit_status probe(struct kfit_error *err)
{
    kfit_cu_context context;
    enum kfit_status s = find(err);
    if (s != KFIT_OK)
        return s;
    TRY(context_retain(&context, device));
    TRY(context_set(context));
    return KFIT_OK;
}

static int attribute(kfit_cu_device d, int which)
{
    int value = 0;
    return cu->device_attribute(&value, which, d) ? 0 : value;
}

static enum kfit_status describe_one(kfit_cu_device d, struct kfit_device_info *info, struct kfit_error *err)
{
    size_t memory = 0;
    memset(info, 0, sizeof *info);
    TRY(device_name(info->model, sizeof info->model, d));
    TRY(device_memory(&memory, d));
    int major = attribute(d, KFIT_CU_ATTR_COMPUTE_CAPABILITY_MAJOR),
        minor = attribute(d, KFIT_CU_ATTR_COMPUTE_CAPABILITY_MINOR);
    /* From 9.0 on the exact architecture has a form with an "a": instructions that no other GPU has. */
    snprintf(info->arch, sizeof info->arch, "sm_%d%d%s", major, minor, major >= 9 ? "a" : "");
    info->units = (uint32_t)attribute(d, KFIT_CU_ATTR_MULTIPROCESSOR_COUNT);
    info->l1_bytes = (uint64_t)attribute(d, KFIT_CU_ATTR_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
    info->l2_bytes = info->llc_bytes = (uint64_t)attribute(d, KFIT_CU_ATTR_L2_CACHE_SIZE);
    info->memory_bytes = memory;
    enum kfit_status s = identify(d, info->id, err);
    if (s != KFIT_OK)
        return s;
    info->timer_step_ns = 500; /* cuEventElapsedTime: "a resolution of approximately one half microsecond" */
    return KFIT_OK;
}

static enum kfit_status describe(struct kfit_device_info *info, struct kfit_error *err)
{
    return describe_one(device, info, err);
}

enum kfit_status kfit_cuda_attach(kfit_cu_context *context, kfit_cu_device *ordinal,
                                  struct kfit_device_info *info, struct kfit_error *err)
{
    kfit_cu_context primary = NULL;
    unsigned flags;
    int active = 0;
    enum kfit_status s = kfit_cuda_load(&cu, err);
    if (s != KFIT_OK)
        return s;
    TRY(context_current(context));
    if (!*context)
        return kfit_fail(err, KFIT_E_UNSUPPORTED, "cuda: no context is current");
    TRY(context_device(ordinal));
    TRY(context_state(*ordinal, &flags, &active));
    if (active) { /* only then: retaining it would make it */
        TRY(context_retain(&primary, *ordinal));
        TRY(context_release(*ordinal));
    }
    if (*context != primary)
        return kfit_fail(err, KFIT_E_UNSUPPORTED,
                         "cuda: the current context is not the primary one of device %d", *ordinal);
    guest = true;
    return describe_one(*ordinal, info, err);
}

static void drop(struct loaded *l)
{
    if (l->library && !guest)
        cu->library_unload(l->library);
    free(l->memo);
    free(l);
}

/* Images on a GPU are in no map of the process. An empty file of the host images' name is, by which `kfit off` knows
 * one that has kernels and no trace. NULL: not to be had, and nothing depends on it. */
static void *mark(void)
{
    int fd = memfd_create("kfit-images", MFD_CLOEXEC);
    void *p = fd < 0 ? MAP_FAILED : mmap(NULL, MARK_BYTES, PROT_NONE, MAP_SHARED, fd, 0);
    if (fd >= 0)
        close(fd);
    return p == MAP_FAILED ? NULL : p;
}

static void unload(struct kfit_modules *m)
{
    if (!m)
        return;
    for (size_t i = 0; i < m->count; i++)
        drop(m->item[i]);
    if (m->mark)
        munmap(m->mark, MARK_BYTES);
    free(m->item);
    free(m);
}

static enum kfit_status open_set(struct kfit_modules **out, struct kfit_error *err)
{
    *out = NULL;
    if (!cu)
        return kfit_fail(err, KFIT_E_UNSUPPORTED, "cuda images: no device was probed, or attached to");
    *out = calloc(1, sizeof **out);
    return *out ? KFIT_OK : kfit_fail(err, KFIT_E_NOMEM, "cuda images: no memory");
}

static enum kfit_status resolve(struct loaded *l, unsigned i, const struct kfit_launch *launch,
                                struct kfit_error *err)
{
    struct kfit_cu_launch_config *c = &l->config[i];
    TRY(library_kernel(&l->kernel[i], l->library, launch->entry));
    TRY(kernel_function(&l->function[i], l->kernel[i]));
    memcpy(c->grid, launch->grid, sizeof c->grid);
    memcpy(c->block, launch->block, sizeof c->block);
    c->smem_bytes = launch->smem_bytes;
    c->attrs = l->attr[i];
    if (launch->smem_bytes) /* above 48 KB a kernel must ask; more than there is fails here, not later */
        TRY(function_set(l->function[i], KFIT_CU_FUNC_MAX_DYNAMIC_SHARED, (int)launch->smem_bytes));
    unsigned cluster = launch->cluster[0] * launch->cluster[1] * launch->cluster[2];
    if (cluster > 1) {
        struct kfit_cu_launch_attribute *a = &l->attr[i][c->attr_count++];
        a->id = KFIT_CU_LAUNCH_CLUSTER;
        a->value.cluster.x = launch->cluster[0];
        a->value.cluster.y = launch->cluster[1];
        a->value.cluster.z = launch->cluster[2];
        if (cluster > 8)
            TRY(function_set(l->function[i], KFIT_CU_FUNC_NON_PORTABLE_CLUSTER, 1));
    }
    if (launch->cooperative) {
        struct kfit_cu_launch_attribute *a = &l->attr[i][c->attr_count++];
        a->id = KFIT_CU_LAUNCH_COOPERATIVE;
        a->value.cooperative = 1;
    }
    return KFIT_OK;
}

static enum kfit_status add(struct kfit_modules *m, const struct kfit_image *image, unsigned nargs,
                            struct kfit_error *err)
{
    const struct kfit_plan *plan = image->plan;
    if (m->count == m->room) {
        size_t room = m->room ? 2 * m->room : 64;
        struct loaded **more = realloc(m->item, room * sizeof *more);
        if (!more)
            return kfit_fail(err, KFIT_E_NOMEM, "cuda images: no memory for %zu kernels", room);
        m->item = more;
        m->room = room;
    }
    struct loaded *l = calloc(1, sizeof *l);
    if (!l)
        return kfit_fail(err, KFIT_E_NOMEM, "cuda images: no memory");
    l->nargs = nargs;
    l->launches = plan->launch_count;
    l->workspace_bytes = plan->workspace_bytes;
    l->workspace_init = plan->workspace_init;
    l->maps = plan->tensormap_count;
    memcpy(l->map, plan->tensormaps, sizeof l->map);
    enum kfit_status s = KFIT_OK;
    if (l->maps) {
        const size_t bytes = l->maps * KFIT_MAPS_REMEMBERED * sizeof *l->memo;
        l->memo = aligned_alloc(_Alignof(struct kfit_map_memo), bytes);
        if (l->memo)
            memset(l->memo, 0, bytes);
        else
            s = kfit_fail(err, KFIT_E_NOMEM, "cuda images: no memory");
    }
    if (s == KFIT_OK)
        s = check(cu->library_load(&l->library, image->data, NULL, NULL, 0, NULL, NULL, 0), "cuLibraryLoadData",
                  err);
    for (unsigned i = 0; s == KFIT_OK && i < plan->launch_count; i++)
        s = resolve(l, i, &plan->launches[i], err);
    if (s != KFIT_OK) {
        drop(l);
        return s;
    }
    m->item[m->count++] = l;
    return KFIT_OK;
}

static enum kfit_status seal(struct kfit_modules *m, struct kfit_kernel *kernels, struct kfit_error *err)
{
    (void)err;
    m->mark = m->count ? mark() : NULL;
    for (size_t i = 0; i < m->count; i++)
        kernels[i] = (struct kfit_kernel){.entry = m->item[i],
                                          .workspace_bytes = m->item[i]->workspace_bytes,
                                          .workspace_init = m->item[i]->workspace_init,
                                          .nargs = m->item[i]->nargs};
    return KFIT_OK;
}

static enum kfit_status load(const struct kfit_image *images, size_t n, unsigned nargs,
                             struct kfit_modules **out, struct kfit_kernel *kernels, struct kfit_error *err)
{
    struct kfit_modules *m;
    enum kfit_status s = open_set(&m, err);
    *out = NULL;
    for (size_t i = 0; s == KFIT_OK && i < n; i++)
        s = add(m, &images[i], nargs, err);
    if (s == KFIT_OK)
        s = seal(m, kernels, err);
    if (s != KFIT_OK)
        unload(m);
    else
        *out = m;
    return s;
}

static enum kfit_status launch(const struct kfit_kernel *k, void *const args[], void *workspace, void *stream)
{
    const struct loaded *l = k->entry;
    void *value[KFIT_ARGS_MAX + 1], *params[KFIT_ARGS_MAX + 1 + KFIT_TENSORMAPS_MAX];
    struct kfit_cu_tensormap spare[KFIT_TENSORMAPS_MAX];
    for (unsigned i = 0; i < k->nargs; i++)
        value[i] = args[i];
    value[k->nargs] = workspace;
    for (unsigned i = 0; i <= k->nargs; i++)
        params[i] = &value[i];
    for (unsigned i = 0; i < l->maps; i++) {
        const struct kfit_cu_tensormap *m = kfit_tensormap(cu, &l->map[i], l->memo + i * KFIT_MAPS_REMEMBERED,
                                                           args[l->map[i].arg], &spare[i]);
        if (!m)
            return KFIT_E_ARG;
        params[k->nargs + 1 + i] = (void *)(uintptr_t)m;
    }
    for (unsigned i = 0; i < l->launches; i++) {
        struct kfit_cu_launch_config config = l->config[i];
        config.stream = stream;
        kfit_cu_result r = cu->launch(&config, l->function[i], params, NULL);
        if (r)
            return kfit_cuda_fail(cu, r, "cuLaunchKernelEx", NULL);
    }
    return KFIT_OK;
}

bool kfit_cuda_launches(const struct kfit_kernel *k, const void *function, unsigned *params)
{
    const struct loaded *l = k->entry;
    *params = l->nargs + 1 + l->maps;
    for (unsigned i = 0; i < l->launches; i++)
        if (function == (const void *)l->function[i] || function == (const void *)l->kernel[i])
            return true;
    return false;
}

unsigned kfit_cuda_launch_count(const struct kfit_kernel *k)
{
    const struct loaded *l = k->entry;
    return l->launches;
}

static enum kfit_status alloc(size_t bytes, void **out, struct kfit_error *err)
{
    kfit_cu_ptr p = 0;
    *out = NULL;
    TRY(mem_alloc(&p, bytes));
    *out = (void *)(uintptr_t)p;
    return KFIT_OK;
}

static void release(void *p, size_t bytes)
{
    (void)bytes;
    if (p)
        cu->mem_free((kfit_cu_ptr)(uintptr_t)p);
}

/* Either side may be host memory: unified addressing tells them apart. */
static enum kfit_status copy(void *dst, const void *src, size_t bytes)
{
    kfit_cu_result r = cu->copy((kfit_cu_ptr)(uintptr_t)dst, (kfit_cu_ptr)(uintptr_t)src, bytes);
    return r ? kfit_cuda_fail(cu, r, "cuMemcpy", NULL) : KFIT_OK;
}

static void flush(void)
{
    static kfit_cu_ptr sweep;
    static size_t bytes;
    if (!sweep) {
        bytes = 2 * (size_t)attribute(device, KFIT_CU_ATTR_L2_CACHE_SIZE);
        if (!bytes || cu->mem_alloc(&sweep, bytes))
            return;
    }
    cu->set32(sweep, 0x5eed5eed, bytes / 4, NULL);
    cu->context_sync();
}

const struct kfit_device kfit_device_cuda = {
    .name = "cuda",
    .probe = probe,
    .describe = describe,
    .open = open_set,
    .add = add,
    .seal = seal,
    .load = load,
    .unload = unload,
    .launch = launch,
    .alloc = alloc,
    .free = release,
    .copy = copy,
    .flush = flush,
};
