/* Totals as Prometheus' text format: one table of families, each with the series it has per deployment. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "totals.h"
#include "trace_live.h"

/* As the format asks: backslash, quote and newline. */
static void value(FILE *to, const char *text)
{
    for (const char *p = text; *p; p++) {
        if (*p == '\\' || *p == '"')
            putc('\\', to);
        if (*p == '\n')
            fputs("\\n", to);
        else
            putc(*p, to);
    }
}

static void series(FILE *to, const char *name, const struct kfit_metrics_deployment *d, const char *more)
{
    fprintf(to, "%s{label=\"", name);
    value(to, d->label);
    fputs("\",program=\"", to);
    value(to, d->program);
    fprintf(to, "\"%s%s} ", more ? "," : "", more ? more : "");
}

typedef struct kfit_metrics_deployment deployment;

/* ---- one number per deployment ---- */

static uint64_t calls(const deployment *d)
{
    uint64_t n = 0;
    for (unsigned r = 0; r < KFIT_TRACE_REASONS; r++)
        n = n > UINT64_MAX - d->count[r] ? UINT64_MAX : n + d->count[r];
    return n;
}

static uint64_t hits(const deployment *d)
{
    return d->count[KFIT_REASON_NONE];
}

static uint64_t started(const deployment *d)
{
    return d->started;
}

static uint64_t kernels(const deployment *d)
{
    return d->live.loaded.winners;
}

static uint64_t stale(const deployment *d)
{
    return d->live.loaded.stale;
}

static uint64_t kept(const deployment *d)
{
    return d->live.loaded.negatives;
}

static uint64_t banned(const deployment *d)
{
    return d->live.loaded.banned;
}

static uint64_t unusable(const deployment *d)
{
    return d->live.loaded.unusable;
}

static uint64_t recorded(const deployment *d)
{
    return d->live.keys;
}

static uint64_t mixed(const deployment *d)
{
    return d->live.mixed_jobs;
}

/* ---- several series per deployment ---- */

static void misses(FILE *to, const char *name, const deployment *d)
{
    char more[64];
    for (unsigned r = 1; r < KFIT_REASON_COUNT;
         r++) { /* also those that never were, so that a rate has a start */
        snprintf(more, sizeof more, "reason=\"%s\"", kfit_reason_name(r));
        series(to, name, d, more);
        fprintf(to, "%" PRIu64 "\n", d->count[r]);
    }
}

static void ends(FILE *to, const char *name, const deployment *d)
{
    series(to, name, d, "end=\"clean\"");
    fprintf(to, "%" PRIu64 "\n", d->ended_clean);
    series(to, name, d, "end=\"unknown\"");
    fprintf(to, "%" PRIu64 "\n", d->ended_unknown);
}

static void processes(FILE *to, const char *name, const deployment *d)
{
    char more[96];
    for (unsigned r = 0; r < KFIT_REASON_COUNT; r++) {
        if (r && !d->live.processes[r])
            continue;
        snprintf(more, sizeof more, "state=\"%s\",reason=\"%s\"", r ? "original" : "dispatching",
                 kfit_reason_name(r));
        series(to, name, d, more);
        fprintf(to, "%" PRIu64 "\n", d->live.processes[r]);
    }
}

static void generations(FILE *to, const char *name, const deployment *d)
{
    if (!d->live.any)
        return;
    series(to, name, d, "of=\"oldest\"");
    fprintf(to, "%" PRIu64 "\n", d->live.oldest);
    series(to, name, d, "of=\"newest\"");
    fprintf(to, "%" PRIu64 "\n", d->live.newest);
}

static void replaced(FILE *to, const char *name, const deployment *d)
{
    if (!d->live.calls)
        return;
    series(to, name, d, NULL);
    fprintf(to, "%.6g\n", (double)d->live.hits / (double)d->live.calls);
}

static void graphs(FILE *to, const char *name, const deployment *d)
{
    series(to, name, d, "holds=\"kfit\"");
    fprintf(to, "%" PRIu64 "\n", d->live.graphs_ours);
    series(to, name, d, "holds=\"original\"");
    fprintf(to, "%" PRIu64 "\n", d->live.graphs - d->live.graphs_ours);
}

static void known(FILE *to, const char *name, const deployment *d)
{
    const double share = cli_known_ops(&d->live.launches);
    if (share < 0)
        return;
    series(to, name, d, NULL);
    fprintf(to, "%.6g\n", share);
}

static const struct {
    const char *name, *type, *help;
    uint64_t (*one)(const deployment *d); /* or */
    void (*many)(FILE *to, const char *name, const deployment *d);
} families[] = {
    {"kfit_calls_total", "counter", "Calls of hooked functions, ended processes included.", calls, NULL},
    {"kfit_hits_total", "counter", "Calls that ran a kfit kernel.", hits, NULL},
    {"kfit_misses_total", "counter", "Calls that went to the original, by reason.", NULL, misses},
    {"kfit_processes_started_total", "counter", "Processes that began a trace.", started, NULL},
    {"kfit_processes_ended_total", "counter",
     "Processes that ended; clean if they noted it, unknown if not (killed, or a program that does not say).",
     NULL, ends},
    {"kfit_processes", "gauge", "Live processes by state and, where calls go to the original, why.", NULL,
     processes},
    {"kfit_replaced_ratio", "gauge", "Share of the calls of live processes that ran a kfit kernel.", NULL,
     replaced},
    {"kfit_known_ops_ratio", "gauge",
     "Share of the launches on GPUs that are kfit's or come from library calls that it knows.", NULL, known},
    {"kfit_graphs", "gauge",
     "Captured graphs of live processes; those that hold kernels of kfit's replay them until captured again.",
     NULL, graphs},
    {"kfit_generation", "gauge", "Oldest and newest generation of live processes; 0: one that has none.",
     NULL, generations},
    {"kfit_kernels_loaded", "gauge", "Kernels a live process has loaded; the most any has.", kernels, NULL},
    {"kfit_kernels_stale", "gauge", "Kernels loaded that were tuned with another compiler, BLAS or driver.",
     stale, NULL},
    {"kfit_kernels_unusable", "gauge", "Records of the generation that could not be loaded.", unusable, NULL},
    {"kfit_keys_kept", "gauge", "Keys of the generation whose original was kept.", kept, NULL},
    {"kfit_keys_banned", "gauge", "Keys that are banned.", banned, NULL},
    {"kfit_keys_recorded", "gauge", "Keys in the trace of a live process; the most any has.", recorded, NULL},
    {"kfit_jobs_mixed", "gauge", "Live jobs whose ranks hold different generations.", mixed, NULL},
};

static void head(FILE *to, const char *name, const char *type, const char *help)
{
    fprintf(to, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static int by_calls(const void *a, const void *b)
{
    const struct kfit_metrics_key *const *x = a, *const *y = b;
    uint64_t n = (*x)->sum.hits + (*x)->sum.misses, m = (*y)->sum.hits + (*y)->sum.misses;
    return n != m ? (n < m ? 1 : -1) : (*x > *y) - (*x < *y);
}

static void print_keys(const struct kfit_metrics *m, FILE *to)
{
    static const char name[] = "kfit_key_calls_total";
    const struct kfit_metrics_key **sorted = cli_alloc(NULL, m->keys * sizeof *sorted);
    for (size_t i = 0; i < m->keys; i++)
        sorted[i] = &m->key[i];
    qsort(sorted, m->keys, sizeof *sorted, by_calls);
    head(to, name, "counter", "Calls of the keys called most, by outcome.");
    for (size_t i = 0; i < m->keys && i < m->keys_wanted; i++) {
        const struct kfit_metrics_counts *c = &sorted[i]->sum;
        for (unsigned miss = 0; miss < 2; miss++) {
            fprintf(to, "%s{key=\"", name);
            value(to, cli_key(&sorted[i]->key));
            fprintf(to, "\",outcome=\"%s\"} %" PRIu64 "\n", miss ? "miss" : "hit",
                    miss ? c->misses : c->hits);
        }
    }
    free(sorted);
}

void kfit_metrics_print(const struct kfit_metrics *m, const struct kfit_metrics_place *place, FILE *to)
{
    for (size_t f = 0; f < sizeof families / sizeof *families; f++) {
        head(to, families[f].name, families[f].type, families[f].help);
        for (size_t i = 0; i < m->deployments; i++) {
            const deployment *d = &m->deployment[i];
            if (families[f].many) {
                families[f].many(to, families[f].name, d);
                continue;
            }
            series(to, families[f].name, d, NULL);
            fprintf(to, "%" PRIu64 "\n", families[f].one(d));
        }
    }
    if (m->keys_wanted)
        print_keys(m, to);
    head(to, "kfit_published_generation", "gauge", "Generation that is current in the cache; 0: none.");
    fprintf(to, "kfit_published_generation %" PRIu64 "\n", place->published);
    head(to, "kfit_switched_off", "gauge", "Whether kfit off holds for new processes with this cache.");
    fprintf(to, "kfit_switched_off %d\n", place->off);
    head(to, "kfit_traces", "gauge", "Traces found at the last scan.");
    fprintf(to, "kfit_traces{state=\"live\"} %zu\n", m->traces_live);
    fprintf(to, "kfit_traces{state=\"ended\"} %zu\n", m->traces_ended);
    fprintf(to, "kfit_traces{state=\"unreadable\"} %zu\n", m->traces_unreadable);
    head(to, "kfit_scan_duration_seconds", "gauge", "Time the last scan took.");
    fprintf(to, "kfit_scan_duration_seconds %.6f\n", m->scan_s);
    head(to, "kfit_build_info", "gauge", "Version of the kfit that wrote this.");
    fputs("kfit_build_info{version=\"" KFIT_VERSION "\"} 1\n", to);
}
