/* The shim's code linked into the program that calls, so that sanitizers see it at work: here, and not in the
 * other tests of the shim, the build may be an instrumented one. */
#include <sys/stat.h>
#include <unistd.h>

#include "traces.h"
#include "kfit/reason.h"

static struct kfit_trace *run(const char *const argv[], char **out)
{
    char trace[400], *o, *err;
    snprintf(trace, sizeof trace, "KFIT_TRACE=%s/t", kfit_test_dir());
    int rc = kfit_test_run(
        argv, (const char *[]){"OPENBLAS_NUM_THREADS=1", "KFIT_MODE", "KFIT_CACHE", trace, NULL}, &o, &err);
    CHECK_MSG(rc == 0, "status %d: %s", rc, err);
    *out = o;
    snprintf(trace, sizeof trace, "%s/t", kfit_test_dir());
    return trace_only(trace);
}

static void same_results(const char *what, uint64_t calls)
{
    char *linked, *plain;
    struct kfit_trace *t = run((const char *[]){LINKED, what, NULL}, &linked);
    CHECK_INT(kfit_test_run((const char *[]){CALLS, what, NULL},
                            (const char *[]){"OPENBLAS_NUM_THREADS=1", NULL}, &plain, NULL),
              0);
    CHECK_STR(linked, plain);
    CHECK_INT(trace_calls(t), calls);
}

static void every_form(void)
{
    same_results("keys", 180);
}

static void odd_calls(void)
{
    same_results("odd", 10);
}

static void threads(void)
{
    char *out;
    CHECK_INT(trace_calls(run((const char *[]){LINKED, "threads", "8", "2000", NULL}, &out)), 8 * 2000);
}

/* A setuid program takes no orders from its caller's environment. The same file without the bit does. */
static void a_setuid_program_ignores_the_environment(void)
{
    char copy[300], dir[300], trace[400], *err, *text;
    size_t bytes;
    if (geteuid())
        SKIP("needs root to make a setuid program");
    snprintf(copy, sizeof copy, "%s/calls", kfit_test_dir());
    snprintf(dir, sizeof dir, "%s/trace", kfit_test_dir());
    snprintf(trace, sizeof trace, "KFIT_TRACE=%s", dir);
    text = kfit_test_read(LINKED, &bytes);
    kfit_test_write(copy, text, bytes);
    CHECK(!chmod(kfit_test_dir(), 0755) && !mkdir(dir, 0700));
    for (int setuid = 1; setuid >= 0; setuid--) {
        struct kfit_trace *t[TRACES_MAX];
        CHECK(!chown(copy, 1, 0) && !chmod(copy, setuid ? 04755 : 0755) &&
              !chown(dir, setuid ? 1 : 65534, 0));
        int rc = kfit_test_run(
            (const char *[]){"setpriv", "--reuid=65534", "--clear-groups", copy, "loop", "1", NULL},
            (const char *[]){trace, "KFIT_LOG=debug", NULL}, NULL, &err);
        if (rc == 127)
            SKIP("no setpriv: %s", err);
        CHECK_MSG(rc == 0, "status %d: %s", rc, err);
        CHECK_MSG((*err == 0) == setuid, "said: %s", err);
        CHECK_INT(traces_read(dir, t), !setuid);
    }
}

static const struct kfit_test tests[] = {
    TEST(every_form),
    TEST(odd_calls),
    TEST(threads),
    TEST(a_setuid_program_ignores_the_environment),
};
TEST_MAIN(tests)
