/* Generations damaged, foreign, unsafe or incomplete, on disks and mounts and for users that do not fit, and killed publishers. */
#include "generations.h"
#include "kfit_test.h"
#include "records.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void refuses_truncation_and_any_flip(void)
{
    size_t n;
    publish(20);
    char *bytes = kfit_test_read(path("generations/1.mdb"), &n);
    const size_t cuts[] = {0, 1, 100, 4096, n / 2, n - 1};
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        replace("generations/1.mdb", bytes, cuts[i]);
        refused(NULL, KFIT_E_DIGEST, "bytes, its manifest says");
    }
    for (unsigned round = 0; round < 200; round++) {
        size_t bit = kfit_test_random() % (8 * n);
        bytes[bit / 8] ^= (char)(1u << bit % 8);
        replace("generations/1.mdb", bytes, n);
        refused(round % 2 ? NULL : "1", KFIT_E_DIGEST, "SHA-256 does not match");
        bytes[bit / 8] ^= (char)(1u << bit % 8);
    }
    replace("generations/1.mdb", bytes, n);
    opens(NULL, 20);
}

/* Files whose digest is right but which are not what LMDB expects: the approver's mistake, still no crash. */
static void with_digest_of(const void *bytes, size_t n)
{
    char text[1024], hex[65];
    uint8_t sha[32];
    kfit_sha256(bytes, n, sha);
    kfit_hex(sha, 32, hex);
    replace("generations/1.mdb", bytes, n);
    int len = snprintf(
        text, sizeof text,
        "{\"kfit_generation\": 1, \"number\": 1, \"length\": %zu, \"sha256\": \"%s\", "
        "\"lmdb_format\": 1, \"records\": 20, \"created_unix_s\": 1, \"approver\": \"\", \"note\": \"\"}",
        n, hex);
    replace("generations/1.json", text, (size_t)len);
    len = snprintf(text, sizeof text, "1 %s\n", hex);
    replace("current", text, (size_t)len);
}

static void refuses_foreign_and_newer_files(void)
{
    size_t n;
    publish(20);
    char *bytes = kfit_test_read(path("generations/1.mdb"), &n), *copy = malloc(n);
    with_digest_of(bytes, n);
    opens(NULL, 20); /* the forging itself works */
    with_digest_of("hello", 5);
    refused(NULL, KFIT_E_FORMAT, "not an LMDB file");
    memset(copy, 'x', n);
    with_digest_of(copy, n);
    refused(NULL, KFIT_E_FORMAT, "not an LMDB file");
    with_digest_of(bytes, n - 4096);
    refused(NULL, KFIT_E_FORMAT, "truncated");
    memcpy(copy, bytes, n);
    copy[20]++; /* version in the first meta page */
    with_digest_of(copy, n);
    refused(NULL, KFIT_E_VERSION, "LMDB format 2");
    memcpy(copy, bytes, n);
    copy[40] ^= 1; /* page size */
    with_digest_of(copy, n);
    refused(NULL, KFIT_E_FORMAT, "page size");
    with_digest_of(bytes, n);
    const char *newer = "{\"kfit_generation\": 2, \"anything\": [{}]}";
    replace("generations/1.json", newer, strlen(newer));
    refused(NULL, KFIT_E_VERSION, "generation format 2");
}

/* One damaged record in a file that verifies is named and skipped; the others are served. */
static void skips_one_damaged_record(void)
{
    size_t n;
    publish(20);
    char *bytes = kfit_test_read(path("generations/1.mdb"), &n);
    char *record = memmem(bytes, n, "kfitrec", 8);
    CHECK(record);
    record[300] ^= 4;
    with_digest_of(bytes, n);
    struct kfit_generation *g;
    struct kfit_error err = {0};
    struct seen s = {0};
    CHECK_OK(kfit_generation_open(cache(), NULL, &g, &err), err);
    CHECK_OK(kfit_generation_each(g, 0, see, &s, &err), err);
    CHECK(s.good == 19 && s.bad == 1);
    kfit_generation_close(g);
    CHECK_STATUS(kfit_generation_make_current(cache(), 1, &err), KFIT_E_FORMAT);
    CHECK(strstr(err.text, "checksum"));
}

static void refuses_what_others_could_write(void)
{
    publish(5);
    const char *names[] = {"", "generations", "generations/1.mdb", "generations/1.json", "current"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        for (unsigned bit = 0; bit < 2; bit++) {
            struct stat st;
            CHECK(!stat(path(names[i]), &st));
            CHECK(!chmod(path(names[i]), st.st_mode | (bit ? 020 : 002)));
            refused(NULL, KFIT_E_PERM, "chmod go-w");
            CHECK(!chmod(path(names[i]), st.st_mode));
        }
    opens(NULL, 5);
}

static void refuses_links_and_specials(void)
{
    publish(5);
    const char *names[] = {"generations/1.mdb", "generations/1.json", "current"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char moved[600];
        snprintf(moved, sizeof moved, "%s.real", path(names[i]));
        CHECK(!rename(path(names[i]), moved) && !symlink(moved, path(names[i])));
        refused(NULL, KFIT_E_PERM, "symbolic link");
        CHECK(!unlink(path(names[i])) && !mkfifo(path(names[i]), 0600));
        refused(NULL, KFIT_E_PERM, "not a regular file");
        CHECK(!unlink(path(names[i])) && !mkdir(path(names[i]), 0700));
        refused(NULL, KFIT_E_PERM, "not a regular file");
        CHECK(!rmdir(path(names[i])) && !rename(moved, path(names[i])));
    }
    CHECK(!rename(path("generations"), path("real")) && !symlink("real", path("generations")));
    refused(NULL, KFIT_E_IO, "generations"); /* ENOTDIR: a link is no directory */
    CHECK(!unlink(path("generations")) && !rename(path("real"), path("generations")));
    CHECK(!symlink("cache", path("../link"))); /* the cache directory itself may be one: mounts are */
    struct kfit_generation *g;
    struct kfit_error err = {0};
    CHECK_OK(kfit_generation_open(path("../link"), NULL, &g, &err), err);
    kfit_generation_close(g);
}

static void refuses_missing_parts(void)
{
    publish(5);
    CHECK(!rename(path("generations/1.json"), path("x")));
    refused(NULL, KFIT_E_NOTFOUND, "1.json");
    CHECK(!rename(path("x"), path("generations/1.json")) && !rename(path("generations/1.mdb"), path("x")));
    refused(NULL, KFIT_E_NOTFOUND, "1.mdb");
    CHECK(!rename(path("x"), path("generations/1.mdb")));
    replace("generations/2.json", "", 0);
    refused("2", KFIT_E_FORMAT, "2.json");
    size_t n;
    char *text = kfit_test_read(path("generations/1.json"), &n);
    replace("generations/2.json", text, n);
    refused("2", KFIT_E_FORMAT, "renamed");
    CHECK(!unlink(path("current")));
    refused(NULL, KFIT_E_NOTFOUND, "nothing is published");
    replace("current", "1 abc\n", 6);
    refused(NULL, KFIT_E_FORMAT, "current");
    char other[] = "1 0000000000000000000000000000000000000000000000000000000000000000\n";
    replace("current", other, sizeof other - 1);
    refused(NULL, KFIT_E_DIGEST, "not the one in current");
    opens("1", 5);
}

static void as_nobody(void)
{
    CHECK(!setgid(65534) && !setuid(65534));
}

static void nobody_reads(void)
{
    opens(NULL, 5); /* root's files are trusted */
}

static void nobody_is_refused(void)
{
    struct kfit_error err = {0};
    refused(NULL, KFIT_E_PERM, "generations/1.mdb: opening");
    CHECK_STATUS(kfit_generation_make_current(cache(), 1, &err), KFIT_E_PERM);
}

static void owner_is_refused(void)
{
    refused(NULL, KFIT_E_PERM, "belongs to uid 1");
}

static void other_users(void)
{
    if (geteuid())
        SKIP("needs root to become another user");
    publish(5);
    CHECK(!chmod(kfit_test_dir(), 0755));
    kfit_test_child(nobody_reads, as_nobody);
    CHECK(!chmod(path("generations/1.mdb"), 0400));
    kfit_test_child(nobody_is_refused, as_nobody);
    CHECK(!chmod(path("generations/1.mdb"), 0444));
    const char *names[] = {"", "generations", "generations/1.mdb", "generations/1.json", "current"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        CHECK(!chown(path(names[i]), 1, 1));
        owner_is_refused(); /* root does not trust uid 1's file, nor does nobody */
        kfit_test_child(owner_is_refused, as_nobody);
        CHECK(!chown(path(names[i]), 0, 0));
    }
}

static void mount_read_only(void)
{
    kfit_test_own_mounts();
    if (mount(cache(), cache(), NULL, MS_BIND, NULL) ||
        mount(NULL, cache(), NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL))
        SKIP("no bind mount: %s", strerror(errno));
}

static void reads_but_does_not_publish(void)
{
    const struct kfit_env env = records_env();
    struct kfit_publish_params p = {.dir = cache(), .envs = &env, .env_count = 1};
    struct kfit_error err = {0};
    uint64_t number;
    opens(NULL, 5);
    CHECK_STATUS(kfit_generation_publish(&p, &number, &err), KFIT_E_PERM);
    CHECK_MSG(strstr(err.text, "Read-only"), "%s", err.text);
}

static void read_only_mount(void)
{
    publish(5);
    kfit_test_child(reads_but_does_not_publish, mount_read_only);
}

static void small_disk(void)
{
    kfit_test_small_disk(cache(), "300k");
}

static void fills_the_disk(void)
{
    const struct kfit_env env = records_env();
    struct kfit_publish_params p = {
        .dir = cache(), .records = records_make(1000), .count = 1000, .envs = &env, .env_count = 1};
    struct kfit_error err = {0};
    uint64_t number;
    publish(20);
    CHECK_STATUS(kfit_generation_publish(&p, &number, &err), KFIT_E_FULL);
    CHECK_MSG(strstr(err.text, "free some space"), "%s", err.text);
    opens(NULL, 20);
    CHECK(access(path("generations/.tmp-2.mdb"), F_OK)); /* nothing was left lying there */
    CHECK_INT(publish(21), 2);
}

static void full_disk(void)
{
    kfit_test_child(fills_the_disk, small_disk);
}

static void two_pid_namespaces(void)
{
    publish(5);
    fflush(stdout);
    pid_t pid = fork();
    int st;
    if (!pid) {
        if (unshare(CLONE_NEWPID))
            SKIP("no PID namespace: %s", strerror(errno));
        kfit_test_child(nobody_reads, NULL);
        _exit(0);
    }
    opens(NULL, 5);
    CHECK(waitpid(pid, &st, 0) == pid);
    if (WEXITSTATUS(st) == 77)
        _exit(77);
    CHECK(!st);
}

static void no_lmdb(void)
{
    kfit_test_own_mounts();
    const char *places[] = {"/usr/lib/x86_64-linux-gnu/liblmdb.so.0", "/usr/lib64/liblmdb.so.0",
                            "/usr/lib/liblmdb.so.0"};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        if (!access(places[i], F_OK) && mount("/dev/null", places[i], NULL, MS_BIND, NULL))
            SKIP("no bind mount: %s", strerror(errno));
}

static void says_what_to_install(void)
{
    refused(NULL, KFIT_E_UNSUPPORTED, "install liblmdb.so.0");
}

/* In a process that has not loaded LMDB yet: the child forks before anything is published here. */
static void lmdb_missing(void)
{
    fflush(stdout);
    pid_t pid = fork();
    int st;
    if (!pid) {
        publish(5);
        _exit(0);
    }
    CHECK(waitpid(pid, &st, 0) == pid && !st);
    kfit_test_child(says_what_to_install, no_lmdb);
}

/* A publisher killed at any moment leaves the old generation or the new one, and the next one can publish. */
static void survives_sigkill(void)
{
    struct timespec t[2];
    publish(50);
    clock_gettime(CLOCK_MONOTONIC, &t[0]);
    uint64_t last = publish(50), changed = 0;
    clock_gettime(CLOCK_MONOTONIC, &t[1]);
    const uint64_t once_ns =
        (uint64_t)(t[1].tv_sec - t[0].tv_sec) * 1000000000 + (uint64_t)(t[1].tv_nsec - t[0].tv_nsec);
    for (unsigned round = 0; round < 200; round++) {
        pid_t pid = fork();
        if (!pid)
            for (;;)
                publish(50);
        const uint64_t ns = kfit_test_random() % (3 * once_ns);
        const struct timespec pause = {(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
        nanosleep(&pause, NULL);
        CHECK(!kill(pid, SIGKILL) && waitpid(pid, NULL, 0) == pid);
        uint64_t number;
        uint8_t sha[32];
        struct kfit_error err = {0};
        CHECK_OK(kfit_generation_current(cache(), &number, sha, &err), err);
        CHECK(number >= last);
        changed += number - last;
        last = number;
        opens(NULL, 50);
    }
    CHECK_MSG(changed, "no publisher ever finished; the test does not reach its aim");
    publish(3);
    opens(NULL, 3);
}

static const struct kfit_test tests[] = {
    TEST(refuses_truncation_and_any_flip),
    TEST(refuses_foreign_and_newer_files),
    TEST(skips_one_damaged_record),
    TEST(refuses_what_others_could_write),
    TEST(refuses_links_and_specials),
    TEST(refuses_missing_parts),
    TEST(other_users),
    TEST(read_only_mount),
    TEST(full_disk),
    TEST(two_pid_namespaces),
    TEST(lmdb_missing),
    TEST(survives_sigkill),
};
TEST_MAIN(tests)
