/* Gates 1 and 2 on cuda: outputs against float64, manners against bands and poison. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_judge.h"

/* In the order of `distribution` in harness/judge.cu. */
static const struct {
    const char *name;
    bool hidden, by_generic; /* by_generic: the generic says what becomes of NaN and infinity */
} distributions[] = {
    {"normal", false, false},      {"x10", false, false},        {"heavy", false, false},
    {"one_changed", false, false}, {"nonfinite", false, true},   {"late_spike", false, false},
    {"shifted", false, false},     {"one_hot", false, false},    {"negative_rows", false, false},
    {"zeros", false, false},       {"x0.01", false, false},      {"constant", false, false},
    {"alternating", false, false}, {"mixed_scale", true, false}, {"early_zero", true, false},
    {"sparse", true, false},       {"log_uniform", true, false},
};
enum { DISTRIBUTIONS = sizeof distributions / sizeof *distributions };
_Static_assert((int)DISTRIBUTIONS <= (int)CUDA_CASES_MAX, "a case of each");

/* Poison in the type of the output: NaN, or 2^100 where the type reaches that far. */
static uint32_t poison_word(enum kfit_dtype type, unsigned which)
{
    if (type == KFIT_F32)
        return which ? 0x71800000u : 0x7fc5a5a5u;
    return which ? (type == KFIT_BF16 ? 0x71807180u : 0x7bff7bffu) : 0x7fc57fc5u;
}

static enum kfit_status launch(struct cuda *c, unsigned who, unsigned count, unsigned poison,
                               struct kfit_error *err)
{
    struct kfit_cu_command m = {.what = KFIT_CU_LAUNCH,
                                .who = who,
                                .count = count,
                                .limit_ms = CUDA_LAUNCH_LIMIT_MS,
                                .poison = poison_word(c->out.type, poison)};
    return cuda_blame(c, session_cuda_do(&c->runner, &m, err), who != KFIT_CU_GENERIC, err);
}

/* ---- cases ---- */

static void case_finish(struct case_cuda *k)
{
    free(k->ref);
    free(k->generic);
    memset(k, 0, sizeof *k);
}

/* Compares an output with a case; fills the statistics of its type. */
enum kfit_code cuda_compare(struct cuda *c, const struct case_cuda *k, unsigned poison, const void *out,
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
    enum kfit_status st = cuda_reference(c, distribution, seed, k->ref, err);
    if (st == KFIT_OK)
        st = cuda_fill(&c->runner, distribution, seed, 2, err);
    if (st == KFIT_OK)
        st = launch(c, KFIT_CU_GENERIC, 1, 0, err);
    if (st != KFIT_OK)
        return st;
    memcpy(k->generic, c->runner.arena, c->out_bytes);
    enum kfit_code code = cuda_compare(c, k, 0, k->generic, &k->generic_narrow, &k->generic_wide, at);
    if (!code && kfit_accuracy_hopeless(&k->generic_wide, kfit_op_of(&c->key)->reduction(&c->key)))
        snprintf(at, sizeof at, "rms %.3g", kfit_accuracy_rms(&k->generic_wide)),
            code = KFIT_CODE_WRONG_ACCURACY;
    if (code && !distributions[distribution].by_generic)
        return kfit_fail(err, KFIT_E_REFUSED, "judge: the generic itself is wrong on %s inputs: %s",
                         distributions[distribution].name, at);
    return KFIT_OK;
}

enum kfit_status cuda_fixed_cases(struct cuda *c, struct kfit_error *err)
{
    for (unsigned d = 0; c->case_count < DISTRIBUTIONS && d < DISTRIBUTIONS; d++) {
        if (distributions[d].hidden || d < c->case_count)
            continue;
        enum kfit_status st =
            case_make(c, &c->cases[c->case_count], d, c->seed ^ kfit_key_hash(&c->key), err);
        if (st != KFIT_OK) {
            case_finish(&c->cases[c->case_count]);
            return st;
        }
        c->case_count++;
    }
    return KFIT_OK;
}

void cuda_drop_cases(struct cuda *c)
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
        snprintf(at, 64, "%lld bytes %s", (long long)llabs(r->band_offset),
                 r->band_offset < 0 ? "before the start" : "past the end");
        return KFIT_CODE_WRONG_BOUNDS;
    }
    if (r->workspace_dirty)
        return snprintf(at, 64, "the workspace was not left zero"), KFIT_CODE_WRONG_WORKSPACE;
    return KFIT_CODE_NONE;
}

/* Where row `row` of all matrices of the output begins, in bytes. */
static size_t row_at(const struct cuda *c, int64_t row)
{
    return (size_t)(row / c->out.rows * c->out.batch_stride + row % c->out.rows * c->out.ld) *
           kfit_dtype_bytes(c->out.type);
}

static size_t row_bytes(const struct cuda *c)
{
    return (size_t)c->out.cols * kfit_dtype_bytes(c->out.type);
}

/* What lies between the rows of the output, and between its matrices, is poison still. Rows of different matrices may
 * lie between each other. */
static bool gaps_kept(const struct cuda *c, const uint8_t *out, unsigned poison, bool *kept)
{
    uint32_t word = poison_word(c->out.type, poison);
    uint8_t *ours = calloc(c->out_bytes, 1);
    if (!ours)
        return false;
    for (int64_t r = 0; r < c->out.batch * c->out.rows; r++)
        memset(ours + row_at(c, r), 1, row_bytes(c));
    *kept = true;
    for (size_t b = 0; b < c->out_bytes && *kept; b++)
        *kept = ours[b] || out[b] == (uint8_t)(word >> 8 * (b % 4));
    free(ours);
    return true;
}

/* Runs a case once at a placement with a poison; the first failing check is in g. */
static enum kfit_status try_case(struct cuda *c, const struct case_cuda *k, unsigned placement,
                                 unsigned poison, unsigned count, struct kfit_gate_result *g,
                                 struct kfit_error *err)
{
    struct narrow narrow = {0};
    struct kfit_accuracy wide = {0};
    enum kfit_status st = cuda_fill(&c->runner, k->distribution, k->seed, placement, err);
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
    bool kept = true;
    if (!g->code && c->out.dir == KFIT_OUT && !gaps_kept(c, c->runner.arena, poison, &kept))
        return kfit_fail(err, KFIT_E_NOMEM, "judge: out of memory");
    if (!kept) {
        g->code = KFIT_CODE_WRONG_BOUNDS;
        snprintf(g->at, sizeof g->at, "written between the rows of the output");
    }
    if (!g->code)
        g->code = cuda_compare(c, k, poison, c->runner.arena, &narrow, &wide, g->at);
    bool is_wide = c->out.type == KFIT_F32 || c->out.type == KFIT_F64;
    if (is_wide) {
        g->err_rms = kfit_accuracy_rms(&wide);
        g->err_worst = wide.worst;
    } else {
        g->err_rms = narrow.n ? (double)narrow.misrounded / (double)narrow.n : 0;
        g->err_worst = narrow.worst;
    }
    if (!g->code && !distributions[k->distribution].by_generic &&
        !(is_wide ? kfit_accuracy_accept(&wide, &k->generic_wide, kfit_op_of(&c->key)->reduction(&c->key),
                                         distributions[k->distribution].hidden)
                  : narrow_accept(&narrow, &k->generic_narrow))) {
        g->code = KFIT_CODE_WRONG_ACCURACY;
        snprintf(g->at, sizeof g->at,
                 is_wide ? "rms %.3g, worst %.3g" : "%.3g misrounded, worst %.3g of what is allowed",
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
        for (int64_t r = 0; r < c->out.batch * c->out.rows && i; r++)
            if (memcmp(first + row_at(c, r), c->runner.arena + row_at(c, r), row_bytes(c))) {
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

enum kfit_status cuda_gate_correct(struct judge_trial *t, struct kfit_gate_result *g, struct kfit_error *err)
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
enum kfit_status cuda_hidden(struct judge_trial *t, struct kfit_gate_result *g, struct kfit_error *err)
{
    struct cuda *c = t->device;
    enum kfit_status st = KFIT_OK;
    for (unsigned d = 0; d < DISTRIBUTIONS && st == KFIT_OK && !g->code; d++) {
        if (!distributions[d].hidden && d != CUDA_NORMAL)
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

enum kfit_status cuda_gate_hidden(struct judge_trial *t, struct kfit_gate_result *g, struct kfit_error *err)
{
    enum kfit_status st = cuda_hidden(t, g, err);
    if (g->code && g->code != KFIT_CODE_GENERIC_WRONG)
        g->code = KFIT_CODE_HIDDEN_WRONG;
    g->distribution[0] = g->at[0] = '\0';
    return st;
}
