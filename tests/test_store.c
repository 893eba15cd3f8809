#include "kfit/store.h"
#include "kfit_test.h"
#include "records.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static char *path(const char *name)
{
    static char text[4][512];
    static unsigned turn;
    char *p = text[turn++ % 4];
    snprintf(p, sizeof text[0], "%s/cache%s", kfit_test_dir(), name);
    return p;
}

static struct kfit_store *open_store(unsigned flags)
{
    struct kfit_store *s;
    struct kfit_error err = {0};
    CHECK_OK(kfit_store_open(path(""), flags, &s, &err), err);
    return s;
}

static void refused(unsigned flags, enum kfit_status want, const char *text)
{
    struct kfit_store *s;
    struct kfit_error err = {0};
    enum kfit_status got = kfit_store_open(path(""), flags, &s, &err);
    CHECK_MSG(got == want, "open: %s (%s), expected %s", kfit_status_str(got), err.text,
              kfit_status_str(want));
    CHECK_MSG(strstr(err.text, text), "\"%s\" does not say \"%s\"", err.text, text);
    CHECK(!s);
}

static void put(struct kfit_store *s, unsigned i, size_t bytes)
{
    char key[32], *value = malloc(bytes + 1);
    struct kfit_error err = {0};
    snprintf(key, sizeof key, "key%06u", i);
    memset(value, 'a' + (int)(i % 26), bytes);
    CHECK_OK(kfit_store_put(s, KFIT_TABLE_EVALS, key, strlen(key), value, bytes, &err), err);
    free(value);
}

/* The entry put() wrote is there and right. */
static void expect(struct kfit_store *s, unsigned i, size_t bytes)
{
    char key[32];
    void *value;
    size_t n;
    struct kfit_error err = {0};
    snprintf(key, sizeof key, "key%06u", i);
    CHECK_OK(kfit_store_get(s, KFIT_TABLE_EVALS, key, strlen(key), &value, &n, &err), err);
    CHECK_INT(n, bytes);
    for (size_t b = 0; b < n; b++)
        CHECK(((char *)value)[b] == (char)('a' + (int)(i % 26)));
    CHECK(((char *)value)[n] == '\0');
    free(value);
}

struct seen {
    unsigned count, bad;
    struct kfit_store *store;
};

static int see(void *ctx, const void *key, size_t key_bytes, const void *value, size_t n, const char *problem)
{
    struct seen *s = ctx;
    (void)key, (void)key_bytes, (void)n;
    CHECK(!value == !!problem);
    s->count += !problem;
    s->bad += !!problem;
    return 0;
}

static unsigned count(struct kfit_store *s, const char *prefix)
{
    struct seen seen = {0};
    struct kfit_error err = {0};
    CHECK_OK(kfit_store_each(s, KFIT_TABLE_EVALS, prefix, strlen(prefix), see, &seen, &err), err);
    CHECK_INT(seen.bad, 0);
    return seen.count;
}

/* Forks a child that runs fn and then waits to be killed; returns when fn is done. */
static pid_t beside(void (*fn)(void))
{
    int ready[2];
    char byte;
    fflush(stdout);
    CHECK(!pipe(ready));
    pid_t pid = fork();
    if (!pid) {
        fn();
        if (write(ready[1], "x", 1) == 1)
            for (;;)
                pause();
        _exit(1);
    }
    close(ready[1]);
    CHECK(read(ready[0], &byte, 1) == 1);
    close(ready[0]);
    return pid;
}

static void end(pid_t pid)
{
    CHECK(!kill(pid, SIGKILL) && waitpid(pid, NULL, 0) == pid);
}

static void keeps_what_was_put(void)
{
    struct kfit_error err = {0};
    void *value;
    size_t n;
    refused(KFIT_STORE_READ, KFIT_E_NOTFOUND, "No such file");
    struct kfit_store *s = open_store(KFIT_STORE_WRITE);
    for (unsigned i = 0; i < 50; i++)
        put(s, i, 10 * i);
    CHECK_STATUS(kfit_store_get(s, KFIT_TABLE_EVALS, "nokey", 5, &value, &n, &err), KFIT_E_NOTFOUND);
    CHECK(!value);
    CHECK_STATUS(kfit_store_get(s, KFIT_TABLE_BANS, "key000001", 9, &value, &n, &err), KFIT_E_NOTFOUND);
    CHECK_OK(kfit_store_del(s, KFIT_TABLE_EVALS, "key000007", 9, &err), err);
    CHECK_OK(kfit_store_del(s, KFIT_TABLE_EVALS, "key000007", 9, &err), err);
    kfit_store_close(s);
    s = open_store(KFIT_STORE_READ);
    CHECK_INT(count(s, ""), 49);
    CHECK_INT(count(s, "key00001"), 10);
    CHECK_INT(count(s, "zzz"), 0);
    for (unsigned i = 0; i < 50; i++)
        if (i != 7)
            expect(s, i, 10 * i);
    CHECK_STATUS(kfit_store_put(s, KFIT_TABLE_EVALS, "k", 1, "v", 1, &err), KFIT_E_ARG);
    kfit_store_close(s);
    kfit_store_close(NULL);
}

static void refuses_bad_keys(void)
{
    struct kfit_store *s = open_store(KFIT_STORE_WRITE);
    char key[512] = {1};
    void *value;
    size_t n;
    struct kfit_error err = {0};
    CHECK_OK(kfit_store_put(s, KFIT_TABLE_EVALS, key, 511, "v", 1, &err), err);
    CHECK_STATUS(kfit_store_put(s, KFIT_TABLE_EVALS, key, 512, "v", 1, &err), KFIT_E_ARG);
    CHECK_STATUS(kfit_store_put(s, KFIT_TABLE_EVALS, key, 0, "v", 1, &err), KFIT_E_ARG);
    CHECK_STATUS(kfit_store_put(s, KFIT_TABLE_COUNT, key, 1, "v", 1, &err), KFIT_E_ARG);
    CHECK_STATUS(kfit_store_get(s, KFIT_TABLE_EVALS, key, 512, &value, &n, &err), KFIT_E_ARG);
    CHECK_STATUS(kfit_store_open(NULL, 0, &s, &err), KFIT_E_ARG);
}

static void applies_all_or_nothing(void)
{
    struct kfit_store *s = open_store(KFIT_STORE_WRITE);
    struct kfit_error err = {0};
    put(s, 1, 1);
    const struct kfit_store_op bad[] = {{KFIT_TABLE_EVALS, "key000001", 9, NULL, 0},
                                        {KFIT_TABLE_EVALS, "key000002", 9, "b", 1},
                                        {KFIT_TABLE_BANS, "", 0, "b", 1}};
    CHECK_STATUS(kfit_store_apply(s, bad, 3, &err), KFIT_E_ARG);
    CHECK_INT(count(s, ""), 1);
    CHECK_OK(kfit_store_apply(s, bad, 2, &err), err);
    CHECK_INT(count(s, "key000001"), 0);
    CHECK_INT(count(s, "key000002"), 1);
}

static int stage_see(void *ctx, const struct kfit_record *r, const char *problem)
{
    struct kfit_record *want = ctx;
    CHECK(r && !problem);
    for (unsigned i = 0; i < 16; i++)
        if (records_same(&want[i], r)) {
            want[i].kind = 0; /* each once */
            return 0;
        }
    CHECK_MSG(0, "a record that was not staged");
    return 0;
}

static void stages_records(void)
{
    struct kfit_store *s = open_store(KFIT_STORE_WRITE);
    struct kfit_env env = records_env(), other = env;
    struct kfit_record *r = records_make(16), back;
    struct kfit_error err = {0};
    char text[KFIT_ENV_TEXT_MAX];
    uint8_t key[KFIT_STORE_KEY_MAX];
    void *bytes;
    size_t n;
    for (unsigned i = 0; i < 16; i++)
        CHECK_OK(kfit_store_stage(s, &env, &r[i], i ? "{\"version\":1}" : NULL, &err), err);
    other.hard_hash++;
    CHECK_STATUS(kfit_store_stage(s, &other, &r[0], NULL, &err), KFIT_E_ARG);
    back = r[0];
    back.plan.launch_count = 9;
    CHECK_STATUS(kfit_store_stage(s, &env, &back, NULL, &err), KFIT_E_FORMAT);
    CHECK_OK(kfit_store_staged(s, env.hard_hash, &r[3].key, &back, &bytes, &err), err);
    CHECK(records_same(&back, &r[3]));
    free(bytes);
    CHECK_STATUS(kfit_store_staged(s, env.hard_hash + 1, &r[3].key, &back, &bytes, &err), KFIT_E_NOTFOUND);
    n = kfit_store_key(key, env.hard_hash, &r[3].key, r[3].source_digest);
    CHECK_OK(kfit_store_get(s, KFIT_TABLE_RECEIPTS, key, n, &bytes, &n, &err), err);
    CHECK_STR(bytes, "{\"version\":1}");
    n = kfit_store_key(key, env.hard_hash, &r[0].key, r[0].source_digest);
    CHECK_STATUS(kfit_store_get(s, KFIT_TABLE_RECEIPTS, key, n, &bytes, &n, &err), KFIT_E_NOTFOUND);
    CHECK(kfit_store_env(s, env.soft_hash, text));
    CHECK_STR(text, env.soft);
    CHECK(!kfit_store_env(s, 1, text));
    CHECK_OK(kfit_store_staged_each(s, env.hard_hash, stage_see, r, &err), err);
    for (unsigned i = 0; i < 16; i++)
        CHECK_INT(r[i].kind, 0);
    CHECK_OK(kfit_store_staged_each(s, env.hard_hash + 1, stage_see, r, &err), err);
}

static int nested(void *ctx, const void *key, size_t key_bytes, const void *value, size_t bytes,
                  const char *problem)
{
    struct seen *seen = ctx;
    struct kfit_error err = {0};
    void *copy;
    size_t n;
    CHECK(!problem);
    CHECK_STATUS(kfit_store_put(seen->store, KFIT_TABLE_EVALS, "x", 1, "y", 1, &err), KFIT_E_BUSY);
    CHECK_OK(kfit_store_get(seen->store, KFIT_TABLE_EVALS, key, key_bytes, &copy, &n, &err), err);
    CHECK(n == bytes && !memcmp(copy, value, n));
    free(copy);
    CHECK_INT(count(seen->store, ""), 5);
    return ++seen->count == 3;
}

static void visits_one_snapshot(void)
{
    struct kfit_store *s = open_store(KFIT_STORE_WRITE);
    struct seen seen = {.store = s};
    struct kfit_error err = {0};
    for (unsigned i = 0; i < 5; i++)
        put(s, i, 100);
    CHECK_OK(kfit_store_each(s, KFIT_TABLE_EVALS, NULL, 0, nested, &seen, &err), err);
    CHECK_INT(seen.count, 3);
    put(s, 9, 1); /* writing is possible again */
    CHECK_INT(count(s, ""), 6);
}

static void read_all(void)
{
    static struct kfit_store *s;
    s = open_store(KFIT_STORE_READ);
    CHECK(count(s, "") > 0);
}

/* A reader that opened the small map follows its growth; the writer grows it. */
static void grows_and_readers_follow(void)
{
    struct kfit_store *s = open_store(KFIT_STORE_WRITE);
    int go[2], done[2];
    char byte;
    put(s, 0, 1000);
    CHECK(!pipe(go) && !pipe(done));
    fflush(stdout);
    pid_t pid = fork();
    if (!pid) {
        struct kfit_store *r = open_store(KFIT_STORE_READ);
        CHECK_INT(count(r, ""), 1);
        CHECK(write(done[1], "x", 1) == 1 && read(go[0], &byte, 1) == 1);
        CHECK_INT(count(r, ""), 100);
        expect(r, 99, 200000);
        kfit_store_close(r);
        fflush(stdout);
        _exit(0);
    }
    int st;
    CHECK(read(done[0], &byte, 1) == 1);
    for (unsigned i = 1; i < 100; i++)
        put(s, i, 200000);
    CHECK(write(go[1], "x", 1) == 1);
    CHECK(waitpid(pid, &st, 0) == pid && !st);
    size_t n = 30 << 20;
    char *large = calloc(1, n);
    struct kfit_error err = {0};
    CHECK_OK(kfit_store_put(s, KFIT_TABLE_SOURCES, "large", 5, large, n, &err),
             err); /* several doublings at once */
    kfit_store_close(s);
    s = open_store(KFIT_STORE_WRITE);
    CHECK_INT(count(s, ""), 100);
}

static void open_for_writing(void)
{
    put(open_store(KFIT_STORE_WRITE), 1, 1);
}

static void one_writer(void)
{
    char text[64];
    pid_t pid = beside(open_for_writing);
    snprintf(text, sizeof text, "process %d is writing", (int)pid);
    refused(KFIT_STORE_WRITE, KFIT_E_BUSY, text);
    struct kfit_store *r = open_store(KFIT_STORE_READ);
    refused(KFIT_STORE_READ, KFIT_E_BUSY, "already open in this process");
    CHECK_INT(count(r, ""), 1);
    kfit_store_close(r);
    end(pid);
    kfit_store_close(open_store(KFIT_STORE_WRITE));
    kfit_store_close(open_store(KFIT_STORE_WRITE));
}

static void refuses_use_after_fork(void)
{
    struct kfit_store *s = open_store(KFIT_STORE_WRITE), *r;
    struct kfit_error err = {0};
    put(s, 1, 1);
    fflush(stdout);
    pid_t pid = fork();
    int st;
    if (!pid) {
        void *value;
        size_t n;
        struct seen seen = {0};
        CHECK_STATUS(kfit_store_put(s, KFIT_TABLE_EVALS, "k", 1, "v", 1, &err), KFIT_E_BUSY);
        CHECK(strstr(err.text, "before fork"));
        CHECK_STATUS(kfit_store_get(s, KFIT_TABLE_EVALS, "key000001", 9, &value, &n, &err), KFIT_E_BUSY);
        CHECK_STATUS(kfit_store_each(s, KFIT_TABLE_EVALS, "", 0, see, &seen, &err), KFIT_E_BUSY);
        refused(KFIT_STORE_WRITE, KFIT_E_BUSY, "is writing"); /* the parent still is */
        r = open_store(KFIT_STORE_READ);
        kfit_store_close(s);
        CHECK_INT(count(r, ""), 1);
        kfit_store_close(r);
        fflush(stdout);
        _exit(0);
    }
    CHECK(waitpid(pid, &st, 0) == pid && !st);
    put(s, 2, 1);
    CHECK_INT(count(s, ""), 2);
    kfit_store_close(s);
}

static void overwrite_all(void)
{
    struct kfit_store *s = open_store(KFIT_STORE_WRITE);
    for (unsigned round = 0; round < 5; round++)
        for (unsigned i = 0; i < 20; i++)
            put(s, i, 900);
    kfit_store_close(s);
}

static struct kfit_store *inherited;

static void writer_is_busy(void)
{
    refused(KFIT_STORE_WRITE, KFIT_E_BUSY, "is writing");
}

/* The child's own store keeps its lock, though closing a descriptor drops a process's locks on the file. */
static void close_inherited(void)
{
    struct kfit_store *s = open_store(KFIT_STORE_WRITE);
    kfit_store_close(inherited);
    kfit_test_child(writer_is_busy, NULL);
    kfit_store_close(s);
}

static int disturb(void *ctx, const void *key, size_t key_bytes, const void *value, size_t n,
                   const char *problem)
{
    unsigned *seen = ctx;
    (void)key, (void)key_bytes, (void)value;
    CHECK_MSG(!problem && n == 3000, "entry %u: %zu bytes, %s", *seen, n,
              problem ? problem : "another's value");
    if (!(*seen)++) {
        kfit_test_child(close_inherited, NULL);
        kfit_test_child(overwrite_all, NULL);
    }
    return 0;
}

/* A child that closes what it inherited must not free the snapshot that its parent reads. */
static void snapshot_outlives_a_childs_close(void)
{
    struct kfit_error err = {0};
    unsigned seen = 0;
    struct kfit_store *s = open_store(KFIT_STORE_WRITE);
    for (unsigned i = 0; i < 20; i++)
        put(s, i, 3000);
    kfit_store_close(s);
    inherited = open_store(KFIT_STORE_READ);
    CHECK_OK(kfit_store_each(inherited, KFIT_TABLE_EVALS, NULL, 0, disturb, &seen, &err), err);
    CHECK_INT(seen, 20);
    expect(inherited, 3, 900);
}

static void many_readers(void)
{
    struct kfit_store *s = open_store(KFIT_STORE_WRITE);
    pid_t pids[8];
    put(s, 0, 5000);
    fflush(stdout);
    for (unsigned p = 0; p < 8; p++) {
        pids[p] = fork();
        if (!pids[p]) {
            struct kfit_store *r = open_store(KFIT_STORE_READ);
            for (unsigned round = 0; round < 50; round++) {
                unsigned n = count(r, "");
                CHECK(n >= 1);
                expect(r, n - 1, 5000);
            }
            kfit_store_close(r);
            fflush(stdout);
            _exit(0);
        }
    }
    for (unsigned i = 1; i < 200; i++)
        put(s, i, 5000);
    for (unsigned p = 0; p < 8; p++) {
        int st;
        CHECK(waitpid(pids[p], &st, 0) == pids[p] && !st);
    }
}

static size_t file_bytes(const char *name)
{
    struct stat st;
    CHECK(!stat(path(name), &st));
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
    struct kfit_store *s = open_store(KFIT_STORE_WRITE);
    int ready[2];
    char byte;
    put(s, 1, 50000);
    kfit_store_close(s);
    CHECK(!pipe(ready));
    fflush(stdout);
    pid_t pid = fork();
    if (!pid) {
        s = open_store(KFIT_STORE_READ);
        kfit_store_each(s, KFIT_TABLE_EVALS, NULL, 0, stay, &ready[1], NULL);
        _exit(1);
    }
    CHECK(read(ready[0], &byte, 1) == 1);
    pid_t other = beside(read_all); /* so that the table is not made afresh */
    end(pid);
    s = open_store(KFIT_STORE_WRITE);
    put(s, 1, 50000);
    put(s, 1, 50000);
    put(s, 1, 50000);
    size_t before = file_bytes("/store/data.mdb");
    for (unsigned i = 0; i < 20; i++)
        put(s, 1, 50000);
    CHECK_INT(file_bytes("/store/data.mdb"), before);
    kfit_store_close(s);
    end(other);
}

static void refuses_damaged_files(void)
{
    struct kfit_store *s = open_store(KFIT_STORE_WRITE);
    for (unsigned i = 0; i < 20; i++)
        put(s, i, 3000);
    kfit_store_close(s);
    size_t n;
    char *bytes = kfit_test_read(path("/store/data.mdb"), &n), *copy = malloc(n);
    const size_t cuts[] = {1, 100, 4096, 4200, n / 2, n - 1};
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++)
        for (unsigned write = 0; write < 2; write++) {
            CHECK(!truncate(path("/store/data.mdb"), (off_t)cuts[i]));
            refused(write, KFIT_E_FORMAT, "data.mdb");
            kfit_test_write(path("/store/data.mdb"), bytes, n);
        }
    kfit_test_write(path("/store/data.mdb"), "hello", 5);
    refused(KFIT_STORE_WRITE, KFIT_E_FORMAT, "not an LMDB file");
    for (unsigned meta = 0; meta < 2; meta++) { /* LMDB's own version, in both meta pages */
        memcpy(copy, bytes, n);
        copy[4096 * meta + 20]++;
        kfit_test_write(path("/store/data.mdb"), copy, n);
        refused(KFIT_STORE_WRITE, meta ? KFIT_E_FORMAT : KFIT_E_VERSION, meta ? "second" : "LMDB format 2");
    }
    kfit_test_write(path("/store/data.mdb"), bytes, n);
    s = open_store(KFIT_STORE_READ);
    CHECK_INT(count(s, ""), 20);
}

/* A flipped bit in a value is named by get and each, and the other entries are still there. */
static void notices_flipped_values(void)
{
    struct kfit_store *s = open_store(KFIT_STORE_WRITE);
    struct seen seen = {0};
    struct kfit_error err = {0};
    for (unsigned i = 0; i < 20; i++)
        put(s, i, 3000);
    kfit_store_close(s);
    size_t n;
    char *bytes = kfit_test_read(path("/store/data.mdb"), &n), run[200];
    memset(run, 'a' + 5, sizeof run);
    char *at = memmem(bytes, n, run, sizeof run);
    CHECK(at);
    for (char *p = at; (p = memmem(p, n - (size_t)(p - bytes), run, sizeof run)); p += sizeof run)
        p[100] ^= 1; /* every copy of it that the file may have */
    kfit_test_write(path("/store/data.mdb"), bytes, n);
    s = open_store(KFIT_STORE_READ);
    void *value;
    CHECK_STATUS(kfit_store_get(s, KFIT_TABLE_EVALS, "key000005", 9, &value, &n, &err), KFIT_E_FORMAT);
    CHECK(!value && strstr(err.text, "checksum"));
    CHECK_OK(kfit_store_each(s, KFIT_TABLE_EVALS, NULL, 0, see, &seen, &err), err);
    CHECK(seen.bad == 1 && seen.count == 19);
}

static void refuses_newer_and_foreign_stores(void)
{
    struct kfit_store *s = open_store(KFIT_STORE_WRITE);
    struct kfit_error err = {0};
    CHECK_OK(kfit_store_put(s, KFIT_TABLE_META, "format", 6, "2", 1, &err), err);
    kfit_store_close(s);
    refused(KFIT_STORE_WRITE, KFIT_E_VERSION, "store format 2");
    refused(KFIT_STORE_READ, KFIT_E_VERSION, "store format 2");
    char command[1200];
    CHECK(!unlink(path("/store/data.mdb")) && !unlink(path("/store/lock.mdb")));
    snprintf(command, sizeof command,
             "printf 'VERSION=3\\nformat=bytevalue\\ntype=btree\\nHEADER=END\\n 61\\n 62\\nDATA=END\\n' | "
             "mdb_load %s/store",
             path(""));
    if (system("command -v mdb_load >/dev/null"))
        SKIP("no mdb_load to make a foreign database");
    CHECK(!system(command));
    refused(KFIT_STORE_WRITE, KFIT_E_FORMAT, "not a kfit store");
    refused(KFIT_STORE_READ, KFIT_E_FORMAT, "not a kfit store");
}

static void starts_again_after_a_crash_at_birth(void)
{
    struct kfit_store *s = open_store(KFIT_STORE_WRITE);
    kfit_store_close(s);
    kfit_test_write(path("/store/data.mdb"), "", 0); /* killed between open and the first write */
    refused(KFIT_STORE_READ, KFIT_E_NOTFOUND, "nothing in it yet");
    s = open_store(KFIT_STORE_WRITE);
    put(s, 1, 1);
}

static void perm(void)
{
    refused(KFIT_STORE_WRITE, KFIT_E_PERM, "");
    refused(KFIT_STORE_READ, KFIT_E_PERM, "");
}

static void refuses_what_others_could_write(void)
{
    kfit_test_child(open_for_writing, NULL);
    const char *names[] = {"", "/store", "/store/data.mdb"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct stat st;
        CHECK(!stat(path(names[i]), &st) && !chmod(path(names[i]), st.st_mode | 020));
        kfit_test_child(perm, NULL);
        CHECK(!chmod(path(names[i]), st.st_mode));
    }
}

static void as_nobody(void)
{
    CHECK(!setgid(65534) && !setuid(65534));
}

static void not_theirs(void)
{
    refused(KFIT_STORE_READ, KFIT_E_PERM, "belongs to uid 0");
}

static void other_users(void)
{
    if (geteuid())
        SKIP("needs root to become another user");
    kfit_test_child(open_for_writing, NULL);
    CHECK(!chmod(kfit_test_dir(), 0755));
    kfit_test_child(perm, as_nobody);
    CHECK(!chmod(path("/store"), 0755) && !chmod(path("/store/data.mdb"), 0644) &&
          !chmod(path("/store/lock.mdb"), 0666) && !chmod(path("/store/writer.lock"), 0666));
    kfit_test_child(not_theirs, as_nobody); /* though they could read it */
    CHECK(!chmod(path("/store"), 0700) && !chown(path("/store"), 1, 1));
    refused(KFIT_STORE_WRITE, KFIT_E_PERM, "belongs to uid 1");
    CHECK(!chown(path("/store"), 0, 0) && !chown(path("/store/data.mdb"), 1, 1));
    refused(KFIT_STORE_WRITE, KFIT_E_PERM, "belongs to uid 1");
    CHECK(!unlink(path("/store/data.mdb")) && !symlink("/etc/hostname", path("/store/data.mdb")));
    refused(KFIT_STORE_WRITE, KFIT_E_PERM, "symbolic link");
}

static void private_mounts(void)
{
    if (unshare(CLONE_NEWNS))
        SKIP("no mount namespace: %s", strerror(errno));
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL)) /* the root of a chroot is no mount */
        SKIP("mounts cannot be made private here: %s", strerror(errno));
}

static void mount_read_only(void)
{
    private_mounts();
    if (mount(path(""), path(""), NULL, MS_BIND, NULL) ||
        mount(NULL, path(""), NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL))
        SKIP("no bind mount: %s", strerror(errno));
}

static void reads_a_copy(void)
{
    refused(KFIT_STORE_WRITE, KFIT_E_PERM, "Read-only");
    struct kfit_store *s = open_store(KFIT_STORE_READ);
    expect(s, 1, 1);
    kfit_store_close(s);
}

static void waits_for_the_writer(void)
{
    refused(KFIT_STORE_READ, KFIT_E_BUSY, "being written");
}

static void read_only_mount(void)
{
    kfit_test_child(open_for_writing, NULL);
    kfit_test_child(reads_a_copy, mount_read_only);
    pid_t pid = beside(open_for_writing);
    kfit_test_child(waits_for_the_writer, mount_read_only);
    end(pid);
    CHECK(!unlink(path("/store/writer.lock"))); /* as in an image that was packed without it */
    kfit_test_child(reads_a_copy, mount_read_only);
}

static void new_pids(void)
{
    if (unshare(CLONE_NEWPID))
        SKIP("no PID namespace: %s", strerror(errno));
}

static void other_namespace_is_busy(void)
{
    refused(KFIT_STORE_READ, KFIT_E_BUSY, "PID namespace");
    refused(KFIT_STORE_WRITE, KFIT_E_BUSY, "PID namespace");
}

static void busy_inside(void)
{
    kfit_test_child(other_namespace_is_busy, NULL); /* unshare moves only children */
}

static void read_inside(void)
{
    kfit_test_child(read_all, NULL);
}

static void two_pid_namespaces(void)
{
    kfit_test_child(open_for_writing, NULL);
    pid_t pid = beside(open_for_writing);
    kfit_test_child(busy_inside, new_pids);
    end(pid);
    pid = beside(read_all); /* also beside a reader: the lock file has its number */
    kfit_test_child(busy_inside, new_pids);
    end(pid);
    kfit_test_child(read_inside, new_pids);
}

static void small_disk(void)
{
    private_mounts();
    CHECK(!mkdir(path(""), 0755));
    if (mount("tmpfs", path(""), "tmpfs", 0, "size=400k,mode=755"))
        SKIP("no tmpfs: %s", strerror(errno));
}

static void fills_the_disk(void)
{
    struct kfit_store *s = open_store(KFIT_STORE_WRITE);
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
    CHECK_INT(count(s, ""), n); /* nothing lost, nothing half-written */
    CHECK_OK(kfit_store_del(s, KFIT_TABLE_EVALS, "key000000", 9, &err), err);
    kfit_store_close(s);
    s = open_store(KFIT_STORE_WRITE);
    CHECK_INT(count(s, ""), n - 1);
    kfit_store_close(s);
}

static void full_from_the_start(void)
{
    char big[400 << 10] = {0};
    int fd = open(path("/filler"), O_CREAT | O_WRONLY, 0600);
    CHECK(fd >= 0 && write(fd, big, sizeof big) > 0);
    refused(KFIT_STORE_WRITE, KFIT_E_FULL, "No space left");
    close(fd);
    CHECK(!unlink(path("/filler")));
    kfit_store_close(open_store(KFIT_STORE_WRITE));
}

static void full_disk(void)
{
    kfit_test_child(fills_the_disk, small_disk);
    CHECK(!rmdir(path("")));
    kfit_test_child(full_from_the_start, small_disk);
}

/* Writers killed at any moment: what was said to be stored is there, and each transaction is whole. */
static void survives_sigkill(void)
{
    unsigned total = 0;
    int fds[2];
    CHECK(!pipe(fds));
    fflush(stdout);
    kfit_store_close(open_store(KFIT_STORE_WRITE));
    for (unsigned round = 0; round < 60; round++) {
        pid_t pid = fork();
        if (!pid) {
            struct kfit_store *s = open_store(KFIT_STORE_WRITE);
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
        const struct timespec pause = {0, (long)(kfit_test_random() % 15000000)};
        nanosleep(&pause, NULL);
        CHECK(!kill(pid, SIGKILL) && waitpid(pid, NULL, 0) == pid);
        unsigned last;
        CHECK(!fcntl(fds[0], F_SETFL, O_NONBLOCK));
        while (read(fds[0], &last, sizeof last) == sizeof last)
            total = last + 1;
        struct kfit_store *s = open_store(KFIT_STORE_READ);
        unsigned a = count(s, "a"), b = count(s, "b");
        CHECK_MSG(a == b && a >= total && a <= total + 1, "%u and %u entries, %u were reported", a, b, total);
        kfit_store_close(s);
        total = a;
    }
    CHECK_MSG(total > 5, "only %u transactions; the test does not reach its aim", total);
}

static const struct kfit_test tests[] = {
    TEST(keeps_what_was_put),
    TEST(refuses_bad_keys),
    TEST(applies_all_or_nothing),
    TEST(stages_records),
    TEST(visits_one_snapshot),
    TEST(grows_and_readers_follow),
    TEST(one_writer),
    TEST(refuses_use_after_fork),
    TEST(snapshot_outlives_a_childs_close),
    TEST(many_readers),
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
