#include "store_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <unistd.h>

#define LOCK "writer.lock"

static int set(int fd, short type, off_t start, off_t len)
{
    struct flock l = {.l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = len};
    return fcntl(fd, F_SETLK, &l);
}

/* Whether another process holds any lock in the range (len 0: to the end). */
static bool held(int fd, off_t start, off_t len)
{
    struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = start, .l_len = len};
    return !fcntl(fd, F_GETLK, &l) && l.l_type != F_UNLCK;
}

static off_t pid_namespace(void)
{
    struct stat st;
    return stat("/proc/self/ns/pid", &st) ? 1 : (off_t)st.st_ino + 1;
}

/* All announce themselves first and look then: of two who come together at least one sees the other. */
static enum kfit_status share_namespace(const struct kfit_dir *d, int fd, struct kfit_error *err)
{
    off_t ns = pid_namespace();
    if (set(fd, F_RDLCK, ns, 1))
        return kfit_dir_fail(d, LOCK, "locking", err);
    if ((ns > 1 && held(fd, 1, ns - 1)) || held(fd, ns + 1, 0))
        return kfit_fail(err, KFIT_E_BUSY,
                         "%s: in use from another PID namespace (a container?); use it from one "
                         "at a time",
                         d->path);
    return KFIT_OK;
}

enum kfit_status kfit_store_lock(const struct kfit_dir *d, bool write, int *fd, struct kfit_error *err)
{
    enum kfit_status s = KFIT_OK;
    if (write) {
        s = kfit_dir_lock(d, LOCK, fd, err);
    } else {
        *fd = openat(d->fd, LOCK, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (*fd < 0)
            s = kfit_dir_fail(d, LOCK, "opening the lock", err);
    }
    if (s == KFIT_OK)
        s = share_namespace(d, *fd, err);
    if (s != KFIT_OK && *fd >= 0) {
        int code = errno;
        close(*fd);
        *fd = -1;
        errno = code;
    }
    return s;
}

enum kfit_status kfit_store_lock_copy(const struct kfit_dir *d, int *fd, struct kfit_error *err)
{
    *fd = openat(d->fd, LOCK, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (*fd < 0)
        return errno == ENOENT ? KFIT_OK : kfit_dir_fail(d, LOCK, "opening the lock", err);
    if (!set(*fd, F_RDLCK, 0, 1))
        return KFIT_OK;
    enum kfit_status s = errno == EAGAIN || errno == EACCES
                             ? kfit_fail(err, KFIT_E_BUSY,
                                         "%s: being written, and on a read-only mount it can only be "
                                         "copied; wait for the writer to end",
                                         d->path)
                             : kfit_dir_fail(d, LOCK, "locking", err);
    close(*fd);
    *fd = -1;
    return s;
}
