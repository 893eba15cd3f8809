#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "device_lock.h"

/* Record locks belong to the process: a second judge in this one would get it too. */
static bool held_here;

static int open_in(const char *dir, mode_t dir_mode, mode_t mode, const char *device)
{
    char path[512];
    if (!mkdir(dir, dir_mode))
        (void)!chmod(dir, dir_mode); /* past the umask: other users take the same lock */
    snprintf(path, sizeof path, "%s/%s.lock", dir, device);
    int fd =
        open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW); /* sticky directories refuse O_CREAT on others' files */
    if (fd < 0 && errno == ENOENT &&
        (fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode)) >= 0)
        (void)!fchmod(fd, mode);
    return fd;
}

static int open_lock(const char *device)
{
    const char *runtime = secure_getenv("XDG_RUNTIME_DIR");
    char dir[400];
    int fd = open_in("/run/lock/kfit", 01777, 0666, device);
    if (fd < 0 && runtime && *runtime == '/' && strlen(runtime) < sizeof dir - 8) {
        snprintf(dir, sizeof dir, "%s/kfit", runtime);
        fd = open_in(dir, 0700, 0600, device);
    }
    if (fd < 0) {
        snprintf(dir, sizeof dir, "/tmp/kfit-%u", (unsigned)getuid());
        fd = open_in(dir, 0700, 0600, device);
    }
    return fd;
}

static enum kfit_status busy(int fd, const char *device, struct kfit_error *err)
{
    struct flock who = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    char path[64], name[64] = "";
    if (fcntl(fd, F_GETLK, &who) || who.l_type == F_UNLCK)
        who.l_pid = 0;
    snprintf(path, sizeof path, "/proc/%d/comm", (int)who.l_pid);
    FILE *f = fopen(path, "re");
    if (f) {
        if (fgets(name, sizeof name, f))
            name[strcspn(name, "\n")] = '\0';
        fclose(f);
    }
    return kfit_fail(err, KFIT_E_BUSY,
                     "device %s is being measured by process %d (%s); wait for it or stop it", device,
                     (int)who.l_pid, name[0] ? name : "unknown");
}

enum kfit_status kfit_device_lock(const char *device, const char *dir, int *fd, struct kfit_error *err)
{
    if (__atomic_exchange_n(&held_here, true, __ATOMIC_ACQUIRE))
        return kfit_fail(err, KFIT_E_BUSY, "device %s is being measured by this very process (%d)", device,
                         (int)getpid());
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    enum kfit_status st = KFIT_OK;
    *fd = dir ? open_in(dir, 0700, 0600, device) : open_lock(device);
    if (*fd < 0)
        st = kfit_fail(err, KFIT_E_IO,
                       "no place for the lock of device %s: /run/lock/kfit, $XDG_RUNTIME_DIR and /tmp: %s",
                       device, strerror(errno));
    else if (fcntl(*fd, F_SETLK, &lock)) {
        st = errno == EACCES || errno == EAGAIN
                 ? busy(*fd, device, err)
                 : kfit_fail(err, KFIT_E_IO, "cannot lock device %s: %s", device, strerror(errno));
        close(*fd);
    }
    if (st != KFIT_OK)
        __atomic_store_n(&held_here, false, __ATOMIC_RELEASE);
    return st;
}

void kfit_device_unlock(int fd)
{
    close(fd);
    __atomic_store_n(&held_here, false, __ATOMIC_RELEASE);
}
