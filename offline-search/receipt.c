/* Receipts: codes and verdicts by name, and the JSON form (version 1), written and read from one table. */
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "kfit/receipt.h"

static const char *const codes[] = {
#define KFIT_X(name, str) str,
    KFIT_CODE_LIST(KFIT_X)
#undef KFIT_X
};

const char *kfit_code_str(enum kfit_code c)
{
    return (unsigned)c < KFIT_CODE_COUNT ? codes[c] : "?";
}

enum kfit_code kfit_code_parse(const char *s)
{
    unsigned c = 0;
    while (c < KFIT_CODE_COUNT && strcmp(codes[c], s))
        c++;
    return (enum kfit_code)c;
}

static const char *const verdicts[] = {"kept", "promoted", "refused", "review"};

const char *kfit_verdict_str(enum kfit_verdict v)
{
    return (unsigned)v < sizeof verdicts / sizeof *verdicts ? verdicts[v] : "?";
}

/* ---- one table for writing and reading ---- */

/* 64-bit numbers are text, because a JSON number is a double. */
/* ADDED: a text that receipts had not from the beginning. */
enum kind { TEXT, ADDED, NUMBER, UINT, BIG, BOOLEAN, DIGEST, CODE, VERDICT };

struct field {
    const char *group, *name; /* group: the object inside which the field lives; NULL: the top one */
    enum kind kind;
    size_t offset, size;
};

#define FIELD(type, group, name, kind, member)                                                               \
    {                                                                                                        \
        group, name, kind, offsetof(struct type, member), sizeof(((struct type *)0)->member)                 \
    }

static const struct field receipt_fields[] = {
    FIELD(kfit_receipt, "candidate", "name", TEXT, name),
    FIELD(kfit_receipt, "candidate", "knobs", TEXT, knobs),
    FIELD(kfit_receipt, "parents", "a", DIGEST, parents[0]),
    FIELD(kfit_receipt, "parents", "b", DIGEST, parents[1]),
    FIELD(kfit_receipt, "origin", "proposer", TEXT, proposer),
    FIELD(kfit_receipt, "origin", "model", TEXT, model),
    FIELD(kfit_receipt, "origin", "operator", TEXT, operator_name),
    FIELD(kfit_receipt, "origin", "campaign", TEXT, campaign),
    FIELD(kfit_receipt, "origin", "source_digest", DIGEST, digest),
    FIELD(kfit_receipt, "origin", "text", TEXT, origin),
    FIELD(kfit_receipt, "origin", "approver", ADDED, approver),
    FIELD(kfit_receipt, "env", "hard", TEXT, env.hard),
    FIELD(kfit_receipt, "env", "soft", TEXT, env.soft),
    FIELD(kfit_receipt, "env", "hard_hash", BIG, env.hard_hash),
    FIELD(kfit_receipt, "env", "soft_hash", BIG, env.soft_hash),
    FIELD(kfit_receipt, NULL, "noise", NUMBER, noise),
    FIELD(kfit_receipt, NULL, "bound_ns", NUMBER, bound_ns),
    FIELD(kfit_receipt, NULL, "compile_ns", NUMBER, compile_ns),
    FIELD(kfit_receipt, NULL, "evaluate_ns", NUMBER, evaluate_ns),
    FIELD(kfit_receipt, NULL, "deterministic", BOOLEAN, deterministic),
    FIELD(kfit_receipt, NULL, "data_oblivious", BOOLEAN, data_oblivious),
    FIELD(kfit_receipt, NULL, "isolation", TEXT, isolation),
    FIELD(kfit_receipt, NULL, "seed", BIG, seed),
    FIELD(kfit_receipt, NULL, "verdict", VERDICT, verdict),
    FIELD(kfit_receipt, NULL, "code", CODE, code),
    FIELD(kfit_receipt, NULL, "detail", TEXT, detail),
    FIELD(kfit_receipt, NULL, "made_unix_s", BIG, made_unix_s),
};
static const struct field gate_fields[] = {
    FIELD(kfit_gate_result, NULL, "name", TEXT, name),
    FIELD(kfit_gate_result, NULL, "ok", BOOLEAN, ok),
    FIELD(kfit_gate_result, NULL, "code", CODE, code),
    FIELD(kfit_gate_result, NULL, "seeds", UINT, seeds),
    FIELD(kfit_gate_result, NULL, "distribution", TEXT, distribution),
    FIELD(kfit_gate_result, NULL, "err_rms", NUMBER, err_rms),
    FIELD(kfit_gate_result, NULL, "err_worst", NUMBER, err_worst),
    FIELD(kfit_gate_result, NULL, "at", TEXT, at),
};
static const struct field timing_fields[] = {
    FIELD(kfit_timing, NULL, "mode", TEXT, mode),
    FIELD(kfit_timing, NULL, "clock", TEXT, clock),
    FIELD(kfit_timing, NULL, "n", UINT, n),
    FIELD(kfit_timing, NULL, "ratio", NUMBER, ratio),
    FIELD(kfit_timing, NULL, "lo", NUMBER, lo),
    FIELD(kfit_timing, NULL, "hi", NUMBER, hi),
    FIELD(kfit_timing, NULL, "ns_candidate", NUMBER, ns_candidate),
    FIELD(kfit_timing, NULL, "ns_incumbent", NUMBER, ns_incumbent),
    FIELD(kfit_timing, NULL, "ns_generic", NUMBER, ns_generic),
};
static const struct field plan_fields[] = {
    FIELD(kfit_plan, NULL, "workspace_bytes", BIG, workspace_bytes),
    FIELD(kfit_plan, NULL, "workspace_init", UINT, workspace_init),
};
static const struct field map_fields[] = {
    FIELD(kfit_tensormap, NULL, "arg", UINT, arg),
    FIELD(kfit_tensormap, NULL, "type", UINT, type),
    FIELD(kfit_tensormap, "box", "rows", UINT, box_rows),
    FIELD(kfit_tensormap, "box", "cols", UINT, box_cols),
    FIELD(kfit_tensormap, NULL, "swizzle", UINT, swizzle),
    FIELD(kfit_tensormap, NULL, "batch", BIG, batch),
    FIELD(kfit_tensormap, NULL, "rows", BIG, rows),
    FIELD(kfit_tensormap, NULL, "cols", BIG, cols),
    FIELD(kfit_tensormap, NULL, "row_bytes", BIG, row_bytes),
    FIELD(kfit_tensormap, NULL, "matrix_bytes", BIG, matrix_bytes),
};
static const struct field launch_fields[] = {
    FIELD(kfit_launch, NULL, "entry", TEXT, entry),
    FIELD(kfit_launch, NULL, "entry_offset", BIG, entry_offset),
    FIELD(kfit_launch, "grid", "x", UINT, grid[0]),
    FIELD(kfit_launch, "grid", "y", UINT, grid[1]),
    FIELD(kfit_launch, "grid", "z", UINT, grid[2]),
    FIELD(kfit_launch, "block", "x", UINT, block[0]),
    FIELD(kfit_launch, "block", "y", UINT, block[1]),
    FIELD(kfit_launch, "block", "z", UINT, block[2]),
    FIELD(kfit_launch, "cluster", "x", UINT, cluster[0]),
    FIELD(kfit_launch, "cluster", "y", UINT, cluster[1]),
    FIELD(kfit_launch, "cluster", "z", UINT, cluster[2]),
    FIELD(kfit_launch, NULL, "smem", UINT, smem_bytes),
    FIELD(kfit_launch, NULL, "cooperative", UINT, cooperative),
};
#define COUNT(a) (sizeof(a) / sizeof *(a))

static cJSON *group_of(cJSON *object, const char *group, bool make)
{
    cJSON *g = group ? cJSON_GetObjectItemCaseSensitive(object, group) : object;
    return g || !make ? g : cJSON_AddObjectToObject(object, group);
}

static bool put(cJSON *object, const struct field *fields, size_t n, const void *from)
{
    for (size_t i = 0; i < n; i++) {
        const struct field *f = &fields[i];
        const char *p = (const char *)from + f->offset;
        cJSON *o = group_of(object, f->group, true), *item = NULL;
        char text[72];
        unsigned u;
        double d;
        uint64_t big;
        switch (f->kind) {
        case TEXT:
        case ADDED:
            item = cJSON_AddStringToObject(o, f->name, p);
            break;
        case NUMBER:
            memcpy(&d, p, sizeof d);
            item = cJSON_AddNumberToObject(o, f->name, d);
            break;
        case UINT:
            memcpy(&u, p, sizeof u);
            item = cJSON_AddNumberToObject(o, f->name, u);
            break;
        case BIG:
            memcpy(&big, p, sizeof big);
            snprintf(text, sizeof text, "%llu", (unsigned long long)big);
            item = cJSON_AddStringToObject(o, f->name, text);
            break;
        case BOOLEAN:
            item = cJSON_AddBoolToObject(o, f->name, *(const bool *)p);
            break;
        case DIGEST:
            for (size_t b = 0; b < f->size; b++)
                snprintf(text + 2 * b, 3, "%02x", (unsigned char)p[b]);
            item = cJSON_AddStringToObject(o, f->name, text);
            break;
        case CODE:
        case VERDICT:
            memcpy(&u, p, sizeof u);
            item = cJSON_AddStringToObject(o, f->name,
                                           f->kind == CODE ? kfit_code_str((enum kfit_code)u)
                                                           : kfit_verdict_str((enum kfit_verdict)u));
            break;
        }
        if (!item)
            return false;
    }
    return true;
}

static bool read_big(const char *s, uint64_t *out)
{
    uint64_t v = 0;
    if (!*s)
        return false;
    for (; *s; s++) {
        unsigned d = (unsigned)(*s - '0');
        if (d > 9 || v > (UINT64_MAX - d) / 10)
            return false;
        v = v * 10 + d;
    }
    *out = v;
    return true;
}

static bool read_digest(const char *s, uint8_t *out, size_t n)
{
    static const char digits[] = "0123456789abcdef";
    if (strlen(s) != 2 * n)
        return false;
    for (size_t i = 0; i < 2 * n; i++) {
        const char *at = strchr(digits, s[i]);
        if (!at)
            return false;
        out[i / 2] = (uint8_t)(out[i / 2] << 4 | (at - digits));
    }
    return true;
}

static bool get_one(const cJSON *item, const struct field *f, void *to)
{
    const char *text = cJSON_GetStringValue(item);
    char *p = (char *)to + f->offset;
    double d;
    unsigned u;
    uint64_t big;
    switch (f->kind) {
    case TEXT:
    case ADDED:
        return text && strlen(text) < f->size && memcpy(p, text, strlen(text) + 1);
    case NUMBER: /* cJSON writes a non-finite number as null */
        d = cJSON_IsNull(item) ? NAN : item->valuedouble;
        return (cJSON_IsNull(item) || cJSON_IsNumber(item)) && memcpy(p, &d, sizeof d);
    case UINT:
        if (!cJSON_IsNumber(item) || !(item->valuedouble >= 0 && item->valuedouble <= UINT32_MAX))
            return false;
        u = (unsigned)item->valuedouble;
        return memcpy(p, &u, sizeof u);
    case BIG:
        return text && read_big(text, &big) && memcpy(p, &big, sizeof big);
    case BOOLEAN:
        *(bool *)p = cJSON_IsTrue(item);
        return cJSON_IsBool(item);
    case DIGEST:
        return text && read_digest(text, (uint8_t *)p, f->size);
    case CODE:
        u = text ? kfit_code_parse(text) : KFIT_CODE_COUNT;
        return u < KFIT_CODE_COUNT && memcpy(p, &u, sizeof u);
    case VERDICT:
        for (u = 0; u < COUNT(verdicts) && (!text || strcmp(verdicts[u], text)); u++)
            ;
        return u < COUNT(verdicts) && memcpy(p, &u, sizeof u);
    }
    return false;
}

static enum kfit_status get(cJSON *object, const struct field *fields, size_t n, void *to,
                            struct kfit_error *err)
{
    for (size_t i = 0; i < n; i++) {
        const cJSON *o = group_of(object, fields[i].group, false);
        const cJSON *item = cJSON_GetObjectItemCaseSensitive(o, fields[i].name);
        if (!item && fields[i].kind == ADDED)
            continue; /* *to was zeroed */
        if (!item || !get_one(item, &fields[i], to))
            return kfit_fail(err, KFIT_E_FORMAT, "receipt: %s%s%s is missing or not as version %u has it",
                             fields[i].group ? fields[i].group : "", fields[i].group ? "." : "",
                             fields[i].name, KFIT_RECEIPT_VERSION);
    }
    return KFIT_OK;
}

/* ---- arrays of the same thing ---- */

static bool put_array(cJSON *object, const char *name, const struct field *fields, size_t nfields,
                      const void *first, size_t stride, size_t count)
{
    cJSON *array = cJSON_AddArrayToObject(object, name);
    for (size_t i = 0; array && i < count; i++) {
        cJSON *o = cJSON_CreateObject();
        if (!o || !cJSON_AddItemToArray(array, o) ||
            !put(o, fields, nfields, (const char *)first + i * stride))
            return false;
    }
    return array;
}

static enum kfit_status get_array(cJSON *object, const char *name, const struct field *fields, size_t nfields,
                                  void *first, size_t stride, size_t max, unsigned *count,
                                  struct kfit_error *err)
{
    cJSON *array = cJSON_GetObjectItemCaseSensitive(object, name), *item;
    if (!cJSON_IsArray(array) || (size_t)cJSON_GetArraySize(array) > max)
        return kfit_fail(err, KFIT_E_FORMAT, "receipt: %s is not an array of at most %zu", name, max);
    *count = 0;
    cJSON_ArrayForEach(item, array)
    {
        enum kfit_status s = get(item, fields, nfields, (char *)first + *count * stride, err);
        if (s != KFIT_OK)
            return s;
        ++*count;
    }
    return KFIT_OK;
}

char *kfit_receipt_to_json(const struct kfit_receipt *r)
{
    char key[KFIT_KEY_TEXT_MAX], *text = NULL;
    cJSON *o = cJSON_CreateObject(), *plan = NULL;
    kfit_key_format(&r->key, key, sizeof key);
    if (o && cJSON_AddNumberToObject(o, "version", KFIT_RECEIPT_VERSION) &&
        cJSON_AddStringToObject(o, "key", key) && put(o, receipt_fields, COUNT(receipt_fields), r) &&
        (plan = cJSON_AddObjectToObject(o, "plan")) && put(plan, plan_fields, COUNT(plan_fields), &r->plan) &&
        put_array(plan, "launches", launch_fields, COUNT(launch_fields), r->plan.launches,
                  sizeof *r->plan.launches, r->plan.launch_count) &&
        (!r->plan.tensormap_count || put_array(plan, "tensormaps", map_fields, COUNT(map_fields), r->plan.tensormaps,
                                               sizeof *r->plan.tensormaps, r->plan.tensormap_count)) &&
        put_array(o, "gates", gate_fields, COUNT(gate_fields), r->gates, sizeof *r->gates, r->gate_count) &&
        put_array(o, "timing", timing_fields, COUNT(timing_fields), r->timings, sizeof *r->timings,
                  r->timing_count))
        text = cJSON_Print(o);
    cJSON_Delete(o);
    return text;
}

enum kfit_status kfit_receipt_from_json(const char *json, size_t bytes, struct kfit_receipt *r,
                                        struct kfit_error *err)
{
    memset(r, 0, sizeof *r);
    cJSON *o = cJSON_ParseWithLength(json, bytes);
    const cJSON *version = cJSON_GetObjectItemCaseSensitive(o, "version");
    const char *key = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(o, "key"));
    cJSON *plan = cJSON_GetObjectItemCaseSensitive(o, "plan");
    enum kfit_status s;
    if (!cJSON_IsNumber(version))
        s = kfit_fail(err, KFIT_E_FORMAT, "receipt: not a JSON object with a version");
    else if (version->valuedouble != KFIT_RECEIPT_VERSION)
        s = kfit_fail(err, KFIT_E_VERSION, "receipt: version %g, this kfit reads %u", version->valuedouble,
                      KFIT_RECEIPT_VERSION);
    else if (!key)
        s = kfit_fail(err, KFIT_E_FORMAT, "receipt: no key");
    else
        s = kfit_key_parse(key, &r->key, err);
    if (s == KFIT_OK)
        s = get(o, receipt_fields, COUNT(receipt_fields), r, err);
    if (s == KFIT_OK)
        s = get(plan, plan_fields, COUNT(plan_fields), &r->plan, err);
    if (s == KFIT_OK)
        s = get_array(plan, "launches", launch_fields, COUNT(launch_fields), r->plan.launches,
                      sizeof *r->plan.launches, KFIT_LAUNCHES_MAX, &r->plan.launch_count, err);
    if (s == KFIT_OK && cJSON_HasObjectItem(plan, "tensormaps"))
        s = get_array(plan, "tensormaps", map_fields, COUNT(map_fields), r->plan.tensormaps, sizeof *r->plan.tensormaps,
                      KFIT_TENSORMAPS_MAX, &r->plan.tensormap_count, err);
    if (s == KFIT_OK)
        s = get_array(o, "gates", gate_fields, COUNT(gate_fields), r->gates, sizeof *r->gates, KFIT_GATES_MAX,
                      &r->gate_count, err);
    if (s == KFIT_OK)
        s = get_array(o, "timing", timing_fields, COUNT(timing_fields), r->timings, sizeof *r->timings,
                      KFIT_TIMINGS_MAX, &r->timing_count, err);
    cJSON_Delete(o);
    return s;
}
