/* kfit off, on: for new processes by a file in the cache, for running ones by the control word of their
 * trace. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "graphs.h"
#include "held.h"
#include "processes.h"

enum { PIDS_MAX = 4096 };
enum { WAIT_MS = 2000, STEP_MS = 20 }; /* for captures under way, of all processes together */

static int write_off(const char *dir, const char *reason)
{
    struct kfit_error err = {0};
    char path[4200], temp[4220], text[512];
    enum kfit_status s = cli_make_dir(dir, &err);
    if (s != KFIT_OK)
        return cli_failed("--cache", s, &err);
    snprintf(path, sizeof path, "%s/off", dir);
    snprintf(temp, sizeof temp, "%s.%d", path, getpid());
    int n = snprintf(text, sizeof text, "off by %s at %s: %.300s\n", cli_user(), cli_when(time(NULL)),
                     cli_str(reason));
    int fd = open(temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    bool ok = fd >= 0 && write(fd, text, (size_t)n) == n && !fsync(fd);
    if (fd >= 0)
        ok = !close(fd) && ok;
    ok = ok && !rename(temp, path);
    if (ok)
        return CLI_OK;
    int rc = cli_fail("%s: %s; new processes will still be dispatched", cli_str(path), strerror(errno));
    unlink(temp);
    return rc;
}

static int remove_off(const char *dir)
{
    char path[4200];
    snprintf(path, sizeof path, "%s/off", dir);
    return !unlink(path) || errno == ENOENT ? CLI_OK : cli_fail("%s: %s", cli_str(path), strerror(errno));
}

/* Takes graphs. making: captures with kernels of kfit's that have not ended. */
static void row(cJSON *list, int pid, const char *program, const char *device, cJSON *graphs, uint32_t making,
                const char *problem)
{
    if (list) {
        cJSON *o = cJSON_CreateObject();
        cJSON_AddNumberToObject(o, "pid", pid);
        cJSON_AddStringToObject(o, "program", program);
        cJSON_AddStringToObject(o, "device", device);
        cJSON_AddItemToObject(o, "graphs", graphs);
        cJSON_AddNumberToObject(o, "capturing", making);
        cJSON_AddBoolToObject(o, "reached", !problem);
        if (problem)
            cJSON_AddStringToObject(o, "problem", problem);
        cJSON_AddItemToArray(list, o);
    } else if (!problem) {
        printf("%d %s on %s\n", pid, program, device);
    }
    if (problem)
        cli_fail("process %d %s was not reached: %s; restart it", pid, program, problem);
}

static bool read_now(struct cli_trace *t)
{
    if (kfit_trace_read(t->path, &t->t, NULL) != KFIT_OK)
        return false;
    t->alive = kfit_trace_alive(t->t);
    return true;
}

/* What the graphs of one that was reached go on with, as its trace says now. What was under way when kfit was switched off
 * is waited for, to see which graph it becomes. Numbers of those that hold kernels of kfit's into list. */
static size_t say_graphs(const struct cli_trace *t, bool off, int *wait_ms, cJSON *list, uint32_t *making)
{
    const struct timespec step = {0, STEP_MS * 1000000};
    struct cli_trace now = *t;
    if (!kfit_trace_header(t->t)->live.graph_count || !read_now(&now))
        return 0;
    for (; off && cli_graphs_making(&now) && *wait_ms > 0; *wait_ms -= STEP_MS) {
        kfit_trace_destroy(now.t);
        nanosleep(&step, NULL);
        if (!read_now(&now))
            return 0;
    }
    size_t n = off ? cli_graphs_say(&now, CLI_GRAPHS_OURS, NULL, list) : 0;
    *making = cli_graphs_making(&now);
    if (!off)
        cli_graphs_say(&now, CLI_GRAPHS_OFF, NULL, NULL);
    kfit_trace_destroy(now.t);
    return n;
}

/* Whether a process was reached, and why not. */
struct outcome {
    enum kfit_status s; /* KFIT_E_NOTFOUND: it is gone */
    struct kfit_error err;
};

static struct outcome tell(const struct cli_trace *t, enum kfit_control control)
{
    struct outcome o = {.s = KFIT_E_NOTFOUND};
    if (t->alive)
        o.s = kfit_trace_set_control(t->path, control, &o.err);
    if (o.s == KFIT_OK && control == KFIT_CONTROL_RUN &&
        kfit_trace_header(t->t)->follows) /* what was approved meanwhile */
        o.s = kfit_trace_set_control(t->path, KFIT_CONTROL_RELOAD, &o.err);
    return o;
}

/* Both commands: the file, then every live process. */
static int set(int argc, char **argv, enum kfit_control control, const char *doc)
{
    const char *cache = NULL, *state = NULL, *reason = "by hand";
    bool json = false;
    struct cli_list where = {0};
    struct cli_traces ts = {0};
    char dir[4096], state_buf[4096];
    bool off = control == KFIT_CONTROL_OFF;
    const struct cli_option options[] = {
        CLI_OPTION_CACHE(&cache),
        CLI_OPTION_JSON(&json),
        off ? (struct cli_option){"reason", 'r', CLI_TEXT, &reason, "TEXT", "why; shown by status and doctor"}
            : (struct cli_option)CLI_OPTION_STATE(&state),
        {0},
    };
    cli_parse(argc, argv,
              &(struct cli_usage){.args = "[TRACE-DIR...]", .doc = doc, .options = options, .max = CLI_ANY},
              &where);
    cli_cache_dir(cache, dir, sizeof dir);
    int rc = off ? write_off(dir, reason) : remove_off(dir);
    if (!off && !cli_held_clear(cli_state_dir(state, state_buf, sizeof state_buf)))
        rc = CLI_FAILED;
    if (!cli_traces_read(&ts, &where))
        rc = CLI_FAILED;
    cJSON *list = json ? cJSON_CreateArray() : NULL;
    size_t held = 0;
    int wait_ms = WAIT_MS;
    struct cli_traces reached = {0}; /* borrowed */
    reached.item = cli_alloc(NULL, ts.count * sizeof *reached.item);
    struct outcome *told = cli_alloc(NULL, ts.count * sizeof *told);
    for (size_t i = 0; i < ts.count; i++) /* all of them, before any is waited for */
        told[i] = tell(&ts.item[i], control);
    for (size_t i = 0; i < ts.count; i++) {
        const struct kfit_trace_header *h = kfit_trace_header(ts.item[i].t);
        const bool ok = told[i].s == KFIT_OK;
        uint32_t making = 0;
        if (told[i].s == KFIT_E_NOTFOUND)
            continue;
        const char *why = told[i].err.text[0] ? SAFE(told[i].err.text) : kfit_status_str(told[i].s);
        cJSON *graphs = json ? cJSON_CreateArray() : NULL;
        if (ok) {
            reached.item[reached.count++] = ts.item[i];
            held += say_graphs(&ts.item[i], off, &wait_ms, graphs, &making);
        }
        row(list, h->pid, SAFE(h->program), cli_device(h), graphs, making, ok ? NULL : why);
        rc |= !ok;
    }
    free(told);
    int pids[PIDS_MAX];
    size_t lost = where.count ? 0 : cli_unreachable(pids, PIDS_MAX);
    for (size_t i = 0; i < lost; i++) {
        row(list, pids[i], "", "", json ? cJSON_CreateArray() : NULL, 0,
            "it has kfit kernels loaded and no trace file");
        rc |= off;
    }
    if (json)
        cli_json_print(list);
    rc |= held != 0;
    cli_say("%s for new processes, and in %zu running%s", off ? "off" : "on", cli_process_count(&reached),
            rc ? "; not everywhere" : "");
    free(reached.item);
    cli_traces_free(&ts);
    return rc;
}

int cli_off(int argc, char **argv)
{
    return set(
        argc, argv, KFIT_CONTROL_OFF,
        "Stops replacing calls: in running processes within one call, and in every process that "
        "starts with this "
        "cache. Lists the processes reached; exit status 1 names those that could not be, and the captured "
        "graphs that still replay kernels of kfit's. A capture that holds some is waited for, at most two "
        "seconds; one that still goes on is named: run `kfit off` again when it has ended.");
}

int cli_on(int argc, char **argv)
{
    return set(
        argc, argv, KFIT_CONTROL_RUN,
        "Undoes `kfit off`, and clears what this host holds back because programs ended uncleanly "
        "with it. Processes that only record for either reason have to be restarted, unless they follow "
        "(KFIT_FOLLOW). Graphs that were captured while it was off are named: they go on with the original.");
}
