/* report.json, version 1: see README.md. Figures are rounded to four digits: more would be noise. */
#include <stdlib.h>

#include "report.h"

static void number(cJSON *o, const char *name, double v, bool known)
{
    char text[32];
    if (!known) {
        cJSON_AddNullToObject(o, name);
        return;
    }
    snprintf(text, sizeof text, "%.4g", v);
    cJSON_AddNumberToObject(o, name, atof(text));
}

static cJSON *reasons(const uint64_t count[KFIT_TRACE_REASONS])
{
    cJSON *o = cJSON_CreateObject();
    for (unsigned i = 1; i < KFIT_REASON_COUNT; i++)
        if (count[i])
            cJSON_AddNumberToObject(o, kfit_reason_name(i), (double)count[i]);
    return o;
}

static cJSON *row(const struct kfit_report_key *k)
{
    char key[KFIT_KEY_TEXT_MAX];
    cJSON *o = cJSON_CreateObject();
    kfit_key_format(&k->key, key, sizeof key);
    cJSON_AddStringToObject(o, "key", key);
    cJSON_AddNumberToObject(o, "calls", (double)k->calls);
    cJSON_AddNumberToObject(o, "hits", (double)k->count[KFIT_REASON_NONE]);
    number(o, "share", k->share, true);
    number(o, "before_ns", k->before_ns, k->before_ns > 0);
    number(o, "after_ns", k->after_ns, k->after_ns > 0);
    number(o, "floor_ns", k->floor_ns, k->floor_ns > 0);
    number(o, "ratio", k->ratio, k->ratio > 0);
    number(o, "lo", k->lo, k->ratio > 0);
    number(o, "hi", k->hi, k->ratio > 0);
    if (k->judged)
        cJSON_AddStringToObject(o, "verdict", kfit_verdict_str(k->verdict));
    else
        cJSON_AddNullToObject(o, "verdict");
    cJSON_AddStringToObject(o, "code", k->code);
    cJSON_AddStringToObject(o, "basis", k->measured ? "measured" : "estimated");
    cJSON_AddBoolToObject(o, "published", k->published);
    cJSON_AddItemToObject(o, "misses", reasons(k->count));
    if (k->near_miss[0])
        cJSON_AddStringToObject(o, "near_miss", k->near_miss);
    return o;
}

static cJSON *program(const struct kfit_report *r)
{
    const struct kfit_report_gain *g = &r->program;
    cJSON *o = cJSON_CreateObject();
    number(o, "gain", g->gain, g->known);
    number(o, "lo", g->lo, g->known);
    number(o, "hi", g->hi, g->known);
    cJSON_AddStringToObject(o, "basis", g->measured ? "measured" : "estimated");
    cJSON_AddBoolToObject(o, "at_most", g->at_most);
    cJSON_AddBoolToObject(o, "realised", g->realised);
    return o;
}

/* As read, so that one file says it all. */
static cJSON *measurement(const struct kfit_report_ab *ab)
{
    cJSON *o = cJSON_CreateObject();
    cJSON_AddStringToObject(o, "mode", ab->mode);
    cJSON_AddBoolToObject(o, "metric", ab->metric[0]);
    cJSON_AddNumberToObject(o, "pairs", ab->pairs);
    number(o, "ratio", ab->ratio, true);
    number(o, "lo", ab->lo, true);
    number(o, "hi", ab->hi, true);
    number(o, "off_s", ab->off_s, ab->off_s > 0);
    number(o, "on_s", ab->on_s, ab->on_s > 0);
    number(o, "predicted", ab->predicted, ab->predicted > 0);
    number(o, "spread", ab->spread, ab->spread >= 0);
    number(o, "generation", (double)ab->generation, ab->generation > 0);
    return o;
}

static cJSON *changes(const struct kfit_report_changes *c)
{
    cJSON *o = cJSON_CreateObject();
    cJSON_AddNumberToObject(o, "previous", (double)c->previous);
    cJSON_AddNumberToObject(o, "added", (double)c->added);
    cJSON_AddNumberToObject(o, "removed", (double)c->removed);
    cJSON_AddNumberToObject(o, "changed", (double)c->changed);
    cJSON_AddNumberToObject(o, "same", (double)c->same);
    return o;
}

cJSON *kfit_report_json(const struct kfit_report *r)
{
    char headline[512];
    cJSON *o = cJSON_CreateObject(), *coverage = cJSON_CreateObject(), *keys = cJSON_CreateArray();
    cJSON_AddNumberToObject(o, "version", KFIT_REPORT_VERSION);
    if (r->generation)
        cJSON_AddNumberToObject(o, "generation", (double)r->generation);
    else
        cJSON_AddNullToObject(o, "generation");
    cJSON_AddItemToObject(o, "coverage", coverage);
    cJSON_AddNumberToObject(coverage, "calls", (double)(r->calls + r->unkeyed));
    cJSON_AddNumberToObject(coverage, "keys", (double)r->count);
    cJSON_AddNumberToObject(coverage, "promoted", (double)r->promoted);
    cJSON_AddNumberToObject(coverage, "kept", (double)r->kept);
    cJSON_AddNumberToObject(coverage, "untuned", (double)r->untuned);
    number(coverage, "share_known_ops", r->share_known_ops, true);
    if (r->launches.ours || r->launches.in_op || r->launches.other) {
        cJSON *launches = cJSON_AddObjectToObject(coverage, "launches");
        cJSON_AddNumberToObject(launches, "by_kfit", (double)r->launches.ours);
        cJSON_AddNumberToObject(launches, "in_known_ops", (double)r->launches.in_op);
        cJSON_AddNumberToObject(launches, "other", (double)r->launches.other);
    }
    number(coverage, "share_replaceable", r->share_replaceable, true);
    number(coverage, "share_replaced", r->share_replaced, true);
    number(coverage, "gain", r->gain, true);
    number(coverage, "gain_lo", r->gain_lo, true);
    number(coverage, "gain_hi", r->gain_hi, true);
    cJSON_AddItemToObject(coverage, "misses", reasons(r->miss));
    cJSON_AddStringToObject(o, "headline", kfit_report_headline(r, headline, sizeof headline));
    cJSON_AddItemToObject(o, "program", program(r));
    if (r->ab.pairs)
        cJSON_AddItemToObject(o, "ab", measurement(&r->ab));
    if (r->changes.previous)
        cJSON_AddItemToObject(o, "changes", changes(&r->changes));
    cJSON_AddItemToObject(o, "keys", keys);
    for (size_t i = 0; i < r->count; i++)
        cJSON_AddItemToArray(keys, row(&r->keys[i]));
    return o;
}
