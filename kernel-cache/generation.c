#include "kfit/generation.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kfit/trust.h"

#include "copy.h"
#include "generation_file.h"
#include "generation_key.h"
#include "lmdb_api.h"
#include "lmdb_pages.h"
#include "manifest.h"

struct kfit_generation {
    struct kfit_manifest manifest;
    const struct kfit_lmdb *lmdb;
    MDB_env *env;
    MDB_txn *txn; /* one snapshot for life: the file never changes */
    MDB_dbi dbi;
    int copy; /* the sealed file */
    char path[300];
};

struct search {
    const struct kfit_dir *dir;
    const uint8_t *sha256;
    uint64_t number;
};

static int has_digest(void *ctx, uint64_t number)
{
    struct search *c = ctx;
    struct kfit_manifest m;
    if (kfit_manifest_load(c->dir, number, &m, NULL) != KFIT_OK || memcmp(m.sha256, c->sha256, 32))
        return 0;
    c->number = number;
    return 1;
}

/* Turns `which` into a manifest; digest_known tells that the caller named the content, not
 * only the number. */
static enum kfit_status resolve(const struct kfit_dir *cache, const struct kfit_dir *gens, const char *which,
                                struct kfit_manifest *m, struct kfit_error *err)
{
    uint8_t sha256[32];
    uint64_t number;
    bool named = true; /* by digest */
    const char *end = which ? which + strlen(which) : NULL, *p = which;
    enum kfit_status s = KFIT_OK;
    if (!which || !*which) {
        s = kfit_current_load(cache, &number, sha256, err);
    } else if (kfit_scan_digest(&p, end, sha256) && p == end) {
        struct search c = {gens, sha256, 0};
        s = kfit_generation_numbers(gens, has_digest, &c, err);
        if (s == KFIT_OK && !c.number)
            s = kfit_fail(err, KFIT_E_NOTFOUND, "%s: no generation has digest %s", gens->path, which);
        number = c.number;
    } else if (p = which, kfit_scan_number(&p, end, UINT64_MAX / 2, &number) && p == end) {
        named = false;
    } else {
        s = kfit_fail(err, KFIT_E_ARG, "generation \"%.80s\": expected a number or 64 hex digits", which);
    }
    if (s == KFIT_OK)
        s = kfit_manifest_load(gens, number, m, err);
    if (s == KFIT_OK && named && memcmp(m->sha256, sha256, 32))
        s = kfit_fail(err, KFIT_E_DIGEST,
                      "%s/%" PRIu64 ".json: its digest is not the one in current; run kfit "
                      "rollback to a generation that verifies",
                      gens->path, number);
    return s;
}

/* The file of manifest m as a verified, sealed copy. */
static enum kfit_status load(const struct kfit_dir *gens, const struct kfit_manifest *m, int *copy,
                             struct kfit_error *err)
{
    char name[32], path[300];
    uint8_t digest[32];
    struct stat st;
    int fd;
    snprintf(name, sizeof name, "%" PRIu64 ".mdb", m->number);
    snprintf(path, sizeof path, "%s/%s", gens->path, name);
    enum kfit_status s = kfit_dir_file(gens, name, &fd, &st, err);
    if (s != KFIT_OK)
        return s;
    if (m->length > KFIT_DATA_BYTES_MAX)
        s = kfit_fail(err, KFIT_E_FORMAT, "%s: %" PRIu64 " bytes, at most %llu are read", path, m->length,
                      KFIT_DATA_BYTES_MAX);
    else if ((uint64_t)st.st_size != m->length)
        s = kfit_fail(err, KFIT_E_DIGEST,
                      "%s: %lld bytes, its manifest says %" PRIu64 "; the file is damaged", path,
                      (long long)st.st_size, m->length);
    else
        s = kfit_copy_sealed(fd, m->length, path, copy, digest, err);
    close(fd);
    if (s == KFIT_OK && memcmp(digest, m->sha256, sizeof digest)) {
        close(*copy);
        s = kfit_fail(err, KFIT_E_DIGEST,
                      "%s: SHA-256 does not match its manifest; the file is damaged or was "
                      "changed",
                      path);
    }
    return s;
}

static enum kfit_status check_signature(const struct kfit_dir *gens, const struct kfit_manifest *m,
                                        const char *trust, struct kfit_error *err)
{
    struct kfit_trust keys;
    char path[sizeof gens->path + 32];
    enum kfit_status s = kfit_trust_read(trust, &keys, err);
    snprintf(path, sizeof path, "%s/%" PRIu64 ".json", gens->path, m->number);
    return s == KFIT_OK ? kfit_manifest_trusted(m, &keys, path, NULL, err) : s;
}

enum kfit_status kfit_generation_open(const char *dir, const char *which, struct kfit_generation **out,
                                      struct kfit_error *err)
{
    return kfit_generation_open_trusted(dir, which, NULL, out, err);
}

enum kfit_status kfit_generation_open_trusted(const char *dir, const char *which, const char *trust,
                                              struct kfit_generation **out, struct kfit_error *err)
{
    struct kfit_dir cache = {.fd = -1}, gens = {.fd = -1};
    struct kfit_manifest m;
    char path[sizeof gens.path + 32];
    int copy;
    *out = NULL;
    if (!dir || !*dir)
        return kfit_fail(err, KFIT_E_ARG, "generation: no cache directory given");
    enum kfit_status s = kfit_dir_open(&cache, NULL, dir, 0, err);
    if (s == KFIT_OK)
        s = kfit_dir_open(&gens, &cache, "generations", 0, err);
    if (s == KFIT_OK)
        s = resolve(&cache, &gens, which, &m, err);
    if (s == KFIT_OK && trust)
        s = check_signature(&gens, &m, trust, err);
    if (s == KFIT_OK)
        s = load(&gens, &m, &copy, err);
    snprintf(path, sizeof path, "%s/%" PRIu64 ".mdb", gens.path, s == KFIT_OK ? m.number : 0);
    kfit_dir_close(&gens);
    kfit_dir_close(&cache);
    return s == KFIT_OK ? kfit_generation_adopt(&m, copy, path, out, err) : s;
}

enum kfit_status kfit_generation_adopt(const struct kfit_manifest *m, int copy, const char *path,
                                       struct kfit_generation **out, struct kfit_error *err)
{
    struct kfit_generation *g = calloc(1, sizeof *g);
    *out = NULL;
    if (!g) {
        close(copy);
        return kfit_fail(err, KFIT_E_NOMEM, "generation: out of memory");
    }
    g->manifest = *m;
    g->copy = copy;
    snprintf(g->path, sizeof g->path, "%s", path);
    enum kfit_status s = kfit_lmdb_load(&g->lmdb, err);
    if (s == KFIT_OK)
        s = kfit_lmdb_check_pages(copy, g->path, err);
    if (s == KFIT_OK)
        s = kfit_lmdb_open_copy(g->lmdb, copy, 0, g->path, &g->env, err);
    if (s != KFIT_OK)
        goto end;
    int rc = g->lmdb->txn_begin(g->env, NULL, MDB_RDONLY, &g->txn);
    if (!rc)
        rc = g->lmdb->dbi_open(g->txn, NULL, 0, &g->dbi);
    if (rc)
        s = kfit_lmdb_fail(err, g->lmdb, rc, g->path, "opening the copy");
end:
    if (s == KFIT_OK)
        *out = g;
    else
        kfit_generation_close(g);
    return s;
}

void kfit_generation_close(struct kfit_generation *g)
{
    if (!g)
        return;
    if (g->txn)
        g->lmdb->txn_abort(g->txn);
    if (g->env)
        g->lmdb->env_close(g->env);
    close(g->copy);
    free(g);
}

int kfit_generation_fd(const struct kfit_generation *g)
{
    return g->copy;
}

const struct kfit_manifest *kfit_generation_manifest(const struct kfit_generation *g)
{
    return &g->manifest;
}

/* Adds which key the damaged record is found under, if that is one. */
static enum kfit_status name_key(const MDB_val *key, enum kfit_status s, const struct kfit_error *why,
                                 struct kfit_error *err)
{
    union kfit_key k = {0};
    char text[KFIT_KEY_TEXT_MAX];
    size_t n = key->mv_size - 8;
    if (key->mv_size > 8 && n <= sizeof k)
        memcpy(&k, (const char *)key->mv_data + 8, n);
    if (kfit_key_check(&k, NULL) != KFIT_OK || !kfit_key_format(&k, text, sizeof text))
        snprintf(text, sizeof text, "(the key is none)");
    return kfit_fail(err, s, "%.200s: %s", why->text, text);
}

/* A record must also be the one its LMDB key promises. */
static enum kfit_status decode(const MDB_val *key, const MDB_val *value, struct kfit_record *r,
                               struct kfit_error *err)
{
    uint8_t want[KFIT_GENERATION_KEY_MAX];
    struct kfit_error why = {0};
    enum kfit_status s = kfit_record_decode(value->mv_data, value->mv_size, r, &why);
    if (s == KFIT_OK && (kfit_generation_key(want, r->env_hard, &r->key) != key->mv_size ||
                         memcmp(want, key->mv_data, key->mv_size)))
        s = kfit_fail(&why, KFIT_E_FORMAT, "record: stored under the key of another");
    return s == KFIT_OK ? s : name_key(key, s, &why, err);
}

enum kfit_status kfit_generation_each(struct kfit_generation *g, uint64_t env_hard,
                                      int (*fn)(void *ctx, const struct kfit_record *r, const char *problem),
                                      void *ctx, struct kfit_error *err)
{
    const struct kfit_lmdb *lmdb = g->lmdb;
    MDB_cursor *cursor;
    int rc = lmdb->cursor_open(g->txn, g->dbi, &cursor);
    if (rc)
        return kfit_lmdb_fail(err, lmdb, rc, g->path, "reading");
    uint64_t first = __builtin_bswap64(env_hard ? env_hard : KFIT_GENERATION_ENVS + 1);
    MDB_val key = {sizeof first, &first}, value;
    rc = lmdb->cursor_get(cursor, &key, &value, MDB_SET_RANGE);
    for (; !rc; rc = lmdb->cursor_get(cursor, &key, &value, MDB_NEXT)) {
        struct kfit_record r;
        struct kfit_error why = {0};
        if (env_hard && (key.mv_size < sizeof first || memcmp(key.mv_data, &first, sizeof first)))
            break;
        bool good = decode(&key, &value, &r, &why) == KFIT_OK;
        if (fn(ctx, good ? &r : NULL, good ? NULL : why.text))
            break;
    }
    lmdb->cursor_close(cursor);
    return rc && rc != MDB_NOTFOUND ? kfit_lmdb_fail(err, lmdb, rc, g->path, "reading") : KFIT_OK;
}

struct tally {
    uint64_t good;
    char problem[256];
};

static int count_good(void *ctx, const struct kfit_record *r, const char *problem)
{
    struct tally *t = ctx;
    if (!r && !t->problem[0])
        snprintf(t->problem, sizeof t->problem, "%s", problem);
    t->good += r != NULL;
    return 0;
}

enum kfit_status kfit_generation_check(struct kfit_generation *g, struct kfit_error *err)
{
    struct tally t = {0};
    enum kfit_status s = kfit_generation_each(g, 0, count_good, &t, err);
    if (s == KFIT_OK && (t.problem[0] || t.good != g->manifest.records))
        s = kfit_fail(err, KFIT_E_FORMAT,
                      "generation %" PRIu64 ": %" PRIu64 " good records, its manifest says %" PRIu64 "%s%s",
                      g->manifest.number, t.good, g->manifest.records, t.problem[0] ? "; " : "", t.problem);
    return s;
}

bool kfit_generation_env(struct kfit_generation *g, uint64_t hash, char buf[KFIT_ENV_TEXT_MAX])
{
    uint8_t bytes[KFIT_GENERATION_ENV_KEY];
    MDB_val key = {sizeof bytes, bytes}, value;
    kfit_generation_env_key(bytes, hash);
    buf[0] = '\0';
    if (g->lmdb->get(g->txn, g->dbi, &key, &value) || value.mv_size >= KFIT_ENV_TEXT_MAX)
        return false;
    memcpy(buf, value.mv_data, value.mv_size);
    buf[value.mv_size] = '\0';
    if (strlen(buf) == value.mv_size && kfit_text_hash(buf) == hash)
        return true;
    buf[0] = '\0';
    return false;
}

enum kfit_status kfit_generation_current(const char *dir, uint64_t *number, uint8_t sha256[32],
                                         struct kfit_error *err)
{
    struct kfit_dir cache;
    enum kfit_status s = kfit_dir_open(&cache, NULL, dir, 0, err);
    if (s == KFIT_OK)
        s = kfit_current_load(&cache, number, sha256, err);
    kfit_dir_close(&cache);
    return s;
}

enum kfit_status kfit_manifest_read(const char *dir, uint64_t number, struct kfit_manifest *m,
                                    struct kfit_error *err)
{
    struct kfit_dir cache, gens = {.fd = -1};
    enum kfit_status s = kfit_dir_open(&cache, NULL, dir, 0, err);
    if (s == KFIT_OK)
        s = kfit_dir_open(&gens, &cache, "generations", 0, err);
    if (s == KFIT_OK)
        s = kfit_manifest_load(&gens, number, m, err);
    kfit_dir_close(&gens);
    kfit_dir_close(&cache);
    return s;
}

struct list {
    uint64_t *numbers;
    size_t max, count;
};

/* Keeps the `max` smallest, in order. */
static int insert(void *ctx, uint64_t number)
{
    struct list *l = ctx;
    size_t at = l->count < l->max ? l->count : l->max;
    l->count++;
    if (at == l->max && (!at || l->numbers[at - 1] <= number))
        return 0;
    at -= at == l->max;
    for (; at && l->numbers[at - 1] > number; at--)
        l->numbers[at] = l->numbers[at - 1];
    l->numbers[at] = number;
    return 0;
}

size_t kfit_generation_list(const char *dir, uint64_t *numbers, size_t max)
{
    struct kfit_dir cache, gens = {.fd = -1};
    struct list l = {numbers, max, 0};
    if (kfit_dir_open(&cache, NULL, dir, 0, NULL) == KFIT_OK &&
        kfit_dir_open(&gens, &cache, "generations", 0, NULL) == KFIT_OK)
        kfit_generation_numbers(&gens, insert, &l, NULL);
    kfit_dir_close(&gens);
    kfit_dir_close(&cache);
    return l.count;
}

size_t kfit_cache_default_dir(char *buf, size_t size)
{
    const char *cache = secure_getenv("KFIT_CACHE"), *xdg = secure_getenv("XDG_CACHE_HOME"),
               *home = secure_getenv("HOME");
    int n = cache && *cache ? snprintf(buf, size, "%s", cache)
            : xdg && *xdg   ? snprintf(buf, size, "%s/kfit", xdg)
            : home && *home ? snprintf(buf, size, "%s/.cache/kfit", home)
                            : snprintf(buf, size, "%s", "");
    return n > 0 ? (size_t)n : 0;
}
