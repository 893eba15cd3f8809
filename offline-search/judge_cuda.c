/* The cuda device's gates. Two workers (runner_cuda.h): the runner holds the candidate, the generic and inputs, and
 * serves candidate after candidate until one breaks it; the referee computes float64 references and never holds a
 * candidate. The parent compares and decides. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "accuracy.h"
#include "compile_cuda.h"
#include "kfit/cuda.h"
#include "judge_device.h"
#include "narrow.h"
#include "session_cuda.h"
#include "timing.h"

#define ARENA_BYTES ((size_t)64 << 20)
#define LAUNCH_LIMIT_MS 1000u
#define FLOOR_POINTS 18u

extern const char kfit_judge_cu[]; /* harness/judge.cu */
extern const size_t kfit_judge_cu_bytes;

/* In the order of `distribution` in harness/judge.cu. */
static const struct {
    const char *name;
    bool hidden, by_generic; /* by_generic: the generic says what becomes of NaN and infinity */
} distributions[] = {
    {"normal", false, false},     {"x10", false, false},          {"heavy", false, false},
    {"one_changed", false, false}, {"nonfinite", false, true},    {"late_spike", false, false},
    {"shifted", false, false},    {"one_hot", false, false},      {"negative_rows", false, false},
    {"zeros", false, false},      {"x0.01", false, false},        {"constant", false, false},
    {"alternating", false, false}, {"mixed_scale", true, false},  {"early_zero", true, false},
    {"sparse", true, false},      {"log_uniform", true, false},
};
enum { DISTRIBUTIONS = sizeof distributions / sizeof *distributions, NORMAL = 0 };

/* Inputs that are judged: the float64 values, and what the generic made of them. */
struct case_cuda {
    unsigned distribution;
    uint64_t seed;
    double *ref, *mag;
    uint8_t *generic;
    struct narrow generic_narrow;
    struct kfit_accuracy generic_wide;
};

struct cuda {
    const struct kfit_judge_params *p;
    char program[512];
    uint64_t seed;
    char *cubin;
    size_t cubin_bytes;
    struct kfit_device_info info;
    struct session_cuda runner, referee;
    union kfit_key key, referee_key; /* what each worker is set up for; zero: nothing */
    size_t workspace_bytes;
    unsigned sets, launches; /* copies of the inputs that a cold timing goes round; launches of one cold graph */
    struct kfit_tensor out;
    size_t out_bytes, out_count;
    union kfit_key cases_key;
    struct case_cuda cases[DISTRIBUTIONS]; /* gate 1's, of `cases_key`; they outlive a runner */
    unsigned case_count;
    uint64_t floor_bytes[FLOOR_POINTS];
    double floor_ns[FLOOR_POINTS];
    unsigned floor_points;
    enum kfit_code broken; /* why the runner was lost while the candidate ran */
    char broken_at[64];
};

/* ---- workers ---- */

static enum kfit_status open_worker(struct cuda *c, struct session_cuda *s, struct kfit_error *err)
{
    return s->pid ? KFIT_OK : session_cuda_open(s, c->program, ARENA_BYTES, err);
}

/* Sets a worker up for a key. */
static enum kfit_status prepare(struct cuda *c, struct session_cuda *s, union kfit_key *now, const union kfit_key *key,
                                const struct kfit_generic *generic, size_t workspace, struct kfit_error *err)
{
    bool same = s->pid && now->h.len && kfit_key_equal(now, key) && workspace <= c->workspace_bytes;
    enum kfit_status st = open_worker(c, s, err);
    if (st != KFIT_OK || same)
        return st;
    struct kfit_cu_command m = {.what = KFIT_CU_START, .bytes = c->cubin_bytes, .workspace_bytes = workspace, .key = *key,
                                .limit_ms = 20000};
    if (generic)
        m.generic = *generic;
    memcpy(s->arena, c->cubin, c->cubin_bytes);
    memset(now, 0, sizeof *now);
    st = session_cuda_do(s, &m, err);
    if (st == KFIT_OK) {
        *now = *key;
        c->info = s->reply.info;
        if (generic) {
            c->sets = s->reply.sets;
            c->launches = s->reply.launches;
        }
    }
    return st;
}

/* Was the worker lost while the candidate ran? Then that is the candidate's doing, and no error of ours. */
static enum kfit_status blame(struct cuda *c, enum kfit_status st, bool candidate, struct kfit_error *err)
{
    if (st == KFIT_OK || !candidate)
        return st;
    const struct kfit_cu_reply *r = &c->runner.reply;
    if (st != KFIT_E_TIMEOUT && st != KFIT_E_CRASH)
        return st;
    memset(&c->key, 0, sizeof c->key); /* the next one starts a fresh runner */
    c->broken = st == KFIT_E_TIMEOUT                 ? KFIT_CODE_WRONG_HANG
                : r->refused                         ? KFIT_CODE_STATIC_RESOURCES
                : r->error == KFIT_CU_ILLEGAL_ADDRESS ? KFIT_CODE_WRONG_BOUNDS
                                                      : KFIT_CODE_WRONG_CRASH;
    snprintf(c->broken_at, sizeof c->broken_at, "%.63s", err ? err->text : "");
    return KFIT_OK;
}

static enum kfit_status fill(struct session_cuda *s, unsigned distribution, uint64_t seed, unsigned placement,
                             struct kfit_error *err)
{
    struct kfit_cu_command m = {.what = KFIT_CU_FILL, .distribution = distribution, .seed = seed, .placement = placement,
                                .limit_ms = LAUNCH_LIMIT_MS};
    return session_cuda_do(s, &m, err);
}

static enum kfit_status load(struct cuda *c, unsigned who, const void *image, size_t bytes, const struct kfit_plan *plan,
                             struct kfit_error *err)
{
    struct kfit_cu_command m = {.what = KFIT_CU_LOAD, .who = who, .bytes = image ? bytes : 0, .limit_ms = 20000};
    if (image) {
        m.plan = *plan;
        memcpy(c->runner.arena, image, bytes);
    }
    return session_cuda_do(&c->runner, &m, err);
}

/* Poison in the type of the output: NaN, or 2^100 where the type reaches that far. */
static uint32_t poison_word(enum kfit_dtype type, unsigned which)
{
    if (type == KFIT_F32)
        return which ? 0x71800000u : 0x7fc5a5a5u;
    return which ? (type == KFIT_BF16 ? 0x71807180u : 0x7bff7bffu) : 0x7fc57fc5u;
}

static enum kfit_status launch(struct cuda *c, unsigned who, unsigned count, unsigned poison, struct kfit_error *err)
{
    struct kfit_cu_command m = {.what = KFIT_CU_LAUNCH, .who = who, .count = count, .limit_ms = LAUNCH_LIMIT_MS,
                                .poison = poison_word(c->out.type, poison)};
    return blame(c, session_cuda_do(&c->runner, &m, err), who != KFIT_CU_GENERIC, err);
}

/* ---- cases ---- */

static void case_finish(struct case_cuda *k)
{
    free(k->ref);
    free(k->generic);
    memset(k, 0, sizeof *k);
}

/* ref and mag of the inputs, from the referee. */
static enum kfit_status reference(struct cuda *c, unsigned distribution, uint64_t seed, double *ref, struct kfit_error *err)
{
    enum kfit_status st = prepare(c, &c->referee, &c->referee_key, &c->key, NULL, 0, err);
    if (st == KFIT_OK)
        st = fill(&c->referee, distribution, seed, 2, err);
    const struct kfit_cu_command m = {.what = KFIT_CU_REFERENCE, .limit_ms = 20000};
    if (st == KFIT_OK)
        st = session_cuda_do(&c->referee, &m, err);
    if (st == KFIT_OK)
        memcpy(ref, c->referee.arena, 2 * c->out_count * sizeof *ref);
    return st;
}

/* Compares an output with a case; fills the statistics of its type. */
static enum kfit_code compare(struct cuda *c, const struct case_cuda *k, unsigned poison, const void *out,
                              struct narrow *narrow, struct kfit_accuracy *wide, char at[64])
{
    const int64_t reduction = kfit_op_of(&c->key)->reduction(&c->key);
    const uint8_t *generic = distributions[k->distribution].by_generic ? k->generic : NULL;
    if (c->out.type == KFIT_F32 || c->out.type == KFIT_F64) {
        uint32_t word = poison_word(c->out.type, poison);
        uint8_t *before = malloc(c->out_bytes);
        if (!before)
            return KFIT_CODE_NONE;
        for (size_t i = 0; i < c->out_bytes; i++)
            before[i] = (uint8_t)(word >> 8 * (i % 4));
        const struct kfit_expected e = {&c->out, before, k->ref, k->mag, generic};
        enum kfit_code code = kfit_accuracy_add(wide, &e, out, at);
        free(before);
        return code;
    }
    return narrow_add(narrow, &c->out, (uint16_t)poison_word(c->out.type, poison), k->ref, k->mag, reduction,
                      (const uint16_t *)(const void *)generic, out, at);
}

/* Makes a case: inputs in the runner, reference by the referee, output of the generic, which must be right itself. */
static enum kfit_status case_make(struct cuda *c, struct case_cuda *k, unsigned distribution, uint64_t seed,
                                  struct kfit_error *err)
{
    char at[64] = "";
    *k = (struct case_cuda){.distribution = distribution, .seed = seed};
    k->ref = malloc(2 * c->out_count * sizeof *k->ref);
    k->generic = malloc(c->out_bytes);
    if (!k->ref || !k->generic)
        return kfit_fail(err, KFIT_E_NOMEM, "judge: out of memory");
    k->mag = k->ref + c->out_count;
    enum kfit_status st = reference(c, distribution, seed, k->ref, err);
    if (st == KFIT_OK)
        st = fill(&c->runner, distribution, seed, 2, err);
    if (st == KFIT_OK)
        st = launch(c, KFIT_CU_GENERIC, 1, 0, err);
    if (st != KFIT_OK)
        return st;
    memcpy(k->generic, c->runner.arena, c->out_bytes);
    enum kfit_code code = compare(c, k, 0, k->generic, &k->generic_narrow, &k->generic_wide, at);
    if (!code && kfit_accuracy_hopeless(&k->generic_wide, kfit_op_of(&c->key)->reduction(&c->key)))
        snprintf(at, sizeof at, "rms %.3g", kfit_accuracy_rms(&k->generic_wide)), code = KFIT_CODE_WRONG_ACCURACY;
    if (code && !distributions[distribution].by_generic)
        return kfit_fail(err, KFIT_E_REFUSED, "judge: the generic itself is wrong on %s inputs: %s",
                         distributions[distribution].name, at);
    return KFIT_OK;
}

static enum kfit_status fixed_cases(struct cuda *c, struct kfit_error *err)
{
    for (unsigned d = 0; c->case_count < DISTRIBUTIONS && d < DISTRIBUTIONS; d++) {
        if (distributions[d].hidden || d < c->case_count)
            continue;
        enum kfit_status st = case_make(c, &c->cases[c->case_count], d, c->seed ^ kfit_key_hash(&c->key), err);
        if (st != KFIT_OK) {
            case_finish(&c->cases[c->case_count]);
            return st;
        }
        c->case_count++;
    }
    return KFIT_OK;
}

static void drop_cases(struct cuda *c)
{
    for (unsigned i = 0; i < DISTRIBUTIONS; i++)
        case_finish(&c->cases[i]);
    c->case_count = 0;
}

/* ---- correctness ---- */

static enum kfit_code manners(const struct kfit_cu_reply *r, char at[64])
{
    if (r->inputs_changed)
        return snprintf(at, 64, "an input is not what it was"), KFIT_CODE_WRONG_INPUT;
    if (r->bands_changed) {
        snprintf(at, 64, "%lld bytes %s", (long long)llabs(r->band_offset), r->band_offset < 0 ? "before the start" : "past the end");
        return KFIT_CODE_WRONG_BOUNDS;
    }
    if (r->workspace_dirty)
        return snprintf(at, 64, "the workspace was not left zero"), KFIT_CODE_WRONG_WORKSPACE;
    return KFIT_CODE_NONE;
}

/* The gaps between rows of the output are poison still. */
static bool gaps_kept(const struct cuda *c, const uint8_t *out, unsigned poison)
{
    size_t size = kfit_dtype_bytes(c->out.type), row = (size_t)c->out.cols * size, pitch = (size_t)c->out.ld * size;
    uint32_t word = poison_word(c->out.type, poison);
    for (int64_t i = 0; i + 1 < c->out.rows; i++)
        for (size_t b = (size_t)i * pitch + row; b < (size_t)(i + 1) * pitch; b++)
            if (out[b] != (uint8_t)(word >> 8 * (b % 4)))
                return false;
    return true;
}

/* Runs a case once at a placement with a poison; the first failing check is in g. */
static enum kfit_status try_case(struct cuda *c, const struct case_cuda *k, unsigned placement, unsigned poison,
                                 unsigned count, struct kfit_gate_result *g, struct kfit_error *err)
{
    struct narrow narrow = {0};
    struct kfit_accuracy wide = {0};
    enum kfit_status st = fill(&c->runner, k->distribution, k->seed, placement, err);
    if (st == KFIT_OK)
        st = launch(c, KFIT_CU_CANDIDATE, count, poison, err);
    if (st != KFIT_OK)
        return st;
    g->seeds++;
    snprintf(g->distribution, sizeof g->distribution, "%s", distributions[k->distribution].name);
    if (c->broken) {
        g->code = c->broken;
        snprintf(g->at, sizeof g->at, "%s", c->broken_at);
        return KFIT_OK;
    }
    g->code = manners(&c->runner.reply, g->at);
    if (!g->code && c->out.dir == KFIT_OUT && !gaps_kept(c, c->runner.arena, poison)) {
        g->code = KFIT_CODE_WRONG_BOUNDS;
        snprintf(g->at, sizeof g->at, "written between the rows of the output");
    }
    if (!g->code)
        g->code = compare(c, k, poison, c->runner.arena, &narrow, &wide, g->at);
    bool is_wide = c->out.type == KFIT_F32 || c->out.type == KFIT_F64;
    if (is_wide) {
        g->err_rms = kfit_accuracy_rms(&wide);
        g->err_worst = wide.worst;
    } else {
        g->err_rms = narrow.n ? (double)narrow.misrounded / (double)narrow.n : 0;
        g->err_worst = narrow.worst;
    }
    if (!g->code && !distributions[k->distribution].by_generic &&
        !(is_wide ? kfit_accuracy_accept(&wide, &k->generic_wide, kfit_op_of(&c->key)->reduction(&c->key))
                  : narrow_accept(&narrow, &k->generic_narrow))) {
        g->code = KFIT_CODE_WRONG_ACCURACY;
        snprintf(g->at, sizeof g->at, is_wide ? "rms %.3g, worst %.3g" : "%.3g misrounded, worst %.3g of what is allowed",
                 g->err_rms, g->err_worst);
    }
    return KFIT_OK;
}

/* The same inputs again: same bits whatever was in memory before, whatever ran before. */
static enum kfit_status repeatable(struct cuda *c, const struct case_cuda *k, struct kfit_gate_result *g,
                                   struct kfit_error *err)
{
    static const unsigned counts[] = {1, 1, 64};
    uint8_t *first = malloc(c->out_bytes);
    if (!first)
        return kfit_fail(err, KFIT_E_NOMEM, "judge: out of memory");
    enum kfit_status st = KFIT_OK;
    for (unsigned i = 0; i < 3 && st == KFIT_OK && !g->code; i++) {
        st = try_case(c, k, i % 3, i & 1, counts[i], g, err);
        if (st != KFIT_OK || g->code)
            break;
        size_t size = kfit_dtype_bytes(c->out.type), row = (size_t)c->out.cols * size, pitch = (size_t)c->out.ld * size;
        for (int64_t r = 0; r < c->out.rows && i; r++)
            if (memcmp(first + (size_t)r * pitch, c->runner.arena + (size_t)r * pitch, row)) {
                g->code = counts[i] > 1 ? KFIT_CODE_WRONG_LATER : KFIT_CODE_WRONG_REPEAT;
                snprintf(g->at, sizeof g->at, "row %lld differs after %u launches", (long long)r, counts[i]);
                break;
            }
        if (!i)
            memcpy(first, c->runner.arena, c->out_bytes);
    }
    free(first);
    return st;
}

static enum kfit_status correct(struct judge_trial *t, const struct case_cuda *cases, unsigned n,
                                struct kfit_gate_result *g, struct kfit_error *err)
{
    struct cuda *c = t->device;
    enum kfit_status st = KFIT_OK;
    double worst = 0, rms = 0;
    for (unsigned i = 0; i < n && st == KFIT_OK && !g->code; i++) {
        st = try_case(c, &cases[i], i % 3, i & 1, 1, g, err);
        worst = g->err_worst > worst ? g->err_worst : worst;
        rms = g->err_rms > rms ? g->err_rms : rms;
    }
    if (st == KFIT_OK && !g->code) {
        st = repeatable(c, &cases[0], g, err);
        g->err_worst = worst;
        g->err_rms = rms;
    }
    g->ok = !g->code;
    return st;
}

static enum kfit_status gate_correct(struct judge_trial *t, struct kfit_gate_result *g, struct kfit_error *err)
{
    struct cuda *c = t->device;
    enum kfit_status st = KFIT_OK;
    if (c->broken) { /* the image could not even be loaded */
        g->code = c->broken;
        snprintf(g->at, sizeof g->at, "%s", c->broken_at);
        return KFIT_OK;
    }
    st = correct(t, c->cases, c->case_count, g, err);
    t->r->deterministic = st == KFIT_OK && g->ok;
    return st;
}

/* Seeds from the OS, for this evaluation only; what is found goes no further than the code. */
static enum kfit_status hidden(struct judge_trial *t, struct kfit_gate_result *g, struct kfit_error *err)
{
    struct cuda *c = t->device;
    enum kfit_status st = KFIT_OK;
    for (unsigned d = 0; d < DISTRIBUTIONS && st == KFIT_OK && !g->code; d++) {
        if (!distributions[d].hidden && d != NORMAL)
            continue;
        struct case_cuda k;
        st = case_make(c, &k, d, judge_os_random(), err);
        if (st == KFIT_OK)
            st = try_case(c, &k, d % 3, d & 1, 1, g, err);
        if (st == KFIT_E_REFUSED) {
            g->code = KFIT_CODE_GENERIC_WRONG;
            snprintf(g->at, sizeof g->at, "%.63s", err ? err->text : "");
            st = KFIT_OK;
        }
        case_finish(&k);
    }
    g->ok = !g->code;
    return st;
}

static enum kfit_status gate_hidden(struct judge_trial *t, struct kfit_gate_result *g, struct kfit_error *err)
{
    enum kfit_status st = hidden(t, g, err);
    if (g->code && g->code != KFIT_CODE_GENERIC_WRONG)
        g->code = KFIT_CODE_HIDDEN_WRONG;
    g->distribution[0] = g->at[0] = '\0';
    return st;
}

/* ---- timing ---- */

struct bench {
    struct cuda *c;
    unsigned incumbent, mode;
    uint64_t seed, fill_seed;
    bool filled;
};

static enum kfit_status pairs(struct bench *b, unsigned who, unsigned who2, unsigned n, double *const ns[2],
                              struct kfit_error *err)
{
    struct kfit_cu_command m = {.what = KFIT_CU_PAIRS, .who = who, .who2 = who2, .count = n, .mode = b->mode,
                                .seed = kfit_random(&b->seed), .fill = !b->filled, .fill_seed = b->fill_seed,
                                .limit_ms = 5000};
    struct session_cuda *s = &b->c->runner;
    enum kfit_status st = blame(b->c, session_cuda_do(s, &m, err), who2 == KFIT_CU_CANDIDATE, err);
    if (st != KFIT_OK || b->c->broken)
        return st;
    b->filled = true;
    const struct kfit_cu_times *times = (const struct kfit_cu_times *)s->arena;
    for (unsigned side = 0; side < 2; side++)
        memcpy(ns[side], times->ns[side], n * sizeof(double));
    return KFIT_OK;
}

static enum kfit_status source(void *ctx, bool against_itself, unsigned n, double *const ns[2], struct kfit_error *err)
{
    struct bench *b = ctx;
    enum kfit_status st = pairs(b, b->incumbent, against_itself ? b->incumbent : KFIT_CU_CANDIDATE, n, ns, err);
    if (st == KFIT_OK && b->c->broken)
        st = KFIT_E_REFUSED; /* the decision cannot go on; the caller knows why */
    return st;
}

/* Median of a few calls of who, cold. */
static enum kfit_status median_of(struct bench *b, unsigned who, double *ns, struct kfit_error *err)
{
    double a[12], z[12];
    enum kfit_status st = pairs(b, who, who, 12, (double *[]){a, z}, err);
    if (st == KFIT_OK)
        *ns = kfit_median(a, 12);
    return st;
}

/* After timing, what was computed while timed must be right: the first slot and a few others. */
static enum kfit_status check_timed(struct bench *b, struct kfit_gate_result *g, struct kfit_error *err)
{
    struct cuda *c = b->c;
    struct case_cuda k = {.distribution = NORMAL, .ref = malloc(2 * c->out_count * sizeof(double))};
    enum kfit_status st = k.ref ? KFIT_OK : kfit_fail(err, KFIT_E_NOMEM, "judge: out of memory");
    k.mag = k.ref ? k.ref + c->out_count : NULL;
    for (unsigned i = 0; st == KFIT_OK && !g->code && i < KFIT_CU_CHECKED; i++) {
        struct narrow narrow = {0};
        struct kfit_accuracy wide = {0};
        unsigned slot = i ? (unsigned)(kfit_random(&b->seed) % c->launches) : 0; /* of the graph that surely ran */
        const struct kfit_cu_command m = {.what = KFIT_CU_OUTPUT, .who = 1, .slot = slot, .limit_ms = LAUNCH_LIMIT_MS};
        st = reference(c, NORMAL, b->fill_seed + slot % c->sets, k.ref, err);
        if (st == KFIT_OK)
            st = session_cuda_do(&c->runner, &m, err);
        if (st != KFIT_OK)
            break;
        if (compare(c, &k, 0, c->runner.arena, &narrow, &wide, g->at))
            g->code = KFIT_CODE_WRONG_LATER;
    }
    free(k.ref);
    return st;
}

static enum kfit_status time_it(struct judge_trial *t, bool brief, struct kfit_gate_result *g, struct kfit_error *err)
{
    struct cuda *c = t->device;
    struct bench b = {.c = c, .incumbent = KFIT_CU_GENERIC, .mode = KFIT_CU_COLD, .seed = judge_os_random(),
                      .fill_seed = judge_os_random()};
    struct kfit_timing *out = t->r->timings;
    struct kfit_timing_decision d;
    double ns_generic = 0, ns_winner = 0;
    enum kfit_status st = KFIT_OK;
    if (t->job->incumbent_image && !brief) {
        st = median_of(&b, KFIT_CU_GENERIC, &ns_generic, err);
        if (st == KFIT_OK)
            st = median_of(&b, KFIT_CU_INCUMBENT, &ns_winner, err);
        if (st == KFIT_OK && ns_winner < ns_generic)
            b.incumbent = KFIT_CU_INCUMBENT;
    }
    const struct kfit_decision_params how = {.source = source, .ctx = &b, .timer_step_ns = c->info.timer_step_ns / c->launches,
                                             .seed = judge_os_random(), .pairs_first = brief ? 6 : 0, .pairs_max = brief ? 6 : 0};
    if (st == KFIT_OK)
        st = kfit_timing_decide(&how, &d, err);
    if (c->broken) {
        g->code = c->broken;
        snprintf(g->at, sizeof g->at, "while timed: %.40s", c->broken_at);
        return KFIT_OK;
    }
    if (st != KFIT_OK)
        return st;
    out[0] = (struct kfit_timing){"cold", "inner", d.pairs, d.ratio.mid, d.ratio.lo, d.ratio.hi, d.ns_candidate, d.ns_incumbent,
                                  b.incumbent == KFIT_CU_GENERIC ? d.ns_incumbent : ns_generic};
    t->r->timing_count = 1;
    t->r->noise = d.noise;
    g->code = brief ? KFIT_CODE_NONE : d.code;
    snprintf(g->at, sizeof g->at, "%.4f [%.4f, %.4f], threshold %.4f", d.ratio.mid, d.ratio.lo, d.ratio.hi, d.threshold);
    if (!brief && !g->code)
        st = check_timed(&b, g, err);
    /* Warm and plain launches are reported; plain ones can veto. */
    for (unsigned mode = KFIT_CU_WARM; mode < KFIT_CU_MODES && !brief && !g->code && st == KFIT_OK; mode++) {
        double a[KFIT_PAIRS_FIRST], z[KFIT_PAIRS_FIRST], ratio[KFIT_PAIRS_FIRST];
        b.mode = mode;
        st = pairs(&b, b.incumbent, KFIT_CU_CANDIDATE, KFIT_PAIRS_FIRST, (double *[]){a, z}, err);
        if (st != KFIT_OK || c->broken)
            break;
        for (unsigned i = 0; i < KFIT_PAIRS_FIRST; i++)
            ratio[i] = a[i] / z[i];
        struct kfit_interval r = kfit_median_interval(ratio, KFIT_PAIRS_FIRST, b.seed);
        out[t->r->timing_count++] = (struct kfit_timing){"", "inner", KFIT_PAIRS_FIRST, r.mid, r.lo, r.hi,
                                                         kfit_median(z, KFIT_PAIRS_FIRST), kfit_median(a, KFIT_PAIRS_FIRST), 0};
        snprintf(out[t->r->timing_count - 1].mode, sizeof out->mode, "%s", mode == KFIT_CU_WARM ? "warm" : "plain");
        if (mode == KFIT_CU_PLAIN && r.hi < 1) {
            g->code = KFIT_CODE_SLOW_BEHIND;
            snprintf(g->at, sizeof g->at, "plain launches: %.4f [%.4f, %.4f]", r.mid, r.lo, r.hi);
        }
    }
    if (st == KFIT_OK && !brief && !g->code && c->out.dir == KFIT_OUT) /* inout was added to more than once when warm */
        st = check_timed(&b, g, err);
    g->ok = !g->code;
    return st;
}

static enum kfit_status gate_screen(struct judge_trial *t, struct kfit_gate_result *g, struct kfit_error *err)
{
    return time_it(t, true, g, err);
}

static enum kfit_status gate_fast(struct judge_trial *t, struct kfit_gate_result *g, struct kfit_error *err)
{
    return time_it(t, false, g, err);
}

/* ---- trials ---- */

static enum kfit_status set_up(struct cuda *c, const union kfit_key *key, size_t workspace, struct kfit_error *err)
{
    if (!kfit_key_equal(&c->cases_key, key)) {
        drop_cases(c);
        c->cases_key = *key;
    }
    if (workspace < c->workspace_bytes && c->runner.pid)
        workspace = c->workspace_bytes;
    enum kfit_status st = prepare(c, &c->runner, &c->key, key, c->p->generic, workspace, err);
    if (st != KFIT_OK)
        return st;
    c->workspace_bytes = workspace;
    kfit_op_of(key)->tensor(key, kfit_op_of(key)->out_arg, &c->out);
    c->out_bytes = kfit_tensor_bytes(&c->out);
    c->out_count = (size_t)c->out.rows * (size_t)c->out.cols;
    return fixed_cases(c, err);
}

static enum kfit_status begin(struct judge_trial *t, struct kfit_error *err)
{
    struct cuda *c = t->device;
    const struct kfit_judge_job *job = t->job;
    size_t workspace = job->plan->workspace_bytes;
    c->broken = KFIT_CODE_NONE;
    if (job->incumbent_image && job->incumbent_plan->workspace_bytes > workspace)
        workspace = job->incumbent_plan->workspace_bytes;
    if (job->image_bytes > ARENA_BYTES || job->incumbent_bytes > ARENA_BYTES)
        return kfit_fail(err, KFIT_E_ARG, "judge: an image of %zu bytes; at most %zu", job->image_bytes, ARENA_BYTES);
    enum kfit_status st = set_up(c, job->key, workspace, err);
    if (st == KFIT_E_REFUSED) {
        t->r->verdict = KFIT_VERDICT_REFUSED;
        t->r->code = KFIT_CODE_GENERIC_WRONG;
        snprintf(t->r->detail, sizeof t->r->detail, "%.255s", err ? err->text : "");
    }
    if (st == KFIT_OK)
        st = load(c, KFIT_CU_INCUMBENT, job->incumbent_image, job->incumbent_bytes, job->incumbent_plan, err);
    if (st == KFIT_OK)
        st = blame(c, load(c, KFIT_CU_CANDIDATE, job->image, job->image_bytes, job->plan, err), true, err);
    if (st == KFIT_OK && c->runner.reply.refused) {
        c->broken = KFIT_CODE_STATIC_RESOURCES;
        snprintf(c->broken_at, sizeof c->broken_at, "%.63s", c->runner.reply.message);
    }
    return st;
}

static void end(struct judge_trial *t)
{
    (void)t; /* the runner stays warm */
}

/* A winner once more: fresh process, fresh seeds; these numbers stay. */
static enum kfit_status gate_repeat(struct judge_trial *t, struct kfit_gate_result *g, struct kfit_error *err)
{
    struct cuda *c = t->device;
    session_cuda_close(&c->runner);
    memset(&c->key, 0, sizeof c->key);
    enum kfit_status st = begin(t, err);
    if (st == KFIT_OK && c->broken) {
        g->code = c->broken;
        snprintf(g->at, sizeof g->at, "%s", c->broken_at);
    } else if (st == KFIT_OK)
        st = hidden(t, g, err);
    bool wrong = g->code;
    if (st == KFIT_OK && !wrong)
        st = time_it(t, false, g, err);
    judge_repeat_verdict(t, g, wrong);
    return st;
}

static const struct judge_gate gates[] = {
    {"correct", gate_correct, true, true},    {"screen", gate_screen, true, false},
    {"hidden", gate_hidden, false, true},     {"fast", gate_fast, false, true},
    {"bound", judge_gate_bound, false, true}, {"repeat", gate_repeat, false, true},
    {0},
};

/* ---- the device ---- */

static enum kfit_status check_key(const union kfit_key *key, struct kfit_error *err)
{
    const struct kfit_gemm_key *g = &key->gemm;
    if (g->op != KFIT_OP_GEMM || g->len != KFIT_GEMM_KEY_BYTES || g->type_a != g->type_b || g->type_a == KFIT_F64 ||
        (g->type_c != g->type_a && g->type_c != KFIT_F32) || g->type_acc != KFIT_F32 || g->alpha != KFIT_SCALAR_ONE ||
        g->beta == KFIT_SCALAR_OTHER)
        return kfit_fail(err, KFIT_E_UNSUPPORTED, "judge: the cuda device judges plain gemm of bf16, fp16 or f32 with float32 "
                                                  "accumulation, alpha 1 and beta 0 or 1");
    if ((size_t)g->m * (size_t)g->n * 2 * sizeof(double) > ARENA_BYTES)
        return kfit_fail(err, KFIT_E_UNSUPPORTED, "judge: an output of %d x %d is larger than the judge's arena", g->m, g->n);
    return KFIT_OK;
}

static void cuda_close(void *device)
{
    struct cuda *c = device;
    session_cuda_close(&c->runner);
    session_cuda_close(&c->referee);
    drop_cases(c);
    free(c->cubin);
    free(c);
}

static enum kfit_status cuda_open(const struct kfit_judge_params *p, uint64_t seed, void **device, struct kfit_error *err)
{
    struct cuda *c = calloc(1, sizeof *c);
    char arch[32], option[64];
    struct kfit_built built = {0};
    if (!c)
        return kfit_fail(err, KFIT_E_NOMEM, "judge: out of memory");
    *c = (struct cuda){.p = p, .seed = seed};
    c->runner.socket = c->runner.arena_fd = c->referee.socket = c->referee.arena_fd = -1;
    enum kfit_status st = judge_find_program(p->runner, "kfit-runner-cuda", c->program, err);
    if (st == KFIT_OK && !kfit_env_get(p->env->hard, "isa", arch, sizeof arch))
        st = kfit_fail(err, KFIT_E_ARG, "judge: the environment names no architecture: %s", p->env->hard);
    if (st == KFIT_OK) {
        const struct kfit_compile_params how = {.allow_no_isolation = true}; /* our own source */
        snprintf(option, sizeof option, "--gpu-architecture=%s", arch);
        st = kfit_nvrtc_run(&how, (const char *[]){"-std=c++17", "-default-device", option}, 3, kfit_judge_cu,
                            kfit_judge_cu_bytes, &c->cubin, &c->cubin_bytes, NULL, NULL, &built, err);
        if (st == KFIT_E_REFUSED)
            st = kfit_fail(err, KFIT_E_UNSUPPORTED, "judge: NVRTC cannot compile for %s: %.300s", arch, built.detail);
    }
    if (st != KFIT_OK) {
        cuda_close(c);
        return st;
    }
    *device = c;
    return KFIT_OK;
}

enum kfit_status kfit_judge_cuda_env(const char *runner, const struct kfit_generic *generic, struct kfit_env *env,
                                     struct kfit_device_info *info, struct kfit_error *err)
{
    char program[512], driver[32], blas[48], compiler[64];
    struct session_cuda s = {.socket = -1, .arena_fd = -1};
    struct kfit_cu_command m = {.what = KFIT_CU_DESCRIBE, .generic = *generic, .limit_ms = 20000};
    enum kfit_status st = judge_find_program(runner, "kfit-runner-cuda", program, err);
    if (st == KFIT_OK)
        st = kfit_nvrtc_version(compiler, sizeof compiler, err);
    if (st == KFIT_OK)
        st = session_cuda_open(&s, program, 4096, err);
    if (st == KFIT_OK)
        st = session_cuda_do(&s, &m, err);
    if (st == KFIT_E_CRASH)
        st = KFIT_E_UNSUPPORTED; /* the message says what is missing */
    if (st == KFIT_OK) {
        const struct kfit_cu_reply *r = &s.reply;
        snprintf(driver, sizeof driver, "CUDA %d.%d", r->driver / 1000, r->driver % 1000 / 10);
        snprintf(blas, sizeof blas, "cuBLAS %d.%d.%d", r->blas / 10000, r->blas / 100 % 100, r->blas % 100);
        kfit_env_cuda(env, r->info.arch, r->info.model, r->info.units, driver, blas, compiler);
        if (info)
            *info = r->info;
    }
    session_cuda_close(&s);
    return st;
}

static enum kfit_status time_generic(void *device, const union kfit_key *key, double *ns, struct kfit_error *err)
{
    struct cuda *c = device;
    struct bench b = {.c = c, .mode = KFIT_CU_COLD, .seed = c->seed, .fill_seed = c->seed};
    enum kfit_status st = set_up(c, key, c->workspace_bytes, err);
    return st == KFIT_OK ? median_of(&b, KFIT_CU_GENERIC, ns, err) : st;
}

/* The best pure read of as many cold bytes, interpolated between measured sizes. */
static enum kfit_status bound(void *device, const union kfit_key *key, double *ns, struct kfit_error *err)
{
    struct cuda *c = device;
    if (!c->floor_points) {
        struct kfit_cu_command m = {.what = KFIT_CU_FLOOR, .count = FLOOR_POINTS, .limit_ms = 10000};
        enum kfit_status st = prepare(c, &c->referee, &c->referee_key, key, NULL, 0, err);
        if (st != KFIT_OK)
            return st;
        for (unsigned i = 0; i < FLOOR_POINTS; i++) /* 64 KB to 256 MB, in steps of 1.63 */
            c->floor_bytes[i] = (uint64_t)(65536 * pow(4096, (double)i / (FLOOR_POINTS - 1))) & ~UINT64_C(15);
        memcpy(c->referee.arena, c->floor_bytes, sizeof c->floor_bytes);
        st = session_cuda_do(&c->referee, &m, err);
        if (st != KFIT_OK)
            return st;
        memcpy(c->floor_ns, c->referee.arena, sizeof c->floor_ns);
        c->floor_points = FLOOR_POINTS;
    }
    double bytes = kfit_op_of(key)->bytes(key);
    unsigned i = 1;
    while (i + 1 < c->floor_points && bytes > (double)c->floor_bytes[i])
        i++;
    double from = (double)c->floor_bytes[i - 1], to = (double)c->floor_bytes[i], at = (bytes - from) / (to - from);
    *ns = c->floor_ns[i - 1] + (at > 0 ? at : 0) * (c->floor_ns[i] - c->floor_ns[i - 1]);
    return KFIT_OK;
}

const struct judge_device judge_cuda = {
    .name = "cuda",
    .gates = gates,
    .open = cuda_open,
    .close = cuda_close,
    .check_key = check_key,
    .begin = begin,
    .end = end,
    .time_generic = time_generic,
    .bound = bound,
};
