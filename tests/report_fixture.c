/* Makes a store and a trace of many shapes for test_report_html.py and the page's benchmark:
 *
 *   report_fixture CACHE TRACES COUNT [TEXT...]
 *
 * Of COUNT shapes, one in seven was never tuned and one in nine kept the original, each for another code; the rest
 * are staged winners with whole receipts. With TEXTs, every text of the trace's header, the records and the
 * receipts is one of them, in turn: whatever bytes they hold.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kfit/op.h"
#include "kfit/receipt.h"
#include "kfit/store.h"
#include "kfit/trace.h"

struct texts {
    char **item;
    unsigned count, next;
};

/* The next TEXT as much of it as fits, or the usual. */
static void fill(struct texts *t, char *to, size_t size, const char *usual)
{
    snprintf(to, size, "%s", t->count ? t->item[t->next++ % t->count] : usual);
}
#define FILL(t, array, usual) fill(t, array, sizeof(array), usual)

static bool printable(const char *s)
{
    while (*s >= ' ' && *s <= '~')
        s++;
    return !*s;
}

static int fail(const char *what, const struct kfit_error *err)
{
    fprintf(stderr, "report_fixture: %s: %s\n", what, err->text);
    return 1;
}

static union kfit_key key_of(unsigned i)
{
    char text[KFIT_KEY_TEXT_MAX];
    struct kfit_error err = {0};
    union kfit_key key;
    unsigned m = 1u << i % 5, n = 64 * (1 + i / 5), k = i % 2 ? 4096 : 1024;
    snprintf(text, sizeof text,
             "gemm/f32,f32,f32/acc=f32/m=%u,n=%u,k=%u/nn/lda=%u,ldb=%u,ldc=%u/alpha=1,beta=0/align=16", m, n,
             k, k, n, n);
    if (kfit_key_parse(text, &key, &err) != KFIT_OK)
        exit(fail(text, &err));
    return key;
}

static void environment(struct texts *t, struct kfit_env *env)
{
    kfit_env_host(env, 1, "Fixture 1", "gcc 0");
    if (!t->count)
        return;
    FILL(t, env->hard, "");
    FILL(t, env->soft, "");
    env->hard_hash = kfit_text_hash(env->hard);
    env->soft_hash = kfit_text_hash(env->soft);
}

static int make_trace(struct texts *t, const struct kfit_env *env, const char *dir, unsigned count)
{
    struct kfit_error err = {0};
    struct kfit_recorder *r;
    if (kfit_recorder_create(
            &r, &(struct kfit_recorder_params){.dir = dir, .mode = KFIT_MODE_BOTH, .label = "fixture"},
            &err) != KFIT_OK)
        return fail("recorder", &err);
    struct kfit_trace_header *h = kfit_recorder_header(r);
    h->env = *env;
    h->generation = 1;
    h->start_unix_ns = h->end_unix_ns = 0;
    FILL(t, h->label, "fixture");
    FILL(t, h->program, "python3 serve.py");
    FILL(t, h->state_text, "dispatches generation 1");
    for (unsigned i = 0; i < count; i++) {
        union kfit_key key = key_of(i);
        struct kfit_trace_slot *s = kfit_recorder_slot(r, &key, kfit_key_hash(&key));
        uint64_t calls = 1 + 1000000 / (i + 1), hits = i % 7 && i % 9 ? calls - calls / 20 : 0;
        if (!s)
            return fail("slot", &err);
        s->count[KFIT_REASON_NONE] = hits;
        s->count[i % 7 ? i % 9 ? KFIT_REASON_ALIGN : KFIT_REASON_NEGATIVE : KFIT_REASON_NO_RECORD] =
            calls - hits;
    }
    kfit_recorder_destroy(r);
    return 0;
}

/* All numbers are made up, and differ from key to key as real ones do. */
static void make_receipt(struct texts *t, const struct kfit_env *env, const struct kfit_record *r, unsigned i,
                         struct kfit_receipt *out)
{
    static const char *const gates[] = {"static", "correct", "hidden", "fast", "bound", "repeat"};
    static const char *const modes[][2] = {{"warm", "inner"}, {"warm", "outer"}, {"cold", "inner"}};
    bool won = r->kind == KFIT_RECORD_WINNER;
    *out = (struct kfit_receipt){.key = r->key,
                                 .env = *env,
                                 .plan = r->plan,
                                 .gate_count = won ? 6 : 4,
                                 .timing_count = 3,
                                 .noise = 0.001 + i % 13 * 0.0003,
                                 .bound_ns = 0.4 * r->ns_candidate,
                                 .deterministic = true,
                                 .data_oblivious = i % 2,
                                 .seed = 1000003ull * (i + 1),
                                 .verdict = won ? KFIT_VERDICT_PROMOTED : KFIT_VERDICT_KEPT,
                                 .code = won ? KFIT_CODE_NONE
                                             : (enum kfit_code)(1 + i / 9 % (KFIT_CODE_COUNT - 1)),
                                 .made_unix_s = r->made_unix_s};
    memcpy(out->digest, r->source_digest, sizeof out->digest);
    FILL(t, out->name, "rowstream");
    FILL(t, out->knobs, i % 2 ? "KB=4 MR=4 AL=1" : "KB=8 MR=2 AL=1");
    FILL(t, out->proposer, "kfit");
    FILL(t, out->operator_name, i % 3 ? "seed" : "mutate");
    FILL(t, out->campaign, "default");
    FILL(t, out->origin, "seed:rowstream");
    FILL(t, out->model, "");
    FILL(t, out->isolation, "landlock");
    FILL(t, out->detail, "");
    for (unsigned g = 0; g < out->gate_count; g++) {
        struct kfit_gate_result *to = &out->gates[g];
        *to = (struct kfit_gate_result){.ok = won || g < 3,
                                        .seeds = g % 3 * 4,
                                        .err_rms = g * 0.01 * (i % 97),
                                        .err_worst = g * 0.1 * (i % 89)};
        snprintf(to->name, sizeof to->name, "%s", gates[g]);
        FILL(t, to->distribution, g == 1 ? "shifted" : "");
        FILL(t, to->at, "");
    }
    for (unsigned m = 0; m < out->timing_count; m++) {
        struct kfit_timing *to = &out->timings[m];
        *to = (struct kfit_timing){.n = 30,
                                   .ratio = r->ratio,
                                   .lo = r->lo,
                                   .hi = r->hi,
                                   .ns_candidate = r->ns_candidate * (1 + m),
                                   .ns_incumbent = r->ns_incumbent * (1 + m),
                                   .ns_generic = r->ns_generic * (1 + m)};
        snprintf(to->mode, sizeof to->mode, "%s", modes[m][0]);
        snprintf(to->clock, sizeof to->clock, "%s", modes[m][1]);
    }
}

static enum kfit_status stage(struct texts *t, struct kfit_store *s, const struct kfit_env *env, unsigned i,
                              struct kfit_error *err)
{
    static struct kfit_receipt receipt;
    double ns = 300 + 7.31 * i, ratio = 1.05 + i % 41 * 0.05;
    bool won = i % 9;
    struct kfit_record r = {
        .key = key_of(i),
        .kind = won ? KFIT_RECORD_WINNER : KFIT_RECORD_NEGATIVE,
        .env_hard = env->hard_hash,
        .env_soft = env->soft_hash,
        .made_unix_s = 1700000000 + i,
        .ns_candidate = won ? ns / ratio : ns * 1.1,
        .ns_incumbent = ns,
        .ns_generic = ns,
        .ratio = won ? ratio : 0.91,
        .lo = won ? ratio - 0.02 : 0.9,
        .hi = won ? ratio + 0.03 : 0.92,
    };
    r.op_version = kfit_op_of(&r.key)->version;
    memcpy(r.source_digest, &i, sizeof i);
    r.source_digest[31] = 1;
    do /* a record's origin is printable, or the store refuses it */
        FILL(t, r.origin, "seed:rowstream");
    while (!printable(r.origin));
    if (won) {
        r.image = "\xc3";
        r.image_bytes = 1;
        r.plan = (struct kfit_plan){.launch_count = 1};
        r.plan.launches[0] = (struct kfit_launch){
            .entry = "kfit_main", .grid = {1, 1, 1}, .block = {1, 1, 1}, .cluster = {1, 1, 1}};
    }
    make_receipt(t, env, &r, i, &receipt);
    char *json = kfit_receipt_to_json(&receipt);
    if (!json)
        return kfit_fail(err, KFIT_E_NOMEM, "out of memory");
    enum kfit_status st = kfit_store_stage(s, env, &r, json, err);
    free(json);
    return st;
}

int main(int argc, char **argv)
{
    struct kfit_error err = {0};
    struct kfit_store *s;
    struct kfit_env env;
    if (argc < 4) {
        fprintf(stderr, "usage: see report_fixture.c\n");
        return 2;
    }
    struct texts t = {argv + 4, (unsigned)argc - 4, 0};
    unsigned count = (unsigned)strtoul(argv[3], NULL, 10);
    environment(&t, &env);
    if (make_trace(&t, &env, argv[2], count))
        return 1;
    if (kfit_store_open(argv[1], KFIT_STORE_WRITE, &s, &err) != KFIT_OK)
        return fail("store", &err);
    enum kfit_status st = KFIT_OK;
    for (unsigned i = 0; i < count && st == KFIT_OK; i++)
        if (i % 7)
            st = stage(&t, s, &env, i, &err);
    kfit_store_close(s);
    return st == KFIT_OK ? 0 : fail("stage", &err);
}
