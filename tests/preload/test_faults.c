/* What may befall a cache, a trace or a server. Each time: the program's answers are right, one line says what is
 * wrong with which file, and nothing is lost but what was being done. */
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kfit/reason.h"
#include "published.h"

#define MULTIPLIED "0.390625\n0.390625\n"
#define REPLACED   "42\n42\n"

/* In the cache directory. */
static void shell(const char *command)
{
    char *err, *full;
    CHECK(asprintf(&full, "cd %s && %s", cache_env + strlen("KFIT_CACHE="), command) > 0);
    CHECK_MSG(!kfit_test_run((const char *[]){"sh", "-c", full, NULL}, NULL, NULL, &err), "%s: %s", command,
              err);
    free(full);
}

/* Runs the program under the shim with `before` in front of it; SKIPs where that is not to be had. */
static char *run_behind(const char *const before[], const char *expected)
{
    char trace[400], *out, *err;
    const char *argv[16];
    size_t n = 0;
    while (before[n])
        argv[n] = before[n], n++;
    memcpy(argv + n, CALLS_ARGV("step", "2"), 4 * sizeof *argv);
    snprintf(trace, sizeof trace, "KFIT_TRACE=%s", trace_dir);
    const char *const env[] = {trace, cache_env, preload_env, "OPENBLAS_NUM_THREADS=1", NULL};
    int rc = kfit_test_run(argv, env, &out, &err);
    if (rc == 99 || rc == 127 || strstr(err, "unshare: ") || strstr(err, "setpriv: "))
        SKIP("%s is not to be had here: %s", before[0], err);
    CHECK_MSG(rc == 0, "status %d: %s", rc, err);
    CHECK_MSG(!strcmp(out, expected), "answers %s, said %s", out, err);
    return err;
}

static void damaged_generations_mean_the_original(void)
{
    static const struct {
        const char *damage, *named;
    } table[] = {
        {"truncate -s 5000 generations/1.mdb", "1.mdb"},
        {"truncate -s 0 generations/1.mdb", "1.mdb"},
        {"printf '\\377' | dd of=generations/1.mdb bs=1 seek=9000 conv=notrunc 2>/dev/null", "1.mdb"},
        {"head -c $(stat -c %s generations/1.mdb) /bin/sh >x && cat x >generations/1.mdb", "1.mdb"},
        {"chmod 666 generations/1.mdb", "1.mdb"},
        {"chmod 777 generations", "generations"},
        {"chmod 777 .", "cache"},
        {"rm generations/1.mdb", "1.mdb"},
        {"rm generations/1.mdb && mkfifo generations/1.mdb", "1.mdb"},
        {"ln -f generations/1.mdb x && ln -sf ../x generations/1.mdb", "1.mdb"},
        {"sed -i 's/\"kfit_generation\": 1/\"kfit_generation\": 2/' generations/1.json", "1.json"},
        {"sed -i 's/\"lmdb_format\": 1/\"lmdb_format\": 2/' generations/1.json", "1.json"},
        {"truncate -s 40 generations/1.json", "1.json"},
        {"rm generations/1.json", "1.json"},
        {"echo nonsense >current", "current"},
        {"echo 7 $(cut -d' ' -f2 current) >current", "7"},
        {"truncate -s 0 current", "current"},
        {"rm current && mkdir current", "current"},
    };
    publish();
    char root[300];
    snprintf(root, sizeof root, "%.250s", cache_env + strlen("KFIT_CACHE="));
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        char *out, *err, copy[600];
        snprintf(copy, sizeof copy, "cp -a . ../cache%zu", i);
        snprintf(cache_env, sizeof cache_env, "KFIT_CACHE=%s", root);
        shell(copy);
        snprintf(cache_env, sizeof cache_env, "KFIT_CACHE=%.250s%zu", root, i);
        snprintf(trace_dir, sizeof trace_dir, "%.200s/trace%zu", kfit_test_dir(), i);
        shell(table[i].damage);
        run_shimmed(CALLS_ARGV("step", "2"), trace_dir, (const char *[]){cache_env, NULL}, &out, &err);
        CHECK_MSG(!strcmp(out, MULTIPLIED), "%s: %s", table[i].damage, out);
        const char *newline = strchr(err, '\n');
        CHECK_MSG(!strncmp(err, "kfit: ", 6) && strstr(err, table[i].named) && newline && !newline[1],
                  "%s, said: %s", table[i].damage, err);
        struct kfit_trace *t = trace_only(trace_dir);
        CHECK_INT(trace_calls_of(t, square_text, KFIT_REASON_COUNT), 2);
        CHECK_INT(trace_calls_of(t, square_text, KFIT_REASON_NONE), 0);
        CHECK_MSG(kfit_trace_header(t)->state_text[0], "%s: no state", table[i].damage);
        kfit_trace_destroy(t);
    }
}

/* The file is root's or another user's; the program runs as nobody. */
static void other_users(void)
{
    static const char *const as_nobody[] = {"setpriv", "--reuid=65534", "--clear-groups", NULL};
    char *err;
    if (geteuid())
        SKIP("needs root to be other users");
    publish();
    CHECK(!mkdir(trace_dir, 0700) && !chown(trace_dir, 65534, 65534));
    open_to_others();
    CHECK_STR(run_behind(as_nobody, REPLACED), ""); /* root may publish for everybody */
    shell("chmod 600 generations/1.mdb");
    CHECK(strstr(run_behind(as_nobody, MULTIPLIED), "1.mdb"));
    shell("chmod 644 generations/1.mdb && chown 1 generations/1.mdb");
    CHECK(strstr(err = run_behind(as_nobody, MULTIPLIED), "1.mdb"));
    shell("chown 0 generations/1.mdb && chown 1 .");
    CHECK(strstr(run_behind(as_nobody, MULTIPLIED), "cache"));
    CHECK(!chown(trace_dir, 1, 1));
    shell("chown 0 .");
    CHECK(strstr(run_behind(as_nobody, REPLACED), trace_dir)); /* counted in memory only */
}

static void read_only_mounts(void)
{
    char script[900], *err;
    struct kfit_trace *t[TRACES_MAX];
    publish();
    CHECK(!mkdir(trace_dir, 0700));
    snprintf(script, sizeof script,
             "mount --bind \"$0\" \"$0\" && mount -o remount,bind,ro \"$0\" || exit 99; exec \"$@\"");
    const char *const cache[] = {"unshare", "-rm", "sh", "-c", script, cache_env + strlen("KFIT_CACHE="),
                                 NULL};
    CHECK_STR(run_behind(cache, REPLACED), "");
    CHECK_INT(traces_read(trace_dir, t), 1);
    const char *const trace[] = {"unshare", "-rm", "sh", "-c", script, trace_dir, NULL};
    err = run_behind(trace, REPLACED);
    CHECK_MSG(strstr(err, trace_dir), "said: %s", err);
    CHECK_INT(traces_read(trace_dir, t), 1);
}

/* Both are process 1 of their namespace, share cache and trace directory, and know nothing of each other. */
static void two_pid_namespaces(void)
{
    static const char script[] = "unshare -rpf --kill-child \"$0\" \"$@\" & first=$!; "
                                 "unshare -rpf --kill-child \"$0\" \"$@\" && wait $first";
    struct kfit_trace *t[TRACES_MAX];
    publish();
    CHECK_STR(run_behind((const char *[]){"sh", "-c", script, NULL}, REPLACED REPLACED), "");
    CHECK_INT(traces_read(trace_dir, t), 2);
    for (int i = 0; i < 2; i++)
        CHECK_INT(trace_calls_of(t[i], square_text, KFIT_REASON_NONE), 2);
}

/* A server that is asked once per line, and is killed; its cache and its trace are removed under its feet. */
static void removed_while_in_use_and_killed(void)
{
    char trace[400], *err;
    int st;
    publish();
    struct server server = start_server();
    for (int i = 0; i < 4; i++) {
        CHECK_STR(ask_server(&server), "42\n");
        if (i == 0)
            shell("rm -r generations current");
        if (i == 1) {
            CHECK(!kfit_test_run(
                (const char *[]){"cp", "-r", trace_dir, cache_env + strlen("KFIT_CACHE="), NULL}, NULL, NULL,
                &err));
            CHECK(!kfit_test_run((const char *[]){"rm", "-r", trace_dir, NULL}, NULL, NULL, &err));
        }
    }
    CHECK(!kill(server.pid, SIGKILL) && waitpid(server.pid, &st, 0) == server.pid && WIFSIGNALED(st));
    snprintf(trace, sizeof trace, "%s/trace", cache_env + strlen("KFIT_CACHE="));
    CHECK_INT(trace_calls_of(trace_only(trace), square_text, KFIT_REASON_NONE), 2); /* when it was copied */
}

static const struct kfit_test tests[] = {
    TEST(damaged_generations_mean_the_original),
    TEST(other_users),
    TEST(read_only_mounts),
    TEST(two_pid_namespaces),
    TEST(removed_while_in_use_and_killed),
};
TEST_MAIN(tests)
