/* The hot path, and the life of a dispatcher: created once, reborn in every forked child. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "kfit/gemm_key.h"
#include "kfit/hash.h"
#include "internal.h"

enum {
    SEEN = KFIT_TRACE_SLOTS_DEFAULT, /* keys remembered; as many as the trace has slots */
    NO_SLOT = -1,
    SPINS = 4000,
};

/* One key that was called: one cache line. Claimed by its hash, readable once READY. */
struct seen {
    uint64_t hash;
    const struct kfit_kernel *kernel;
    int32_t slot; /* in the trace; NO_SLOT: counted as unkeyed, by reason or, if full, as FULL */
    uint8_t state, len, reason, full;
    union kfit_short_key key;
};
_Static_assert(sizeof(struct seen) == 64, "one cache line");

/* Zeroed in a forked child by the kernel (MADV_WIPEONFORK), so that a child knows it is one, and so that a
 * lock held by a thread it does not have is free. */
struct guard {
    uint32_t born; /* this process has a trace and a table of its own */
    uint32_t lock;
};

struct kfit_dispatcher {
    struct guard *guard;
    /* of this process only */
    struct kfit_trace_header *header;
    struct kfit_trace_slot *slots;
    struct seen *seen;
    struct kfit_recorder *recorder;
    union kfit_key *far_keys; /* SEEN, taken in order */
    uint32_t seen_used, far_used;
    struct kfit_workspaces workspaces;
    /* set at creation */
    const struct kfit_device *device;
    struct kfit_table *table;
    struct kfit_table_info info;
    enum kfit_mode mode;
    int threads;
    enum kfit_reason state_reason;
    char state_text[256];
    char label[64];
    char trace_dir[PATH_MAX]; /* "": memory only */
    char cache[sizeof((struct kfit_trace_header *)0)->cache];
    struct kfit_env env;
    struct kfit_log log;
};

/* ---- keys seen ---- */

/* What shall become of calls with this key. */
static void decide(const struct kfit_dispatcher *d, const union kfit_key *key, uint64_t hash, struct seen *e)
{
    const struct kfit_table_entry *t = d->state_reason ? NULL : kfit_table_find(d->table, key, hash);
    bool scaled = kfit_key_scaled(key);
    e->reason = d->state_reason ? (uint8_t)d->state_reason
                : scaled        ? KFIT_REASON_FLAGS
                : t             ? t->reason
                                : KFIT_REASON_NO_RECORD;
    e->kernel = e->reason ? NULL : &t->kernel;
    e->full = false;
    e->slot = NO_SLOT;
}

static void fill(struct kfit_dispatcher *d, const union kfit_key *key, uint64_t hash, struct seen *e)
{
    decide(d, key, hash, e);
    e->len = key->h.len;
    if (e->len <= sizeof e->key.words) {
        memcpy(e->key.words, key->bytes, e->len);
    } else {
        union kfit_key *far_key = &d->far_keys[__atomic_fetch_add(&d->far_used, 1, __ATOMIC_RELAXED)];
        memcpy(far_key->bytes, key->bytes, e->len);
        e->key.far_key = far_key;
    }
    /* a dispatcher that does not record gives slots to keys of its generation only */
    if (d->mode != KFIT_MODE_DISPATCH || e->reason == KFIT_REASON_NONE || e->reason == KFIT_REASON_NEGATIVE) {
        struct kfit_trace_slot *slot = kfit_recorder_slot(d->recorder, key, hash);
        e->slot = slot ? (int32_t)(slot - d->slots) : NO_SLOT;
        e->full = !slot;
    }
}

static bool reborn(struct kfit_dispatcher *d);

static inline bool born(const struct kfit_dispatcher *d)
{
    return __atomic_load_n(&d->guard->born, __ATOMIC_ACQUIRE);
}

static inline bool ready(const struct seen *e)
{
    return __atomic_load_n(&e->state, __ATOMIC_ACQUIRE) == KFIT_SLOT_READY;
}

/* A key that finds no room (now): decided anew each time, in the caller's memory. */
static const struct seen *decide_only(const struct kfit_dispatcher *d, const union kfit_key *key,
                                      uint64_t hash, bool full, struct seen *spare)
{
    decide(d, key, hash, spare);
    spare->full = full;
    return spare;
}

/* Everything but a key that stands where its hash says. NULL: this process has no trace (yet),
 * do not count. */
__attribute__((noinline)) static const struct seen *
find_far(struct kfit_dispatcher *d, const union kfit_key *key, uint64_t hash, struct seen *spare)
{
    if (!born(d) && !reborn(d))
        return NULL;
    hash += !hash; /* 0 marks an unused entry */
    for (uint32_t at = (uint32_t)hash & (SEEN - 1);; at = (at + 1) & (SEEN - 1)) {
        struct seen *e = &d->seen[at];
        uint64_t have = __atomic_load_n(&e->hash, __ATOMIC_ACQUIRE);
        if (!have) {
            if (__atomic_fetch_add(&d->seen_used, 1, __ATOMIC_RELAXED) >= SEEN - SEEN / 8) {
                __atomic_fetch_sub(&d->seen_used, 1, __ATOMIC_RELAXED);
                return decide_only(d, key, hash, true, spare);
            }
            if (__atomic_compare_exchange_n(&e->hash, &have, hash, false, __ATOMIC_ACQ_REL,
                                            __ATOMIC_ACQUIRE)) {
                fill(d, key, hash, e);
                __atomic_store_n(&e->state, KFIT_SLOT_READY, __ATOMIC_RELEASE);
                return e;
            }
            __atomic_fetch_sub(&d->seen_used, 1, __ATOMIC_RELAXED);
        }
        if (have != hash)
            continue;
        for (int spin = 0; !ready(e); spin++) {
            if (spin == SPINS) { /* its thread was stopped half-way: do without */
                __atomic_fetch_add(&d->header->slots_busy, 1, __ATOMIC_RELAXED);
                return decide_only(d, key, hash, false, spare);
            }
            __builtin_ia32_pause();
        }
        if (kfit_short_key_equal(&e->key, e->len, key))
            return e;
    }
}

/* The trace slot is most likely at the same place of its table: both are fetched at once. */
__attribute__((always_inline)) static inline const struct seen *
find(struct kfit_dispatcher *d, const union kfit_key *key, struct seen *spare)
{
    uint64_t hash = kfit_key_hash_inline(key);
    if (__builtin_expect(born(d), 1)) {
        const struct seen *e = &d->seen[hash & (SEEN - 1)];
        __builtin_prefetch(&d->slots[hash & (SEEN - 1)].count, 1);
        if (__atomic_load_n(&e->hash, __ATOMIC_RELAXED) == hash && ready(e) &&
            kfit_short_key_equal(&e->key, e->len, key))
            return e;
    }
    return find_far(d, key, hash, spare);
}

static inline bool is_off(const struct kfit_dispatcher *d)
{
    return __atomic_load_n(&d->header->control, __ATOMIC_RELAXED) != KFIT_CONTROL_RUN;
}

static inline void count(struct kfit_dispatcher *d, const struct seen *e, unsigned reason)
{
    if (__builtin_expect(e->slot != NO_SLOT, 1))
        kfit_slot_count(&d->slots[e->slot], reason);
    else
        __atomic_fetch_add(&d->header->unkeyed[e->full ? KFIT_REASON_FULL : reason], 1, __ATOMIC_RELAXED);
}

struct kfit_decision kfit_dispatch(struct kfit_dispatcher *d, const union kfit_key *key)
{
    struct seen spare;
    const struct seen *e = find(d, key, &spare);
    if (!e)
        return (struct kfit_decision){NULL, NULL, KFIT_REASON_OFF};
    unsigned reason = is_off(d) ? KFIT_REASON_OFF : e->reason;
    count(d, e, reason);
    return (struct kfit_decision){reason ? NULL : e->kernel, e->slot == NO_SLOT ? NULL : &d->slots[e->slot],
                                  (enum kfit_reason)reason};
}

void kfit_dispatch_unkeyed(struct kfit_dispatcher *d, enum kfit_reason reason)
{
    if (born(d) || reborn(d))
        __atomic_fetch_add(&d->header->unkeyed[reason], 1, __ATOMIC_RELAXED);
}

enum kfit_reason kfit_dispatch_gemm(struct kfit_dispatcher *d, const struct kfit_gemm_call *call, int threads,
                                    uint32_t generic)
{
    union kfit_key key;
    const void *args[3];
    if (!kfit_gemm_key_fill_inline(call, &key, args)) {
        kfit_dispatch_unkeyed(d, KFIT_REASON_FLAGS);
        return KFIT_REASON_FLAGS;
    }
    struct seen spare;
    const struct seen *e = find(d, &key, &spare);
    if (!e)
        return KFIT_REASON_OFF;

    unsigned reason = is_off(d) ? KFIT_REASON_OFF : e->reason, index = 0;
    void *workspace = NULL;
    if (reason == KFIT_REASON_NONE) {
        if (threads != d->threads)
            reason = KFIT_REASON_THREADS;
        else if (e->kernel->workspace_bytes &&
                 !(workspace = kfit_workspace_take(&d->workspaces, e->kernel->workspace_init, &index)))
            reason = KFIT_REASON_WORKSPACE;
    }
    if (e->slot != NO_SLOT && __atomic_load_n(&d->slots[e->slot].generic, __ATOMIC_RELAXED) != generic)
        __atomic_store_n(&d->slots[e->slot].generic, generic, __ATOMIC_RELAXED);
    count(d, e, reason);
    if (reason == KFIT_REASON_NONE) {
        d->device->launch(e->kernel, (void *const *)args, workspace, NULL);
        if (workspace)
            kfit_workspace_give(&d->workspaces, e->kernel->workspace_init, index);
    }
    return (enum kfit_reason)reason;
}

/* ---- life ---- */

/* What d has loaded, in a trace's header: at birth, and again whenever a generation takes another's place. */
static void tell_loaded(const struct kfit_dispatcher *d, struct kfit_trace_header *h)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    h->loaded = (struct kfit_trace_loaded){
        .unix_ns = d->table ? (int64_t)now.tv_sec * 1000000000 + now.tv_nsec : 0,
        .winners = d->info.winners,
        .stale = d->info.stale,
        .negatives = d->info.negatives,
        .banned = d->info.banned,
        .unusable = d->info.failed,
        .loads = h->loaded.loads + (d->table != NULL),
    };
    h->generation = d->info.generation;
    memcpy(h->generation_digest, d->info.digest, sizeof h->generation_digest);
}

/* What this process alone must have. Leaves d untouched on failure. */
static enum kfit_status be_born(struct kfit_dispatcher *d, struct kfit_error *err)
{
    struct kfit_recorder *r;
    struct kfit_error why = {0};
    const struct kfit_recorder_params params = {
        .dir = d->trace_dir[0] ? d->trace_dir : NULL, .label = d->label, .slot_count = SEEN, .mode = d->mode};
    struct seen *seen = kfit_map(SEEN * sizeof *seen);
    union kfit_key *far_keys = kfit_map(SEEN * sizeof *far_keys);
    struct kfit_workspaces w;
    enum kfit_status s = kfit_recorder_create(&r, &params, &why);
    if (!r || !seen || !far_keys || !kfit_workspaces_init(&w, d->info.workspace)) {
        kfit_unmap(seen, SEEN * sizeof *seen);
        kfit_unmap(far_keys, SEEN * sizeof *far_keys);
        kfit_recorder_destroy(r);
        return kfit_fail(err, KFIT_E_NOMEM, "dispatcher: no memory");
    }
    struct kfit_trace_header *h = kfit_recorder_header(r);
    if (s != KFIT_OK) {
        snprintf(h->state_text, sizeof h->state_text, "%.120s; not recorded to a file: %.100s", d->state_text,
                 why.text);
        kfit_logf(&d->log, KFIT_LOG_WARN, "%s; counting in memory only", why.text);
    } else {
        memcpy(h->state_text, d->state_text, sizeof h->state_text);
    }
    h->state_reason = d->state_reason;
    h->env = d->env;
    memcpy(h->cache, d->cache, sizeof h->cache);
    tell_loaded(d, h);
    if (d->header) { /* indexes of generics outlive a fork */
        h->rank = d->header->rank;
        h->generic_count = d->header->generic_count;
        memcpy(h->generics, d->header->generics, sizeof h->generics);
    }
    d->recorder = r;
    d->header = h;
    d->slots = (struct kfit_trace_slot *)(h + 1);
    d->seen = seen;
    d->far_keys = far_keys;
    d->seen_used = d->far_used = 0;
    d->workspaces = w;
    __atomic_store_n(&d->guard->born, 1, __ATOMIC_RELEASE);
    return KFIT_OK;
}

/* In a forked child. Others do not wait, their calls go to the original; so does everything if it fails. The
 * parent's memory stays mapped: the fork may have cut a call of this very thread in two. */
static bool reborn(struct kfit_dispatcher *d)
{
    if (__atomic_exchange_n(&d->guard->lock, 1, __ATOMIC_ACQUIRE))
        return born(d);
    struct kfit_recorder *parents = d->recorder;
    if (be_born(d, NULL) != KFIT_OK)
        return false;
    kfit_recorder_abandon(parents);
    return true;
}

static void set_state(struct kfit_dispatcher *d, enum kfit_reason reason, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(d->state_text, sizeof d->state_text, fmt, ap);
    va_end(ap);
    d->state_reason = reason;
    kfit_logf(&d->log, reason > KFIT_REASON_OFF ? KFIT_LOG_WARN : KFIT_LOG_INFO, "%s", d->state_text);
}

/* The BLAS thread count an environment was made with; 0 if it does not say. */
static int threads_of(const struct kfit_env *env)
{
    char text[16];
    int n = 0;
    if (kfit_env_get(env->hard, "threads", text, sizeof text))
        for (const char *p = text; *p >= '0' && *p <= '9' && n < 100000; p++)
            n = n * 10 + (*p - '0');
    return n;
}

/* Whether <cache_dir>/off is there; text receives its first line. A file we may not read counts. */
static bool switched_off(const char *cache_dir, char *text, size_t size)
{
    char path[PATH_MAX];
    int n = snprintf(path, sizeof path, "%s/off", cache_dir);
    int fd = n > 0 && (size_t)n < sizeof path ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
    ssize_t got = fd >= 0 ? read(fd, text, size - 1) : 0;
    if (fd < 0 && (errno == ENOENT || errno == ENOTDIR))
        return false;
    if (fd >= 0)
        close(fd);
    text[got > 0 ? got : 0] = '\0';
    text[strcspn(text, "\n")] = '\0';
    for (char *p = text; *p; p++)
        if (*p < ' ' || *p > '~')
            *p = '?';
    return true;
}

/* Decides once what this process dispatches: its mode, a file named off, a generation. */
static void choose(struct kfit_dispatcher *d, const struct kfit_dispatcher_params *p)
{
    enum kfit_reason reason;
    struct kfit_error err = {0};
    char text[104];
    if (d->mode == KFIT_MODE_OFF) {
        set_state(d, KFIT_REASON_OFF, "off");
    } else if (d->mode == KFIT_MODE_RECORD) {
        set_state(d, KFIT_REASON_OFF, "records only");
    } else if (!p->cache_dir) {
        set_state(d, KFIT_REASON_NO_RECORD, "records only: no cache directory is set (KFIT_CACHE)");
    } else if (!d->device) {
        set_state(d, KFIT_REASON_ENV, "records only: no such device as in \"%.180s\"", d->env.hard);
    } else if (switched_off(p->cache_dir, text, sizeof text)) {
        set_state(d, KFIT_REASON_OFF, "records only: %.100s/off says: %.100s", p->cache_dir, text);
    } else if (kfit_table_load(&d->table, &d->info, p, d->device, &reason, &err) != KFIT_OK) {
        set_state(d, reason, "records only: %.230s", err.text);
    } else {
        set_state(d, KFIT_REASON_NONE,
                  "generation %llu: %u kernels (%u stale), %u kept, %u banned, %u not usable",
                  (unsigned long long)d->info.generation, d->info.winners, d->info.stale, d->info.negatives,
                  d->info.banned, d->info.failed);
    }
}

enum kfit_status kfit_dispatcher_create(struct kfit_dispatcher **out,
                                        const struct kfit_dispatcher_params *params, struct kfit_error *err)
{
    char device[16];
    *out = NULL;
    if (!params->env || (params->trace_dir && strlen(params->trace_dir) >= PATH_MAX))
        return kfit_fail(err, KFIT_E_ARG, "dispatcher: %s",
                         params->env ? "the trace directory's name is too long" : "no environment given");
    struct kfit_dispatcher *d = kfit_map(sizeof *d);
    if (!d)
        return kfit_fail(err, KFIT_E_NOMEM, "dispatcher: no memory");
    enum kfit_status s;
    d->guard = kfit_map(4096);
    if (!d->guard) {
        s = kfit_fail(err, KFIT_E_NOMEM, "dispatcher: no memory");
        goto fail;
    }
    if (madvise(d->guard, 4096, MADV_WIPEONFORK)) {
        s = kfit_fail(err, KFIT_E_UNSUPPORTED,
                      "dispatcher: this kernel cannot tell a forked child (Linux 4.14 can)");
        goto fail;
    }
    d->mode = params->mode;
    d->env = *params->env;
    d->log = params->log;
    d->threads = threads_of(params->env);
    kfit_env_get(params->env->hard, "device", device, sizeof device);
    d->device = kfit_device_by_name(device);
    if (params->label)
        snprintf(d->label, sizeof d->label, "%s", params->label);
    if (params->trace_dir && params->mode != KFIT_MODE_OFF)
        strcpy(d->trace_dir, params->trace_dir);
    if (params->cache_dir && strlen(params->cache_dir) < sizeof d->cache)
        strcpy(d->cache, params->cache_dir);
    choose(d, params);
    s = be_born(d, err);
    if (s != KFIT_OK)
        goto fail;
    *out = d;
    return KFIT_OK;
fail:
    kfit_dispatcher_destroy(d);
    return s;
}

void kfit_dispatcher_destroy(struct kfit_dispatcher *d)
{
    if (!d)
        return;
    if (d->recorder && !born(d))
        kfit_recorder_abandon(d->recorder); /* the parent's file has not ended */
    kfit_recorder_destroy(d->recorder);
    kfit_unmap(d->seen, SEEN * sizeof *d->seen);
    kfit_unmap(d->far_keys, SEEN * sizeof *d->far_keys);
    kfit_workspaces_finish(&d->workspaces);
    kfit_table_destroy(d->table);
    kfit_unmap(d->guard, 4096);
    kfit_unmap(d, sizeof *d);
}

struct kfit_recorder *kfit_dispatcher_recorder(struct kfit_dispatcher *d)
{
    return born(d) || reborn(d) ? d->recorder : NULL;
}

size_t kfit_dispatcher_explain(struct kfit_dispatcher *d, const union kfit_key *key, char *buf, size_t size)
{
    bool off = is_off(d) && !d->state_reason;
    return kfit_explain(d->table, off ? KFIT_REASON_OFF : d->state_reason,
                        off ? "switched off by kfit off" : d->state_text, key, buf, size);
}
