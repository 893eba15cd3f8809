/* From two looks at traces to rates. Slots never move, so both files are walked side by side. */
#include <stdlib.h>
#include <string.h>

#include "key_sums.h"
#include "rates.h"

/* What one live trace gained, and in how many seconds. */
struct gain {
    const struct kfit_trace *now, *before; /* before NULL: from nothing */
    double seconds;
};

static uint64_t more(uint64_t now, uint64_t before)
{
    return now > before ? now - before : 0;
}

/* Calls fn for each slot with what it gained. */
static void each_slot(const struct gain *g,
                      void (*fn)(void *ctx, const struct kfit_trace_slot *s, const uint64_t *gained),
                      void *ctx)
{
    size_t known = g->before ? kfit_trace_count(g->before) : 0;
    for (size_t i = 0, j = 0; i < kfit_trace_count(g->now); i++) {
        const struct kfit_trace_slot *s = kfit_trace_at(g->now, i),
                                     *old = j < known ? kfit_trace_at(g->before, j) : NULL;
        uint64_t gained[KFIT_TRACE_REASONS];
        if (old && (old->hash != s->hash || !kfit_key_equal(&old->key, &s->key)))
            old = NULL; /* s is new; what stands at j comes later */
        j += old != NULL;
        for (unsigned r = 0; r < KFIT_TRACE_REASONS; r++)
            gained[r] = more(s->count[r], old ? old->count[r] : 0);
        fn(ctx, s, gained);
    }
}

static double sum(const uint64_t count[KFIT_TRACE_REASONS])
{
    double n = 0;
    for (unsigned r = 0; r < KFIT_TRACE_REASONS; r++)
        n += (double)count[r];
    return n;
}

/* ---- which gains there are ---- */

static const struct kfit_trace *find(const struct cli_traces *ts, uint64_t id)
{
    for (size_t i = 0; ts && i < ts->count; i++)
        if (cli_trace_id(kfit_trace_header(ts->item[i].t)) == id)
            return ts->item[i].t;
    return NULL;
}

static size_t find_gains(struct gain *gains, const struct cli_traces *before, const struct cli_traces *now,
                         double seconds, int64_t now_unix_ns)
{
    size_t n = 0;
    for (size_t i = 0; i < now->count; i++) {
        const struct kfit_trace_header *h = kfit_trace_header(now->item[i].t);
        double age = 1e-9 * (double)(now_unix_ns - h->start_unix_ns);
        if (!now->item[i].alive)
            continue;
        gains[n] = (struct gain){now->item[i].t, find(before, cli_trace_id(h)), before ? seconds : age};
        if (!(gains[n].seconds > 1e-3)) /* also where clocks went back */
            gains[n].seconds = 1e-3;
        n++;
    }
    return n;
}

/* ---- per process ---- */

static struct cli_rate_process process(struct cli_rates *out, const struct gain *g)
{
    uint64_t now[KFIT_TRACE_REASONS], before[KFIT_TRACE_REASONS] = {0};
    struct cli_rate_process p = {.t = g->now};
    cli_trace_totals(g->now, now);
    if (g->before)
        cli_trace_totals(g->before, before);
    for (unsigned r = 0; r < KFIT_TRACE_REASONS; r++)
        now[r] = more(now[r], before[r]);
    p.rate = (struct cli_rate){sum(now) / g->seconds, (double)now[KFIT_REASON_NONE] / g->seconds};
    out->rate.calls += p.rate.calls;
    out->rate.hits += p.rate.hits;
    for (unsigned r = 1; r < KFIT_REASON_COUNT; r++)
        out->miss[r] += (double)now[r] / g->seconds;
    return p;
}

static int by_calls(const void *a, const void *b)
{
    const struct cli_rate_process *x = a, *y = b;
    int p = kfit_trace_header(x->t)->pid, q = kfit_trace_header(y->t)->pid;
    if (x->rate.calls != y->rate.calls)
        return x->rate.calls < y->rate.calls ? 1 : -1;
    return (p > q) - (p < q);
}

/* ---- per key: first which lead, then what became of their calls ---- */

struct weighing {
    struct cli_key_sums sums;
    double seconds;
};

static void weigh(void *ctx, const struct kfit_trace_slot *s, const uint64_t *gained)
{
    struct weighing *w = ctx;
    cli_key_sums_add(&w->sums, &s->key, s->hash, sum(gained) / w->seconds);
}

struct leading {
    struct cli_rates *out;
    const struct cli_key_sums *sums;
    double (*miss)[KFIT_REASON_COUNT]; /* of each leading key */
    double seconds;
};

static void detail(void *ctx, const struct kfit_trace_slot *s, const uint64_t *gained)
{
    struct leading *l = ctx;
    size_t i = 0;
    while (i < l->out->keys &&
           (l->sums->item[i].hash != s->hash || !kfit_key_equal(&l->out->key[i].key, &s->key)))
        i++;
    if (i == l->out->keys)
        return;
    l->out->key[i].rate.calls += sum(gained) / l->seconds;
    l->out->key[i].rate.hits += (double)gained[KFIT_REASON_NONE] / l->seconds;
    for (unsigned r = 1; r < KFIT_REASON_COUNT; r++)
        l->miss[i][r] += (double)gained[r] / l->seconds;
}

static void make_keys(struct cli_rates *out, const struct gain *gains, size_t n, size_t keys_max)
{
    struct weighing w = {0};
    for (size_t i = 0; i < n; i++) {
        w.seconds = gains[i].seconds;
        each_slot(&gains[i], weigh, &w);
    }
    cli_key_sums_sort(&w.sums);
    out->keys_total = w.sums.count;
    out->keys = w.sums.count < keys_max ? w.sums.count : keys_max;
    out->key = cli_alloc(NULL, out->keys * sizeof *out->key);
    struct leading l = {out, &w.sums, cli_alloc(NULL, out->keys * sizeof *l.miss), 0};
    for (size_t i = 0; i < out->keys; i++) {
        out->key[i] = (struct cli_rate_key){.key = *w.sums.item[i].key};
        memset(l.miss[i], 0, sizeof l.miss[i]);
    }
    for (size_t i = 0; i < n && out->keys; i++) {
        l.seconds = gains[i].seconds;
        each_slot(&gains[i], detail, &l);
    }
    for (size_t i = 0; i < out->keys; i++)
        for (unsigned r = 1; r < KFIT_REASON_COUNT; r++)
            if (l.miss[i][r] > l.miss[i][out->key[i].why])
                out->key[i].why = r;
    free(l.miss);
    cli_key_sums_free(&w.sums);
}

void cli_rates_make(struct cli_rates *out, const struct cli_traces *before, const struct cli_traces *now,
                    double seconds, int64_t now_unix_ns, size_t keys_max)
{
    *out = (struct cli_rates){.seconds = before ? seconds : 0};
    struct gain *gains = cli_alloc(NULL, now->count * sizeof *gains);
    size_t n = find_gains(gains, before, now, seconds, now_unix_ns);
    out->process = cli_alloc(NULL, n * sizeof *out->process);
    for (size_t i = 0; i < n; i++)
        out->process[i] = process(out, &gains[i]);
    out->processes = n;
    if (n)
        qsort(out->process, n, sizeof *out->process, by_calls);
    make_keys(out, gains, n, keys_max);
    free(gains);
}

void cli_rates_free(struct cli_rates *r)
{
    free(r->process);
    free(r->key);
    *r = (struct cli_rates){0};
}
