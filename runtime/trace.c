/* The reading end of traces: a private copy by pread, never a map, so that a file cut short under us is an
 * error and not a SIGBUS. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proc.h"
#include "trace_layout.h"
#include "trace_snapshot.h"

/* ---- read ---- */

bool kfit_trace_read_at(int fd, void *buf, size_t bytes, off_t at)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t n = pread(fd, (char *)buf + done, bytes - done, at + (off_t)done);
        if (n <= 0 && !(n < 0 && errno == EINTR))
            return false;
        done += n > 0 ? (size_t)n : 0;
    }
    return true;
}

/* What a damaged or hostile header could make others trip over, put right. */
static void tame(struct kfit_trace_header *h)
{
    char *const texts[] = {h->boot_id,  h->label, h->program, h->state_text, h->env.hard,
                           h->env.soft, h->cache, h->job,     h->device};
    const size_t sizes[] = {sizeof h->boot_id,    sizeof h->label,    sizeof h->program,
                            sizeof h->state_text, sizeof h->env.hard, sizeof h->env.soft,
                            sizeof h->cache,      sizeof h->job,      sizeof h->device};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        texts[i][sizes[i] - 1] = '\0';
    if (h->generic_count > KFIT_TRACE_GENERICS)
        h->generic_count = KFIT_TRACE_GENERICS;
    for (unsigned i = 0; i < KFIT_TRACE_GENERICS; i++) {
        h->generics[i].path[sizeof h->generics[i].path - 1] = '\0';
        h->generics[i].naming[sizeof h->generics[i].naming - 1] = '\0';
        h->generics[i].config[sizeof h->generics[i].config - 1] = '\0';
    }
}

/* Every part where this kfit would put it, in sizes that a reader can have in memory. */
static bool right_layout(const struct kfit_trace_header *h)
{
    struct kfit_trace_header want = *h;
    const struct kfit_trace_live *l = &h->live;
    kfit_trace_layout(&want);
    return h->header_bytes == sizeof *h && h->slot_bytes == sizeof(struct kfit_trace_slot) && h->slot_count &&
           h->slot_count <= KFIT_TRACE_SLOTS_MAX && !(h->slot_count & (h->slot_count - 1)) &&
           l->kernel_count <= KFIT_TRACE_KERNELS_MAX && l->graph_count <= KFIT_TRACE_GRAPHS_MAX &&
           l->item_count <= KFIT_TRACE_ITEMS_MAX && h->file_bytes == want.file_bytes &&
           l->kernels_at == want.live.kernels_at && l->graphs_at == want.live.graphs_at &&
           l->items_at == want.live.items_at;
}

/* Opens path and reads its header; the file is exactly as large as the header says. */
static enum kfit_status open_trace(const char *path, int flags, int *out, struct kfit_trace_header *h,
                                   struct kfit_error *err)
{
    struct stat st;
    enum kfit_status s;
    int fd = open(path, flags | O_CLOEXEC | O_NONBLOCK | O_NOCTTY); /* NONBLOCK: a pipe must not hang us */
    if (fd < 0)
        return kfit_fail(err, errno == ENOENT ? KFIT_E_NOTFOUND : KFIT_E_IO, "trace: cannot open %s: %s",
                         path, strerror(errno));
    if (fstat(fd, &st) || !S_ISREG(st.st_mode)) {
        s = kfit_fail(err, KFIT_E_FORMAT, "trace: %s is not a regular file", path);
        goto fail;
    }
    if ((uint64_t)st.st_size < sizeof *h || !kfit_trace_read_at(fd, h, sizeof *h, 0)) {
        s = kfit_fail(err, KFIT_E_FORMAT, "trace: %s has %lld bytes, too few for a header", path,
                      (long long)st.st_size);
        goto fail;
    }
    if (memcmp(h->magic, KFIT_TRACE_MAGIC, sizeof h->magic)) {
        s = kfit_fail(err, KFIT_E_FORMAT,
                      "trace: %s is not a kfit trace, or its process died while making it", path);
        goto fail;
    }
    if (h->version != KFIT_TRACE_VERSION) {
        s = kfit_fail(err, KFIT_E_VERSION, "trace: %s is of version %u, this kfit reads %u", path, h->version,
                      KFIT_TRACE_VERSION);
        goto fail;
    }
    if (!right_layout(h)) {
        s = kfit_fail(err, KFIT_E_FORMAT, "trace: %s has a damaged header", path);
        goto fail;
    }
    if (h->file_bytes != (uint64_t)st.st_size) {
        s = kfit_fail(err, KFIT_E_FORMAT,
                      "trace: %s has %lld bytes, its header says %llu: truncated or appended to", path,
                      (long long)st.st_size, (unsigned long long)h->file_bytes);
        goto fail;
    }
    tame(h);
    *out = fd;
    return KFIT_OK;
fail:
    close(fd);
    return s;
}

static struct kfit_trace_slot *append(struct kfit_trace *t)
{
    if (t->count == t->room) {
        size_t room = t->room ? 2 * t->room : 256;
        void *p = realloc(t->slots, room * sizeof *t->slots);
        if (!p)
            return NULL;
        t->slots = p;
        t->room = room;
    }
    return &t->slots[t->count++];
}

static bool well_formed(const struct kfit_trace_slot *s)
{
    return s->state == KFIT_SLOT_READY && kfit_key_check(&s->key, NULL) == KFIT_OK &&
           s->hash == kfit_key_hash(&s->key);
}

enum kfit_status kfit_trace_read(const char *path, struct kfit_trace **out, struct kfit_error *err)
{
    enum { CHUNK = 512 };
    enum kfit_status s;
    struct kfit_trace_slot *chunk = NULL;
    uint32_t *where = NULL; /* 1 + the place in t of each of the file's slots, then of its kernels; 0: none */
    struct kfit_trace *t = calloc(1, sizeof *t);
    int fd = -1;
    *out = NULL;
    if (!t || !(chunk = malloc(CHUNK * sizeof *chunk))) {
        s = kfit_fail(err, KFIT_E_NOMEM, "trace: no memory to read %s", path);
        goto fail;
    }
    s = open_trace(path, O_RDONLY, &fd, &t->header, err);
    if (s != KFIT_OK)
        goto fail;
    if (!(where = calloc((size_t)t->header.slot_count + t->header.live.kernel_count, sizeof *where))) {
        s = kfit_fail(err, KFIT_E_NOMEM, "trace: no memory to read %s", path);
        goto fail;
    }
    s = kfit_trace_read_live(t, fd, where, path, err);
    if (s != KFIT_OK)
        goto fail;
    for (uint32_t at = 0; at < t->header.slot_count; at += CHUNK) {
        uint32_t n = t->header.slot_count - at < CHUNK ? t->header.slot_count - at : CHUNK;
        if (!kfit_trace_read_at(fd, chunk, n * sizeof *chunk,
                                (off_t)(sizeof t->header + at * sizeof *chunk))) {
            s = kfit_fail(err, KFIT_E_IO, "trace: cannot read %s: truncated while being read?", path);
            goto fail;
        }
        for (uint32_t i = 0; i < n; i++) {
            if (!chunk[i].state && !chunk[i].hash)
                continue;
            if (!well_formed(&chunk[i])) {
                t->skipped++;
                continue;
            }
            struct kfit_trace_slot *slot = append(t);
            if (!slot) {
                s = kfit_fail(err, KFIT_E_NOMEM, "trace: no memory for the keys of %s", path);
                goto fail;
            }
            *slot = chunk[i];
            memset(slot->key.bytes + slot->key.h.len, 0, sizeof slot->key - slot->key.h.len);
            where[at + i] = (uint32_t)t->count;
        }
    }
    s = kfit_trace_fold(t, where, err);
    if (s != KFIT_OK)
        goto fail;
    close(fd);
    free(chunk);
    free(where);
    *out = t;
    return KFIT_OK;
fail:
    if (fd >= 0)
        close(fd);
    free(chunk);
    free(where);
    kfit_trace_destroy(t);
    return s;
}

void kfit_trace_destroy(struct kfit_trace *t)
{
    if (!t)
        return;
    free(t->slots);
    free(t->kernels);
    free(t->graphs);
    free(t->items);
    free(t);
}

const struct kfit_trace_header *kfit_trace_header(const struct kfit_trace *t)
{
    return &t->header;
}

size_t kfit_trace_count(const struct kfit_trace *t)
{
    return t->count;
}

const struct kfit_trace_slot *kfit_trace_at(const struct kfit_trace *t, size_t i)
{
    return &t->slots[i];
}

size_t kfit_trace_skipped(const struct kfit_trace *t)
{
    return t->skipped;
}

/* ---- merge ---- */

void kfit_add_sat(uint64_t *sum, uint64_t v)
{
    *sum = *sum > UINT64_MAX - v ? UINT64_MAX : *sum + v;
}

/* Index of g in h, noting it if there is room; the last index when there is none. */
static uint32_t note_generic(struct kfit_trace_header *h, const struct kfit_generic *g)
{
    uint32_t i = 0;
    while (i < h->generic_count &&
           (strcmp(h->generics[i].path, g->path) || strcmp(h->generics[i].naming, g->naming)))
        i++;
    if (i == KFIT_TRACE_GENERICS)
        return i - 1;
    if (i == h->generic_count)
        h->generics[h->generic_count++] = *g;
    return i;
}

/* Two names that differ become one that says so. */
static void merge_text(char *into, size_t size, const char *other)
{
    if (strcmp(into, other))
        snprintf(into, size, "(several)");
}

static void merge_header(struct kfit_trace_header *into, const struct kfit_trace_header *h)
{
    if (h->start_unix_ns < into->start_unix_ns)
        into->start_unix_ns = h->start_unix_ns;
    if (!h->end_unix_ns || (into->end_unix_ns && h->end_unix_ns > into->end_unix_ns))
        into->end_unix_ns = h->end_unix_ns;
    if (into->generation != h->generation ||
        memcmp(into->generation_digest, h->generation_digest, sizeof h->generation_digest)) {
        into->generation = 0;
        memset(into->generation_digest, 0, sizeof into->generation_digest);
        into->loaded = (struct kfit_trace_loaded){0};
    }
    if (into->mode != h->mode)
        into->mode = KFIT_MODE_BOTH;
    if (into->state_reason != h->state_reason)
        into->state_reason = KFIT_REASON_NONE;
    merge_text(into->boot_id, sizeof into->boot_id, h->boot_id);
    merge_text(into->label, sizeof into->label, h->label);
    merge_text(into->program, sizeof into->program, h->program);
    merge_text(into->state_text, sizeof into->state_text, h->state_text);
    merge_text(into->cache, sizeof into->cache, h->cache);
    merge_text(into->job, sizeof into->job, h->job);
    merge_text(into->device, sizeof into->device, h->device);
    for (unsigned i = 0; i < KFIT_TRACE_REASONS; i++)
        kfit_add_sat(&into->unkeyed[i], h->unkeyed[i]);
    into->slots_busy += h->slots_busy;
}

/* Finds the sum of one key and generic. */
struct merge_table {
    uint32_t *at; /* slot + 1 in out */
    size_t mask;
};

static struct kfit_trace_slot *merge_find(struct kfit_trace *t, struct merge_table *table,
                                          const struct kfit_trace_slot *s, uint32_t generic)
{
    size_t i = s->hash & table->mask;
    for (; table->at[i]; i = (i + 1) & table->mask) {
        struct kfit_trace_slot *have = &t->slots[table->at[i] - 1];
        if (have->hash == s->hash && have->generic == generic && kfit_key_equal(&have->key, &s->key))
            return have;
    }
    struct kfit_trace_slot *fresh = append(t);
    if (fresh) {
        memset(fresh, 0, sizeof *fresh);
        fresh->state = KFIT_SLOT_READY;
        fresh->hash = s->hash;
        fresh->generic = generic;
        fresh->key = s->key;
        table->at[i] = (uint32_t)t->count;
    }
    return fresh;
}

enum kfit_status kfit_trace_merge(const struct kfit_trace *const *in, size_t n, bool force,
                                  struct kfit_trace **out, struct kfit_error *err)
{
    *out = NULL;
    if (!n)
        return kfit_fail(err, KFIT_E_ARG, "trace merge: nothing to merge");
    size_t total = 0, room = 16;
    for (size_t i = 0; i < n; i++) {
        const struct kfit_trace_header *a = &in[0]->header, *b = &in[i]->header;
        bool hard = strcmp(a->env.hard, b->env.hard);
        if (!force && (hard || strcmp(a->env.soft, b->env.soft)))
            return kfit_fail(err, KFIT_E_ENV,
                             "trace merge: traces 1 and %zu (pid %d, %s) differ: \"%.150s\" and \"%.150s\"",
                             i + 1, b->pid, b->program, hard ? a->env.hard : a->env.soft,
                             hard ? b->env.hard : b->env.soft);
        total += in[i]->count;
    }
    while (room < 2 * total)
        room *= 2;
    struct kfit_trace *t = calloc(1, sizeof *t);
    struct merge_table table = {calloc(room, sizeof *table.at), room - 1};
    if (!t || !table.at)
        goto no_memory;
    t->header = in[0]->header;
    t->header.pid = 0;
    t->header.start_ticks = t->header.pid_namespace = 0;
    t->header.control = KFIT_CONTROL_RUN;
    t->header.generic_count = t->header.slots_busy = 0;
    t->header.live = (struct kfit_trace_live){0};
    t->header.rank = n == 1 ? t->header.rank : -1;
    memset(t->header.generics, 0, sizeof t->header.generics);
    memset(t->header.unkeyed, 0, sizeof t->header.unkeyed);
    for (size_t i = 0; i < n; i++) {
        const struct kfit_trace_header *h = &in[i]->header;
        uint32_t map[KFIT_TRACE_GENERICS];
        for (uint32_t g = 0; g < h->generic_count; g++)
            map[g] = note_generic(&t->header, &h->generics[g]);
        merge_header(&t->header, h);
        t->skipped += in[i]->skipped;
        for (size_t k = 0; k < in[i]->count; k++) {
            const struct kfit_trace_slot *s = &in[i]->slots[k];
            uint32_t generic = s->generic < h->generic_count ? map[s->generic] : KFIT_TRACE_GENERICS;
            struct kfit_trace_slot *sum = merge_find(t, &table, s, generic);
            if (!sum)
                goto no_memory;
            for (unsigned r = 0; r < KFIT_TRACE_REASONS; r++)
                kfit_add_sat(&sum->count[r], s->count[r]);
            if (s->last_seen_s > sum->last_seen_s)
                sum->last_seen_s = s->last_seen_s;
        }
    }
    free(table.at);
    enum kfit_status s = kfit_trace_merge_kernels(t, in, n, err);
    if (s != KFIT_OK)
        kfit_trace_destroy(t);
    else
        *out = t;
    return s;
no_memory:
    free(table.at);
    kfit_trace_destroy(t);
    return kfit_fail(err, KFIT_E_NOMEM, "trace merge: no memory for %zu keys", total);
}

/* ---- write ---- */

static bool write_all(int fd, const void *data, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t n = write(fd, (const char *)data + done, bytes - done);
        if (n < 0 && errno != EINTR)
            return false;
        done += n > 0 ? (size_t)n : 0;
    }
    return true;
}

enum kfit_status kfit_trace_write(const struct kfit_trace *t, const char *path, struct kfit_error *err)
{
    struct kfit_trace_header h = t->header;
    size_t slots = 8;
    while (slots - slots / 8 < t->count)
        slots *= 2;
    if (slots > KFIT_TRACE_SLOTS_MAX)
        return kfit_fail(err, KFIT_E_FULL, "trace: %zu keys are more than one trace file holds", t->count);
    h.version = KFIT_TRACE_VERSION;
    h.header_bytes = sizeof h;
    h.slot_bytes = sizeof *t->slots;
    h.slot_count = (uint32_t)slots;
    h.slots_used = (uint32_t)t->count;
    memcpy(h.magic, KFIT_TRACE_MAGIC, sizeof h.magic);

    char temp[4096];
    int fd = -1;
    struct kfit_trace_kernel *kernels = NULL;
    struct kfit_trace_slot *table = calloc(slots, sizeof *table);
    h.live = (struct kfit_trace_live){.kernels_used = (uint32_t)t->kernel_count};
    enum kfit_status s = kfit_trace_kernel_table(t, &kernels, &h.live.kernel_count, err);
    if (s != KFIT_OK)
        goto out;
    if (!table) {
        s = kfit_fail(err, KFIT_E_NOMEM, "trace: no memory to write %s", path);
        goto out;
    }
    kfit_trace_layout(&h);
    for (size_t i = 0; i < t->count; i++) {
        size_t at = t->slots[i].hash & (slots - 1);
        while (table[at].state)
            at = (at + 1) & (slots - 1);
        table[at] = t->slots[i];
    }
    int n = snprintf(temp, sizeof temp, "%s.%d.tmp", path, (int)getpid());
    if (n < 0 || (size_t)n >= sizeof temp) {
        s = kfit_fail(err, KFIT_E_ARG, "trace: the path %.100s... is too long", path);
        goto out;
    }
    fd = open(temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) {
        s = kfit_fail(err, KFIT_E_IO, "trace: cannot make %s: %s", temp, strerror(errno));
        goto out;
    }
    if (!write_all(fd, &h, sizeof h) || !write_all(fd, table, slots * sizeof *table) ||
        !write_all(fd, kernels, h.live.kernel_count * sizeof *kernels) || fsync(fd) || rename(temp, path)) {
        s = kfit_fail(err, KFIT_E_IO, "trace: cannot write %s: %s", path, strerror(errno));
        unlink(temp);
    }
out:
    if (fd >= 0)
        close(fd);
    free(table);
    free(kernels);
    return s;
}

/* ---- of live processes ---- */

bool kfit_trace_same_process(const struct kfit_trace_header *a, const struct kfit_trace_header *b)
{
    return a->pid > 0 && a->pid == b->pid && a->start_ticks == b->start_ticks &&
           a->pid_namespace == b->pid_namespace && !strcmp(a->boot_id, b->boot_id);
}

static bool alive(const struct kfit_trace_header *h)
{
    char boot[40];
    kfit_proc_boot_id(boot);
    if (h->pid <= 0 || h->end_unix_ns || strcmp(boot, h->boot_id))
        return false;
    if (h->pid_namespace != kfit_proc_pid_namespace())
        return true;
    return kfit_proc_start_ticks(h->pid) == h->start_ticks;
}

bool kfit_trace_alive(const struct kfit_trace *t)
{
    return alive(&t->header);
}

enum kfit_status kfit_trace_set_control(const char *path, enum kfit_control value, struct kfit_error *err)
{
    struct kfit_trace_header h;
    int fd;
    enum kfit_status s = open_trace(path, O_RDWR | O_NOFOLLOW, &fd, &h, err);
    if (s != KFIT_OK)
        return s;
    const bool request = value == KFIT_CONTROL_RELOAD;
    const uint8_t byte = request ? 1 : (uint8_t)value;
    const off_t at = (off_t)offsetof(struct kfit_trace_header, control) + request;
    if (!alive(&h))
        s = kfit_fail(err, KFIT_E_NOTFOUND, "trace: process %d of %s has ended", h.pid, path);
    else if (pwrite(fd, &byte, sizeof byte, at) != sizeof byte)
        s = kfit_fail(err, KFIT_E_IO, "trace: cannot write to %s: %s", path, strerror(errno));
    close(fd);
    return s;
}

size_t kfit_trace_default_dir(char *buf, size_t size)
{
    const char *own = secure_getenv("KFIT_TRACE"), *run = secure_getenv("XDG_RUNTIME_DIR");
    int n = own && *own   ? snprintf(buf, size, "%s", own)
            : run && *run ? snprintf(buf, size, "%s/kfit", run)
                          : snprintf(buf, size, "/dev/shm/kfit-%u", (unsigned)geteuid());
    return n > 0 && (size_t)n < size ? (size_t)n : 0;
}
