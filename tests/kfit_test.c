#include "kfit_test.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { SKIPPED = 77 };

static uint64_t seed, state;
static char dir[64];

void kfit_test_fail(const char *file, int line, const char *fmt, ...)
{
    va_list ap;
    printf("  %s:%d: ", file, line);
    va_start(ap, fmt);
    vprintf(fmt, ap);
    va_end(ap);
    printf("\n  seed: KFIT_TEST_SEED=%" PRIu64 "\n", seed);
    fflush(stdout);
    _exit(1);
}

void kfit_test_skip(const char *fmt, ...)
{
    va_list ap;
    printf("  skipped: ");
    va_start(ap, fmt);
    vprintf(fmt, ap);
    va_end(ap);
    printf("\n");
    fflush(stdout);
    _exit(SKIPPED);
}

uint64_t kfit_test_random(void)
{
    uint64_t z = state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

const char *kfit_test_dir(void)
{
    return dir;
}

char *kfit_test_read(const char *path, size_t *bytes)
{
    FILE *f = fopen(path, "rb");
    CHECK_MSG(f, "cannot read %s", path);
    size_t cap = 1 << 16, n = 0;
    char *buf = malloc(cap + 1);
    for (size_t got; buf && (got = fread(buf + n, 1, cap - n, f)) > 0;) {
        n += got;
        if (n == cap)
            buf = realloc(buf, (cap *= 2) + 1);
    }
    CHECK(buf);
    fclose(f);
    buf[n] = '\0';
    if (bytes)
        *bytes = n;
    return buf;
}

char *kfit_test_path(const char *name)
{
    static char text[8][512];
    static unsigned turn;
    char *p = text[turn++ % 8];
    snprintf(p, sizeof text[0], "%s/%s", kfit_test_dir(), name);
    return p;
}

void kfit_test_write(const char *path, const void *data, size_t bytes)
{
    FILE *f = fopen(path, "wb");
    CHECK_MSG(f && fwrite(data, 1, bytes, f) == bytes && !fclose(f), "cannot write %s", path);
}

void kfit_test_own_mounts(void)
{
    if (unshare(CLONE_NEWNS))
        SKIP("no mount namespace: %s", strerror(errno));
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL)) /* the root of a chroot is no mount */
        SKIP("mounts cannot be made private here: %s", strerror(errno));
}

void kfit_test_small_disk(const char *path, const char *size)
{
    char options[64];
    snprintf(options, sizeof options, "size=%s,mode=755", size);
    kfit_test_own_mounts();
    CHECK(!mkdir(path, 0755));
    if (mount("tmpfs", path, "tmpfs", 0, options))
        SKIP("no tmpfs: %s", strerror(errno));
}

int kfit_test_run(const char *const argv[], const char *const env[], char **out, char **err)
{
    char paths[2][96];
    static int serial;
    for (int i = 0; i < 2; i++)
        snprintf(paths[i], sizeof paths[i], "%s/run-%d-%d.%d", dir, (int)getpid(), serial, i);
    serial++;
    fflush(stdout);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (!pid) {
        for (int i = 0; i < 2; i++)
            dup2(open(paths[i], O_CREAT | O_TRUNC | O_WRONLY, 0600), i + 1);
        for (size_t i = 0; env && env[i]; i++) {
            char *copy = strdup(env[i]), *eq = strchr(copy, '=');
            if (eq)
                putenv(copy);
            else
                unsetenv(copy);
        }
        execvp(argv[0], (char *const *)(uintptr_t)argv);
        _exit(127);
    }
    int st;
    CHECK(waitpid(pid, &st, 0) == pid);
    if (out)
        *out = kfit_test_read(paths[0], NULL);
    if (err)
        *err = kfit_test_read(paths[1], NULL);
    return WIFEXITED(st) ? WEXITSTATUS(st) : 128 + WTERMSIG(st);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st, (void)ftw;
    if (type == FTW_DNR)
        chmod(path, 0700);
    return remove(path), 0;
}

/* PR_SET_PDEATHSIG is the case's own: what it has forked hears nothing of it, but is in its group. */
#define PARENT_GONE (SIGRTMAX - 1) /* no case's */
static void end_all(int sig)
{
    (void)sig;
    kill(0, SIGKILL);
}

static int run_case(const struct kfit_test *t)
{
    const char *tmp = getenv("TMPDIR");
    snprintf(dir, sizeof dir, "%s/kfit-test-XXXXXX", tmp && strlen(tmp) < 40 ? tmp : "/tmp");
    if (!mkdtemp(dir))
        return 1;
    const pid_t parent = getpid(), pid = fork();
    if (!pid) {
        setpgid(0, 0);
        /* a time limit kills the parent alone, which may be gone already */
        if (signal(PARENT_GONE, end_all) == SIG_ERR || prctl(PR_SET_PDEATHSIG, PARENT_GONE) || getppid() != parent)
            _exit(1);
        setenv("XDG_STATE_HOME", dir, 1); /* no case remembers another's crashes */
        t->fn();
        fflush(stdout);
        _exit(0);
    }
    unsigned limit = t->timeout_s ? t->timeout_s : 120;
    int st = 0;
    struct timespec pause = {0, 2000000}, start, now;
    clock_gettime(CLOCK_MONOTONIC, &start);
    for (;;) {
        if (waitpid(pid, &st, WNOHANG) == pid)
            break;
        clock_gettime(CLOCK_MONOTONIC, &now);
        if ((unsigned)(now.tv_sec - start.tv_sec) > limit) {
            printf("  took longer than %u s\n", limit);
            kill(-pid, SIGKILL);
            waitpid(pid, &st, 0);
            break;
        }
        nanosleep(&pause, NULL);
    }
    kill(-pid, SIGKILL); /* whatever the case left running */
    nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    if (WIFSIGNALED(st))
        printf("  killed by signal %d (%s)\n  seed: KFIT_TEST_SEED=%" PRIu64 "\n", WTERMSIG(st),
               strsignal(WTERMSIG(st)), seed);
    return WIFEXITED(st) ? WEXITSTATUS(st) : 1;
}

void kfit_test_child(void (*fn)(void), void (*prepare)(void))
{
    fflush(stdout);
    pid_t pid = fork();
    int st;
    CHECK(pid >= 0);
    if (!pid) {
        if (prepare)
            prepare();
        fn();
        fflush(stdout);
        _exit(0);
    }
    CHECK(waitpid(pid, &st, 0) == pid);
    if (WIFEXITED(st) && WEXITSTATUS(st) == SKIPPED)
        _exit(SKIPPED); /* the child printed why */
    CHECK_MSG(WIFEXITED(st) && !WEXITSTATUS(st), "child: status %#x", st);
}

int kfit_test_main(int argc, char **argv, const struct kfit_test *tests, size_t n)
{
    const char *given = getenv("KFIT_TEST_SEED");
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (given)
        seed = strtoull(given, NULL, 10);
    else if (getrandom(&seed, sizeof seed, 0) != sizeof seed)
        seed = (uint64_t)time(NULL);
    unsigned count[3] = {0}; /* passed, failed, skipped */
    for (size_t i = 0; i < n; i++) {
        bool wanted = argc < 2;
        for (int a = 1; a < argc; a++)
            wanted |= !strcmp(argv[a], tests[i].name);
        if (argc == 2 && !strcmp(argv[1], "-l"))
            printf("%s\n", tests[i].name);
        if (!wanted)
            continue;
        state = seed ^ i;
        int rc = run_case(&tests[i]);
        unsigned what = rc == 0 ? 0 : rc == SKIPPED ? 2 : 1;
        count[what]++;
        printf("%s %s\n", (const char *[]){"ok", "not ok", "ok # SKIP"}[what], tests[i].name);
    }
    printf("# %u passed, %u failed, %u skipped\n", count[0], count[1], count[2]);
    return count[1] ? 1 : count[2] && !count[0] ? SKIPPED : 0;
}
