#include "stores.h"
#include "kfit_test.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

char *stores_path(const char *name)
{
    char below[64];
    snprintf(below, sizeof below, "cache%s", name);
    return kfit_test_path(below);
}

struct kfit_store *stores_open(unsigned flags)
{
    struct kfit_store *s;
    struct kfit_error err = {0};
    CHECK_OK(kfit_store_open(stores_path(""), flags, &s, &err), err);
    return s;
}

void stores_refused(unsigned flags, enum kfit_status want, const char *text)
{
    struct kfit_store *s;
    struct kfit_error err = {0};
    enum kfit_status got = kfit_store_open(stores_path(""), flags, &s, &err);
    CHECK_MSG(got == want, "open: %s (%s), expected %s", kfit_status_str(got), err.text,
              kfit_status_str(want));
    CHECK_MSG(strstr(err.text, text), "\"%s\" does not say \"%s\"", err.text, text);
    CHECK(!s);
}

void stores_put(struct kfit_store *s, unsigned i, size_t bytes)
{
    char key[32], *value = malloc(bytes + 1);
    struct kfit_error err = {0};
    snprintf(key, sizeof key, "key%06u", i);
    memset(value, 'a' + (int)(i % 26), bytes);
    CHECK_OK(kfit_store_put(s, KFIT_TABLE_EVALS, key, strlen(key), value, bytes, &err), err);
    free(value);
}

void stores_expect(struct kfit_store *s, unsigned i, size_t bytes)
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

int stores_see(void *ctx, const void *key, size_t key_bytes, const void *value, size_t n, const char *problem)
{
    struct stores_seen *s = ctx;
    (void)key, (void)key_bytes, (void)n;
    CHECK(!value == !!problem);
    s->count += !problem;
    s->bad += !!problem;
    return 0;
}

unsigned stores_count(struct kfit_store *s, const char *prefix)
{
    struct stores_seen seen = {0};
    struct kfit_error err = {0};
    CHECK_OK(kfit_store_each(s, KFIT_TABLE_EVALS, prefix, strlen(prefix), stores_see, &seen, &err), err);
    CHECK_INT(seen.bad, 0);
    return seen.count;
}

pid_t stores_beside(void (*fn)(void))
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

void stores_end(pid_t pid)
{
    CHECK(!kill(pid, SIGKILL) && waitpid(pid, NULL, 0) == pid);
}

void stores_write_one(void)
{
    stores_put(stores_open(KFIT_STORE_WRITE), 1, 1);
}

void stores_read_all(void)
{
    static struct kfit_store *s;
    s = stores_open(KFIT_STORE_READ);
    CHECK(stores_count(s, "") > 0);
}
