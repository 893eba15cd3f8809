/* Real programs that crash, or seem to: what the next start makes of it, and that nothing else disturbs it. */
#include <dirent.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kfit/reason.h"
#include "kfit/state.h"
#include "published.h"

#define ORIGINAL "0.390625\n0.390625\n"
#define REPLACED "42\n42\n"
#define HELD     "is held back, this program ended uncleanly 2 times in 10 minutes"

static char state_dir[200], state_env[250];

static void begin(void)
{
    publish();
    snprintf(state_dir, sizeof state_dir, "%s/state", kfit_test_dir());
    snprintf(state_env, sizeof state_env, "KFIT_STATE=%s", state_dir);
}

/* Runs argv with cache and state; SKIPs what is not to be had. */
static int run(const char *const argv[], const char *extra, char **out, char **err)
{
    char trace[400];
    snprintf(trace, sizeof trace, "KFIT_TRACE=%s", trace_dir);
    const char *const env[] = {trace,       cache_env, preload_env, "OPENBLAS_NUM_THREADS=1",
                               "KFIT_MODE", state_env, extra,       NULL};
    int rc = kfit_test_run(argv, env, out, err);
    if (rc == 99 || rc == 127 || strstr(*err, "unshare: ") || strstr(*err, "setpriv: "))
        SKIP("%s is not to be had here: %s", argv[0], *err);
    return rc;
}

static void crashes(const char *extra)
{
    char *out, *err;
    CHECK_INT(run(CALLS_ARGV("crash", "2"), extra, &out, &err), 128 + SIGKILL);
}

/* The program with the name and first argument of those that crash: what does it answer, what is said? */
static char *answers(const char *want, const char *extra)
{
    char *out, *err;
    CHECK_INT(run(CALLS_ARGV("crash", "2"), extra, &out, &err), 128 + SIGKILL);
    CHECK_MSG(!strcmp(out, want), "answers %s, said: %s", out, err);
    const char *newline = strchr(err, '\n');
    CHECK_MSG(!*err || (!strncmp(err, "kfit: ", 6) && newline && !newline[1]), "said: %s", err);
    return err;
}

static unsigned files(const char *prefix)
{
    unsigned n = 0;
    DIR *d = opendir(state_dir);
    for (struct dirent *e; d && (e = readdir(d));)
        n += e->d_name[0] != '.' && !strncmp(e->d_name, prefix, strlen(prefix));
    if (d)
        closedir(d);
    return n;
}

static void clear(void)
{
    unsigned cleared;
    struct kfit_error err = {""};
    CHECK_OK(kfit_state_clear(state_dir, &cleared, &err), err);
}

/* ---- cases ---- */

static void the_third_start_only_records(void)
{
    begin();
    CHECK_STR(answers(REPLACED, NULL), "");
    CHECK_STR(answers(REPLACED, NULL), "");
    for (int i = 0; i < 2; i++) { /* it stays so: this one's own end does not count, it ran no kernel */
        char *err = answers(ORIGINAL, NULL);
        CHECK_MSG(strstr(err, "records only: generation 1 " HELD), "said: %s", err);
    }
    CHECK_INT(files("run-"), 2);
    struct kfit_trace *t[TRACES_MAX];
    size_t n = traces_read(trace_dir, t);
    unsigned held = 0;
    for (size_t i = 0; i < n; i++) {
        const struct kfit_trace_header *h = kfit_trace_header(t[i]);
        held += h->state_reason == KFIT_REASON_POLICY && strstr(h->state_text, HELD) != NULL;
        CHECK_INT(h->generation, 1);
        CHECK_INT(h->end_unix_ns, 0);
    }
    CHECK_INT(n, 4);
    CHECK_INT(held, 2);
    publish(); /* another number, the same bytes: still to blame */
    answers(ORIGINAL, NULL);
    clear();
    CHECK_STR(answers(REPLACED, NULL), "");
}

static void other_signals_count_as_well(void)
{
    static const int signals[] = {SIGSEGV, SIGABRT, SIGTERM, SIGBUS};
    char *out, *err;
    begin();
    putenv(state_env);
    for (unsigned i = 0; i < 4; i += 2) {
        for (unsigned k = 0; k < 2; k++) {
            struct server s = start_server();
            int st;
            CHECK_STR(ask_server(&s), "42\n");
            CHECK(!kill(s.pid, signals[i + k]) && waitpid(s.pid, &st, 0) == s.pid && WIFSIGNALED(st));
        }
        int to[2];
        CHECK(!pipe(to));
        struct server s = start_server();
        CHECK_STR(ask_server(&s), "0.390625\n");
        close(s.to);
        CHECK(waitpid(s.pid, &(int){0}, 0) == s.pid);
        clear();
    }
    CHECK_INT(run(CALLS_ARGV("quit", "2"), NULL, &out, &err), 0); /* _exit says no goodbye either */
    CHECK_INT(files("run-"), 1);
}

static void what_is_no_crash(void)
{
    char *out, *err, ban[400];
    begin();
    CHECK_INT(run(CALLS_ARGV("step", "2"), NULL, &out, &err), 0);
    CHECK_STR(out, REPLACED);
    CHECK_INT(files(""), 0);
    CHECK(kfit_trace_header(trace_only(trace_dir))->end_unix_ns > 0);
    CHECK_INT(run(CALLS_ARGV("exec", "2"), NULL, &out, &err), 0);
    CHECK_STR(out, REPLACED REPLACED);
    CHECK_INT(files(""), 0);
    CHECK_INT(run(CALLS_ARGV("fork", "3", "5", "0"), NULL, &out, &err), 0); /* children end by _exit */
    CHECK_INT(files(""), 0);
    CHECK_INT(run(CALLS_ARGV("threads", "4", "50"), NULL, &out, &err), 0);
    CHECK_INT(files(""), 0);
    for (int i = 0; i < 3; i++) { /* no kernel ran */
        crashes("KFIT_MODE=record");
        snprintf(ban, sizeof ban, "KFIT_BAN=%s", square_text);
        crashes(ban);
    }
    CHECK_INT(files(""), 0);
    /* came by fork: the shell's child never execs, and is killed */
    static const char pool[] = "import ctypes, os, signal, sys\n"
                               "for i in range(3):\n"
                               "    pid = os.fork()\n"
                               "    if not pid:\n"
                               "        blas = ctypes.CDLL(sys.argv[1])\n"
                               "        a = (ctypes.c_float * 64)(); at = -ctypes.addressof(a) % 64 // 4\n"
                               "        p = ctypes.byref(a, 4 * at)\n"
                               "        one, zero = ctypes.c_float(1), ctypes.c_float(0)\n"
                               "        f = ctypes.CDLL(None).cblas_sgemm\n"
                               "        f(101, 111, 111, 4, 4, 4, one, p, 4, p, 4, zero, p, 4)\n"
                               "        print(a[at], flush=True)\n"
                               "        os.kill(os.getpid(), signal.SIGKILL)\n"
                               "    os.waitpid(pid, 0)\n";
    snprintf(trace_dir, sizeof trace_dir, "%.200s/pool", kfit_test_dir());
    CHECK_INT(
        run((const char *[]){"/usr/bin/python3", "-c", pool, "libopenblas.so.0", NULL}, NULL, &out, &err), 0);
    CHECK_MSG(!strcmp(out, "42.0\n42.0\n42.0\n"), "answers %s, said: %s", out, err);
    CHECK_INT(files(""), 0);
}

static void a_guest_leaves_errno_and_descriptors(void)
{
    char *out, *err, *bare;
    begin();
    CHECK_INT(run(CALLS_ARGV("loop", "3"), NULL, &out, &err), 0);
    CHECK_INT(kfit_test_run(CALLS_ARGV("loop", "3"), NULL, &bare, NULL), 0);
    CHECK(strstr(bare, "errno 1234"));
    CHECK_STR(strstr(out, "errno"), strstr(bare, "errno"));
    CHECK(!mkdir(state_dir, 0700) || !chmod(state_dir, 0700));
    CHECK(!chmod(state_dir, 0777)); /* refused, and said */
    CHECK_INT(run(CALLS_ARGV("loop", "3"), NULL, &out, &err), 0);
    CHECK(strstr(err, "crashes may not be remembered"));
    CHECK_STR(strstr(out, "errno"), strstr(bare, "errno"));
}

/* As the containers of one pod, started one after the other: the same small numbers, in a namespace of their
 * own each. */
static void seen_from_another_pid_namespace(void)
{
    const char *const argv[] = {"unshare", "-rpf", "--kill-child", "sh", "-c", "\"$0\" crash 2; true",
                                CALLS,     NULL};
    char *out, *err;
    begin();
    for (int i = 0; i < 3; i++) {
        run(argv, NULL, &out, &err);
        CHECK_MSG(!strcmp(out, i < 2 ? REPLACED : ORIGINAL), "%d: answers %s, said %s", i, out, err);
    }
    CHECK(strstr(err, HELD));
}

static void bans_follow_and_policy_from_the_environment(void)
{
    char path[300], *err;
    begin();
    CHECK_STR(answers(REPLACED, "KFIT_ALLOW=seed:*, person:test"), "");
    clear();
    CHECK_STR(answers(ORIGINAL, "KFIT_ALLOW=seed:*"), "");
    err = answers(ORIGINAL, "KFIT_ALLOW=per*son");
    CHECK_MSG(strstr(err, "a * can only be its last character"), "said: %s", err);
    /* the program's OpenBLAS gives its version, the generation was made for "OpenBLAS": stale */
    CHECK_STR(answers(ORIGINAL, "KFIT_STRICT=1"), "");
    CHECK_STR(answers(REPLACED, "KFIT_STRICT=0"), "");
    clear();
    err = answers(ORIGINAL, "KFIT_STRICT=maybe");
    CHECK_MSG(strstr(err, "KFIT_STRICT=maybe is neither 0 nor 1; taken as 1"), "said: %s", err);
    err = answers(REPLACED, "KFIT_FOLLOW=perhaps");
    CHECK_MSG(strstr(err, "taken as 0"), "said: %s", err);
    clear();
    err = answers(ORIGINAL, "KFIT_GENERATION=7");
    CHECK_MSG(strstr(err, "pinned to generation 7: "), "said: %s", err);
    snprintf(path, sizeof path, "%s/bans", state_dir);
    kfit_test_write(path, square_text, strlen(square_text));
    CHECK_STR(answers(ORIGINAL, NULL), "");
    kfit_test_write(path, "# none\n", 7);
    CHECK_STR(answers(REPLACED, NULL), "");
}

/* A server that follows takes over what changed when it is asked, and not before. */
static void a_live_server_follows(void)
{
    struct kfit_error err = {""};
    char path[300], trace[800], command[400], *out;
    begin();
    putenv(state_env);
    putenv("KFIT_FOLLOW=1");
    struct server s = start_server();
    CHECK_STR(ask_server(&s), "42\n");
    snprintf(command, sizeof command, "printf %%s %s/*.kft", trace_dir);
    CHECK_INT(kfit_test_run((const char *[]){"sh", "-c", command, NULL}, NULL, &out, NULL), 0);
    snprintf(trace, sizeof trace, "%s", out);
    snprintf(path, sizeof path, "%s/bans", state_dir);
    kfit_test_write(path, square_text, strlen(square_text));
    CHECK_STR(ask_server(&s), "42\n");
    CHECK_OK(kfit_trace_set_control(trace, KFIT_CONTROL_RELOAD, &err), err);
    CHECK_STR(ask_server(&s), "42\n"); /* the call that loads */
    CHECK_STR(ask_server(&s), "0.390625\n");
    CHECK_INT(files("run-"), 0); /* a process that runs nothing of it is not its crash */
    CHECK(!unlink(path));
    publish();
    CHECK_OK(kfit_trace_set_control(trace, KFIT_CONTROL_RELOAD, &err), err);
    CHECK_STR(ask_server(&s), "0.390625\n");
    CHECK_STR(ask_server(&s), "42\n");
    CHECK_INT(files("run-"), 1);
    CHECK_INT(kfit_trace_header(trace_only(trace_dir))->generation, 2);
    close(s.to);
    int st;
    CHECK(waitpid(s.pid, &st, 0) == s.pid && WIFEXITED(st));
    CHECK_INT(files("run-"), 0);
}

/* ---- what may befall the directory ---- */

static void nobody_asked_nobody_is_told(void)
{
    char xdg[250], nowhere[] = "KFIT_STATE=";
    begin();
    snprintf(state_env, sizeof state_env, "%s", nowhere); /* as good as unset */
    CHECK_STR(answers(REPLACED, "XDG_STATE_HOME=/proc/none"), "");
    snprintf(xdg, sizeof xdg, "XDG_STATE_HOME=%s/xdg", kfit_test_dir());
    CHECK_STR(answers(REPLACED, xdg), "");
    snprintf(state_dir, sizeof state_dir, "%s/xdg/kfit", kfit_test_dir());
    CHECK_INT(files("run-"), 1);
    for (int i = 0; i < 3; i++)
        CHECK_STR(answers(REPLACED, "KFIT_STATE=/dev/null"), "");
    CHECK_INT(files(""), 1);
}

static void directories_that_cannot_be(void)
{
    static const char *const dirs[] = {"/dev/zero", "/proc/none", "/dev/null/no"};
    begin();
    for (unsigned i = 0; i < 3; i++) {
        snprintf(state_env, sizeof state_env, "KFIT_STATE=%s", dirs[i]);
        char *err = answers(REPLACED, NULL);
        CHECK_MSG(strstr(err, dirs[i]) && strstr(err, "crashes may not be remembered"), "said: %s", err);
    }
}

/* The script gets the directory as $0; what it execs is the program. */
static char *behind(const char *script, const char *want)
{
    const char *const argv[] = {"unshare", "-rm", "sh", "-c", script, state_dir, CALLS, "crash", "2", NULL};
    char *out, *err;
    int rc = run(argv, NULL, &out, &err);
    CHECK_MSG(rc == 128 + SIGKILL && !strcmp(out, want), "status %d, answers %s, said: %s", rc, out, err);
    return err;
}

static void full_and_read_only(void)
{
    begin();
    CHECK(!mkdir(state_dir, 0700));
    char *err = behind("mount -t tmpfs -o size=8k,mode=700 kfit \"$0\" || exit 99; "
                       "head -c 9000 /dev/zero >\"$0\"/x 2>/dev/null; exec \"$@\"",
                       REPLACED);
    CHECK_MSG(strstr(err, "No space") && strchr(err, '\n')[1] == '\0', "said: %s", err);
    static const char read_only[] =
        "mount --bind \"$0\" \"$0\" && mount -o remount,bind,ro \"$0\" || exit 99; "
        "exec \"$@\"";
    err = behind(read_only, REPLACED);
    CHECK_MSG(strstr(err, "Read-only") && strchr(err, '\n')[1] == '\0', "said: %s", err);
    /* ends count also where nothing can be written */
    crashes(NULL);
    behind(read_only, REPLACED);
    crashes(NULL);
    err = behind(read_only, ORIGINAL);
    CHECK_MSG(strstr(err, HELD), "said: %s", err);
}

static void other_users(void)
{
    static const char *const as_nobody[] = {"setpriv", "--reuid=65534", "--clear-groups", CALLS, "crash", "2",
                                            NULL};
    char *out, *err, command[900];
    if (geteuid())
        SKIP("needs root to be other users");
    begin();
    crashes(NULL);
    CHECK(!chown(trace_dir, 65534, 65534));
    open_to_others();
    snprintf(command, sizeof command, "chmod -R a+rX %s && chmod 755 %s", kfit_test_dir(), state_dir);
    CHECK_INT(kfit_test_run((const char *[]){"sh", "-c", command, NULL}, NULL, NULL, NULL), 0);
    CHECK_INT(run(as_nobody, NULL, &out, &err), 128 + SIGKILL); /* root's: to be read */
    CHECK_MSG(!strcmp(out, REPLACED) && strstr(err, "Permission denied"), "answers %s, said: %s", out, err);
    CHECK(!chown(state_dir, 1, 1));
    CHECK_INT(run(as_nobody, NULL, &out, &err), 128 + SIGKILL);
    CHECK_MSG(!strcmp(out, REPLACED) && strstr(err, "belongs to uid 1"), "answers %s, said: %s", out, err);
    CHECK_INT(files("run-"), 1);
}

static const struct kfit_test tests[] = {
    TEST(the_third_start_only_records),
    TEST(other_signals_count_as_well),
    TEST(what_is_no_crash),
    TEST(a_guest_leaves_errno_and_descriptors),
    TEST(seen_from_another_pid_namespace),
    TEST(bans_follow_and_policy_from_the_environment),
    TEST(a_live_server_follows),
    TEST(nobody_asked_nobody_is_told),
    TEST(directories_that_cannot_be),
    TEST(full_and_read_only),
    TEST(other_users),
};
TEST_MAIN(tests)
