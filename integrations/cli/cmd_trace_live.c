/* kfit trace kernels, graphs: what else runs on the GPUs, and what was captured. */
#include <stdlib.h>
#include <string.h>

#include "graphs.h"
#include "processes.h"
#include "trace_live.h"

/* ---- kernels ---- */

enum { KERNELS_PRINTED = 20 };

static uint64_t launches(const struct kfit_trace_kernel *k)
{
    uint64_t in_op = k->launches[KFIT_LAUNCHED_IN_OP], n = k->launches[KFIT_LAUNCHED_OTHER];
    return n > UINT64_MAX - in_op ? UINT64_MAX : n + in_op;
}

static int by_launches(const void *a, const void *b)
{
    const struct kfit_trace_kernel *x = *(const struct kfit_trace_kernel *const *)a;
    const struct kfit_trace_kernel *y = *(const struct kfit_trace_kernel *const *)b;
    uint64_t n = launches(x), m = launches(y);
    return n != m ? (n < m ? 1 : -1) : (x->hash > y->hash) - (x->hash < y->hash);
}

const struct kfit_trace_kernel **cli_kernels_sorted(const struct kfit_trace *t)
{
    size_t n = kfit_trace_kernel_count(t);
    const struct kfit_trace_kernel **sorted = cli_alloc(NULL, (n + 1) * sizeof *sorted);
    for (size_t i = 0; i < n; i++)
        sorted[i] = kfit_trace_kernel_at(t, i);
    qsort(sorted, n, sizeof *sorted, by_launches);
    return sorted;
}

cJSON *cli_kernel_json(const struct kfit_trace_kernel *k)
{
    char image[17];
    cJSON *o = cJSON_CreateObject();
    snprintf(image, sizeof image, "%016llx", (unsigned long long)k->image_hash);
    cJSON_AddStringToObject(o, "name", SAFE(k->name));
    cJSON_AddStringToObject(o, "image", k->image_hash ? image : "");
    cJSON_AddNumberToObject(o, "launches", (double)launches(k));
    cJSON_AddNumberToObject(o, "in_known_ops", (double)k->launches[KFIT_LAUNCHED_IN_OP]);
    return o;
}

double cli_known_ops(const struct kfit_trace_launches *l)
{
    double known = (double)l->ours + (double)l->in_op, all = known + (double)l->other;
    return all > 0 ? known / all : -1;
}

cJSON *cli_launches_json(const struct kfit_trace_launches *l)
{
    cJSON *o = cJSON_CreateObject();
    cJSON_AddNumberToObject(o, "by_kfit", (double)l->ours);
    cJSON_AddNumberToObject(o, "in_known_ops", (double)l->in_op);
    cJSON_AddNumberToObject(o, "other", (double)l->other);
    return o;
}

static int kernels_json(const struct cli_traces *ts, uint64_t top)
{
    cJSON *root = cJSON_CreateArray();
    for (size_t g = 0; g < ts->groups; g++) {
        const struct kfit_trace *t = ts->group[g];
        const struct kfit_trace_launches l = kfit_trace_launches(t);
        const struct kfit_trace_kernel **sorted = cli_kernels_sorted(t);
        cJSON *o = cJSON_CreateObject();
        cJSON_AddStringToObject(o, "environment", SAFE(kfit_trace_header(t)->env.hard));
        cJSON_AddItemToObject(o, "launches", cli_launches_json(&l));
        cJSON *list = cJSON_AddArrayToObject(o, "kernels");
        for (size_t i = 0; i < kfit_trace_kernel_count(t) && i < top; i++)
            cJSON_AddItemToArray(list, cli_kernel_json(sorted[i]));
        free(sorted);
        cJSON_AddItemToArray(root, o);
    }
    return cli_json_print(root);
}

static void print_kernels(const struct kfit_trace *t, uint64_t top)
{
    const struct kfit_trace_launches l = kfit_trace_launches(t);
    const double all = (double)l.ours + (double)l.in_op + (double)l.other;
    const struct kfit_trace_kernel **sorted = cli_kernels_sorted(t);
    size_t n = kfit_trace_kernel_count(t);
    printf("%s\n%.1f %% of %.0f launches are known ops: %llu by kfit, %llu in library calls; %llu others\n",
           SAFE(kfit_trace_header(t)->env.hard), 100 * cli_known_ops(&l), all, (unsigned long long)l.ours,
           (unsigned long long)l.in_op, (unsigned long long)l.other);
    printf("%12s %6s %12s %-16s  %s\n", "LAUNCHES", "SHARE", "KNOWN OPS", "IMAGE", "KERNEL");
    for (size_t i = 0; i < n && i < top; i++) {
        const struct kfit_trace_kernel *k = sorted[i];
        char image[17] = "-";
        if (k->image_hash)
            snprintf(image, sizeof image, "%016llx", (unsigned long long)k->image_hash);
        printf("%12llu %5.1f%% %12llu %-16s  %s\n", (unsigned long long)launches(k),
               100 * (double)launches(k) / all, (unsigned long long)k->launches[KFIT_LAUNCHED_IN_OP], image,
               SAFE(k->name));
    }
    if (n > top)
        printf("%12s and %zu more\n", "", n - (size_t)top);
    free(sorted);
}

int cli_trace_kernels(int argc, char **argv)
{
    bool json = false, all = false, any = false;
    uint64_t top = KERNELS_PRINTED;
    struct cli_list where = {0};
    struct cli_traces ts = {0};
    const struct cli_option options[] = {
        {"top", 'n', CLI_COUNT, &top, "N", "only the N launched most (default 20)"},
        {"all", 'a', CLI_FLAG, &all, NULL, "all of them"},
        CLI_OPTION_JSON(&json),
        {0},
    };
    cli_parse(argc, argv,
              &(struct cli_usage){
                  .args = "[TRACE...]",
                  .doc =
                      "Lists the kernels that programs launched on GPUs, launched most first, traces of the "
                      "same environment added up. A launch is a known op if it is kfit's own, or comes from "
                      "within a library call that kfit knows.",
                  .options = options,
                  .max = CLI_ANY},
              &where);
    int rc = cli_traces_read(&ts, &where) && !ts.unreadable ? CLI_OK : CLI_FAILED;
    if (!cli_traces_merge(&ts))
        rc = CLI_FAILED;
    top = all ? UINT64_MAX : top;
    if (json)
        rc |= kernels_json(&ts, top);
    for (size_t g = 0; g < ts.groups && !json; g++) {
        if (kfit_trace_kernel_count(ts.group[g])) {
            if (any)
                putchar('\n');
            print_kernels(ts.group[g], top);
            any = true;
        }
    }
    if (!json && !any)
        cli_say("no kernels: no trace there is of a GPU");
    cli_traces_free(&ts);
    return rc;
}

/* ---- graphs ---- */

/* What one item is, and what became of it. */
struct meaning {
    const char *what, *name; /* "key", "kernel", "unknown" */
    const char *decision;
    bool ours;
};

static struct meaning meaning_of(const struct kfit_trace *t, const struct kfit_trace_item *item)
{
    if (item->what == KFIT_ITEM_UNKNOWN)
        return (struct meaning){"unknown", "", "-", false};
    if (item->what & KFIT_ITEM_KERNEL) {
        const struct kfit_trace_kernel *k = kfit_trace_kernel_at(t, item->what & KFIT_ITEM_INDEX);
        return (struct meaning){"kernel", SAFE(k->name),
                                item->decision == KFIT_LAUNCHED_IN_OP ? "in_known_op" : "other", false};
    }
    const bool ours = kfit_item_is_ours(item);
    return (struct meaning){"key", cli_key(&kfit_trace_at(t, item->what)->key),
                            ours                                 ? "kfit"
                            : item->decision < KFIT_REASON_COUNT ? kfit_reason_name(item->decision)
                                                                 : "-",
                            ours};
}

static const char *state_name(const struct cli_trace *t, const struct kfit_trace_graph *g)
{
    return g->state == KFIT_GRAPH_GONE ? "gone" : t->alive ? "live" : "ended";
}

static cJSON *graph_json(const struct cli_trace *t, const struct kfit_trace_graph *g)
{
    const struct kfit_trace_item *item = kfit_trace_graph_items(t->t, g);
    cJSON *o = cJSON_CreateObject(), *list;
    cJSON_AddNumberToObject(o, "graph", g->number);
    cJSON_AddStringToObject(o, "state", state_name(t, g));
    cJSON_AddNumberToObject(o, "launches", (double)g->launches);
    cJSON_AddNumberToObject(o, "made_unix", (double)(g->made_unix_ns / 1000000000));
    cJSON_AddNumberToObject(o, "by_kfit", g->ours);
    cJSON_AddNumberToObject(o, "lost", g->lost);
    list = cJSON_AddArrayToObject(o, "items");
    for (uint32_t i = 0; i < g->count; i++) {
        const struct meaning m = meaning_of(t->t, &item[i]);
        cJSON *one = cJSON_CreateObject();
        cJSON_AddStringToObject(one, m.what, m.name);
        cJSON_AddStringToObject(one, "decision", m.decision);
        cJSON_AddNumberToObject(one, "times", item[i].times);
        cJSON_AddItemToArray(list, one);
    }
    return o;
}

static void print_graph(const struct cli_trace *t, const struct kfit_trace_graph *g, bool items)
{
    const struct kfit_trace_item *item = kfit_trace_graph_items(t->t, g);
    uint64_t calls = 0;
    for (uint32_t i = 0; i < g->count; i++)
        calls += item[i].times;
    printf("%6u %-5s %10llu %8llu %8u %8u  %s\n", g->number, state_name(t, g),
           (unsigned long long)g->launches, (unsigned long long)calls, g->ours, g->lost,
           cli_when(g->made_unix_ns / 1000000000));
    for (uint32_t i = 0; i < g->count && items; i++) {
        const struct meaning m = meaning_of(t->t, &item[i]);
        printf("%12ux %-16s %s%s\n", item[i].times, m.decision, m.name[0] ? m.name : m.what,
               m.ours ? "  <- a kernel of kfit's" : "");
    }
}

/* Graphs of one trace: all, or the one asked for. Returns how many. */
static size_t show_graphs(const struct cli_trace *t, const char *only, bool items, cJSON *root)
{
    const struct kfit_trace_header *h = kfit_trace_header(t->t);
    const struct cli_graph_sums sums = cli_graphs_sum(t);
    cJSON *list = NULL;
    size_t shown = 0;
    char number[16];
    for (size_t i = 0; i < kfit_trace_graph_count(t->t); i++) {
        const struct kfit_trace_graph *g = kfit_trace_graph_at(t->t, i);
        snprintf(number, sizeof number, "%u", g->number);
        if (only && strcmp(only, number))
            continue;
        if (!shown++ && root) {
            cJSON *o = cJSON_CreateObject();
            cJSON_AddNumberToObject(o, "pid", h->pid);
            cJSON_AddStringToObject(o, "program", SAFE(h->program));
            cJSON_AddStringToObject(o, "device", cli_device(h));
            cJSON_AddStringToObject(o, "path", cli_str(t->path));
            cJSON_AddItemToObject(o, "sums", cli_graphs_json(&sums));
            list = cJSON_AddArrayToObject(o, "graphs");
            cJSON_AddItemToArray(root, o);
        } else if (shown == 1) {
            printf("process %d %s on %s\n%6s %-5s %10s %8s %8s %8s  %s\n", h->pid, SAFE(h->program),
                   cli_device(h), "GRAPH", "STATE", "LAUNCHES", "CALLS", "BY KFIT", "LOST", "MADE");
        }
        if (list)
            cJSON_AddItemToArray(list, graph_json(t, g));
        else
            print_graph(t, g, items);
    }
    if (shown && !root && sums.no_room)
        printf("       %llu more found no room in the trace\n", (unsigned long long)sums.no_room);
    return shown;
}

int cli_trace_graphs(int argc, char **argv)
{
    const char *only = NULL;
    bool json = false, items = false;
    size_t shown = 0;
    struct cli_list where = {0};
    struct cli_traces ts = {0};
    const struct cli_option options[] = {
        {"items", 'i', CLI_FLAG, &items, NULL, "with what each replays, in order"},
        {"graph", 'g', CLI_TEXT, &only, "N", "only the graph of this number, with what it replays"},
        CLI_OPTION_JSON(&json),
        {0},
    };
    cli_parse(argc, argv,
              &(struct cli_usage){
                  .args = "[TRACE...]",
                  .doc =
                      "Lists the graphs that programs captured: launches, calls in each and how many of them "
                      "are kernels of kfit's. What a graph holds, it replays until it is captured again, "
                      "whatever is switched off since.",
                  .options = options,
                  .max = CLI_ANY},
              &where);
    int rc = cli_traces_read(&ts, &where) && !ts.unreadable ? CLI_OK : CLI_FAILED;
    cJSON *root = json ? cJSON_CreateArray() : NULL;
    for (size_t i = 0; i < ts.count; i++)
        shown += show_graphs(&ts.item[i], only, items || only, root);
    if (json)
        cli_json_print(root);
    else if (!shown)
        cli_say(only ? "no trace there has a graph of this number" : "no trace there has graphs");
    if (only && !shown)
        rc = CLI_FAILED;
    cli_traces_free(&ts);
    return rc;
}
