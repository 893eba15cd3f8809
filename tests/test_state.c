/* What a host remembers of processes that ended: real processes, killed. */
#include "kfit_test.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "kfit/state.h"

static struct kfit_error err;
static char state[200];
static uint8_t digest[32] = {1, 2, 3}, other_digest[32] = {9};

static void setup(void)
{
    snprintf(state, sizeof state, "%s/deep/er/state", kfit_test_dir());
}

/* As the recorder describes a process; each call one of its own. */
static struct kfit_trace_header process(const char *program, const char *label)
{
    static uint64_t ticks = 1000;
    struct kfit_trace_header h = {.pid = getpid(), .start_ticks = ticks++, .pid_namespace = 7};
    snprintf(h.program, sizeof h.program, "%s", program);
    snprintf(h.label, sizeof h.label, "%s", label);
    strcpy(h.boot_id, "01234567-89ab-cdef-0123-456789abcdef");
    return h;
}

static bool is_held_by(const struct kfit_trace_header *me, const uint8_t d[32], struct kfit_state_held *h)
{
    bool held;
    CHECK_OK(kfit_state_check(state, me, 3, d, h, &held, &err), err);
    return held;
}

static bool is_held(const char *program, const char *label, const uint8_t d[32])
{
    const struct kfit_trace_header me = process(program, label);
    struct kfit_state_held h;
    return is_held_by(&me, d, &h);
}

/* A process that has run a kernel and goes on, with a child of its own if asked. */
static pid_t serve(const struct kfit_trace_header *me, bool with_child)
{
    int ready[2];
    char byte;
    CHECK(!pipe(ready));
    fflush(stdout);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (!pid) {
        static struct kfit_state_mark mark;
        signal(SIGSEGV, SIG_DFL); /* a sanitizer would look at it */
        signal(SIGABRT, SIG_DFL);
        CHECK_OK(kfit_state_mark(state, me, 3, digest, &mark, &err), err);
        if (with_child && !fork()) {
            for (;;)
                pause();
        }
        CHECK(write(ready[1], "r", 1) == 1);
        for (;;)
            pause();
    }
    close(ready[1]);
    CHECK_MSG(read(ready[0], &byte, 1) == 1, "the process did not get so far");
    close(ready[0]);
    return pid;
}

static void end(pid_t pid, int sig)
{
    int st;
    CHECK(!kill(pid, sig) && waitpid(pid, &st, 0) == pid && WIFSIGNALED(st));
}

static void crash(const char *program, const char *label, int sig)
{
    const struct kfit_trace_header me = process(program, label);
    end(serve(&me, false), sig);
}

static unsigned files(const char *prefix)
{
    unsigned n = 0;
    DIR *d = opendir(state);
    for (struct dirent *e; d && (e = readdir(d));)
        n += e->d_name[0] != '.' && !strncmp(e->d_name, prefix, strlen(prefix));
    if (d)
        closedir(d);
    return n;
}

/* Path of the only file that begins so. */
static const char *only(const char *prefix)
{
    static char path[800];
    CHECK_INT(files(prefix), 1);
    DIR *d = opendir(state);
    for (struct dirent *e; (e = readdir(d));)
        if (!strncmp(e->d_name, prefix, strlen(prefix)))
            snprintf(path, sizeof path, "%s/%s", state, e->d_name);
    closedir(d);
    return path;
}

/* ---- counting ---- */

static void an_end_in_order_leaves_nothing(void)
{
    setup();
    for (int i = 0; i < 3; i++) {
        const struct kfit_trace_header me = process("serve a", "");
        struct kfit_state_mark mark;
        CHECK(!is_held("serve a", "", digest));
        CHECK_OK(kfit_state_mark(state, &me, 3, digest, &mark, &err), err);
        CHECK_INT(files("run-"), 1);
        CHECK(!is_held("serve a", "", digest)); /* lives */
        CHECK(!chdir("/"));
        kfit_state_unmark(&mark);
        kfit_state_unmark(&mark);
        CHECK_INT(files(""), 0);
    }
}

static int note(void *ctx, const struct kfit_state_held *h)
{
    *(struct kfit_state_held *)ctx = *h;
    return 0;
}

static void two_ends_hold_a_generation(void)
{
    struct kfit_state_held held, listed = {0};
    unsigned cleared;
    setup();
    CHECK_OK(kfit_state_each(state, note, &listed, &err), err); /* no directory yet */
    crash("serve a", "prod", SIGSEGV);
    CHECK(!is_held("serve a", "prod", digest));
    crash("serve a", "prod", SIGKILL);
    const struct kfit_trace_header me = process("serve a", "prod");
    CHECK(is_held_by(&me, digest, &held));
    CHECK_INT(held.ends, 2);
    CHECK_INT(held.generation, 3);
    CHECK(held.at_unix_s > 1700000000);
    CHECK(is_held("serve a", "prod", digest)); /* for good */
    CHECK(!is_held("serve a", "prod", other_digest));
    CHECK(!is_held("serve b", "prod", digest));
    CHECK(!is_held("serve a", "test", digest));
    CHECK_OK(kfit_state_each(state, note, &listed, &err), err);
    CHECK_STR(listed.program, "serve a");
    CHECK_STR(listed.label, "prod");
    CHECK(!memcmp(listed.digest, digest, 32) && listed.ends == 2);
    CHECK_OK(kfit_state_clear(state, &cleared, &err), err);
    CHECK_INT(cleared, 1);
    CHECK_INT(files(""), 0);
    crash("serve a", "prod", SIGABRT); /* counts from the start again */
    CHECK(!is_held("serve a", "prod", digest));
}

/* Eight ranks, one of which takes the others along, are one end, and so are two replicas. */
static void processes_that_lived_at_once_are_one_end(void)
{
    pid_t ranks[4];
    setup();
    for (int i = 0; i < 4; i++) {
        const struct kfit_trace_header me = process("serve a", "");
        ranks[i] = serve(&me, false);
    }
    end(ranks[0], SIGSEGV);
    CHECK(!is_held("serve a", "", digest));
    for (int i = 1; i < 4; i++)
        end(ranks[i], SIGKILL);
    CHECK(!is_held("serve a", "", digest));
    CHECK_INT(files("run-"), 4);
    crash("serve a", "", SIGSEGV); /* began after those were found */
    CHECK(is_held("serve a", "", digest));
}

static void a_living_child_does_not_hide_an_end(void)
{
    setup();
    for (int i = 0; i < 2; i++) {
        const struct kfit_trace_header me = process("serve a", "");
        CHECK(!is_held("serve a", "", digest));
        end(serve(&me, true), SIGKILL);
    }
    CHECK(is_held("serve a", "", digest));
}

static void clearing_spares_the_living(void)
{
    const struct kfit_trace_header me = process("serve a", "");
    unsigned cleared;
    setup();
    pid_t pid = serve(&me, false);
    CHECK_OK(kfit_state_clear(state, &cleared, &err), err);
    CHECK_INT(cleared, 0);
    CHECK_INT(files("run-"), 1);
    end(pid, SIGKILL);
    CHECK_OK(kfit_state_clear(state, &cleared, &err), err);
    CHECK_INT(files("run-"), 0);
}

/* All ranks of a job look at the same time, and must come to the same. */
static void many_that_look_at_once_agree(void)
{
    enum { RANKS = 12, ROUNDS = 10 };
    setup();
    for (int round = 0; round < ROUNDS; round++) {
        int go[2], st;
        char program[32];
        snprintf(program, sizeof program, "serve %d", round);
        crash(program, "", SIGKILL);
        CHECK(!is_held(program, "", digest));
        crash(program, "", SIGKILL);
        CHECK(!pipe(go));
        fflush(stdout);
        for (int i = 0; i < RANKS; i++)
            if (!fork()) {
                char byte;
                close(go[1]);
                CHECK(read(go[0], &byte, 1) == 0);
                _exit(is_held(program, "", digest) ? 0 : 3);
            }
        close(go[0]);
        close(go[1]);
        for (int i = 0; i < RANKS; i++)
            CHECK_MSG(wait(&st) > 0 && !st, "round %d: status %#x", round, st);
    }
}

/* ---- what is no crash, or none any more ---- */

static void write_at(const char *path, off_t at, const void *data, size_t bytes)
{
    int fd = open(path, O_WRONLY);
    CHECK(fd >= 0 && pwrite(fd, data, bytes, at) == (ssize_t)bytes && !close(fd));
}

/* The last eight bytes say when it was found. */
static void ends_are_forgotten_in_time(void)
{
    struct timespec now;
    setup();
    for (int late = 0; late < 2; late++) {
        crash("serve a", "", SIGSEGV);
        CHECK(!is_held("serve a", "", digest));
        clock_gettime(CLOCK_REALTIME, &now);
        int64_t found = (now.tv_sec - KFIT_STATE_WINDOW_S + (late ? -30 : 30)) * INT64_C(1000000000);
        write_at(only("run-"), 504, &found, sizeof found);
        crash("serve a", "", SIGSEGV);
        CHECK_INT(is_held("serve a", "", digest), !late);
        CHECK_INT(files("run-"), late ? 1 : 2);
        unsigned cleared;
        CHECK_OK(kfit_state_clear(state, &cleared, &err), err);
    }
}

static void ends_of_another_boot_do_not_count(void)
{
    setup();
    for (int i = 0; i < 3; i++) {
        struct kfit_trace_header me = process("serve a", "");
        me.boot_id[0] = 'f';
        end(serve(&me, false), SIGKILL);
        CHECK(!is_held("serve a", "", digest));
        CHECK_INT(files("run-"), 0);
    }
}

static void exec_is_no_end(void)
{
    setup();
    for (int i = 0; i < 3; i++) {
        struct kfit_state_held h;
        const struct kfit_trace_header me = process("serve a", "");
        end(serve(&me, false), SIGKILL); /* exec drops the lock as well; pid and start time stay */
        CHECK(!is_held_by(&me, digest, &h));
        CHECK_INT(files("run-"), 0);
    }
}

/* ---- what can be wrong with the directory ---- */

static void damaged_files_are_said_and_dropped(void)
{
    static const char zeros[512];
    struct kfit_state_held h;
    bool held;
    char path[300];
    setup();
    crash("serve a", "", SIGSEGV);
    CHECK(!is_held("serve a", "", digest));
    for (size_t bytes = 0; bytes <= 513; bytes += 171) {
        snprintf(path, sizeof path, "%s/run-1-%zu", state, bytes);
        kfit_test_write(path, zeros, bytes < 512 ? bytes : 512);
    }
    const struct kfit_trace_header me = process("serve a", "");
    CHECK_STATUS(kfit_state_check(state, &me, 3, digest, &h, &held, &err), KFIT_E_FORMAT);
    CHECK_MSG(!held && strstr(err.text, "4 damaged"), "%s", err.text);
    CHECK_INT(files("run-"), 1);
    CHECK(!is_held("serve a", "", digest));            /* said once */
    for (unsigned bit = 0; bit < 504 * 8; bit += 61) { /* flipped anywhere: no crash of anybody's */
        size_t n;
        char *whole = kfit_test_read(only("run-"), &n);
        CHECK_INT(n, 512);
        snprintf(path, sizeof path, "%s/run-2-%u", state, bit);
        whole[bit / 8] = (char)(whole[bit / 8] ^ 1 << bit % 8);
        kfit_test_write(path, whole, n);
        free(whole);
        CHECK_STATUS(kfit_state_check(state, &me, 3, digest, &h, &held, &err), KFIT_E_FORMAT);
        CHECK(!held);
    }
    CHECK_INT(files("run-"), 1);
}

static void odd_files_do_no_harm(void)
{
    char path[300], target[300];
    setup();
    CHECK(!is_held("serve a", "", digest));
    crash("serve a", "", SIGSEGV);
    snprintf(target, sizeof target, "%s/precious", kfit_test_dir());
    kfit_test_write(target, "precious", 8);
    snprintf(path, sizeof path, "%s/run-link", state);
    CHECK(!symlink(target, path));
    snprintf(path, sizeof path, "%s/run-pipe", state);
    CHECK(!mkfifo(path, 0600));
    snprintf(path, sizeof path, "%s/run-dir", state);
    CHECK(!mkdir(path, 0700));
    snprintf(path, sizeof path, "%s/run-others", state);
    kfit_test_write(path, "x", 1);
    CHECK(!chmod(path, 0666)); /* could be anybody's */
    CHECK(!is_held("serve a", "", digest));
    CHECK_INT(files("run-"), 5);
    char *text = kfit_test_read(target, NULL);
    CHECK_STR(text, "precious");
    crash("serve a", "", SIGSEGV);
    CHECK(is_held("serve a", "", digest));
}

/* A name is enough to hold: what is in the file only says why. */
static void an_emptied_held_file_holds(void)
{
    struct kfit_state_held h = {0};
    setup();
    crash("serve a", "", SIGSEGV);
    CHECK(!is_held("serve a", "", digest));
    crash("serve a", "", SIGSEGV);
    CHECK(is_held("serve a", "", digest));
    kfit_test_write(only("held-"), "", 0);
    const struct kfit_trace_header me = process("serve a", "");
    CHECK(is_held_by(&me, digest, &h));
    CHECK(h.ends == 0 && h.at_unix_s == 0);
    CHECK_OK(kfit_state_each(state, note, &h, &err), err);
    CHECK(strstr(h.program, "damaged"));
}

/* Bytes of version 1: found by their name and read; as a process' file they are dated and so out of date. */
static void golden_bytes(void)
{
    struct kfit_state_held h = {0};
    struct kfit_trace_header me = process("python3 serve.py", "prod");
    uint8_t golden_digest[32];
    char path[400];
    size_t n;
    char *bytes = kfit_test_read(GOLDEN "/state-1.bin", &n);
    for (unsigned i = 0; i < 32; i++)
        golden_digest[i] = (uint8_t)(7 * i);
    setup();
    snprintf(path, sizeof path, "mkdir -m 700 -p %s", state);
    CHECK_INT(kfit_test_run((const char *[]){"sh", "-c", path, NULL}, NULL, NULL, NULL), 0);
    snprintf(path, sizeof path, "%s/run-4711-1700000000123456789", state);
    kfit_test_write(path, bytes, n);
    CHECK(!is_held_by(&me, golden_digest, &h));
    CHECK_INT(files("run-"), 0);
    snprintf(path, sizeof path, "%s/held-00070e151c232a31-9b54ee3fc463faab", state);
    kfit_test_write(path, bytes, n);
    CHECK(is_held_by(&me, golden_digest, &h));
    CHECK_INT(h.generation, 3);
    CHECK_INT(h.ends, 2);
    CHECK_INT(h.at_unix_s, 1700000300);
    CHECK_STR(h.program, "python3 serve.py");
    CHECK_STR(h.label, "prod");
    bytes[6] = '2'; /* a newer kfit's: holds, and says no more */
    kfit_test_write(path, bytes, n);
    CHECK(is_held_by(&me, golden_digest, &h));
    CHECK_INT(h.ends, 0);
    free(bytes);
}

static void unsafe_directories_are_named(void)
{
    const struct kfit_trace_header me = process("serve a", "");
    struct kfit_state_held h;
    struct kfit_state_mark mark;
    bool held = true;
    setup();
    CHECK(!is_held("serve a", "", digest));
    crash("serve a", "", SIGKILL);
    CHECK(!chmod(state, 0777));
    CHECK_STATUS(kfit_state_check(state, &me, 3, digest, &h, &held, &err), KFIT_E_PERM);
    CHECK(!held && strstr(err.text, state));
    CHECK_STATUS(kfit_state_mark(state, &me, 3, digest, &mark, &err), KFIT_E_PERM);
    CHECK(!mark.lock);
    CHECK(!chmod(state, 0700));
    snprintf(state, sizeof state, "%s/file", kfit_test_dir());
    kfit_test_write(state, "x", 1);
    CHECK(kfit_state_check(state, &me, 3, digest, &h, &held, &err) != KFIT_OK && strstr(err.text, state));
    CHECK(kfit_state_mark(state, &me, 3, digest, &mark, &err) != KFIT_OK && strstr(err.text, state));
    CHECK_STATUS(kfit_state_mark("/proc/no/such", &me, 3, digest, &mark, &err), KFIT_E_NOTFOUND);
}

static void nobody_tries(void)
{
    const struct kfit_trace_header me = process("serve a", "");
    struct kfit_state_held h;
    struct kfit_state_mark mark;
    char *text;
    bool held;
    /* root's: may be read, not written */
    CHECK_OK(kfit_state_check(state, &me, 3, digest, &h, &held, &err), err);
    CHECK(!held);
    CHECK_STATUS(kfit_state_mark(state, &me, 3, digest, &mark, &err), KFIT_E_PERM);
    CHECK(!mark.lock && strstr(err.text, state));
    CHECK_STATUS(kfit_state_bans(state, &text, &err), KFIT_E_PERM); /* there, and closed to us */
    CHECK(strstr(err.text, "bans"));
}

static void become_nobody(void)
{
    CHECK(!setuid(65534));
}

static void other_users(void)
{
    const struct kfit_trace_header me = process("serve a", "");
    struct kfit_state_held h;
    char path[800];
    bool held;
    if (geteuid())
        SKIP("needs root to be other users");
    setup();
    crash("serve a", "", SIGKILL);
    CHECK(!chmod(kfit_test_dir(), 0755));
    snprintf(path, sizeof path, "chmod -R a+rX %s && echo >%s/bans && chmod 600 %s/bans", kfit_test_dir(),
             state, state);
    CHECK_INT(kfit_test_run((const char *[]){"sh", "-c", path, NULL}, NULL, NULL, NULL), 0);
    kfit_test_child(nobody_tries, become_nobody);
    CHECK_INT(files("run-"), 1);
    CHECK(!chown(state, 65534, 65534));
    CHECK_STATUS(kfit_state_check(state, &me, 3, digest, &h, &held, &err), KFIT_E_PERM);
}

/* Beyond a file-size limit the kernel kills who writes. */
static void file_size_limit_kills_nobody(void)
{
    const struct kfit_trace_header me = process("serve a", "");
    struct kfit_state_mark mark;
    setup();
    crash("serve a", "", SIGKILL);
    setrlimit(RLIMIT_FSIZE, &(struct rlimit){100, RLIM_INFINITY});
    enum kfit_status s = kfit_state_mark(state, &me, 3, digest, &mark, &err);
    struct kfit_state_held h;
    bool held, first = kfit_state_check(state, &me, 3, digest, &h, &held, NULL) == KFIT_OK && !held;
    setrlimit(RLIMIT_FSIZE, &(struct rlimit){RLIM_INFINITY, RLIM_INFINITY});
    CHECK_MSG(s == KFIT_E_IO && first && strstr(err.text, "ulimit"), "%s", err.text);
    CHECK_INT(files("run-"), 1);
}

/* ---- bans ---- */

static void bans_are_read_or_refused(void)
{
    char path[300], *text, *big = calloc(1, (1 << 20) + 1);
    setup();
    CHECK_STATUS(kfit_state_bans(state, &text, &err), KFIT_E_NOTFOUND);
    CHECK_STATUS(kfit_state_bans("/dev/null", &text, &err), KFIT_E_NOTFOUND);
    crash("serve a", "", SIGKILL); /* makes the directory */
    CHECK_STATUS(kfit_state_bans(state, &text, &err), KFIT_E_NOTFOUND);
    snprintf(path, sizeof path, "%s/bans", state);
    kfit_test_write(path, "a # b\nc\n", 8);
    CHECK_OK(kfit_state_bans(state, &text, &err), err);
    CHECK_STR(text, "a # b\nc\n");
    free(text);
    memset(big, 'x', 1 << 20);
    kfit_test_write(path, big, 1 << 20);
    CHECK_OK(kfit_state_bans(state, &text, &err), err);
    CHECK_INT(strlen(text), 1 << 20);
    free(text);
    kfit_test_write(path, big, (1 << 20) + 1);
    CHECK_STATUS(kfit_state_bans(state, &text, &err), KFIT_E_FORMAT);
    CHECK(!text && strstr(err.text, path));
    kfit_test_write(path, "a\0b", 3);
    CHECK_STATUS(kfit_state_bans(state, &text, &err), KFIT_E_FORMAT);
    CHECK(!unlink(path) && !mkfifo(path, 0600));
    CHECK_STATUS(kfit_state_bans(state, &text, &err), KFIT_E_FORMAT);
    CHECK(!unlink(path) && !symlink("nowhere", path));
    CHECK_STATUS(kfit_state_bans(state, &text, &err), KFIT_E_PERM);
    free(big);
}

static void where_it_is(void)
{
    char buf[300];
    bool asked;
    setenv("KFIT_STATE", "/a", 1), setenv("XDG_STATE_HOME", "/b", 1), setenv("HOME", "/c", 1);
    CHECK_INT(kfit_state_default_dir(buf, sizeof buf, &asked), 2);
    CHECK_STR(buf, "/a");
    CHECK(asked);
    setenv("KFIT_STATE", "", 1);
    kfit_state_default_dir(buf, sizeof buf, &asked);
    CHECK_STR(buf, "/b/kfit");
    CHECK(!asked);
    unsetenv("XDG_STATE_HOME");
    kfit_state_default_dir(buf, sizeof buf, NULL);
    CHECK_STR(buf, "/c/.local/state/kfit");
    CHECK_INT(kfit_state_default_dir(buf, 5, NULL), 0);
    unsetenv("HOME");
    CHECK_INT(kfit_state_default_dir(buf, sizeof buf, NULL), 0);
}

static const struct kfit_test tests[] = {
    TEST(an_end_in_order_leaves_nothing),
    TEST(two_ends_hold_a_generation),
    TEST(processes_that_lived_at_once_are_one_end),
    TEST(a_living_child_does_not_hide_an_end),
    TEST(clearing_spares_the_living),
    TEST(many_that_look_at_once_agree),
    TEST(ends_are_forgotten_in_time),
    TEST(ends_of_another_boot_do_not_count),
    TEST(exec_is_no_end),
    TEST(damaged_files_are_said_and_dropped),
    TEST(odd_files_do_no_harm),
    TEST(an_emptied_held_file_holds),
    TEST(golden_bytes),
    TEST(unsafe_directories_are_named),
    TEST(other_users),
    TEST(file_size_limit_kills_nobody),
    TEST(bans_are_read_or_refused),
    TEST(where_it_is),
};
TEST_MAIN(tests)
