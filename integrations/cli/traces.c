/* Which traces there are, and reading many of them. */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli.h"

static bool is_trace_name(const char *name)
{
    size_t n = strlen(name);
    return n > 4 && !strcmp(name + n - 4, ".kft") && *name != '.';
}

static bool known(const struct cli_traces *ts, const char *path)
{
    for (size_t i = 0; i < ts->count; i++)
        if (!strcmp(ts->item[i].path, path))
            return true;
    return false;
}

static bool add_file(struct cli_traces *ts, const char *path)
{
    struct kfit_error err = {0};
    struct kfit_trace *t;
    char real[PATH_MAX];
    if (!realpath(path, real))
        snprintf(real, sizeof real, "%s", path);
    if (known(ts, real))
        return true;
    enum kfit_status s = kfit_trace_read(path, &t, &err);
    if (s != KFIT_OK) {
        ts->unreadable++;
        if (!ts->quiet)
            cli_say("%s: not a readable trace (%s): %s", cli_str(path), kfit_status_str(s), SAFE(err.text));
        return false;
    }
    ts->item = cli_alloc(ts->item, (ts->count + 1) * sizeof *ts->item);
    ts->item[ts->count++] = (struct cli_trace){strdup(real), t, kfit_trace_alive(t)};
    return true;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

/* A directory of `kfit run` holds one run-XXXXXX per run in progress. */
static void add_dir(struct cli_traces *ts, const char *path, bool deeper)
{
    struct dirent **names = NULL;
    int n = scandir(path, &names, NULL, by_name);
    for (int i = 0; i < n; i++) {
        char full[PATH_MAX + 256];
        snprintf(full, sizeof full, "%s/%s", path, names[i]->d_name);
        if (is_trace_name(names[i]->d_name))
            add_file(ts, full);
        else if (deeper && !strncmp(names[i]->d_name, "run-", 4))
            add_dir(ts, full, false);
        free(names[i]);
    }
    free(names);
}

/* Calls fn for each line of /proc/PID/maps of each process that we may look at. */
static void each_mapping(void (*fn)(void *ctx, int pid, const char *path), void *ctx)
{
    DIR *proc = opendir("/proc");
    struct dirent *e;
    while (proc && (e = readdir(proc))) {
        char name[300], *line = NULL;
        size_t cap = 0;
        if (!isdigit((unsigned char)e->d_name[0]))
            continue;
        snprintf(name, sizeof name, "/proc/%s/maps", e->d_name);
        FILE *f = fopen(name, "re");
        while (f && getline(&line, &cap, f) > 0) {
            char *path = strchr(line, '/');
            line[strcspn(line, "\n")] = '\0';
            if (path)
                fn(ctx, atoi(e->d_name), path);
        }
        if (f)
            fclose(f);
        free(line);
    }
    if (proc)
        closedir(proc);
}

static void add_mapped(void *ctx, int pid, const char *path)
{
    (void)pid;
    if (is_trace_name(path) && !access(path, R_OK))
        add_file(ctx, path);
}

struct loaded {
    struct {
        int pid;
        bool trace, kernels, library;
    } * item;
    size_t count;
};

static void note_loaded(void *ctx, int pid, const char *path)
{
    struct loaded *l = ctx;
    bool trace = is_trace_name(path), kernels = !strncmp(path, "/memfd:kfit-images", 18);
    bool library = strstr(path, "/libkfit") != NULL;
    if (!trace && !kernels && !library)
        return;
    if (!l->count || l->item[l->count - 1].pid != pid) {
        l->item = cli_alloc(l->item, (l->count + 1) * sizeof *l->item);
        memset(&l->item[l->count], 0, sizeof *l->item);
        l->item[l->count++].pid = pid;
    }
    l->item[l->count - 1].trace |= trace;
    l->item[l->count - 1].kernels |= kernels;
    l->item[l->count - 1].library |= library;
}

size_t cli_unreachable(int *pids, size_t max)
{
    struct loaded l = {0};
    size_t n = 0;
    each_mapping(note_loaded, &l);
    for (size_t i = 0; i < l.count; i++)
        if (l.item[i].library && l.item[i].kernels && !l.item[i].trace && n < max)
            pids[n++] = l.item[i].pid;
    free(l.item);
    return n;
}

bool cli_traces_read(struct cli_traces *ts, const struct cli_list *where)
{
    bool ok = true;
    struct stat st;
    for (size_t i = 0; where && i < where->count; i++) {
        const char *path = where->item[i];
        if (stat(path, &st)) {
            ts->unreadable++;
            if (!ts->quiet)
                cli_say("%s: %s; give a trace file or a directory that `kfit run --trace` wrote",
                        cli_str(path), strerror(errno));
            ok = false;
        } else if (S_ISDIR(st.st_mode)) {
            add_dir(ts, path, true);
        } else {
            ok &= add_file(ts, path);
        }
    }
    if (!where || !where->count) {
        char dir[PATH_MAX];
        if (kfit_trace_default_dir(dir, sizeof dir))
            add_dir(ts, dir, true);
        for (unsigned i = 0; cli_runtime_dir(i, dir, sizeof dir); i++)
            add_dir(ts, dir, true);
        add_dir(ts, "kfit-trace", false);
        each_mapping(add_mapped, ts);
    }
    return ok;
}

bool cli_traces_merge(struct cli_traces *ts)
{
    const struct kfit_trace **same = cli_alloc(NULL, ts->count * sizeof *same);
    bool *done = cli_alloc(NULL, ts->count * sizeof *done), ok = true;
    memset(done, 0, ts->count * sizeof *done);
    for (size_t i = 0; i < ts->count && ok; i++) {
        size_t n = 0;
        struct kfit_error err = {0};
        const char *hard = kfit_trace_header(ts->item[i].t)->env.hard;
        for (size_t j = i; j < ts->count; j++) {
            if (done[j] || strncmp(kfit_trace_header(ts->item[j].t)->env.hard, hard, KFIT_ENV_TEXT_MAX))
                continue;
            done[j] = true;
            same[n++] = ts->item[j].t;
        }
        if (!n)
            continue;
        ts->group = cli_alloc(ts->group, (ts->groups + 1) * sizeof *ts->group);
        enum kfit_status s = kfit_trace_merge(same, n, true, &ts->group[ts->groups], &err);
        if (s == KFIT_OK)
            ts->groups++;
        else
            ok = !cli_failed("merging traces", s, &err);
    }
    free(done);
    free(same);
    return ok;
}

void cli_traces_free(struct cli_traces *ts)
{
    for (size_t i = 0; i < ts->count; i++) {
        free(ts->item[i].path);
        kfit_trace_destroy(ts->item[i].t);
    }
    for (size_t i = 0; i < ts->groups; i++)
        kfit_trace_destroy(ts->group[i]);
    free(ts->item);
    free(ts->group);
    *ts = (struct cli_traces){0};
}

void cli_trace_totals(const struct kfit_trace *t, uint64_t count[KFIT_TRACE_REASONS])
{
    memcpy(count, kfit_trace_header(t)->unkeyed, KFIT_TRACE_REASONS * sizeof *count);
    for (size_t i = 0; i < kfit_trace_count(t); i++)
        for (unsigned r = 0; r < KFIT_TRACE_REASONS; r++)
            count[r] += kfit_trace_at(t, i)->count[r];
}
