/* Published kernels in real programs. */
#include <sys/wait.h>
#include <unistd.h>

#include "kfit/reason.h"
#include "published.h"

/* Runs calls.c and returns the only trace. */
static struct kfit_trace *run(char **out, const char *extra, const char *const argv[])
{
    char *err;
    if (!cache_env[0])
        publish();
    run_shimmed(argv, trace_dir, (const char *[]){cache_env, extra, NULL}, out, &err);
    CHECK_STR(err, "");
    return trace_only(trace_dir);
}

/* ---- cases ---- */

static void a_published_kernel_runs(void)
{
    char *out;
    struct kfit_trace *t = run(&out, NULL, CALLS_ARGV("step", "5"));
    CHECK_STR(out, "42\n42\n42\n42\n42\n");
    CHECK_INT(trace_calls_of(t, square_text, KFIT_REASON_NONE), 5);
    CHECK_INT(trace_calls(t), 5);
    CHECK_INT(kfit_trace_header(t)->generation, 1);
    CHECK_INT(kfit_trace_header(t)->state_reason, KFIT_REASON_NONE);
}

static void only_the_exact_key_runs_it(void)
{
    char *out, *bare;
    struct kfit_trace *t = run(&out, NULL, CALLS_ARGV("keys"));
    CHECK_INT(
        kfit_test_run(CALLS_ARGV("keys"), (const char *[]){"OPENBLAS_NUM_THREADS=1", NULL}, &bare, NULL), 0);
    CHECK_STR(out, bare); /* results, errno, open files */
    for (size_t i = 0; i < kfit_trace_count(t); i++)
        CHECK_INT(kfit_trace_at(t, i)->count[KFIT_REASON_NO_RECORD], kfit_slot_calls(kfit_trace_at(t, i)));
}

static void a_generation_by_number(void)
{
    char *out;
    publish();
    publish(); /* the second is current */
    CHECK_INT(kfit_trace_header(run(&out, "KFIT_GENERATION=1", CALLS_ARGV("step", "1")))->generation, 1);
    CHECK_STR(out, "42\n");
    snprintf(trace_dir, sizeof trace_dir, "%s/second", kfit_test_dir());
    CHECK_INT(kfit_trace_header(run(&out, NULL, CALLS_ARGV("step", "1")))->generation, 2);
}

static void recording_only_runs_nothing(void)
{
    char *out;
    struct kfit_trace *t = run(&out, "KFIT_MODE=record", CALLS_ARGV("step", "2"));
    CHECK_STR(out, "0.390625\n0.390625\n");
    CHECK_INT(trace_calls_of(t, square_text, KFIT_REASON_OFF), 2);
}

static void a_banned_key_does_not_run(void)
{
    char ban[600], *out;
    snprintf(ban, sizeof ban, "KFIT_BAN=%s\n%s", row_text, square_text);
    struct kfit_trace *t = run(&out, ban, CALLS_ARGV("step", "2"));
    CHECK_STR(out, "0.390625\n0.390625\n");
    CHECK_INT(trace_calls_of(t, square_text, KFIT_REASON_BANNED), 2);
}

static void another_alpha_is_never_substituted(void)
{
    char *out;
    struct kfit_trace *t = run(&out, NULL, CALLS_ARGV("alpha", "2"));
    CHECK_STR(out, "0.78125\n");
    CHECK_INT(trace_calls(t), 1);
    CHECK_INT(kfit_trace_at(t, 0)->count[KFIT_REASON_FLAGS], 1);
}

/* The kernel was measured against one thread; with two the original may be faster. */
static void another_thread_count_means_the_original(void)
{
    char *out;
    struct kfit_trace *t = run(&out, NULL, CALLS_ARGV("set-threads", "3"));
    CHECK_STR(out, "42\n42\n42\n0.390625\n0.390625\n0.390625\n42\n42\n42\n");
    CHECK_INT(trace_calls_of(t, square_text, KFIT_REASON_NONE), 6);
    CHECK_INT(trace_calls_of(t, square_text, KFIT_REASON_THREADS), 3);
}

static void threadpoolctl_is_seen(void)
{
    static const char program[] =
        "import numpy as np, threadpoolctl\n"
        "buf = np.zeros(4096, np.float32); at = -buf.ctypes.data % 64 // 4\n"
        "x = buf[at:at + 8].reshape(1, 8); w = buf[at + 64:at + 192].reshape(8, 16)\n"
        "y = buf[at + 512:at + 528].reshape(1, 16)\n"
        "def go(): y[:] = 0; np.matmul(x, w, out=y); print(y[0, 0], y[0, 15])\n"
        "go()\n"
        "with threadpoolctl.threadpool_limits(2): go()\n"
        "go()\n";
    const char *const argv[] = {"/usr/bin/python3", "-c", program, NULL};
    char *out, *err;
    if (kfit_test_run((const char *[]){argv[0], "-c", "import numpy, threadpoolctl", NULL}, NULL, NULL, &err))
        SKIP("no numpy or threadpoolctl for %s: %s", argv[0], err);
    struct kfit_trace *t = run(&out, NULL, argv);
    CHECK_STR(out, "42.0 42.0\n0.0 0.0\n42.0 42.0\n");
    CHECK_INT(trace_calls_of(t, row_text, KFIT_REASON_NONE), 2);
    CHECK_INT(trace_calls_of(t, row_text, KFIT_REASON_THREADS), 1);
}

static void off_works_within_one_call(void)
{
    publish();
    struct server server = start_server();
    int st;
    static const struct {
        enum kfit_control before;
        const char *answer;
    } steps[] = {{KFIT_CONTROL_RUN, "42\n"}, {KFIT_CONTROL_OFF, "0.390625\n"}, {KFIT_CONTROL_RUN, "42\n"}};
    struct kfit_error err = {""};
    char path[800] = "", *out;
    for (int i = 0; i < 3; i++) {
        if (i)
            CHECK_OK(kfit_trace_set_control(path, steps[i].before, &err), err);
        CHECK_STR(ask_server(&server), steps[i].answer);
        if (!i) {
            char command[400];
            snprintf(command, sizeof command, "printf %%s %s/*.kft", trace_dir);
            CHECK_INT(kfit_test_run((const char *[]){"sh", "-c", command, NULL}, NULL, &out, NULL), 0);
            snprintf(path, sizeof path, "%s", out);
        }
    }
    close(server.to);
    CHECK(waitpid(server.pid, &st, 0) == server.pid && st == 0);
    struct kfit_trace *t = trace_only(trace_dir);
    CHECK_INT(trace_calls_of(t, square_text, KFIT_REASON_NONE), 2);
    CHECK_INT(trace_calls_of(t, square_text, KFIT_REASON_OFF), 1);
}

static void check_children(const char *dir, const char *children, const char *delay_us)
{
    char *out, *err;
    run_shimmed(CALLS_ARGV("fork", children, "3", delay_us), dir, (const char *[]){cache_env, NULL}, &out, &err);
    CHECK_STR(err, "");
    struct kfit_trace *t[TRACES_MAX];
    size_t n = traces_read(dir, t);
    CHECK_INT(n, atoi(children) + 1);
    CHECK_MSG(!strchr(out, ':'), "%s us: %s", delay_us, out); /* "child N: status" */
    int seen = 0, pid;
    char *save;
    for (char *line = strtok_r(out, "\n", &save); line; line = strtok_r(NULL, "\n", &save), seen++) {
        CHECK_INT(sscanf(line, "child %d", &pid), 1);
        const struct kfit_trace *child = trace_of_pid(t, n, pid);
        CHECK(child && kfit_trace_header(child)->generation == 1);
        CHECK_INT(trace_calls_of(child, square_text, KFIT_REASON_NONE), 3);
        CHECK_INT(trace_calls(child), 3);
    }
    CHECK_INT(seen, atoi(children));
}

static void forked_children_go_on_dispatching(void)
{
    publish();
    check_children(trace_dir, "4", "20000");
}

/* While another thread starts, and has the linker half-way in a library. Some delays hit it. */
static void a_fork_in_the_middle_of_the_start(void)
{
    publish();
    for (int us = 0; us < 6000; us += 50) {
        char dir[300], delay[16];
        snprintf(dir, sizeof dir, "%s/%d", kfit_test_dir(), us);
        snprintf(delay, sizeof delay, "%d", us);
        check_children(dir, "1", delay);
    }
}

static void a_generation_for_another_thread_count(void)
{
    char *out, *err;
    publish_for(2); /* and not a program with two: on a machine with one processor OpenBLAS starts one */
    run_shimmed(CALLS_ARGV("step", "2"), trace_dir,
                (const char *[]){cache_env, "OPENBLAS_NUM_THREADS=1", NULL}, &out, &err);
    struct kfit_trace *t = trace_only(trace_dir);
    CHECK_MSG(strstr(err, "threads=1;") && strstr(err, "threads=2;"), "said: %s", err);
    CHECK_STR(out, "0.390625\n0.390625\n");
    CHECK_INT(trace_calls_of(t, square_text, KFIT_REASON_NONE), 0);
    CHECK_INT(trace_calls(t), 2);
}

static const struct kfit_test tests[] = {
    TEST(a_published_kernel_runs),
    TEST(only_the_exact_key_runs_it),
    TEST(a_generation_by_number),
    TEST(recording_only_runs_nothing),
    TEST(a_banned_key_does_not_run),
    TEST(another_alpha_is_never_substituted),
    TEST(another_thread_count_means_the_original),
    TEST(threadpoolctl_is_seen),
    TEST(off_works_within_one_call),
    TEST(forked_children_go_on_dispatching),
    TEST(a_fork_in_the_middle_of_the_start),
    TEST(a_generation_for_another_thread_count),
};
TEST_MAIN(tests)
