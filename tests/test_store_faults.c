#include "kfit/store.h"
#include "kfit_test.h"
#include "stores.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static size_t file_bytes(const char *name)
{
    struct stat st;
    CHECK(!stat(stores_path(name), &st));
    return (size_t)st.st_size;
}

static int stay(void *ctx, const void *key, size_t key_bytes, const void *value, size_t n,
                const char *problem)
{
    (void)key, (void)key_bytes, (void)value, (void)n, (void)problem;
    CHECK(write(*(int *)ctx, "x", 1) == 1);
    for (;;)
        pause();
}

/* A killed reader leaves its snapshot in LMDB's table. Whoever opens next clears it, else the pages that the
 * snapshot pins are never used again and the file grows with each change. */
static void forgets_killed_readers(void)
{
    struct kfit_store *s = stores_open(KFIT_STORE_WRITE);
    int ready[2];
    char byte;
    stores_put(s, 1, 50000);
    kfit_store_close(s);
    CHECK(!pipe(ready));
    fflush(stdout);
    pid_t pid = fork();
    if (!pid) {
        s = stores_open(KFIT_STORE_READ);
        kfit_store_each(s, KFIT_TABLE_EVALS, NULL, 0, stay, &ready[1], NULL);
        _exit(1);
    }
    CHECK(read(ready[0], &byte, 1) == 1);
    pid_t other = stores_beside(stores_read_all); /* so that the table is not made afresh */
    stores_end(pid);
    s = stores_open(KFIT_STORE_WRITE);
    stores_put(s, 1, 50000);
    stores_put(s, 1, 50000);
    stores_put(s, 1, 50000);
    size_t before = file_bytes("/store/data.mdb");
    for (unsigned i = 0; i < 20; i++)
        stores_put(s, 1, 50000);
    CHECK_INT(file_bytes("/store/data.mdb"), before);
    kfit_store_close(s);
    stores_end(other);
}

static void refuses_damaged_files(void)
{
    struct kfit_store *s = stores_open(KFIT_STORE_WRITE);
    for (unsigned i = 0; i < 20; i++)
        stores_put(s, i, 3000);
    kfit_store_close(s);
    size_t n;
    char *bytes = kfit_test_read(stores_path("/store/data.mdb"), &n), *copy = malloc(n);
    const size_t cuts[] = {1, 100, 4096, 4200, n / 2, n - 1};
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++)
        for (unsigned write = 0; write < 2; write++) {
            CHECK(!truncate(stores_path("/store/data.mdb"), (off_t)cuts[i]));
            stores_refused(write, KFIT_E_FORMAT, "data.mdb");
            kfit_test_write(stores_path("/store/data.mdb"), bytes, n);
        }
    kfit_test_write(stores_path("/store/data.mdb"), "hello", 5);
    stores_refused(KFIT_STORE_WRITE, KFIT_E_FORMAT, "not an LMDB file");
    for (unsigned meta = 0; meta < 2; meta++) { /* LMDB's own version, in both meta pages */
        memcpy(copy, bytes, n);
        copy[4096 * meta + 20]++;
        kfit_test_write(stores_path("/store/data.mdb"), copy, n);
        stores_refused(KFIT_STORE_WRITE, meta ? KFIT_E_FORMAT : KFIT_E_VERSION,
                       meta ? "second" : "LMDB format 2");
    }
    kfit_test_write(stores_path("/store/data.mdb"), bytes, n);
    s = stores_open(KFIT_STORE_READ);
    CHECK_INT(stores_count(s, ""), 20);
}

/* A flipped bit in a value is named by get and each, and the other entries are still there. */
static void notices_flipped_values(void)
{
    struct kfit_store *s = stores_open(KFIT_STORE_WRITE);
    struct stores_seen seen = {0};
    struct kfit_error err = {0};
    for (unsigned i = 0; i < 20; i++)
        stores_put(s, i, 3000);
    kfit_store_close(s);
    size_t n;
    char *bytes = kfit_test_read(stores_path("/store/data.mdb"), &n), run[200];
    memset(run, 'a' + 5, sizeof run);
    char *at = memmem(bytes, n, run, sizeof run);
    CHECK(at);
    for (char *p = at; (p = memmem(p, n - (size_t)(p - bytes), run, sizeof run)); p += sizeof run)
        p[100] ^= 1; /* every copy of it that the file may have */
    kfit_test_write(stores_path("/store/data.mdb"), bytes, n);
    s = stores_open(KFIT_STORE_READ);
    void *value;
    CHECK_STATUS(kfit_store_get(s, KFIT_TABLE_EVALS, "key000005", 9, &value, &n, &err), KFIT_E_FORMAT);
    CHECK(!value && strstr(err.text, "checksum"));
    CHECK_OK(kfit_store_each(s, KFIT_TABLE_EVALS, NULL, 0, stores_see, &seen, &err), err);
    CHECK(seen.bad == 1 && seen.count == 19);
}

static void refuses_newer_and_foreign_stores(void)
{
    struct kfit_store *s = stores_open(KFIT_STORE_WRITE);
    struct kfit_error err = {0};
    CHECK_OK(kfit_store_put(s, KFIT_TABLE_META, "format", 6, "2", 1, &err), err);
    kfit_store_close(s);
    stores_refused(KFIT_STORE_WRITE, KFIT_E_VERSION, "store format 2");
    stores_refused(KFIT_STORE_READ, KFIT_E_VERSION, "store format 2");
    char command[1200];
    CHECK(!unlink(stores_path("/store/data.mdb")) && !unlink(stores_path("/store/lock.mdb")));
    snprintf(command, sizeof command,
             "printf 'VERSION=3\\nformat=bytevalue\\ntype=btree\\nHEADER=END\\n 61\\n 62\\nDATA=END\\n' | "
             "mdb_load %s/store",
             stores_path(""));
    if (system("command -v mdb_load >/dev/null"))
        SKIP("no mdb_load to make a foreign database");
    CHECK(!system(command));
    stores_refused(KFIT_STORE_WRITE, KFIT_E_FORMAT, "not a kfit store");
    stores_refused(KFIT_STORE_READ, KFIT_E_FORMAT, "not a kfit store");
}

static void starts_again_after_a_crash_at_birth(void)
{
    struct kfit_store *s = stores_open(KFIT_STORE_WRITE);
    kfit_store_close(s);
    kfit_test_write(stores_path("/store/data.mdb"), "", 0); /* killed between open and the first write */
    stores_refused(KFIT_STORE_READ, KFIT_E_NOTFOUND, "nothing in it yet");
    s = stores_open(KFIT_STORE_WRITE);
    stores_put(s, 1, 1);
}

static void perm(void)
{
    stores_refused(KFIT_STORE_WRITE, KFIT_E_PERM, "");
    stores_refused(KFIT_STORE_READ, KFIT_E_PERM, "");
}

static void refuses_what_others_could_write(void)
{
    kfit_test_child(stores_write_one, NULL);
    const char *names[] = {"", "/store", "/store/data.mdb"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct stat st;
        CHECK(!stat(stores_path(names[i]), &st) && !chmod(stores_path(names[i]), st.st_mode | 020));
        kfit_test_child(perm, NULL);
        CHECK(!chmod(stores_path(names[i]), st.st_mode));
    }
}

static void as_nobody(void)
{
    CHECK(!setgid(65534) && !setuid(65534));
}

static void not_theirs(void)
{
    stores_refused(KFIT_STORE_READ, KFIT_E_PERM, "belongs to uid 0");
}

static void other_users(void)
{
    if (geteuid())
        SKIP("needs root to become another user");
    kfit_test_child(stores_write_one, NULL);
    CHECK(!chmod(kfit_test_dir(), 0755));
    kfit_test_child(perm, as_nobody);
    CHECK(!chmod(stores_path("/store"), 0755) && !chmod(stores_path("/store/data.mdb"), 0644) &&
          !chmod(stores_path("/store/lock.mdb"), 0666) && !chmod(stores_path("/store/writer.lock"), 0666));
    kfit_test_child(not_theirs, as_nobody); /* though they could read it */
    CHECK(!chmod(stores_path("/store"), 0700) && !chown(stores_path("/store"), 1, 1));
    stores_refused(KFIT_STORE_WRITE, KFIT_E_PERM, "belongs to uid 1");
    CHECK(!chown(stores_path("/store"), 0, 0) && !chown(stores_path("/store/data.mdb"), 1, 1));
    stores_refused(KFIT_STORE_WRITE, KFIT_E_PERM, "belongs to uid 1");
    CHECK(!unlink(stores_path("/store/data.mdb")) &&
          !symlink("/etc/hostname", stores_path("/store/data.mdb")));
    stores_refused(KFIT_STORE_WRITE, KFIT_E_PERM, "symbolic link");
}

static void mount_read_only(void)
{
    kfit_test_own_mounts();
    if (mount(stores_path(""), stores_path(""), NULL, MS_BIND, NULL) ||
        mount(NULL, stores_path(""), NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL))
        SKIP("no bind mount: %s", strerror(errno));
}

static void reads_a_copy(void)
{
    stores_refused(KFIT_STORE_WRITE, KFIT_E_PERM, "Read-only");
    struct kfit_store *s = stores_open(KFIT_STORE_READ);
    stores_expect(s, 1, 1);
    kfit_store_close(s);
}

static void waits_for_the_writer(void)
{
    stores_refused(KFIT_STORE_READ, KFIT_E_BUSY, "being written");
}

static void read_only_mount(void)
{
    kfit_test_child(stores_write_one, NULL);
    kfit_test_child(reads_a_copy, mount_read_only);
    pid_t pid = stores_beside(stores_write_one);
    kfit_test_child(waits_for_the_writer, mount_read_only);
    stores_end(pid);
    CHECK(!unlink(stores_path("/store/writer.lock"))); /* as in an image that was packed without it */
    kfit_test_child(reads_a_copy, mount_read_only);
}

static void new_pids(void)
{
    if (unshare(CLONE_NEWPID))
        SKIP("no PID namespace: %s", strerror(errno));
}

static void other_namespace_is_busy(void)
{
    stores_refused(KFIT_STORE_READ, KFIT_E_BUSY, "PID namespace");
    stores_refused(KFIT_STORE_WRITE, KFIT_E_BUSY, "PID namespace");
}

static void busy_inside(void)
{
    kfit_test_child(other_namespace_is_busy, NULL); /* unshare moves only children */
}

static void read_inside(void)
{
    kfit_test_child(stores_read_all, NULL);
}

static void two_pid_namespaces(void)
{
    kfit_test_child(stores_write_one, NULL);
    pid_t pid = stores_beside(stores_write_one);
    kfit_test_child(busy_inside, new_pids);
    stores_end(pid);
    pid = stores_beside(stores_read_all); /* also beside a reader: the lock file has its number */
    kfit_test_child(busy_inside, new_pids);
    stores_end(pid);
    kfit_test_child(read_inside, new_pids);
}

static void small_disk(void)
{
    kfit_test_small_disk(stores_path(""), "400k");
}

static void fills_the_disk(void)
{
    struct kfit_store *s = stores_open(KFIT_STORE_WRITE);
    struct kfit_error err = {0};
    char value[20000], key[16];
    memset(value, 'v', sizeof value);
    unsigned n = 0;
    enum kfit_status got;
    do {
        snprintf(key, sizeof key, "key%06u", n);
        got = kfit_store_put(s, KFIT_TABLE_EVALS, key, 9, value, sizeof value, &err);
    } while (got == KFIT_OK && ++n < 100);
    CHECK_STATUS(got, KFIT_E_FULL);
    CHECK_MSG(strstr(err.text, "free some space"), "%s", err.text);
    CHECK(n > 2);
    CHECK_INT(stores_count(s, ""), n); /* nothing lost, nothing half-written */
    CHECK_OK(kfit_store_del(s, KFIT_TABLE_EVALS, "key000000", 9, &err), err);
    kfit_store_close(s);
    s = stores_open(KFIT_STORE_WRITE);
    CHECK_INT(stores_count(s, ""), n - 1);
    kfit_store_close(s);
}

static void full_from_the_start(void)
{
    char big[400 << 10] = {0};
    int fd = open(stores_path("/filler"), O_CREAT | O_WRONLY, 0600);
    CHECK(fd >= 0 && write(fd, big, sizeof big) > 0);
    stores_refused(KFIT_STORE_WRITE, KFIT_E_FULL, "No space left");
    close(fd);
    CHECK(!unlink(stores_path("/filler")));
    kfit_store_close(stores_open(KFIT_STORE_WRITE));
}

static void full_disk(void)
{
    kfit_test_child(fills_the_disk, small_disk);
    CHECK(!rmdir(stores_path("")));
    kfit_test_child(full_from_the_start, small_disk);
}

/* Writers killed at any moment: what was said to be stored is there, and each transaction is whole. */
static void survives_sigkill(void)
{
    unsigned total = 0;
    int fds[2];
    CHECK(!pipe(fds));
    fflush(stdout);
    kfit_store_close(stores_open(KFIT_STORE_WRITE));
    for (unsigned round = 0; round < 60 || (total <= 5 && round < 300); round++) { /* slow disks: more, and longer */
        pid_t pid = fork();
        if (!pid) {
            struct kfit_store *s = stores_open(KFIT_STORE_WRITE);
            struct kfit_error err = {0};
            for (unsigned i = total;; i++) {
                char key[2][16], value[3000];
                memset(value, 'a' + (int)(i % 26), sizeof value);
                snprintf(key[0], sizeof key[0], "a%06u", i);
                snprintf(key[1], sizeof key[1], "b%06u", i);
                const struct kfit_store_op ops[] = {{KFIT_TABLE_EVALS, key[0], 7, value, sizeof value},
                                                    {KFIT_TABLE_EVALS, key[1], 7, value, sizeof value}};
                CHECK_OK(kfit_store_apply(s, ops, 2, &err), err);
                if (write(fds[1], &i, sizeof i) != sizeof i)
                    _exit(1);
            }
        }
        const struct timespec pause = {0, (long)(kfit_test_random() % (15000000 + round * 500000))};
        nanosleep(&pause, NULL);
        CHECK(!kill(pid, SIGKILL) && waitpid(pid, NULL, 0) == pid);
        unsigned last;
        CHECK(!fcntl(fds[0], F_SETFL, O_NONBLOCK));
        while (read(fds[0], &last, sizeof last) == sizeof last)
            total = last + 1;
        struct kfit_store *s = stores_open(KFIT_STORE_READ);
        unsigned a = stores_count(s, "a"), b = stores_count(s, "b");
        CHECK_MSG(a == b && a >= total && a <= total + 1, "%u and %u entries, %u were reported", a, b, total);
        kfit_store_close(s);
        total = a;
    }
    CHECK_MSG(total > 5, "only %u transactions; the test does not reach its aim", total);
}

static const struct kfit_test tests[] = {
    TEST(forgets_killed_readers),
    TEST(refuses_damaged_files),
    TEST(notices_flipped_values),
    TEST(refuses_newer_and_foreign_stores),
    TEST(starts_again_after_a_crash_at_birth),
    TEST(refuses_what_others_could_write),
    TEST(other_users),
    TEST(read_only_mount),
    TEST(two_pid_namespaces),
    TEST(full_disk),
    TEST(survives_sigkill),
};
TEST_MAIN(tests)
