/* kfit_test.h - a table of cases, each run in a process of its own, so that a crash is one failed case.
 *
 *     static void parses_what_it_prints(void) { CHECK(...); CHECK_INT(a, b); SKIP("no numpy"); }
 *     static const struct kfit_test tests[] = {TEST(parses_what_it_prints), ...};
 *     TEST_MAIN(tests)
 *
 * Run with case names as arguments to run only those, with -l to list them. Exit status: 0 all passed, 1 any
 * failed, 77 none failed and all skipped. Prints one line per case, TAP-like, then "# N passed, N failed, N
 * skipped". KFIT_TEST_SEED fixes the seed of kfit_test_random; it is printed when a case fails.
 */
#ifndef KFIT_TEST_H
#define KFIT_TEST_H

#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kfit/status.h"

struct kfit_test {
    const char *name;
    void (*fn)(void);
    unsigned timeout_s; /* 0: 120 */
};

#define TEST(fn)                                                                                             \
    {                                                                                                        \
#fn, fn, 0                                                                                           \
    }
#define TEST_SLOW(fn, seconds)                                                                               \
    {                                                                                                        \
#fn, fn, seconds                                                                                     \
    }

#define CHECK(cond)                                                                                          \
    do {                                                                                                     \
        if (!(cond))                                                                                         \
            kfit_test_fail(__FILE__, __LINE__, "%s", #cond);                                                 \
    } while (0)
#define CHECK_MSG(cond, ...)                                                                                 \
    do {                                                                                                     \
        if (!(cond))                                                                                         \
            kfit_test_fail(__FILE__, __LINE__, __VA_ARGS__);                                                 \
    } while (0)
#define CHECK_INT(a, b)                                                                                      \
    do {                                                                                                     \
        long long a_ = (long long)(a), b_ = (long long)(b);                                                  \
        if (a_ != b_)                                                                                        \
            kfit_test_fail(__FILE__, __LINE__, "%s is %lld, expected %s = %lld", #a, a_, #b, b_);            \
    } while (0)
#define CHECK_STR(a, b)                                                                                      \
    do {                                                                                                     \
        const char *a_ = (a), *b_ = (b);                                                                     \
        if (strcmp(a_, b_))                                                                                  \
            kfit_test_fail(__FILE__, __LINE__, "%s is \"%s\", expected \"%s\"", #a, a_, b_);                 \
    } while (0)
/* expr is KFIT_OK; err is a struct kfit_error that explains if not */
#define CHECK_OK(expr, err)                                                                                  \
    do {                                                                                                     \
        enum kfit_status s_ = (expr);                                                                        \
        if (s_ != KFIT_OK)                                                                                   \
            kfit_test_fail(__FILE__, __LINE__, "%s: %s: %s", #expr, kfit_status_str(s_), (err).text);        \
    } while (0)
#define CHECK_STATUS(expr, want)                                                                             \
    do {                                                                                                     \
        enum kfit_status s_ = (expr), w_ = (want);                                                           \
        if (s_ != w_)                                                                                        \
            kfit_test_fail(__FILE__, __LINE__, "%s: %s, expected %s", #expr, kfit_status_str(s_),            \
                           kfit_status_str(w_));                                                             \
    } while (0)
#define SKIP(...) kfit_test_skip(__VA_ARGS__)
/* For what forks while other threads allocate, and allocates in the child. */
#ifdef __SANITIZE_ADDRESS__
#define SKIP_WHERE_FORK_HANGS() SKIP("ASan's allocator hangs in a child forked while other threads use it")
#else
#define SKIP_WHERE_FORK_HANGS() ((void)0)
#endif

/* Both end the case's process. */
__attribute__((noreturn, format(printf, 3, 4))) void kfit_test_fail(const char *file, int line,
                                                                    const char *fmt, ...);
__attribute__((noreturn, format(printf, 1, 2))) void kfit_test_skip(const char *fmt, ...);

/* A fresh directory that is removed when the case ends; valid until then. */
const char *kfit_test_dir(void);
/* DIR/name; good for eight more calls. */
char *kfit_test_path(const char *name);
/* splitmix64 from the printed seed. */
uint64_t kfit_test_random(void);
/* Reads a whole file (malloc'ed, NUL beyond the end); fails the case if it cannot. */
char *kfit_test_read(const char *path, size_t *bytes);
void kfit_test_write(const char *path, const void *data, size_t bytes);
/* Runs prepare (may be NULL) and fn in a child; its CHECKs and SKIPs count. */
void kfit_test_child(void (*fn)(void), void (*prepare)(void));
/* What is mounted from here on is seen by this process alone; skips the case where that cannot be. */
void kfit_test_own_mounts(void);
/* The same, and a new directory with that much room in it ("300k"). */
void kfit_test_small_disk(const char *dir, const char *size);
/* Runs argv (NULL-terminated) with extra environment "NAME=value" entries (may be NULL; "NAME" alone unsets);
 * returns the exit status, or 128 + signal. out and err (may be NULL) receive what it printed, malloc'ed. */
int kfit_test_run(const char *const argv[], const char *const env[], char **out, char **err);

int kfit_test_main(int argc, char **argv, const struct kfit_test *tests, size_t n);
#define TEST_MAIN(tests)                                                                                     \
    int main(int argc, char **argv)                                                                          \
    {                                                                                                        \
        return kfit_test_main(argc, argv, tests, sizeof tests / sizeof *tests);                              \
    }

#endif
