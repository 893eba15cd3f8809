/* From traces to totals. */
#include <stdlib.h>
#include <string.h>

#include "graphs.h"
#include "kfit/hash.h"
#include "key_sums.h"
#include "totals.h"

static const char other[] = "(other)";

void kfit_metrics_init(struct kfit_metrics *m, size_t keys_wanted)
{
    *m = (struct kfit_metrics){.keys_wanted = keys_wanted};
    m->deployment = cli_alloc(NULL, (KFIT_METRICS_DEPLOYMENTS + 1) * sizeof *m->deployment);
    m->seen = cli_alloc(NULL, KFIT_METRICS_TRACES * sizeof *m->seen);
    m->key = cli_alloc(NULL, keys_wanted * KFIT_METRICS_KEYS_KEPT * sizeof *m->key);
}

void kfit_metrics_finish(struct kfit_metrics *m)
{
    for (size_t i = 0; i < m->seen_count; i++)
        free(m->seen[i].keys);
    free(m->seen);
    free(m->deployment);
    free(m->key);
    *m = (struct kfit_metrics){0};
}

/* A trace is written by others: a total must not wrap, and must not shrink. */
static void account(uint64_t *sum, uint64_t *last, uint64_t now)
{
    uint64_t more = now > *last ? now - *last : 0;
    *sum = *sum > UINT64_MAX - more ? UINT64_MAX : *sum + more;
    *last = now;
}

/* ---- which deployment ---- */

static void printable(char *to, size_t size, const char *from)
{
    size_t i = 0;
    for (; from[i] && i + 1 < size; i++)
        to[i] = from[i] >= ' ' && from[i] <= '~' ? from[i] : '?';
    to[i] = '\0';
}

/* The first come have series of their own, and keep them. */
static uint32_t deployment_of(struct kfit_metrics *m, const struct kfit_trace_header *h)
{
    struct kfit_metrics_deployment d = {0};
    printable(d.label, sizeof d.label, h->label);
    printable(d.program, sizeof d.program, h->program);
    size_t i = 0;
    while (i < m->deployments &&
           (strcmp(m->deployment[i].label, d.label) || strcmp(m->deployment[i].program, d.program)))
        i++;
    if (i < m->deployments)
        return (uint32_t)i;
    if (i >= KFIT_METRICS_DEPLOYMENTS) {
        i = KFIT_METRICS_DEPLOYMENTS;
        strcpy(d.label, other);
        strcpy(d.program, other);
    }
    if (i == m->deployments) {
        m->deployment[i] = d;
        m->deployments++;
    }
    return (uint32_t)i;
}

/* ---- which trace ---- */

/* Where id is, or would be. */
static size_t place_of(const struct kfit_metrics *m, uint64_t id)
{
    size_t lo = 0, hi = m->seen_count;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (m->seen[mid].id < id)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static void forget(struct kfit_metrics *m, int64_t before_unix_s)
{
    size_t kept = 0;
    for (size_t i = 0; i < m->seen_count; i++) {
        if (!m->seen[i].present && m->seen[i].at_unix_s < before_unix_s)
            free(m->seen[i].keys);
        else
            m->seen[kept++] = m->seen[i];
    }
    m->seen_count = kept;
}

/* NULL when more are here at once than are remembered. */
static struct kfit_metrics_seen *seen_of(struct kfit_metrics *m, uint64_t id,
                                         const struct kfit_trace_header *h, int64_t now)
{
    size_t at = place_of(m, id);
    if (at < m->seen_count && m->seen[at].id == id)
        return &m->seen[at];
    if (m->seen_count == KFIT_METRICS_TRACES) {
        forget(m, now);
        at = place_of(m, id);
    }
    if (m->seen_count == KFIT_METRICS_TRACES)
        return NULL;
    memmove(&m->seen[at + 1], &m->seen[at], (m->seen_count - at) * sizeof *m->seen);
    m->seen_count++;
    struct kfit_metrics_seen *s = &m->seen[at];
    *s =
        (struct kfit_metrics_seen){.id = id, .process = cli_process_id(h), .deployment = deployment_of(m, h)};
    for (size_t i = 0; i < m->seen_count; i++)
        s->further |= i != at && m->seen[i].process == s->process;
    m->deployment[s->deployment].started += !s->further;
    return s;
}

/* ---- keys one by one ---- */

static size_t key_index(const struct kfit_metrics *m, const union kfit_key *key)
{
    size_t i = 0;
    while (i < m->keys && !kfit_key_equal(&m->key[i].key, key))
        i++;
    return i;
}

/* Gives the place of the least called key that does not lead to another, whose count begins anew. */
static size_t replace(struct kfit_metrics *m, const bool *leads)
{
    size_t least = SIZE_MAX;
    for (size_t i = 0; i < m->keys; i++)
        if (!leads[i] && (least == SIZE_MAX || m->key[i].sum.hits + m->key[i].sum.misses <
                                                   m->key[least].sum.hits + m->key[least].sum.misses))
            least = i;
    for (size_t i = 0; i < m->seen_count; i++)
        if (m->seen[i].keys)
            m->seen[i].keys[least] = (struct kfit_metrics_counts){0};
    return least;
}

/* Sees to it that the leading keys of these traces have a place. */
static void choose_keys(struct kfit_metrics *m, const struct cli_traces *ts)
{
    struct cli_key_sums table = {0};
    size_t room = m->keys_wanted * KFIT_METRICS_KEYS_KEPT;
    bool *leads = cli_alloc(NULL, room * sizeof *leads);
    memset(leads, 0, room * sizeof *leads);
    for (size_t i = 0; i < ts->count; i++) {
        const struct kfit_trace *t = ts->item[i].t;
        for (size_t k = 0; kfit_trace_header(t)->pid && k < kfit_trace_count(t); k++) {
            const struct kfit_trace_slot *s = kfit_trace_at(t, k);
            cli_key_sums_add(&table, &s->key, s->hash, (double)kfit_slot_calls(s));
        }
    }
    cli_key_sums_sort(&table);
    size_t n = table.count < m->keys_wanted ? table.count : m->keys_wanted;
    for (size_t i = 0; i < n; i++) {
        size_t at = key_index(m, table.item[i].key);
        if (at < m->keys)
            leads[at] = true;
    }
    for (size_t i = 0; i < n; i++) {
        size_t at = key_index(m, table.item[i].key);
        if (at == m->keys) {
            at = m->keys < room ? m->keys++ : replace(m, leads);
            m->key[at] = (struct kfit_metrics_key){.key = *table.item[i].key};
        }
        leads[at] = true;
    }
    cli_key_sums_free(&table);
    free(leads);
}

static void scan_keys(struct kfit_metrics *m, struct kfit_metrics_seen *seen, const struct kfit_trace *t)
{
    size_t room = m->keys_wanted * KFIT_METRICS_KEYS_KEPT;
    if (!seen->keys) {
        seen->keys = cli_alloc(NULL, room * sizeof *seen->keys);
        memset(seen->keys, 0, room * sizeof *seen->keys);
    }
    for (size_t i = 0; i < kfit_trace_count(t); i++) {
        const struct kfit_trace_slot *s = kfit_trace_at(t, i);
        size_t at = key_index(m, &s->key);
        if (at == m->keys)
            continue;
        uint64_t calls = kfit_slot_calls(s), hits = s->count[KFIT_REASON_NONE];
        account(&m->key[at].sum.hits, &seen->keys[at].hits, hits);
        account(&m->key[at].sum.misses, &seen->keys[at].misses, calls > hits ? calls - hits : 0);
    }
}

/* ---- a scan ---- */

static void max_u32(uint32_t *a, uint32_t b)
{
    *a = *a > b ? *a : b;
}

static void scan_live(struct kfit_metrics_live *l, const struct cli_trace *trace,
                      const uint64_t count[KFIT_TRACE_REASONS], bool further)
{
    const struct kfit_trace_header *h = kfit_trace_header(trace->t);
    const struct cli_graph_sums graphs = cli_graphs_sum(trace);
    const struct kfit_trace_launches launches = kfit_trace_launches(trace->t);
    unsigned why;
    cli_dispatching(h, &why);
    l->processes[why] += !further;
    l->graphs += graphs.live;
    l->graphs_ours += graphs.ours;
    account(&l->launches.ours, &(uint64_t){0}, launches.ours);
    account(&l->launches.in_op, &(uint64_t){0}, launches.in_op);
    account(&l->launches.other, &(uint64_t){0}, launches.other);
    for (unsigned r = 0; r < KFIT_TRACE_REASONS; r++)
        account(&l->calls, &(uint64_t){0}, count[r]);
    account(&l->hits, &(uint64_t){0}, count[KFIT_REASON_NONE]);
    l->oldest = !l->any || h->generation < l->oldest ? h->generation : l->oldest;
    l->newest = h->generation > l->newest ? h->generation : l->newest;
    max_u32(&l->loaded.winners, h->loaded.winners);
    max_u32(&l->loaded.stale, h->loaded.stale);
    max_u32(&l->loaded.negatives, h->loaded.negatives);
    max_u32(&l->loaded.banned, h->loaded.banned);
    max_u32(&l->loaded.unusable, h->loaded.unusable);
    l->keys = h->slots_used > l->keys ? h->slots_used : l->keys;
    l->any = true;
}

static void end(struct kfit_metrics *m, struct kfit_metrics_seen *s, bool clean)
{
    struct kfit_metrics_deployment *d = &m->deployment[s->deployment];
    if (!s->ended && !s->further)
        ++*(clean ? &d->ended_clean : &d->ended_unknown);
    s->ended = true;
}

static void scan_one(struct kfit_metrics *m, const struct cli_trace *trace, int64_t now)
{
    const struct kfit_trace_header *h = kfit_trace_header(trace->t);
    struct kfit_metrics_seen *s = h->pid ? seen_of(m, cli_trace_id(h), h, now) : NULL;
    uint64_t count[KFIT_TRACE_REASONS];
    if (!s || s->present) /* the same trace under two names */
        return;
    struct kfit_metrics_deployment *d = &m->deployment[s->deployment];
    cli_trace_totals(trace->t, count);
    for (unsigned r = 0; r < KFIT_TRACE_REASONS; r++)
        account(&d->count[r], &s->count[r], count[r]);
    if (m->keys_wanted)
        scan_keys(m, s, trace->t);
    s->present = true;
    s->at_unix_s = now;
    if (trace->alive) {
        scan_live(&d->live, trace, count, s->further);
        m->traces_live++;
    } else {
        end(m, s, h->end_unix_ns != 0);
        m->traces_ended++;
    }
}

void kfit_metrics_scan(struct kfit_metrics *m, const struct cli_traces *ts, int64_t now_unix_s)
{
    struct cli_jobs jobs;
    for (size_t i = 0; i < m->seen_count; i++)
        m->seen[i].present = false;
    for (size_t i = 0; i < m->deployments; i++)
        m->deployment[i].live = (struct kfit_metrics_live){0};
    m->traces_live = m->traces_ended = 0;
    m->traces_unreadable = ts->unreadable;
    if (m->keys_wanted)
        choose_keys(m, ts);
    for (size_t i = 0; i < ts->count; i++)
        scan_one(m, &ts->item[i], now_unix_s);
    for (size_t i = 0; i < m->seen_count; i++)
        if (!m->seen[i].present)
            end(m, &m->seen[i], false);
    cli_jobs_find(&jobs, ts);
    for (size_t j = 0; j < jobs.count; j++) {
        const struct kfit_trace_header *h = kfit_trace_header(ts->item[jobs.job[j].item[0]].t);
        size_t at = place_of(m, cli_trace_id(h));
        if (jobs.job[j].mixed && at < m->seen_count && m->seen[at].id == cli_trace_id(h))
            m->deployment[m->seen[at].deployment].live.mixed_jobs++;
    }
    cli_jobs_free(&jobs);
    forget(m, now_unix_s - KFIT_METRICS_FORGET_S);
}
