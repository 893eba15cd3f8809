/* kfit top: what live processes call right now, and what becomes of it. */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "graphs.h"
#include "rates.h"
#include "screen.h"

enum { KEYS_MAX = 100, KEYS_PRINTED = 20, LINE_BYTES = 2048 };

/* ---- a frame: lines cut to the screen, or whole ones ---- */

struct frame {
    FILE *to;
    unsigned rows, cols; /* 0: no limit */
    unsigned used;
};

enum style { PLAIN, BOLD, HEAD, ALARM };

/* All that is printed has passed cli_safe: a byte is a column. What does not fit is left out. */
__attribute__((format(printf, 3, 4))) static void line(struct frame *f, enum style style, const char *fmt,
                                                       ...)
{
    static const char *const begin[] = {"", "\x1b[1m", "\x1b[7m", "\x1b[1;31m"};
    char text[LINE_BYTES];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (!f->rows) {
        fprintf(f->to, "%s\n", text);
        return;
    }
    if (f->used == f->rows)
        return;
    fprintf(f->to, "%s%s%.*s%s\x1b[K", f->used++ ? "\r\n" : "", begin[style], (int)f->cols, text,
            style ? "\x1b[0m" : "");
}

static unsigned left(const struct frame *f)
{
    return f->rows ? f->rows - f->used : 1000000;
}

/* "12345", "0.52" */
static const char *number(double v, char buf[24])
{
    snprintf(buf, 24, v < 9.995 && v > 0 ? "%.2f" : "%.0f", v);
    return buf;
}

static const char *percent(struct cli_rate r, char buf[24])
{
    if (r.calls > 0)
        snprintf(buf, 24, "%.0f%%", 100 * r.hits / r.calls);
    else
        strcpy(buf, "-");
    return buf;
}

/* A process has a trace for the host and one per GPU: it dispatches if one of them does. */
static void count_processes(const struct cli_rates *r, size_t *live, size_t *dispatching)
{
    *live = *dispatching = 0;
    for (size_t i = 0; i < r->processes; i++) {
        const struct kfit_trace_header *h = kfit_trace_header(r->process[i].t);
        unsigned why;
        bool new = true, runs = cli_dispatching(h, &why);
        for (size_t j = 0; j < i; j++) {
            const struct kfit_trace_header *other = kfit_trace_header(r->process[j].t);
            if (kfit_trace_same_process(h, other)) {
                new = false;
                runs &= !cli_dispatching(other, &why);
            }
        }
        *live += new;
        *dispatching += runs;
    }
}

static void summary(struct frame *f, const struct cli_rates *r)
{
    char calls[24], hits[24], share[24], text[LINE_BYTES], over[40] = "since each started";
    size_t live, dispatching, used = 0;
    count_processes(r, &live, &dispatching);
    if (r->seconds > 0)
        snprintf(over, sizeof over, "over %.1f s", r->seconds);
    line(f, BOLD, "kfit top  %s  %s", cli_when(time(NULL)), over);
    line(f, PLAIN, "%zu live: %zu dispatching, %zu not   calls/s %s   hits/s %s (%s)", live, dispatching,
         live - dispatching, number(r->rate.calls, calls), number(r->rate.hits, hits),
         percent(r->rate, share));
    text[0] = '\0';
    for (unsigned i = 1; i < KFIT_REASON_COUNT; i++)
        if (r->miss[i] > 0)
            used += (size_t)snprintf(text + used, sizeof text - used, "  %s %s", kfit_reason_name(i),
                                     number(r->miss[i], calls));
    line(f, PLAIN, "misses/s%s", used ? text : " none");
}

static void mixed(struct frame *f, const struct cli_traces *ts)
{
    struct cli_jobs jobs;
    cli_jobs_find(&jobs, ts);
    for (size_t j = 0; j < jobs.count; j++) {
        const struct kfit_trace_header *h = kfit_trace_header(ts->item[jobs.job[j].item[0]].t);
        if (jobs.job[j].mixed)
            line(f, ALARM, "MIXED GENERATIONS in job %s: see kfit status",
                 h->job[0] ? SAFE(h->job) : SAFE(h->program));
    }
    cli_jobs_free(&jobs);
}

/* Off, and yet not: what was captured goes on. */
static void captured(struct frame *f, const struct cli_traces *ts)
{
    for (size_t i = 0; i < ts->count; i++) {
        const struct kfit_trace_header *h = kfit_trace_header(ts->item[i].t);
        const struct cli_graph_sums g = cli_graphs_sum(&ts->item[i]);
        unsigned why;
        if (g.ours && !cli_dispatching(h, &why))
            line(f, ALARM,
                 "GRAPHS GO ON in process %d on %s: %llu replay kernels of kfit's; restart or re-capture",
                 h->pid, cli_device(h), (unsigned long long)g.ours);
    }
}

static void processes(struct frame *f, const struct cli_rates *r, unsigned rows)
{
    line(f, HEAD, "%8s %4s %5s %-12s %10s %10s %5s %6s  %s", "PID", "RANK", "GEN", "STATE", "CALLS/S",
         "HITS/S", "HIT", "KEYS", "LABEL, PROGRAM");
    size_t n = r->processes <= rows ? r->processes : rows ? rows - 1 : 0;
    for (size_t i = 0; i < n; i++) {
        const struct cli_rate_process *p = &r->process[i];
        const struct kfit_trace_header *h = kfit_trace_header(p->t);
        char calls[24], hits[24], share[24], rank[16] = "-", generation[24] = "-";
        unsigned why;
        bool dispatching = cli_dispatching(h, &why);
        if (h->rank >= 0)
            snprintf(rank, sizeof rank, "%d", h->rank);
        if (h->generation)
            snprintf(generation, sizeof generation, "%llu", (unsigned long long)h->generation);
        line(f, PLAIN, "%8d %4s %5s %-12s %10s %10s %5s %6zu  %s%s%s%s%s", h->pid, rank, generation,
             dispatching ? "dispatching" : kfit_reason_name(why), number(p->rate.calls, calls),
             number(p->rate.hits, hits), percent(p->rate, share), kfit_trace_count(p->t), SAFE(h->device),
             h->device[0] ? ": " : "", SAFE(h->label), h->label[0] ? ", " : "", SAFE(h->program));
    }
    if (n < r->processes)
        line(f, PLAIN, "%8s and %zu more", "", r->processes - n);
}

static void keys(struct frame *f, const struct cli_rates *r, unsigned rows)
{
    line(f, HEAD, "%10s %5s %-12s %s", "CALLS/S", "HIT", "MISSES", "KEY");
    for (size_t i = 0; i < r->keys && i < rows; i++) {
        const struct cli_rate_key *k = &r->key[i];
        char calls[24], share[24];
        line(f, PLAIN, "%10s %5s %-12s %s", number(k->rate.calls, calls), percent(k->rate, share),
             k->why ? kfit_reason_name(k->why) : "-", cli_key(&k->key));
    }
}

/* Half of what is left for processes, if they need it; keys take the rest. */
static void draw(struct frame *f, const struct cli_rates *r, const struct cli_traces *ts)
{
    summary(f, r);
    mixed(f, ts);
    captured(f, ts);
    if (!r->processes) {
        line(f, PLAIN, "no live process records here; they show up when they run under `kfit run`");
        return;
    }
    line(f, PLAIN, "%s", "");
    unsigned half = left(f) > 3 ? (left(f) - 3) / 2 : 0;
    processes(f, r, f->rows ? half : (unsigned)r->processes);
    line(f, PLAIN, "%s", "");
    keys(f, r, f->rows ? left(f) : KEYS_PRINTED);
}

static cJSON *rate_json(cJSON *o, struct cli_rate r)
{
    cJSON_AddNumberToObject(o, "calls_per_s", r.calls);
    cJSON_AddNumberToObject(o, "hits_per_s", r.hits);
    return o;
}

static int print_json(const struct cli_rates *r)
{
    cJSON *root = rate_json(cJSON_CreateObject(), r->rate),
          *miss = cJSON_AddObjectToObject(root, "misses_per_s"),
          *list = cJSON_AddArrayToObject(root, "processes");
    for (unsigned i = 1; i < KFIT_REASON_COUNT; i++)
        if (r->miss[i] > 0)
            cJSON_AddNumberToObject(miss, kfit_reason_name(i), r->miss[i]);
    for (size_t i = 0; i < r->processes; i++) {
        const struct kfit_trace_header *h = kfit_trace_header(r->process[i].t);
        unsigned why;
        cJSON *o = rate_json(cJSON_CreateObject(), r->process[i].rate);
        cJSON_AddNumberToObject(o, "pid", h->pid);
        cJSON_AddStringToObject(o, "device", cli_device(h));
        cJSON_AddBoolToObject(o, "dispatching", cli_dispatching(h, &why));
        cJSON_AddStringToObject(o, "reason", kfit_reason_name(why));
        cJSON_AddNumberToObject(o, "generation", (double)h->generation);
        cJSON_AddStringToObject(o, "label", SAFE(h->label));
        cJSON_AddStringToObject(o, "program", SAFE(h->program));
        cJSON_AddItemToArray(list, o);
    }
    list = cJSON_AddArrayToObject(root, "keys");
    for (size_t i = 0; i < r->keys; i++) {
        cJSON *o = rate_json(cJSON_CreateObject(), r->key[i].rate);
        cJSON_AddStringToObject(o, "key", cli_key(&r->key[i].key));
        cJSON_AddStringToObject(o, "misses", r->key[i].why ? kfit_reason_name(r->key[i].why) : "");
        cJSON_AddItemToArray(list, o);
    }
    return cli_json_print(root);
}

/* ---- looking again and again ---- */

static int64_t clock_ns(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

struct look {
    struct cli_traces ts;
    int64_t at_ns;
};

static bool look(struct look *l, const struct cli_list *where, bool quiet)
{
    *l = (struct look){.ts = {.quiet = quiet}};
    bool ok = cli_traces_read(&l->ts, where) && !l->ts.unreadable;
    l->at_ns = clock_ns(CLOCK_MONOTONIC);
    return ok;
}

static void show(const struct cli_rates *r, const struct cli_traces *ts)
{
    struct cli_screen_size size = cli_screen_size();
    char *text = NULL;
    size_t bytes = 0;
    struct frame f = {.to = open_memstream(&text, &bytes), .rows = size.rows, .cols = size.cols};
    if (!f.to)
        exit(cli_fail("out of memory"));
    draw(&f, r, ts);
    fclose(f.to);
    cli_screen_show(text, bytes);
    free(text);
}

static int live(const struct cli_list *where, double interval)
{
    struct look before = {0}, now;
    struct cli_rates r;
    bool first = true, quit = false;
    look(&now, where, true);
    cli_rates_make(&r, NULL, &now.ts, 0, clock_ns(CLOCK_REALTIME), KEYS_MAX);
    if (!cli_screen_open())
        return CLI_FAILED;
    while (!quit) {
        char key = 0;
        show(&r, &now.ts);
        double passed = 1e-9 * (double)(clock_ns(CLOCK_MONOTONIC) - now.at_ns);
        enum cli_screen_event e = cli_screen_wait(passed < interval ? interval - passed : 0, &key);
        quit = e == CLI_SCREEN_END || (e == CLI_SCREEN_KEY && (key == 'q' || key == 'Q'));
        if (e != CLI_SCREEN_TIME && !(e == CLI_SCREEN_KEY && key == ' '))
            continue;
        cli_rates_free(&r);
        if (!first)
            cli_traces_free(&before.ts);
        first = false;
        before = now;
        look(&now, where, true);
        cli_rates_make(&r, &before.ts, &now.ts, 1e-9 * (double)(now.at_ns - before.at_ns),
                       clock_ns(CLOCK_REALTIME), KEYS_MAX);
    }
    cli_screen_close();
    cli_rates_free(&r);
    cli_traces_free(&before.ts);
    cli_traces_free(&now.ts);
    return CLI_OK;
}

static int once(const struct cli_list *where, bool json)
{
    struct look now;
    struct cli_rates r;
    int rc = look(&now, where, false) ? CLI_OK : CLI_FAILED;
    cli_rates_make(&r, NULL, &now.ts, 0, clock_ns(CLOCK_REALTIME), json ? KEYS_MAX : KEYS_PRINTED);
    struct frame f = {.to = stdout};
    if (json)
        rc |= print_json(&r);
    else
        draw(&f, &r, &now.ts);
    cli_rates_free(&r);
    cli_traces_free(&now.ts);
    return rc;
}

int cli_top(int argc, char **argv)
{
    double interval = 2;
    bool only_once = false, json = false;
    struct cli_list where = {0};
    const struct cli_option options[] = {
        {"interval", 'i', CLI_REAL, &interval, "SECONDS", "between two looks (default 2)"},
        {"once", '1', CLI_FLAG, &only_once, NULL, "print one frame and end, as without a terminal"},
        CLI_OPTION_JSON(&json),
        {0},
    };
    cli_parse(
        argc, argv,
        &(struct cli_usage){
            .args = "[TRACE|DIR...]",
            .doc =
                "Shows what live processes call, and what becomes of it, again and again; q ends it, space "
                "looks "
                "at once. The first rates are since each process started, all later ones between two looks.",
            .options = options,
            .max = CLI_ANY},
        &where);
    if (!(interval >= 0.1 && interval <= 3600))
        return cli_usage_error(argv, "--interval: from 0.1 to 3600 seconds");
    return only_once || json || !cli_screen_possible() ? once(&where, json) : live(&where, interval);
}
