/* What live processes replay: from the graphs of their traces. */
#include <string.h>

#include "graphs.h"
#include "processes.h"

static bool holds(const struct kfit_trace *t, const struct kfit_trace_graph *g, enum cli_graphs_which which,
                  const union kfit_key *key)
{
    const struct kfit_trace_item *item = kfit_trace_graph_items(t, g);
    uint64_t seen = 0;
    if (g->state != KFIT_GRAPH_READY)
        return false;
    if (which == CLI_GRAPHS_OURS && (!key || !g->ours))
        return g->ours;
    for (uint32_t i = 0; i < g->count; i++) {
        if (item[i].what & KFIT_ITEM_KERNEL)
            continue;
        if (which == CLI_GRAPHS_OFF && item[i].decision == KFIT_REASON_OFF)
            return true;
        if (which == CLI_GRAPHS_OURS && kfit_item_is_ours(&item[i])) {
            if (kfit_key_equal(&kfit_trace_at(t, item[i].what)->key, key))
                return true;
            seen += item[i].times;
        }
    }
    return which == CLI_GRAPHS_OURS && seen < g->ours; /* one that the trace lost may be of this key */
}

struct cli_graph_sums cli_graphs_sum(const struct cli_trace *t)
{
    const struct kfit_trace_live *l = &kfit_trace_header(t->t)->live;
    struct cli_graph_sums s = {
        .made = kfit_trace_graph_count(t->t),
        .no_room = l->graphs_used > l->graph_count ? l->graphs_used - l->graph_count : 0,
    };
    for (size_t i = 0; i < s.made; i++) {
        const struct kfit_trace_graph *g = kfit_trace_graph_at(t->t, i);
        s.live += t->alive && g->state == KFIT_GRAPH_READY;
        s.ours += t->alive && holds(t->t, g, CLI_GRAPHS_OURS, NULL);
        s.replays = g->launches > UINT64_MAX - s.replays ? UINT64_MAX : s.replays + g->launches;
        s.calls_lost += g->lost;
    }
    return s;
}

cJSON *cli_graphs_json(const struct cli_graph_sums *s)
{
    cJSON *o = cJSON_CreateObject();
    cJSON_AddNumberToObject(o, "made", (double)s->made);
    cJSON_AddNumberToObject(o, "live", (double)s->live);
    cJSON_AddNumberToObject(o, "holding_kernels", (double)s->ours);
    cJSON_AddNumberToObject(o, "replays", (double)s->replays);
    cJSON_AddNumberToObject(o, "calls_lost", (double)s->calls_lost);
    cJSON_AddNumberToObject(o, "without_room", (double)s->no_room);
    return o;
}

/* Adds ", 7-12" to buf; ", ..." once where that would not fit. */
static void add_range(char *buf, size_t size, uint32_t first, uint32_t last)
{
    enum { RANGE = 32, DOTS = 6 };
    const size_t used = strlen(buf);
    const char *comma = used ? ", " : "";
    if (used + RANGE + DOTS <= size)
        snprintf(buf + used, size - used, first == last ? "%s%u" : "%s%u-%u", comma, first, last);
    else if (buf[used - 1] != '.')
        snprintf(buf + used, size - used, "%s...", comma);
}

size_t cli_graphs_list(const struct cli_trace *t, enum cli_graphs_which which, const union kfit_key *key,
                       cJSON *list, char *buf, size_t size)
{
    uint32_t first = 0, last = 0;
    size_t n = 0;
    if (buf)
        buf[0] = '\0';
    for (size_t i = 0; t->alive && i < kfit_trace_graph_count(t->t); i++) {
        const struct kfit_trace_graph *g = kfit_trace_graph_at(t->t, i);
        if (!holds(t->t, g, which, key))
            continue;
        if (list)
            cJSON_AddItemToArray(list, cJSON_CreateNumber(g->number));
        if (n && buf && g->number != last + 1)
            add_range(buf, size, first, last);
        if (!n || g->number != last + 1)
            first = g->number;
        last = g->number;
        n++;
    }
    if (n && buf)
        add_range(buf, size, first, last);
    return n;
}

uint32_t cli_graphs_making(const struct cli_trace *t)
{
    return t->alive ? kfit_trace_header(t->t)->making : 0;
}

size_t cli_graphs_say(const struct cli_trace *t, enum cli_graphs_which which, const union kfit_key *key,
                      cJSON *list)
{
    const struct kfit_trace_header *h = kfit_trace_header(t->t);
    const uint32_t unlisted = t->alive && which == CLI_GRAPHS_OURS ? h->live.ours_unlisted : 0;
    const uint32_t making = which == CLI_GRAPHS_OURS && !key ? cli_graphs_making(t) : 0;
    char numbers[CLI_GRAPHS_BYTES];
    const size_t n = cli_graphs_list(t, which, key, list, numbers, sizeof numbers);
    const char *what = which == CLI_GRAPHS_OFF ? "what was captured while kfit was off"
                       : key                   ? "the kernel of this key"
                                               : "kernels of kfit's";
    if (n)
        cli_say("process %d %s: on %s, graph%s %s still replay%s %s; restart or re-capture", h->pid,
                SAFE(h->program), cli_device(h), n == 1 ? "" : "s", numbers, n == 1 ? "s" : "", what);
    if (unlisted)
        cli_say(
            "process %d %s: on %s, %u graphs with kernels of kfit's found no room in the trace, nobody knows "
            "whether they are still replayed; restart or re-capture",
            h->pid, SAFE(h->program), cli_device(h), unlisted);
    if (making)
        cli_say(
            "process %d %s: on %s, it is capturing %u graph%s with kernels of kfit's; run this again when %s",
            h->pid, SAFE(h->program), cli_device(h), making, making == 1 ? "" : "s",
            making == 1 ? "that has ended" : "those have ended");
    return n + unlisted + making;
}

size_t cli_graphs_say_all(const union kfit_key *key)
{
    struct cli_traces ts = {.quiet = true};
    size_t n = 0;
    cli_traces_read(&ts, NULL);
    for (size_t i = 0; i < ts.count; i++)
        n += cli_graphs_say(&ts.item[i], CLI_GRAPHS_OURS, key, NULL);
    cli_traces_free(&ts);
    return n;
}
