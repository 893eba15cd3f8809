/* kfit off, on: for new processes by a file in the cache, for running ones by the control word of their
 * trace. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "held.h"

enum { PIDS_MAX = 4096 };

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

static void row(cJSON *list, int pid, const char *program, const char *problem)
{
    if (list) {
        cJSON *o = cJSON_CreateObject();
        cJSON_AddNumberToObject(o, "pid", pid);
        cJSON_AddStringToObject(o, "program", program);
        cJSON_AddBoolToObject(o, "reached", !problem);
        if (problem)
            cJSON_AddStringToObject(o, "problem", problem);
        cJSON_AddItemToArray(list, o);
    } else if (!problem) {
        printf("%d %s\n", pid, program);
    }
    if (problem)
        cli_fail("process %d %s was not reached: %s; restart it", pid, program, problem);
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
    size_t reached = 0;
    for (size_t i = 0; i < ts.count; i++) {
        const struct kfit_trace_header *h = kfit_trace_header(ts.item[i].t);
        struct kfit_error err = {0};
        if (!ts.item[i].alive)
            continue;
        enum kfit_status s = kfit_trace_set_control(ts.item[i].path, control, &err);
        if (s == KFIT_OK && !off && h->follows) /* what was approved meanwhile */
            s = kfit_trace_set_control(ts.item[i].path, KFIT_CONTROL_RELOAD, &err);
        if (s == KFIT_E_NOTFOUND) /* ended since it was listed */
            continue;
        const char *why = err.text[0] ? SAFE(err.text) : kfit_status_str(s);
        row(list, h->pid, SAFE(h->program), s == KFIT_OK ? NULL : why);
        reached += s == KFIT_OK;
        rc |= s != KFIT_OK;
    }
    int pids[PIDS_MAX];
    size_t lost = where.count ? 0 : cli_unreachable(pids, PIDS_MAX);
    for (size_t i = 0; i < lost; i++) {
        row(list, pids[i], "", "it has kfit kernels loaded and no trace file");
        rc |= off;
    }
    if (json)
        cli_json_print(list);
    cli_say("%s for new processes, and in %zu running%s", off ? "off" : "on", reached,
            rc ? "; not everywhere" : "");
    cli_traces_free(&ts);
    return rc;
}

int cli_off(int argc, char **argv)
{
    return set(argc, argv, KFIT_CONTROL_OFF,
               "Stops replacing calls: in running processes within one call, and in every process that "
               "starts with this "
               "cache. Lists the processes reached; exit status 1 names those that could not be.");
}

int cli_on(int argc, char **argv)
{
    return set(
        argc, argv, KFIT_CONTROL_RUN,
        "Undoes `kfit off`, and clears what this host holds back because programs ended uncleanly "
        "with it. Processes that only record for either reason have to be restarted, unless they follow "
        "(KFIT_FOLLOW).");
}
