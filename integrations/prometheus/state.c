/* Totals as a JSON file, version 1; see README.md. Counts are text: a JSON number is a double. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "totals.h"

enum { STATE_BYTES_MAX = 64 << 20 };

/* ---- writing ---- */

static void add_counts(cJSON *o, const char *name, const uint64_t *count, size_t n)
{
    char text[KFIT_TRACE_REASONS * 21 + 1];
    size_t used = 0;
    text[0] = '\0';
    while (n && !count[n - 1]) /* zeros at the end say nothing */
        n--;
    for (size_t i = 0; i < n; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%" PRIu64, i ? " " : "", count[i]);
    cJSON_AddStringToObject(o, name, text);
}

static cJSON *trace_json(const struct kfit_metrics *m, const struct kfit_metrics_seen *s)
{
    char id[17];
    cJSON *o = cJSON_CreateObject(), *keys = NULL;
    snprintf(id, sizeof id, "%016" PRIx64, s->id);
    cJSON_AddStringToObject(o, "id", id);
    snprintf(id, sizeof id, "%016" PRIx64, s->process);
    cJSON_AddStringToObject(o, "process", id);
    cJSON_AddBoolToObject(o, "further", s->further);
    cJSON_AddNumberToObject(o, "deployment", s->deployment);
    cJSON_AddBoolToObject(o, "ended", s->ended);
    cJSON_AddNumberToObject(o, "seen_unix", (double)s->at_unix_s);
    add_counts(o, "count", s->count, KFIT_TRACE_REASONS);
    for (size_t i = 0; s->keys && i < m->keys; i++) {
        const uint64_t row[] = {i, s->keys[i].hits, s->keys[i].misses};
        if (!row[1] && !row[2])
            continue;
        cJSON *one = cJSON_CreateObject();
        add_counts(one, "n", row, 3);
        if (!keys)
            keys = cJSON_AddArrayToObject(o, "keys");
        cJSON_AddItemToArray(keys, one);
    }
    return o;
}

enum kfit_status kfit_metrics_save(const struct kfit_metrics *m, const char *path, struct kfit_error *err)
{
    cJSON *root = cJSON_CreateObject();
    cJSON_AddNumberToObject(root, "kfit_metrics_state", KFIT_METRICS_STATE_VERSION);
    cJSON *list = cJSON_AddArrayToObject(root, "deployments");
    for (size_t i = 0; i < m->deployments; i++) {
        const struct kfit_metrics_deployment *d = &m->deployment[i];
        const uint64_t processes[] = {d->started, d->ended_clean, d->ended_unknown};
        cJSON *o = cJSON_CreateObject();
        cJSON_AddStringToObject(o, "label", d->label);
        cJSON_AddStringToObject(o, "program", d->program);
        add_counts(o, "count", d->count, KFIT_TRACE_REASONS);
        add_counts(o, "processes", processes, 3);
        cJSON_AddItemToArray(list, o);
    }
    list = cJSON_AddArrayToObject(root, "keys");
    for (size_t i = 0; i < m->keys; i++) {
        const uint64_t sum[] = {m->key[i].sum.hits, m->key[i].sum.misses};
        cJSON *o = cJSON_CreateObject();
        cJSON_AddStringToObject(o, "key", cli_key(&m->key[i].key));
        add_counts(o, "calls", sum, 2);
        cJSON_AddItemToArray(list, o);
    }
    list = cJSON_AddArrayToObject(root, "traces");
    for (size_t i = 0; i < m->seen_count; i++)
        cJSON_AddItemToArray(list, trace_json(m, &m->seen[i]));
    char *text = cJSON_PrintUnformatted(root);
    cJSON_Delete(root);
    if (!text)
        return kfit_fail(err, KFIT_E_NOMEM, "%s: no memory to write it", path);
    enum kfit_status s = cli_write_file(path, text, strlen(text), 0600, err);
    cJSON_free(text);
    return s;
}

/* ---- reading: nothing in it is believed ---- */

static bool get_counts(const cJSON *o, const char *name, uint64_t *count, size_t n)
{
    const char *p = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(o, name));
    memset(count, 0, n * sizeof *count);
    for (size_t i = 0; p && *p; i++) {
        char *end;
        if (i == n || *p < '0' || *p > '9')
            return false;
        count[i] = strtoull(p, &end, 10);
        p = *end == ' ' ? end + 1 : end;
        if (*end && *end != ' ')
            return false;
    }
    return p != NULL;
}

static bool get_text(const cJSON *o, const char *name, char *to, size_t size)
{
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(o, name));
    for (const char *p = text; p && *p; p++)
        if (*p < ' ' || *p > '~')
            return false;
    return text && (size_t)snprintf(to, size, "%s", text) < size;
}

static bool get_deployment(struct kfit_metrics *m, const cJSON *o)
{
    uint64_t processes[3];
    struct kfit_metrics_deployment d = {0};
    if (m->deployments > KFIT_METRICS_DEPLOYMENTS || !get_text(o, "label", d.label, sizeof d.label) ||
        !get_text(o, "program", d.program, sizeof d.program) ||
        !get_counts(o, "count", d.count, KFIT_TRACE_REASONS) || !get_counts(o, "processes", processes, 3))
        return false;
    d.started = processes[0];
    d.ended_clean = processes[1];
    d.ended_unknown = processes[2];
    m->deployment[m->deployments++] = d;
    return true;
}

/* Keys beyond those wanted now are passed over: their counts begin anew if they are wanted again. */
static bool get_key(struct kfit_metrics *m, const cJSON *o)
{
    uint64_t sum[2];
    struct kfit_metrics_key k;
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(o, "key"));
    if (!text || kfit_key_parse(text, &k.key, NULL) != KFIT_OK || !get_counts(o, "calls", sum, 2))
        return false;
    k.sum = (struct kfit_metrics_counts){sum[0], sum[1]};
    if (m->keys < m->keys_wanted * KFIT_METRICS_KEYS_KEPT)
        m->key[m->keys++] = k;
    return true;
}

static bool get_trace(struct kfit_metrics *m, const cJSON *o)
{
    struct kfit_metrics_seen s = {0};
    const char *id = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(o, "id")),
               *process = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(o, "process"));
    const cJSON *deployment = cJSON_GetObjectItemCaseSensitive(o, "deployment"),
                *at = cJSON_GetObjectItemCaseSensitive(o, "seen_unix"),
                *keys = cJSON_GetObjectItemCaseSensitive(o, "keys"), *key;
    char *end = NULL;
    if (!id || strlen(id) != 16 || strspn(id, "0123456789abcdef") != 16 || !cJSON_IsNumber(deployment) ||
        !(deployment->valuedouble >= 0 && deployment->valuedouble < (double)m->deployments) ||
        !cJSON_IsNumber(at) || !(at->valuedouble >= 0 && at->valuedouble < 1e15) ||
        m->seen_count == KFIT_METRICS_TRACES || !get_counts(o, "count", s.count, KFIT_TRACE_REASONS))
        return false;
    s.id = strtoull(id, &end, 16);
    s.process = process ? strtoull(process, &end, 16) : 0; /* older files have none */
    s.further = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(o, "further"));
    s.deployment = (uint32_t)deployment->valuedouble;
    s.at_unix_s = (int64_t)at->valuedouble;
    s.ended = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(o, "ended"));
    if (m->seen_count && m->seen[m->seen_count - 1].id >= s.id) /* they are found by bisection */
        return false;
    if (keys && m->keys) {
        size_t bytes = m->keys_wanted * KFIT_METRICS_KEYS_KEPT * sizeof *s.keys;
        s.keys = cli_alloc(NULL, bytes);
        memset(s.keys, 0, bytes);
    }
    m->seen[m->seen_count++] = s;
    cJSON_ArrayForEach(key, keys)
    {
        uint64_t row[3];
        if (!get_counts(key, "n", row, 3))
            return false;
        if (s.keys && row[0] < m->keys)
            s.keys[row[0]] = (struct kfit_metrics_counts){row[1], row[2]};
    }
    return true;
}

enum kfit_status kfit_metrics_load(struct kfit_metrics *m, const char *path, struct kfit_error *err)
{
    static const struct {
        const char *name;
        bool (*get)(struct kfit_metrics *m, const cJSON *o);
    } parts[] = {{"deployments", get_deployment}, {"keys", get_key}, {"traces", get_trace}};
    char *text = NULL;
    size_t bytes;
    enum kfit_status s = cli_read_file(path, STATE_BYTES_MAX, &text, &bytes, err);
    if (s == KFIT_E_NOTFOUND)
        return KFIT_OK;
    if (s != KFIT_OK)
        return s;
    cJSON *root = cJSON_ParseWithLength(text, bytes);
    const cJSON *version = cJSON_GetObjectItemCaseSensitive(root, "kfit_metrics_state");
    if (!cJSON_IsNumber(version))
        s = kfit_fail(err, KFIT_E_FORMAT, "%s: is no state of kfit metrics, or damaged; name another file",
                      path);
    else if (version->valuedouble != KFIT_METRICS_STATE_VERSION)
        s = kfit_fail(err, KFIT_E_VERSION, "%s: is of version %.0f, this kfit reads %d", path,
                      version->valuedouble, KFIT_METRICS_STATE_VERSION);
    for (size_t p = 0; s == KFIT_OK && p < sizeof parts / sizeof *parts; p++) {
        const cJSON *list = cJSON_GetObjectItemCaseSensitive(root, parts[p].name), *o;
        size_t i = 0;
        bool ok = cJSON_IsArray(list);
        cJSON_ArrayForEach(o, list)
        {
            if (!ok || !(ok = parts[p].get(m, o)))
                break;
            i++;
        }
        if (!ok)
            s = kfit_fail(
                err, KFIT_E_FORMAT,
                "%s: %s %zu is damaged; move the file away to count anew from the traces that are there",
                path, parts[p].name, i + 1);
    }
    cJSON_Delete(root);
    free(text);
    return s;
}
