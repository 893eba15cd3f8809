#include <stdlib.h>

#include "kfit/store.h"

enum kfit_status kfit_store_stage(struct kfit_store *s, const struct kfit_env *env,
                                  const struct kfit_record *r, const char *receipt_json,
                                  struct kfit_error *err)
{
    uint8_t key[KFIT_STORE_KEY_MAX], receipt_key[KFIT_STORE_KEY_MAX];
    struct kfit_record check;
    if (r->env_hard != env->hard_hash || r->env_soft != env->soft_hash)
        return kfit_fail(err, KFIT_E_ARG, "store: the record belongs to another environment than was given");
    enum kfit_status status = kfit_key_check(&r->key, err);
    if (status != KFIT_OK)
        return status;
    const size_t bytes = kfit_record_size(r), n = kfit_store_key(key, r->env_hard, &r->key, NULL),
                 rn = kfit_store_key(receipt_key, r->env_hard, &r->key, r->source_digest);
    const uint64_t hard = __builtin_bswap64(env->hard_hash), soft = __builtin_bswap64(env->soft_hash);
    void *value = malloc(bytes);
    if (!value)
        return kfit_fail(err, KFIT_E_NOMEM, "store: out of memory for a record of %zu bytes", bytes);
    kfit_record_encode(r, value);
    status = kfit_record_decode(value, bytes, &check, err);
    if (status == KFIT_OK) {
        const struct kfit_store_op ops[] = {
            {KFIT_TABLE_ENVS, &hard, sizeof hard, env->hard, strlen(env->hard)},
            {KFIT_TABLE_ENVS, &soft, sizeof soft, env->soft, strlen(env->soft)},
            {KFIT_TABLE_STAGED, key, n, value, bytes},
            {KFIT_TABLE_RECEIPTS, receipt_key, rn, receipt_json, receipt_json ? strlen(receipt_json) : 0},
        };
        status = kfit_store_apply(s, ops, sizeof ops / sizeof *ops - !receipt_json, err);
    }
    free(value);
    return status;
}

/* ---- many at once ---- */

/* What one put needs until the transaction ends. */
struct staging {
    uint8_t key[KFIT_STORE_KEY_MAX];
    uint64_t hash;
    void *value;
};

static const struct kfit_env *env_of(const struct kfit_stage_params *p, const struct kfit_record *r)
{
    for (size_t i = 0; i < p->env_count; i++)
        if (p->envs[i].hard_hash == r->env_hard && p->envs[i].soft_hash == r->env_soft)
            return &p->envs[i];
    return NULL;
}

/* Adds the put of one record, unless its key is staged. */
static enum kfit_status add_record(struct kfit_store *s, const struct kfit_stage_params *p,
                                   const struct kfit_record *r, struct staging *at, struct kfit_store_op *op,
                                   bool *added, struct kfit_error *err)
{
    struct kfit_record check;
    void *there = NULL;
    size_t bytes;
    *added = false;
    if (!env_of(p, r))
        return kfit_fail(err, KFIT_E_ARG, "store: a record's environment was not given");
    enum kfit_status status = kfit_key_check(&r->key, err);
    if (status != KFIT_OK)
        return status;
    size_t n = kfit_store_key(at->key, r->env_hard, &r->key, NULL);
    status =
        p->replace ? KFIT_E_NOTFOUND : kfit_store_get(s, KFIT_TABLE_STAGED, at->key, n, &there, &bytes, err);
    free(there);
    if (status != KFIT_E_NOTFOUND)
        return status; /* it is there, or cannot be read */
    bytes = kfit_record_size(r);
    at->value = malloc(bytes);
    if (!at->value)
        return kfit_fail(err, KFIT_E_NOMEM, "store: out of memory for a record of %zu bytes", bytes);
    kfit_record_encode(r, at->value);
    *op = (struct kfit_store_op){KFIT_TABLE_STAGED, at->key, n, at->value, bytes};
    *added = true;
    return kfit_record_decode(at->value, bytes, &check, err);
}

enum kfit_status kfit_store_stage_all(struct kfit_store *s, const struct kfit_stage_params *p, size_t *staged,
                                      struct kfit_error *err)
{
    const size_t room = p->count + 2 * p->env_count + 1;
    struct staging *at = calloc(room, sizeof *at);
    struct kfit_store_op *ops = calloc(room, sizeof *ops);
    enum kfit_status status = KFIT_OK;
    size_t n = 0;
    *staged = 0;
    if (!at || !ops)
        status = kfit_fail(err, KFIT_E_NOMEM, "store: out of memory for %zu records", p->count);
    for (size_t i = 0; i < p->count && status == KFIT_OK; i++) {
        bool added;
        status = add_record(s, p, &p->records[i], &at[n], &ops[n], &added, err);
        n += added;
    }
    const size_t records = n;
    for (size_t i = 0; i < 2 * p->env_count && records && status == KFIT_OK; i++, n++) {
        const char *text = i % 2 ? p->envs[i / 2].soft : p->envs[i / 2].hard;
        at[n].hash = __builtin_bswap64(i % 2 ? p->envs[i / 2].soft_hash : p->envs[i / 2].hard_hash);
        ops[n] = (struct kfit_store_op){KFIT_TABLE_ENVS, &at[n].hash, sizeof at[n].hash, text, strlen(text)};
    }
    if (status == KFIT_OK && n)
        status = kfit_store_apply(s, ops, n, err);
    if (status == KFIT_OK)
        *staged = records;
    for (size_t i = 0; at && i < room; i++)
        free(at[i].value);
    free(at);
    free(ops);
    return status;
}

/* A record must also be the one its key promises. */
static enum kfit_status decode(const void *key, size_t key_bytes, const void *value, size_t value_bytes,
                               struct kfit_record *r, struct kfit_error *err)
{
    uint8_t want[KFIT_STORE_KEY_MAX];
    enum kfit_status status = kfit_record_decode(value, value_bytes, r, err);
    if (status == KFIT_OK &&
        (kfit_store_key(want, r->env_hard, &r->key, NULL) != key_bytes || memcmp(want, key, key_bytes)))
        status = kfit_fail(err, KFIT_E_FORMAT, "record: stored under the key of another");
    return status;
}

enum kfit_status kfit_store_staged(struct kfit_store *s, uint64_t env_hard, const union kfit_key *key,
                                   struct kfit_record *r, void **bytes, struct kfit_error *err)
{
    uint8_t k[KFIT_STORE_KEY_MAX];
    size_t size;
    *bytes = NULL;
    enum kfit_status status = kfit_key_check(key, err);
    if (status != KFIT_OK)
        return status;
    size_t n = kfit_store_key(k, env_hard, key, NULL);
    status = kfit_store_get(s, KFIT_TABLE_STAGED, k, n, bytes, &size, err);
    if (status == KFIT_OK)
        status = decode(k, n, *bytes, size, r, err);
    if (status != KFIT_OK) {
        free(*bytes);
        *bytes = NULL;
    }
    return status;
}

struct visit {
    int (*fn)(void *ctx, const struct kfit_record *r, const char *problem);
    void *ctx;
};

static int visit(void *ctx, const void *key, size_t key_bytes, const void *value, size_t value_bytes,
                 const char *problem)
{
    const struct visit *v = ctx;
    struct kfit_record r;
    struct kfit_error why;
    if (!problem && decode(key, key_bytes, value, value_bytes, &r, &why) != KFIT_OK)
        problem = why.text;
    return v->fn(v->ctx, problem ? NULL : &r, problem);
}

enum kfit_status kfit_store_staged_each(struct kfit_store *s, uint64_t env_hard,
                                        int (*fn)(void *ctx, const struct kfit_record *r,
                                                  const char *problem),
                                        void *ctx, struct kfit_error *err)
{
    const uint64_t prefix = __builtin_bswap64(env_hard);
    struct visit v = {fn, ctx};
    return kfit_store_each(s, KFIT_TABLE_STAGED, &prefix, env_hard ? sizeof prefix : 0, visit, &v, err);
}

bool kfit_store_env(struct kfit_store *s, uint64_t hash, char buf[KFIT_ENV_TEXT_MAX])
{
    const uint64_t key = __builtin_bswap64(hash);
    void *text;
    size_t n;
    buf[0] = '\0';
    if (kfit_store_get(s, KFIT_TABLE_ENVS, &key, sizeof key, &text, &n, NULL) != KFIT_OK)
        return false;
    bool good = n < KFIT_ENV_TEXT_MAX && strlen(text) == n && kfit_text_hash(text) == hash;
    if (good)
        memcpy(buf, text, n + 1);
    free(text);
    return good;
}
