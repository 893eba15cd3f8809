#include <stdio.h>
#include <stdlib.h>

#include "records.h"

static int compare(uint64_t env_a, const union kfit_key *a, uint64_t env_b, const union kfit_key *b)
{
    if (env_a != env_b)
        return env_a < env_b ? -1 : 1;
    return memcmp(a->bytes, b->bytes,
                  a->h.len < b->h.len ? a->h.len : b->h.len); /* the first byte is the length */
}

/* First record not before (env, key). */
static size_t lower_bound(const struct kfit_records *r, uint64_t env, const union kfit_key *key)
{
    size_t lo = 0, hi = r->count;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (compare(r->item[mid].env_hard, &r->item[mid].key, env, key) < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

struct kfit_record *kfit_records_find(const struct kfit_records *r, uint64_t env_hard,
                                      const union kfit_key *key)
{
    size_t i = lower_bound(r, env_hard, key);
    return i < r->count && !compare(r->item[i].env_hard, &r->item[i].key, env_hard, key) ? &r->item[i] : NULL;
}

enum kfit_status kfit_records_put(struct kfit_records *r, const struct kfit_record *record,
                                  struct kfit_error *err)
{
    size_t i = lower_bound(r, record->env_hard, &record->key);
    bool replace =
        i < r->count && !compare(r->item[i].env_hard, &r->item[i].key, record->env_hard, &record->key);
    void *image = NULL;
    if (record->image && !(image = malloc(record->image_bytes ? record->image_bytes : 1)))
        return kfit_fail(err, KFIT_E_NOMEM, "records: out of memory");
    if (!replace && r->count == r->room) {
        size_t room = r->room ? 2 * r->room : 64;
        struct kfit_record *item = realloc(r->item, room * sizeof *item);
        if (!item) {
            free(image);
            return kfit_fail(err, KFIT_E_NOMEM, "records: out of memory");
        }
        r->item = item;
        r->room = room;
    }
    if (replace)
        free((void *)(uintptr_t)r->item[i].image);
    else
        memmove(&r->item[i + 1], &r->item[i], (r->count++ - i) * sizeof *r->item);
    r->item[i] = *record;
    r->item[i].image = image ? memcpy(image, record->image, record->image_bytes) : NULL;
    return KFIT_OK;
}

void kfit_records_remove(struct kfit_records *r, struct kfit_record *record)
{
    free((void *)(uintptr_t)record->image);
    memmove(record, record + 1, (size_t)(&r->item[--r->count] - record) * sizeof *record);
}

void kfit_records_finish(struct kfit_records *r)
{
    for (size_t i = 0; i < r->count; i++)
        free((void *)(uintptr_t)r->item[i].image);
    free(r->item);
    *r = (struct kfit_records){0};
}

void kfit_records_compare(const struct kfit_records *before, const struct kfit_records *now,
                          void (*fn)(void *ctx, const struct kfit_record *before,
                                     const struct kfit_record *now),
                          void *ctx)
{
    for (size_t i = 0, j = 0; i < before->count || j < now->count;) {
        const struct kfit_record *a = i < before->count ? &before->item[i] : NULL;
        const struct kfit_record *b = j < now->count ? &now->item[j] : NULL;
        int c = !a ? 1 : !b ? -1 : compare(a->env_hard, &a->key, b->env_hard, &b->key);
        fn(ctx, c <= 0 ? a : NULL, c >= 0 ? b : NULL);
        i += c <= 0;
        j += c >= 0;
    }
}

bool kfit_record_same(const struct kfit_record *a, const struct kfit_record *b)
{
    return a->kind == b->kind && (a->kind == KFIT_RECORD_NEGATIVE ||
                                  !memcmp(a->source_digest, b->source_digest, sizeof a->source_digest));
}

struct reading {
    struct kfit_records *to;
    bool images;
    enum kfit_status status;
    struct kfit_error *err;
};

static int take(struct reading *r, const struct kfit_record *record, const char *problem)
{
    if (!record) {
        if (!r->to->bad++)
            snprintf(r->to->problem, sizeof r->to->problem, "%s", problem ? problem : "does not decode");
        return 0;
    }
    struct kfit_record copy = *record;
    if (!r->images)
        copy.image = NULL;
    r->status = kfit_records_put(r->to, &copy, r->err);
    return r->status != KFIT_OK;
}

static int take_published(void *ctx, const struct kfit_record *record, const char *problem)
{
    return take(ctx, record, problem);
}

enum kfit_status kfit_records_published(struct kfit_records *out, struct kfit_generation *g, bool images,
                                        struct kfit_error *err)
{
    struct reading r = {out, images, KFIT_OK, err};
    enum kfit_status s = kfit_generation_each(g, 0, take_published, &r, err);
    return s == KFIT_OK ? r.status : s;
}

static int take_staged(void *ctx, const void *key, size_t key_bytes, const void *value, size_t value_bytes,
                       const char *problem)
{
    struct kfit_record record;
    struct kfit_error err = {0};
    (void)key, (void)key_bytes;
    if (problem)
        return take(ctx, NULL, problem);
    bool ok = kfit_record_decode(value, value_bytes, &record, &err) == KFIT_OK;
    return take(ctx, ok ? &record : NULL, err.text);
}

enum kfit_status kfit_records_staged(struct kfit_records *out, struct kfit_store *s, bool images,
                                     struct kfit_error *err)
{
    struct reading r = {out, images, KFIT_OK, err};
    enum kfit_status st = kfit_store_each(s, KFIT_TABLE_STAGED, NULL, 0, take_staged, &r, err);
    return st == KFIT_OK ? r.status : st;
}

bool kfit_record_receipt(const struct kfit_record *r, struct kfit_store *s, struct kfit_receipt *out)
{
    uint8_t k[KFIT_STORE_KEY_MAX];
    void *json;
    size_t bytes, n = kfit_store_key(k, r->env_hard, &r->key, r->source_digest);
    if (!s || kfit_store_get(s, KFIT_TABLE_RECEIPTS, k, n, &json, &bytes, NULL) != KFIT_OK)
        return false;
    bool ok = kfit_receipt_from_json(json, bytes, out, NULL) == KFIT_OK;
    if (ok) /* the store was written before anybody approved */
        memcpy(out->approver, r->approver, sizeof out->approver);
    free(json);
    return ok;
}
