/* Flat host images in one memfd: written through the file, so that no page is resident before its kernel
 * runs; sealed; mapped once, read and execute. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "image_set.h"
#include "proc.h"

#ifndef MFD_NOEXEC_SEAL /* Linux 6.3: we never execve it, and say so */
#define MFD_NOEXEC_SEAL 8u
#endif

enum { STAGE = 256 << 10 };

struct kfit_modules {
    int fd;
    size_t bytes, staged, room, count;
    char *base;
    unsigned char *stage;        /* not yet written, STAGE bytes */
    struct kfit_kernel *kernels; /* entries are offsets until sealed */
};

static void *map(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

/* What only the making of a set needs. */
static void trim(struct kfit_modules *m)
{
    if (m->stage)
        munmap(m->stage, STAGE);
    if (m->kernels)
        munmap(m->kernels, m->room * sizeof *m->kernels);
    if (m->fd >= 0)
        close(m->fd);
    m->stage = NULL;
    m->kernels = NULL;
    m->fd = -1;
}

void kfit_image_set_close(struct kfit_modules *m)
{
    if (!m)
        return;
    trim(m);
    if (m->base)
        munmap(m->base, m->bytes);
    munmap(m, sizeof *m);
}

enum kfit_status kfit_image_set_open(struct kfit_modules **out, struct kfit_error *err)
{
    struct kfit_modules *m = map(sizeof *m);
    *out = NULL;
    if (!m)
        return kfit_fail(err, KFIT_E_NOMEM, "host images: no memory");
    m->room = 256;
    m->kernels = map(m->room * sizeof *m->kernels);
    m->stage = map(STAGE);
    m->fd = memfd_create("kfit-images", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
    if (m->fd < 0 && errno == EINVAL)
        m->fd = memfd_create("kfit-images", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (!m->kernels || !m->stage || m->fd < 0) {
        enum kfit_status s =
            m->fd < 0 ? kfit_fail(err, KFIT_E_UNSUPPORTED, "host images: memfd_create: %s", strerror(errno))
                      : kfit_fail(err, KFIT_E_NOMEM, "host images: no memory");
        kfit_image_set_close(m);
        return s;
    }
    *out = m;
    return KFIT_OK;
}

static enum kfit_status flush(struct kfit_modules *m, struct kfit_error *err)
{
    if (!kfit_file_size_allowed(m->bytes))
        return kfit_fail(err, KFIT_E_IO,
                         "host images: %zu bytes are more than this process may write (ulimit -f)", m->bytes);
    for (size_t done = 0; done < m->staged;) {
        ssize_t n = write(m->fd, m->stage + done, m->staged - done);
        if (n < 0 && errno != EINTR)
            return kfit_fail(err, KFIT_E_IO, "host images: cannot write %zu bytes: %s", m->bytes,
                             strerror(errno));
        done += n > 0 ? (size_t)n : 0;
    }
    m->staged = 0;
    return KFIT_OK;
}

static enum kfit_status put(struct kfit_modules *m, const void *data, size_t bytes, struct kfit_error *err)
{
    for (size_t done = 0; done < bytes;) {
        size_t n = bytes - done < STAGE - m->staged ? bytes - done : STAGE - m->staged;
        if (data)
            memcpy(m->stage + m->staged, (const char *)data + done, n);
        else
            memset(m->stage + m->staged, 0xcc, n); /* int3 between images */
        m->staged += n;
        m->bytes += n;
        done += n;
        if (m->staged == STAGE) {
            enum kfit_status s = flush(m, err);
            if (s != KFIT_OK)
                return s;
        }
    }
    return KFIT_OK;
}

enum kfit_status kfit_image_set_add(struct kfit_modules *m, const struct kfit_image *image, unsigned nargs,
                                    struct kfit_error *err)
{
    const struct kfit_plan *plan = image->plan;
    if (m->base || plan->launch_count != 1 || plan->launches[0].entry_offset >= image->bytes)
        return kfit_fail(err, KFIT_E_FORMAT, "host images: %s, %u launches, entry at %llu of %zu bytes",
                         m->base ? "sealed" : plan->launches[0].entry, plan->launch_count,
                         (unsigned long long)plan->launches[0].entry_offset, image->bytes);
    if (m->count == m->room) {
        size_t old = m->room * sizeof *m->kernels;
        void *more = mremap(m->kernels, old, 2 * old, MREMAP_MAYMOVE);
        if (more == MAP_FAILED)
            return kfit_fail(err, KFIT_E_NOMEM, "host images: no memory for %zu kernels", m->count + 1);
        m->kernels = more;
        m->room *= 2;
    }
    size_t gap = -m->bytes & (KFIT_HOST_IMAGE_ALIGN - 1);
    enum kfit_status s = put(m, NULL, gap, err);
    if (s != KFIT_OK)
        return s;
    m->kernels[m->count++] = (struct kfit_kernel){
        .entry = (const void *)(uintptr_t)(m->bytes + plan->launches[0].entry_offset),
        .workspace_bytes = plan->workspace_bytes,
        .workspace_init = plan->workspace_init,
        .nargs = nargs,
    };
    return put(m, image->data, image->bytes, err);
}

enum kfit_status kfit_image_set_seal(struct kfit_modules *m, struct kfit_kernel *kernels,
                                     struct kfit_error *err)
{
    enum kfit_status s = m->base ? kfit_fail(err, KFIT_E_ARG, "host images: sealed already") : flush(m, err);
    if (s != KFIT_OK || !m->count)
        return s;
    if (fcntl(m->fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
        return kfit_fail(err, KFIT_E_UNSUPPORTED, "host images: cannot seal: %s", strerror(errno));
    void *p = mmap(NULL, m->bytes, PROT_READ | PROT_EXEC, MAP_PRIVATE, m->fd, 0);
    if (p == MAP_FAILED)
        return kfit_fail(
            err, KFIT_E_UNSUPPORTED,
            "host images: cannot map memory as executable: %s; a security policy forbids it here",
            strerror(errno));
    m->base = p;
    for (size_t i = 0; i < m->count; i++) {
        kernels[i] = m->kernels[i];
        kernels[i].entry = m->base + (uintptr_t)kernels[i].entry;
    }
    trim(m);
    return KFIT_OK;
}
