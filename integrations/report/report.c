/* From traces and results to rows and shares. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kfit/env.h"
#include "kfit/op.h"
#include "page.h"

/* Plain rooflines, good enough to weigh unmeasured keys against each other. Scaled by the measured keys. */
static const struct roof {
    double call_ns, bytes_per_ns, flops_per_ns[3]; /* operands of 2, 4, 8 bytes */
} roofs[] = {
    {150, 10, {20, 20, 10}},            /* one core */
    {2000, 4000, {800e3, 50e3, 30e3}}, /* a GPU: what begins and ends takes longer than most of its work */
};

static double nominal_ns(const struct kfit_report_key *k)
{
    const struct kfit_op *op = kfit_op_of(&k->key);
    const struct roof *f = &roofs[k->gpu];
    const unsigned size = kfit_dtype_bytes(k->key.gemm.type_a);
    const double work = op->flops(&k->key) / f->flops_per_ns[size == 8 ? 2 : size == 4],
                 bytes = op->bytes(&k->key) / f->bytes_per_ns;
    return f->call_ns + (work > bytes ? work : bytes);
}

static void add_result(struct kfit_report_key *k, const struct kfit_record *record, bool published,
                       struct kfit_store *store)
{
    struct kfit_receipt *receipt = malloc(sizeof *receipt);
    /* What a person compares with is the generic, also where the winner had to beat an earlier winner. */
    double scale =
        record->ns_generic > 0 && record->ns_incumbent > 0 ? record->ns_generic / record->ns_incumbent : 1;
    bool won = record->kind == KFIT_RECORD_WINNER;
    k->judged = true;
    k->published = published;
    k->verdict = won ? KFIT_VERDICT_PROMOTED : KFIT_VERDICT_KEPT;
    k->ratio = record->ratio * scale;
    k->lo = record->lo * scale;
    k->hi = record->hi * scale;
    k->before_ns = record->ns_generic > 0 ? record->ns_generic : record->ns_incumbent;
    k->after_ns = won ? record->ns_candidate : k->before_ns;
    k->measured = k->before_ns > 0;
    if (receipt && kfit_record_receipt(record, store, receipt)) {
        k->floor_ns = receipt->bound_ns;
        if (!won) {
            snprintf(k->code, sizeof k->code, "%s", kfit_code_str(receipt->code));
            if (receipt->verdict != KFIT_VERDICT_PROMOTED)
                k->verdict = receipt->verdict;
        }
    }
    free(receipt);
}

struct last_judgement {
    struct kfit_receipt *receipt, *best; /* best->made_unix_s is 0 while there is none */
};

/* A screening stops before gate 2; what went further was judged whole. */
static int if_judged_whole(void *ctx, const void *key, size_t key_bytes, const void *value,
                           size_t value_bytes, const char *problem)
{
    struct last_judgement *l = ctx;
    (void)key, (void)key_bytes;
    if (problem || kfit_receipt_from_json(value, value_bytes, l->receipt, NULL) != KFIT_OK)
        return 0;
    bool whole = false;
    for (unsigned i = 0; i < l->receipt->gate_count; i++)
        whole |= !strcmp(l->receipt->gates[i].name, "hidden");
    if (whole && l->receipt->timing_count && l->receipt->made_unix_s >= l->best->made_unix_s)
        *l->best = *l->receipt;
    return 0;
}

/* A key that was judged without a finding (noise, a winner that did not repeat): there is no record, but people want
 * to know what was tried. */
static void add_judgement(struct kfit_report_key *k, struct kfit_store *store)
{
    uint8_t prefix[KFIT_STORE_KEY_MAX];
    struct kfit_receipt *r = calloc(2, sizeof *r);
    struct last_judgement last = {r, r + 1};
    size_t n = kfit_store_key(prefix, k->env_hard, &k->key, NULL);
    if (r && store &&
        kfit_store_each(store, KFIT_TABLE_EVALS, prefix, n, if_judged_whole, &last, NULL) == KFIT_OK &&
        last.best->made_unix_s) {
        const struct kfit_timing *t = &last.best->timings[0];
        k->judged = k->measured = true;
        k->verdict = last.best->verdict == KFIT_VERDICT_PROMOTED ? KFIT_VERDICT_KEPT : last.best->verdict;
        snprintf(k->code, sizeof k->code, "%s", kfit_code_str(last.best->code));
        k->ratio = t->ratio;
        k->lo = t->lo;
        k->hi = t->hi;
        k->before_ns = k->after_ns = t->ns_generic > 0 ? t->ns_generic : t->ns_incumbent;
        k->floor_ns = last.best->bound_ns;
    }
    free(r);
}

/* Rows while they are collected: the index finds the row of a key among thousands. */
struct rows {
    struct kfit_report *r;
    size_t room, slots; /* slots: a power of two, at least twice the rows */
    uint32_t *slot;     /* number of the row + 1; 0: free */
};

static size_t slot_of(const struct rows *rows, uint64_t env, const union kfit_key *key)
{
    size_t at = (size_t)(kfit_key_hash(key) ^ env) & (rows->slots - 1);
    for (uint32_t n; (n = rows->slot[at]); at = (at + 1) & (rows->slots - 1)) {
        const struct kfit_report_key *k = &rows->r->keys[n - 1];
        if (k->env_hard == env && kfit_key_equal(&k->key, key))
            break;
    }
    return at;
}

static bool grow(struct rows *rows)
{
    size_t room = rows->room ? 2 * rows->room : 64;
    struct kfit_report_key *keys = realloc(rows->r->keys, room * sizeof *keys);
    if (keys)
        rows->r->keys = keys;
    uint32_t *slot = calloc(4 * room, sizeof *slot);
    if (!keys || !slot) {
        free(slot);
        return false;
    }
    free(rows->slot);
    rows->slot = slot;
    rows->slots = 4 * room;
    rows->room = room;
    for (size_t i = 0; i < rows->r->count; i++)
        rows->slot[slot_of(rows, keys[i].env_hard, &keys[i].key)] = (uint32_t)i + 1;
    return true;
}

/* The row of a key, a new one if need be; NULL: out of memory. */
static struct kfit_report_key *row_for(struct rows *rows, uint64_t env, const union kfit_key *key)
{
    struct kfit_report *r = rows->r;
    if (r->count == rows->room && !grow(rows))
        return NULL;
    size_t at = slot_of(rows, env, key);
    if (!rows->slot[at]) {
        r->keys[r->count] = (struct kfit_report_key){.env_hard = env};
        memcpy(&r->keys[r->count].key, key, key->h.len);
        rows->slot[at] = (uint32_t)++r->count;
    }
    return &r->keys[rows->slot[at] - 1];
}

static enum kfit_status add_trace(struct rows *rows, const struct kfit_trace *t, struct kfit_error *err)
{
    struct kfit_report *r = rows->r;
    const struct kfit_trace_header *h = kfit_trace_header(t);
    const struct kfit_trace_launches l = kfit_trace_launches(t);
    uint64_t env = kfit_text_hash(h->env.hard);
    char device[16];
    const bool gpu = kfit_env_get(h->env.hard, "device", device, sizeof device) && !strcmp(device, "cuda");
    r->launches.ours += l.ours;
    r->launches.in_op += l.in_op;
    r->launches.other += l.other;
    for (unsigned i = 0; i < KFIT_TRACE_REASONS; i++) {
        r->unkeyed += h->unkeyed[i];
        r->miss[i] += h->unkeyed[i];
    }
    for (size_t i = 0; i < kfit_trace_count(t); i++) {
        const struct kfit_trace_slot *s = kfit_trace_at(t, i);
        struct kfit_report_key *k = row_for(rows, env, &s->key);
        if (!k)
            return kfit_fail(err, KFIT_E_NOMEM, "report: out of memory");
        k->gpu = gpu;
        for (unsigned c = 0; c < KFIT_TRACE_REASONS; c++) {
            k->count[c] += s->count[c];
            r->miss[c] += s->count[c];
        }
        k->calls += kfit_slot_calls(s);
        r->calls += kfit_slot_calls(s);
    }
    return KFIT_OK;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int by_share(const void *a, const void *b)
{
    const struct kfit_report_key *x = a, *y = b;
    if (x->share != y->share)
        return x->share < y->share ? 1 : -1;
    return memcmp(x->key.bytes, y->key.bytes, x->key.h.len < y->key.h.len ? x->key.h.len : y->key.h.len);
}

/* Median of measured / nominal time of what was called there. */
static double calibrate(const struct kfit_report *r, bool gpu)
{
    double *q = malloc((r->count + 1) * sizeof *q), scale = 1;
    size_t n = 0;
    for (size_t i = 0; q && i < r->count; i++)
        if (r->keys[i].measured && r->keys[i].calls && r->keys[i].gpu == gpu)
            q[n++] = r->keys[i].before_ns / nominal_ns(&r->keys[i]);
    if (n) {
        qsort(q, n, sizeof *q, by_value);
        scale = q[n / 2];
    }
    free(q);
    return scale;
}

static void count_change(void *ctx, const struct kfit_record *before, const struct kfit_record *now)
{
    struct kfit_report_changes *c = ctx;
    ++*(!before ? &c->added : !now ? &c->removed : kfit_record_same(before, now) ? &c->same : &c->changed);
}

static enum kfit_status collect(const struct kfit_report_input *in, struct kfit_report *r,
                                struct kfit_error *err)
{
    struct rows rows = {.r = r};
    enum kfit_status s = KFIT_OK;
    for (size_t i = 0; i < in->count && s == KFIT_OK; i++)
        s = add_trace(&rows, in->traces[i], err);
    for (size_t i = 0; i < in->wanted_count && s == KFIT_OK; i++)
        if (!row_for(&rows, in->wanted[i].env_hard, &in->wanted[i].key))
            s = kfit_fail(err, KFIT_E_NOMEM, "report: out of memory");
    free(rows.slot);
    return s;
}

static void judge_rows(const struct kfit_report_input *in, struct kfit_report *r)
{
    for (size_t i = 0; i < r->count; i++) {
        struct kfit_report_key *k = &r->keys[i];
        const struct kfit_record *p =
            in->published ? kfit_records_find(in->published, k->env_hard, &k->key) : NULL;
        const struct kfit_record *q =
            p || !in->staged ? p : kfit_records_find(in->staged, k->env_hard, &k->key);
        if (q)
            add_result(k, q, p != NULL, in->store);
        else
            add_judgement(k, in->store);
        r->any_measured |= k->measured;
        r->promoted += k->judged && k->verdict == KFIT_VERDICT_PROMOTED;
        r->kept += k->judged && k->verdict != KFIT_VERDICT_PROMOTED;
        r->untuned += !k->judged;
    }
}

enum kfit_status kfit_report_make(const struct kfit_report_input *in, struct kfit_report *out,
                                  struct kfit_error *err)
{
    const struct kfit_report_extra none = {0}, *extra = in->extra ? in->extra : &none;
    struct kfit_report r = {.generation = in->generation, .wall_s = extra->wall_s};
    enum kfit_status s = collect(in, &r, err);
    if (s != KFIT_OK) {
        kfit_report_finish(&r);
        return s;
    }
    judge_rows(in, &r);
    const double scale[] = {calibrate(&r, false), calibrate(&r, true)};
    double total = 0;
    for (size_t i = 0; i < r.count; i++) {
        struct kfit_report_key *k = &r.keys[i];
        const double ns = k->measured ? k->before_ns : scale[k->gpu] * nominal_ns(k);
        k->share = (double)k->calls * ns;
        if (!k->measured && r.any_measured)
            k->before_ns = k->after_ns = ns;
        total += k->share;
    }
    for (size_t i = 0; i < r.count; i++) {
        struct kfit_report_key *k = &r.keys[i];
        k->share = total > 0 ? k->share / total : 0;
        if (k->judged && k->verdict == KFIT_VERDICT_PROMOTED)
            r.share_replaceable += k->share;
        if (k->calls)
            r.share_replaced += k->share * (double)k->count[KFIT_REASON_NONE] / (double)k->calls;
    }
    const double known = (double)r.launches.ours + (double)r.launches.in_op;
    if (known + (double)r.launches.other > 0)
        r.share_known_ops = known / (known + (double)r.launches.other);
    else if (r.calls + r.unkeyed)
        r.share_known_ops = (double)r.calls / (double)(r.calls + r.unkeyed);
    if (extra->ab)
        r.ab = *extra->ab;
    kfit_report_weigh(&r);
    if (extra->previous && in->published) {
        r.changes.previous = extra->previous_generation;
        kfit_records_compare(extra->previous, in->published, count_change, &r.changes);
    }
    if (r.count)
        qsort(r.keys, r.count, sizeof *r.keys, by_share);
    *out = r;
    return KFIT_OK;
}

bool kfit_report_kept_for(const struct kfit_report_key *k, const char *code)
{
    return k->judged && k->verdict != KFIT_VERDICT_PROMOTED && !strcmp(k->code, code);
}

bool kfit_report_reason_begins(const struct kfit_report *r, size_t i)
{
    size_t first = 0;
    if (!kfit_report_kept_for(&r->keys[i], r->keys[i].code))
        return false;
    while (first < i && !kfit_report_kept_for(&r->keys[first], r->keys[i].code))
        first++;
    return first == i;
}

void kfit_report_finish(struct kfit_report *r)
{
    free(r->keys);
    *r = (struct kfit_report){0};
}
