#include "kfit/store.h"
#include "kfit_test.h"
#include "records.h"
#include "stores.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void keeps_what_was_put(void)
{
    struct kfit_error err = {0};
    void *value;
    size_t n;
    stores_refused(KFIT_STORE_READ, KFIT_E_NOTFOUND, "No such file");
    struct kfit_store *s = stores_open(KFIT_STORE_WRITE);
    for (unsigned i = 0; i < 50; i++)
        stores_put(s, i, 10 * i);
    CHECK_STATUS(kfit_store_get(s, KFIT_TABLE_EVALS, "nokey", 5, &value, &n, &err), KFIT_E_NOTFOUND);
    CHECK(!value);
    CHECK_STATUS(kfit_store_get(s, KFIT_TABLE_BANS, "key000001", 9, &value, &n, &err), KFIT_E_NOTFOUND);
    CHECK_OK(kfit_store_del(s, KFIT_TABLE_EVALS, "key000007", 9, &err), err);
    CHECK_OK(kfit_store_del(s, KFIT_TABLE_EVALS, "key000007", 9, &err), err);
    kfit_store_close(s);
    s = stores_open(KFIT_STORE_READ);
    CHECK_INT(stores_count(s, ""), 49);
    CHECK_INT(stores_count(s, "key00001"), 10);
    CHECK_INT(stores_count(s, "zzz"), 0);
    for (unsigned i = 0; i < 50; i++)
        if (i != 7)
            stores_expect(s, i, 10 * i);
    CHECK_STATUS(kfit_store_put(s, KFIT_TABLE_EVALS, "k", 1, "v", 1, &err), KFIT_E_ARG);
    kfit_store_close(s);
    kfit_store_close(NULL);
}

static void refuses_bad_keys(void)
{
    struct kfit_store *s = stores_open(KFIT_STORE_WRITE);
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
    struct kfit_store *s = stores_open(KFIT_STORE_WRITE);
    struct kfit_error err = {0};
    stores_put(s, 1, 1);
    const struct kfit_store_op bad[] = {{KFIT_TABLE_EVALS, "key000001", 9, NULL, 0},
                                        {KFIT_TABLE_EVALS, "key000002", 9, "b", 1},
                                        {KFIT_TABLE_BANS, "", 0, "b", 1}};
    CHECK_STATUS(kfit_store_apply(s, bad, 3, &err), KFIT_E_ARG);
    CHECK_INT(stores_count(s, ""), 1);
    CHECK_OK(kfit_store_apply(s, bad, 2, &err), err);
    CHECK_INT(stores_count(s, "key000001"), 0);
    CHECK_INT(stores_count(s, "key000002"), 1);
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
    struct kfit_store *s = stores_open(KFIT_STORE_WRITE);
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
    struct stores_seen *seen = ctx;
    struct kfit_error err = {0};
    void *copy;
    size_t n;
    CHECK(!problem);
    CHECK_STATUS(kfit_store_put(seen->store, KFIT_TABLE_EVALS, "x", 1, "y", 1, &err), KFIT_E_BUSY);
    CHECK_OK(kfit_store_get(seen->store, KFIT_TABLE_EVALS, key, key_bytes, &copy, &n, &err), err);
    CHECK(n == bytes && !memcmp(copy, value, n));
    free(copy);
    CHECK_INT(stores_count(seen->store, ""), 5);
    return ++seen->count == 3;
}

static void visits_one_snapshot(void)
{
    struct kfit_store *s = stores_open(KFIT_STORE_WRITE);
    struct stores_seen seen = {.store = s};
    struct kfit_error err = {0};
    for (unsigned i = 0; i < 5; i++)
        stores_put(s, i, 100);
    CHECK_OK(kfit_store_each(s, KFIT_TABLE_EVALS, NULL, 0, nested, &seen, &err), err);
    CHECK_INT(seen.count, 3);
    stores_put(s, 9, 1); /* writing is possible again */
    CHECK_INT(stores_count(s, ""), 6);
}

/* A reader that opened the small map follows its growth; the writer grows it. */
static void grows_and_readers_follow(void)
{
    struct kfit_store *s = stores_open(KFIT_STORE_WRITE);
    int go[2], done[2];
    char byte;
    stores_put(s, 0, 1000);
    CHECK(!pipe(go) && !pipe(done));
    fflush(stdout);
    pid_t pid = fork();
    if (!pid) {
        struct kfit_store *r = stores_open(KFIT_STORE_READ);
        CHECK_INT(stores_count(r, ""), 1);
        CHECK(write(done[1], "x", 1) == 1 && read(go[0], &byte, 1) == 1);
        CHECK_INT(stores_count(r, ""), 100);
        stores_expect(r, 99, 200000);
        kfit_store_close(r);
        fflush(stdout);
        _exit(0);
    }
    int st;
    CHECK(read(done[0], &byte, 1) == 1);
    for (unsigned i = 1; i < 100; i++)
        stores_put(s, i, 200000);
    CHECK(write(go[1], "x", 1) == 1);
    CHECK(waitpid(pid, &st, 0) == pid && !st);
    size_t n = 30 << 20;
    char *large = calloc(1, n);
    struct kfit_error err = {0};
    CHECK_OK(kfit_store_put(s, KFIT_TABLE_SOURCES, "large", 5, large, n, &err),
             err); /* several doublings at once */
    kfit_store_close(s);
    s = stores_open(KFIT_STORE_WRITE);
    CHECK_INT(stores_count(s, ""), 100);
}

static void one_writer(void)
{
    char text[64];
    pid_t pid = stores_beside(stores_write_one);
    snprintf(text, sizeof text, "process %d is writing", (int)pid);
    stores_refused(KFIT_STORE_WRITE, KFIT_E_BUSY, text);
    struct kfit_store *r = stores_open(KFIT_STORE_READ);
    stores_refused(KFIT_STORE_READ, KFIT_E_BUSY, "already open in this process");
    CHECK_INT(stores_count(r, ""), 1);
    kfit_store_close(r);
    stores_end(pid);
    kfit_store_close(stores_open(KFIT_STORE_WRITE));
    kfit_store_close(stores_open(KFIT_STORE_WRITE));
}

static void refuses_use_after_fork(void)
{
    struct kfit_store *s = stores_open(KFIT_STORE_WRITE), *r;
    struct kfit_error err = {0};
    stores_put(s, 1, 1);
    fflush(stdout);
    pid_t pid = fork();
    int st;
    if (!pid) {
        void *value;
        size_t n;
        struct stores_seen seen = {0};
        CHECK_STATUS(kfit_store_put(s, KFIT_TABLE_EVALS, "k", 1, "v", 1, &err), KFIT_E_BUSY);
        CHECK(strstr(err.text, "before fork"));
        CHECK_STATUS(kfit_store_get(s, KFIT_TABLE_EVALS, "key000001", 9, &value, &n, &err), KFIT_E_BUSY);
        CHECK_STATUS(kfit_store_each(s, KFIT_TABLE_EVALS, "", 0, stores_see, &seen, &err), KFIT_E_BUSY);
        stores_refused(KFIT_STORE_WRITE, KFIT_E_BUSY, "is writing"); /* the parent still is */
        r = stores_open(KFIT_STORE_READ);
        kfit_store_close(s);
        CHECK_INT(stores_count(r, ""), 1);
        kfit_store_close(r);
        fflush(stdout);
        _exit(0);
    }
    CHECK(waitpid(pid, &st, 0) == pid && !st);
    stores_put(s, 2, 1);
    CHECK_INT(stores_count(s, ""), 2);
    kfit_store_close(s);
}

static void overwrite_all(void)
{
    struct kfit_store *s = stores_open(KFIT_STORE_WRITE);
    for (unsigned round = 0; round < 5; round++)
        for (unsigned i = 0; i < 20; i++)
            stores_put(s, i, 900);
    kfit_store_close(s);
}

static struct kfit_store *inherited;

static void writer_is_busy(void)
{
    stores_refused(KFIT_STORE_WRITE, KFIT_E_BUSY, "is writing");
}

/* The child's own store keeps its lock, though closing a descriptor drops a process's locks on the file. */
static void close_inherited(void)
{
    struct kfit_store *s = stores_open(KFIT_STORE_WRITE);
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
    struct kfit_store *s = stores_open(KFIT_STORE_WRITE);
    for (unsigned i = 0; i < 20; i++)
        stores_put(s, i, 3000);
    kfit_store_close(s);
    inherited = stores_open(KFIT_STORE_READ);
    CHECK_OK(kfit_store_each(inherited, KFIT_TABLE_EVALS, NULL, 0, disturb, &seen, &err), err);
    CHECK_INT(seen, 20);
    stores_expect(inherited, 3, 900);
}

static void many_readers(void)
{
    struct kfit_store *s = stores_open(KFIT_STORE_WRITE);
    pid_t pids[8];
    stores_put(s, 0, 5000);
    fflush(stdout);
    for (unsigned p = 0; p < 8; p++) {
        pids[p] = fork();
        if (!pids[p]) {
            struct kfit_store *r = stores_open(KFIT_STORE_READ);
            for (unsigned round = 0; round < 50; round++) {
                unsigned n = stores_count(r, "");
                CHECK(n >= 1);
                stores_expect(r, n - 1, 5000);
            }
            kfit_store_close(r);
            fflush(stdout);
            _exit(0);
        }
    }
    for (unsigned i = 1; i < 200; i++)
        stores_put(s, i, 5000);
    for (unsigned p = 0; p < 8; p++) {
        int st;
        CHECK(waitpid(pids[p], &st, 0) == pids[p] && !st);
    }
}

static const struct kfit_test tests[] = {
    TEST(keeps_what_was_put), TEST(refuses_bad_keys),       TEST(applies_all_or_nothing),
    TEST(stages_records),     TEST(visits_one_snapshot),    TEST(grows_and_readers_follow),
    TEST(one_writer),         TEST(refuses_use_after_fork), TEST(snapshot_outlives_a_childs_close),
    TEST(many_readers),
};
TEST_MAIN(tests)
