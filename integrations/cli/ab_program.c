/* One run of a program: its processes, what it prints, and its end. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "ab.h"
#include "kfit/hash.h"

enum {
    REGEX_MAX = 256,
    REGEX_BYTES = 256 << 20, /* address space of the child that tries a regular expression */
    REGEX_SECONDS = 2,
    NUMBERS_MAX = 1 << 16, /* of one run or phase; later ones are not looked at */
    GRACE_S = 10,          /* from the request to end to the kill */
};

const char *const ab_side_names[] = {"without dispatch", "with dispatch"};

double ab_now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- the metric ---- */

/* In a child: compiles, and looks through one long line. */
static void try_regex(const char *text)
{
    const struct rlimit memory = {REGEX_BYTES, REGEX_BYTES}, seconds = {REGEX_SECONDS, REGEX_SECONDS + 1},
                        none = {0, 0};
    char line[AB_LINE_MAX];
    regex_t r;
    regmatch_t at[2];
    setrlimit(RLIMIT_AS, &memory);
    setrlimit(RLIMIT_CPU, &seconds);
    setrlimit(RLIMIT_CORE, &none);
    memset(line, 'a', sizeof line - 1);
    line[sizeof line - 1] = '\0';
    int e = regcomp(&r, text, REG_EXTENDED);
    if (!e)
        e = regexec(&r, line, 2, at, 0);
    _exit(e == REG_ESPACE);
}

bool ab_metric_add(struct ab_metrics *all, const char *text)
{
    struct ab_metric *m = &all->item[all->count];
    m->text = text;
    char why[200];
    int st = 0;
    if (all->count == AB_METRICS_MAX)
        return !cli_fail("--metric: at most %d", AB_METRICS_MAX);
    if (strlen(text) > REGEX_MAX)
        return !cli_fail("--metric: longer than %d bytes", REGEX_MAX);
    for (const char *p = m->text; (p = strchr(p, '\\')) && p[1]; p += 2)
        if (p[1] >= '1' && p[1] <= '9')
            return !cli_fail(
                "--metric: \\%c: what was matched before cannot be asked for; name what you look for", p[1]);
    pid_t pid = fork();
    if (pid < 0)
        return !cli_fail("--metric: cannot start a process: %s", strerror(errno));
    if (!pid)
        try_regex(m->text);
    while (waitpid(pid, &st, 0) < 0 && errno == EINTR)
        continue;
    if (st)
        return !cli_fail("--metric: \"%s\" needs more than %d MB or %d s; make it simpler", cli_str(m->text),
                         REGEX_BYTES >> 20, REGEX_SECONDS);
    int e = regcomp(&m->regex, m->text, REG_EXTENDED);
    if (!e) {
        all->count++;
        return true;
    }
    regerror(e, &m->regex, why, sizeof why);
    return !cli_fail("--metric: \"%s\" is no regular expression: %s", cli_str(m->text), why);
}

/* Whether the line is the metric's; its number is noted. */
static bool take_number(const struct ab_metric *metric, struct ab_numbers *n, const char *line)
{
    regmatch_t at[2];
    char text[64], *end;
    if (regexec(&metric->regex, line, 2, at, 0))
        return false;
    const regmatch_t *m = metric->regex.re_nsub && at[1].rm_so >= 0 ? &at[1] : &at[0];
    snprintf(text, sizeof text, "%.*s", (int)(m->rm_eo - m->rm_so), line + m->rm_so);
    double value = strtod(text, &end);
    if (end == text || *end || !isfinite(value) || value <= 0) {
        if (!n->bad)
            snprintf(n->bad_text, sizeof n->bad_text, "%s", cli_str(text));
        n->bad = true;
    } else if (n->drop) {
        n->drop--;
    } else if (n->count < NUMBERS_MAX) {
        if (!(n->count & (n->count - 1)))
            n->item = cli_alloc(n->item, 2 * (n->count + 1) * sizeof *n->item);
        n->item[n->count++] = value;
    }
    return true;
}

/* ---- output ---- */

static void take_line(struct ab_output *o)
{
    char line[AB_LINE_MAX + 1];
    memcpy(line, o->line, o->used);
    line[o->used] = '\0';
    for (char *nul = line; (nul = memchr(nul, '\0', (size_t)(line + o->used - nul)));)
        *nul = '?';
    bool number = false;
    for (size_t i = 0; i < o->metrics->count; i++)
        number |= take_number(&o->metrics->item[i], &o->numbers[i], line);
    if (!number) {
        o->digest = XXH3_64bits_withSeed(o->line, o->used, o->digest);
        size_t n = o->used + 1, room = AB_HEAD_MAX - o->head_bytes;
        n = n < room ? n : room;
        if (!o->head)
            o->head = cli_alloc(NULL, AB_HEAD_MAX);
        if (n) {
            line[o->used] = '\n'; /* for people: the digest is of what came */
            memcpy(o->head + o->head_bytes, line, n);
        }
        o->head_bytes += n;
    }
    o->used = 0;
}

static void take(struct ab_output *o, const char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (bytes[i] != '\n')
            o->line[o->used++] = bytes[i];
        if (bytes[i] == '\n' || o->used == AB_LINE_MAX)
            take_line(o);
    }
}

static bool no_number(const struct ab_output *o, const struct ab_metric *m, const struct ab_numbers *n)
{
    if (n->bad)
        return !cli_fail(
            "--metric: matched \"%s\", which is no positive number; put the number into (the first group)",
            n->bad_text);
    size_t first = 0;
    while (first < o->head_bytes && o->head[first] != '\n')
        first++;
    return !cli_fail("--metric: no line of the program's standard output matches \"%s\"; %s%s%s",
                     cli_str(m->text), first ? "it begins \"" : "nothing else is there either",
                     first ? cli_safe(o->head, first < 100 ? first : 100) : "", first ? "\"" : "");
}

bool ab_output_numbers(const struct ab_output *o, double number[AB_METRICS_MAX])
{
    for (size_t i = 0; i < o->metrics->count; i++) {
        const struct ab_numbers *n = &o->numbers[i];
        if (!n->count)
            return no_number(o, &o->metrics->item[i], n);
        double *copy = cli_alloc(NULL, n->count * sizeof *copy);
        memcpy(copy, n->item, n->count * sizeof *copy);
        number[i] = kfit_median(copy, n->count);
        free(copy);
    }
    return true;
}

bool ab_output_complete(const struct ab_output *o)
{
    for (size_t i = 0; i < o->metrics->count; i++)
        if (!o->numbers[i].count)
            return false;
    return true;
}

const char *ab_output_difference(const struct ab_output *a, const struct ab_output *b, char buf[512])
{
    size_t n = a->head_bytes < b->head_bytes ? a->head_bytes : b->head_bytes, i = 0, line = 1, begin = 0;
    for (; i < n && a->head[i] == b->head[i]; i++)
        if (a->head[i] == '\n') {
            line++;
            begin = i + 1;
        }
    const struct ab_output *sides[] = {a, b};
    const char *text[2];
    for (int s = 0; s < 2; s++) {
        const struct ab_output *o = sides[s];
        size_t end = begin;
        while (end < o->head_bytes && o->head[end] != '\n')
            end++;
        text[s] =
            begin < o->head_bytes ? cli_safe(o->head + begin, end - begin < 80 ? end - begin : 80) : NULL;
    }
    if (i == n && n == AB_HEAD_MAX)
        snprintf(buf, 512, "they differ beyond the first %d bytes", AB_HEAD_MAX);
    else if (!text[0] || !text[1])
        snprintf(buf, 512, "line %zu, \"%s\", is in one only", line,
                 text[0]   ? text[0]
                 : text[1] ? text[1]
                           : "");
    else
        snprintf(buf, 512, "line %zu is \"%s\", not \"%s\"", line, text[1], text[0]);
    return buf;
}

void ab_output_finish(struct ab_output *o)
{
    free(o->head);
    for (size_t i = 0; i < AB_METRICS_MAX; i++)
        free(o->numbers[i].item);
    *o = (struct ab_output){0};
}

/* ---- the program ---- */

/* Reads which process group runs now, 0: none; kills it when we are gone without a word. */
static _Noreturn void guard(int from)
{
    pid_t group = 0, next;
    setsid(); /* what the terminal sends is not for it */
    while (read(from, &next, sizeof next) == sizeof next)
        group = next;
    if (group)
        kill(-group, SIGKILL);
    _exit(0);
}

bool ab_guard(struct ab *ab)
{
    int fd[2];
    if (pipe2(fd, O_CLOEXEC))
        return !cli_fail("pipe: %s", strerror(errno));
    fflush(NULL);
    pid_t pid = fork();
    if (!pid) {
        for (int i = 0; i < fd[1] + 1; i++) /* whoever waits for the end of our output does not wait for it */
            if (i != fd[0])
                close(i);
        guard(fd[0]);
    }
    close(fd[0]);
    ab->guard = fd[1];
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    return pid > 0 || !cli_fail("fork: %s", strerror(errno));
}

static void tell_guard(const struct ab *ab, pid_t group)
{
    if (write(ab->guard, &group, sizeof group) != sizeof group)
        cli_say("the process that would end the program after a kill of this one is gone");
}

static _Noreturn void become(const struct ab *ab, enum ab_side side, int out, pid_t parent)
{
    int null = open("/dev/null", O_RDONLY);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* until the guard knows */
    if (getppid() != parent)
        _exit(127);
    if (null < 0 || dup2(null, 0) < 0 || dup2(out, 1) < 0)
        _exit(126);
    if (null > 2)
        close(null);
    sigprocmask(SIG_SETMASK, &ab->before, NULL);
    cli_under_shim(ab->shim, &(struct cli_served){.mode = ab->mode[side],
                                                  .trace = ab->work,
                                                  .cache = ab->cache,
                                                  .label = ab->label,
                                                  .generation = ab->generation[0] ? ab->generation : NULL});
    setenv("KFIT_STATE", "/dev/null", 1); /* we may end it: that is not a crash of the server */
    execvp(ab->command[0], (char *const *)(uintptr_t)ab->command);
    cli_say("%s: %s", cli_str(ab->command[0]), strerror(errno));
    _exit(errno == ENOENT ? 127 : 126);
}

bool ab_start(struct ab *ab, enum ab_side side, struct ab_program *p)
{
    int fd[2];
    *p = (struct ab_program){.out = -1, .output.metrics = &ab->metrics};
    if (pipe2(fd, O_CLOEXEC))
        return !cli_fail("pipe: %s", strerror(errno));
    fflush(NULL);
    pid_t self = getpid();
    p->start_s = ab_now_s();
    p->pid = fork();
    if (!p->pid)
        become(ab, side, fd[1], self);
    close(fd[1]);
    if (p->pid < 0) {
        close(fd[0]);
        return !cli_fail("fork: %s", strerror(errno));
    }
    setpgid(p->pid, p->pid); /* in both: whoever comes first */
    tell_guard(ab, p->pid);
    fcntl(fd[0], F_SETFL, O_NONBLOCK);
    p->out = fd[0];
    return true;
}

/* What is there now. */
static void read_output(struct ab_program *p)
{
    char buf[1 << 16];
    ssize_t n = 0;
    while (p->out >= 0 && (n = read(p->out, buf, sizeof buf)) > 0)
        take(&p->output, buf, (size_t)n);
    if (p->out >= 0 && (!n || (errno != EAGAIN && errno != EINTR))) {
        close(p->out);
        p->out = -1;
    }
}

/* Notes the end if it has come. What is left of the group would share the machine with the next run, and hold its
 * trace: it is killed while the leader still keeps the group's number, and all of it is waited for, which
 * PR_SET_CHILD_SUBREAPER made ours. */
static bool has_ended(const struct ab *ab, struct ab_program *p, int flags)
{
    siginfo_t info = {0};
    if (waitid(P_PID, (id_t)p->pid, &info, WEXITED | WNOWAIT | flags) || !info.si_pid)
        return false;
    p->end_s = ab_now_s();
    kill(-p->pid, SIGKILL);
    tell_guard(ab, 0);
    pid_t pid;
    for (int st; (pid = waitpid(-p->pid, &st, 0)) > 0 || (pid < 0 && errno == EINTR);)
        if (pid == p->pid)
            p->status = WIFSIGNALED(st) ? 128 + WTERMSIG(st) : WEXITSTATUS(st);
    p->ended = true;
    read_output(p);
    if (p->output.used)
        take_line(&p->output);
    return true;
}

enum ab_event ab_watch(struct ab *ab, struct ab_program *p, double until_s)
{
    for (;;) {
        double left = until_s - ab_now_s();
        int ms = left > 1e6 ? -1 : left > 0 ? (int)ceil(left * 1e3) : 0;
        struct pollfd f[] = {{p->out, POLLIN, 0}, {ab->signals, POLLIN, 0}};
        if (poll(f, 2, ms) < 0 && errno != EINTR) {
            cli_say("poll: %s", strerror(errno));
            ab->stopped = true;
            return AB_STOP;
        }
        if (f[0].revents)
            read_output(p);
        if (f[1].revents) {
            struct signalfd_siginfo info;
            if (read(ab->signals, &info, sizeof info) != sizeof info)
                continue;
            if (info.ssi_signo != SIGCHLD) {
                ab->stopped = true;
                return AB_STOP;
            }
            if (has_ended(ab, p, WNOHANG))
                return AB_ENDED;
        }
        if (left <= 0)
            return AB_TIME;
    }
}

void ab_restart(struct ab_program *p)
{
    read_output(p);
    for (size_t i = 0; i < p->output.metrics->count; i++) {
        p->output.numbers[i].count = 0;
        p->output.numbers[i].drop = 1;
    }
}

void ab_end(struct ab *ab, struct ab_program *p)
{
    if (p->ended)
        return;
    kill(-p->pid, SIGTERM);
    if (ab_watch(ab, p, ab_now_s() + GRACE_S) == AB_ENDED)
        return;
    kill(-p->pid, SIGKILL);
    has_ended(ab, p, 0);
}

void ab_program_finish(struct ab_program *p)
{
    if (p->out >= 0)
        close(p->out);
    p->out = -1;
    ab_output_finish(&p->output);
}
