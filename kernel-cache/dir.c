#include "dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum kfit_status kfit_dir_fail(const struct kfit_dir *d, const char *name, const char *doing,
                               struct kfit_error *err)
{
    static const struct {
        int code;
        enum kfit_status status;
        const char *advice;
    } known[] = {
        {ENOENT, KFIT_E_NOTFOUND, ""},
        {ELOOP, KFIT_E_PERM, "; a symbolic link is not followed here"},
        {EACCES, KFIT_E_PERM, ""},
        {EPERM, KFIT_E_PERM, ""},
        {EROFS, KFIT_E_PERM, ""},
        {ENOSPC, KFIT_E_FULL, "; free some space and try again"},
        {EDQUOT, KFIT_E_FULL, "; free some space and try again"},
        {ENOMEM, KFIT_E_NOMEM, ""},
    };
    enum kfit_status s = KFIT_E_IO;
    const char *advice = "";
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].code == errno) {
            s = known[i].status;
            advice = known[i].advice;
        }
    return kfit_fail(err, s, "%s%s%s: %s: %m%s", d ? d->path : "", d && *name ? "/" : "", name, doing,
                     advice);
}

/* Owner and mode: what another user could have written is not trusted. */
static enum kfit_status check(const struct stat *st, const char *dir, const char *name,
                              struct kfit_error *err)
{
    const char *slash = *name ? "/" : "";
    uid_t me = geteuid();
    if (st->st_uid != me && st->st_uid != 0)
        return kfit_fail(err, KFIT_E_PERM,
                         "%s%s%s: belongs to uid %u, not to %u or root; chown it or use another "
                         "directory",
                         dir, slash, name, (unsigned)st->st_uid, (unsigned)me);
    if (st->st_mode & 022)
        return kfit_fail(err, KFIT_E_PERM, "%s%s%s: mode %04o lets others write it; chmod go-w", dir, slash,
                         name, (unsigned)st->st_mode & 07777);
    return KFIT_OK;
}

/* mkdir -p: parents get the umask's mode. */
static int make(int at, const char *name, mode_t mode)
{
    char part[4096];
    for (const char *slash = strchr(name + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        if ((size_t)(slash - name) >= sizeof part)
            return errno = ENAMETOOLONG, -1;
        memcpy(part, name, (size_t)(slash - name));
        part[slash - name] = '\0';
        if (mkdirat(at, part, 0777) && errno != EEXIST)
            return -1;
    }
    return mkdirat(at, name, mode) && errno != EEXIST ? -1 : 0;
}

enum kfit_status kfit_dir_open(struct kfit_dir *out, const struct kfit_dir *parent, const char *name,
                               mode_t make_mode, struct kfit_error *err)
{
    int at = parent ? parent->fd : AT_FDCWD;
    struct stat st;
    out->fd = -1;
    if (parent)
        snprintf(out->path, sizeof out->path, "%.220s/%.30s", parent->path, name);
    else
        snprintf(out->path, sizeof out->path, "%s", name);
    if (make_mode && make(at, name, make_mode))
        return kfit_dir_fail(parent, name, "making the directory", err);
    int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | (parent ? O_NOFOLLOW : 0));
    if (fd < 0)
        return kfit_dir_fail(parent, name, "opening the directory", err);
    enum kfit_status s =
        fstat(fd, &st) ? kfit_dir_fail(out, "", "stat", err) : check(&st, out->path, "", err);
    if (s != KFIT_OK)
        close(fd);
    else
        out->fd = fd;
    return s;
}

void kfit_dir_close(struct kfit_dir *d)
{
    if (d->fd >= 0)
        close(d->fd);
    d->fd = -1;
}

/* d NULL: name is a path, where links are followed. */
static enum kfit_status open_file(const struct kfit_dir *d, const char *name, int *fd, struct stat *st,
                                  struct kfit_error *err)
{
    const char *dir = d ? d->path : "", *slash = d ? "/" : "";
    /* O_NONBLOCK: a FIFO put there must not hang us */
    *fd = openat(d ? d->fd : AT_FDCWD, name,
                 O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | (d ? O_NOFOLLOW : 0));
    if (*fd < 0)
        return kfit_dir_fail(d, name, "opening", err);
    enum kfit_status s;
    if (fstat(*fd, st))
        s = kfit_dir_fail(d, name, "stat", err);
    else if (!S_ISREG(st->st_mode))
        s = kfit_fail(err, KFIT_E_PERM, "%s%s%s: not a regular file", dir, slash, name);
    else
        s = d ? check(st, dir, name, err) : check(st, name, "", err);
    if (s != KFIT_OK) {
        close(*fd);
        *fd = -1;
    }
    return s;
}

enum kfit_status kfit_dir_file(const struct kfit_dir *d, const char *name, int *fd, struct stat *st,
                               struct kfit_error *err)
{
    return open_file(d, name, fd, st, err);
}

static enum kfit_status read_file(const struct kfit_dir *d, const char *name, char *buf, size_t size,
                                  size_t *bytes, struct stat *st, struct kfit_error *err)
{
    int fd;
    enum kfit_status s = open_file(d, name, &fd, st, err);
    if (s != KFIT_OK)
        return s;
    size_t n = 0;
    ssize_t got = 0;
    while (n < size && (got = read(fd, buf + n, size - n)) != 0) {
        if (got < 0 && errno != EINTR) {
            s = kfit_dir_fail(d, name, "reading", err);
            break;
        }
        n += got > 0 ? (size_t)got : 0;
    }
    if (s == KFIT_OK && n == size)
        s = kfit_fail(err, KFIT_E_FORMAT, "%s%s%s: longer than %zu bytes", d ? d->path : "", d ? "/" : "",
                      name, size - 1);
    if (s == KFIT_OK) {
        buf[n] = '\0';
        *bytes = n;
    }
    close(fd);
    return s;
}

enum kfit_status kfit_dir_read(const struct kfit_dir *d, const char *name, char *buf, size_t size,
                               size_t *bytes, struct kfit_error *err)
{
    struct stat st;
    return read_file(d, name, buf, size, bytes, &st, err);
}

enum kfit_status kfit_file_read(const char *path, char *buf, size_t size, size_t *bytes, struct stat *st,
                                struct kfit_error *err)
{
    return read_file(NULL, path, buf, size, bytes, st, err);
}

enum kfit_status kfit_dir_replace(const struct kfit_dir *d, const char *name, const void *data, size_t bytes,
                                  mode_t mode, struct kfit_error *err)
{
    char temp[64];
    enum kfit_status s = KFIT_OK;
    snprintf(temp, sizeof temp, ".tmp-%s", name);
    unlinkat(d->fd, temp, 0); /* of a writer that was killed */
    int fd = openat(d->fd, temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
    if (fd < 0)
        return kfit_dir_fail(d, temp, "making", err);
    for (const char *p = data, *end = p + bytes; p < end && s == KFIT_OK;) {
        ssize_t put = write(fd, p, (size_t)(end - p));
        if (put >= 0)
            p += put;
        else if (errno != EINTR)
            s = kfit_dir_fail(d, temp, "writing", err);
    }
    if (s == KFIT_OK && (fchmod(fd, mode) || fsync(fd)))
        s = kfit_dir_fail(d, temp, "writing", err);
    if (close(fd) && s == KFIT_OK)
        s = kfit_dir_fail(d, temp, "writing", err);
    if (s == KFIT_OK && (renameat(d->fd, temp, d->fd, name) || fsync(d->fd)))
        s = kfit_dir_fail(d, name, "renaming to", err);
    if (s != KFIT_OK)
        unlinkat(d->fd, temp, 0);
    return s;
}

enum kfit_status kfit_dir_each(const struct kfit_dir *d,
                               int (*fn)(void *ctx, const struct kfit_dir *d, const char *name), void *ctx,
                               struct kfit_error *err)
{
    int fd = openat(d->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir) {
        enum kfit_status s = kfit_dir_fail(d, "", "listing", err);
        if (fd >= 0)
            close(fd);
        return s;
    }
    for (const struct dirent *e; (e = readdir(dir)) && !fn(ctx, d, e->d_name);)
        ;
    closedir(dir);
    return KFIT_OK;
}

enum kfit_status kfit_dir_lock(const struct kfit_dir *d, const char *name, int *fd, struct kfit_error *err)
{
    struct flock want = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1}, holder = want;
    *fd = openat(d->fd, name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (*fd < 0)
        return kfit_dir_fail(d, name, "opening the lock", err);
    if (!fcntl(*fd, F_SETLK, &want))
        return KFIT_OK;
    enum kfit_status s;
    if (errno != EAGAIN && errno != EACCES)
        s = kfit_dir_fail(d, name, "locking", err);
    else if (!fcntl(*fd, F_GETLK, &holder) && holder.l_type != F_UNLCK && holder.l_pid > 0)
        s = kfit_fail(err, KFIT_E_BUSY, "%s: process %d is writing there; wait for it to end", d->path,
                      (int)holder.l_pid);
    else
        s = kfit_fail(err, KFIT_E_BUSY,
                      "%s: a process outside this PID namespace is writing there; wait for it "
                      "to end",
                      d->path);
    close(*fd);
    *fd = -1;
    return s;
}
