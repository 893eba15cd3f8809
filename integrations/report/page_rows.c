/* A row of the table and what it opens into: results, receipt, misses. */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "page.h"

enum { TEXT_BYTES = 512, DIGEST_SHOWN = 8 };

/* ---- text ---- */

void kfit_page_text(cJSON *object, const char *name, const char *fmt, ...)
{
    char text[TEXT_BYTES];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    cJSON_AddStringToObject(object, name, text);
}

void kfit_page_cells(cJSON *array, ...)
{
    cJSON *row = cJSON_CreateArray();
    va_list ap;
    va_start(ap, array);
    for (const char *text; (text = va_arg(ap, const char *));)
        cJSON_AddItemToArray(row, cJSON_CreateString(text));
    va_end(ap);
    cJSON_AddItemToArray(array, row);
}

cJSON *kfit_page_table(cJSON *object, const char *name)
{
    return cJSON_AddArrayToObject(cJSON_AddObjectToObject(object, name), "rows");
}

void kfit_page_prune(cJSON *object)
{
    for (cJSON *item = object ? object->child : NULL, *next; item; item = next) {
        const cJSON *rows = cJSON_GetObjectItemCaseSensitive(item, "rows");
        next = item->next;
        if (rows && !rows->child)
            cJSON_Delete(cJSON_DetachItemViaPointer(object, item));
    }
}

const char *kfit_page_count(uint64_t n, char buf[32])
{
    char digits[24];
    unsigned len = (unsigned)snprintf(digits, sizeof digits, "%llu", (unsigned long long)n), at = 0;
    for (unsigned i = 0; i < len; i++) {
        if (i && (len - i) % 3 == 0)
            buf[at++] = ',';
        buf[at++] = digits[i];
    }
    buf[at] = '\0';
    return buf;
}

const char *kfit_page_when(int64_t unix_s, char buf[32])
{
    struct tm tm;
    time_t t = (time_t)unix_s;
    if (unix_s <= 0 || !gmtime_r(&t, &tm) || !strftime(buf, 32, "%Y-%m-%d %H:%M UTC", &tm))
        strcpy(buf, "-");
    return buf;
}

const char *kfit_page_percent(double share, char buf[24])
{
    snprintf(buf, 24, share > 0 && share < 0.001 ? "< 0.1 %%" : "%.1f %%", 100 * share);
    return buf;
}

const char *kfit_page_dims(const char *key, char *buf, size_t size)
{
    for (const char *p = key; *p; p += *p == '/') {
        size_t n = strcspn(p, "/");
        if (memchr(p, '=', n) && memchr(p, ',', n)) {
            size_t at = 0;
            for (size_t i = 0; i < n && at + 3 < size; i++) {
                buf[at++] = p[i];
                if (p[i] == ',')
                    buf[at++] = ' ';
            }
            buf[at] = '\0';
            return buf;
        }
        p += n;
    }
    snprintf(buf, size, "%s", key);
    return buf;
}

/* ---- the detail ---- */

static void add_gates(cJSON *detail, const struct kfit_receipt *r)
{
    cJSON *gates = kfit_page_table(detail, "gates");
    for (unsigned i = 0; i < r->gate_count; i++) {
        const struct kfit_gate_result *g = &r->gates[i];
        char seeds[16] = "-", rms[16] = "-", worst[16] = "-";
        if (g->seeds)
            snprintf(seeds, sizeof seeds, "%u", g->seeds);
        if (g->err_rms > 0)
            snprintf(rms, sizeof rms, "%.2g", g->err_rms);
        if (g->err_worst > 0)
            snprintf(worst, sizeof worst, "%.2g", g->err_worst);
        kfit_page_cells(gates, g->name,
                        g->ok     ? "passed"
                        : g->code ? kfit_code_str(g->code)
                                  : "failed",
                        seeds, rms, worst, g->distribution, g->at, NULL);
    }
}

static void add_timings(cJSON *detail, const struct kfit_receipt *r)
{
    cJSON *timings = kfit_page_table(detail, "timings");
    for (unsigned i = 0; i < r->timing_count; i++) {
        const struct kfit_timing *t = &r->timings[i];
        char pairs[16], ratio[64], ns[3][24];
        snprintf(pairs, sizeof pairs, "%u", t->n);
        snprintf(ratio, sizeof ratio, "%.3f [%.3f, %.3f]", t->ratio, t->lo, t->hi);
        kfit_page_cells(timings, t->mode, t->clock, pairs, ratio, kfit_report_ns(t->ns_candidate, ns[0]),
                        kfit_report_ns(t->ns_incumbent, ns[1]), kfit_report_ns(t->ns_generic, ns[2]), NULL);
    }
}

__attribute__((format(printf, 3, 4))) static void pair(cJSON *pairs, const char *name, const char *fmt, ...)
{
    char text[TEXT_BYTES];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (*text)
        kfit_page_cells(pairs, name, text, NULL);
}

static void add_receipt(cJSON *detail, cJSON *pairs, const struct kfit_receipt *r)
{
    pair(pairs, "Candidate", "%s%s%s", r->name, r->knobs[0] ? " " : "", r->knobs);
    pair(pairs, "Proposed by", "%s%s%s%s%s", r->proposer, r->operator_name[0] ? ", " : "", r->operator_name,
         r->model[0] ? ", " : "", r->model);
    pair(pairs, "Campaign", "%s", r->campaign);
    pair(pairs, "Properties", "%s, %s",
         r->deterministic ? "bitwise repeatable" : "not shown to be repeatable",
         r->data_oblivious ? "time does not depend on the data" : "time may depend on the data");
    if (r->noise > 0)
        pair(pairs, "Noise", "+-%.2f %% between two runs of the same", 100 * r->noise);
    pair(pairs, "Compiler kept in", "%s", r->isolation);
    pair(pairs, "Seed", "%llu", (unsigned long long)r->seed);
    pair(pairs, "Judge's words", "%s", r->detail);
    pair(pairs, "Tuned on", "%s", r->env.hard);
    pair(pairs, "Tuned with", "%s", r->env.soft);
    add_gates(detail, r);
    add_timings(detail, r);
}

static const struct kfit_record *record_of(const struct kfit_report_page *p, const struct kfit_report_key *k)
{
    const struct kfit_records *sets[] = {p->published, p->staged};
    const struct kfit_record *r = NULL;
    for (unsigned i = 0; i < 2 && !r; i++)
        r = sets[i] ? kfit_records_find(sets[i], k->env_hard, &k->key) : NULL;
    return r;
}

/* Where the key was recorded, for what no receipt says. */
static const char *recorded_on(const struct kfit_report_page *p, uint64_t env_hard)
{
    for (size_t i = 0; i < p->process_count; i++) {
        const struct kfit_env *env = &kfit_trace_header(p->processes[i])->env;
        if (kfit_text_hash(env->hard) == env_hard)
            return env->hard;
    }
    return "";
}

static void add_record(const struct kfit_report_page *p, const struct kfit_record *q, bool with_receipt,
                       cJSON *detail, cJSON *pairs)
{
    char when[32], digest[2 * DIGEST_SHOWN + 1];
    struct kfit_receipt *r = malloc(sizeof *r);
    kfit_hex(q->source_digest, DIGEST_SHOWN, digest);
    pair(pairs, "Origin", "%s", q->origin);
    pair(pairs, "Made", "%s", kfit_page_when(q->made_unix_s, when));
    pair(pairs, "Source", "%s...", digest);
    if (!with_receipt)
        pair(pairs, "Receipt", "left out to keep this page small; `kfit cache show KEY` has it");
    else if (r && kfit_record_receipt(q, p->store, r))
        add_receipt(detail, pairs, r);
    else
        pair(pairs, "Receipt", "not in this store");
    free(r);
}

cJSON *kfit_page_detail(const struct kfit_report_page *p, const struct kfit_report_key *k, bool with_receipt)
{
    const struct kfit_record *q = record_of(p, k);
    cJSON *detail = cJSON_CreateObject(), *pairs = kfit_page_table(detail, "pairs");
    cJSON *misses = kfit_page_table(detail, "went");
    if (k->judged && k->verdict != KFIT_VERDICT_PROMOTED)
        pair(pairs, "Why the original", "%s%s%s%s", kfit_report_code_words(k->code), k->code[0] ? " (" : "",
             k->code, k->code[0] ? ")" : "");
    if (k->judged)
        pair(pairs, "Published", "%s",
             k->published ? "yes"
             : q          ? "no, staged: `kfit approve` publishes it"
                          : "no");
    if (!k->measured)
        pair(pairs, "Time", "estimated from FLOPs and bytes, never measured");
    if (q)
        add_record(p, q, with_receipt, detail, pairs);
    else
        pair(pairs, "Recorded on", "%s", recorded_on(p, k->env_hard));
    if (k->near_miss[0])
        pair(pairs, "Near miss", "%s", k->near_miss);
    for (unsigned i = 1; i < KFIT_REASON_COUNT; i++) {
        char n[32];
        if (k->count[i])
            kfit_page_cells(misses, kfit_page_count(k->count[i], n), kfit_reason_name(i), kfit_reason_text(i),
                            NULL);
    }
    kfit_page_prune(detail);
    return detail;
}

cJSON *kfit_page_row(const struct kfit_report_page *p, const struct kfit_report_key *k)
{
    char key[KFIT_KEY_TEXT_MAX], dims[KFIT_KEY_TEXT_MAX], text[32], ns[24];
    const char *verdict = k->judged ? kfit_verdict_str(k->verdict) : "untuned";
    const char *about = k->measured || !(k->before_ns > 0) ? "" : "~";
    cJSON *o = cJSON_CreateObject();
    kfit_key_format(&k->key, key, sizeof key);
    kfit_page_text(o, "key", "%s", key);
    kfit_page_text(o, "dims", "%s", kfit_page_dims(key, dims, sizeof dims));
    kfit_page_text(o, "share", "%s", k->calls ? kfit_page_percent(k->share, ns) : "-");
    kfit_page_text(o, "calls", "%s", kfit_page_count(k->calls, text));
    kfit_page_text(o, "replaced", "%s", kfit_page_count(k->count[KFIT_REASON_NONE], text));
    kfit_page_text(o, "before", "%s%s", about, kfit_report_ns(k->before_ns, ns));
    kfit_page_text(o, "after", "%s%s", about, kfit_report_ns(k->after_ns, ns));
    kfit_page_text(o, "floor", "%s", kfit_report_ns(k->floor_ns, ns));
    if (k->ratio > 0) {
        kfit_page_text(o, "ratio", "%.2f", k->ratio);
        kfit_page_text(o, "range", "[%.2f, %.2f]", k->lo, k->hi);
    } else {
        kfit_page_text(o, "ratio", "-");
        kfit_page_text(o, "range", "%s", "");
    }
    kfit_page_text(o, "verdict", "%s", verdict);
    cJSON_AddItemToObject(o, "detail", kfit_page_detail(p, k, true));
    return o;
}
