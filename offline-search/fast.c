#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fast.h"

#define BATCH_NS    3e5 /* a batch is at least this long, so that the clock's own cost does not show */
#define BRIEF_PAIRS 6u
/* A dispatched call costs 11 to 40 ns, as caches and neighbours are; kernels of 100 ns differ by as much between
 * processes. */
#define CALL_SPREAD_NS 20.0
#define OUTER_PAIRS    3u /* pairs in a command that only the outer clock times */
#define OUTER_ROUNDS   5u
#define OUTER_TRIES    3u
#define NOISY_TRIES    3u
#define BUSY           0.1 /* share of the time that threads of the generic may wait for processors */
#define CLOCKS_APART                                                                                         \
    1.15                  /* outer time of a command over the sum of what the runner says it took, at best   \
                           */
#define OVERHEAD_NS  2e4  /* what a command costs the runner besides */
#define RATIOS_APART 0.90 /* gain by the outer clock over gain by the inner one */

struct bench {
    struct kfit_session *s;
    const struct kfit_case *inputs; /* NULL: what was timed cannot be checked (cold) */
    enum kfit_who incumbent;
    uint32_t reps[4];  /* calls per batch, by who */
    double call_ns[4]; /* rough time of a call, by who */
    uint64_t random;
    double outer_over_inner; /* least seen where the candidate ran */
    bool impossible;         /* the runner says that more time passed than did */
    enum kfit_code code;
    char at[64];
};

double kfit_timer_step_ns(void)
{
    double best = 1e9, last = kfit_now_ns();
    for (int i = 0; i < 1000; i++) {
        double now = kfit_now_ns(), step = now - last;
        if (step > 0 && step < best)
            best = step;
        last = now;
    }
    return best;
}

/* By the kernel's word: on some CPUs sysconf adds up the caches of a whole socket. */
size_t kfit_cold_bytes(void)
{
    struct kfit_device_info info = {0};
    kfit_device_host.describe(&info, NULL);
    size_t twice = 2 * (size_t)(info.llc_bytes ? info.llc_bytes : 32 << 20);
    return twice < 256ul << 20 ? twice : 256ul << 20;
}

/* One command. An image that fails while timed: the candidate is refused; a winner that does is our trouble.
 */
static enum kfit_status command(struct bench *b, enum kfit_runner_command what, double limit_ns,
                                double *outer_ns, struct kfit_error *err)
{
    enum kfit_code code;
    char at[64];
    enum kfit_status st = kfit_session_command(b->s, what, limit_ns, outer_ns, &code, at, err);
    if (st != KFIT_OK || !code)
        return st;
    if (b->s->control->running == 1 + KFIT_RUN_INCUMBENT)
        return kfit_fail(err, KFIT_E_CRASH,
                         "judge: the present winner failed while timed (%s, %s); disable it",
                         kfit_code_str(code), at);
    b->code = code;
    memcpy(b->at, at, sizeof b->at);
    return KFIT_E_REFUSED;
}

static enum kfit_status fill(struct bench *b, unsigned sets, struct kfit_error *err)
{
    struct kfit_runner_control *c = b->s->control;
    c->fill.sets = sets;
    memcpy(c->fill.at, b->s->at, sizeof b->s->at);
    for (unsigned i = 0; i < KFIT_RUNNER_ARGS; i++)
        c->fill.bytes[i] = b->s->bytes[i];
    return command(b, KFIT_RUNNER_FILL, 10e9, NULL, err);
}

/* Outputs of timed launches, chosen where the candidate cannot know. */
static void check_snapshots(struct bench *b, unsigned n)
{
    const struct kfit_runner_pairs *p = &b->s->control->pairs;
    char where[64];
    for (unsigned i = 0; i < KFIT_RUNNER_SNAPSHOTS && p->snapshot[i] < n && !b->code; i++) {
        if (!kfit_case_check_output(b->s, b->inputs, kfit_session_snapshot(b->s, i),
                                    b->reps[KFIT_RUN_CANDIDATE], where))
            continue;
        b->code = KFIT_CODE_WRONG_LATER;
        snprintf(b->at, sizeof b->at, "while timed: %.48s", where);
    }
}

static int ascending(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* n pairs of x and y in random order; ns[side][i] per call. */
static enum kfit_status time_pairs(struct bench *b, enum kfit_who x, enum kfit_who y, unsigned n,
                                   double *const ns[2], double *outer_ns, struct kfit_error *err)
{
    struct kfit_runner_pairs *p = &b->s->control->pairs;
    double wall, inner = 0, cpu_before = kfit_session_cpu_ns(b->s),
                 expected = (b->call_ns[x] * b->reps[x] + b->call_ns[y] * b->reps[y]) * n;
    *p = (struct kfit_runner_pairs){.who = {x, y}, .reps = {b->reps[x], b->reps[y]}, .n = n};
    for (unsigned i = 0; i < n; i++)
        p->first[i] = kfit_random(&b->random) >> 63;
    p->snapshot[0] = n - 1;
    for (unsigned i = 1; i < KFIT_RUNNER_SNAPSHOTS; i++)
        p->snapshot[i] = n > KFIT_RUNNER_SNAPSHOTS ? (uint32_t)(kfit_random(&b->random) % (n - 1)) : n;
    qsort(p->snapshot, KFIT_RUNNER_SNAPSHOTS, sizeof *p->snapshot, ascending);
    for (unsigned i = 1; i < KFIT_RUNNER_SNAPSHOTS; i++) /* distinct, the rest beyond the end */
        if (p->snapshot[i] <= p->snapshot[i - 1])
            p->snapshot[i] = p->snapshot[i - 1] + 1;
    uint32_t keep[KFIT_RUNNER_SNAPSHOTS];
    memcpy(keep, p->snapshot, sizeof keep);

    enum kfit_status st = command(b, KFIT_RUNNER_PAIRS, 1e9 + 50 * expected, &wall, err);
    if (st != KFIT_OK)
        return st;
    memcpy(p->snapshot, keep, sizeof keep);
    const uint32_t reps[2] = {b->reps[x], b->reps[y]};
    for (unsigned i = 0; i < n; i++) {
        for (unsigned side = 0; side < 2; side++) {
            inner += p->ns[side][i];
            ns[side][i] = p->ns[side][i] / reps[side];
        }
    }
    double cpu = kfit_session_cpu_ns(b->s) - cpu_before, clock = cpu > 0 ? cpu - OVERHEAD_NS : wall;
    if (y == KFIT_RUN_CANDIDATE && clock / inner < b->outer_over_inner)
        b->outer_over_inner = clock / inner;
    b->impossible |= inner > 1.02 * wall;
    /* several BLAS threads: this one's processor time is not the whole story */
    if (outer_ns)
        *outer_ns = b->s->control->threads == 1 || kfit_who_is_image(x) ? clock : wall;
    if (b->inputs && y == KFIT_RUN_CANDIDATE)
        check_snapshots(b, n);
    return b->code ? KFIT_E_REFUSED : KFIT_OK;
}

/* How many calls make a batch. */
static enum kfit_status calibrate(struct bench *b, enum kfit_who who, struct kfit_error *err)
{
    double first[KFIT_RUNNER_SNAPSHOTS], second[KFIT_RUNNER_SNAPSHOTS], *const ns[2] = {first, second};
    b->reps[who] = 1;
    b->call_ns[who] = b->s->call_ns;
    for (int round = 0; round < 3; round++) {
        enum kfit_status st = time_pairs(b, who, who, 2, ns, NULL, err);
        if (st != KFIT_OK)
            return st;
        double least = first[1] < second[1] ? first[1] : second[1];
        least = least < first[0] ? least : first[0];
        b->call_ns[who] = least > 1 ? least : 1;
        unsigned before = b->reps[who];
        b->reps[who] = b->call_ns[who] < BATCH_NS ? (uint32_t)(BATCH_NS / b->call_ns[who]) + 1 : 1;
        if (b->reps[who] > 50 * before) /* too short to know yet */
            b->reps[who] = 50 * before;
        else if (b->reps[who] <= 2 * before)
            break;
    }
    return KFIT_OK;
}

/* The faster of two, by a few pairs; both must be calibrated. */
static enum kfit_status faster(struct bench *b, enum kfit_who x, enum kfit_who y, enum kfit_who *best,
                               double *ns_x, struct kfit_error *err)
{
    double t[2][BRIEF_PAIRS], *const ns[2] = {t[0], t[1]};
    enum kfit_status st = time_pairs(b, x, y, BRIEF_PAIRS, ns, NULL, err);
    if (st != KFIT_OK)
        return st;
    *ns_x = kfit_median(t[0], BRIEF_PAIRS);
    *best = *ns_x <= kfit_median(t[1], BRIEF_PAIRS) ? x : y;
    return KFIT_OK;
}

static enum kfit_status source(void *ctx, bool against_itself, unsigned n, double *const ns[2],
                               struct kfit_error *err)
{
    struct bench *b = ctx;
    return time_pairs(b, b->incumbent, against_itself ? b->incumbent : KFIT_RUN_CANDIDATE, n, ns, NULL, err);
}

/* The same gain, seen from outside: commands that run one side only, in turn, best of each. */
static enum kfit_status outer_ratio(struct bench *b, double call_ns, struct kfit_timing *t,
                                    struct kfit_error *err)
{
    double best[2] = {1e300, 1e300}, spare[2][OUTER_PAIRS], *const ns[2] = {spare[0], spare[1]}, outer;
    for (unsigned i = 0; i < OUTER_ROUNDS; i++) {
        for (unsigned side = 0; side < 2; side++) {
            enum kfit_who who = side ? KFIT_RUN_CANDIDATE : b->incumbent;
            enum kfit_status st = time_pairs(b, who, who, OUTER_PAIRS, ns, &outer, err);
            if (st != KFIT_OK)
                return st;
            double per_call = outer / (2.0 * OUTER_PAIRS * b->reps[who]);
            best[side] = per_call < best[side] ? per_call : best[side];
        }
    }
    best[1] += call_ns;
    *t = (struct kfit_timing){.mode = "warm",
                              .clock = "outer",
                              .n = OUTER_ROUNDS,
                              .ns_incumbent = best[0],
                              .ns_candidate = best[1]};
    t->ratio = t->lo = t->hi = best[0] / best[1];
    return KFIT_OK;
}

/* Every call finds its arguments where they were left longest ago. Against the generic, also where a present winner
 * is to be beaten: a little slower than the one before, again and again, would be much slower. */
static enum kfit_status cold(struct bench *b, const struct kfit_fast_params *p, double call_ns,
                             struct kfit_timing *t, struct kfit_error *err)
{
    struct kfit_timing_decision d;
    size_t set = 0;
    for (unsigned i = 0; i < KFIT_RUNNER_ARGS; i++)
        set += kfit_runner_slot_bytes(b->s->bytes[i]);
    unsigned sets = (unsigned)(b->s->control->private_bytes / set);
    *t = (struct kfit_timing){.mode = "cold", .clock = "inner"};
    if (sets < 2) /* one set alone is larger than any cache: warm is cold */
        return KFIT_OK;
    enum kfit_status st = fill(b, sets, err);
    if (st != KFIT_OK)
        return st;
    /* the next batch goes on where this one ended */
    uint32_t reps = b->reps[KFIT_RUN_CANDIDATE];
    b->incumbent = p->generic;
    b->reps[p->generic] = b->reps[KFIT_RUN_CANDIDATE] = reps < sets ? reps : sets;
    b->inputs = NULL;
    const struct kfit_decision_params how = {.source = source,
                                             .ctx = b,
                                             .call_ns = call_ns,
                                             .seed = b->random,
                                             .pairs_first = p->brief ? BRIEF_PAIRS : 0,
                                             .pairs_max = p->brief ? BRIEF_PAIRS : 0};
    st = kfit_timing_not_slower(&how, &d, err);
    if (st != KFIT_OK)
        return st;
    *t = (struct kfit_timing){"cold",     "inner",        d.pairs,        d.ratio.mid,   d.ratio.lo,
                              d.ratio.hi, d.ns_candidate, d.ns_incumbent, d.ns_incumbent};
    if (!p->brief && d.code) {
        b->code = d.code;
        snprintf(b->at, sizeof b->at, "cold %.4f [%.4f, %.4f], at least %.2f", d.ratio.mid, d.ratio.lo,
                 d.ratio.hi, d.threshold);
    }
    return KFIT_OK;
}

static enum kfit_status begin(struct bench *b, struct kfit_session *s, const struct kfit_case *inputs,
                              uint64_t seed, struct kfit_error *err)
{
    *b = (struct bench){.s = s, .inputs = inputs, .random = seed, .outer_over_inner = 1e9};
    kfit_session_place(s, KFIT_PLACE_MIDDLE);
    kfit_case_load(s, inputs, 0);
    return fill(b, 1, err);
}

enum kfit_status kfit_fast_generic(struct kfit_session *s, const struct kfit_case *inputs,
                                   enum kfit_who *generic, double *ns, struct kfit_error *err)
{
    struct bench b;
    double unused;
    enum kfit_status st = begin(&b, s, inputs, 1, err);
    *generic = KFIT_RUN_GEMM;
    if (st == KFIT_OK)
        st = calibrate(&b, KFIT_RUN_GEMM, err);
    if (st == KFIT_OK && s->control->has_gemv)
        st = calibrate(&b, KFIT_RUN_GEMV, err);
    if (st == KFIT_OK && s->control->has_gemv)
        st = faster(&b, KFIT_RUN_GEMM, KFIT_RUN_GEMV, generic, &unused, err);
    if (st == KFIT_OK)
        s->call_ns = b.call_ns[*generic];
    if (st == KFIT_OK && ns)
        st = faster(&b, *generic, *generic, generic, ns, err);
    return st;
}

/* A generic of several threads is as slow as the one that waits longest for a processor, a candidate of one thread is
 * not: on a busy machine it would win by what would not be there on a calm one. With more threads than processors they
 * wait for each other, in the program too. */
static bool own_processors(const struct kfit_session *s)
{
    cpu_set_t set;
    return s->control->threads > 1 && !sched_getaffinity(0, sizeof set, &set) &&
           s->control->threads <= (unsigned)CPU_COUNT(&set);
}

enum kfit_status kfit_fast(const struct kfit_fast_params *p, struct kfit_fast_result *r,
                           struct kfit_error *err)
{
    struct bench b;
    struct kfit_timing_decision d;
    struct kfit_timing *warm = &r->timing[0], *outer = &r->timing[1];
    memset(r, 0, sizeof *r);
    enum kfit_status st = begin(&b, p->session, p->inputs, p->seed, err);
    double ns_generic = 0, busy = 0;
    b.incumbent = p->generic;
    if (st == KFIT_OK)
        st = calibrate(&b, p->generic, err);
    if (st == KFIT_OK)
        st = calibrate(&b, KFIT_RUN_CANDIDATE, err);
    if (st == KFIT_OK && p->has_incumbent) {
        st = calibrate(&b, KFIT_RUN_INCUMBENT, err);
        if (st == KFIT_OK)
            st = faster(&b, p->generic, KFIT_RUN_INCUMBENT, &b.incumbent, &ns_generic, err);
    }
    if (st != KFIT_OK)
        goto out;

    /* entering an image in the runner costs something too: only what dispatch costs beyond that is added */
    double call_ns =
        p->call_ns > p->session->control->enter_ns ? p->call_ns - p->session->control->enter_ns : 0;
    const struct kfit_decision_params how = {.source = source,
                                             .ctx = &b,
                                             .call_ns = call_ns,
                                             .call_spread_ns = CALL_SPREAD_NS,
                                             .timer_step_ns = p->timer_step_ns / b.reps[b.incumbent],
                                             .seed = p->seed,
                                             .pairs_first = p->brief ? BRIEF_PAIRS : 0,
                                             .pairs_max = p->brief ? BRIEF_PAIRS : 0};
    for (unsigned tries = 0; tries < (p->brief ? 1 : NOISY_TRIES); tries++) {
        double waited = kfit_session_waited_ns(p->session), begun = kfit_now_ns();
        st = kfit_timing_decide(&how, &d, err);
        if (st != KFIT_OK)
            goto out;
        busy = (kfit_session_waited_ns(p->session) - waited) / (kfit_now_ns() - begun);
        if (d.code == KFIT_CODE_NONE && b.incumbent == p->generic && own_processors(p->session) &&
            busy > BUSY)
            d.code = KFIT_CODE_TIMING_NOISE;
        if (d.code != KFIT_CODE_TIMING_NOISE) /* else something else was running: it may be gone */
            break;
    }
    *warm = (struct kfit_timing){
        "warm",         "inner",        d.pairs,
        d.ratio.mid,    d.ratio.lo,     d.ratio.hi,
        d.ns_candidate, d.ns_incumbent, b.incumbent == p->generic ? d.ns_incumbent : ns_generic};
    r->timings = 1;
    r->noise = d.noise;
    b.code = p->brief ? KFIT_CODE_NONE : d.code;
    if (b.code == KFIT_CODE_TIMING_NOISE && d.ratio.lo > d.threshold)
        snprintf(b.at, sizeof b.at, "other load kept its threads waiting %.2f of the time", busy);
    else
        snprintf(b.at, sizeof b.at, "%.4f [%.4f, %.4f], threshold %.4f", d.ratio.mid, d.ratio.lo, d.ratio.hi,
                 d.threshold);
    if (p->brief && p->cold) {
        st = cold(&b, p, call_ns, &r->timing[1], err);
        r->timings += st == KFIT_OK && r->timing[1].n;
    }
    if (p->brief || b.code)
        goto out;
    b.at[0] = '\0';

    for (unsigned tries = 0; tries < OUTER_TRIES; tries++) {
        st = outer_ratio(&b, call_ns, outer, err);
        if (st != KFIT_OK)
            goto out;
        r->timings = 2;
        outer->ns_generic = warm->ns_generic;
        if (outer->ratio >= RATIOS_APART * warm->ratio && b.outer_over_inner <= CLOCKS_APART)
            break;
    }
    if (!(outer->ratio >= RATIOS_APART * warm->ratio && b.outer_over_inner <= CLOCKS_APART &&
          !b.impossible)) {
        b.code = KFIT_CODE_TIMING_CLOCKS;
        snprintf(b.at, sizeof b.at, "gain %.2f inside, %.2f outside; times %.2f", warm->ratio, outer->ratio,
                 b.outer_over_inner);
        goto out;
    }
    if (p->cold)
        st = cold(&b, p, call_ns, &r->timing[2], err);
    if (st == KFIT_OK)
        r->timings = r->timing[2].n ? 3 : 2;
out:
    r->code = b.code;
    memcpy(r->at, b.at, sizeof r->at);
    return st == KFIT_E_REFUSED && b.code ? KFIT_OK : st;
}
