/* A guest in the process: whatever the environment or the machine is like, the program's answers are its own,
 * and it hears one line at most. */
#include <dirent.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "traces.h"
#include "kfit/reason.h"

static const char *const keys[] = {CALLS, "keys", NULL};

static char *bare(void)
{
    char *out;
    CHECK_INT(kfit_test_run(keys, (const char *[]){"OPENBLAS_NUM_THREADS=1", NULL}, &out, NULL), 0);
    return out;
}

/* The program under the shim with this environment: right answers; returns what was said to stderr. */
static char *said(const char *trace_dir, const char *const extra[])
{
    char *out, *err;
    run_shimmed(keys, trace_dir, extra, &out, &err);
    CHECK_STR(out, bare());
    const char *newline = strchr(err, '\n');
    CHECK_MSG(!*err || (!strncmp(err, "kfit: ", 6) && newline && !newline[1]), "said: %s", err);
    return err;
}

#define SAID(dir, ...) said(dir, (const char *[]){__VA_ARGS__, NULL})

static int entries(const char *dir)
{
    DIR *d = opendir(dir);
    int n = 0;
    for (struct dirent *e; d && (e = readdir(d));)
        n += e->d_name[0] != '.';
    if (d)
        closedir(d);
    return n;
}

static void nothing_asked_nothing_done(void)
{
    char home[300], run[300];
    snprintf(home, sizeof home, "HOME=%s", kfit_test_dir());
    snprintf(run, sizeof run, "XDG_RUNTIME_DIR=%s", kfit_test_dir());
    CHECK_STR(SAID(NULL, home, run), "");
    char kfit[300];
    snprintf(kfit, sizeof kfit, "%s/kfit", kfit_test_dir());
    CHECK(access(kfit, F_OK));
}

static void off_by_mode(void)
{
    CHECK_STR(SAID(kfit_test_dir(), "KFIT_MODE=off"), "");
    struct kfit_trace *t[TRACES_MAX];
    CHECK_INT(traces_read(kfit_test_dir(), t), 0);
}

static void record_by_mode_into_the_default_directory(void)
{
    char run[300], dir[300];
    snprintf(run, sizeof run, "XDG_RUNTIME_DIR=%s", kfit_test_dir());
    snprintf(dir, sizeof dir, "%s/kfit", kfit_test_dir());
    CHECK_STR(SAID(NULL, "KFIT_MODE=record", run), "");
    CHECK(trace_calls(trace_only(dir)) > 0);
}

static void a_mode_that_is_none(void)
{
    char *err = SAID(kfit_test_dir(), "KFIT_MODE=recrod");
    CHECK_MSG(strstr(err, "KFIT_MODE=recrod") && strstr(err, "off, record, dispatch, both"), "said: %s", err);
}

static void log_levels(void)
{
    char *err, *out;
    CHECK_STR(SAID("/dev/null/no", "KFIT_LOG=none"), "");
    CHECK_STR(SAID("/dev/null/no", "KFIT_LOG=error"), "");
    CHECK(strstr(SAID("/dev/null/no", "KFIT_LOG=loud"), "KFIT_LOG=loud"));
    run_shimmed(keys, kfit_test_dir(), (const char *[]){"KFIT_LOG=debug", NULL}, &out, &err);
    CHECK_STR(out, bare());
    CHECK(strstr(err, "kfit: "));
}

/* A warning to a pipe without a reader would end most programs. */
static void nobody_listens(void)
{
    int p[2], st;
    CHECK(!pipe(p) && !close(p[0]));
    pid_t pid = fork();
    if (!pid) {
        signal(SIGPIPE, SIG_DFL);
        dup2(p[1], 2);
        putenv("LD_PRELOAD=" SHIM), putenv("KFIT_TRACE=/dev/null/no");
        execl(CALLS, CALLS, "loop", "1", NULL);
        _exit(127);
    }
    CHECK(waitpid(pid, &st, 0) == pid);
    CHECK_INT(st, 0);
}

static void trace_directories_that_cannot_be(void)
{
    char file[300], open_dir[300], deep[300];
    snprintf(file, sizeof file, "%s/file", kfit_test_dir());
    snprintf(open_dir, sizeof open_dir, "%s/open", kfit_test_dir());
    snprintf(deep, sizeof deep, "%s/none/none", kfit_test_dir());
    kfit_test_write(file, "", 0);
    CHECK(!mkdir(open_dir, 0700) && !chmod(open_dir, 0777));
    const char *const dirs[] = {file, open_dir, deep, "/dev/null/no", "/proc/kfit", ""};
    for (unsigned i = 0; i < 5; i++) {
        char *err = SAID(dirs[i], "X=");
        CHECK_MSG(strstr(err, dirs[i]), "KFIT_TRACE=%s, said: %s", dirs[i], err);
    }
    CHECK_STR(SAID(dirs[5], "X="), ""); /* empty is unset */
    CHECK_INT(entries(open_dir), 0);
}

static void a_full_disk(void)
{
    char script[600], *out, *err;
    snprintf(script, sizeof script,
             "mount -t tmpfs -o size=64k,mode=700 kfit %s || exit 99; LD_PRELOAD=%s OPENBLAS_NUM_THREADS=1 "
             "KFIT_TRACE=%s %s keys",
             kfit_test_dir(), SHIM, kfit_test_dir(), CALLS);
    int rc = kfit_test_run((const char *[]){"unshare", "-rm", "sh", "-c", script, NULL}, NULL, &out, &err);
    if (rc == 99 || rc == 127 || strstr(err, "unshare"))
        SKIP("no private mount here: %s", err);
    CHECK_INT(rc, 0);
    CHECK_STR(out, bare());
    CHECK_MSG(strstr(err, "no room") && strchr(err, '\n')[1] == '\0', "said: %s", err);
}

static void caches_that_cannot_be(void)
{
    char dir[300], path[400], cache[400];
    snprintf(dir, sizeof dir, "%s/cache", kfit_test_dir());
    CHECK(!mkdir(dir, 0700));
    snprintf(cache, sizeof cache, "KFIT_CACHE=%s", dir);
    CHECK(*SAID(kfit_test_dir(), "KFIT_CACHE=/dev/null"));
    CHECK(*SAID(kfit_test_dir(), "KFIT_CACHE=/none/none"));
    CHECK(*SAID(kfit_test_dir(), cache)); /* nothing published */
    snprintf(path, sizeof path, "%s/current", dir);
    kfit_test_write(path, "nonsense\n", 9);
    CHECK(*SAID(kfit_test_dir(), cache));
    kfit_test_write(path, "1 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\n", 67);
    CHECK(*SAID(kfit_test_dir(), cache));
    snprintf(path, sizeof path, "%s/generations", dir);
    CHECK(!mkdir(path, 0700));
    snprintf(path, sizeof path, "%s/generations/1.mdb", dir);
    char garbage[8192];
    for (size_t i = 0; i < sizeof garbage; i++)
        garbage[i] = (char)kfit_test_random();
    kfit_test_write(path, garbage, sizeof garbage);
    CHECK(*SAID(kfit_test_dir(), cache));
    CHECK(*SAID(kfit_test_dir(), cache, "KFIT_GENERATION=../../etc/passwd"));
    CHECK(*SAID(kfit_test_dir(), cache, "KFIT_GENERATION=1", "KFIT_BAN=nonsense gemm/"));
}

/* Every shell and compiler that a server starts loads the shim as well. */
static void helper_programs_notice_nothing(void)
{
    static const struct {
        const char *const argv[4];
        const char *out;
    } programs[] = {
        {{"/bin/true"}, ""},
        {{"sh", "-c", "echo a; true | cat"}, "a\n"},
        {{"awk", "BEGIN { print 2 + 3 }"}, "5\n"},
    };
    char *out, *err;
    for (unsigned i = 0; i < 3; i++) {
        run_shimmed(programs[i].argv, kfit_test_dir(), (const char *[]){"KFIT_LOG=debug", NULL}, &out, &err);
        CHECK_STR(out, programs[i].out);
        CHECK_STR(err, "");
    }
    struct kfit_trace *t[TRACES_MAX];
    CHECK_INT(traces_read(kfit_test_dir(), t), 0);
}

/* A program without any BLAS: c = 2 a b + c; y backwards in steps of two, x backwards. */
static void a_function_that_exists_nowhere_else(void)
{
    char *out, *err;
    CHECK_INT(kfit_test_run((const char *[]){WEAK, NULL}, NULL, &out, NULL), 0);
    CHECK_STR(out, "none\n");
    run_shimmed((const char *[]){WEAK, NULL}, kfit_test_dir(), NULL, &out, &err);
    CHECK_STR(out, "11 23 29 47\n493 -1 271\n");
    CHECK_STR(err, "");
}

/* No thread, no socket, no signal. */
static void the_program_makes_no_thread_or_socket(void)
{
    char log[300], e1[400], *out, *err;
    snprintf(log, sizeof log, "%s/strace", kfit_test_dir());
    snprintf(e1, sizeof e1, "--env=LD_PRELOAD=%s", SHIM);
    const char *const argv[] = {
        "strace", "-f",  "-o",   log, "-e", "trace=clone,clone3,socket,exit,exit_group,kill,tgkill",
        e1,       CALLS, "loop", "5", NULL};
    char trace[300];
    snprintf(trace, sizeof trace, "KFIT_TRACE=%s/t", kfit_test_dir());
    int rc = kfit_test_run(argv, (const char *[]){"OPENBLAS_NUM_THREADS=1", trace, NULL}, &out, &err);
    if (rc == 127 || strstr(err, "ptrace"))
        SKIP("no strace here: %s", err);
    CHECK_INT(rc, 0);
    char *text = kfit_test_read(log, NULL);
    CHECK_MSG(!strstr(text, "clone") && !strstr(text, "socket") && !strstr(text, "kill"), "%s", text);
    char dir[300];
    snprintf(dir, sizeof dir, "%s/t", kfit_test_dir());
    CHECK_INT(trace_calls(trace_only(dir)), 5);
}

static const struct kfit_test tests[] = {
    TEST(nothing_asked_nothing_done),
    TEST(off_by_mode),
    TEST(record_by_mode_into_the_default_directory),
    TEST(a_mode_that_is_none),
    TEST(log_levels),
    TEST(nobody_listens),
    TEST(trace_directories_that_cannot_be),
    TEST(a_full_disk),
    TEST(caches_that_cannot_be),
    TEST(helper_programs_notice_nothing),
    TEST(a_function_that_exists_nowhere_else),
    TEST(the_program_makes_no_thread_or_socket),
};
TEST_MAIN(tests)
