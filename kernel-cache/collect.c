/* Takes away generations that nobody needs, and what killed publishers left. */
#include <dirent.h>
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

/* One pass over the directory: the manifests, or all other files. */
static enum kfit_status sweep(struct collection *c, bool manifests, struct kfit_error *err)
{
    int fd = openat(c->dir.fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    enum kfit_status s = KFIT_OK;
    if (!d) {
        s = kfit_dir_fail(&c->dir, "", "listing", err);
        if (fd >= 0)
            close(fd);
        return s;
    }
    for (const struct dirent *e; s == KFIT_OK && (e = readdir(d));) {
        uint64_t number;
        bool manifest;
        struct stat st;
        if (!goes(c, e->d_name, &number, &manifest) || manifest != manifests ||
            fstatat(c->dir.fd, e->d_name, &st, AT_SYMLINK_NOFOLLOW))
            continue;
        if (!c->p->dry_run && unlinkat(c->dir.fd, e->d_name, 0) && errno != ENOENT)
            s = kfit_dir_fail(&c->dir, e->d_name, "removing", err);
        else if (c->p->fn)
            c->p->fn(c->p->ctx, number, e->d_name, (uint64_t)st.st_size);
    }
    closedir(d);
    return s;
}

enum kfit_status kfit_generation_collect(const struct kfit_collect_params *p, struct kfit_error *err)
{
    struct collection c = {.p = p, .dir.fd = -1};
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
        s = sweep(&c, true, err); /* a number exists while it has a manifest */
    if (s == KFIT_OK)
        s = sweep(&c, false, err);
    if (s == KFIT_OK && !p->dry_run && fsync(c.dir.fd))
        s = kfit_dir_fail(&c.dir, "", "writing", err);
    if (lock >= 0)
        close(lock);
    kfit_dir_close(&c.dir);
    kfit_dir_close(&cache);
    return s;
}
