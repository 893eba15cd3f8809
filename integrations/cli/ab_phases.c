/* Phases of one run: the program goes on, and dispatch is switched off and on in its live traces. */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ab.h"
#include "graphs.h"

#define TICK_S      0.1  /* how often new processes of the program are looked for */
#define SAY_AFTER_S 10.0 /* of waiting for the first call */
#define SETTLE_S    10.0 /* at most, for graphs to be captured anew after a switch */

struct process {
    char path[PATH_MAX];
    bool set; /* its control word was set by us */
};

struct phases {
    struct ab *ab;
    struct ab_program program;
    struct process *item; /* whose traces are in the work directory */
    size_t count;
    enum kfit_control now; /* what their control words must be */
};

static bool known(const struct phases *p, const char *path)
{
    for (size_t i = 0; i < p->count; i++)
        if (!strcmp(p->item[i].path, path))
            return true;
    return false;
}

/* Notes the traces that have come, and sets the control word where it is not yet set. */
static void look(struct phases *p)
{
    DIR *d = opendir(p->ab->work);
    struct dirent *e;
    while (d && (e = readdir(d))) {
        char path[PATH_MAX];
        size_t n = strlen(e->d_name);
        struct kfit_trace *t;
        if (n < 5 || strcmp(e->d_name + n - 4, ".kft"))
            continue;
        snprintf(path, sizeof path, "%s/%s", p->ab->work, e->d_name);
        if (known(p, path) || kfit_trace_read(path, &t, NULL) != KFIT_OK) /* not whole yet */
            continue;
        kfit_trace_destroy(t);
        p->item = cli_alloc(p->item, (p->count + 1) * sizeof *p->item);
        struct process *new = &p->item[p->count++];
        snprintf(new->path, sizeof new->path, "%s", path);
        new->set = p->now == KFIT_CONTROL_RUN; /* as it begins */
    }
    if (d)
        closedir(d);
    for (size_t i = 0; i < p->count; i++)
        if (!p->item[i].set)
            p->item[i].set = kfit_trace_set_control(p->item[i].path, p->now, NULL) == KFIT_OK;
}

/* Calls of all processes so far, and when. False, and said: somebody else has switched, or nobody can. */
static bool count_calls(const struct phases *p, double *calls, double *at_s)
{
    char off[PATH_MAX];
    double before = ab_now_s();
    *calls = 0;
    for (size_t i = 0; i < p->count; i++) {
        uint64_t count[KFIT_TRACE_REASONS];
        struct kfit_trace *t;
        if (kfit_trace_read(p->item[i].path, &t, NULL) != KFIT_OK)
            continue;
        bool ours = !p->item[i].set || !kfit_trace_alive(t) || kfit_trace_header(t)->control == (uint32_t)p->now;
        cli_trace_totals(t, count);
        kfit_trace_destroy(t);
        for (unsigned r = 0; r < KFIT_TRACE_REASONS; r++)
            *calls += (double)count[r];
        if (!ours)
            return !cli_fail("somebody else switched the program off or on (`kfit off`?); that stands, and "
                             "nothing is concluded");
    }
    *at_s = (before + ab_now_s()) / 2;
    snprintf(off, sizeof off, "%s/off", p->ab->cache);
    if (!p->ab->aa && !access(off, F_OK))
        return !cli_fail("%s has come: `kfit off` was given; nothing is concluded", cli_str(off));
    return true;
}

static void switch_to(struct phases *p, enum ab_side side)
{
    p->now = side == AB_WITH && !p->ab->aa ? KFIT_CONTROL_RUN : KFIT_CONTROL_OFF;
    for (size_t i = 0; i < p->count; i++)
        p->item[i].set = false;
    look(p);
}

enum phase { MEASURED, ENDED, FAILED };

static enum phase ended(const struct phases *p)
{
    int st = p->program.status;
    if (!st)
        return ENDED;
    cli_fail("the program ended with status %d in the middle of a phase; nothing is concluded", st);
    return FAILED;
}

/* Live graphs captured in the other side's phase: they replay what was decided then. */
static size_t captured_before(const struct phases *p, bool say)
{
    const enum cli_graphs_which which = p->now == KFIT_CONTROL_RUN ? CLI_GRAPHS_OFF : CLI_GRAPHS_OURS;
    size_t n = 0;
    for (size_t i = 0; i < p->count && !p->ab->aa; i++) {
        struct kfit_trace *t;
        if (kfit_trace_read(p->item[i].path, &t, NULL) != KFIT_OK)
            continue;
        const struct cli_trace one = {p->item[i].path, t, kfit_trace_alive(t)};
        n += say ? cli_graphs_say(&one, which, NULL, NULL) : cli_graphs_list(&one, which, NULL, NULL, NULL, 0);
        kfit_trace_destroy(t);
    }
    return n;
}

/* Lets the program go on for a while. Not MEASURED: it has ended, or the user stops. */
static enum phase tick(struct phases *p, double until_s)
{
    switch (ab_watch(p->ab, &p->program, until_s)) {
    case AB_ENDED:
        return ended(p);
    case AB_STOP:
        return ENDED;
    case AB_TIME:
        look(p);
    }
    return MEASURED;
}

/* Nothing can switch a graph: a phase begins when the program has captured its graphs anew. */
static enum phase settle(struct phases *p)
{
    const double patience = fmax(SETTLE_S, 2 * p->ab->phase_s), begun = ab_now_s();
    while (captured_before(p, false)) {
        if (ab_now_s() > begun + patience) {
            captured_before(p, true);
            cli_fail("%.0f s after the switch graphs of the other phase still run, and nothing can switch those; measure "
                     "runs, without --phases",
                     patience);
            return FAILED;
        }
        enum phase state = tick(p, ab_now_s() + TICK_S);
        if (state != MEASURED)
            return state;
    }
    return MEASURED;
}

/* One phase: its time per call, and the metric. The first number after a switch belongs to both sides and is dropped. */
static enum phase phase(struct phases *p, enum ab_side side, double *seconds, double number[AB_METRICS_MAX])
{
    struct ab *ab = p->ab;
    struct ab_output *o = &p->program.output;
    double calls[2], at[2], patience = ab->phase_s * 10 + 60;
    switch_to(p, side);
    enum phase state = settle(p);
    if (state != MEASURED)
        return state;
    ab_restart(&p->program);
    if (!count_calls(p, &calls[0], &at[0]))
        return FAILED;
    for (double end = at[0] + ab->phase_s, now = at[0]; now < end || !ab_output_complete(o);
         now = ab_now_s()) {
        if ((state = tick(p, fmin(now + TICK_S, now < end ? end : INFINITY))) != MEASURED)
            return state;
        if (now > end + patience) {
            if (ab_output_numbers(o, number))
                return MEASURED;
            cli_fail("no number came in %.0f s; give --phases more time, or measure runs", now - at[0]);
            return FAILED;
        }
    }
    if (!count_calls(p, &calls[1], &at[1]))
        return FAILED;
    double n = calls[1] - calls[0];
    if (!ab_output_numbers(o, number))
        return FAILED;
    if (!ab->metrics.count && n <= 0) {
        cli_fail("no call was made in a phase of %.3g s; give --phases more time, or --metric", ab->phase_s);
        return FAILED;
    }
    *seconds = n > 0 ? (at[1] - at[0]) / n : 0;
    return MEASURED;
}

/* Until the program has made calls. */
static enum phase first_calls(struct phases *p)
{
    double begun = ab_now_s(), calls = 0, at;
    bool said = false;
    p->now = KFIT_CONTROL_RUN;
    while (calls <= 0) {
        switch (ab_watch(p->ab, &p->program, ab_now_s() + TICK_S)) {
        case AB_ENDED:
            if (p->program.status)
                return ended(p);
            cli_fail("the program ended before it made a call that kfit knows; nothing is concluded");
            return FAILED;
        case AB_STOP:
            return ENDED;
        case AB_TIME:
            look(p);
        }
        if (!count_calls(p, &calls, &at))
            return FAILED;
        if (!said && calls <= 0 && at > begun + SAY_AFTER_S) {
            cli_say("waiting for the program's first call");
            said = true;
        }
    }
    return MEASURED;
}

static bool read_traces(struct ab *ab)
{
    struct cli_list where = {0};
    cli_list_add(&where, ab->work);
    cli_traces_free(&ab->traces);
    bool ok = cli_traces_read(&ab->traces, &where);
    free(where.item);
    return ok;
}

bool ab_phases(struct ab *ab)
{
    struct phases p = {.ab = ab};
    double seconds[2], number[2][AB_METRICS_MAX];
    if (!ab_start(ab, AB_WITH, &p.program))
        return false;
    enum phase state = first_calls(&p);
    if (state == MEASURED && !ab->aa && (!read_traces(ab) || !ab_dispatched(ab, &ab->traces)))
        state = FAILED;
    for (unsigned i = 0; i < ab->warm_ups + ab->want_pairs && state == MEASURED; i++) {
        unsigned first = kfit_random(&ab->random) >> 63;
        for (unsigned turn = 0; turn < 2 && state == MEASURED; turn++) {
            enum ab_side side = first ^ turn ? AB_WITH : AB_WITHOUT;
            state = phase(&p, side, &seconds[side], number[side]);
        }
        if (state == MEASURED && i >= ab->warm_ups)
            ab_note(ab, seconds, number);
    }
    ab->ended_early = p.program.ended && state == ENDED;
    if (state != FAILED && !read_traces(ab))
        state = FAILED;
    ab_end(ab, &p.program);
    ab_program_finish(&p.program);
    free(p.item);
    return state != FAILED;
}
