#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "archive.h"

static bool receipt_at(const struct kfit_tune_params *t, enum kfit_table table, const union kfit_key *key,
                       const uint8_t digest[32], struct kfit_receipt *out)
{
    uint8_t k[KFIT_STORE_KEY_MAX];
    void *value;
    size_t bytes;
    size_t n = kfit_store_key(k, t->env->hard_hash, key, digest);
    if (kfit_store_get(t->store, table, k, n, &value, &bytes, NULL) != KFIT_OK)
        return false;
    bool ok = kfit_receipt_from_json(value, bytes, out, NULL) == KFIT_OK;
    free(value);
    return ok;
}

bool archive_find(const struct kfit_tune_params *t, const union kfit_key *key, const uint8_t digest[32],
                  struct kfit_receipt *out)
{
    return receipt_at(t, KFIT_TABLE_EVALS, key, digest, out);
}

enum kfit_status archive_note(const struct kfit_tune_params *t, const struct kfit_receipt *r,
                              struct kfit_error *err)
{
    uint8_t k[KFIT_STORE_KEY_MAX];
    char *json = kfit_receipt_to_json(r);
    if (!json)
        return kfit_fail(err, KFIT_E_NOMEM, "receipt: out of memory");
    enum kfit_status s =
        kfit_store_put(t->store, KFIT_TABLE_EVALS, k,
                       kfit_store_key(k, t->env->hard_hash, &r->key, r->digest), json, strlen(json), err);
    free(json);
    return s;
}

static int count_one(void *ctx, const void *key, size_t key_bytes, const void *value, size_t value_bytes,
                     const char *problem)
{
    (void)key, (void)key_bytes, (void)value, (void)value_bytes, (void)problem;
    ++*(unsigned *)ctx;
    return 0;
}

unsigned archive_count(const struct kfit_tune_params *t, const union kfit_key *key)
{
    uint8_t k[KFIT_STORE_KEY_MAX];
    unsigned n = 0;
    size_t bytes = kfit_store_key(k, t->env->hard_hash, key, NULL);
    kfit_store_each(t->store, KFIT_TABLE_EVALS, k, bytes, count_one, &n, NULL);
    return n;
}

bool archive_staged(const struct kfit_tune_params *t, const union kfit_key *key, struct kfit_record *record,
                    void **bytes)
{
    return kfit_store_staged(t->store, t->env->hard_hash, key, record, bytes, NULL) == KFIT_OK;
}

enum kfit_status archive_stage(const struct kfit_tune_params *t, const struct kfit_receipt *r,
                               const void *image, size_t image_bytes, const char *source, size_t source_bytes,
                               struct kfit_error *err)
{
    const struct kfit_timing *time0 = &r->timings[0];
    struct kfit_record record = {
        .key = r->key,
        .kind = image ? KFIT_RECORD_WINNER : KFIT_RECORD_NEGATIVE,
        .op_version = kfit_op_of(&r->key)->version,
        .env_hard = t->env->hard_hash,
        .env_soft = t->env->soft_hash,
        .made_unix_s = (int64_t)time(NULL),
        .image = image,
        .image_bytes = image ? image_bytes : 0,
    };
    if (r->timing_count) {
        record.ns_candidate = time0->ns_candidate;
        record.ns_incumbent = time0->ns_incumbent;
        record.ns_generic = time0->ns_generic;
        record.ratio = time0->ratio;
        record.lo = time0->lo;
        record.hi = time0->hi;
    }
    if (image)
        record.plan = r->plan;
    memcpy(record.source_digest, r->digest, sizeof record.source_digest);
    memcpy(record.origin, r->origin, sizeof record.origin);

    char *json = kfit_receipt_to_json(r);
    if (!json)
        return kfit_fail(err, KFIT_E_NOMEM, "stage: out of memory");
    /* Source and evaluation first: without the staged record they are true, and mean nothing yet. */
    enum kfit_status s = source ? kfit_store_put(t->store, KFIT_TABLE_SOURCES, r->digest, sizeof r->digest,
                                                 source, source_bytes, err)
                                : KFIT_OK;
    if (s == KFIT_OK)
        s = archive_note(t, r, err);
    if (s == KFIT_OK)
        s = kfit_store_stage(t->store, t->env, &record, json, err);
    free(json);
    return s;
}

struct winner_walk {
    const struct kfit_tune_params *t;
    int (*fn)(void *, const struct kfit_receipt *);
    void *ctx;
};

static int one_winner(void *ctx, const struct kfit_record *record, const char *problem)
{
    struct winner_walk *w = ctx;
    struct kfit_receipt receipt;
    if (problem || record->kind != KFIT_RECORD_WINNER)
        return 0;
    return receipt_at(w->t, KFIT_TABLE_RECEIPTS, &record->key, record->source_digest, &receipt)
               ? w->fn(w->ctx, &receipt)
               : 0;
}

enum kfit_status archive_each_winner(const struct kfit_tune_params *t,
                                     int (*fn)(void *ctx, const struct kfit_receipt *r), void *ctx,
                                     struct kfit_error *err)
{
    struct winner_walk walk = {t, fn, ctx};
    return kfit_store_staged_each(t->store, t->env->hard_hash, one_winner, &walk, err);
}
