/* A recorder: what it counts, what it says of its process, where no file can be made, with threads, forks and kills. The files
 * themselves are test_trace's. */
#include "recording.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void what_is_recorded_is_read(void)
{
    char dir[128];
    snprintf(dir, sizeof dir, "%s/new", kfit_test_dir());
    struct kfit_recorder *r = recorder(dir, 0);
    struct stat st;
    CHECK(!stat(dir, &st) && (st.st_mode & 0777) == 0700);
    CHECK(!stat(kfit_recorder_path(r), &st) && (st.st_mode & 0777) == 0600);
    CHECK_INT(st.st_blocks * 512 >= st.st_size, 1); /* in full */
    for (int i = 1; i <= 100; i++)
        for (int n = 0; n < i; n++)
            CHECK(record(r, i, KFIT_REASON_OFF));
    struct kfit_generic g = {
        .path = "/lib/libopenblas.so.0", .naming = "cblas_%s", .threads = 2, .int_bits = 32};
    CHECK_INT(kfit_recorder_generic(r, &g), 0);
    strcpy(g.naming, "scipy_cblas_%s64_");
    CHECK_INT(kfit_recorder_generic(r, &g), 1);
    CHECK_INT(kfit_recorder_generic(r, &g), 1);

    struct kfit_trace *t;
    CHECK_OK(kfit_trace_read(kfit_recorder_path(r), &t, &err), err);
    CHECK(kfit_trace_alive(t));
    CHECK_INT(kfit_trace_count(t), 100);
    CHECK_INT(kfit_trace_skipped(t), 0);
    CHECK_INT(calls_in(t), 5050);
    CHECK_STR(kfit_trace_header(t)->label, "unit?");
    CHECK_INT(kfit_trace_header(t)->generic_count, 2);
    for (size_t i = 0; i < 100; i++) {
        const struct kfit_trace_slot *s = kfit_trace_at(t, i);
        CHECK_INT(s->count[KFIT_REASON_OFF], s->key.gemm.m);
        CHECK(s->last_seen_s > 1700000000);
    }
    kfit_trace_destroy(t);

    char path[512];
    snprintf(path, sizeof path, "%s", kfit_recorder_path(r));
    kfit_recorder_destroy(r);
    CHECK_OK(kfit_trace_read(path, &t, &err), err);
    CHECK(!kfit_trace_alive(t));
    CHECK(kfit_trace_header(t)->end_unix_ns >= kfit_trace_header(t)->start_unix_ns);
    kfit_trace_destroy(t);
}

static void rank_is_what_the_launcher_says(void)
{
    static const struct {
        const char *name, *value;
        int rank;
    } table[] = {{"SLURM_PROCID", "5", 5}, {"RANK", "2", 2},  {"RANK", "x", 5},
                 {"RANK", "-1", 5},        {"RANK", "2 ", 5}, {"RANK", "99999999999", 5}};
    unsetenv("RANK"), unsetenv("OMPI_COMM_WORLD_RANK"), unsetenv("PMI_RANK"), unsetenv("SLURM_PROCID");
    struct kfit_recorder *r = recorder(NULL, 16);
    CHECK_INT(kfit_recorder_header(r)->rank, -1);
    kfit_recorder_destroy(r);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        setenv(table[i].name, table[i].value, 1);
        r = recorder(NULL, 16);
        CHECK_INT(kfit_recorder_header(r)->rank, table[i].rank);
        kfit_recorder_destroy(r);
    }
}

static void a_job_is_what_its_ranks_share(void)
{
    static const char *const names[] = {"RANK",         "OMPI_COMM_WORLD_RANK", "PMI_RANK",
                                        "SLURM_PROCID", "TORCHELASTIC_RUN_ID",  "MASTER_ADDR",
                                        "MASTER_PORT",  "SLURM_JOB_ID",         "SLURM_STEP_ID",
                                        "PMI_JOBID",    "PMIX_NAMESPACE"};
    static const struct {
        const char *set[6], *job;
    } table[] = {{{"SLURM_JOB_ID", "77"}, ""}, /* a shell of the job is no rank of it */
                 {{"SLURM_PROCID", "1", "SLURM_JOB_ID", "77", "SLURM_STEP_ID", "0"}, "77/0"},
                 {{"RANK", "0", "MASTER_ADDR", "n\033[1", "MASTER_PORT", "29500"}, "n?[1/29500"},
                 {{"RANK", "0"}, ""}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        for (size_t n = 0; n < sizeof names / sizeof *names; n++)
            unsetenv(names[n]);
        for (unsigned j = 0; j < 6 && table[i].set[j]; j += 2)
            setenv(table[i].set[j], table[i].set[j + 1], 1);
        struct kfit_recorder *r = recorder(NULL, 16);
        CHECK_STR(kfit_recorder_header(r)->job, table[i].job);
        kfit_recorder_destroy(r);
    }
    char part[80];
    memset(part, 'a', sizeof part - 1);
    part[sizeof part - 1] = '\0';
    setenv("MASTER_ADDR", part, 1), setenv("MASTER_PORT", part, 1);
    struct kfit_recorder *r = recorder(NULL, 16);
    CHECK_INT(strlen(kfit_recorder_header(r)->job),
              sizeof kfit_recorder_header(r)->job - 1); /* cut, not over */
    kfit_recorder_destroy(r);
}

static void control_word_reaches_the_process(void)
{
    struct kfit_recorder *r = recorder(kfit_test_dir(), 64);
    CHECK_INT(kfit_recorder_header(r)->control, KFIT_CONTROL_RUN);
    CHECK_OK(kfit_trace_set_control(kfit_recorder_path(r), KFIT_CONTROL_OFF, &err), err);
    CHECK_INT(__atomic_load_n(&kfit_recorder_header(r)->control, __ATOMIC_RELAXED), KFIT_CONTROL_OFF);
    char path[512];
    snprintf(path, sizeof path, "%s", kfit_recorder_path(r));
    kfit_recorder_destroy(r);
    CHECK_STATUS(kfit_trace_set_control(path, KFIT_CONTROL_RUN, &err), KFIT_E_NOTFOUND);
}

static void full_table_refuses_new_keys(void)
{
    struct kfit_recorder *r = recorder(kfit_test_dir(), 64);
    for (int i = 1; i <= 56; i++)
        CHECK(record(r, i, 1));
    CHECK(!record(r, 57, 1));
    CHECK(record(r, 3, 1));
    CHECK_INT(kfit_recorder_header(r)->slots_used, 56);
    kfit_recorder_destroy(r);
}

static void two_recorders_two_files(void)
{
    struct kfit_recorder *a = recorder(kfit_test_dir(), 64), *b = recorder(kfit_test_dir(), 64);
    CHECK(strcmp(kfit_recorder_path(a), kfit_recorder_path(b)));
    kfit_recorder_destroy(a);
    kfit_recorder_destroy(b);
}

/* ---- where no file can be made: memory only, with the reason ---- */

static void check_memory_only(const char *dir, enum kfit_status want, const char *word)
{
    struct kfit_recorder *r;
    struct kfit_recorder_params p = {.dir = dir, .slot_count = 16384};
    struct kfit_error why = {0};
    CHECK_STATUS(kfit_recorder_create(&r, &p, &why), want);
    CHECK_MSG(r && strstr(why.text, word), "\"%s\" does not say \"%s\"", why.text, word);
    CHECK_STR(kfit_recorder_path(r), "");
    CHECK(record(r, 1, 1) && record(r, 2, 1));
    kfit_recorder_destroy(r);
}

static void unsafe_directories_are_refused(void)
{
    char dir[128], link[140];
    snprintf(dir, sizeof dir, "%s/open", kfit_test_dir());
    snprintf(link, sizeof link, "%s/link", kfit_test_dir());
    CHECK(!mkdir(dir, 0700) && !chmod(dir, 0777));
    check_memory_only(dir, KFIT_E_PERM, "writable by no one else");
    CHECK(!chmod(dir, 0700) && !symlink(dir, link));
    check_memory_only(link, KFIT_E_IO, "not a link");
    strcat(link, "/x/y");
    check_memory_only(link, KFIT_E_IO, "make it, or set KFIT_TRACE");
    kfit_test_write(strcat(dir, "/file"), "", 0);
    check_memory_only(dir, KFIT_E_IO, "must be a directory");
}

static void foreign_directory_is_refused(void)
{
    if (geteuid())
        SKIP("needs root, to own a directory as another user");
    CHECK(!chown(kfit_test_dir(), 12345, 12345));
    check_memory_only(kfit_test_dir(), KFIT_E_PERM, "must belong to uid 0");
}

static void full_disk_is_an_error_not_a_signal(void)
{
    char dir[128];
    snprintf(dir, sizeof dir, "%s/small", kfit_test_dir());
    CHECK(!mkdir(dir, 0700));
    if (mount("kfit", dir, "tmpfs", 0, "size=64k,mode=0700"))
        SKIP("cannot mount a small tmpfs: %s", strerror(errno));
    struct kfit_recorder *r;
    struct kfit_recorder_params p = {.dir = dir, .slot_count = 16384};
    struct kfit_error why = {0};
    enum kfit_status s = kfit_recorder_create(&r, &p, &why);
    bool counts = r && record(r, 1, 1);
    unsigned left = 0;
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));)
        left += e->d_name[0] != '.';
    closedir(d);
    umount(dir);
    CHECK_STATUS(s, KFIT_E_IO);
    CHECK(counts && strstr(why.text, "no room"));
    CHECK_INT(left, 0);
}

static void file_size_limit_is_an_error_not_a_signal(void)
{
    struct rlimit small = {100000, 100000};
    CHECK(!setrlimit(RLIMIT_FSIZE, &small));
    check_memory_only(kfit_test_dir(), KFIT_E_IO, "ulimit -f");
}

static void crowded_directory_takes_no_more(void)
{
    char path[160];
    for (unsigned i = 0; i < KFIT_TRACE_FILES_MAX; i++) {
        snprintf(path, sizeof path, "%s/%u.kft", kfit_test_dir(), i);
        int fd = open(path, O_CREAT | O_WRONLY, 0600);
        CHECK(fd >= 0);
        close(fd);
    }
    check_memory_only(kfit_test_dir(), KFIT_E_FULL, "merge and remove");
}

/* ---- many threads; death at any moment ---- */

enum { THREADS = 8, KEYS = 300, ROUNDS = 20 };

static pthread_barrier_t together;

/* Returns how often the slot was still being entered by another thread, one that has lost its processor. */
static void *hammer(void *arg)
{
    uintptr_t busy = 0;
    for (int i = 0; i < KEYS * ROUNDS; i++) {
        if (i < KEYS) /* all meet on each new key */
            pthread_barrier_wait(&together);
        busy += !record(arg, 1 + i % KEYS, i % 3);
    }
    return (void *)busy;
}

static void many_threads_lose_nothing(void)
{
    struct kfit_recorder *r = recorder(kfit_test_dir(), 512);
    pthread_t t[THREADS];
    CHECK(!pthread_barrier_init(&together, NULL, THREADS));
    for (int i = 0; i < THREADS; i++)
        CHECK(!pthread_create(&t[i], NULL, hammer, r));
    uint64_t busy = 0;
    for (int i = 0; i < THREADS; i++) {
        void *one;
        pthread_join(t[i], &one);
        busy += (uintptr_t)one;
    }
    CHECK_INT(kfit_recorder_header(r)->slots_busy, busy);
    struct kfit_trace *trace;
    CHECK_OK(kfit_trace_read(kfit_recorder_path(r), &trace, &err), err);
    CHECK_INT(kfit_trace_count(trace), KEYS);
    CHECK_INT(kfit_recorder_header(r)->slots_used, KEYS);
    CHECK_INT(calls_in(trace) + busy, THREADS * KEYS * ROUNDS);
    kfit_trace_destroy(trace);
    kfit_recorder_destroy(r);
}

static void readable_after_a_kill_at_any_moment(void)
{
    for (unsigned i = 0; i < 60; i++) {
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (!pid) {
            struct kfit_recorder *r = recorder(kfit_test_dir(), 4096);
            for (int k = 1;; k = k % 3000 + 1)
                record(r, k, 1);
        }
        /* longer and longer: beside others a child may not even begin in a few milliseconds */
        usleep((useconds_t)(kfit_test_random() % (6000 + i * 2000)));
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
    }
    DIR *d = opendir(kfit_test_dir());
    unsigned whole = 0;
    for (struct dirent *e; (e = readdir(d));) {
        char path[512];
        if (!strstr(e->d_name, ".kft"))
            continue;
        snprintf(path, sizeof path, "%s/%s", kfit_test_dir(), e->d_name);
        struct kfit_trace *t;
        enum kfit_status s = kfit_trace_read(path, &t, &err);
        CHECK_MSG(s == KFIT_OK || s == KFIT_E_FORMAT, "%s", err.text);
        if (s == KFIT_OK) {
            whole++;
            CHECK(!kfit_trace_alive(t));
            CHECK(kfit_trace_skipped(t) <= 1);
            kfit_trace_destroy(t);
        }
    }
    closedir(d);
    CHECK(whole > 10);
}

static void forked_child_lets_go_of_the_file(void)
{
    struct kfit_recorder *r = recorder(kfit_test_dir(), 64);
    CHECK(record(r, 1, 1));
    pid_t pid = fork();
    if (!pid) {
        kfit_recorder_abandon(r);
        record(r, 2, 1);
        kfit_recorder_destroy(r);
        _exit(0);
    }
    waitpid(pid, NULL, 0);
    CHECK_INT(kfit_recorder_header(r)->slots_used, 1);
    CHECK_INT(kfit_recorder_header(r)->end_unix_ns, 0);
    kfit_recorder_destroy(r);
}

/* The writer's pid means nothing here: ended only when its trace says so. */
static void another_pid_namespace(void)
{
    int ready[2];
    CHECK(!pipe(ready));
    pid_t outer = fork();
    if (!outer) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* whatever fails, nobody stays behind */
        if (unshare(CLONE_NEWPID))
            _exit(77);
        pid_t inner = fork();
        if (!inner) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            char path[512] = "";
            struct kfit_recorder *r = recorder(kfit_test_dir(), 64);
            snprintf(path, sizeof path, "%s", kfit_recorder_path(r));
            CHECK(getpid() == 1 && record(r, 1, 1));
            CHECK(write(ready[1], path, sizeof path) == sizeof path);
            while (__atomic_load_n(&kfit_recorder_header(r)->control, __ATOMIC_RELAXED) == KFIT_CONTROL_RUN)
                usleep(1000);
            kfit_recorder_destroy(r);
            _exit(0);
        }
        int status;
        waitpid(inner, &status, 0);
        _exit(WEXITSTATUS(status));
    }
    close(ready[1]);
    char path[512];
    int status;
    if (read(ready[0], path, sizeof path) != sizeof path) {
        waitpid(outer, &status, 0);
        CHECK_INT(WEXITSTATUS(status), 77);
        SKIP("cannot make a pid namespace");
    }
    struct kfit_trace *t;
    CHECK_OK(kfit_trace_read(path, &t, &err), err);
    CHECK_INT(kfit_trace_header(t)->pid, 1);
    CHECK(kfit_trace_alive(t));
    kfit_trace_destroy(t);
    CHECK_OK(kfit_trace_set_control(path, KFIT_CONTROL_OFF, &err), err);
    waitpid(outer, &status, 0);
    CHECK_INT(status, 0);
    CHECK_OK(kfit_trace_read(path, &t, &err), err);
    CHECK(!kfit_trace_alive(t));
    kfit_trace_destroy(t);
}

static void read_only_mount(void)
{
    char dir[128];
    snprintf(dir, sizeof dir, "%s/ro", kfit_test_dir());
    CHECK(!mkdir(dir, 0700));
    if (mount("kfit", dir, "tmpfs", MS_RDONLY, "mode=0700"))
        SKIP("cannot mount a read-only tmpfs: %s", strerror(errno));
    struct kfit_recorder *r;
    struct kfit_recorder_params p = {.dir = dir};
    struct kfit_error why = {0};
    enum kfit_status s = kfit_recorder_create(&r, &p, &why);
    umount(dir);
    CHECK_STATUS(s, KFIT_E_IO);
    CHECK_MSG(r && strstr(why.text, "Read-only file system"), "%s", why.text);
    kfit_recorder_destroy(r);
}

static const struct kfit_test tests[] = {
    TEST(what_is_recorded_is_read),
    TEST(rank_is_what_the_launcher_says),
    TEST(a_job_is_what_its_ranks_share),
    TEST(control_word_reaches_the_process),
    TEST(full_table_refuses_new_keys),
    TEST(two_recorders_two_files),
    TEST(unsafe_directories_are_refused),
    TEST(foreign_directory_is_refused),
    TEST(full_disk_is_an_error_not_a_signal),
    TEST(file_size_limit_is_an_error_not_a_signal),
    TEST(crowded_directory_takes_no_more),
    TEST(many_threads_lose_nothing),
    TEST(readable_after_a_kill_at_any_moment),
    TEST(forked_child_lets_go_of_the_file),
    TEST(another_pid_namespace),
    TEST(read_only_mount),
};
TEST_MAIN(tests)
