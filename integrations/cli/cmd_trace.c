/* kfit trace ls, merge, export; kernels and graphs are in cmd_trace_live.c. */
#include <stdlib.h>
#include <string.h>

#include "graphs.h"
#include "processes.h"
#include "trace_live.h"

static const char where_doc[] = "TRACE is a file or a directory; with none, the usual places are searched.";

static uint64_t calls_of(const uint64_t count[KFIT_TRACE_REASONS])
{
    uint64_t n = 0;
    for (unsigned i = 0; i < KFIT_TRACE_REASONS; i++)
        n += count[i];
    return n;
}

static cJSON *describe(const struct cli_trace *t)
{
    const struct kfit_trace_header *h = kfit_trace_header(t->t);
    uint64_t count[KFIT_TRACE_REASONS];
    cli_trace_totals(t->t, count);
    cJSON *o = cJSON_CreateObject();
    cJSON_AddStringToObject(o, "path", cli_str(t->path));
    cJSON_AddNumberToObject(o, "pid", h->pid);
    cJSON_AddBoolToObject(o, "alive", t->alive);
    cJSON_AddStringToObject(o, "program", SAFE(h->program));
    cJSON_AddStringToObject(o, "label", SAFE(h->label));
    cJSON_AddNumberToObject(o, "started_unix", (double)(h->start_unix_ns / 1000000000));
    cJSON_AddNumberToObject(o, "keys", (double)kfit_trace_count(t->t));
    cJSON_AddNumberToObject(o, "skipped", (double)kfit_trace_skipped(t->t));
    cJSON_AddNumberToObject(o, "calls", (double)calls_of(count));
    cJSON_AddNumberToObject(o, "hits", (double)count[KFIT_REASON_NONE]);
    cJSON_AddStringToObject(o, "environment", SAFE(h->env.hard));
    cJSON_AddStringToObject(o, "device", cli_device(h));
    const struct kfit_trace_launches l = kfit_trace_launches(t->t);
    const struct cli_graph_sums g = cli_graphs_sum(t);
    cJSON_AddItemToObject(o, "launches", cli_launches_json(&l));
    if (cli_known_ops(&l) >= 0)
        cJSON_AddNumberToObject(o, "share_known_ops", cli_known_ops(&l));
    else
        cJSON_AddNullToObject(o, "share_known_ops");
    cJSON_AddNumberToObject(o, "kernels", (double)kfit_trace_kernel_count(t->t));
    cJSON_AddItemToObject(o, "graphs", cli_graphs_json(&g));
    cJSON_AddNumberToObject(o, "live_skipped", (double)kfit_trace_live_skipped(t->t));
    return o;
}

/* A GPU's trace: what of it kfit knows, and what was captured. */
static void print_live(const struct cli_trace *t)
{
    const struct kfit_trace_launches l = kfit_trace_launches(t->t);
    const struct cli_graph_sums g = cli_graphs_sum(t);
    if (cli_known_ops(&l) >= 0)
        printf(
            "    launches: %.1f %% known ops (%llu by kfit, %llu in library calls), %.1f %% others (%llu, of "
            "%zu kernels seen)\n",
            100 * cli_known_ops(&l), (unsigned long long)l.ours, (unsigned long long)l.in_op,
            100 - 100 * cli_known_ops(&l), (unsigned long long)l.other, kfit_trace_kernel_count(t->t));
    if (g.made)
        printf("    graphs: %llu captured, %llu live, %llu of them with kernels of kfit's; %llu replays\n",
               (unsigned long long)g.made, (unsigned long long)g.live, (unsigned long long)g.ours,
               (unsigned long long)g.replays);
    if (g.no_room || g.calls_lost)
        printf("    no room for %llu graphs and %llu calls in graphs: their replays are not counted\n",
               (unsigned long long)g.no_room, (unsigned long long)g.calls_lost);
}

static int ls(int argc, char **argv)
{
    bool json = false;
    struct cli_list where = {0};
    struct cli_traces ts = {0};
    const struct cli_option options[] = {CLI_OPTION_JSON(&json), {0}};
    cli_parse(argc, argv,
              &(struct cli_usage){.args = "[TRACE...]", .doc = where_doc, .options = options, .max = CLI_ANY},
              &where);
    int rc = cli_traces_read(&ts, &where) ? CLI_OK : CLI_FAILED;
    cJSON *list = json ? cJSON_CreateArray() : NULL;
    if (!json)
        printf("%-9s %-6s %-6s %6s %12s %12s  %-19s  %s\n", "PID", "STATE", "DEVICE", "KEYS", "CALLS",
               "BY KFIT", "STARTED", "PROGRAM");
    for (size_t i = 0; i < ts.count; i++) {
        const struct kfit_trace_header *h = kfit_trace_header(ts.item[i].t);
        uint64_t count[KFIT_TRACE_REASONS];
        cli_trace_totals(ts.item[i].t, count);
        if (json) {
            cJSON_AddItemToArray(list, describe(&ts.item[i]));
            continue;
        }
        printf("%-9d %-6s %-6s %6zu %12llu %12llu  %-19s  %s%s%s%s\n    %s\n", h->pid,
               ts.item[i].alive ? "live"
               : h->pid         ? "ended"
                                : "merged",
               cli_device(h), kfit_trace_count(ts.item[i].t), (unsigned long long)calls_of(count),
               (unsigned long long)count[KFIT_REASON_NONE], cli_when(h->start_unix_ns / 1000000000),
               SAFE(h->program), h->label[0] ? " (" : "", SAFE(h->label), h->label[0] ? ")" : "",
               cli_str(ts.item[i].path));
        print_live(&ts.item[i]);
    }
    if (json)
        cli_json_print(list);
    else if (!ts.count)
        cli_say("no traces; make some with `kfit run -- COMMAND`");
    if (ts.unreadable)
        rc = CLI_FAILED;
    cli_traces_free(&ts);
    return rc;
}

/* One trace out of those that args name. */
static int merge_into(const struct cli_list *args, bool force, struct kfit_trace **out)
{
    struct cli_traces ts = {0};
    struct kfit_error err = {0};
    int rc = CLI_FAILED;
    if (!cli_traces_read(&ts, args) || ts.unreadable)
        goto out; /* each was named */
    if (!ts.count) {
        cli_fail("no traces there; make some with `kfit run -- COMMAND`");
        goto out;
    }
    const struct kfit_trace **in = cli_alloc(NULL, ts.count * sizeof *in);
    for (size_t i = 0; i < ts.count; i++)
        in[i] = ts.item[i].t;
    enum kfit_status s = kfit_trace_merge(in, ts.count, force, out, &err);
    free(in);
    if (s == KFIT_OK)
        rc = CLI_OK;
    else if (s == KFIT_E_ENV)
        cli_fail("recorded in different environments: %s; merge them apart, or with --force", SAFE(err.text));
    else
        cli_failed("merge", s, &err);
out:
    cli_traces_free(&ts);
    return rc;
}

static int merge(int argc, char **argv)
{
    const char *path = NULL;
    bool force = false;
    struct cli_list args = {0};
    struct kfit_trace *t;
    struct kfit_error err = {0};
    const struct cli_option options[] = {
        {"output", 'o', CLI_TEXT, &path, "FILE", "the merged trace; NAME.kft (required)"},
        {"force", 'f', CLI_FLAG, &force, NULL, "merge also what was recorded in different environments"},
        {0},
    };
    cli_parse(argc, argv,
              &(struct cli_usage){.args = "TRACE...",
                                  .doc = "Adds up traces by key.",
                                  .options = options,
                                  .min = 1,
                                  .max = CLI_ANY},
              &args);
    if (!path)
        return cli_usage_error(argv, "say where to write: --output FILE");
    if (merge_into(&args, force, &t))
        return CLI_FAILED;
    enum kfit_status s = kfit_trace_write(t, path, &err);
    if (s == KFIT_OK)
        cli_say("%zu keys written to %s", kfit_trace_count(t), cli_str(path));
    kfit_trace_destroy(t);
    return s == KFIT_OK ? CLI_OK : cli_failed(path, s, &err);
}

static int export(int argc, char **argv)
{
    bool force = false;
    struct cli_list args = {0};
    struct kfit_trace *t;
    const struct cli_option options[] = {
        {"force", 'f', CLI_FLAG, &force, NULL, "also what was recorded in different environments"},
        {0},
    };
    cli_parse(argc, argv,
              &(struct cli_usage){.args = "TRACE...",
                                  .doc = "Prints traces, added up by key, as JSON.",
                                  .options = options,
                                  .min = 1,
                                  .max = CLI_ANY},
              &args);
    if (merge_into(&args, force, &t))
        return CLI_FAILED;
    const struct kfit_trace_header *h = kfit_trace_header(t);
    cJSON *o = cJSON_CreateObject(), *generics = cJSON_CreateArray(), *keys = cJSON_CreateArray();
    cJSON_AddNumberToObject(o, "version", 1);
    cJSON_AddStringToObject(o, "environment", SAFE(h->env.hard));
    cJSON_AddStringToObject(o, "environment_soft", SAFE(h->env.soft));
    cJSON_AddItemToObject(o, "unkeyed", cli_json_reasons(h->unkeyed));
    cJSON_AddItemToObject(o, "generics", generics);
    cJSON_AddItemToObject(o, "keys", keys);
    for (uint32_t i = 0; i < h->generic_count && i < KFIT_TRACE_GENERICS; i++) {
        cJSON *g = cJSON_CreateObject();
        cJSON_AddStringToObject(g, "path", SAFE(h->generics[i].path));
        cJSON_AddStringToObject(g, "naming", SAFE(h->generics[i].naming));
        cJSON_AddStringToObject(g, "config", SAFE(h->generics[i].config));
        cJSON_AddNumberToObject(g, "threads", h->generics[i].threads);
        cJSON_AddNumberToObject(g, "int_bits", h->generics[i].int_bits);
        cJSON_AddItemToArray(generics, g);
    }
    for (size_t i = 0; i < kfit_trace_count(t); i++) {
        const struct kfit_trace_slot *slot = kfit_trace_at(t, i);
        cJSON *k = cJSON_CreateObject();
        cJSON_AddStringToObject(k, "key", cli_key(&slot->key));
        cJSON_AddNumberToObject(k, "calls", (double)kfit_slot_calls(slot));
        cJSON_AddItemToObject(k, "count", cli_json_reasons(slot->count));
        cJSON_AddNumberToObject(k, "generic", slot->generic);
        cJSON_AddNumberToObject(k, "last_seen_unix", slot->last_seen_s);
        cJSON_AddItemToArray(keys, k);
    }
    const struct kfit_trace_kernel **sorted = cli_kernels_sorted(t);
    const struct kfit_trace_launches l = kfit_trace_launches(t);
    cJSON_AddItemToObject(o, "launches", cli_launches_json(&l));
    cJSON *kernels = cJSON_AddArrayToObject(o, "kernels");
    for (size_t i = 0; i < kfit_trace_kernel_count(t); i++)
        cJSON_AddItemToArray(kernels, cli_kernel_json(sorted[i]));
    free(sorted);
    kfit_trace_destroy(t);
    return cli_json_print(o);
}

const struct cli_command cli_trace_commands[] = {
    {"ls", ls, NULL, "list traces"},
    {"kernels", cli_trace_kernels, NULL, "list the kernels that ran on GPUs"},
    {"graphs", cli_trace_graphs, NULL, "list what was captured in graphs"},
    {"merge", merge, NULL, "add up several into one file"},
    {"export", export, NULL, "print as JSON"},
    {0},
};
