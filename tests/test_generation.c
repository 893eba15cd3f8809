/* Generations as they are meant to be: published, named, opened, collected, one publisher at a time. What goes wrong with their files
 * and around them is test_generation_faults's. */
#include "generations.h"
#include "kfit_test.h"
#include "records.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void returns_what_was_published(void)
{
    struct kfit_record *r = records_make(RECORDS);
    const struct kfit_env env = records_env();
    struct kfit_generation *g;
    struct kfit_error err = {0};
    char text[KFIT_ENV_TEXT_MAX];
    CHECK_INT(publish(RECORDS), 1);
    CHECK_OK(kfit_generation_open(cache(), NULL, &g, &err), err);
    struct seen s = {.want = r};
    CHECK_OK(kfit_generation_each(g, env.hard_hash, see, &s, &err), err);
    CHECK_INT(s.good, RECORDS);
    s = (struct seen){0};
    CHECK_OK(kfit_generation_each(g, env.hard_hash + 1, see, &s, &err), err);
    CHECK_INT(s.good + s.bad, 0);
    s = (struct seen){.stop_at = 3};
    CHECK_OK(kfit_generation_each(g, 0, see, &s, &err), err);
    CHECK_INT(s.good, 3);
    CHECK(kfit_generation_env(g, env.hard_hash, text));
    CHECK_STR(text, env.hard);
    CHECK(kfit_generation_env(g, env.soft_hash, text));
    CHECK_STR(text, env.soft);
    CHECK(!kfit_generation_env(g, 12345, text));
    const struct kfit_manifest *m = kfit_generation_manifest(g);
    CHECK_INT(m->records, RECORDS);
    CHECK_STR(m->approver, "test");
    kfit_generation_close(g);
    kfit_generation_close(NULL);
}

static void names_by_number_and_digest(void)
{
    uint64_t number, list[3];
    uint8_t sha[32];
    char hex[65];
    struct kfit_manifest m;
    struct kfit_error err = {0};
    CHECK_STATUS(kfit_generation_current(cache(), &number, sha, &err), KFIT_E_NOTFOUND);
    refused(NULL, KFIT_E_NOTFOUND, "cache");
    for (unsigned i = 1; i <= 3; i++)
        CHECK_INT(publish(10 * i), i);
    CHECK_INT(kfit_generation_list(cache(), list, 2), 3);
    CHECK(list[0] == 1 && list[1] == 2);
    CHECK_INT(kfit_generation_list(cache(), NULL, 0), 3);
    opens(NULL, 30);
    opens("", 30);
    opens("1", 10);
    CHECK_OK(kfit_manifest_read(cache(), 2, &m, &err), err);
    CHECK_INT(m.records, 20);
    kfit_hex(m.sha256, 32, hex);
    opens(hex, 20);
    hex[5] = hex[5] == '0' ? '1' : '0';
    refused(hex, KFIT_E_NOTFOUND, "digest");
    refused("4", KFIT_E_NOTFOUND, "4.json");
    refused("1x", KFIT_E_ARG, "number or 64 hex");
    refused("../1", KFIT_E_ARG, "number or 64 hex");
    CHECK_OK(kfit_generation_make_current(cache(), 1, &err), err);
    opens(NULL, 10);
    CHECK_OK(kfit_generation_current(cache(), &number, sha, &err), err);
    CHECK_INT(number, 1);
    CHECK_STATUS(kfit_generation_make_current(cache(), 9, &err), KFIT_E_NOTFOUND);
    CHECK_INT(publish(5), 4); /* numbers are not used again after a rollback */
    CHECK(!unlink(path("generations/4.json")) && !unlink(path("generations/4.mdb")));
    CHECK_INT(publish(5), 5); /* nor after a clean-up */
}

static void equal_content_has_equal_bytes(void)
{
    struct kfit_manifest a, b;
    struct kfit_error err = {0};
    publish(50);
    publish(50);
    CHECK_OK(kfit_manifest_read(cache(), 1, &a, &err), err);
    CHECK_OK(kfit_manifest_read(cache(), 2, &b, &err), err);
    CHECK_INT(a.length, b.length);
    CHECK(!memcmp(a.sha256, b.sha256, 32));
}

static void publishes_nothing_and_refuses_nonsense(void)
{
    const struct kfit_env env = records_env();
    struct kfit_record *r = records_make(4);
    struct kfit_publish_params p = {.dir = cache(), .records = r, .count = 4, .envs = &env, .env_count = 1};
    struct kfit_error err = {0};
    uint64_t number = 0;
    r[2] = r[1];
    CHECK_STATUS(kfit_generation_publish(&p, &number, &err), KFIT_E_ARG);
    CHECK(strstr(err.text, "two records for gemm/"));
    records_fill(&r[2], 2, (uint8_t *)(uintptr_t)r[2].image);
    r[3].env_hard = 0;
    CHECK_STATUS(kfit_generation_publish(&p, &number, &err), KFIT_E_FORMAT);
    r[3].key.h.len = 255;
    CHECK_STATUS(kfit_generation_publish(&p, &number, &err), KFIT_E_FORMAT);
    p.dir = NULL;
    CHECK_STATUS(kfit_generation_publish(&p, &number, &err), KFIT_E_ARG);
    CHECK_INT(kfit_generation_list(cache(), NULL, 0), 0);
    CHECK_INT(publish(0), 1); /* an empty generation takes everything back */
    opens(NULL, 0);
}

static void outlives_its_files(void)
{
    struct kfit_generation *g;
    struct kfit_error err = {0};
    publish(RECORDS);
    CHECK_OK(kfit_generation_open(cache(), NULL, &g, &err), err);
    size_t n;
    char *bytes = kfit_test_read(path("generations/1.mdb"), &n);
    CHECK(!chmod(path("generations/1.mdb"), 0600));
    memset(bytes, 0, n);
    kfit_test_write(path("generations/1.mdb"), bytes, n / 2); /* in place: the very inode */
    CHECK(!unlink(path("generations/1.mdb")) && !unlink(path("generations/1.json")) &&
          !unlink(path("current")));
    CHECK_INT(count(g), RECORDS);
    kfit_generation_close(g);
}

static void one_publisher_at_a_time(void)
{
    const struct kfit_env env = records_env();
    struct kfit_publish_params p = {.dir = cache(), .envs = &env, .env_count = 1};
    struct kfit_error err = {0};
    uint64_t number;
    int ready[2];
    char text[40];
    publish(1);
    CHECK(!pipe(ready));
    pid_t pid = fork();
    if (!pid) {
        struct flock lock = {.l_type = F_WRLCK, .l_len = 1};
        int fd = open(path("generations/.lock"), O_RDWR);
        if (fd < 0 || fcntl(fd, F_SETLK, &lock) || write(ready[1], "x", 1) != 1)
            _exit(1);
        pause();
    }
    CHECK(read(ready[0], text, 1) == 1);
    CHECK_STATUS(kfit_generation_publish(&p, &number, &err), KFIT_E_BUSY);
    snprintf(text, sizeof text, "process %d is writing", (int)pid);
    CHECK_MSG(strstr(err.text, text), "%s", err.text);
    CHECK(!kill(pid, SIGKILL) && waitpid(pid, NULL, 0) == pid);
    CHECK_OK(kfit_generation_publish(&p, &number, &err), err);
}

/* Nothing goes while somebody publishes, or where nobody knows which one is current. */
static void collects_only_when_sure(void)
{
    struct kfit_error err = {0};
    const struct kfit_collect_params p = {.dir = cache()};
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};
    int status;
    for (unsigned i = 0; i < 3; i++)
        publish(5);
    pid_t pid = fork();
    if (!pid) {
        int fd = open(path("generations/.lock"), O_RDWR);
        if (fcntl(fd, F_SETLK, &lock))
            _exit(1);
        raise(SIGSTOP);
        _exit(0);
    }
    CHECK(waitpid(pid, &status, WUNTRACED) == pid && WIFSTOPPED(status));
    CHECK_STATUS(kfit_generation_collect(&p, &err), KFIT_E_BUSY);
    CHECK(!kill(pid, SIGKILL) && waitpid(pid, NULL, 0) == pid);
    CHECK(!rename(path("current"), path("kept")));
    CHECK_STATUS(kfit_generation_collect(&p, &err), KFIT_E_NOTFOUND);
    kfit_test_write(path("current"), "x", 1);
    CHECK_STATUS(kfit_generation_collect(&p, &err), KFIT_E_FORMAT);
    CHECK_INT(kfit_generation_list(cache(), NULL, 0), 3);
    CHECK(!rename(path("kept"), path("current")));
    CHECK_OK(kfit_generation_collect(&p, &err), err);
    CHECK_INT(kfit_generation_list(cache(), NULL, 0), 1);
    opens(NULL, 5);
}

static const struct kfit_test tests[] = {
    TEST(returns_what_was_published),
    TEST(names_by_number_and_digest),
    TEST(equal_content_has_equal_bytes),
    TEST(publishes_nothing_and_refuses_nonsense),
    TEST(outlives_its_files),
    TEST(one_publisher_at_a_time),
    TEST(collects_only_when_sure),
};
TEST_MAIN(tests)
