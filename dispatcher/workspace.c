#include <string.h>
#include <sys/mman.h>

#include "internal.h"

void *kfit_map(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

void kfit_unmap(void *p, size_t bytes)
{
    if (p)
        munmap(p, bytes);
}

static size_t blocks(size_t size)
{
    size_t n = size ? KFIT_HOST_WORKSPACE_BYTES / 2 / size : 0;
    return n < 32 ? n : 32;
}

bool kfit_workspaces_init(struct kfit_workspaces *w, const size_t size[2])
{
    memset(w, 0, sizeof *w);
    for (int kind = 0; kind < 2; kind++) {
        struct kfit_workspace_pool *p = &w->pools[kind];
        p->size = (size[kind] + 4095) & ~(size_t)4095;
        size_t n = blocks(p->size);
        if (!n)
            continue;
        p->base = kfit_map(n * p->size);
        if (!p->base) {
            kfit_workspaces_finish(w);
            return false;
        }
        p->free = (uint32_t)((UINT64_C(1) << n) - 1);
    }
    return true;
}

void kfit_workspaces_finish(struct kfit_workspaces *w)
{
    for (int kind = 0; kind < 2; kind++)
        kfit_unmap(w->pools[kind].base, blocks(w->pools[kind].size) * w->pools[kind].size);
    memset(w, 0, sizeof *w);
}
