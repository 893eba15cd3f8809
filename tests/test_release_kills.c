/* approve and rollback, killed at random moments: who reads the cache meanwhile sees the generation that was current or
 * the one that becomes it, whole. The real `kfit approve` and `kfit rollback`, and the publisher alone in a forked
 * child, where a kill is cheap. */
#include "kfit/generation.h"
#include "kfit/store.h"
#include "kfit_test.h"
#include "records.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

/* Two contents to go back and forth between; content i has records[i] records. */
enum { CONTENTS = 2, ALL = 40 };
static const unsigned records[CONTENTS] = {1, ALL};

static char *cache(void)
{
    static char text[512];
    snprintf(text, sizeof text, "%s/cache", kfit_test_dir());
    return text;
}

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void pause_ns(uint64_t ns)
{
    const struct timespec t = {(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
    nanosleep(&t, NULL);
}

/* ---- who publishes ---- */

static struct kfit_record *all_records;
static char first_key[KFIT_KEY_TEXT_MAX];

/* Tunes nothing: the records are staged as a tune leaves them. */
static void stage(void)
{
    struct kfit_store *s;
    struct kfit_error err = {0};
    const struct kfit_env env = records_env();
    setenv("ASAN_OPTIONS", "abort_on_error=1:detect_leaks=0",
           1); /* a program that ends frees what it holds */
    all_records = records_make(ALL);
    kfit_key_format(&all_records[0].key, first_key, sizeof first_key);
    CHECK_OK(kfit_store_open(cache(), KFIT_STORE_WRITE, &s, &err), err);
    for (unsigned i = 0; i < ALL; i++)
        CHECK_OK(kfit_store_stage(s, &env, &all_records[i], NULL, &err), err);
    kfit_store_close(s);
}

static pid_t spawn(const char *const argv[])
{
    pid_t pid;
    posix_spawn_file_actions_t quiet;
    posix_spawn_file_actions_init(&quiet);
    for (int fd = 1; fd <= 2; fd++)
        posix_spawn_file_actions_addopen(&quiet, fd, "/dev/null", O_WRONLY, 0);
    int rc = posix_spawn(&pid, KFIT, &quiet, NULL, (char **)(uintptr_t)argv, environ);
    CHECK_MSG(!rc, "%s: %s", KFIT, strerror(rc));
    posix_spawn_file_actions_destroy(&quiet);
    return pid;
}

/* `kfit approve --all` leads to the larger content, `kfit rollback 1` back to the first. */
static pid_t run_kfit(int to)
{
    const char *const approve[] = {"kfit", "approve", "--all", "--cache", cache(), NULL},
                      *const rollback[] = {"kfit", "rollback", "1", "--cache", cache(), NULL};
    return spawn(to ? approve : rollback);
}

static pid_t fork_publisher(int to)
{
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid)
        return pid;
    const struct kfit_env env = records_env();
    const struct kfit_publish_params p = {.dir = cache(),
                                          .records = all_records,
                                          .count = records[to],
                                          .envs = &env,
                                          .env_count = 1,
                                          .approver = "test",
                                          .republishes = to ? 0 : 1};
    uint64_t number;
    _exit(kfit_generation_publish(&p, &number, NULL) != KFIT_OK);
}

/* ---- who reads ---- */

struct state {
    uint64_t number;
    uint8_t sha256[32];
    uint64_t good;
};

static int count_good(void *ctx, const struct kfit_record *r, const char *problem)
{
    struct state *s = ctx;
    (void)problem;
    s->good += r != NULL;
    return 0;
}

/* The current generation as a server loads it. False, and why: it is not there or not whole. */
static bool look(struct state *s, struct kfit_error *err)
{
    struct kfit_generation *g;
    *s = (struct state){0};
    if (kfit_generation_open(cache(), NULL, &g, err) != KFIT_OK)
        return false;
    const struct kfit_manifest *m = kfit_generation_manifest(g);
    s->number = m->number;
    memcpy(s->sha256, m->sha256, sizeof s->sha256);
    bool ok = kfit_generation_each(g, 0, count_good, s, err) == KFIT_OK;
    if (ok && s->good != m->records)
        ok = kfit_fail(err, KFIT_E_FORMAT, "%llu of %llu records", (unsigned long long)s->good,
                       (unsigned long long)m->records) == KFIT_OK;
    kfit_generation_close(g);
    return ok;
}

/* Which of the two contents; -1: neither. */
static int content(const struct state *s, const struct state *known)
{
    for (int i = 0; i < CONTENTS; i++)
        if (!memcmp(s->sha256, known[i].sha256, sizeof s->sha256) && s->good == records[i])
            return i;
    return -1;
}

/* Shared with the reader, a process that loads again and again. */
struct reader {
    atomic_bool stop;
    atomic_ulong seen[CONTENTS], bad;
    char problem[256];
};

static pid_t start_reader(struct reader *r, const struct state *known)
{
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid)
        return pid;
    uint64_t last = 0;
    while (!r->stop) {
        struct state s;
        struct kfit_error err = {0};
        bool ok = look(&s, &err);
        int which = ok ? content(&s, known) : -1;
        if (which >= 0 && s.number >= last) {
            r->seen[which]++;
            last = s.number;
        } else if (!r->bad++) {
            snprintf(r->problem, sizeof r->problem, "generation %llu after %llu: %.200s",
                     (unsigned long long)s.number, (unsigned long long)last,
                     ok ? "neither content" : err.text);
        }
    }
    _exit(0);
}

/* ---- the kills ---- */

/* Everything that is made, written, closed or renamed where generations are, as it happens. */
static int watch(void)
{
    char path[560];
    int fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    snprintf(path, sizeof path, "%s/generations", cache());
    CHECK(fd >= 0 &&
          inotify_add_watch(fd, path, IN_CREATE | IN_MODIFY | IN_CLOSE_WRITE | IN_MOVED_TO | IN_ATTRIB) >= 0);
    CHECK(inotify_add_watch(fd, cache(), IN_CREATE | IN_MODIFY | IN_CLOSE_WRITE | IN_MOVED_TO | IN_ATTRIB) >=
          0);
    return fd;
}

/* How many events there were since the last call. The lock is opened and closed by whoever publishes: no event. */
static unsigned events(int fd)
{
    _Alignas(struct inotify_event) char buf[4096];
    unsigned n = 0;
    for (ssize_t got; (got = read(fd, buf, sizeof buf)) > 0;)
        for (char *p = buf; p < buf + got;) {
            const struct inotify_event *e = (const struct inotify_event *)(void *)p;
            n += !e->len || strcmp(e->name, ".lock");
            p += sizeof *e + e->len;
        }
    return n;
}

/* Waits for that many events, or for the end of pid, or for a second. */
static unsigned wait_for_events(int fd, unsigned wanted, pid_t pid)
{
    unsigned n = 0;
    for (uint64_t end = now_ns() + 1000000000; n < wanted && now_ns() < end;) {
        siginfo_t info = {0};
        struct pollfd p = {.fd = fd, .events = POLLIN};
        poll(&p, 1, 1);
        n += events(fd);
        if (!waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) && info.si_pid)
            break;
    }
    return n;
}

struct publisher {
    pid_t (*start)(int to);
    uint64_t took_ns[CONTENTS]; /* from one content to the other */
    unsigned events[CONTENTS];
};

/* Lets one run to its end. */
static void finish(struct publisher *p, int to, int fd)
{
    uint64_t from = now_ns();
    int status;
    pid_t pid = p->start(to);
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK_MSG(!status, "publishing by itself: status %x", status);
    p->took_ns[to] = now_ns() - from;
    p->events[to] = fd < 0 ? 0 : events(fd);
}

struct tally {
    unsigned before, within, after, ended;
};

/* One publisher on its way from `last` to the other content, killed: at any moment, or (which is most of the time it
 * needs on a slow disk, and next to none on a fast one) somewhere in its writing. */
static void kill_one(struct publisher *p, int fd, const struct state *known, struct state *last,
                     struct tally *t)
{
    int at = content(last, known), to = !at, status;
    struct kfit_error err = {0};
    bool aimed = kfit_test_random() % 2;
    uint64_t wait_ns = kfit_test_random() % (p->took_ns[to] + p->took_ns[to] / 4 + 1);
    unsigned wanted = 1 + (unsigned)(kfit_test_random() % p->events[to]), seen = 0;
    events(fd);
    pid_t pid = p->start(to);
    if (aimed)
        seen = wait_for_events(fd, wanted, pid);
    else
        pause_ns(wait_ns);
    CHECK(!kill(pid, SIGKILL) && waitpid(pid, &status, 0) == pid);
    seen += events(fd);

    struct state now;
    CHECK_MSG(look(&now, &err), "after a kill: %s", err.text);
    bool switched = now.number != last->number;
    CHECK_MSG(content(&now, known) == (switched ? to : at),
              "generation %llu is neither the old nor the new one", (unsigned long long)now.number);
    CHECK(now.number >= last->number);
    if (!WIFSIGNALED(status))
        CHECK_MSG(!status && switched, "ended by itself: status %x", status);
    *(!WIFSIGNALED(status) ? &t->ended : switched ? &t->after : seen ? &t->within : &t->before) += 1;
    /* how long it takes now: the kills stay spread over all of it whatever else the machine does */
    if (!aimed)
        p->took_ns[to] += WIFSIGNALED(status) ? p->took_ns[to] / 64 : -(p->took_ns[to] / 16);
    *last = now;
}

static unsigned kills_of(const struct tally *t)
{
    return t->before + t->within + t->after;
}

/* Kills `kills` publishers beside a reader. */
static void kill_publishers(struct publisher *p, unsigned kills)
{
    enum { ROUND = 100 };
    struct state known[CONTENTS], last;
    struct kfit_error err = {0};
    struct tally t = {0};
    int fd = watch();
    for (int i = 0; i < CONTENTS; i++) {
        finish(p, i, fd);
        CHECK_MSG(look(&known[i], &err) && known[i].good == records[i] && p->events[i], "%s", err.text);
        last = known[i];
    }
    struct reader *r = mmap(NULL, sizeof *r, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(r != MAP_FAILED);
    while (kills_of(&t) < kills) {
        unsigned goal = kills_of(&t) + ROUND < kills ? kills_of(&t) + ROUND : kills;
        r->stop = false;
        pid_t reader = start_reader(r, known);
        while (kills_of(&t) < goal)
            kill_one(p, fd, known, &last, &t);
        r->stop = true;
        CHECK(waitpid(reader, NULL, 0) == reader);
        CHECK_MSG(!r->bad, "the reader saw %lu times something else: %s", (unsigned long)r->bad, r->problem);
        /* a reader between `current` and the file it names has no claim on old generations; now there is none */
        CHECK_OK(
            kfit_generation_collect(
                &(struct kfit_collect_params){.dir = cache(), .keep = (const uint64_t[]){1}, .keep_count = 1},
                &err),
            err);
    }
    printf("  %u kills: %u before anything was written, %u in between, %u after the switch; %u more had "
           "ended by "
           "themselves; a reader beside them loaded %lu generations of one content and %lu of the other\n",
           kills, t.before, t.within, t.after, t.ended, (unsigned long)r->seen[0], (unsigned long)r->seen[1]);
    CHECK_MSG(kills < ROUND || t.within,
              "no kill came while files were written; the test does not reach its aim");
    CHECK_MSG(r->seen[0] + r->seen[1], "the reader never saw a generation; the test does not reach its aim");
    munmap(r, sizeof *r);
    close(fd);
    /* and it goes on: what was half-written is written anew, or taken away */
    finish(p, !content(&last, known), -1);
    const char *const verify[] = {KFIT, "cache", "verify", "--cache", cache(), NULL};
    CHECK_INT(kfit_test_run(verify, NULL, NULL, NULL), 0);
    CHECK_MSG(look(&last, &err), "%s", err.text);
}

/* As a person begins: one key, then all. */
static void kill_kfit(unsigned kills)
{
    struct publisher p = {.start = run_kfit};
    stage();
    const char *const one[] = {KFIT, "approve", first_key, "--cache", cache(), NULL};
    CHECK_INT(kfit_test_run(one, NULL, NULL, NULL), 0);
    finish(&p, 1, -1);
    kill_publishers(&p, kills);
}

static void kill_forked(unsigned kills)
{
    struct publisher p = {.start = fork_publisher};
    stage();
    finish(&p, 0, -1);
    finish(&p, 1, -1);
    kill_publishers(&p, kills);
}

static void approve_and_rollback_killed_40_times(void)
{
    kill_kfit(40);
}

static void approve_and_rollback_killed_1000_times(void)
{
    kill_kfit(1000);
}

static void publisher_killed_60_times(void)
{
    kill_forked(60);
}

static void publisher_killed_1000_times(void)
{
    kill_forked(1000);
}

static const struct kfit_test tests[] = {
    TEST(approve_and_rollback_killed_40_times),
    TEST(publisher_killed_60_times),
    TEST_SLOW(approve_and_rollback_killed_1000_times, 900),
    TEST_SLOW(publisher_killed_1000_times, 900),
};
TEST_MAIN(tests)
