/* What is taken in from a generation's file: published under a number, or staged; all of it or nothing. */
#include "exchanging.h"
#include "kfit/store.h"
#include "kfit_test.h"
#include "records.h"

#include <errno.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* ---- import ---- */

static enum kfit_status import(const char *dir, const char *file, struct kfit_import_params p,
                               uint64_t *number, enum kfit_imported *how, struct kfit_error *err)
{
    p.dir = kfit_test_path(dir);
    p.from = opened(file);
    p.approver = "Bob";
    enum kfit_status s = kfit_generation_import(&p, number, how, err);
    kfit_generation_close(p.from);
    return s;
}

static void imports(const char *dir, const char *file, struct kfit_import_params p, uint64_t want,
                    enum kfit_imported want_how)
{
    uint64_t number, current;
    uint8_t sha256[32];
    enum kfit_imported how;
    struct kfit_error err = {0};
    CHECK_OK(import(dir, file, p, &number, &how, &err), err);
    CHECK_INT(number, want);
    CHECK_INT(how, want_how);
    CHECK_OK(kfit_generation_current(kfit_test_path(dir), &current, sha256, &err), err);
    CHECK(how != KFIT_IMPORTED || current == number);
}

static struct kfit_manifest manifest_of(const char *dir, uint64_t number)
{
    struct kfit_manifest m;
    struct kfit_error err = {0};
    CHECK_OK(kfit_manifest_read(kfit_test_path(dir), number, &m, &err), err);
    return m;
}

static void numbers_and_signatures(void)
{
    const struct kfit_import_params none = {0}, sign = {.sign = key(1)}, drop = {.drop_signature = true};
    struct kfit_generation *g;
    struct kfit_error err = {0};
    uint64_t number;
    enum kfit_imported how;
    char trust[KFIT_PUBLIC_KEY_TEXT_MAX];
    kfit_public_key_format(&key(0)->public_key, trust);
    for (unsigned i = 1; i <= 5; i++)
        publish("a", i, i < 5 ? key(0) : NULL);
    export("a", "3", "f3");
    export("a", "4", "f4");
    export("a", "5", "f5");

    /* above all that are there: as it is, signature and all */
    imports("b", "f3", none, 3, KFIT_IMPORTED);
    struct kfit_manifest m = manifest_of("b", 3), was = manifest_of("a", 3);
    CHECK(!memcmp(&m, &was, sizeof m));
    CHECK_OK(kfit_generation_open_trusted(kfit_test_path("b"), NULL, trust, &g, &err), err);
    kfit_generation_close(g);
    imports("b", "f3", none, 3, KFIT_IMPORTED_BEFORE);
    imports("b", "f5", none, 5, KFIT_IMPORTED);
    imports("b", "f3", none, 3, KFIT_IMPORTED_BEFORE); /* there, and not current any more */

    /* passed: under the next number, which the signature is not for */
    CHECK_STATUS(import("b", "f4", none, &number, &how, &err), KFIT_E_TRUST);
    CHECK_MSG(strstr(err.text, "would become number 6"), "%s", err.text);
    CHECK_INT(kfit_generation_list(kfit_test_path("b"), NULL, 0), 2);
    imports("b", "f4", sign, 6, KFIT_IMPORTED);
    m = manifest_of("b", 6);
    CHECK(!memcmp(m.signed_by, key(1)->public_key.bytes, 32));
    CHECK_STR(m.approver, "Bob");
    CHECK_STR(m.note, "was generation 4, approved by Ada: a note");
    CHECK_OK(kfit_manifest_trusted(&m, NULL, "m", NULL, &err), err);
    imports("b", "f4", drop, 6, KFIT_IMPORTED_BEFORE); /* the same content is current */
    imports("b", "f3", none, 3, KFIT_IMPORTED_BEFORE);
    CHECK_INT(publish("b", 9, NULL), 7);
    imports("b", "f4", drop, 8, KFIT_IMPORTED);
    CHECK(!manifest_of("b", 8).is_signed);

    /* the number is another's */
    publish("c", 7, NULL), publish("c", 7, NULL), publish("c", 7, NULL);
    CHECK_STATUS(import("c", "f3", none, &number, &how, &err), KFIT_E_TRUST);
    imports("c", "f3", drop, 4, KFIT_IMPORTED);
    imports("c", "f5", none, 5, KFIT_IMPORTED);

    /* signed anew where it came from */
    CHECK_OK(kfit_generation_sign(kfit_test_path("a"), 3, key(1), &err), err);
    export("a", "3", "f3again");
    imports("b", "f3again", none, 3, KFIT_IMPORTED_SIGNATURE);
    m = manifest_of("b", 3);
    CHECK(!memcmp(m.signed_by, key(1)->public_key.bytes, 32));
    CHECK_OK(kfit_generation_open(kfit_test_path("b"), "3", &g, &err), err);
    kfit_generation_close(g);

    /* a number that would leave none to others is not kept */
    size_t n, offset;
    char *bytes = kfit_test_read(kfit_test_path("f5"), &n);
    CHECK_OK(kfit_export_parse(bytes, n, n, "f5", &m, &offset, &err), err);
    m.number = UINT64_MAX / 2;
    forge("far", &m, bytes + offset, n - offset);
    imports("d", "far", none, 1, KFIT_IMPORTED);
    imports("d", "far", none, 1, KFIT_IMPORTED_BEFORE);
}

static void survives_sigkill(void)
{
    struct timespec t[2];
    char name[16];
    uint64_t number;
    enum kfit_imported how;
    struct kfit_error err = {0};
    unsigned changed = 0;
    const unsigned files = 6;
    for (unsigned i = 1; i <= files; i++) {
        publish("a", 40 + i, NULL);
        snprintf(name, sizeof name, "f%u", i);
        export("a", NULL, name);
    }
    clock_gettime(CLOCK_MONOTONIC, &t[0]);
    imports("b", "f1", (struct kfit_import_params){0}, 1, KFIT_IMPORTED);
    clock_gettime(CLOCK_MONOTONIC, &t[1]);
    const uint64_t once_ns =
        (uint64_t)(t[1].tv_sec - t[0].tv_sec) * 1000000000 + (uint64_t)(t[1].tv_nsec - t[0].tv_nsec);
    for (unsigned round = 0; round < 50; round++) {
        struct kfit_manifest before, after;
        uint64_t was, now;
        uint8_t sha256[32];
        CHECK_OK(kfit_generation_current(kfit_test_path("b"), &was, sha256, &err), err);
        before = manifest_of("b", was);
        pid_t pid = fork();
        if (!pid) {
            for (unsigned i = 0;; i++) { /* never what is current, so that each publishes */
                snprintf(name, sizeof name, "f%u", 1 + (round + i) % files);
                import("b", name, (struct kfit_import_params){0}, &number, &how, &err);
            }
        }
        const uint64_t ns = kfit_test_random() % (4 * once_ns);
        const struct timespec pause = {(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
        nanosleep(&pause, NULL);
        CHECK(!kill(pid, SIGKILL) && waitpid(pid, NULL, 0) == pid);
        CHECK_OK(kfit_generation_current(kfit_test_path("b"), &now, sha256, &err), err);
        after = manifest_of("b", now);
        CHECK(!memcmp(after.sha256, sha256, 32) && (now != was || !memcmp(&before, &after, sizeof after)));
        changed += now != was;
        struct kfit_generation *g;
        CHECK_OK(kfit_generation_open(kfit_test_path("b"), NULL, &g, &err), err);
        struct kfit_record *all = records_make(50);
        CHECK_OK(kfit_generation_each(g, 0, see, all, &err), err);
        free(all);
        kfit_generation_close(g);
    }
    CHECK_MSG(changed, "no import ever finished; the test does not reach its aim");
}

static void small_disk(void)
{
    kfit_test_small_disk(kfit_test_path("small"), "300k");
}

static void fills_the_disk(void)
{
    struct kfit_generation *g;
    struct kfit_error err = {0};
    uint64_t number;
    enum kfit_imported how;
    publish("small", 5, NULL);
    publish("a", 5, NULL);
    publish("a", 1000, NULL);
    export("a", "2", "big");
    CHECK_OK(kfit_generation_open(kfit_test_path("a"), "2", &g, &err), err);
    CHECK_STATUS(kfit_generation_export(g, kfit_test_path("small/file"), &err), KFIT_E_FULL);
    CHECK_MSG(strstr(err.text, "free some space"), "%s", err.text);
    kfit_generation_close(g);
    CHECK_STATUS(import("small", "big", (struct kfit_import_params){0}, &number, &how, &err), KFIT_E_FULL);
    CHECK_OK(kfit_generation_open(kfit_test_path("small"), NULL, &g, &err), err);
    CHECK_INT(kfit_generation_manifest(g)->number, 1);
    kfit_generation_close(g);
    char *out;
    CHECK(!kfit_test_run(
        (const char *[]){"find", kfit_test_path("small"), "-type", "f", "-printf", "%f ", NULL}, NULL, &out,
        NULL));
    CHECK_MSG(!strstr(out, "file") && !strstr(out, ".tmp") && !strstr(out, "2."), "left: %s", out);
}

static void full_disk(void)
{
    kfit_test_child(fills_the_disk, small_disk);
}

/* ---- staging ---- */

static int count_staged(void *ctx, const struct kfit_record *r, const char *problem)
{
    CHECK_MSG(r, "%s", problem);
    ++*(unsigned *)ctx;
    return 0;
}

static unsigned staged_in(struct kfit_store *s)
{
    struct kfit_error err = {0};
    unsigned n = 0;
    CHECK_OK(kfit_store_staged_each(s, 0, count_staged, &n, &err), err);
    return n;
}

static void all_or_nothing_is_staged(void)
{
    struct kfit_env env = records_env();
    struct kfit_record *r = records_make(100), got;
    struct kfit_store *s;
    struct kfit_error err = {0};
    struct kfit_stage_params p = {.records = r, .count = 60, .envs = &env, .env_count = 1};
    size_t staged;
    void *bytes;
    CHECK_OK(kfit_store_open(kfit_test_path("a"), KFIT_STORE_WRITE, &s, &err), err);
    r[59].lo = -1; /* does not decode */
    CHECK_STATUS(kfit_store_stage_all(s, &p, &staged, &err), KFIT_E_FORMAT);
    CHECK(!staged && !staged_in(s));
    r[59].lo = 1.75;
    r[30].env_soft++;
    CHECK_STATUS(kfit_store_stage_all(s, &p, &staged, &err), KFIT_E_ARG);
    CHECK(!staged && !staged_in(s));
    r[30].env_soft--;
    CHECK_OK(kfit_store_stage_all(s, &p, &staged, &err), err);
    CHECK(staged == 60 && staged_in(s) == 60);
    char text[KFIT_ENV_TEXT_MAX];
    CHECK(kfit_store_env(s, env.hard_hash, text) && !strcmp(text, env.hard));

    r[10].ratio = 9;
    p.count = 100;
    CHECK_OK(kfit_store_stage_all(s, &p, &staged, &err), err);
    CHECK(staged == 40 && staged_in(s) == 100);
    CHECK_OK(kfit_store_staged(s, env.hard_hash, &r[10].key, &got, &bytes, &err), err);
    CHECK(got.ratio == 2);
    free(bytes);
    p.replace = true;
    CHECK_OK(kfit_store_stage_all(s, &p, &staged, &err), err);
    CHECK(staged == 100 && staged_in(s) == 100);
    CHECK_OK(kfit_store_staged(s, env.hard_hash, &r[10].key, &got, &bytes, &err), err);
    CHECK(got.ratio == 9);
    free(bytes);
    CHECK_OK(kfit_store_stage_all(s, &(struct kfit_stage_params){0}, &staged, &err), err);
    kfit_store_close(s);
}

static void staging_survives_sigkill(void)
{
    struct kfit_env env = records_env();
    struct kfit_record *r = records_make(1000);
    unsigned last = 0, partly = 0;
    for (unsigned round = 0; round < 60 && last < 1000; round++) {
        pid_t pid = fork();
        if (!pid) {
            struct kfit_store *s;
            size_t staged;
            if (kfit_store_open(kfit_test_path("a"), KFIT_STORE_WRITE, &s, NULL) != KFIT_OK)
                _exit(0);
            for (unsigned n = last + 10; n <= 1000; n += 10) /* ten more each time */
                kfit_store_stage_all(
                    s, &(struct kfit_stage_params){.records = r, .count = n, .envs = &env, .env_count = 1},
                    &staged, NULL);
            _exit(0);
        }
        /* longer and longer: beside others a child may not even begin in a few milliseconds */
        const struct timespec pause = {0, (long)(kfit_test_random() % (8000000 + round * 4000000))};
        nanosleep(&pause, NULL);
        CHECK(!kill(pid, SIGKILL) && waitpid(pid, NULL, 0) == pid);
        if (access(kfit_test_path("a/store/data.mdb"), F_OK) && !last)
            continue; /* killed before there was a store */
        struct kfit_store *s;
        struct kfit_error err = {0};
        if (kfit_store_open(kfit_test_path("a"), KFIT_STORE_READ, &s, &err) != KFIT_OK) {
            CHECK_MSG(!last, "%s", err.text); /* half of one, which the next writer completes */
            continue;
        }
        unsigned n = staged_in(s);
        CHECK_MSG(n % 10 == 0 && n >= last, "%u staged, before %u", n, last);
        partly += n > last && n < 1000;
        last = n;
        kfit_store_close(s);
    }
    CHECK_MSG(partly, "never killed in the middle; the test does not reach its aim");
}

static const struct kfit_test tests[] = {
    TEST(numbers_and_signatures),
    TEST(survives_sigkill),
    TEST(full_disk),
    TEST(all_or_nothing_is_staged),
    TEST(staging_survives_sigkill),
};
TEST_MAIN(tests)
