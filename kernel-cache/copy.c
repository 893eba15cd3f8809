#include "copy.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "sha256.h"

enum {
    COPY_BYTES = 64 << 10
}; /* small enough to stay in the L2 cache between reading, hashing and writing */

enum kfit_status kfit_copy_sealed(int from, uint64_t length, const char *path, int *out, uint8_t digest[32],
                                  struct kfit_error *err)
{
    enum kfit_status s = KFIT_OK;
    struct kfit_sha256_state sha;
    uint64_t done = 0;
    struct rlimit limit;
    if (!getrlimit(RLIMIT_FSIZE, &limit) && length > limit.rlim_cur) /* SIGXFSZ, even for a file in memory */
        return kfit_fail(err, KFIT_E_IO, "%.300s: more bytes than this process may write (ulimit -f)", path);
    uint8_t *buf = malloc(COPY_BYTES);
    int fd = memfd_create("kfit-copy", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (!buf || fd < 0) {
        s = kfit_fail(err, !buf || errno == ENOMEM ? KFIT_E_NOMEM : KFIT_E_IO,
                      "%.300s: making a private copy: %m", path);
        goto end;
    }
    kfit_sha256_init(&sha);
    for (;;) {
        ssize_t got = read(from, buf, COPY_BYTES);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            s = kfit_fail(err, KFIT_E_IO, "%.300s: reading: %m", path);
            goto end;
        }
        done += (uint64_t)got;
        if (!got || done > length)
            break;
        kfit_sha256_update(&sha, buf, (size_t)got);
        for (ssize_t put = 0, n; put<got; put += n> 0 ? n : 0) {
            n = write(fd, buf + put, (size_t)(got - put));
            if (n < 0 && errno != EINTR) {
                s = kfit_fail(err, errno == ENOSPC || errno == ENOMEM ? KFIT_E_NOMEM : KFIT_E_IO,
                              "%.300s: making a private copy: %m", path);
                goto end;
            }
        }
    }
    if (done != length)
        s = kfit_fail(err, KFIT_E_FORMAT, "%.300s: changed while it was read", path);
    else if (fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE))
        s = kfit_fail(err, KFIT_E_IO, "%.300s: sealing the private copy: %m", path);
    kfit_sha256_final(&sha, digest);
end:
    free(buf);
    if (s == KFIT_OK)
        *out = fd;
    else if (fd >= 0)
        close(fd);
    return s;
}
