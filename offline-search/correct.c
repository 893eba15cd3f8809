#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "correct.h"
#include "reference.h"

#define CASE_BYTES (256ul << 20) /* of inputs and references that the cases of one key may hold */
#define LONG_RUN   64u
#define CHANGES    3u
#define POOL       256u /* elements that an rms is taken over: small outputs get several seeds */
#define SEEDS_MAX  8u

/* ---- making cases ---- */

static void case_finish(struct kfit_case *c)
{
    for (unsigned i = 0; i < KFIT_RUNNER_ARGS; i++)
        free(c->arg[i]);
    free(c->ref);
    free(c->mag);
    free(c->generic_out);
}

void kfit_cases_finish(struct kfit_cases *c)
{
    for (unsigned i = 0; i < c->count; i++)
        case_finish(&c->cases[i]);
    free(c->cases);
    memset(c, 0, sizeof *c);
}

static size_t elements(const struct kfit_tensor *t)
{
    return (size_t)(t->batch * t->rows * t->cols);
}

static bool make_reference(struct kfit_case *c, const union kfit_key *key)
{
    struct kfit_tensor out;
    const struct kfit_op *op = kfit_op_of(key);
    op->tensor(key, op->out_arg, &out);
    c->ref = malloc(elements(&out) * sizeof *c->ref);
    c->mag = malloc(elements(&out) * sizeof *c->mag);
    return c->ref && c->mag && kfit_reference(key, (const void *const *)c->arg, c->ref, c->mag);
}

static bool make_case(struct kfit_case *c, const union kfit_key *key, const struct kfit_distribution *d,
                      uint64_t seed)
{
    const struct kfit_op *op = kfit_op_of(key);
    struct kfit_tensor t;
    c->distribution = d;
    c->seed = seed;
    for (unsigned i = 0; i < op->nargs(key); i++) {
        op->tensor(key, i, &t);
        if (t.dir == KFIT_OUT)
            continue;
        c->arg[i] = malloc(kfit_tensor_bytes(&t));
        if (!c->arg[i] || !kfit_inputs_fill(d, seed, &t, i, op->nargs(key), c->arg[i]))
            return false;
    }
    return make_reference(c, key);
}

/* A copy in which one element of one input is another number. */
static bool make_changed(struct kfit_case *c, const struct kfit_case *from, const union kfit_key *key,
                         uint64_t random)
{
    const struct kfit_op *op = kfit_op_of(key);
    struct kfit_tensor t;
    memset(c, 0, sizeof *c);
    c->distribution = from->distribution;
    unsigned victim = (unsigned)(kfit_random(&random) % (op->nargs(key) - 1));
    for (unsigned i = 0; i < op->nargs(key); i++) {
        op->tensor(key, i, &t);
        if (!from->arg[i])
            continue;
        c->arg[i] = malloc(kfit_tensor_bytes(&t));
        if (!c->arg[i])
            return false;
        memcpy(c->arg[i], from->arg[i], kfit_tensor_bytes(&t));
        size_t at = (size_t)(kfit_random(&random) % (uint64_t)t.rows) * (size_t)t.ld +
                    (size_t)(kfit_random(&random) % (uint64_t)t.cols);
        if (i == victim && t.type == KFIT_F64)
            ((double *)c->arg[i])[at] = -6.25;
        else if (i == victim)
            ((float *)c->arg[i])[at] = -6.25f;
    }
    return make_reference(c, key);
}

enum kfit_status kfit_cases_make(struct kfit_cases *c, const union kfit_key *key, uint64_t seed, bool hidden,
                                 struct kfit_error *err)
{
    const struct kfit_op *op = kfit_op_of(key);
    size_t bytes = (size_t)op->bytes(key) * 2, max = CASE_BYTES / (bytes ? bytes : 1);
    max = max < 4 ? 4 : max;
    struct kfit_tensor out;
    op->tensor(key, op->out_arg, &out);
    unsigned seeds = POOL / (elements(&out) < POOL ? (unsigned)elements(&out) : POOL);
    seeds = seeds > SEEDS_MAX ? SEEDS_MAX : seeds;
    if (hidden) /* fewer where each one costs: their references cannot be kept */
        max = op->flops(key) > 4e6 ? 4 : max;
    memset(c, 0, sizeof *c);
    c->key = *key;
    c->cases = calloc(SEEDS_MAX * kfit_distribution_count, sizeof *c->cases);
    if (!c->cases)
        return kfit_fail(err, KFIT_E_NOMEM, "judge: out of memory");
    /* gate 1: normal first, in the order of the table; gate 2: normal, then the hidden ones, then the rest */
    unsigned order[64], n = 0;
    for (unsigned pass = 0; pass < (hidden ? 3 : 1); pass++)
        for (unsigned i = 0; i < kfit_distribution_count; i++)
            if (!hidden     ? !kfit_distributions[i].hidden
                : pass == 0 ? i == 0
                            : i && kfit_distributions[i].hidden == (pass == 1))
                order[n++] = i;
    if (hidden) /* which hidden ones a large key meets is not foreseeable */
        for (unsigned i = n - 1; i > 1; i--) {
            unsigned j = 1 + (unsigned)(kfit_random(&seed) % i), t = order[i];
            order[i] = order[j];
            order[j] = t;
        }
    for (unsigned i = 0; i < n * seeds && i < max * seeds; i++) {
        uint64_t own = kfit_random(&seed);
        if (!make_case(&c->cases[c->count++], key, &kfit_distributions[order[i / seeds]], own)) {
            kfit_cases_finish(c);
            return kfit_fail(err, KFIT_E_NOMEM, "judge: no memory for inputs of %zu bytes", bytes);
        }
    }
    return KFIT_OK;
}

/* ---- memory around a call ---- */

static const uint64_t poisons[2][2] = {
    /* [pattern][f64] as a word of 8 bytes */
    {0x7fbadbad7fbadbad, 0x7ff8badbadbadbad}, /* NaN with a payload */
    {0x7180000071800000, 0x4630000000000000}, /* 2^100 */
};

/* Every element; what lies between rows is band. */
static void poison_output(const struct kfit_tensor *t, uint8_t *out, unsigned poison)
{
    size_t size = kfit_dtype_bytes(t->type);
    kfit_band_fill(out, 0, kfit_tensor_bytes(t));
    for (int64_t i = 0; i < t->rows; i++)
        for (int64_t j = 0; j < t->cols; j++)
            memcpy(out + (size_t)(i * t->ld + j) * size, &poisons[poison][t->type == KFIT_F64], size);
}

static void fill_words(uint8_t *p, size_t bytes, uint64_t word)
{
    size_t i = 0;
    for (; i + sizeof word <= bytes; i += sizeof word)
        memcpy(p + i, &word, sizeof word);
    memcpy(p + i, &word, bytes - i);
}

static bool workspace_is_zero(const struct kfit_session *s)
{
    return s->control->workspace_init == KFIT_WS_ZERO;
}

static void prepare_workspace(struct kfit_session *s, unsigned poison, bool zero)
{
    uint8_t *ws = kfit_session_arg(s, s->nargs);
    if (ws)
        fill_words(ws, s->bytes[s->nargs], zero || workspace_is_zero(s) ? 0 : poisons[poison][0]);
    fill_words(s->arena + s->control->stack.offset, KFIT_RUNNER_STACK, poisons[poison][0]);
}

static void prepare_output(struct kfit_session *s, const struct kfit_case *c, unsigned poison)
{
    unsigned o = s->op->out_arg;
    uint8_t *restore = kfit_session_restore(s);
    if (c->arg[o])
        memcpy(restore, c->arg[o], s->bytes[o]);
    else
        poison_output(&s->tensor[o], restore, poison);
    memcpy(kfit_session_arg(s, o), restore, s->bytes[o]);
}

void kfit_case_load(struct kfit_session *s, const struct kfit_case *c, unsigned poison)
{
    for (unsigned i = 0; i <= s->nargs; i++) {
        const struct kfit_runner_region *r = &s->control->region[i];
        uint8_t *region = s->arena + r->offset;
        if (!s->bytes[i])
            continue;
        kfit_band_fill(region, 0, s->at[i]);
        kfit_band_fill(region, s->at[i] + s->bytes[i], r->bytes);
        if (i < s->nargs && i != s->op->out_arg)
            memcpy(region + s->at[i], c->arg[i], s->bytes[i]);
    }
    prepare_output(s, c, poison);
    prepare_workspace(s, poison, false);
}

/* ---- after a call ---- */

static const char *arg_name(const struct kfit_session *s, unsigned i)
{
    return i < s->nargs ? s->op->arg_names[i] : "workspace";
}

/* What must not have changed: bands, inputs, elements between rows of the output, a `zero` workspace. */
static enum kfit_code check_memory(const struct kfit_session *s, const struct kfit_case *c, bool inputs,
                                   char at[64])
{
    for (unsigned i = 0; i <= s->nargs; i++) {
        const struct kfit_runner_region *r = &s->control->region[i];
        const uint8_t *region = s->arena + r->offset;
        if (!s->bytes[i])
            continue;
        size_t first = s->at[i], end = first + s->bytes[i], bad = kfit_band_check(region, 0, first);
        if (bad < first) {
            snprintf(at, 64, "%s: written before the start", arg_name(s, i));
            return KFIT_CODE_WRONG_BOUNDS;
        }
        bad = kfit_band_check(region, end, r->bytes);
        if (bad < r->bytes) {
            snprintf(at, 64, "%s: written %zu bytes past the end", arg_name(s, i), bad - end);
            return KFIT_CODE_WRONG_BOUNDS;
        }
        if (inputs && i < s->nargs && i != s->op->out_arg && memcmp(region + first, c->arg[i], s->bytes[i])) {
            snprintf(at, 64, "%s", arg_name(s, i));
            return KFIT_CODE_WRONG_INPUT;
        }
    }
    const struct kfit_tensor *t = &s->tensor[s->op->out_arg];
    const uint8_t *out = kfit_session_arg(s, s->op->out_arg), *before = kfit_session_restore(s);
    size_t size = kfit_dtype_bytes(t->type), gap = (size_t)(t->ld - t->cols) * size;
    for (int64_t i = 0; gap && i + 1 < t->rows; i++) {
        size_t from = (size_t)(i * t->ld + t->cols) * size;
        if (memcmp(out + from, before + from, gap)) {
            snprintf(at, 64, "%s: between row %lld and the next", arg_name(s, s->op->out_arg), (long long)i);
            return KFIT_CODE_WRONG_BOUNDS;
        }
    }
    const uint8_t *ws = kfit_session_arg(s, s->nargs);
    for (size_t i = 0; ws && workspace_is_zero(s) && i < s->bytes[s->nargs]; i++) {
        if (ws[i]) {
            snprintf(at, 64, "workspace not zero again at byte %zu", i);
            return KFIT_CODE_WRONG_WORKSPACE;
        }
    }
    return KFIT_CODE_NONE;
}

static struct kfit_expected expected(const struct kfit_session *s, const struct kfit_case *c)
{
    return (struct kfit_expected){
        .tensor = &s->tensor[s->op->out_arg],
        .before = kfit_session_restore(s),
        .ref = c->ref,
        .mag = c->mag,
        .generic = c->distribution->judged == KFIT_JUDGED_GENERIC ? c->generic_out : NULL,
    };
}

static int64_t terms(const struct kfit_session *s)
{
    return s->op->reduction(&s->key) + (s->tensor[s->op->out_arg].dir == KFIT_INOUT);
}

/* ---- running cases ---- */

/* One launch from freshly poisoned memory, and everything that can be said of it but its accuracy. */
static enum kfit_status one_launch(struct kfit_session *s, const struct kfit_case *c, enum kfit_who who,
                                   unsigned poison, bool zero_workspace, struct kfit_accuracy *a,
                                   enum kfit_code *code, char at[64], struct kfit_error *err)
{
    prepare_output(s, c, poison);
    prepare_workspace(s, poison, zero_workspace);
    enum kfit_status st = kfit_session_launch(s, who, 1, false, NULL, code, at, err);
    if (st == KFIT_OK && *code == KFIT_CODE_NONE)
        *code = check_memory(s, c, true, at);
    if (st == KFIT_OK && *code == KFIT_CODE_NONE) {
        const struct kfit_expected e = expected(s, c);
        *code = kfit_accuracy_add(a, &e, kfit_session_arg(s, s->op->out_arg), at);
    }
    return st;
}

static enum kfit_status run_generic(struct kfit_session *s, struct kfit_case *c, enum kfit_who generic,
                                    enum kfit_code *code, char at[64], struct kfit_error *err)
{
    size_t bytes = s->bytes[s->op->out_arg];
    prepare_output(s, c, 0);
    enum kfit_status st = kfit_session_launch(s, generic, 1, false, NULL, code, at, err);
    if (st != KFIT_OK || *code != KFIT_CODE_NONE)
        return st != KFIT_OK ? st : kfit_fail(err, KFIT_E_CRASH, "judge: the generic failed: %s", at);
    c->generic_out = malloc(bytes);
    if (!c->generic_out)
        return kfit_fail(err, KFIT_E_NOMEM, "judge: out of memory");
    memcpy(c->generic_out, kfit_session_arg(s, s->op->out_arg), bytes);
    const struct kfit_expected e = expected(s, c);
    if (kfit_accuracy_add(&c->generic, &e, c->generic_out, at) != KFIT_CODE_NONE ||
        kfit_accuracy_hopeless(&c->generic, terms(s)))
        *code = KFIT_CODE_GENERIC_WRONG;
    return KFIT_OK;
}

/* Would it have been right with a zeroed workspace? */
static enum kfit_status blame_workspace(struct kfit_session *s, const struct kfit_case *c, enum kfit_who who,
                                        enum kfit_code *code, char at[64], struct kfit_error *err)
{
    struct kfit_accuracy a = {0};
    enum kfit_code again;
    char ignored[64];
    if (!s->bytes[s->nargs] || workspace_is_zero(s) || !s->pid)
        return KFIT_OK;
    enum kfit_status st = one_launch(s, c, who, 0, true, &a, &again, ignored, err);
    if (st == KFIT_OK && again == KFIT_CODE_NONE) {
        *code = KFIT_CODE_WRONG_WORKSPACE;
        snprintf(at, 64, "right only when its scratch workspace is zero");
    }
    return st;
}

static enum kfit_status run_case(struct kfit_session *s, struct kfit_case *c, enum kfit_who who,
                                 enum kfit_who generic, unsigned launches, struct kfit_accuracy *a,
                                 enum kfit_code *code, char at[64], uint8_t *first_out,
                                 struct kfit_error *err)
{
    const uint8_t *out = kfit_session_arg(s, s->op->out_arg);
    size_t bytes = s->bytes[s->op->out_arg];
    enum kfit_status st = KFIT_OK;
    *code = KFIT_CODE_NONE;
    kfit_case_load(s, c, 0);
    if (!c->generic_out)
        st = run_generic(s, c, generic, code, at, err);
    for (unsigned i = 0; i < launches && st == KFIT_OK && *code == KFIT_CODE_NONE; i++) {
        st = one_launch(s, c, who, i & 1, false, a, code, at, err);
        if (st != KFIT_OK)
            break;
        if (*code == KFIT_CODE_WRONG_UNWRITTEN || *code == KFIT_CODE_WRONG_PARTIAL ||
            *code == KFIT_CODE_WRONG_VALUES || *code == KFIT_CODE_WRONG_NONFINITE)
            return blame_workspace(s, c, who, code, at, err);
        if (*code == KFIT_CODE_NONE && !i)
            memcpy(first_out, out, bytes);
        else if (*code == KFIT_CODE_NONE) {
            /* gaps are bands in both, so whole memory can be compared where the poison does not show */
            const struct kfit_tensor *t = &s->tensor[s->op->out_arg];
            size_t size = kfit_dtype_bytes(t->type);
            for (int64_t r = 0; r < t->rows; r++) {
                size_t from = (size_t)(r * t->ld) * size;
                if (memcmp(out + from, first_out + from, (size_t)t->cols * size)) {
                    *code = KFIT_CODE_WRONG_REPEAT;
                    snprintf(at, 64, "row %lld differs in launch %u", (long long)r, i + 1);
                }
            }
        }
    }
    return st;
}

/* Many launches without fresh memory, then an input that is not quite the same at the same address. */
static enum kfit_status run_later(struct kfit_session *s, const struct kfit_case *c, enum kfit_who who,
                                  enum kfit_code *code, char at[64], struct kfit_error *err)
{
    struct kfit_case changed;
    char where[64];
    unsigned o = s->op->out_arg;
    kfit_session_place(s, KFIT_PLACE_MIDDLE);
    kfit_case_load(s, c, 0);
    enum kfit_status st = kfit_session_launch(s, who, LONG_RUN, true, NULL, code, at, err);
    if (st == KFIT_OK && *code == KFIT_CODE_NONE)
        *code = check_memory(s, c, true, at);
    if (st != KFIT_OK || *code != KFIT_CODE_NONE)
        return st;
    if (kfit_case_check_output(s, c, kfit_session_arg(s, o), 1, where) != KFIT_CODE_NONE) {
        *code = KFIT_CODE_WRONG_LATER;
        snprintf(at, 64, "after %u calls: %.40s", LONG_RUN, where);
        return KFIT_OK;
    }
    /* more than once: what is changed may by chance be what a candidate looks at */
    for (unsigned change = 0; change < CHANGES && st == KFIT_OK && *code == KFIT_CODE_NONE; change++) {
        if (!make_changed(&changed, c, &s->key, c->seed + change))
            st = kfit_fail(err, KFIT_E_NOMEM, "judge: out of memory");
        else {
            for (unsigned i = 0; i < s->nargs; i++)
                if (i != o)
                    memcpy(kfit_session_arg(s, i), changed.arg[i], s->bytes[i]);
            if (c->arg[o]) { /* accumulates: from the same start. A pure output keeps the old result. */
                memcpy(kfit_session_restore(s), changed.arg[o], s->bytes[o]);
                memcpy(kfit_session_arg(s, o), changed.arg[o], s->bytes[o]);
            }
            st = kfit_session_launch(s, who, 1, false, NULL, code, at, err);
            if (st == KFIT_OK && *code == KFIT_CODE_NONE &&
                kfit_case_check_output(s, &changed, kfit_session_arg(s, o), 1, where) != KFIT_CODE_NONE) {
                *code = KFIT_CODE_WRONG_LATER;
                snprintf(at, 64, "new contents, same pointers: %.30s", where);
            }
        }
        case_finish(&changed);
    }
    return st;
}

enum kfit_code kfit_case_check_output(const struct kfit_session *s, const struct kfit_case *c,
                                      const uint8_t *out, unsigned calls, char at[64])
{
    struct kfit_accuracy a = {0};
    struct kfit_expected e = expected(s, c);
    const struct kfit_tensor *t = &s->tensor[s->op->out_arg];
    size_t n = elements(t);
    double *more = NULL;
    if (calls > 1 && t->dir == KFIT_INOUT) { /* C0 + calls x (what one call adds) */
        const uint8_t *before = c->arg[s->op->out_arg];
        more = malloc(2 * n * sizeof *more);
        for (size_t i = 0; more && i < n; i++) {
            size_t x = i / (size_t)t->cols * (size_t)t->ld + i % (size_t)t->cols;
            double old =
                t->type == KFIT_F64 ? ((const double *)before)[x] : (double)((const float *)before)[x];
            more[i] = old + calls * (c->ref[i] - old);
            more[n + i] = calls * c->mag[i];
        }
        if (!more)
            return KFIT_CODE_NONE;
        e.ref = more;
        e.mag = more + n;
    }
    enum kfit_code code = kfit_accuracy_add(&a, &e, out, at);
    /* adding the same again and again rounds the same way each time: then only gross errors count */
    if (code == KFIT_CODE_NONE && !more &&
        !kfit_accuracy_accept(&a, &c->generic, terms(s), c->distribution->uneven)) {
        code = KFIT_CODE_WRONG_ACCURACY;
        snprintf(at, 64, "rms %.3g, worst %.3g", kfit_accuracy_rms(&a), a.worst);
    }
    free(more);
    return code;
}

static void pool(struct kfit_accuracy *to, const struct kfit_accuracy *from)
{
    to->sum_of_squares += from->sum_of_squares;
    to->n += from->n;
    to->worst = from->worst > to->worst ? from->worst : to->worst;
}

enum kfit_status kfit_correct(struct kfit_session *s, struct kfit_cases *c, enum kfit_who who,
                              enum kfit_who generic, bool later, struct kfit_gate_result *result,
                              struct kfit_error *err)
{
    uint8_t *first_out = malloc(s->bytes[s->op->out_arg]);
    enum kfit_status st = first_out ? KFIT_OK : kfit_fail(err, KFIT_E_NOMEM, "judge: out of memory");
    struct kfit_accuracy mine = {0}, theirs = {0};
    result->ok = false;
    result->code = KFIT_CODE_NONE;
    result->seeds = c->count;
    for (unsigned i = 0; i < c->count && st == KFIT_OK && !result->code; i++) {
        struct kfit_case *one = &c->cases[i];
        /* the first case at every placement and three times; the others in turn */
        for (unsigned p = 0; p < (i ? 1 : KFIT_PLACEMENTS) && st == KFIT_OK && !result->code; p++) {
            kfit_session_place(s, (enum kfit_placement)((i + p) % KFIT_PLACEMENTS));
            st = run_case(s, one, who, generic, i ? 2 : 3, &mine, &result->code, result->at, first_out, err);
        }
        pool(&theirs, &one->generic);
        bool last = i + 1 == c->count || c->cases[i + 1].distribution != one->distribution;
        if (st == KFIT_OK && !result->code && last &&
            !kfit_accuracy_accept(&mine, &theirs, terms(s), one->distribution->uneven)) {
            result->code = KFIT_CODE_WRONG_ACCURACY;
            snprintf(result->at, sizeof result->at, "rms %.3g, worst %.3g; generic %.3g",
                     kfit_accuracy_rms(&mine), mine.worst, kfit_accuracy_rms(&theirs));
        }
        if (kfit_accuracy_rms(&mine) >= result->err_rms || result->code) {
            result->err_rms = kfit_accuracy_rms(&mine);
            snprintf(result->distribution, sizeof result->distribution, "%s", one->distribution->name);
        }
        result->err_worst = mine.worst > result->err_worst ? mine.worst : result->err_worst;
        if (last)
            mine = theirs = (struct kfit_accuracy){0};
    }
    if (later && st == KFIT_OK && !result->code) {
        st = run_later(s, &c->cases[0], who, &result->code, result->at, err);
        if (result->code)
            snprintf(result->distribution, sizeof result->distribution, "%s", c->cases[0].distribution->name);
    }
    result->ok = st == KFIT_OK && !result->code;
    if (result->ok)
        result->at[0] = '\0';
    free(first_out);
    return st;
}
