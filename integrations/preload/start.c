/* When and how the shim begins: for each device on its first hooked call in a process, from the environment. */
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "kfit/env.h"
#include "kfit/process.h"
#include "kfit/state.h"
#include "preload.h"

struct kfit_server kfit_servers[KFIT_SERVERS];

/* ---- the environment ---- */

static const char *const mode_names[] = {"off", "record", "dispatch", "both"};       /* enum kfit_mode */
static const char *const level_names[] = {"none", "error", "warn", "info", "debug"}; /* enum kfit_log_level */

struct config {
    struct kfit_dispatcher_params params;
    char trace_dir[PATH_MAX], state_dir[PATH_MAX];
};

const char *kfit_variable(const char *name)
{
    const char *value = secure_getenv(name);
    return value && *value ? value : NULL;
}

/* Index of text in words, or -1. */
static int word(const char *text, const char *const *words, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        if (!strcmp(text, words[i]))
            return (int)i;
    return -1;
}
#define WORD(text, words) word(text, words, sizeof words / sizeof *words)

/* One line to stderr, which may be a pipe that no one reads any more: that is not the program's signal. */
static void say(void *ctx, enum kfit_log_level level, const char *line)
{
    const struct timespec now = {0, 0};
    sigset_t pipe_signal, before, pending;
    sigemptyset(&pipe_signal);
    sigaddset(&pipe_signal, SIGPIPE);
    sigpending(&pending);
    pthread_sigmask(SIG_BLOCK, &pipe_signal, &before);
    kfit_log_to_fd(ctx, level, line);
    if (!sigismember(&pending, SIGPIPE))
        sigtimedwait(&pipe_signal, NULL, &now);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* Unless asked for more, a program hears from its guest at most once. */
static void say_once(void *ctx, enum kfit_log_level level, const char *line)
{
    static bool said;
    if (!__atomic_exchange_n(&said, true, __ATOMIC_RELAXED))
        say(ctx, level, line);
}

static struct kfit_log read_log(void)
{
    const char *text = kfit_variable("KFIT_LOG");
    int level = text ? WORD(text, level_names) : -1;
    struct kfit_log log = {.ctx = (void *)(intptr_t)STDERR_FILENO, .level = KFIT_LOG_WARN, .fn = say_once};
    if (level >= 0) {
        log.level = (enum kfit_log_level)level;
        log.fn = say;
    } else if (text)
        kfit_logf(&log, KFIT_LOG_ERROR, "KFIT_LOG=%.32s is none of none, error, warn, info, debug", text);
    return log;
}

/* Without KFIT_MODE, naming a directory is asking for what is kept there. */
static enum kfit_mode read_mode(const struct kfit_log *log)
{
    const char *text = kfit_variable("KFIT_MODE");
    int mode = text ? WORD(text, mode_names) : -1;
    if (mode >= 0)
        return (enum kfit_mode)mode;
    if (text) {
        kfit_logf(log, KFIT_LOG_ERROR,
                  "KFIT_MODE=%.32s is none of off, record, dispatch, both; kfit stays off", text);
        return KFIT_MODE_OFF;
    }
    return (enum kfit_mode)((kfit_variable("KFIT_TRACE") ? KFIT_MODE_RECORD : 0) |
                            (kfit_variable("KFIT_CACHE") ? KFIT_MODE_DISPATCH : 0));
}

/* What cannot be read is taken as `otherwise`, the careful side. */
static bool read_flag(const char *name, bool otherwise, const struct kfit_log *log)
{
    const char *text = kfit_variable(name);
    int on = kfit_switch(text);
    if (on >= 0)
        return on;
    kfit_logf(log, KFIT_LOG_ERROR, "%s=%.32s is neither 0 nor 1; taken as %d", name, text, otherwise);
    return otherwise;
}

_Static_assert((KFIT_MODE_RECORD | KFIT_MODE_DISPATCH) == KFIT_MODE_BOTH, "modes are two bits");

static void read_config(struct config *c)
{
    struct kfit_dispatcher_params *p = &c->params;
    p->log = read_log();
    p->mode = read_mode(&p->log);
    p->generation = kfit_variable("KFIT_GENERATION");
    p->trust = secure_getenv("KFIT_TRUST"); /* an empty one trusts nobody */
    p->bans = kfit_variable("KFIT_BAN");
    p->label = kfit_variable("KFIT_LABEL");
    p->cache_dir = kfit_variable("KFIT_CACHE");
    p->allow = kfit_variable("KFIT_ALLOW");
    if (p->mode == KFIT_MODE_OFF)
        return;
    p->strict = read_flag("KFIT_STRICT", true, &p->log);
    p->follow = read_flag("KFIT_FOLLOW", false, &p->log);
    size_t memory;
    if (!kfit_gpu_memory(kfit_variable("KFIT_GPU_MEMORY"), &memory))
        kfit_logf(&p->log, KFIT_LOG_ERROR, "KFIT_GPU_MEMORY=%.32s is no whole number of MiB; taken as 0",
                  kfit_variable("KFIT_GPU_MEMORY"));
    p->workspace_most = kfit_workspace_most(memory);
    bool asked;
    if (kfit_state_default_dir(c->state_dir, sizeof c->state_dir, &asked))
        p->state_dir = c->state_dir;
    p->state_optional = !asked;
    /* also when only dispatching: the off switch is in the trace's header */
    if (kfit_trace_default_dir(c->trace_dir, sizeof c->trace_dir))
        p->trace_dir = c->trace_dir;
}

bool kfit_asked(void)
{
    enum { UNREAD, NO, YES };
    static uint8_t asked;
    uint8_t known = __atomic_load_n(&asked, __ATOMIC_RELAXED);
    if (__builtin_expect(known == UNREAD, 0)) {
        const struct kfit_log log = read_log();
        known = read_mode(&log) == KFIT_MODE_OFF ? NO : YES;
        __atomic_store_n(&asked, known, __ATOMIC_RELAXED);
    }
    return known == YES;
}

/* ---- starting ---- */

/* Calls that came while starting went to the original; they are counted once there is where. */
static void count_missed(struct kfit_server *s, struct kfit_dispatcher *d)
{
    for (uint32_t n = __atomic_exchange_n(&s->missed, 0, __ATOMIC_ACQ_REL); n; n--)
        kfit_dispatch_unkeyed(d, KFIT_REASON_OFF);
}

/* Leaves s->dispatcher or s->off set. */
static __attribute__((noinline)) void
start(struct kfit_server *s, void (*look)(struct kfit_server *, struct kfit_surroundings *, const void *),
      const void *ctx)
{
    struct config c = {.params = {.mode = KFIT_MODE_OFF}};
    struct kfit_error err = {""};
    struct kfit_dispatcher *d = NULL;
    read_config(&c);
    if (c.params.mode != KFIT_MODE_OFF) {
        struct kfit_surroundings o = {.suffix = ""};
        look(s, &o, ctx);
        s->dispatching = c.params.mode & KFIT_MODE_DISPATCH;
        c.params.env = &o.env;
        c.params.device_suffix = o.suffix[0] ? o.suffix : NULL;
        c.params.hold = o.hold;
        if (kfit_dispatcher_create(&d, &c.params, &err) != KFIT_OK)
            kfit_logf(&c.params.log, KFIT_LOG_ERROR, "%s; this process runs without kfit", err.text);
    }
    if (!d) {
        __atomic_store_n(&s->off, true, __ATOMIC_RELEASE);
        return;
    }
    __atomic_store_n(&s->dispatcher, d, __ATOMIC_SEQ_CST);
    count_missed(s, d);
}

/* At exit(). Other threads may still be calling, and so may the destructors that come after this one. */
__attribute__((destructor)) static void end(void)
{
    for (unsigned i = 0; i < KFIT_SERVERS; i++)
        kfit_dispatcher_end(__atomic_load_n(&kfit_servers[i].dispatcher, __ATOMIC_ACQUIRE));
}

struct kfit_dispatcher *kfit_serve(struct kfit_server *s,
                                   void (*look)(struct kfit_server *s, struct kfit_surroundings *o,
                                                const void *ctx),
                                   const void *ctx, bool count)
{
    if (__atomic_load_n(&s->off, __ATOMIC_RELAXED))
        return NULL;
    struct kfit_manners manners = kfit_manners_begin();
    struct kfit_dispatcher *d;
    int32_t self = (int32_t)getpid(), starter = __atomic_load_n(&s->starter, __ATOMIC_RELAXED);
    /* a starter of another pid: our parent forked us while it was starting, and no thread of ours goes on */
    if (starter != self &&
        __atomic_compare_exchange_n(&s->starter, &starter, self, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
        if (starter)
            s->missed = 0;
        start(s, look, ctx);
        d = s->dispatcher;
    } else if (!(d = __atomic_load_n(&s->dispatcher, __ATOMIC_ACQUIRE)) && count) {
        __atomic_fetch_add(&s->missed, 1, __ATOMIC_SEQ_CST);
        struct kfit_dispatcher *now = __atomic_load_n(&s->dispatcher, __ATOMIC_SEQ_CST);
        if (now) /* too late for the starting thread to count it */
            count_missed(s, now);
    }
    kfit_manners_end(manners);
    return d;
}

bool kfit_note_generic(struct kfit_server *s, struct kfit_dispatcher *d, const struct kfit_blas *blas,
                       uint32_t *index)
{
    struct kfit_recorder *r = kfit_dispatcher_recorder(d);
    if (!r)
        return false;
    *index = kfit_recorder_generic(r, &blas->generic);
    __atomic_store_n(&s->generic[blas->index], *index + 1, __ATOMIC_RELAXED);
    return true;
}
