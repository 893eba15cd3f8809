/* Takes away generations that nobody needs, and what killed publishers left. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "manifest.h"

struct collection {
    const struct kfit_collect_params *p;
    struct kfit_dir dir;
    uint64_t current, newest;
    bool manifests; /* what this pass is about */
    enum kfit_status status;
    struct kfit_error *err;
};

static bool kept(const struct collection *c, uint64_t number)
{
    if (number == c->current || number == c->newest)
        return true;
    for (size_t i = 0; i < c->p->keep_count; i++)
        if (c->p->keep[i] == number)
            return true;
    return false;
}

static int newest(void *ctx, uint64_t number)
{
    uint64_t *max = ctx;
    if (number > *max)
        *max = number;
    return 0;
}

/* Whether a file in generations/ goes: of a generation that is not kept, or half-written. */
static bool goes(const struct collection *c, const char *name, uint64_t *number, bool *manifest)
{
    const char *p = name;
    *number = 0;
    *manifest = false;
    if (!strncmp(name, ".tmp-", 5))
        return true;
    if (!kfit_scan_number(&p, p + strlen(p), UINT64_MAX / 2, number) || *p != '.')
        return false; /* not ours to judge */
    *manifest = !strcmp(p, ".json");
    return !kept(c, *number);
}

static int sweep(void *ctx, const struct kfit_dir *d, const char *name)
{
    struct collection *c = ctx;
    uint64_t number;
    bool manifest;
    struct stat st;
    if (!goes(c, name, &number, &manifest) || manifest != c->manifests ||
        fstatat(d->fd, name, &st, AT_SYMLINK_NOFOLLOW))
        return 0;
    if (!c->p->dry_run && unlinkat(d->fd, name, 0) && errno != ENOENT)
        c->status = kfit_dir_fail(d, name, "removing", c->err);
    else if (c->p->fn)
        c->p->fn(c->p->ctx, number, name, (uint64_t)st.st_size);
    return c->status != KFIT_OK;
}

/* One pass over the directory: the manifests, or all other files. */
static enum kfit_status sweep_all(struct collection *c, bool manifests)
{
    c->manifests = manifests;
    enum kfit_status s = kfit_dir_each(&c->dir, sweep, c, c->err);
    return s == KFIT_OK ? c->status : s;
}

enum kfit_status kfit_generation_collect(const struct kfit_collect_params *p, struct kfit_error *err)
{
    struct collection c = {.p = p, .dir.fd = -1, .err = err};
    struct kfit_dir cache = {.fd = -1};
    uint8_t sha256[32];
    int lock = -1;
    enum kfit_status s = kfit_dir_open(&cache, NULL, p->dir, 0, err);
    if (s == KFIT_OK)
        s = kfit_dir_open(&c.dir, &cache, "generations", 0, err);
    if (s == KFIT_OK)
        s = kfit_dir_lock(&c.dir, ".lock", &lock, err);
    if (s == KFIT_OK) /* who does not know the current one removes nothing */
        s = kfit_current_load(&cache, &c.current, sha256, err);
    if (s == KFIT_OK)
        s = kfit_generation_numbers(&c.dir, newest, &c.newest, err);
    if (s == KFIT_OK)
        s = sweep_all(&c, true); /* a number exists while it has a manifest */
    if (s == KFIT_OK)
        s = sweep_all(&c, false);
    if (s == KFIT_OK && !p->dry_run && fsync(c.dir.fd))
        s = kfit_dir_fail(&c.dir, "", "writing", err);
    if (lock >= 0)
        close(lock);
    kfit_dir_close(&c.dir);
    kfit_dir_close(&cache);
    return s;
}
