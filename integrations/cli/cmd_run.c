/* kfit run: a program under the shim. Records on tmpfs, where an increment never waits for a disk, and moves
 * the files to their directory when the program has ended, however it ended. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "processes.h"
#include "signing.h"

static const char *const modes[] = {"record", "dispatch", "both", NULL};
static const int forwarded[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};

static bool one_of(const char *word, const char *const *list)
{
    while (*list && strcmp(*list, word))
        list++;
    return *list;
}

static int wait_forwarding(pid_t pid, const sigset_t *set)
{
    for (;;) {
        siginfo_t info;
        int st, sig = sigwaitinfo(set, &info);
        if (sig == SIGCHLD) {
            if (waitpid(pid, &st, WNOHANG) == pid)
                return WIFSIGNALED(st) ? 128 + WTERMSIG(st) : WEXITSTATUS(st);
        } else if (sig > 0 && info.si_code <= 0) {
            kill(pid, sig); /* what the terminal sends (si_code > 0) has reached the whole group already */
        }
    }
}

/* Copies src over what is there, holes kept, and renames; then src is removed. */
static bool move_file(int from, int to, const char *name, struct kfit_error *err)
{
    static const char zeros[4096];
    char buf[sizeof zeros], temp[NAME_MAX + 8];
    struct stat st;
    off_t at = 0;
    int out = -1, in = openat(from, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    snprintf(temp, sizeof temp, ".%s.part", name);
    if (in < 0 || fstat(in, &st) || !S_ISREG(st.st_mode))
        goto fail;
    if ((out = openat(to, temp, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600)) < 0)
        goto fail;
    for (ssize_t n; (n = read(in, buf, sizeof buf)) != 0; at += n) {
        if (n < 0 || (memcmp(buf, zeros, (size_t)n) && pwrite(out, buf, (size_t)n, at) != n))
            goto fail;
    }
    if (ftruncate(out, at) || fsync(out) || renameat(to, temp, to, name))
        goto fail;
    close(in);
    close(out);
    unlinkat(from, name, 0);
    return true;
fail:
    kfit_fail(err, KFIT_E_IO, "%s", errno ? strerror(errno) : "short write");
    if (in >= 0)
        close(in);
    if (out >= 0) {
        close(out);
        unlinkat(to, temp, 0);
    }
    return false;
}

struct moved {
    size_t processes, keys, left;
    uint64_t calls, hits;
};

static void count_in(struct moved *m, const struct kfit_trace *t)
{
    uint64_t count[KFIT_TRACE_REASONS];
    cli_trace_totals(t, count);
    m->hits += count[KFIT_REASON_NONE];
    for (unsigned i = 0; i < KFIT_TRACE_REASONS; i++)
        m->calls += count[i];
    m->keys += kfit_trace_count(t);
}

/* Moves every trace whose process has ended. What cannot be moved stays where it is, and that is said. */
static void collect(const char *work, const char *dest, struct moved *m)
{
    struct cli_traces ts = {0};
    struct cli_list where = {0};
    struct kfit_error err = {0};
    cli_list_add(&where, work);
    cli_traces_read(&ts, &where);
    m->processes = cli_process_count(&ts);
    int from = open(work, O_RDONLY | O_DIRECTORY | O_CLOEXEC),
        to = open(dest, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (size_t i = 0; i < ts.count; i++) {
        const struct cli_trace *t = &ts.item[i];
        count_in(m, t->t);
        if (!strcmp(work, dest))
            continue;
        errno = 0;
        if (t->alive) {
            m->left++;
            cli_say("process %d still runs; its trace stays in %s", kfit_trace_header(t->t)->pid,
                    cli_str(t->path));
        } else if (!move_file(from, to, strrchr(t->path, '/') + 1, &err)) {
            m->left++;
            cli_say("%s: cannot be moved to %s (%s); it stays there, move it by hand", cli_str(t->path),
                    cli_str(dest), SAFE(err.text));
        }
    }
    if (from >= 0)
        close(from);
    if (to >= 0)
        close(to);
    cli_traces_free(&ts);
    if (strcmp(work, dest) && rmdir(work) && errno == ENOTEMPTY && !m->left)
        cli_say("%s: files that are no traces were left there", cli_str(work));
}

int cli_run(int argc, char **argv)
{
    const char *mode = NULL, *trace = "kfit-trace", *cache = NULL, *label = NULL, *generation = NULL,
               *allow = NULL;
    bool quiet = false, strict = false;
    struct cli_list command = {0};
    const struct cli_option options[] = {
        {"mode", 'm', CLI_TEXT, &mode, "MODE",
         "record, dispatch or both (default: both with --cache, else record)"},
        {"trace", 't', CLI_TEXT, &trace, "DIR", "where the traces go (default: ./kfit-trace)"},
        {"cache", 'c', CLI_TEXT, &cache, "DIR",
         "take kernels from this cache (when dispatching: $KFIT_CACHE, "
         "else ~/.cache/kfit)"},
        {"label", 'l', CLI_TEXT, &label, "TEXT", "name of the deployment, kept in the traces"},
        {"generation", 'g', CLI_TEXT, &generation, "G", "number or digest, instead of the current one"},
        {"allow", 'a', CLI_TEXT, &allow, "LIST",
         "origins of kernels that may run, such as seed:*,person:alice (default: $KFIT_ALLOW, else all)"},
        {"strict", 'S', CLI_FLAG, &strict, NULL,
         "kernels tuned with another BLAS or compiler do not run (KFIT_STRICT=1)"},
        {"quiet", 'q', CLI_FLAG, &quiet, NULL, "no summary at the end"},
        {0},
    };
    cli_parse(
        argc, argv,
        &(struct cli_usage){.args = "[--] COMMAND [ARGUMENT...]",
                            .doc = "Runs COMMAND with libkfit_preload.so before whatever LD_PRELOAD already "
                                   "holds. The exit status is the command's; 128 + N if signal N ended it.\n"
                                   "If kfit itself is killed, the traces stay on tmpfs, in run-* of "
                                   "$XDG_RUNTIME_DIR/kfit or /dev/shm/kfit-UID, where `kfit trace ls`, "
                                   "status and report look when they are given none; name that "
                                   "directory to tune.",
                            .options = options,
                            .min = 1,
                            .max = CLI_ANY,
                            .command = true},
        &command);
    if (mode && !one_of(mode, modes))
        return cli_usage_error(argv, "--mode: \"%s\" is none of record, dispatch, both", cli_str(mode));
    if (!mode)
        mode = cache || generation ? "both" : "record";

    struct kfit_error err = {0};
    char shim[PATH_MAX], dest[PATH_MAX], work[PATH_MAX + 16], cache_buf[PATH_MAX];
    if (!cli_shim(shim, sizeof shim))
        return CLI_FAILED;
    enum kfit_status s = cli_make_dir(trace, &err);
    if (s != KFIT_OK)
        return cli_failed("--trace", s, &err);
    if (!realpath(trace, dest))
        return cli_fail("%s: %s", cli_str(trace), strerror(errno));
    if (strcmp(mode, "record")) {
        struct kfit_generation *g;
        cache = cli_cache_dir(cache, cache_buf, sizeof cache_buf);
        s = kfit_generation_open_trusted(cache, generation, cli_trust(), &g, &err);
        if (s == KFIT_OK)
            kfit_generation_close(g);
        else
            cli_say("%s: nothing will be replaced: %s", cli_str(cache),
                    err.text[0] ? SAFE(err.text) : kfit_status_str(s));
    }
    if (!cli_work_dir(work, sizeof work, &err)) {
        cli_say("recording in %s, no tmpfs to be had: %s", cli_str(dest), SAFE(err.text));
        snprintf(work, sizeof work, "%s", dest);
    }

    sigset_t set, before;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    for (unsigned i = 0; i < sizeof forwarded / sizeof *forwarded; i++)
        sigaddset(&set, forwarded[i]);
    signal(SIGCHLD, SIG_DFL);
    sigprocmask(SIG_BLOCK, &set, &before);
    pid_t pid = fork();
    if (pid < 0) {
        rmdir(work);
        return cli_fail("fork: %s", strerror(errno));
    }
    if (!pid) {
        cli_under_shim(shim, &(struct cli_served){.mode = mode,
                                                  .trace = work,
                                                  .cache = cache,
                                                  .label = label,
                                                  .generation = generation,
                                                  .allow = allow,
                                                  .strict = strict});
        sigprocmask(SIG_SETMASK, &before, NULL);
        execvp(command.item[0], (char *const *)(uintptr_t)command.item);
        cli_say("%s: %s", cli_str(command.item[0]), strerror(errno));
        _exit(errno == ENOENT ? 127 : 126);
    }
    int rc = wait_forwarding(pid, &set);
    struct moved m = {0};
    collect(work, dest, &m);
    if (!quiet && !m.processes)
        cli_say("no call was seen: the program did not use a BLAS function that kfit knows, or was "
                "statically linked");
    else if (!quiet)
        cli_say("%zu process%s, %zu keys, %llu calls (%llu by kfit kernels); traces in %s", m.processes,
                m.processes == 1 ? "" : "es", m.keys, (unsigned long long)m.calls, (unsigned long long)m.hits,
                cli_str(dest));
    return rc;
}
