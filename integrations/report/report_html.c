/* The page: values for its template, section by section, then all of it written. */
#include <stdlib.h>
#include <string.h>

#include "page.h"

enum {
    ROWS_PLAIN = 200, /* written as HTML, for readers without JavaScript */
    CHANGES_SHOWN = 200,
    KEYS_SHOWN = 12, /* per reason to keep the original */
    PROCESSES_SHOWN = 50
};

extern const char kfit_page_html[], kfit_page_css[], kfit_page_js[]; /* page.html, page.css, page.js */

/* ---- where the time goes ---- */

static void add_share(cJSON *array, const char *kind, const char *label, double share, double *from)
{
    char text[24];
    if (!(share > 0))
        return;
    cJSON *o = cJSON_CreateObject();
    kfit_page_text(o, "kind", "%s", kind);
    kfit_page_text(o, "label", "%s", label);
    kfit_page_text(o, "share", "%s", kfit_page_percent(share, text));
    cJSON_AddNumberToObject(o, "from", 100 * *from);
    cJSON_AddNumberToObject(o, "width", 100 * share);
    cJSON_AddItemToArray(array, o);
    *from += share;
}

static void add_shares(cJSON *values, const struct kfit_report *r)
{
    double waiting = 0, kept = 0, untuned = 0, from = 0;
    cJSON *array = kfit_page_table(values, "shares");
    for (size_t i = 0; i < r->count; i++) {
        const struct kfit_report_key *k = &r->keys[i];
        double rest = k->calls ? k->share * (1 - (double)k->count[KFIT_REASON_NONE] / (double)k->calls) : 0;
        *(!k->judged ? &untuned : k->verdict == KFIT_VERDICT_PROMOTED ? &waiting : &kept) += rest;
    }
    add_share(array, "replaced", "ran a kfit kernel", r->share_replaced, &from);
    add_share(array, "waiting", "could have, and did not", waiting, &from);
    add_share(array, "kept", "tuned, the original kept", kept, &from);
    add_share(array, "untuned", "not tuned", untuned, &from);
}

/* ---- sections ---- */

static void add_misses(cJSON *values, const struct kfit_report *r)
{
    cJSON *array = kfit_page_table(values, "misses");
    for (unsigned i = 1; i < KFIT_REASON_COUNT; i++) {
        char n[32], share[24];
        if (!r->miss[i])
            continue;
        kfit_page_cells(array, kfit_page_count(r->miss[i], n),
                        kfit_page_percent((double)r->miss[i] / (double)(r->calls + r->unkeyed), share),
                        kfit_reason_name(i), kfit_reason_text(i), NULL);
    }
}

static void add_near_misses(cJSON *values, const struct kfit_report *r)
{
    cJSON *array = kfit_page_table(values, "near");
    for (size_t i = 0; i < r->count; i++) {
        const struct kfit_report_key *k = &r->keys[i];
        char key[KFIT_KEY_TEXT_MAX], calls[32], share[24];
        if (!k->near_miss[0])
            continue;
        kfit_key_format(&k->key, key, sizeof key);
        kfit_page_cells(array, kfit_page_percent(k->share, share), kfit_page_count(k->calls, calls), key,
                        k->near_miss, NULL);
    }
}

/* Keys that kept the original, by the reason, the reason with the largest key first. */
static void add_kept(cJSON *values, const struct kfit_report *r)
{
    cJSON *array = kfit_page_table(values, "kept");
    for (size_t i = 0; i < r->count; i++) {
        const char *code = r->keys[i].code;
        double share = 0;
        size_t n = 0;
        char text[32];
        if (!kfit_report_reason_begins(r, i))
            continue;
        cJSON *o = cJSON_CreateObject(), *keys = cJSON_AddArrayToObject(o, "keys");
        for (size_t j = i; j < r->count; j++) {
            const struct kfit_report_key *k = &r->keys[j];
            char key[KFIT_KEY_TEXT_MAX];
            if (!kfit_report_kept_for(k, code))
                continue;
            share += k->share;
            kfit_key_format(&k->key, key, sizeof key);
            if (n++ < KEYS_SHOWN)
                cJSON_AddItemToArray(keys, cJSON_CreateString(key));
        }
        kfit_page_text(o, "code", "%s", code);
        kfit_page_text(o, "words", "%s", kfit_report_code_words(code));
        kfit_page_text(o, "count", "%s %s", kfit_page_count(n, text), n == 1 ? "shape" : "shapes");
        kfit_page_text(o, "of_time", "%s", r->calls ? kfit_page_percent(share, text) : "");
        if (n > KEYS_SHOWN)
            kfit_page_text(o, "more", "%s", kfit_page_count(n - KEYS_SHOWN, text));
        cJSON_AddItemToArray(array, o);
    }
}

struct changing {
    cJSON *rows;
    size_t shown, left;
};

static const char *result(const struct kfit_record *r, char buf[96])
{
    if (!r)
        return "-";
    if (r->kind != KFIT_RECORD_WINNER)
        return "the original is kept";
    snprintf(buf, 96, "%.2f [%.2f, %.2f]", r->ratio, r->lo, r->hi);
    return buf;
}

static void add_change(void *ctx, const struct kfit_record *before, const struct kfit_record *now)
{
    struct changing *c = ctx;
    char key[KFIT_KEY_TEXT_MAX], a[96], b[96];
    if (before && now && kfit_record_same(before, now))
        return;
    if (c->shown == CHANGES_SHOWN) {
        c->left++;
        return;
    }
    c->shown++;
    kfit_key_format(now ? &now->key : &before->key, key, sizeof key);
    kfit_page_cells(c->rows,
                    !before ? "added"
                    : !now  ? "removed"
                            : "changed",
                    result(before, a), result(now, b), now ? now->origin : before->origin, key, NULL);
}

static void add_generations(cJSON *values, const struct kfit_report_page *p)
{
    const struct kfit_report_changes *c = &p->report->changes;
    const struct kfit_manifest *manifests[] = {p->manifest, p->before};
    char n[4][32];
    cJSON *o = cJSON_AddObjectToObject(values, "generations"), *list = kfit_page_table(o, "list");
    struct changing rows = {kfit_page_table(o, "changes"), 0, 0};
    for (unsigned i = 0; i < 2; i++) {
        const struct kfit_manifest *m = manifests[i];
        char number[32], records[32], when[32];
        if (!m)
            continue;
        snprintf(number, sizeof number, "%llu%s", (unsigned long long)m->number, i ? "" : " (current)");
        kfit_page_cells(list, number, kfit_page_count(m->records, records),
                        kfit_page_when(m->created_unix_s, when), m->approver, m->note, NULL);
    }
    if (c->previous) {
        kfit_page_text(o, "summary",
                       "Against generation %llu: %s added, %s removed, %s changed, %s as before.",
                       (unsigned long long)c->previous, kfit_page_count(c->added, n[0]),
                       kfit_page_count(c->removed, n[1]), kfit_page_count(c->changed, n[2]),
                       kfit_page_count(c->same, n[3]));
        kfit_records_compare(p->previous, p->published, add_change, &rows);
    }
    if (rows.left)
        kfit_page_text(o, "more", "%s", kfit_page_count(rows.left, n[0]));
    kfit_page_prune(o);
}

static void add_measurement(cJSON *values, const struct kfit_report_ab *ab)
{
    cJSON *rows = kfit_page_table(values, "ab");
    char text[80];
    snprintf(text, sizeof text, "%.3f [%.3f, %.3f]", ab->ratio, ab->lo, ab->hi);
    kfit_page_cells(rows, ab->metric[0] ? "Ratio of the metric" : "Time without / time with", text, NULL);
    if (ab->metric[0])
        kfit_page_cells(rows, "Metric", ab->metric, NULL);
    if (ab->off_s > 0 && ab->on_s > 0) {
        char off[24], on[24];
        snprintf(text, sizeof text, "%s and %s", kfit_report_ns(ab->off_s * 1e9, off),
                 kfit_report_ns(ab->on_s * 1e9, on));
        kfit_page_cells(rows, "Without and with", text, NULL);
    }
    if (ab->predicted > 0) {
        snprintf(text, sizeof text, "%.3f", ab->predicted);
        kfit_page_cells(rows, "Predicted from the shapes", text, NULL);
    }
    snprintf(text, sizeof text, "%u pairs of %s", ab->pairs, ab->mode);
    kfit_page_cells(rows, "Alternating", text, NULL);
    if (ab->spread >= 0) {
        snprintf(text, sizeof text, "%.2f %%", 100 * ab->spread);
        kfit_page_cells(rows, "Spread without", text, NULL);
    }
    if (ab->generation) {
        snprintf(text, sizeof text, "%llu", (unsigned long long)ab->generation);
        kfit_page_cells(rows, "Generation", text, NULL);
    }
    kfit_page_cells(rows, "Command", ab->command, NULL);
}

/* A field of a trace's header need not end with a NUL. */
#define FIELD(array) (int)strnlen(array, sizeof array), array

static void add_processes(cJSON *values, const struct kfit_report_page *p)
{
    cJSON *array = kfit_page_table(values, "processes");
    char text[32];
    for (size_t i = 0; i < p->process_count && i < PROCESSES_SHOWN; i++) {
        const struct kfit_trace *t = p->processes[i];
        const struct kfit_trace_header *h = kfit_trace_header(t);
        uint64_t calls = 0, hits = 0;
        for (size_t s = 0; s < kfit_trace_count(t); s++) {
            calls += kfit_slot_calls(kfit_trace_at(t, s));
            hits += kfit_trace_at(t, s)->count[KFIT_REASON_NONE];
        }
        for (unsigned u = 0; u < KFIT_TRACE_REASONS; u++)
            calls += h->unkeyed[u];
        cJSON *o = cJSON_CreateObject();
        kfit_page_text(o, "label", "%.*s", FIELD(h->label));
        kfit_page_text(o, "program", "%.*s", FIELD(h->program));
        kfit_page_text(o, "env", "%.*s", FIELD(h->env.hard));
        kfit_page_text(o, "soft", "%.*s", FIELD(h->env.soft));
        kfit_page_text(o, "state", "%.*s", FIELD(h->state_text));
        kfit_page_text(o, "start", "%s", kfit_page_when(h->start_unix_ns / 1000000000, text));
        kfit_page_text(o, "calls", "%s", kfit_page_count(calls, text));
        kfit_page_text(o, "replaced", "%s", kfit_page_count(hits, text));
        if (h->generation)
            kfit_page_text(o, "generation", "%llu", (unsigned long long)h->generation);
        cJSON_AddItemToArray(array, o);
    }
    if (p->process_count > PROCESSES_SHOWN)
        kfit_page_text(cJSON_GetObjectItemCaseSensitive(values, "processes"), "more", "%s",
                       kfit_page_count(p->process_count - PROCESSES_SHOWN, text));
    if (p->process_count == 1) { /* what the report is about, in its title */
        const struct kfit_trace_header *h = kfit_trace_header(p->processes[0]);
        if (h->label[0])
            kfit_page_text(values, "title", "%.*s", FIELD(h->label));
        else
            kfit_page_text(values, "title", "%.*s", FIELD(h->program));
    }
}

/* The first line in pieces that should not be broken: "45 % [42, 48]," is one, other words are one each. */
static void add_headline(cJSON *values, const struct kfit_report *r)
{
    char line[512];
    cJSON *pieces = cJSON_AddArrayToObject(values, "headline");
    kfit_report_headline(r, line, sizeof line);
    for (char *from = line, *space = line; *from; from = space + 1) {
        bool bracket = *from == '[';
        space = from;
        while (*(space += strcspn(space, " ")) && (strchr("%[", space[1]) || bracket)) {
            bracket = space[1] == '[';
            space++;
        }
        bool last = !*space;
        *space = '\0';
        cJSON_AddItemToArray(pieces, cJSON_CreateString(from));
        if (last)
            break;
    }
}

static void add_facts(cJSON *values, const struct kfit_report_page *p)
{
    const struct kfit_report *r = p->report;
    char a[32], b[32], c[32], d[32];
    if (r->generation)
        kfit_page_text(values, "current", "%llu", (unsigned long long)r->generation);
    kfit_page_text(values, "keys", "%s shapes: %s promoted, %s kept, %s untuned",
                   kfit_page_count(r->count, a), kfit_page_count(r->promoted, b), kfit_page_count(r->kept, c),
                   kfit_page_count(r->untuned, d));
    if (r->calls + r->unkeyed)
        kfit_page_text(values, "traffic", "%s calls, %.0f %% of %s in known ops",
                       kfit_page_count(r->calls + r->unkeyed, a), 100 * r->share_known_ops,
                       kfit_report_counted(r));
    kfit_page_text(values, "made", "%s", kfit_page_when(p->made_unix_s, a));
    kfit_page_text(values, "version", "%s", p->version ? p->version : "");
}

/* A row with nothing in it, for the script to fill. */
static void add_blank(cJSON *values)
{
    static const char *const tables[] = {"pairs", "went", "gates", "timings"};
    cJSON *detail = cJSON_AddObjectToObject(cJSON_AddObjectToObject(values, "blank"), "detail");
    for (unsigned i = 0; i < sizeof tables / sizeof *tables; i++)
        kfit_page_table(detail, tables[i]);
}

static cJSON *values_of(const struct kfit_report_page *p)
{
    const struct kfit_report *r = p->report;
    char line[1024];
    cJSON *values = cJSON_CreateObject(), *rows = cJSON_AddArrayToObject(values, "shapes");
    add_headline(values, r);
    kfit_page_text(values, "basis", "%s", kfit_report_basis(r, line, sizeof line));
    add_facts(values, p);
    if (r->calls)
        add_shares(values, r);
    for (size_t i = 0; i < r->count && i < ROWS_PLAIN; i++)
        cJSON_AddItemToArray(rows, kfit_page_row(p, &r->keys[i]));
    if (r->count > ROWS_PLAIN)
        cJSON_AddNumberToObject(values, "plain", ROWS_PLAIN);
    cJSON_AddItemToObject(values, "chart", kfit_page_chart(r));
    add_misses(values, r);
    add_near_misses(values, r);
    add_kept(values, r);
    if (r->ab.pairs)
        add_measurement(values, &r->ab);
    if (p->manifest)
        add_generations(values, p);
    add_processes(values, p);
    kfit_page_prune(values);
    add_blank(values);
    return values;
}

/* ---- the page ---- */

/* 'sha256-...': what the page's own policy lets run. */
static void add_digest(cJSON *values, const char *name, const char *text)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    uint8_t sum[33] = {0}; /* 32 and one more to make whole groups of three */
    char out[45];
    kfit_sha256(text, strlen(text), sum);
    for (unsigned i = 0; i < 11; i++) {
        unsigned group = (unsigned)sum[3 * i] << 16 | (unsigned)sum[3 * i + 1] << 8 | sum[3 * i + 2];
        for (unsigned j = 0; j < 4; j++)
            out[4 * i + j] = digits[group >> (18 - 6 * j) & 63];
    }
    out[43] = '=';
    out[44] = '\0';
    kfit_page_text(values, name, "sha256-%s", out);
}

enum kfit_status kfit_report_html(const struct kfit_report_page *p, FILE *to, struct kfit_error *err)
{
    char *data = kfit_page_data(p);
    cJSON *values = values_of(p);
    enum kfit_status s;
    if (data && values) {
        const struct kfit_part parts[] = {
            {"css", kfit_page_css}, {"js", kfit_page_js}, {"data", data}, {NULL, NULL}};
        add_digest(values, "css_digest", kfit_page_css);
        add_digest(values, "js_digest", kfit_page_js);
        s = kfit_template_write(kfit_page_html, values, parts, to, err);
    } else {
        s = kfit_fail(err, KFIT_E_NOMEM, "report: out of memory for the page");
    }
    cJSON_Delete(values);
    free(data);
    return s;
}
