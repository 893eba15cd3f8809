/* The writing end of a trace, in the served process: system calls at creation, then none. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "number.h"
#include "proc.h"
#include "recorder.h"
#include "trace_layout.h"

enum { NAME_TRIES = 16 };

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Entries of the directory, up to max; no opendir, which allocates. */
static unsigned count_entries(int dir, unsigned max)
{
    _Alignas(struct dirent64) char buf[8192];
    unsigned n = 0;
    for (ssize_t got; n < max && (got = getdents64(dir, buf, sizeof buf)) > 0;)
        for (ssize_t at = 0; at < got; n++)
            at += ((const struct dirent64 *)(const void *)(buf + at))->d_reclen;
    return n;
}

/* A directory of ours that no one else can write to; made if missing. */
static enum kfit_status open_dir(const char *path, int *out, struct kfit_error *err)
{
    struct stat st;
    if (mkdir(path, 0700) && errno != EEXIST)
        return kfit_fail(err, KFIT_E_IO, "trace: cannot make directory %s: %s; make it, or set KFIT_TRACE",
                         path, strerror(errno));
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return kfit_fail(err, KFIT_E_IO,
                         "trace: cannot open directory %s: %s; it must be a directory, not a link", path,
                         strerror(errno));
    if (fstat(fd, &st) || st.st_uid != geteuid() || (st.st_mode & (S_IWGRP | S_IWOTH))) {
        close(fd);
        return kfit_fail(err, KFIT_E_PERM,
                         "trace: directory %s must belong to uid %u and be writable by no one else", path,
                         (unsigned)geteuid());
    }
    if (count_entries(fd, KFIT_TRACE_FILES_MAX) >= KFIT_TRACE_FILES_MAX) {
        close(fd);
        return kfit_fail(err, KFIT_E_FULL, "trace: %s holds %u files already; merge and remove old traces",
                         path, KFIT_TRACE_FILES_MAX);
    }
    *out = fd;
    return KFIT_OK;
}

/* The file in full, so that a full disk is an error here and never a SIGBUS later. */
static enum kfit_status make_file(struct kfit_recorder *r, const struct kfit_recorder_params *params,
                                  const char *boot, uint64_t ns, uint64_t ticks, void **map,
                                  struct kfit_error *err)
{
    const char *dir = params->dir;
    char name[160];
    int dirfd = -1, fd = -1, e;
    if (!kfit_file_size_allowed(r->bytes))
        return kfit_fail(err, KFIT_E_IO, "trace: %zu bytes are more than this process may write (ulimit -f)",
                         r->bytes);
    enum kfit_status s = open_dir(dir, &dirfd, err);
    if (s != KFIT_OK)
        return s;
    /* exec keeps pid and start time, and a process may hold two recorders: then a number follows */
    for (int i = 0; fd < 0 && i < NAME_TRIES; i++) {
        char again[8] = "";
        if (i)
            snprintf(again, sizeof again, ".%d", i);
        snprintf(name, sizeof name, "%s-%llu-%d-%llu%.32s%s.kft", boot[0] ? boot : "unknown",
                 (unsigned long long)ns, (int)getpid(), (unsigned long long)ticks,
                 params->suffix ? params->suffix : "", again);
        fd = openat(dirfd, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (fd < 0 && errno != EEXIST)
            break;
    }
    if (fd < 0) {
        s = kfit_fail(err, KFIT_E_IO, "trace: cannot make %s/%s: %s", dir, name, strerror(errno));
        goto out;
    }
    e = posix_fallocate(fd, 0, (off_t)r->bytes);
    if (e) {
        s = kfit_fail(err, KFIT_E_IO, "trace: no room for %zu bytes in %s: %s", r->bytes, dir, strerror(e));
        goto remove;
    }
    void *p = mmap(NULL, r->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED) {
        s = kfit_fail(err, KFIT_E_IO, "trace: cannot map %s/%s: %s", dir, name, strerror(errno));
        goto remove;
    }
    *map = p;
    snprintf(r->path, sizeof r->path, "%s/%s", dir, name);
    goto out;
remove:
    unlinkat(dirfd, name, 0);
out:
    if (fd >= 0)
        close(fd);
    close(dirfd);
    return s;
}

/* "name first-argument" */
static void program_name(char *buf, size_t size)
{
    char text[256];
    size_t n = kfit_proc_read("/proc/self/cmdline", text, sizeof text), first = strlen(text);
    if (first + 1 < n)
        text[first] = ' ';
    kfit_copy_printable(buf, size, text);
}

/* How launchers (torchrun, Open MPI, MPICH, Slurm) tell a process its rank, and what its whole job shares. */
static const struct {
    const char *rank, *job[3];
} launchers[] = {
    {"RANK", {"TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT"}},
    {"OMPI_COMM_WORLD_RANK", {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", NULL}},
    {"PMI_RANK", {"PMI_JOBID", "SLURM_JOB_ID", "SLURM_STEP_ID"}},
    {"SLURM_PROCID", {"SLURM_JOB_ID", "SLURM_STEP_ID", NULL}},
};

/* Rank -1 and no job where no launcher tells. */
static void read_rank(struct kfit_trace_header *h)
{
    h->rank = -1;
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers && h->rank < 0; i++) {
        const char *text = secure_getenv(launchers[i].rank);
        uint64_t n;
        if (!text || !kfit_number(&text, INT32_MAX, &n) || *text)
            continue;
        h->rank = (int32_t)n;
        for (unsigned j = 0; j < 3 && launchers[i].job[j]; j++) {
            const char *part = secure_getenv(launchers[i].job[j]);
            size_t used = strlen(h->job);
            if (part && used + 2 < sizeof h->job)
                snprintf(h->job + used, sizeof h->job - used, "%s%s", used ? "/" : "", part);
        }
        kfit_copy_printable(h->job, sizeof h->job, h->job);
    }
}

enum kfit_status kfit_recorder_create(struct kfit_recorder **out, const struct kfit_recorder_params *params,
                                      struct kfit_error *err)
{
    uint32_t slots = params->slot_count ? params->slot_count : KFIT_TRACE_SLOTS_DEFAULT;
    *out = NULL;
    if (slots > KFIT_TRACE_SLOTS_MAX || (slots & (slots - 1)) || slots < 8)
        return kfit_fail(err, KFIT_E_ARG, "trace: %u slots, expected a power of two from 8 to %u", slots,
                         KFIT_TRACE_SLOTS_MAX);
    struct kfit_recorder *r =
        mmap(NULL, sizeof *r, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (r == MAP_FAILED)
        return kfit_fail(err, KFIT_E_NOMEM, "trace: no memory for a recorder");
    struct kfit_trace_header shape = {.version = KFIT_TRACE_VERSION,
                                      .header_bytes = sizeof shape,
                                      .slot_bytes = sizeof *r->slots,
                                      .slot_count = slots};
    if (params->live)
        shape.live = (struct kfit_trace_live){.kernel_count = KFIT_LIVE_KERNELS,
                                              .graph_count = KFIT_LIVE_GRAPHS,
                                              .item_count = KFIT_LIVE_ITEMS};
    kfit_trace_layout(&shape);
    r->bytes = shape.file_bytes;
    r->mask = slots - 1;
    r->limit = slots - slots / 8;

    enum kfit_status s = KFIT_OK;
    uint64_t ticks = kfit_proc_start_ticks(0), ns = kfit_proc_pid_namespace();
    char boot[40];
    void *map = NULL;
    kfit_proc_boot_id(boot);
    if (params->dir)
        s = make_file(r, params, boot, ns, ticks, &map, err);
    if (!map) {
        map =
            mmap(NULL, r->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (map == MAP_FAILED) {
            munmap(r, sizeof *r);
            return kfit_fail(err, KFIT_E_NOMEM, "trace: no memory for %u slots", slots);
        }
    }
    struct kfit_trace_header *h = r->header = map;
    r->slots = (struct kfit_trace_slot *)(h + 1);
    *h = shape;
    if (params->live) {
        r->kernels = (void *)((char *)map + shape.live.kernels_at);
        r->graphs = (void *)((char *)map + shape.live.graphs_at);
        r->items = (void *)((char *)map + shape.live.items_at);
    }
    h->pid = getpid();
    h->uid = getuid();
    h->start_ticks = ticks;
    h->start_unix_ns = now_ns();
    read_rank(h);
    h->mode = params->mode;
    h->pid_namespace = ns;
    memcpy(h->boot_id, boot, sizeof h->boot_id);
    kfit_copy_printable(h->label, sizeof h->label, params->label);
    if (params->suffix)
        kfit_copy_printable(h->device, sizeof h->device, params->suffix + (params->suffix[0] == '-'));
    program_name(h->program, sizeof h->program);
    /* last, so that a reader sees a whole header or none */
    uint64_t magic;
    memcpy(&magic, KFIT_TRACE_MAGIC, sizeof magic);
    __atomic_store_n((uint64_t *)(void *)h->magic, magic, __ATOMIC_RELEASE);
    *out = r;
    return s;
}

void kfit_recorder_destroy(struct kfit_recorder *r)
{
    if (!r)
        return;
    __atomic_store_n(&r->header->end_unix_ns, now_ns(), __ATOMIC_RELAXED);
    munmap(r->header, r->bytes);
    munmap(r, sizeof *r);
}

void kfit_recorder_abandon(struct kfit_recorder *r)
{
    if (r)
        mmap(r->header, r->bytes, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

struct kfit_trace_header *kfit_recorder_header(struct kfit_recorder *r)
{
    return r->header;
}

const char *kfit_recorder_path(const struct kfit_recorder *r)
{
    return r->path;
}

/* A slot is claimed by its hash, so that another key can pass by one that is still being written. */
struct kfit_trace_slot *kfit_recorder_slot(struct kfit_recorder *r, const union kfit_key *key, uint64_t hash)
{
    if (!hash)
        return NULL;
    for (uint32_t i = 0, at = (uint32_t)hash & r->mask; i <= r->mask; i++, at = (at + 1) & r->mask) {
        struct kfit_trace_slot *s = &r->slots[at];
        uint64_t seen = __atomic_load_n(&s->hash, __ATOMIC_ACQUIRE);
        if (!seen) {
            if (__atomic_fetch_add(&r->header->slots_used, 1, __ATOMIC_RELAXED) >= r->limit) {
                __atomic_fetch_sub(&r->header->slots_used, 1, __ATOMIC_RELAXED);
                return NULL;
            }
            if (__atomic_compare_exchange_n(&s->hash, &seen, hash, false, __ATOMIC_ACQ_REL,
                                            __ATOMIC_ACQUIRE)) {
                __atomic_store_n(&s->state, KFIT_SLOT_CLAIMED, __ATOMIC_RELAXED);
                memcpy(s->key.bytes, key->bytes, key->h.len);
                __atomic_store_n(&s->state, KFIT_SLOT_READY, __ATOMIC_RELEASE);
                return s;
            }
            __atomic_fetch_sub(&r->header->slots_used, 1, __ATOMIC_RELAXED);
        }
        if (seen != hash)
            continue;
        for (int spin = 0; __atomic_load_n(&s->state, __ATOMIC_ACQUIRE) != KFIT_SLOT_READY; spin++) {
            if (spin == KFIT_RECORDER_SPINS) {
                __atomic_fetch_add(&r->header->slots_busy, 1, __ATOMIC_RELAXED);
                return NULL;
            }
            __builtin_ia32_pause();
        }
        if (kfit_key_equal(&s->key, key))
            return s;
    }
    return NULL;
}

uint32_t kfit_recorder_generic(struct kfit_recorder *r, const struct kfit_generic *g)
{
    if (!r)
        return KFIT_TRACE_GENERICS - 1;
    struct kfit_trace_header *h = r->header;
    for (int spin = 0; __atomic_exchange_n(&r->generics_lock, 1, __ATOMIC_ACQUIRE); spin++)
        if (spin == KFIT_RECORDER_SPINS)
            return KFIT_TRACE_GENERICS - 1;
    uint32_t n = h->generic_count < KFIT_TRACE_GENERICS ? h->generic_count : KFIT_TRACE_GENERICS, i = 0;
    while (i < n && (strncmp(h->generics[i].path, g->path, sizeof g->path) ||
                     strncmp(h->generics[i].naming, g->naming, sizeof g->naming)))
        i++;
    if (i == n && n < KFIT_TRACE_GENERICS) {
        h->generics[i] = *g;
        __atomic_store_n(&h->generic_count, n + 1, __ATOMIC_RELEASE);
    }
    __atomic_store_n(&r->generics_lock, 0, __ATOMIC_RELEASE);
    return i < KFIT_TRACE_GENERICS ? i : KFIT_TRACE_GENERICS - 1;
}

void kfit_slot_seen(struct kfit_trace_slot *s)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME_COARSE, &t);
    __atomic_store_n(&s->last_seen_s, (uint32_t)t.tv_sec, __ATOMIC_RELAXED);
}
