/* A generation as one file: writing it, and opening what claims to be one. */
#include "kfit/exchange.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "copy.h"
#include "dir.h"
#include "generation_file.h"
#include "manifest.h"

/* ---- export ---- */

static enum kfit_status write_all(int fd, const char *path, const void *data, size_t bytes,
                                  struct kfit_error *err)
{
    for (const char *p = data, *end = p + bytes; p < end;) {
        ssize_t put = write(fd, p, (size_t)(end - p));
        if (put >= 0)
            p += put;
        else if (errno != EINTR)
            return kfit_dir_fail(NULL, path, "writing", err);
    }
    return KFIT_OK;
}

/* Gives a complete file its name, unless that is taken. */
static enum kfit_status take_name(const char *temp, const char *path, struct kfit_error *err)
{
    if (!renameat2(AT_FDCWD, temp, AT_FDCWD, path, RENAME_NOREPLACE))
        return KFIT_OK;
    if ((errno == EINVAL || errno == ENOSYS) && !link(temp, path)) /* a file system that cannot do that */
        return unlink(temp) ? kfit_dir_fail(NULL, temp, "removing", err) : KFIT_OK;
    if (errno == EEXIST)
        return kfit_fail(err, KFIT_E_EXISTS, "%.300s: is there already and stays as it is; name another file",
                         path);
    return kfit_dir_fail(NULL, path, "renaming to", err);
}

static enum kfit_status sync_parent(const char *path, struct kfit_error *err)
{
    const char *slash = strrchr(path, '/');
    char *dir = slash ? strndup(path, (size_t)(slash - path) + 1) : strdup(".");
    int fd = dir ? open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    enum kfit_status s =
        fd < 0 || fsync(fd) ? kfit_dir_fail(NULL, path, "syncing its directory", err) : KFIT_OK;
    if (fd >= 0)
        close(fd);
    free(dir);
    return s;
}

enum kfit_status kfit_generation_export(struct kfit_generation *g, const char *path, struct kfit_error *err)
{
    const struct kfit_manifest *m = kfit_generation_manifest(g);
    char head[KFIT_EXPORT_HEAD_MAX], *temp = NULL;
    int fd = -1;
    enum kfit_status s = kfit_generation_check(g, err);
    if (s != KFIT_OK)
        return s;
    if (!access(path, F_OK))
        return kfit_fail(err, KFIT_E_EXISTS, "%.300s: is there already and stays as it is; name another file",
                         path);
    void *data = mmap(NULL, m->length, PROT_READ, MAP_PRIVATE, kfit_generation_fd(g), 0);
    if (data == MAP_FAILED)
        return kfit_fail(err, KFIT_E_NOMEM, "export: mapping %" PRIu64 " bytes: %m", m->length);
    if (asprintf(&temp, "%s.XXXXXX", path) < 0) {
        temp = NULL;
        s = kfit_fail(err, KFIT_E_NOMEM, "export: out of memory");
        goto end;
    }
    fd = mkostemp(temp, O_CLOEXEC);
    if (fd < 0) {
        s = kfit_dir_fail(NULL, temp, "making", err);
        goto end;
    }
    s = write_all(fd, temp, head, kfit_export_head(m, head), err);
    if (s == KFIT_OK)
        s = write_all(fd, temp, data, m->length, err);
    if (s == KFIT_OK && (fchmod(fd, 0644) || fsync(fd)))
        s = kfit_dir_fail(NULL, temp, "writing", err);
    if (close(fd) && s == KFIT_OK)
        s = kfit_dir_fail(NULL, temp, "writing", err);
    if (s == KFIT_OK)
        s = take_name(temp, path, err);
    if (s != KFIT_OK)
        unlink(temp);
    else
        s = sync_parent(path, err);
end:
    munmap(data, m->length);
    free(temp);
    return s;
}

/* ---- import ---- */

static enum kfit_status read_head(int fd, const char *path, struct kfit_manifest *m, struct kfit_error *err)
{
    char head[KFIT_EXPORT_HEAD_MAX + 1];
    struct stat st;
    size_t n = 0, offset;
    ssize_t got = 1;
    if (fstat(fd, &st))
        return kfit_dir_fail(NULL, path, "stat", err);
    if (!S_ISREG(st.st_mode))
        return kfit_fail(err, KFIT_E_ARG, "%.300s: not a regular file", path);
    while (n < KFIT_EXPORT_HEAD_MAX && (got = pread(fd, head + n, KFIT_EXPORT_HEAD_MAX - n, (off_t)n)) != 0) {
        if (got < 0 && errno != EINTR)
            return kfit_dir_fail(NULL, path, "reading", err);
        n += got > 0 ? (size_t)got : 0;
    }
    head[n] = '\0';
    enum kfit_status s = kfit_export_parse(head, n, (uint64_t)st.st_size, path, m, &offset, err);
    if (s == KFIT_OK && lseek(fd, (off_t)offset, SEEK_SET) < 0)
        s = kfit_dir_fail(NULL, path, "reading", err);
    return s;
}

/* A signature that is there must be right, whoever is trusted. */
static enum kfit_status check_signature(const struct kfit_manifest *m, const char *trust, const char *path,
                                        struct kfit_error *err)
{
    struct kfit_trust keys;
    if (!trust)
        return m->is_signed ? kfit_manifest_trusted(m, NULL, path, NULL, err) : KFIT_OK;
    enum kfit_status s = kfit_trust_read(trust, &keys, err);
    return s == KFIT_OK ? kfit_manifest_trusted(m, &keys, path, NULL, err) : s;
}

enum kfit_status kfit_generation_open_file(const char *path, const char *trust, struct kfit_generation **out,
                                           struct kfit_error *err)
{
    struct kfit_manifest m;
    uint8_t digest[32];
    int copy = -1;
    *out = NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY); /* a FIFO must not hang us */
    if (fd < 0)
        return kfit_dir_fail(NULL, path, "opening", err);
    enum kfit_status s = read_head(fd, path, &m, err);
    if (s == KFIT_OK)
        s = check_signature(&m, trust, path, err);
    if (s == KFIT_OK)
        s = kfit_copy_sealed(fd, m.length, path, &copy, digest, err);
    if (s == KFIT_OK && memcmp(digest, m.sha256, sizeof digest)) {
        close(copy);
        s = kfit_fail(
            err, KFIT_E_DIGEST,
            "%.300s: SHA-256 does not match its manifest; the file is damaged or was changed: get it "
            "again from where it was exported",
            path);
    }
    close(fd);
    if (s == KFIT_OK)
        s = kfit_generation_adopt(&m, copy, path, out, err);
    if (s == KFIT_OK && (s = kfit_generation_check(*out, err)) != KFIT_OK) {
        kfit_generation_close(*out);
        *out = NULL;
    }
    return s;
}
