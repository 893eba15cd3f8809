/* Where things are: our own files, caches, the directories recorders write to. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli.h"

/* The first of names, relative to the directory of the running program, that can be read. */
static bool find(const char *const *names, int mode, char *path, size_t size)
{
    char exe[PATH_MAX], full[2 * PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    if (n <= 0)
        return false;
    exe[n] = '\0';
    *strrchr(exe, '/') = '\0';
    for (; *names; names++) {
        char real[PATH_MAX];
        snprintf(full, sizeof full, "%s/%s", **names == '/' ? "" : exe, *names);
        if (realpath(full, real) && !access(real, mode) && strlen(real) < size) {
            strcpy(path, real);
            return true;
        }
    }
    return false;
}

/* build tree, then installed tree (KFIT_LIBDIR and KFIT_LIBEXECDIR lead there from bin) */
bool cli_find_shim(char *path, size_t size)
{
    static const char *const names[] = {"../preload/libkfit_preload.so",
                                        KFIT_LIBDIR "/kfit/libkfit_preload.so", NULL};
    return find(names, R_OK, path, size);
}

bool cli_find_runner(char *path, size_t size)
{
    static const char *const names[] = {"../../offline-search/kfit-runner",
                                        KFIT_LIBEXECDIR "/kfit/kfit-runner", NULL};
    return find(names, X_OK, path, size);
}

bool cli_find_runner_cuda(char *path, size_t size)
{
    static const char *const names[] = {"../../offline-search/kfit-runner-cuda",
                                        KFIT_LIBEXECDIR "/kfit/kfit-runner-cuda", NULL};
    return find(names, X_OK, path, size);
}

bool cli_find_probe_cuda(char *path, size_t size)
{
    static const char *const names[] = {"../preload/kfit-probe-cuda", KFIT_LIBEXECDIR "/kfit/kfit-probe-cuda",
                                        NULL};
    return find(names, X_OK, path, size);
}

bool cli_find_demo(char *path, size_t size)
{
    static const char *const names[] = {"../demo/serve.py", KFIT_DATADIR "/kfit/demo/serve.py", NULL};
    if (!find(names, R_OK, path, size))
        return false;
    *strrchr(path, '/') = '\0';
    return true;
}

const char *cli_cache_dir(const char *dir, char *buf, size_t size)
{
    char given[PATH_MAX], real[PATH_MAX];
    if (dir)
        snprintf(given, sizeof given, "%s", dir);
    else if (!kfit_cache_default_dir(given, sizeof given))
        strcpy(given, ".");
    snprintf(buf, size, "%s", realpath(given, real) ? real : given);
    return buf;
}

enum kfit_status cli_make_dir(const char *path, struct kfit_error *err)
{
    char part[PATH_MAX];
    struct stat st;
    if (strlen(path) >= sizeof part)
        return kfit_fail(err, KFIT_E_ARG, "%.100s...: path too long", path);
    strcpy(part, path);
    for (char *p = part + 1; *p; p++) {
        if (*p != '/')
            continue;
        *p = '\0';
        mkdir(part, 0700); /* what really went wrong is said for the last part */
        *p = '/';
    }
    if (mkdir(path, 0700) && errno != EEXIST)
        return kfit_fail(err, KFIT_E_IO, "%s: cannot make the directory: %s", path, strerror(errno));
    if (stat(path, &st))
        return kfit_fail(err, KFIT_E_IO, "%s: %s", path, strerror(errno));
    if (!S_ISDIR(st.st_mode))
        return kfit_fail(err, KFIT_E_IO, "%s: is not a directory", path);
    if (access(path, W_OK | X_OK))
        return kfit_fail(err, KFIT_E_PERM, "%s: cannot write there: %s", path, strerror(errno));
    return KFIT_OK;
}

enum kfit_status cli_private_dir(const char *path, struct kfit_error *err)
{
    struct stat st;
    enum kfit_status s = cli_make_dir(path, err);
    if (s != KFIT_OK)
        return s;
    if (lstat(path, &st) || !S_ISDIR(st.st_mode) || st.st_uid != geteuid() || st.st_mode & 022)
        return kfit_fail(err, KFIT_E_PERM,
                         "%s: must be a directory of yours that others cannot write (chmod go-w)", path);
    return KFIT_OK;
}

bool cli_runtime_dir(unsigned i, char *buf, size_t size)
{
    const char *run = getenv("XDG_RUNTIME_DIR");
    if (!run || *run != '/')
        i++; /* no such place */
    if (i == 0)
        snprintf(buf, size, "%s/kfit", run);
    else if (i == 1)
        snprintf(buf, size, "/dev/shm/kfit-%u", geteuid());
    return i < 2;
}

enum kfit_status cli_read_file(const char *path, size_t max, char **out, size_t *bytes,
                               struct kfit_error *err)
{
    struct stat st;
    enum kfit_status s = KFIT_E_IO;
    char *buf = NULL;
    size_t n = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st)) {
        s = kfit_fail(err, errno == ENOENT ? KFIT_E_NOTFOUND : KFIT_E_IO, "%s: %s", path, strerror(errno));
        goto out;
    }
    if (S_ISDIR(st.st_mode)) {
        s = kfit_fail(err, KFIT_E_IO, "%s: is a directory", path);
        goto out;
    }
    if (st.st_size > (off_t)max) {
        s = kfit_fail(err, KFIT_E_FULL, "%s: %lld bytes; at most %zu are read", path, (long long)st.st_size,
                      max);
        goto out;
    }
    if (S_ISREG(st.st_mode))
        max = (size_t)st.st_size; /* what grows meanwhile is refused */
    buf = cli_alloc(NULL, max + 1);
    for (ssize_t got; (got = read(fd, buf + n, max + 1 - n)) != 0; n += (size_t)got) {
        if (got < 0) {
            s = kfit_fail(err, KFIT_E_IO, "%s: %s", path, strerror(errno));
            goto out;
        }
        if (n + (size_t)got > max) {
            s = kfit_fail(err, KFIT_E_FULL, "%s: more than %zu bytes", path, max);
            goto out;
        }
    }
    buf[n] = '\0';
    *out = buf;
    *bytes = n;
    buf = NULL;
    s = KFIT_OK;
out:
    free(buf);
    if (fd >= 0)
        close(fd);
    return s;
}

enum kfit_status cli_write_file(const char *path, const void *data, size_t bytes, unsigned mode,
                                struct kfit_error *err)
{
    char temp[PATH_MAX];
    enum kfit_status s;
    int fd;
    if ((size_t)snprintf(temp, sizeof temp, "%s.XXXXXX", path) >= sizeof temp)
        return kfit_fail(err, KFIT_E_ARG, "%.100s...: path too long", path);
    fd = mkostemp(temp, O_CLOEXEC);
    if (fd < 0)
        return kfit_fail(err, KFIT_E_IO, "%s: %s", path, strerror(errno));
    for (size_t done = 0; done < bytes;) {
        ssize_t n = write(fd, (const char *)data + done, bytes - done);
        if (n < 0 && errno != EINTR)
            goto fail;
        done += n > 0 ? (size_t)n : 0;
    }
    if (fchmod(fd, mode) || fsync(fd))
        goto fail;
    if (!rename(temp, path)) {
        close(fd);
        return KFIT_OK;
    }
fail:
    s = kfit_fail(err, errno == ENOSPC || errno == EDQUOT ? KFIT_E_FULL : KFIT_E_IO, "%s: %s", path,
                  strerror(errno));
    close(fd);
    unlink(temp);
    return s;
}
