/* kfit status: what kfit does in each process, now or until it ended. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "graphs.h"
#include "held.h"
#include "processes.h"
#include "trace_live.h"

/* "12 winners, 2 stale, ..." of what is not 0; "" if nothing was loaded or is known of it. */
static const char *loaded_text(const struct kfit_trace_loaded *l, char buf[256])
{
    const struct {
        uint32_t n;
        const char *what;
    } parts[] = {{l->winners, "kernels loaded"},
                 {l->stale, "stale (tuned with another compiler, BLAS or driver)"},
                 {l->negatives, "keys kept"},
                 {l->banned, "banned"},
                 {l->unusable, "not usable"}};
    size_t used = 0;
    buf[0] = '\0';
    for (size_t i = 0; l->unix_ns && i < sizeof parts / sizeof *parts; i++)
        if (parts[i].n || !i)
            used += (size_t)snprintf(buf + used, 256 - used, "%s%u %s", used ? ", " : "", parts[i].n,
                                     parts[i].what);
    return buf;
}

static void print(const struct cli_trace *t, const uint64_t count[KFIT_TRACE_REASONS])
{
    const struct kfit_trace_header *h = kfit_trace_header(t->t);
    uint64_t calls = 0;
    for (unsigned i = 0; i < KFIT_TRACE_REASONS; i++)
        calls += count[i];
    printf("%s %d %s%s%s%s%s%s\n", t->alive ? "live " : "ended", h->pid, SAFE(h->program),
           h->label[0] ? " (" : "", SAFE(h->label), h->label[0] ? ")" : "", h->device[0] ? " on " : "",
           SAFE(h->device));
    printf("      mode %s%s", cli_mode_name(h->mode),
           kfit_control_is_off(h->control) ? ", switched off" : "");
    if (h->generation && !h->state_text[0])
        printf(", generation %llu", (unsigned long long)h->generation);
    printf("; %s%s", SAFE(h->state_text), h->state_text[0] ? "" : kfit_reason_text(h->state_reason));
    if (h->rank >= 0)
        printf("; rank %d", h->rank);
    if (h->job[0])
        printf(" of job %s", SAFE(h->job));
    putchar('\n');
    char loaded[256];
    if (loaded_text(&h->loaded, loaded)[0])
        printf("      generation %llu since %s: %s\n", (unsigned long long)h->generation,
               cli_when(h->loaded.unix_ns / 1000000000), loaded);
    printf("      %llu calls, %zu keys, %llu by kfit kernels", (unsigned long long)calls,
           kfit_trace_count(t->t), (unsigned long long)count[KFIT_REASON_NONE]);
    for (unsigned i = 1; i < KFIT_REASON_COUNT; i++)
        if (count[i])
            printf(", %llu %s", (unsigned long long)count[i], kfit_reason_name(i));
    putchar('\n');
    const struct kfit_trace_launches l = kfit_trace_launches(t->t);
    const struct cli_graph_sums g = cli_graphs_sum(t);
    if (cli_known_ops(&l) >= 0)
        printf(
            "      %.1f %% of the launches are known ops; %llu graphs captured, %llu live, %llu with kernels "
            "of kfit's\n",
            100 * cli_known_ops(&l), (unsigned long long)g.made, (unsigned long long)g.live,
            (unsigned long long)g.ours);
    if (g.ours && !cli_dispatching(h, &(unsigned){0}))
        printf("      GRAPHS GO ON with kernels of kfit's: `kfit trace graphs` lists them; restart or "
               "re-capture\n");
}

static cJSON *describe(const struct cli_trace *t, const uint64_t count[KFIT_TRACE_REASONS])
{
    const struct kfit_trace_header *h = kfit_trace_header(t->t);
    char digest[65];
    kfit_hex(h->generation_digest, 32, digest);
    cJSON *o = cJSON_CreateObject();
    cJSON_AddNumberToObject(o, "pid", h->pid);
    cJSON_AddBoolToObject(o, "alive", t->alive);
    cJSON_AddStringToObject(o, "program", SAFE(h->program));
    cJSON_AddStringToObject(o, "label", SAFE(h->label));
    cJSON_AddNumberToObject(o, "rank", h->rank);
    cJSON_AddStringToObject(o, "mode", cli_mode_name(h->mode));
    cJSON_AddBoolToObject(o, "off", kfit_control_is_off(h->control));
    cJSON_AddStringToObject(o, "state", kfit_reason_name(h->state_reason));
    cJSON_AddStringToObject(o, "state_text", SAFE(h->state_text));
    cJSON_AddNumberToObject(o, "generation", (double)h->generation);
    cJSON_AddStringToObject(o, "generation_digest", h->generation ? digest : "");
    unsigned why;
    cJSON_AddBoolToObject(o, "dispatching", t->alive && cli_dispatching(h, &why));
    cJSON_AddStringToObject(o, "job", SAFE(h->job));
    cJSON_AddStringToObject(o, "cache", SAFE(h->cache));
    if (h->loaded.unix_ns) {
        cJSON *l = cJSON_AddObjectToObject(o, "loaded");
        cJSON_AddNumberToObject(l, "unix", (double)(h->loaded.unix_ns / 1000000000));
        cJSON_AddNumberToObject(l, "winners", h->loaded.winners);
        cJSON_AddNumberToObject(l, "stale", h->loaded.stale);
        cJSON_AddNumberToObject(l, "negatives", h->loaded.negatives);
        cJSON_AddNumberToObject(l, "banned", h->loaded.banned);
        cJSON_AddNumberToObject(l, "unusable", h->loaded.unusable);
        cJSON_AddNumberToObject(l, "loads", h->loaded.loads);
    } else {
        cJSON_AddNullToObject(o, "loaded");
    }
    cJSON_AddNumberToObject(o, "keys", (double)kfit_trace_count(t->t));
    cJSON_AddNumberToObject(o, "hits", (double)count[KFIT_REASON_NONE]);
    uint64_t misses[KFIT_TRACE_REASONS], calls = 0;
    for (unsigned i = 0; i < KFIT_TRACE_REASONS; i++)
        calls += misses[i] = count[i];
    misses[KFIT_REASON_NONE] = 0;
    cJSON_AddNumberToObject(o, "calls", (double)calls);
    cJSON_AddItemToObject(o, "misses", cli_json_reasons(misses));
    const struct kfit_trace_launches l = kfit_trace_launches(t->t);
    const struct cli_graph_sums g = cli_graphs_sum(t);
    cJSON_AddStringToObject(o, "device", cli_device(h));
    cJSON_AddItemToObject(o, "launches", cli_launches_json(&l));
    cJSON_AddItemToObject(o, "graphs", cli_graphs_json(&g));
    cJSON_AddStringToObject(o, "trace", cli_str(t->path));
    return o;
}

/* Ranks of one job must hold one generation; where they do not, which rank has which. */
static void mixed_jobs(const struct cli_traces *ts, cJSON *list)
{
    struct cli_jobs jobs;
    cli_jobs_find(&jobs, ts);
    for (size_t j = 0; j < jobs.count; j++) {
        const struct cli_job *job = &jobs.job[j];
        const struct kfit_trace_header *first = kfit_trace_header(ts->item[job->item[0]].t);
        if (!job->mixed)
            continue;
        cJSON *o = list ? cJSON_CreateObject() : NULL, *ranks = NULL;
        if (o) {
            cJSON_AddStringToObject(o, "job", SAFE(first->job));
            cJSON_AddStringToObject(o, "label", SAFE(first->label));
            cJSON_AddStringToObject(o, "program", SAFE(first->program));
            ranks = cJSON_AddArrayToObject(o, "ranks");
            cJSON_AddItemToArray(list, o);
        } else {
            printf("MIXED GENERATIONS in job %s:", first->job[0] ? SAFE(first->job) : SAFE(first->program));
        }
        for (size_t i = 0; i < job->count; i++) {
            const struct kfit_trace_header *h = kfit_trace_header(ts->item[job->item[i]].t);
            if (o) {
                cJSON *r = cJSON_CreateObject();
                cJSON_AddNumberToObject(r, "rank", h->rank);
                cJSON_AddNumberToObject(r, "pid", h->pid);
                cJSON_AddStringToObject(r, "device", cli_device(h));
                cJSON_AddNumberToObject(r, "generation", (double)h->generation);
                cJSON_AddItemToArray(ranks, r);
            } else {
                printf("%s rank %d (pid %d%s%s) has ", i ? "," : "", h->rank, h->pid,
                       h->device[0] ? ", " : "", SAFE(h->device));
                printf(h->generation ? "generation %llu" : "none", (unsigned long long)h->generation);
            }
        }
        if (!o)
            printf("; restart the job, with KFIT_GENERATION set for all ranks\n");
    }
    cli_jobs_free(&jobs);
}

int cli_status(int argc, char **argv)
{
    const char *cache = NULL, *state = NULL;
    bool json = false, live = false;
    struct cli_list where = {0};
    struct cli_traces ts = {0};
    struct kfit_error err = {0};
    char dir[4096], path[4200], state_buf[4096], *off = NULL;
    size_t bytes;
    const struct cli_option options[] = {
        CLI_OPTION_CACHE(&cache),
        {"live", 'l', CLI_FLAG, &live, NULL, "only processes that still run"},
        CLI_OPTION_STATE(&state),
        CLI_OPTION_JSON(&json),
        {0},
    };
    cli_parse(argc, argv,
              &(struct cli_usage){
                  .args = "[TRACE|DIR...]",
                  .doc = "Shows each recorded process: what kfit does there and why, hits, misses by "
                         "reason. With no directory, the usual places are searched.",
                  .options = options,
                  .max = CLI_ANY},
              &where);
    int rc = cli_traces_read(&ts, &where) && !ts.unreadable ? CLI_OK : CLI_FAILED;
    cli_cache_dir(cache, dir, sizeof dir);
    snprintf(path, sizeof path, "%s/off", dir);
    bool is_off = !access(path, F_OK);
    if (is_off && cli_read_file(path, 512, &off, &bytes, &err) == KFIT_OK)
        off[strcspn(off, "\n")] = '\0';
    cJSON *root = json ? cJSON_CreateObject() : NULL, *list = json ? cJSON_CreateArray() : NULL;
    if (is_off && !json)
        printf("%s: %s\n", cli_str(dir), off ? cli_str(off) : "off");
    cJSON *held = json ? cJSON_CreateArray() : NULL;
    if (!cli_held_show(cli_state_dir(state, state_buf, sizeof state_buf), NULL, held))
        rc = CLI_FAILED;
    uint64_t published = 0;
    kfit_generation_current(dir, &published, (uint8_t[32]){0}, NULL);
    if (published && !json)
        printf("%s: generation %llu is current\n", cli_str(dir), (unsigned long long)published);
    for (size_t i = 0; i < ts.count; i++) {
        uint64_t count[KFIT_TRACE_REASONS];
        if ((live && !ts.item[i].alive) || !kfit_trace_header(ts.item[i].t)->pid)
            continue;
        cli_trace_totals(ts.item[i].t, count);
        if (json)
            cJSON_AddItemToArray(list, describe(&ts.item[i], count));
        else
            print(&ts.item[i], count);
    }
    if (json) {
        cJSON_AddBoolToObject(root, "off", is_off);
        cJSON_AddItemToObject(root, "held", held);
        cJSON_AddStringToObject(root, "off_text", off ? cli_str(off) : "");
        if (published)
            cJSON_AddNumberToObject(root, "current_generation", (double)published);
        else
            cJSON_AddNullToObject(root, "current_generation");
        cJSON_AddItemToObject(root, "processes", list);
        mixed_jobs(&ts, cJSON_AddArrayToObject(root, "mixed_generations"));
        cli_json_print(root);
    } else {
        mixed_jobs(&ts, NULL);
    }
    if (!json && !ts.count) {
        cli_say("no traces; processes show up here when they run under `kfit run`");
    }
    free(off);
    cli_traces_free(&ts);
    return rc;
}
