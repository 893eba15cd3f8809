/* Crashes remembered and bans of this host: small files whose locks end with their processes. */
#include "kfit/state.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "dir.h"
#include "kfit/generation.h"
#include "kfit/hash.h"

#define MAGIC "kfitst1"
enum { ENDS_MAX = 64, BANS_MAX = 1 << 20 };
#define WINDOW_NS (KFIT_STATE_WINDOW_S * INT64_C(1000000000))

/* A run- or held- file, little-endian, version 1. Names of processes and times as in the trace's header. */
struct entry {
    char magic[8];
    uint64_t check; /* XXH3 of all between it and found_ns */
    uint8_t digest[32];
    uint64_t generation;
    char program[128], label[64], boot_id[40];
    int32_t pid;
    uint32_t ends; /* in a held- file */
    uint64_t pid_namespace, start_ticks;
    int64_t start_ns; /* of the first kernel */
    uint8_t reserved[184];
    int64_t found_ns; /* 0 until a later process finds that this one is gone; then written in place */
};
_Static_assert(sizeof(struct entry) == 512, "format");

static uint64_t check_of(const struct entry *e)
{
    const char *from = (const char *)e->digest;
    return XXH3_64bits(from, (size_t)((const char *)&e->found_ns - from));
}

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static struct entry describe(const struct kfit_trace_header *me, uint64_t generation,
                             const uint8_t digest[32])
{
    struct entry e = {.magic = MAGIC,
                      .generation = generation,
                      .pid = me->pid,
                      .pid_namespace = me->pid_namespace,
                      .start_ticks = me->start_ticks,
                      .start_ns = now_ns()};
    memcpy(e.digest, digest, sizeof e.digest);
    memcpy(e.program, me->program, sizeof e.program);
    memcpy(e.label, me->label, sizeof e.label);
    memcpy(e.boot_id, me->boot_id, sizeof e.boot_id);
    e.check = check_of(&e);
    return e;
}

static bool same_program(const struct entry *a, const struct entry *b)
{
    return !memcmp(a->digest, b->digest, sizeof a->digest) &&
           !strncmp(a->program, b->program, sizeof a->program) &&
           !strncmp(a->label, b->label, sizeof a->label);
}

/* The name says it all: a held- file that is empty or damaged holds as well. */
static void held_name(const struct entry *e, char name[48])
{
    char digest[17], program[sizeof e->program + sizeof e->label];
    kfit_hex(e->digest, 8, digest);
    memcpy(program, e->program, sizeof e->program);
    memcpy(program + sizeof e->program, e->label, sizeof e->label);
    snprintf(name, 48, "held-%s-%016" PRIx64, digest, (uint64_t)XXH3_64bits(program, sizeof program));
}

static void tell(const struct entry *e, struct kfit_state_held *h)
{
    *h = (struct kfit_state_held){
        .generation = e->generation, .ends = e->ends, .at_unix_s = e->found_ns / 1000000000};
    memcpy(h->digest, e->digest, sizeof h->digest);
    memcpy(h->program, e->program, sizeof h->program - 1);
    memcpy(h->label, e->label, sizeof h->label - 1);
}

/* ---- files ---- */

static bool well_formed(const struct entry *e)
{
    return !memcmp(e->magic, MAGIC, sizeof e->magic) && e->check == check_of(e);
}

/* False if it is not one of ours, whole. */
static bool load(const struct kfit_dir *d, const char *name, struct entry *e)
{
    char buf[sizeof *e + 1];
    size_t n;
    if (kfit_dir_read(d, name, buf, sizeof buf, &n, NULL) != KFIT_OK || n != sizeof *e)
        return false;
    memcpy(e, buf, sizeof *e);
    return well_formed(e);
}

/* Whether the process of a run- file is gone. Where locks do not work nobody is. */
static bool is_gone(const struct kfit_dir *d, const char *name)
{
    struct stat st;
    int fd;
    if (kfit_dir_file(d, name, &fd, &st, NULL) != KFIT_OK)
        return false;
    bool gone = !flock(fd, LOCK_SH | LOCK_NB); /* shared: several may look at once */
    close(fd);
    return gone;
}

/* Beyond a file-size limit the kernel kills who writes. */
static bool may_write(void)
{
    struct rlimit limit;
    return getrlimit(RLIMIT_FSIZE, &limit) || limit.rlim_cur >= sizeof(struct entry);
}

/* Two that do it at once write nearly the same; where it cannot be written each start dates it anew. */
static void date(const struct kfit_dir *d, const char *name, struct entry *e, int64_t now)
{
    const off_t at = offsetof(struct entry, found_ns);
    e->found_ns = now > e->start_ns ? now : e->start_ns;
    int fd = may_write() ? openat(d->fd, name, O_WRONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK) : -1;
    if (fd < 0)
        return;
    (void)!pwrite(fd, &e->found_ns, sizeof e->found_ns, at);
    close(fd);
}

static bool begins(const char *name, const char *with)
{
    return !strncmp(name, with, strlen(with));
}

/* ---- counting ---- */

struct scan {
    const struct entry *me;
    int64_t now;
    struct {
        int64_t start_ns, found_ns;
    } ends[ENDS_MAX]; /* of this program with this generation, by found_ns */
    unsigned count, damaged;
};

/* A process that exec'd lost its lock and lives. */
static bool is_earlier_self(const struct entry *e, const struct entry *me)
{
    return e->pid == me->pid && e->start_ticks == me->start_ticks && e->pid_namespace == me->pid_namespace;
}

static int look(void *ctx, const struct kfit_dir *d, const char *name)
{
    struct scan *s = ctx;
    struct entry e;
    struct stat st;
    if (begins(name, ".new-") && !fstatat(d->fd, name, &st, AT_SYMLINK_NOFOLLOW) &&
        st.st_mtime + 3600 < s->now / 1000000000)
        unlinkat(d->fd, name, 0); /* its process died while making it */
    if (!begins(name, "run-") || !is_gone(d, name))
        return 0;
    if (!load(d, name, &e)) {
        s->damaged++;
        unlinkat(d->fd, name, 0);
        return 0;
    }
    if (strncmp(e.boot_id, s->me->boot_id, sizeof e.boot_id) || is_earlier_self(&e, s->me)) {
        unlinkat(d->fd, name, 0);
        return 0;
    }
    if (!e.found_ns)
        date(d, name, &e, s->now);
    if (e.found_ns < s->now - WINDOW_NS) {
        unlinkat(d->fd, name, 0);
        return 0;
    }
    if (!same_program(&e, s->me) || s->count == ENDS_MAX)
        return 0;
    unsigned at = s->count++;
    for (; at && s->ends[at - 1].found_ns > e.found_ns; at--)
        s->ends[at] = s->ends[at - 1];
    s->ends[at].start_ns = e.start_ns;
    s->ends[at].found_ns = e.found_ns;
    return 0;
}

/* The most ends of which each process began after the one before was found. */
static unsigned count_ends(const struct scan *s, int64_t *last)
{
    unsigned n = 0;
    for (unsigned i = 0; i < s->count; i++)
        if (!n || s->ends[i].start_ns >= *last) {
            n++;
            *last = s->ends[i].found_ns;
        }
    return n;
}

enum kfit_status kfit_state_check(const char *dir, const struct kfit_trace_header *me, uint64_t generation,
                                  const uint8_t digest[32], struct kfit_state_held *held, bool *is_held,
                                  struct kfit_error *err)
{
    struct kfit_dir d;
    struct stat st;
    char name[48];
    struct entry mine = describe(me, generation, digest), had;
    *is_held = false;
    enum kfit_status s = kfit_dir_open(&d, NULL, dir, 0, err);
    if (s != KFIT_OK)
        return s == KFIT_E_NOTFOUND ? KFIT_OK : s;
    held_name(&mine, name);
    if (!fstatat(d.fd, name, &st, AT_SYMLINK_NOFOLLOW)) {
        *is_held = true;
        tell(load(&d, name, &had) && same_program(&had, &mine) ? &had : &mine, held);
        goto end;
    }
    struct scan scan = {.me = &mine, .now = now_ns()};
    int64_t last = 0;
    s = kfit_dir_each(&d, look, &scan, err);
    mine.ends = count_ends(&scan, &last);
    mine.found_ns = last;
    mine.check = check_of(&mine);
    if (mine.ends >= KFIT_STATE_ENDS) {
        *is_held = true;
        tell(&mine, held);
        if (may_write())
            kfit_dir_replace(&d, name, &mine, sizeof mine, 0644, NULL); /* else the next start counts again */
    } else if (s == KFIT_OK && scan.damaged) {
        s = kfit_fail(err, KFIT_E_FORMAT, "%s: %u damaged files about processes were removed", dir,
                      scan.damaged);
    }
end:
    kfit_dir_close(&d);
    return s;
}

/* ---- marks ---- */

/* Complete and locked before it has its name: nobody sees a live process as gone. */
enum kfit_status kfit_state_mark(const char *dir, const struct kfit_trace_header *me, uint64_t generation,
                                 const uint8_t digest[32], struct kfit_state_mark *mark,
                                 struct kfit_error *err)
{
    const struct entry e = describe(me, generation, digest);
    struct kfit_dir d;
    char temp[64], link[32];
    int fd = -1;
    ssize_t n;
    memset(mark, 0, sizeof *mark);
    if (!may_write())
        return kfit_fail(err, KFIT_E_IO, "%s: this process may write no files (ulimit -f)", dir);
    enum kfit_status s = kfit_dir_open(&d, NULL, dir, 0700, err);
    if (s != KFIT_OK)
        return s;
    snprintf(temp, sizeof temp, ".new-%d-%" PRId64, (int)me->pid, e.start_ns);
    fd = openat(d.fd, temp, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) {
        s = kfit_dir_fail(&d, temp, "making", err);
        goto end;
    }
    if ((n = write(fd, &e, sizeof e)) != (ssize_t)sizeof e) {
        errno = n < 0 ? errno : ENOSPC;
        s = kfit_dir_fail(&d, temp, "writing", err);
    } else if (flock(fd, LOCK_EX | LOCK_NB)) {
        s = kfit_dir_fail(&d, temp, "locking", err);
    }
    if (s != KFIT_OK)
        goto end;
    /* the mapping keeps the open file, and so its lock, until the process ends or execs; no child has it */
    mark->lock = mmap(NULL, sizeof e, PROT_NONE, MAP_SHARED, fd, 0);
    if (mark->lock == MAP_FAILED || madvise(mark->lock, sizeof e, MADV_DONTFORK)) {
        s = kfit_dir_fail(&d, temp, "mapping", err);
        goto end;
    }
    /* absolute, for a program that changes its directory */
    snprintf(link, sizeof link, "/proc/self/fd/%d", d.fd);
    n = readlink(link, mark->path, sizeof mark->path - 64);
    if (n <= 0)
        n = snprintf(mark->path, sizeof mark->path - 64, "%s", dir);
    snprintf(mark->path + n, sizeof mark->path - (size_t)n, "/run-%s", temp + strlen(".new-"));
    if (renameat(d.fd, temp, d.fd, mark->path + n + 1))
        s = kfit_dir_fail(&d, temp, "renaming", err);
end:
    if (s != KFIT_OK) {
        if (fd >= 0)
            unlinkat(d.fd, temp, 0);
        if (mark->lock && mark->lock != MAP_FAILED)
            munmap(mark->lock, sizeof e);
        memset(mark, 0, sizeof *mark);
    }
    if (fd >= 0)
        close(fd);
    kfit_dir_close(&d);
    return s;
}

void kfit_state_unmark(struct kfit_state_mark *mark)
{
    if (!mark->lock)
        return;
    unlink(mark->path);
    munmap(mark->lock, sizeof(struct entry));
    memset(mark, 0, sizeof *mark);
}

/* ---- bans ---- */

enum kfit_status kfit_state_bans(const char *dir, char **text, struct kfit_error *err)
{
    struct stat st;
    char *buf = NULL;
    size_t n = 0;
    enum kfit_status s = KFIT_OK;
    *text = NULL;
    int at = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (at < 0)
        return KFIT_E_NOTFOUND;
    /* whoever wrote it: a ban only takes a kernel away. O_NONBLOCK: a FIFO put there must not hang us */
    int fd = openat(at, "bans", O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) {
        const int why = errno;
        s = fstatat(at, "bans", &st, AT_SYMLINK_NOFOLLOW)
                ? KFIT_E_NOTFOUND
                : kfit_fail(err, KFIT_E_PERM, "%s/bans: %s; nothing runs while it cannot be read", dir,
                            strerror(why));
        goto end;
    }
    if (fstat(fd, &st) || !S_ISREG(st.st_mode) || st.st_size > BANS_MAX) {
        s = kfit_fail(err, KFIT_E_FORMAT, "%s/bans: not a regular file of at most %d bytes", dir, BANS_MAX);
        goto end;
    }
    buf = malloc((size_t)st.st_size + 1);
    if (!buf) {
        s = kfit_fail(err, KFIT_E_NOMEM, "%s/bans: out of memory", dir);
        goto end;
    }
    for (ssize_t got; n < (size_t)st.st_size && (got = read(fd, buf + n, (size_t)st.st_size - n)) != 0;) {
        if (got < 0 && errno != EINTR) {
            s = kfit_fail(err, KFIT_E_IO, "%s/bans: reading: %m", dir);
            goto end;
        }
        n += got > 0 ? (size_t)got : 0;
    }
    buf[n] = '\0';
    if (strlen(buf) != n) {
        s = kfit_fail(err, KFIT_E_FORMAT, "%s/bans: holds a NUL, it is not a text", dir);
        goto end;
    }
    *text = buf;
    buf = NULL;
end:
    free(buf);
    if (fd >= 0)
        close(fd);
    close(at);
    return s;
}

/* ---- for the operator ---- */

size_t kfit_state_default_dir(char *buf, size_t size, bool *asked)
{
    const char *own = secure_getenv("KFIT_STATE"), *xdg = secure_getenv("XDG_STATE_HOME"),
               *home = secure_getenv("HOME");
    if (asked)
        *asked = own && *own;
    int n = own && *own     ? snprintf(buf, size, "%s", own)
            : xdg && *xdg   ? snprintf(buf, size, "%s/kfit", xdg)
            : home && *home ? snprintf(buf, size, "%s/.local/state/kfit", home)
                            : 0;
    return n > 0 && (size_t)n < size && strcmp(buf, "/dev/null") != 0 ? (size_t)n : 0;
}

struct each {
    int (*fn)(void *ctx, const struct kfit_state_held *h);
    void *ctx;
};

static int tell_name(void *ctx, const struct kfit_dir *d, const char *name)
{
    const struct each *each = ctx;
    struct entry e;
    struct kfit_state_held h;
    if (!begins(name, "held-"))
        return 0;
    if (!load(d, name, &e))
        e = (struct entry){.program = "a program that its damaged file does not name"};
    tell(&e, &h);
    return each->fn(each->ctx, &h);
}

enum kfit_status kfit_state_each(const char *dir, int (*fn)(void *ctx, const struct kfit_state_held *h),
                                 void *ctx, struct kfit_error *err)
{
    struct kfit_dir d;
    struct each each = {fn, ctx};
    enum kfit_status s = kfit_dir_open(&d, NULL, dir, 0, err);
    if (s == KFIT_E_NOTFOUND)
        return KFIT_OK;
    if (s == KFIT_OK)
        s = kfit_dir_each(&d, tell_name, &each, err);
    kfit_dir_close(&d);
    return s;
}

struct clearing {
    unsigned held;
    enum kfit_status s;
    struct kfit_error *err;
};

static int forget(void *ctx, const struct kfit_dir *d, const char *name)
{
    struct clearing *c = ctx;
    bool held = begins(name, "held-");
    if (!held && (!begins(name, "run-") || !is_gone(d, name)))
        return 0;
    if (!unlinkat(d->fd, name, 0))
        c->held += held;
    else if (errno != ENOENT)
        c->s = kfit_dir_fail(d, name, "removing", c->err);
    return 0;
}

enum kfit_status kfit_state_clear(const char *dir, unsigned *cleared, struct kfit_error *err)
{
    struct kfit_dir d;
    struct clearing c = {.err = err};
    *cleared = 0;
    enum kfit_status s = kfit_dir_open(&d, NULL, dir, 0, err);
    if (s == KFIT_E_NOTFOUND)
        return KFIT_OK;
    if (s == KFIT_OK)
        s = kfit_dir_each(&d, forget, &c, err);
    kfit_dir_close(&d);
    *cleared = c.held;
    return s == KFIT_OK ? c.s : s;
}
