/* The host as a device: flat machine code, called directly. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "kfit/env.h"
#include "kfit/device.h"
#include "image_set.h"
#include "number.h"
#include "proc.h"

static enum kfit_status probe(struct kfit_error *err)
{
    void *p = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return kfit_fail(err, KFIT_E_UNSUPPORTED, "host: cannot map executable memory: %s", strerror(errno));
    munmap(p, 4096);
    return KFIT_OK;
}

/* Size in bytes of cpu0's data or unified cache of this level; 0 if the kernel does not say. */
static uint64_t cache_bytes(unsigned level)
{
    for (unsigned i = 0; i < 8; i++) {
        char path[96], text[32];
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%u/level", i);
        if (!kfit_proc_read(path, text, sizeof text))
            break;
        if ((unsigned)(text[0] - '0') != level)
            continue;
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%u/type", i);
        kfit_proc_read(path, text, sizeof text);
        if (text[0] == 'I') /* Instruction */
            continue;
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%u/size", i);
        kfit_proc_read(path, text, sizeof text);
        const char *p = text;
        uint64_t n;
        if (kfit_number(&p, UINT64_C(1) << 40, &n))
            return *p == 'K' ? n << 10 : *p == 'M' ? n << 20 : n;
    }
    return 0;
}

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static enum kfit_status describe(struct kfit_device_info *info, struct kfit_error *err)
{
    (void)err;
    struct kfit_env env;
    memset(info, 0, sizeof *info);
    strcpy(info->id, "host");
    kfit_env_host(&env, 0, NULL, NULL);
    kfit_env_get(env.hard, "model", info->model, sizeof info->model);
    kfit_env_get(env.hard, "isa", info->arch, sizeof info->arch);
    long units = sysconf(_SC_NPROCESSORS_ONLN), pages = sysconf(_SC_PHYS_PAGES);
    info->units = units > 0 ? (uint32_t)units : 1;
    info->memory_bytes = pages > 0 ? (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE) : 0;
    info->l1_bytes = cache_bytes(1);
    info->l2_bytes = cache_bytes(2);
    info->llc_bytes = cache_bytes(3) ? cache_bytes(3) : info->l2_bytes;
    double best = 1e9, last = now_ns();
    for (int i = 0; i < 10000; i++) {
        double t = now_ns();
        if (t > last && t - last < best)
            best = t - last;
        last = t;
    }
    info->timer_step_ns = best;
    return KFIT_OK;
}

static enum kfit_status load(const struct kfit_image *images, size_t n, unsigned nargs,
                             struct kfit_modules **out, struct kfit_kernel *kernels, struct kfit_error *err)
{
    struct kfit_modules *m;
    enum kfit_status s = kfit_image_set_open(&m, err);
    *out = NULL;
    for (size_t i = 0; s == KFIT_OK && i < n; i++)
        s = kfit_image_set_add(m, &images[i], nargs, err);
    if (s == KFIT_OK)
        s = kfit_image_set_seal(m, kernels, err);
    if (s != KFIT_OK) {
        kfit_image_set_close(m);
        return s;
    }
    *out = m;
    return KFIT_OK;
}

#define P void *
static enum kfit_status launch(const struct kfit_kernel *k, void *const a[], void *workspace, void *stream)
{
    (void)stream;
    const void *f = k->entry;
    switch (k->nargs) {
    case 1:
        ((void (*)(P, P))f)(a[0], workspace);
        break;
    case 2:
        ((void (*)(P, P, P))f)(a[0], a[1], workspace);
        break;
    case 3:
        ((void (*)(P, P, P, P))f)(a[0], a[1], a[2], workspace);
        break;
    case 4:
        ((void (*)(P, P, P, P, P))f)(a[0], a[1], a[2], a[3], workspace);
        break;
    case 5:
        ((void (*)(P, P, P, P, P, P))f)(a[0], a[1], a[2], a[3], a[4], workspace);
        break;
    case 6:
        ((void (*)(P, P, P, P, P, P, P))f)(a[0], a[1], a[2], a[3], a[4], a[5], workspace);
        break;
    default:
        return KFIT_E_UNSUPPORTED;
    }
    return KFIT_OK;
}
#undef P

static enum kfit_status alloc(size_t bytes, void **out, struct kfit_error *err)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    *out = p == MAP_FAILED ? NULL : p;
    return *out ? KFIT_OK : kfit_fail(err, KFIT_E_NOMEM, "host: no memory for %zu bytes", bytes);
}

static void release(void *p, size_t bytes)
{
    if (p)
        munmap(p, bytes);
}

static enum kfit_status copy(void *dst, const void *src, size_t bytes)
{
    memcpy(dst, src, bytes);
    return KFIT_OK;
}

static void flush(void)
{
    static unsigned char *sweep;
    static size_t bytes;
    if (!sweep) {
        void *p;
        bytes = 2 * (cache_bytes(3) ? cache_bytes(3) : (size_t)32 << 20);
        if (bytes > (size_t)256 << 20)
            bytes = (size_t)256 << 20;
        if (alloc(bytes, &p, NULL) != KFIT_OK)
            return;
        sweep = p;
    }
    for (size_t i = 0; i < bytes; i += 64)
        ((volatile unsigned char *)sweep)[i]++;
}

const struct kfit_device kfit_device_host = {
    .name = "host",
    .probe = probe,
    .describe = describe,
    .open = kfit_image_set_open,
    .add = kfit_image_set_add,
    .seal = kfit_image_set_seal,
    .load = load,
    .unload = kfit_image_set_close,
    .launch = launch,
    .alloc = alloc,
    .free = release,
    .copy = copy,
    .flush = flush,
};
