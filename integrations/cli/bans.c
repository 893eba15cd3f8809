#include <stdlib.h>
#include <string.h>

#include "bans.h"

struct reading {
    struct cli_bans *bans;
    bool bad;
};

static void copy(char *to, size_t size, const cJSON *object, const char *name)
{
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, name));
    snprintf(to, size, "%s", text ? text : "");
}

static int read_one(void *ctx, const void *key, size_t key_bytes, const void *value, size_t value_bytes,
                    const char *problem)
{
    struct reading *r = ctx;
    struct cli_ban ban = {0};
    if (key_bytes > sizeof ban.key.bytes ||
        (memcpy(ban.key.bytes, key, key_bytes), ban.key.h.len != key_bytes) ||
        kfit_key_check(&ban.key, NULL) != KFIT_OK) {
        r->bad = true;
        return 1;
    }
    cJSON *o = problem ? NULL : cJSON_ParseWithLength(value, value_bytes);
    const cJSON *when = cJSON_GetObjectItemCaseSensitive(o, "when_unix_s");
    copy(ban.by, sizeof ban.by, o, "by");
    copy(ban.why, sizeof ban.why, o, "why");
    if (cJSON_IsNumber(when) && when->valuedouble > 0 && when->valuedouble < 1e15)
        ban.when_unix_s = (int64_t)when->valuedouble;
    if (!o) /* damaged, or a plain text */
        snprintf(ban.why, sizeof ban.why, "%.*s", problem ? 255 : (int)value_bytes,
                 problem ? problem : (const char *)value);
    cJSON_Delete(o);
    r->bans->item = cli_alloc(r->bans->item, (r->bans->count + 1) * sizeof *r->bans->item);
    r->bans->item[r->bans->count++] = ban;
    return 0;
}

bool cli_bans_read(struct cli_bans *bans, struct kfit_store *store)
{
    struct kfit_error err = {0};
    struct reading r = {bans, false};
    *bans = (struct cli_bans){0};
    enum kfit_status s =
        store ? kfit_store_each(store, KFIT_TABLE_BANS, NULL, 0, read_one, &r, &err) : KFIT_OK;
    if (s != KFIT_OK)
        return !cli_failed("the store's bans", s, &err);
    if (r.bad)
        cli_fail("the store's bans: one names no key that this kfit knows; see `kfit cache verify`");
    return !r.bad;
}

void cli_bans_free(struct cli_bans *bans)
{
    free(bans->item);
    *bans = (struct cli_bans){0};
}

const struct cli_ban *cli_bans_find(const struct cli_bans *bans, const union kfit_key *key)
{
    for (size_t i = 0; i < bans->count; i++)
        if (kfit_key_equal(&bans->item[i].key, key))
            return &bans->item[i];
    return NULL;
}

enum kfit_status cli_ban_put(struct kfit_store *store, const struct cli_ban *ban, struct kfit_error *err)
{
    cJSON *o = cJSON_CreateObject();
    cJSON_AddStringToObject(o, "by", ban->by);
    cJSON_AddNumberToObject(o, "when_unix_s", (double)ban->when_unix_s);
    cJSON_AddStringToObject(o, "why", ban->why);
    char *text = cJSON_PrintUnformatted(o);
    cJSON_Delete(o);
    if (!text)
        return kfit_fail(err, KFIT_E_NOMEM, "out of memory");
    enum kfit_status s =
        kfit_store_put(store, KFIT_TABLE_BANS, ban->key.bytes, ban->key.h.len, text, strlen(text), err);
    cJSON_free(text);
    return s;
}

enum kfit_status cli_ban_remove(struct kfit_store *store, const union kfit_key *key, struct kfit_error *err)
{
    return kfit_store_del(store, KFIT_TABLE_BANS, key->bytes, key->h.len, err);
}

const char *cli_ban_text(const struct cli_ban *ban)
{
    char text[512];
    int n = snprintf(text, sizeof text, "banned");
    if (ban->by[0])
        n += snprintf(text + n, sizeof text - (size_t)n, " by %s", ban->by);
    if (ban->when_unix_s)
        n += snprintf(text + n, sizeof text - (size_t)n, " at %s", cli_when(ban->when_unix_s));
    if (ban->why[0])
        snprintf(text + n, sizeof text - (size_t)n, ": %s", ban->why);
    return SAFE(text);
}
