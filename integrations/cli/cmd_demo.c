/* kfit demo: the whole loop on a real program, as a person would type it. Each step is a command of kfit or the
 * program itself, and is shown before it runs. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli.h"

enum { WORDS_MAX = 32 };

struct demo {
    char self[PATH_MAX], scripts[PATH_MAX];
    const char *dir, *python;
    unsigned number;
};

/* "dir/name", in one of enough buffers for a whole demo. */
static const char *in_dir(const struct demo *d, const char *name)
{
    static char buf[16][PATH_MAX];
    static unsigned next;
    char *p = buf[next++ % 16];
    snprintf(p, PATH_MAX, "%s/%s", d->dir, name);
    return p;
}

static const char *script(const struct demo *d, const char *name)
{
    static char buf[2][PATH_MAX + 32];
    static unsigned next;
    char *p = buf[next++ % 2];
    snprintf(p, sizeof buf[0], "%s/%s", d->scripts, name);
    return p;
}

/* Shows and runs one command line (ended by NULL); output goes to the terminal, or to a file. */
static int step(struct demo *d, const char *what, const char *out, ...)
{
    const char *words[WORDS_MAX];
    unsigned n = 0;
    va_list ap;
    va_start(ap, out);
    while (n + 1 < WORDS_MAX && (words[n] = va_arg(ap, const char *)))
        n++;
    va_end(ap);
    words[n] = NULL;
    printf("\n[%u] %s\n    $ %s", ++d->number, what, strcmp(words[0], d->self) ? words[0] : "kfit");
    for (unsigned i = 1; i < n; i++)
        printf(" %s", words[i]);
    printf("\n");
    fflush(stdout);
    pid_t pid = fork();
    if (pid < 0)
        return cli_fail("demo: cannot start a process: %s", strerror(errno));
    if (!pid) {
        if (out) {
            int fd = open(out, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
            if (fd < 0 || dup2(fd, 1) < 0)
                _exit(126);
        }
        execvp(words[0], (char *const *)(uintptr_t)words);
        fprintf(stderr, "kfit: demo: cannot run %s: %s\n", words[0], strerror(errno));
        _exit(127);
    }
    int st;
    while (waitpid(pid, &st, 0) < 0 && errno == EINTR)
        continue;
    int rc = WIFEXITED(st) ? WEXITSTATUS(st) : 128 + WTERMSIG(st);
    return rc ? cli_fail("demo: step %u ended with status %d", d->number, rc) : CLI_OK;
}

static bool has_modules(const char *python)
{
    char command[PATH_MAX + 64];
    snprintf(command, sizeof command, "'%s' -c 'import numpy, sklearn' >/dev/null 2>&1", python);
    return !strchr(python, '\'') && !system(command);
}

static bool find(struct demo *d, const char *python)
{
    const char *const choices[] = {python, "/usr/bin/python3", "python3"};
    for (unsigned i = 0; i < 3 && !d->python; i++)
        if (choices[i] && has_modules(choices[i]))
            d->python = choices[i];
    if (!d->python) {
        cli_fail("demo: no python3 with numpy and scikit-learn; on Debian and Ubuntu: apt-get install "
                 "python3-sklearn, "
                 "or name one with --python");
        return false;
    }
    ssize_t n = readlink("/proc/self/exe", d->self, sizeof d->self - 1);
    if (n < 0)
        return !cli_fail("demo: /proc/self/exe: %s", strerror(errno));
    if (!cli_find_demo(d->scripts, sizeof d->scripts))
        return !cli_fail("demo: serve.py was not found beside this program; install kfit whole");
    return true;
}

int cli_demo(int argc, char **argv)
{
    struct demo d = {.dir = "kfit-demo"};
    const char *python = NULL, *evaluations = "10";
    const struct cli_option options[] = {
        {"dir", 'd', CLI_TEXT, &d.dir, "DIR", "where everything is written (kfit-demo)"},
        {"python", 'p', CLI_TEXT, &python, "PYTHON", "interpreter with numpy and scikit-learn"},
        {"evaluations", 'n', CLI_TEXT, &evaluations, "N", "candidates per shape (10)"},
        {0},
    };
    const struct cli_usage usage = {
        .args = "",
        .options = options,
        .max = 0,
        .doc =
            "Runs scikit-learn's MLP and a decode-like block of matrix products, records their shapes, tunes "
            "them, approves the winners, runs the program again with them, compares the answers, and "
            "reports.",
    };
    struct cli_list args = {0};
    cli_parse(argc, argv, &usage, &args);
    if (args.count)
        return cli_usage_error(argv, "demo takes no arguments");
    struct kfit_error err = {0};
    enum kfit_status s = cli_make_dir(d.dir, &err);
    if (s != KFIT_OK)
        return cli_failed("demo", s, &err);
    if (!find(&d, python))
        return CLI_FAILED;

    const char *model = in_dir(&d, "model.pickle"), *cache = in_dir(&d, "cache");
    const char *before = in_dir(&d, "before.json"), *after = in_dir(&d, "after.json");
    char recorded[PATH_MAX], dispatched[PATH_MAX], report[PATH_MAX];
    snprintf(recorded, sizeof recorded, "%s", in_dir(&d, "recorded"));
    snprintf(dispatched, sizeof dispatched, "%s", in_dir(&d, "dispatched"));
    snprintf(report, sizeof report, "%s", in_dir(&d, "report.json"));
    /* A second demo starts from nothing but the model. */
    if (step(&d, "start from an empty cache", NULL, "rm", "-rf", cache, recorded, dispatched, NULL) ||
        step(&d, "train a model once, without kfit", NULL, d.python, script(&d, "serve.py"), "train", model,
             NULL) ||
        step(&d, "serve it as it is today, and keep its answers", NULL, d.python, script(&d, "serve.py"),
             "serve", model, before, NULL) ||
        step(&d, "the same under kfit, which records what it calls", NULL, d.self, "run", "--trace", recorded,
             "--label", "demo", "--", d.python, script(&d, "serve.py"), "serve", model,
             in_dir(&d, "recorded.json"), NULL) ||
        step(&d, "what was recorded", NULL, d.self, "trace", "ls", recorded, NULL) ||
        step(&d, "search a kernel for each recurring shape", NULL, d.self, "tune", "--wait", "--cache", cache,
             "--min-calls", "50", "--evaluations", evaluations, recorded, NULL) ||
        step(&d, "publish the winners", NULL, d.self, "approve", "--cache", cache, "--all", "--note", "demo",
             NULL) ||
        step(&d, "the same program again, now with the winners", NULL, d.self, "run", "--cache", cache,
             "--trace", dispatched, "--label", "demo", "--", d.python, script(&d, "serve.py"), "serve", model,
             after, NULL) ||
        step(&d, "are the answers the same?", NULL, d.python, script(&d, "compare.py"), before, after, NULL))
        return CLI_FAILED;
    char current[PATH_MAX], json[PATH_MAX + 16];
    const char *page = in_dir(&d, "report.html"), *ab = in_dir(&d, "ab.json");
    snprintf(current, sizeof current, "%s/current", cache);
    snprintf(json, sizeof json, "--json=%s", report);
    /* two runs one after the other say little: pairs do */
    if (access(current, F_OK)) {
        printf("\nNothing is published, so there is nothing to compare: no candidate was surely faster, or "
               "the machine was too "
               "busy to tell.\n");
        ab = NULL;
    } else if (step(&d, "what the decode block gains as a whole, in pairs of runs without and with", NULL,
                    d.self, "ab", "--cache", cache, "--pairs", "9", "--out", ab, "--metric",
                    "^all: ([0-9.]+)", "--metric", "^1 row: ([0-9.]+)", "--metric", "^2 rows: ([0-9.]+)",
                    "--metric", "^4 rows: ([0-9.]+)", "--metric", "^8 rows: ([0-9.]+)", "--quiet", "--",
                    d.python, script(&d, "serve.py"), "decode", NULL)) {
        return CLI_FAILED;
    }
    if (step(&d, "what it brought", NULL, d.self, "report", "--cache", cache, json, "--html", page,
             dispatched, ab ? "--ab" : NULL, ab, NULL))
        return CLI_FAILED;
    printf("\nThe same for a browser is %s, for machines %s.\n", page, report);
    return CLI_OK;
}
