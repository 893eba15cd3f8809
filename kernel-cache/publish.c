#include "kfit/exchange.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "generation_file.h"
#include "generation_key.h"
#include "lmdb_api.h"
#include "manifest.h"

/* One LMDB entry to be: a record or the text of an environment. */
struct entry {
    uint8_t key[KFIT_GENERATION_KEY_MAX];
    size_t key_bytes;
    const struct kfit_record *record;
    const char *text;
};

static int by_key(const void *pa, const void *pb)
{
    const struct entry *a = pa, *b = pb;
    size_t n = a->key_bytes < b->key_bytes ? a->key_bytes : b->key_bytes;
    int d = memcmp(a->key, b->key, n);
    return d ? d : (a->key_bytes > b->key_bytes) - (a->key_bytes < b->key_bytes);
}

static size_t entry_bytes(const struct entry *e)
{
    return e->record ? kfit_record_size(e->record) : strlen(e->text);
}

/* The environments' texts; the same hash more than once is one entry. */
static size_t add_envs(struct entry *to, size_t n, const struct kfit_env *envs, size_t count)
{
    for (size_t i = 0; i < 2 * count; i++) {
        const struct kfit_env *env = &envs[i / 2];
        struct entry e = {.key_bytes = KFIT_GENERATION_ENV_KEY, .text = i % 2 ? env->soft : env->hard};
        bool known = false;
        kfit_generation_env_key(e.key, kfit_text_hash(e.text));
        for (size_t j = 0; j < n && !known; j++)
            known = !by_key(&to[j], &e);
        if (!known)
            to[n++] = e;
    }
    return n;
}

static enum kfit_status name_duplicate(const struct entry *e, struct kfit_error *err)
{
    char text[KFIT_KEY_TEXT_MAX];
    kfit_key_format(&e->record->key, text, sizeof text);
    return kfit_fail(err, KFIT_E_ARG, "publish: two records for %.300s in environment %016" PRIx64, text,
                     e->record->env_hard);
}

/* All entries in LMDB's order. A record that would not decode is refused here, not found by the servers. */
static enum kfit_status collect(const struct kfit_publish_params *p, struct entry **out, size_t *count,
                                struct kfit_error *err)
{
    struct entry *e = calloc(p->count + 2 * p->env_count + 1, sizeof *e);
    if (!e)
        return kfit_fail(err, KFIT_E_NOMEM, "publish: out of memory for %zu records", p->count);
    size_t n = add_envs(e, 0, p->envs, p->env_count);
    for (size_t i = 0; i < p->count; i++, n++) {
        enum kfit_status s = kfit_key_check(&p->records[i].key, err);
        if (s != KFIT_OK) {
            free(e);
            return s;
        }
        e[n].record = &p->records[i];
        e[n].key_bytes = kfit_generation_key(e[n].key, p->records[i].env_hard, &p->records[i].key);
    }
    qsort(e, n, sizeof *e, by_key);
    for (size_t i = 1; i < n; i++)
        if (!by_key(&e[i - 1], &e[i])) {
            enum kfit_status s = name_duplicate(&e[i], err);
            free(e);
            return s;
        }
    *out = e;
    *count = n;
    return KFIT_OK;
}

static enum kfit_status put_entry(const struct kfit_lmdb *lmdb, MDB_txn *txn, MDB_dbi dbi,
                                  const struct entry *e, struct kfit_error *err)
{
    MDB_val key = {e->key_bytes, (void *)(uintptr_t)e->key}, value = {entry_bytes(e), NULL};
    int rc = lmdb->put(txn, dbi, &key, &value, MDB_APPEND | MDB_RESERVE);
    if (rc)
        return kfit_lmdb_fail(err, lmdb, rc, "publish", "adding a record");
    if (!e->record) {
        memcpy(value.mv_data, e->text, value.mv_size);
        return KFIT_OK;
    }
    struct kfit_record check;
    kfit_record_encode(e->record, value.mv_data);
    return kfit_record_decode(value.mv_data, value.mv_size, &check, err);
}

/* Fills the LMDB file behind fd (an empty memfd). Each node takes at most its size and a page, and so do all
 * the branch pages together, which is the map's size. */
static enum kfit_status fill(const struct kfit_lmdb *lmdb, int fd, const struct entry *e, size_t n,
                             MDB_env **out, struct kfit_error *err)
{
    char self[40];
    size_t room = 1 << 20;
    MDB_env *env = NULL;
    MDB_txn *txn = NULL;
    MDB_dbi dbi;
    for (size_t i = 0; i < n; i++)
        room += 2 * ((entry_bytes(&e[i]) + 2 * 4096) & ~(size_t)4095);
    snprintf(self, sizeof self, "/proc/self/fd/%d", fd);
    int rc = lmdb->env_create(&env);
    if (!rc)
        rc = lmdb->env_set_mapsize(env, room);
    if (!rc)
        rc = lmdb->env_open(env, self, MDB_NOLOCK | MDB_NOSUBDIR | MDB_NOSYNC | MDB_NOTLS, 0600);
    if (!rc)
        rc = lmdb->txn_begin(env, NULL, 0, &txn);
    if (!rc)
        rc = lmdb->dbi_open(txn, NULL, 0, &dbi);
    enum kfit_status s =
        rc ? kfit_lmdb_fail(err, lmdb, rc, "publish", "making a database in memory") : KFIT_OK;
    for (size_t i = 0; i < n && s == KFIT_OK; i++)
        s = put_entry(lmdb, txn, dbi, &e[i], err);
    if (s == KFIT_OK) {
        rc = lmdb->txn_commit(txn);
        txn = NULL;
        if (rc)
            s = kfit_lmdb_fail(err, lmdb, rc, "publish", "filling the database in memory");
    }
    if (txn)
        lmdb->txn_abort(txn);
    if (s == KFIT_OK)
        *out = env;
    else if (env)
        lmdb->env_close(env);
    return s;
}

/* The generation's file, in memory: filled in key order, then LMDB's compact copy of that. */
static enum kfit_status build(const struct entry *e, size_t n, int *image, struct kfit_error *err)
{
    const struct kfit_lmdb *lmdb;
    MDB_env *env = NULL;
    enum kfit_status s = kfit_lmdb_load(&lmdb, err);
    if (s != KFIT_OK)
        return s;
    int work = memfd_create("kfit-publish", MFD_CLOEXEC), fd = memfd_create("kfit-generation", MFD_CLOEXEC);
    if (work < 0 || fd < 0)
        s = kfit_fail(err, errno == ENOMEM ? KFIT_E_NOMEM : KFIT_E_IO,
                      "publish: making a file in memory: %m");
    else
        s = fill(lmdb, work, e, n, &env, err);
    if (s == KFIT_OK) {
        int rc = lmdb->env_copyfd2(env, fd, MDB_CP_COMPACT);
        if (rc)
            s = kfit_lmdb_fail(err, lmdb, rc, "publish", "compacting");
        lmdb->env_close(env);
    }
    if (work >= 0)
        close(work);
    if (s == KFIT_OK)
        *image = fd;
    else if (fd >= 0)
        close(fd);
    return s;
}

static int greatest(void *ctx, uint64_t number)
{
    uint64_t *max = ctx;
    if (number > *max)
        *max = number;
    return 0;
}

/* The greatest number there is or was current: none is used again. */
static enum kfit_status last_number(const struct kfit_dir *cache, const struct kfit_dir *gens,
                                    uint64_t *number, struct kfit_error *err)
{
    uint64_t now;
    uint8_t sha256[32];
    *number = 0;
    enum kfit_status s = kfit_generation_numbers(gens, greatest, number, err);
    if (s == KFIT_OK && kfit_current_load(cache, &now, sha256, NULL) == KFIT_OK)
        greatest(number, now);
    return s;
}

static void copy_text(char *to, size_t size, const char *from)
{
    snprintf(to, size, "%s", from ? from : "");
}

static enum kfit_status write_manifest(const struct kfit_dir *gens, const struct kfit_manifest *m,
                                       struct kfit_error *err)
{
    char name[32], text[KFIT_MANIFEST_BYTES_MAX];
    size_t n = kfit_manifest_format(m, text);
    snprintf(name, sizeof name, "%" PRIu64 ".json", m->number);
    return kfit_dir_replace(gens, name, text, n, 0444, err);
}

/* Image and manifest into generations/. The manifest comes last: a number exists when it has one. Fills in what
 * the image says of itself; sign NULL: m keeps the signature it has, if any. */
static enum kfit_status write_files(const struct kfit_dir *gens, int image,
                                    const struct kfit_secret_key *sign, struct kfit_manifest *m,
                                    struct kfit_error *err)
{
    char name[32];
    struct stat st;
    if (fstat(image, &st))
        return kfit_fail(err, KFIT_E_IO, "publish: %m");
    if (st.st_size > 1ll << 30)
        return kfit_fail(err, KFIT_E_FULL,
                         "publish: %lld bytes, a generation has at most 1 GiB; publish fewer records",
                         (long long)st.st_size);
    void *bytes = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, image, 0);
    if (bytes == MAP_FAILED)
        return kfit_fail(err, KFIT_E_NOMEM, "publish: mapping %lld bytes: %m", (long long)st.st_size);
    m->length = (uint64_t)st.st_size;
    kfit_sha256(bytes, m->length, m->sha256);
    snprintf(name, sizeof name, "%" PRIu64 ".mdb", m->number);
    enum kfit_status s = kfit_dir_replace(gens, name, bytes, m->length, 0444, err);
    munmap(bytes, m->length);
    if (s == KFIT_OK && sign)
        s = kfit_manifest_sign(m, sign, err);
    return s == KFIT_OK ? write_manifest(gens, m, err) : s;
}

/* Reads generation `number` as a server will. */
static enum kfit_status verify(const char *dir, uint64_t number, struct kfit_manifest *m,
                               struct kfit_error *err)
{
    char which[32];
    struct kfit_generation *g;
    snprintf(which, sizeof which, "%" PRIu64, number);
    enum kfit_status s = kfit_generation_open(dir, which, &g, err);
    if (s == KFIT_OK)
        s = kfit_generation_check(g, err);
    if (s == KFIT_OK)
        *m = *kfit_generation_manifest(g);
    kfit_generation_close(g);
    return s;
}

/* Only then lets current name it. */
static enum kfit_status verify_and_switch(const struct kfit_dir *cache, const char *dir, uint64_t number,
                                          struct kfit_error *err)
{
    char text[KFIT_CURRENT_BYTES_MAX];
    struct kfit_manifest m;
    enum kfit_status s = verify(dir, number, &m, err);
    if (s != KFIT_OK)
        return s;
    size_t n = kfit_current_format(number, m.sha256, text);
    return kfit_dir_replace(cache, "current", text, n, 0644, err);
}

/* Opens and locks what a publisher needs. */
static enum kfit_status begin(const char *dir, mode_t make, struct kfit_dir *cache, struct kfit_dir *gens,
                              int *lock, struct kfit_error *err)
{
    cache->fd = gens->fd = *lock = -1;
    if (!dir || !*dir)
        return kfit_fail(err, KFIT_E_ARG, "publish: no cache directory given");
    enum kfit_status s = kfit_dir_open(cache, NULL, dir, make, err);
    if (s == KFIT_OK)
        s = kfit_dir_open(gens, cache, "generations", make, err);
    return s == KFIT_OK ? kfit_dir_lock(gens, ".lock", lock, err) : s;
}

static void end(struct kfit_dir *cache, struct kfit_dir *gens, int lock)
{
    if (lock >= 0)
        close(lock);
    kfit_dir_close(gens);
    kfit_dir_close(cache);
}

enum kfit_status kfit_generation_publish(const struct kfit_publish_params *p, uint64_t *number,
                                         struct kfit_error *err)
{
    struct kfit_dir cache, gens;
    struct entry *entries = NULL;
    struct kfit_manifest m = {0};
    size_t n = 0;
    int lock, image = -1;
    enum kfit_status s = begin(p->dir, 0755, &cache, &gens, &lock, err);
    if (s == KFIT_OK)
        s = collect(p, &entries, &n, err);
    if (s == KFIT_OK)
        s = build(entries, n, &image, err);
    if (s == KFIT_OK)
        s = last_number(&cache, &gens, &m.number, err);
    if (s != KFIT_OK)
        goto out;
    m.number++;
    m.records = p->count;
    m.created_unix_s = (int64_t)time(NULL);
    copy_text(m.approver, sizeof m.approver, p->approver);
    copy_text(m.note, sizeof m.note, p->note);
    m.republishes = p->republishes;
    s = write_files(&gens, image, p->sign, &m, err);
    if (s == KFIT_OK)
        s = verify_and_switch(&cache, p->dir, m.number, err);
    if (s == KFIT_OK)
        *number = m.number;
out:
    if (image >= 0)
        close(image);
    free(entries);
    end(&cache, &gens, lock);
    return s;
}

enum kfit_status kfit_generation_make_current(const char *dir, uint64_t number, struct kfit_error *err)
{
    struct kfit_dir cache, gens;
    int lock;
    enum kfit_status s = begin(dir, 0, &cache, &gens, &lock, err);
    if (s == KFIT_OK)
        s = verify_and_switch(&cache, dir, number, err);
    end(&cache, &gens, lock);
    return s;
}

enum kfit_status kfit_generation_sign(const char *dir, uint64_t number, const struct kfit_secret_key *key,
                                      struct kfit_error *err)
{
    struct kfit_dir cache, gens;
    struct kfit_manifest m;
    int lock;
    enum kfit_status s = begin(dir, 0, &cache, &gens, &lock, err);
    if (s == KFIT_OK)
        s = verify(dir, number, &m, err);
    if (s == KFIT_OK)
        s = kfit_manifest_sign(&m, key, err);
    if (s == KFIT_OK)
        s = write_manifest(&gens, &m, err);
    end(&cache, &gens, lock);
    return s;
}

enum { NUMBERS_AHEAD = 1000000 }; /* a file must not use up the numbers */

/* The manifest of a generation that cannot keep its number. */
static enum kfit_status renumber(const struct kfit_import_params *p, uint64_t number, struct kfit_manifest *m,
                                 struct kfit_error *err)
{
    const struct kfit_manifest old = *m;
    if (old.is_signed && !p->sign && !p->drop_signature)
        return kfit_fail(
            err, KFIT_E_TRUST,
            "generation %" PRIu64 " would become number %" PRIu64
            " here, and its signature is for the other: sign it with a key of your own (--sign), or "
            "go without (--drop-signature)",
            old.number, number);
    m->number = number;
    m->is_signed = false;
    m->republishes = 0; /* a number of where it comes from */
    m->created_unix_s = (int64_t)time(NULL);
    copy_text(m->approver, sizeof m->approver, p->approver);
    snprintf(m->note, sizeof m->note, "was generation %" PRIu64 ", approved by %.40s%s%.50s", old.number,
             old.approver, old.note[0] ? ": " : "", old.note);
    return KFIT_OK;
}

/* Its number is there. KFIT_IMPORTED: as another generation's. */
static enum kfit_status meet(const struct kfit_import_params *p, const struct kfit_dir *gens,
                             const struct kfit_manifest *m, enum kfit_imported *how, struct kfit_error *err)
{
    char ours[KFIT_STATEMENT_BYTES_MAX], theirs[KFIT_STATEMENT_BYTES_MAX];
    struct kfit_manifest there, checked;
    *how = KFIT_IMPORTED;
    if (kfit_manifest_load(gens, m->number, &there, NULL) != KFIT_OK)
        return KFIT_OK;
    size_t n = kfit_manifest_statement(&there, ours);
    if (n != kfit_manifest_statement(m, theirs) || memcmp(ours, theirs, n))
        return KFIT_OK;
    *how = KFIT_IMPORTED_BEFORE;
    if (!m->is_signed || (there.is_signed && !memcmp(there.signature, m->signature, sizeof m->signature)))
        return KFIT_OK;
    enum kfit_status s = verify(p->dir, m->number, &checked, err);
    if (s == KFIT_OK)
        s = write_manifest(gens, m, err);
    *how = KFIT_IMPORTED_SIGNATURE;
    return s;
}

enum kfit_status kfit_generation_import(const struct kfit_import_params *p, uint64_t *number,
                                        enum kfit_imported *how, struct kfit_error *err)
{
    struct kfit_dir cache, gens;
    struct kfit_manifest m = *kfit_generation_manifest(p->from);
    uint64_t last, now;
    uint8_t sha256[32];
    int lock;
    enum kfit_status s = begin(p->dir, 0755, &cache, &gens, &lock, err);
    if (s == KFIT_OK)
        s = last_number(&cache, &gens, &last, err);
    if (s == KFIT_OK)
        s = meet(p, &gens, &m, how, err);
    if (s != KFIT_OK || *how != KFIT_IMPORTED)
        goto out;
    if (m.number <= last || m.number - last > NUMBERS_AHEAD) {
        if (kfit_current_load(&cache, &now, sha256, NULL) == KFIT_OK && !memcmp(sha256, m.sha256, 32)) {
            *how = KFIT_IMPORTED_BEFORE;
            m.number = now;
            goto out;
        }
        s = renumber(p, last + 1, &m, err);
    }
    if (s == KFIT_OK)
        s = write_files(&gens, kfit_generation_fd(p->from), p->sign, &m, err);
    if (s == KFIT_OK)
        s = verify_and_switch(&cache, p->dir, m.number, err);
out:
    *number = m.number;
    end(&cache, &gens, lock);
    return s;
}
