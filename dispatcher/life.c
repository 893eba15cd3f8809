/* The life of a dispatcher: created once, reborn in every forked child, ended in order. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "kfit/hash.h"
#include "kfit/process.h"
#include "internal.h"

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* ---- books ---- */

struct kfit_book *kfit_book_make(void)
{
    struct kfit_book *b = kfit_map(sizeof *b);
    if (b && !(b->far_keys = kfit_map(KFIT_SEEN * sizeof *b->far_keys))) {
        kfit_unmap(b, sizeof *b);
        b = NULL;
    }
    return b;
}

void kfit_book_destroy(struct kfit_book *b)
{
    if (!b)
        return;
    kfit_workspaces_finish(&b->workspaces);
    if (!b->borrowed)
        kfit_table_destroy(b->table);
    kfit_unmap(b->far_keys, KFIT_SEEN * sizeof *b->far_keys);
    kfit_unmap(b, sizeof *b);
}

static void set_state(struct kfit_dispatcher *d, struct kfit_book *b, enum kfit_reason reason,
                      const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(b->state_text, sizeof b->state_text, fmt, ap);
    va_end(ap);
    b->state_reason = reason;
    /* one cache serves all devices of a program: that a generation is for others is no news */
    bool expected = reason <= KFIT_REASON_OFF || b->info.of_others;
    kfit_logf(&d->params.log, expected ? KFIT_LOG_INFO : KFIT_LOG_WARN, "%s", b->state_text);
}

bool kfit_switched_off(const char *cache_dir, char *text, size_t size)
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

/* A state directory that cannot be used takes nothing from the program but its memory of crashes. */
static void say_forgetful(struct kfit_dispatcher *d, const struct kfit_error *err)
{
    kfit_logf(&d->params.log, d->params.state_optional ? KFIT_LOG_INFO : KFIT_LOG_WARN,
              "%s; crashes may not be remembered", err->text);
}

/* The table of the generation, unless it ended badly here before. */
static bool load(struct kfit_dispatcher *d, struct kfit_book *b, const char *host_bans)
{
    const struct kfit_dispatcher_params *p = &d->params;
    struct kfit_state_held held;
    struct kfit_error err = {0};
    enum kfit_reason reason;
    bool is_held = false;
    kfit_load_begin();
    enum kfit_status s = kfit_table_load(&b->table, &b->info, p, host_bans, d->device, &reason, &err);
    kfit_load_end();
    if (s != KFIT_OK && p->generation) {
        set_state(d, b, reason, "records only: pinned to generation %.64s: %.150s", p->generation, err.text);
        return false;
    }
    if (s != KFIT_OK) {
        set_state(d, b, reason, "records only: %.230s", err.text);
        return false;
    }
    if (!p->state_dir)
        return true;
    if (kfit_state_check(p->state_dir, d->header, b->info.generation, b->info.digest, &held, &is_held,
                         &err) != KFIT_OK)
        say_forgetful(d, &err);
    if (!is_held)
        return true;
    char when[32] = "";
    time_t at = (time_t)held.at_unix_s;
    struct tm tm;
    if (at && gmtime_r(&at, &tm))
        strftime(when, sizeof when, ", last at %Y-%m-%d %H:%M:%SZ", &tm);
    set_state(d, b, KFIT_REASON_POLICY,
              "records only: generation %llu is held back, this program ended uncleanly %u times in %d "
              "minutes%s; `kfit on` clears it",
              (unsigned long long)b->info.generation, held.ends ? held.ends : KFIT_STATE_ENDS,
              KFIT_STATE_WINDOW_S / 60, when);
    kfit_table_destroy(b->table);
    b->table = NULL;
    memset(b->info.workspace, 0, sizeof b->info.workspace);
    return false;
}

static void choose(struct kfit_dispatcher *d, struct kfit_book *b, const char *host_bans)
{
    const struct kfit_dispatcher_params *p = &d->params;
    char text[104], refused[40] = "";
    if (p->mode == KFIT_MODE_OFF) {
        set_state(d, b, KFIT_REASON_OFF, "off");
    } else if (p->mode == KFIT_MODE_RECORD) {
        set_state(d, b, KFIT_REASON_OFF, "records only");
    } else if (p->hold) {
        set_state(d, b, KFIT_REASON_POLICY, "records only: %.230s", p->hold);
    } else if (!p->cache_dir) {
        set_state(d, b, KFIT_REASON_NO_RECORD, "records only: no cache directory is set (KFIT_CACHE)");
    } else if (!d->device) {
        set_state(d, b, KFIT_REASON_ENV, "records only: no such device as in \"%.180s\"", d->env.hard);
    } else if (kfit_switched_off(p->cache_dir, text, sizeof text)) {
        set_state(d, b, KFIT_REASON_OFF, "records only: %.100s/off says: %.100s", p->cache_dir, text);
    } else if (load(d, b, host_bans)) {
        if (b->info.refused)
            snprintf(refused, sizeof refused, ", %u not allowed", b->info.refused);
        set_state(d, b, KFIT_REASON_NONE,
                  "generation %llu: %u kernels (%u stale%s), %u kept, %u banned, %u not usable%s%s",
                  (unsigned long long)b->info.generation, b->info.winners, b->info.stale,
                  p->strict && b->info.stale ? ", not run" : "", b->info.negatives, b->info.banned,
                  b->info.failed, refused, d->follows ? "; follows new ones" : "");
    }
}

/* Those of a GPU's kernels are the caller's. */
static bool make_workspaces(const struct kfit_dispatcher *d, struct kfit_book *b,
                            const struct kfit_table_info *info)
{
    return d->device != &kfit_device_host || kfit_workspaces_init(&b->workspaces, info->workspace);
}

bool kfit_book_choose(struct kfit_dispatcher *d, struct kfit_book *b)
{
    struct kfit_error err = {0};
    char *bans = NULL;
    enum kfit_status s = KFIT_E_NOTFOUND;
    if ((d->params.mode & KFIT_MODE_DISPATCH) && d->params.state_dir)
        s = kfit_state_bans(d->params.state_dir, &bans, &err);
    if (s == KFIT_OK || s == KFIT_E_NOTFOUND)
        choose(d, b, bans);
    else /* it might be meant for anything */
        set_state(d, b, KFIT_REASON_POLICY, "records only: %.230s", err.text);
    b->host_bans = bans ? kfit_text_hash(bans) : 0;
    free(bans);
    /* crashes are remembered of processes that dispatch and did not come by fork */
    b->marked = d->params.state_dir && !d->forked ? KFIT_MARK_NONE : KFIT_MARK_RETIRED;
    return make_workspaces(d, b, &b->info);
}

void kfit_dispatcher_workspace(struct kfit_dispatcher *d, size_t bytes[2])
{
    memcpy(bytes, kfit_book(d)->info.workspace, sizeof kfit_book(d)->info.workspace);
}

void kfit_book_show(struct kfit_dispatcher *d, struct kfit_book *b)
{
    struct kfit_trace_header *h = d->header;
    if (d->record_problem[0])
        snprintf(b->shown, sizeof b->shown, "%.120s; not recorded to a file: %s", b->state_text,
                 d->record_problem);
    else
        memcpy(b->shown, b->state_text, sizeof b->shown);
    h->loaded = (struct kfit_trace_loaded){
        .unix_ns = b->table ? now_ns() : 0,
        .winners = b->info.winners,
        .stale = b->info.stale,
        .negatives = b->info.negatives,
        .banned = b->info.banned,
        .unusable = b->info.failed,
        .loads = h->loaded.loads + (b->table != NULL),
    };
    h->generation = b->info.generation;
    memcpy(h->generation_digest, b->info.digest, sizeof h->generation_digest);
    h->state_reason = b->state_reason;
    memcpy(h->state_text, b->shown, sizeof h->state_text);
}

void kfit_book_mark(struct kfit_dispatcher *d, struct kfit_book *b)
{
    uint32_t now = KFIT_MARK_NONE;
    struct kfit_error err = {0};
    if (!__atomic_compare_exchange_n(&b->marked, &now, KFIT_MARK_CLAIMED, false, __ATOMIC_ACQUIRE,
                                     __ATOMIC_RELAXED))
        return;
    struct kfit_visit v = kfit_visit_begin();
    if (kfit_state_mark(d->params.state_dir, d->header, b->info.generation, b->info.digest, &b->mark, &err) !=
        KFIT_OK)
        say_forgetful(d, &err);
    kfit_visit_end(v);
    now = KFIT_MARK_CLAIMED;
    if (!__atomic_compare_exchange_n(&b->marked, &now, KFIT_MARK_MADE, false, __ATOMIC_SEQ_CST,
                                     __ATOMIC_ACQUIRE))
        kfit_state_unmark(&b->mark);                                /* retired meanwhile */
    if (__atomic_load_n(&d->header->end_unix_ns, __ATOMIC_SEQ_CST)) /* so is the process */
        kfit_book_retire(b);
}

void kfit_book_retire(struct kfit_book *b)
{
    if (__atomic_exchange_n(&b->marked, KFIT_MARK_RETIRED, __ATOMIC_SEQ_CST) == KFIT_MARK_MADE)
        kfit_state_unmark(&b->mark);
}

/* ---- life ---- */

struct kfit_visit kfit_visit_begin(void)
{
    struct kfit_visit v = {.error = errno};
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &v.cancel);
    return v;
}

void kfit_visit_end(struct kfit_visit v)
{
    pthread_setcancelstate(v.cancel, NULL);
    errno = v.error;
}

/* This process' own trace. Leaves d untouched on failure; the file may be missing, and why is kept. */
static enum kfit_status make_trace(struct kfit_dispatcher *d, struct kfit_recorder **out,
                                   struct kfit_error *err)
{
    struct kfit_error why = {0};
    const struct kfit_recorder_params params = {.dir = d->params.trace_dir,
                                                .label = d->params.label,
                                                .slot_count = KFIT_SEEN,
                                                .mode = d->params.mode,
                                                .suffix = d->params.device_suffix,
                                                .live = d->params.device_suffix != NULL};
    enum kfit_status s = kfit_recorder_create(out, &params, &why);
    if (!*out)
        return kfit_fail(err, KFIT_E_NOMEM, "dispatcher: no memory");
    d->record_problem[0] = '\0';
    if (s == KFIT_OK)
        return s;
    snprintf(d->record_problem, sizeof d->record_problem, "%.99s", why.text);
    kfit_logf(&d->params.log, KFIT_LOG_WARN, "%s; counting in memory only", why.text);
    return KFIT_OK;
}

static void take_trace(struct kfit_dispatcher *d, struct kfit_recorder *r)
{
    struct kfit_trace_header *h = kfit_recorder_header(r);
    h->env = d->env;
    h->follows = d->follows;
    if (d->params.cache_dir && strlen(d->params.cache_dir) < sizeof h->cache)
        strcpy(h->cache, d->params.cache_dir);
    if (d->header) { /* indexes of generics outlive a fork */
        h->rank = d->header->rank;
        h->generic_count = d->header->generic_count;
        memcpy(h->generics, d->header->generics, sizeof h->generics);
    }
    d->recorder = r;
    d->header = h;
    d->slots = (struct kfit_trace_slot *)(h + 1);
}

/* Others do not wait, their calls go to the original; so does everything if it fails. The parent's memory
 * stays mapped: the fork may have cut a call of this very thread in two. */
static bool be_reborn(struct kfit_dispatcher *d)
{
    struct kfit_recorder *parents = d->recorder, *r = NULL;
    struct kfit_book *theirs = d->book, *b = kfit_book_make();
    if (!b || !make_workspaces(d, b, &theirs->info) || make_trace(d, &r, NULL) != KFIT_OK) {
        kfit_book_destroy(b);
        return false;
    }
    b->table = theirs->table;
    b->borrowed = true;
    b->info = theirs->info;
    b->state_reason = theirs->state_reason;
    memcpy(b->state_text, theirs->state_text, sizeof b->state_text);
    d->forked = true;
    b->marked = KFIT_MARK_RETIRED;
    b->before = theirs;
    for (struct kfit_book *o = theirs; o; o = o->before)
        o->marked = KFIT_MARK_NONE; /* the parent's, and its alone */
    take_trace(d, r);
    d->book = b;
    kfit_book_show(d, b);
    __atomic_store_n(&d->guard->born, 1, __ATOMIC_RELEASE);
    kfit_recorder_abandon(parents);
    return true;
}

bool kfit_reborn(struct kfit_dispatcher *d)
{
    if (__atomic_exchange_n(&d->guard->lock, 1, __ATOMIC_ACQUIRE))
        return kfit_born(d);
    struct kfit_visit v = kfit_visit_begin();
    bool done = be_reborn(d);
    kfit_visit_end(v);
    return done;
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

/* Copies a text of the parameters; what has to outlive the call. */
static char *keep(const char **text, char *to)
{
    if (!*text)
        return to;
    size_t n = strlen(*text) + 1;
    *text = memcpy(to, *text, n);
    return to + n;
}

static bool keep_params(struct kfit_dispatcher *d, const struct kfit_dispatcher_params *given)
{
    struct kfit_dispatcher_params *p = &d->params;
    const char **const texts[] = {&p->cache_dir, &p->generation, &p->trust, &p->bans, &p->allow,
                                  &p->state_dir, &p->trace_dir,  &p->label, &p->hold, &p->device_suffix};
    enum { TEXTS = sizeof texts / sizeof *texts };
    *p = *given;
    if (p->generation && !*p->generation)
        p->generation = NULL;
    if (p->mode == KFIT_MODE_OFF)
        p->trace_dir = NULL;
    if (!(p->mode & KFIT_MODE_DISPATCH))
        p->state_dir = NULL;
    for (unsigned i = 0; i < TEXTS; i++)
        d->texts_bytes += *texts[i] ? strlen(*texts[i]) + 1 : 0;
    char *to = d->texts = kfit_map(d->texts_bytes + 1);
    for (unsigned i = 0; to && i < TEXTS; i++)
        to = keep(texts[i], to);
    d->env = *given->env;
    p->env = &d->env;
    return to != NULL;
}

enum kfit_status kfit_dispatcher_create(struct kfit_dispatcher **out,
                                        const struct kfit_dispatcher_params *params, struct kfit_error *err)
{
    char device[16];
    struct kfit_recorder *r;
    struct kfit_book *b = NULL;
    *out = NULL;
    if (!params->env || (params->trace_dir && strlen(params->trace_dir) >= PATH_MAX))
        return kfit_fail(err, KFIT_E_ARG, "dispatcher: %s",
                         params->env ? "the trace directory's name is too long" : "no environment given");
    struct kfit_dispatcher *d = kfit_map(sizeof *d);
    if (!d)
        return kfit_fail(err, KFIT_E_NOMEM, "dispatcher: no memory");
    enum kfit_status s;
    d->guard = kfit_map(4096);
    if (!d->guard || !keep_params(d, params)) {
        s = kfit_fail(err, KFIT_E_NOMEM, "dispatcher: no memory");
        goto fail;
    }
    if (madvise(d->guard, 4096, MADV_WIPEONFORK)) {
        s = kfit_fail(err, KFIT_E_UNSUPPORTED,
                      "dispatcher: this kernel cannot tell a forked child (Linux 4.14 can)");
        goto fail;
    }
    d->threads = threads_of(params->env);
    kfit_env_get(params->env->hard, "device", device, sizeof device);
    d->device = kfit_device_by_name(device);
    d->forked = kfit_process_forked();
    d->follows = kfit_follow_allowed(&d->params);
    if ((s = make_trace(d, &r, err)) != KFIT_OK)
        goto fail;
    take_trace(d, r);
    b = kfit_book_make();
    if (!b || !kfit_book_choose(d, b)) {
        kfit_book_destroy(b);
        s = kfit_fail(err, KFIT_E_NOMEM, "dispatcher: no memory");
        goto fail;
    }
    kfit_book_show(d, b);
    d->book = b;
    __atomic_store_n(&d->guard->born, 1, __ATOMIC_RELEASE);
    *out = d;
    return KFIT_OK;
fail:
    kfit_dispatcher_destroy(d);
    return s;
}

void kfit_dispatcher_end(struct kfit_dispatcher *d)
{
    if (!d || !kfit_born(d) || d->header->pid != getpid()) /* the child of a vfork has all our memory */
        return;
    __atomic_store_n(&d->header->end_unix_ns, now_ns(), __ATOMIC_SEQ_CST);
    for (struct kfit_book *b = kfit_book(d); b; b = b->before)
        kfit_book_retire(b);
}

void kfit_dispatcher_destroy(struct kfit_dispatcher *d)
{
    if (!d)
        return;
    if (d->guard && d->book)
        kfit_dispatcher_end(d);
    if (d->recorder && d->book && !kfit_born(d))
        kfit_recorder_abandon(d->recorder); /* the parent's file has not ended */
    kfit_recorder_destroy(d->recorder);
    for (struct kfit_book *b = d->book, *before; b; b = before) {
        before = b->before;
        kfit_book_destroy(b);
    }
    kfit_unmap(d->texts, d->texts_bytes + 1);
    kfit_unmap(d->guard, 4096);
    kfit_unmap(d, sizeof *d);
}

struct kfit_recorder *kfit_dispatcher_recorder(struct kfit_dispatcher *d)
{
    return kfit_born(d) || kfit_reborn(d) ? d->recorder : NULL;
}

const char *kfit_dispatcher_state(struct kfit_dispatcher *d)
{
    return kfit_book(d)->shown;
}

size_t kfit_dispatcher_explain(struct kfit_dispatcher *d, const union kfit_key *key, char *buf, size_t size)
{
    const struct kfit_book *b = kfit_book(d);
    uint32_t control = __atomic_load_n(&d->header->control, __ATOMIC_RELAXED);
    bool off = kfit_control_is_off(control) && !b->state_reason;
    return kfit_explain(b->table, off ? KFIT_REASON_OFF : b->state_reason,
                        off ? "switched off by kfit off" : b->state_text, key, buf, size);
}
