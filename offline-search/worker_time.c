/* Timing inside a GPU worker: pairs of graph replays (cold or warm) or of plain launches. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "worker_cuda.h"

#define GRAPHS_MAX     16u
#define SETS_MAX       (GRAPHS_MAX * KFIT_CU_LAUNCHES)
#define LAUNCHES_LEAST 24u /* timed together */
#define DELAY_NS       400000ull
#define POISON         0x7fc57fc5u /* NaN in every type */

/* ---- sets: copies of all arguments, together beyond the cache ---- */

bool worker_make_sets(struct worker *w, size_t cold_bytes)
{
    size_t all = 0;
    for (unsigned i = 0; i < w->nargs; i++) {
        w->stride[i] = (w->bytes[i] + 511) & ~(size_t)511;
        all += w->stride[i];
    }
    size_t sets = cold_bytes / all + 2;
    w->sets = sets > SETS_MAX ? SETS_MAX : (unsigned)sets;
    w->slots = (LAUNCHES_LEAST + w->sets - 1) / w->sets * w->sets;
    w->launches = w->slots / ((w->slots + KFIT_CU_LAUNCHES - 1) / KFIT_CU_LAUNCHES); /* as even as can be */
    for (unsigned i = 0; i < w->nargs; i++)
        if (i != w->out && !CU(w, mem_alloc(&w->timed[i], w->sets * w->stride[i])))
            return false;
    for (unsigned i = TIMED_OUT; i < TIMED; i++)
        if ((i < TIMED_BEFORE || w->tensor[w->out].dir == KFIT_INOUT) &&
            !CU(w, mem_alloc(&w->timed[i], w->slots * w->stride[w->out])))
            return false;
    return true;
}

static bool fill_sets(struct worker *w, uint64_t seed)
{
    for (unsigned arg = 0; arg < w->nargs; arg++)
        for (unsigned i = 0; w->tensor[arg].dir != KFIT_OUT && i < (arg != w->out ? w->sets : w->slots); i++) {
            kfit_cu_ptr to = w->timed[arg != w->out ? arg : TIMED_BEFORE] + i * w->stride[arg];
            if (!worker_fill(w, arg, to, 0, seed + i % w->sets))
                return false;
        }
    return worker_wait(w);
}

/* Before a side writes `count` slots from `first` on, they are as before anyone ran: what is found there later is its own
 * doing, and it cannot see that the work seems done. */
static bool fresh_outputs(struct worker *w, unsigned side, unsigned first, unsigned count)
{
    const size_t stride = w->stride[w->out];
    first %= w->slots;
    for (count = count < w->slots ? count : w->slots; count;) {
        unsigned n = count < w->slots - first ? count : w->slots - first;
        kfit_cu_ptr at = w->timed[TIMED_OUT + side] + first * stride;
        if (!(w->tensor[w->out].dir == KFIT_INOUT
                  ? CU(w, on_device(at, w->timed[TIMED_BEFORE] + first * stride, n * stride, w->stream))
                  : CU(w, set32(at, POISON, n * stride / 4, w->stream))))
            return false;
        count -= n;
        first = 0;
    }
    return true;
}

static bool call_slot(struct worker *w, unsigned who, unsigned side, unsigned slot)
{
    unsigned set = slot % w->sets;
    slot %= w->slots;
    kfit_cu_ptr args[KFIT_CU_ARGS];
    for (unsigned i = 0; i < w->nargs; i++)
        args[i] = i != w->out ? w->timed[i] + set * w->stride[i]
                              : w->timed[TIMED_OUT + side] + slot * w->stride[i];
    return worker_call(w, who, args);
}

/* ---- graphs ---- */

struct side {
    unsigned who, graphs, launches;
    bool warm;
    kfit_cu_exec exec[GRAPHS_MAX];
};

/* Warm: all launches on slot 0. Cold: on all slots (but a rest), none in two graphs: its inputs could be warm the second
 * time. */
static bool capture(struct worker *w, struct side *s, unsigned side, bool warm)
{
    s->warm = warm;
    s->launches = warm ? LAUNCHES_LEAST : w->launches;
    s->graphs = warm ? 1 : w->slots / w->launches;
    for (unsigned g = 0; g < s->graphs; g++) {
        kfit_cu_graph graph;
        bool ok = CU(w, capture_begin(w->stream, KFIT_CU_CAPTURE_THREAD_LOCAL));
        for (unsigned i = 0; ok && i < s->launches; i++)
            ok = call_slot(w, s->who, side, warm ? 0 : g * s->launches + i);
        if (w->cu->capture_end(w->stream, &graph) && ok)
            ok = worker_check(w, KFIT_CU_LAUNCH_FAILED, "cuStreamEndCapture");
        if (!ok)
            return false;
        ok = CU(w, graph_instantiate(&s->exec[g], graph, 0)) && CU(w, graph_upload(s->exec[g], w->stream));
        w->cu->graph_destroy(graph);
        if (!ok)
            return false;
    }
    return true;
}

static void drop(struct worker *w, struct side *s)
{
    for (unsigned g = 0; g < s->graphs; g++)
        if (s->exec[g])
            w->cu->exec_destroy(s->exec[g]);
}

bool worker_elapsed(struct worker *w, unsigned calls, double *ns)
{
    float ms = 0;
    if (!worker_wait(w) || !CU(w, event_elapsed(&ms, w->event[0], w->event[1])))
        return false;
    *ns = (double)ms * 1e6 / calls;
    return true;
}

static bool replay(struct worker *w, struct side *s, unsigned side, unsigned g, double *ns)
{
    unsigned first = s->warm ? 0 : g % s->graphs * s->launches;
    return fresh_outputs(w, side, first, s->warm ? 1 : s->launches) &&
           CU(w, event_record(w->event[0], w->stream)) &&
           CU(w, graph_launch(s->exec[g % s->graphs], w->stream)) && worker_elapsed(w, s->launches, ns);
}

/* Plain launches queued behind a delay, so that the CPU's part is not in the time. */
static bool plain(struct worker *w, struct side *s, unsigned side, unsigned first, double *ns)
{
    uint64_t delay = DELAY_NS;
    void *params[] = {&delay};
    if (!fresh_outputs(w, side, first, LAUNCHES_LEAST) || !worker_helper(w, H_DELAY, 1, 1, params) ||
        !CU(w, event_record(w->event[0], w->stream)))
        return false;
    for (unsigned i = 0; i < LAUNCHES_LEAST; i++)
        if (!call_slot(w, s->who, side, first + i))
            return false;
    return worker_elapsed(w, LAUNCHES_LEAST, ns);
}

bool worker_pairs(struct worker *w, const struct kfit_cu_command *c)
{
    struct side side[2] = {{.who = c->who}, {.who = c->who2}};
    struct kfit_cu_times *times = (struct kfit_cu_times *)w->arena;
    uint64_t random = c->seed;
    bool graphs = c->mode != KFIT_CU_PLAIN, ok = true;
    unsigned n = c->count < KFIT_PAIRS_MAX ? c->count : KFIT_PAIRS_MAX;
    if (!w->sets || w->arena_bytes < sizeof *times)
        return worker_check(w, 1, "no sets to time");
    if (!CU(w, reset_persisting_l2()) || (c->fill && !fill_sets(w, c->fill_seed)))
        return false;
    for (unsigned s = 0; graphs && ok && s < 2; s++)
        ok = capture(w, &side[s], s, c->mode == KFIT_CU_WARM);
    double begun = kfit_now_ns(), ignored;
    for (unsigned s = 0; ok && s < 2; s++) /* the first is discarded */
        ok = graphs ? replay(w, &side[s], s, 0, &ignored) : plain(w, &side[s], s, 0, &ignored);
    /* Each replay, of either side, takes the next graph: its sets were last touched a whole round ago. */
    for (unsigned i = 0, turn = 1; ok && i < n; i++) {
        unsigned first = (unsigned)(kfit_random(&random) & 1);
        for (unsigned o = 0; ok && o < 2; o++) {
            unsigned s = first ^ o;
            ok = graphs ? replay(w, &side[s], s, turn++, &times->ns[s][i])
                        : plain(w, &side[s], s, i * LAUNCHES_LEAST, &times->ns[s][i]);
        }
    }
    times->outer_ns = kfit_now_ns() - begun;
    for (unsigned s = 0; s < 2; s++)
        drop(w, &side[s]);
    return ok;
}

bool worker_replays(struct worker *w, unsigned who, unsigned side, uint32_t *calls, double *event_ns)
{
    struct side s = {.who = who};
    bool ok = capture(w, &s, side, false);
    *calls = 0;
    *event_ns = 0;
    for (unsigned g = 0; ok && g < s.graphs; g++) {
        double ns = 0;
        ok = replay(w, &s, side, g, &ns);
        *calls += s.launches;
        *event_ns += ns * s.launches;
    }
    drop(w, &s);
    return ok;
}
