#include "kfit/store.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "copy.h"
#include "generation_key.h"
#include "kfit/hash.h"
#include "lmdb_api.h"
#include "store_lock.h"

#define FORMAT 1u /* of the tables and of what is in them; META "format" */

#define MAP_FIRST ((size_t)4 << 20)
#define MAP_LAST  ((size_t)1 << 40)
enum { KEY_BYTES_MAX = 511, LOCK_FILE_BYTES = 16 << 10 };

static const char *const table_names[KFIT_TABLE_COUNT] = {
#define KFIT_X(name, str, text) str,
    KFIT_TABLE_LIST(KFIT_X)
#undef KFIT_X
};

struct kfit_store {
    struct kfit_dir dir;
    struct stat id; /* of dir */
    struct kfit_store *next;
    const struct kfit_lmdb *lmdb;
    MDB_env *env;
    MDB_dbi dbi[KFIT_TABLE_COUNT];
    bool present[KFIT_TABLE_COUNT]; /* an older store may lack a table: it reads as empty */
    bool write, copied;
    int lock;
    pid_t pid;
    MDB_txn *snapshot; /* while kfit_store_each runs */
};

/* ---- one store, one object per process ---- */

/* Closing any descriptor of a file drops all record locks of the process on it, LMDB's and ours. */
static pthread_mutex_t open_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct kfit_store *open_stores;

static enum kfit_status enlist(struct kfit_store *s, struct kfit_error *err)
{
    enum kfit_status status = KFIT_OK;
    pthread_mutex_lock(&open_mutex);
    for (const struct kfit_store *o = open_stores; o; o = o->next)
        if (o->pid == s->pid && o->id.st_dev == s->id.st_dev && o->id.st_ino == s->id.st_ino)
            status = kfit_fail(err, KFIT_E_BUSY, "%s: already open in this process", s->dir.path);
    if (status == KFIT_OK) {
        s->next = open_stores;
        open_stores = s;
    }
    pthread_mutex_unlock(&open_mutex);
    return status;
}

static void delist(struct kfit_store *s)
{
    pthread_mutex_lock(&open_mutex);
    for (struct kfit_store **p = &open_stores; *p; p = &(*p)->next)
        if (*p == s) {
            *p = s->next;
            break;
        }
    pthread_mutex_unlock(&open_mutex);
}

/* ---- transactions ---- */

static enum kfit_status fail(const struct kfit_store *s, int rc, const char *doing, struct kfit_error *err)
{
    return kfit_lmdb_fail(err, s->lmdb, rc, s->dir.path, doing);
}

static enum kfit_status usable(const struct kfit_store *s, bool write, struct kfit_error *err)
{
    if (s->pid != getpid())
        return kfit_fail(err, KFIT_E_BUSY, "%s: was opened before fork; open it again in this process",
                         s->dir.path);
    if (write && !s->write)
        return kfit_fail(err, KFIT_E_ARG, "%s: was opened for reading", s->dir.path);
    if (write && s->snapshot)
        return kfit_fail(err, KFIT_E_BUSY, "%s: not written while its entries are visited", s->dir.path);
    return KFIT_OK;
}

static int begin(struct kfit_store *s, unsigned flags, MDB_txn **txn)
{
    int rc = s->lmdb->txn_begin(s->env, NULL, flags, txn);
    if (rc == MDB_MAP_RESIZED) { /* another process made it grow */
        rc = s->lmdb->env_set_mapsize(s->env, 0);
        if (!rc)
            rc = s->lmdb->txn_begin(s->env, NULL, flags, txn);
    }
    return rc;
}

static int grow(struct kfit_store *s)
{
    MDB_envinfo info;
    int rc = s->lmdb->env_info(s->env, &info);
    if (rc)
        return rc;
    return info.me_mapsize >= MAP_LAST ? MDB_MAP_FULL : s->lmdb->env_set_mapsize(s->env, 2 * info.me_mapsize);
}

/* ---- values: a head, then the bytes ---- */

struct value_head {
    uint64_t bytes, checksum;
};

static uint64_t checksum(const MDB_val *key, const void *value, size_t bytes)
{
    return XXH3_64bits_withSeed(value, bytes, XXH3_64bits(key->mv_data, key->mv_size));
}

static const char *value_check(const MDB_val *key, const MDB_val *stored, const void **value, size_t *bytes)
{
    struct value_head h;
    if (stored->mv_size < sizeof h)
        return "value is shorter than its head; the store is damaged";
    memcpy(&h, stored->mv_data, sizeof h);
    *value = (const char *)stored->mv_data + sizeof h;
    *bytes = stored->mv_size - sizeof h;
    if (h.bytes != *bytes || h.checksum != checksum(key, *value, *bytes))
        return "checksum does not match; the entry is damaged";
    return NULL;
}

static int put(const struct kfit_store *s, MDB_txn *txn, const struct kfit_store_op *op)
{
    MDB_val key = {op->key_bytes, (void *)(uintptr_t)op->key};
    struct value_head h = {op->value_bytes, 0};
    MDB_val stored = {sizeof h + op->value_bytes, NULL};
    int rc;
    if (!op->value) {
        rc = s->lmdb->del(txn, s->dbi[op->table], &key, NULL);
        return rc == MDB_NOTFOUND ? 0 : rc;
    }
    h.checksum = checksum(&key, op->value, op->value_bytes);
    rc = s->lmdb->put(txn, s->dbi[op->table], &key, &stored, MDB_RESERVE);
    if (rc)
        return rc;
    memcpy(stored.mv_data, &h, sizeof h);
    memcpy((char *)stored.mv_data + sizeof h, op->value, op->value_bytes);
    return 0;
}

/* ---- opening ---- */

/* META "format" decides whether we may look at the rest. *found: the store has a META table. */
static enum kfit_status check_format(struct kfit_store *s, MDB_txn *txn, bool *found, struct kfit_error *err)
{
    const struct kfit_lmdb *lmdb = s->lmdb;
    MDB_val key = {6, (void *)(uintptr_t) "format"}, stored;
    const void *text;
    size_t n;
    MDB_dbi main_table;
    MDB_cursor *cursor;
    int rc = lmdb->dbi_open(txn, table_names[KFIT_TABLE_META], 0, &s->dbi[KFIT_TABLE_META]);
    *found = !rc;
    if (!rc) {
        rc = lmdb->get(txn, s->dbi[KFIT_TABLE_META], &key, &stored);
        if (rc || value_check(&key, &stored, &text, &n) || n != 1)
            return kfit_fail(err, KFIT_E_FORMAT,
                             "%s: its format cannot be read; the store is damaged or foreign", s->dir.path);
        if (*(const char *)text != '0' + FORMAT)
            return kfit_fail(err, KFIT_E_VERSION, "%s: store format %c, this kfit reads %u; use a newer kfit",
                             s->dir.path, *(const char *)text, FORMAT);
        return KFIT_OK;
    }
    if (rc != MDB_NOTFOUND)
        return fail(s, rc, "opening table meta", err);
    /* No META: only an empty file may be one of ours, from a process killed before its first commit. */
    rc = lmdb->dbi_open(txn, NULL, 0, &main_table);
    if (!rc)
        rc = lmdb->cursor_open(txn, main_table, &cursor);
    if (rc)
        return fail(s, rc, "reading", err);
    rc = lmdb->cursor_get(cursor, &key, &stored, MDB_FIRST);
    lmdb->cursor_close(cursor);
    return rc == MDB_NOTFOUND
               ? KFIT_OK
               : kfit_fail(err, KFIT_E_FORMAT, "%s: an LMDB database, but not a kfit store", s->dir.path);
}

static enum kfit_status open_tables(struct kfit_store *s, struct kfit_error *err)
{
    MDB_txn *txn;
    bool found;
    int rc = begin(s, s->write ? 0 : MDB_RDONLY, &txn);
    if (rc)
        return fail(s, rc, "opening its tables", err);
    enum kfit_status status = check_format(s, txn, &found, err);
    if (status == KFIT_OK && !found && !s->write)
        status = kfit_fail(err, KFIT_E_NOTFOUND, "%s: nothing in it yet", s->dir.path);
    for (unsigned t = 0; t < KFIT_TABLE_COUNT && status == KFIT_OK; t++) {
        rc = s->lmdb->dbi_open(txn, table_names[t], s->write ? MDB_CREATE : 0, &s->dbi[t]);
        s->present[t] = !rc;
        if (rc && (s->write || rc != MDB_NOTFOUND))
            status = fail(s, rc, "opening its tables", err);
    }
    if (status == KFIT_OK && !found) {
        const char format = '0' + FORMAT;
        const struct kfit_store_op op = {KFIT_TABLE_META, "format", 6, &format, 1};
        rc = put(s, txn, &op);
        if (rc)
            status = fail(s, rc, "making it", err);
    }
    if (status != KFIT_OK) {
        s->lmdb->txn_abort(txn);
        return status;
    }
    rc = s->lmdb->txn_commit(txn); /* also after reading: it keeps the table handles */
    return rc ? fail(s, rc, "opening its tables", err) : KFIT_OK;
}

/* The data file before LMDB sees it. *fd stays open only if the caller wants it. */
static enum kfit_status check_data(const struct kfit_store *s, bool *fresh, int *fd, uint64_t *length,
                                   struct kfit_error *err)
{
    char path[sizeof s->dir.path + 16];
    struct stat st;
    enum kfit_status status = kfit_dir_file(&s->dir, "data.mdb", fd, &st, err);
    *fresh = status == KFIT_E_NOTFOUND || (status == KFIT_OK && !st.st_size);
    if (*fresh && s->write) {
        status = KFIT_OK;
    } else if (*fresh) {
        status = kfit_fail(err, KFIT_E_NOTFOUND, "%s: nothing in it yet", s->dir.path);
    } else if (status == KFIT_OK) {
        snprintf(path, sizeof path, "%s/data.mdb", s->dir.path);
        *length = (uint64_t)st.st_size;
        status = kfit_lmdb_check_file(*fd, path, err);
    }
    return status;
}

/* LMDB makes its lock file sparse and maps it: on a full disk that is a SIGBUS. So it gets
 * its blocks here. */
static enum kfit_status reserve_lock_file(const struct kfit_store *s, struct kfit_error *err)
{
    int fd = openat(s->dir.fd, "lock.mdb", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return kfit_dir_fail(&s->dir, "lock.mdb", "opening", err);
    int rc = posix_fallocate(fd, 0, LOCK_FILE_BYTES);
    close(fd);
    errno = rc;
    return rc ? kfit_dir_fail(&s->dir, "lock.mdb", "reserving its space", err) : KFIT_OK;
}

static enum kfit_status open_env(struct kfit_store *s, bool fresh, struct kfit_error *err)
{
    char self[40];
    int dead;
    enum kfit_status status = reserve_lock_file(s, err);
    if (status != KFIT_OK)
        return status;
    snprintf(self, sizeof self, "/proc/self/fd/%d",
             s->dir.fd); /* the directory that was checked, wherever it is */
    int rc = s->lmdb->env_create(&s->env);
    if (!rc)
        rc = s->lmdb->env_set_maxdbs(s->env, KFIT_TABLE_COUNT);
    if (!rc && fresh)
        rc = s->lmdb->env_set_mapsize(s->env, MAP_FIRST);
    if (!rc)
        rc = s->lmdb->env_open(s->env, self, MDB_NOTLS | (s->write ? 0 : MDB_RDONLY), 0600);
    if (!rc)
        rc = s->lmdb->reader_check(s->env,
                                   &dead); /* snapshots of killed readers would keep their pages for ever */
    return rc ? fail(s, rc, "opening", err) : KFIT_OK;
}

static enum kfit_status open_copy(struct kfit_store *s, struct kfit_error *err)
{
    uint8_t digest[32];
    uint64_t length = 0;
    bool fresh;
    int fd = -1, lock = -1, copy = -1;
    s->copied = true;
    enum kfit_status status = kfit_store_lock_copy(&s->dir, &lock, err);
    if (status == KFIT_OK)
        status = check_data(s, &fresh, &fd, &length, err);
    if (status == KFIT_OK)
        status = kfit_copy_sealed(fd, length, s->dir.path, &copy, digest, err);
    if (status == KFIT_OK)
        status = kfit_lmdb_open_copy(s->lmdb, copy, KFIT_TABLE_COUNT, s->dir.path, &s->env, err);
    const int fds[] = {copy, fd, lock};
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    return status;
}

static enum kfit_status open_shared(struct kfit_store *s, struct kfit_error *err)
{
    uint64_t length;
    bool fresh;
    int fd = -1;
    enum kfit_status status = check_data(s, &fresh, &fd, &length, err);
    if (fd >= 0)
        close(fd);
    if (status == KFIT_OK)
        status = open_env(s, fresh, err);
    if (status == KFIT_OK)
        status = open_tables(s, err);
    if (status != KFIT_OK && fresh && s->write) { /* e.g. disk full: leave nothing half-made behind */
        unlinkat(s->dir.fd, "data.mdb", 0);
        unlinkat(s->dir.fd, "lock.mdb", 0);
    }
    return status;
}

static enum kfit_status open_dir(struct kfit_store *s, const char *dir, struct kfit_error *err)
{
    struct kfit_dir cache;
    enum kfit_status status = kfit_dir_open(&cache, NULL, dir, s->write ? 0755 : 0, err);
    if (status == KFIT_OK)
        status = kfit_dir_open(&s->dir, &cache, "store", s->write ? 0700 : 0, err);
    kfit_dir_close(&cache);
    if (status == KFIT_OK && fstat(s->dir.fd, &s->id))
        status = kfit_dir_fail(&s->dir, "", "stat", err);
    if (status == KFIT_OK && s->id.st_uid != geteuid())
        status = kfit_fail(err, KFIT_E_PERM, "%s: belongs to uid %u; only that user opens it", s->dir.path,
                           (unsigned)s->id.st_uid);
    return status;
}

enum kfit_status kfit_store_open(const char *dir, unsigned flags, struct kfit_store **out,
                                 struct kfit_error *err)
{
    *out = NULL;
    if (!dir || !*dir)
        return kfit_fail(err, KFIT_E_ARG, "store: no cache directory given");
    struct kfit_store *s = calloc(1, sizeof *s);
    if (!s)
        return kfit_fail(err, KFIT_E_NOMEM, "store: out of memory");
    s->dir.fd = s->lock = -1;
    s->write = flags & KFIT_STORE_WRITE;
    s->pid = getpid();
    enum kfit_status status = kfit_lmdb_load(&s->lmdb, err);
    if (status == KFIT_OK)
        status = open_dir(s, dir, err);
    if (status == KFIT_OK)
        status = enlist(s, err);
    if (status != KFIT_OK) {
        kfit_dir_close(&s->dir);
        free(s);
        return status;
    }
    errno = 0;
    status = kfit_store_lock(&s->dir, s->write, &s->lock, err);
    if (status == KFIT_OK) {
        status = open_shared(s, err);
    } else if (!s->write && errno == EROFS) {
        status = open_copy(s, err);
        if (status == KFIT_OK)
            status = open_tables(s, err);
    }
    if (status == KFIT_OK)
        *out = s;
    else
        kfit_store_close(s);
    return status;
}

void kfit_store_close(struct kfit_store *s)
{
    if (!s)
        return;
    delist(s);
    /* A forked child keeps the mapping and descriptors: closing them would drop the locks of a store
     * of its own. */
    if (s->pid == getpid()) {
        if (s->env)
            s->lmdb->env_close(s->env);
        if (s->lock >= 0)
            close(s->lock);
        kfit_dir_close(&s->dir);
    }
    free(s);
}

/* ---- reading and writing ---- */

static enum kfit_status check_key(const struct kfit_store *s, unsigned table, const void *key, size_t bytes,
                                  struct kfit_error *err)
{
    if (table < KFIT_TABLE_COUNT && key && bytes && bytes <= KEY_BYTES_MAX)
        return KFIT_OK;
    return kfit_fail(err, KFIT_E_ARG, "%s: table %u, key of %zu bytes; keys have 1 to %d", s->dir.path, table,
                     bytes, KEY_BYTES_MAX);
}

static bool disk_full(const struct kfit_store *s)
{
    struct statvfs v;
    return !fstatvfs(s->dir.fd, &v) && !v.f_bavail;
}

static int apply_once(struct kfit_store *s, const struct kfit_store_op *ops, size_t n)
{
    MDB_txn *txn;
    int rc = begin(s, 0, &txn);
    if (rc)
        return rc;
    for (size_t i = 0; i < n && !rc; i++)
        rc = put(s, txn, &ops[i]);
    if (!rc)
        return s->lmdb->txn_commit(txn);
    s->lmdb->txn_abort(txn);
    return rc;
}

enum kfit_status kfit_store_apply(struct kfit_store *s, const struct kfit_store_op *ops, size_t n,
                                  struct kfit_error *err)
{
    enum kfit_status status = usable(s, true, err);
    for (size_t i = 0; i < n && status == KFIT_OK; i++)
        status = check_key(s, ops[i].table, ops[i].key, ops[i].key_bytes, err);
    if (status != KFIT_OK)
        return status;
    int rc;
    while ((rc = apply_once(s, ops, n)) == MDB_MAP_FULL)
        if ((rc = grow(s)))
            break;
    if (rc == EIO && disk_full(s)) /* LMDB's word for a short write */
        rc = ENOSPC;
    return rc ? fail(s, rc, "writing", err) : KFIT_OK;
}

enum kfit_status kfit_store_put(struct kfit_store *s, enum kfit_table t, const void *key, size_t key_bytes,
                                const void *value, size_t value_bytes, struct kfit_error *err)
{
    const struct kfit_store_op op = {t, key, key_bytes, value ? value : "", value ? value_bytes : 0};
    return kfit_store_apply(s, &op, 1, err);
}

enum kfit_status kfit_store_del(struct kfit_store *s, enum kfit_table t, const void *key, size_t key_bytes,
                                struct kfit_error *err)
{
    const struct kfit_store_op op = {t, key, key_bytes, NULL, 0};
    return kfit_store_apply(s, &op, 1, err);
}

/* Copies the value of one entry out of a transaction. */
static enum kfit_status copy_value(const struct kfit_store *s, MDB_txn *txn, enum kfit_table t, MDB_val key,
                                   void **value, size_t *value_bytes, struct kfit_error *err)
{
    MDB_val stored;
    const void *bytes;
    size_t n;
    int rc = s->present[t] ? s->lmdb->get(txn, s->dbi[t], &key, &stored) : MDB_NOTFOUND;
    if (rc == MDB_NOTFOUND)
        return kfit_fail(err, KFIT_E_NOTFOUND, "%s: no such entry in %s", s->dir.path, table_names[t]);
    if (rc)
        return fail(s, rc, "reading", err);
    const char *problem = value_check(&key, &stored, &bytes, &n);
    if (problem)
        return kfit_fail(err, KFIT_E_FORMAT, "%s: %s: %s", s->dir.path, table_names[t], problem);
    char *copy = malloc(n + 1);
    if (!copy)
        return kfit_fail(err, KFIT_E_NOMEM, "%s: out of memory for %zu bytes", s->dir.path, n);
    memcpy(copy, bytes, n);
    copy[n] = '\0';
    *value = copy;
    *value_bytes = n;
    return KFIT_OK;
}

enum kfit_status kfit_store_get(struct kfit_store *s, enum kfit_table t, const void *key, size_t key_bytes,
                                void **value, size_t *value_bytes, struct kfit_error *err)
{
    MDB_txn *txn = s->snapshot;
    *value = NULL;
    *value_bytes = 0;
    enum kfit_status status = usable(s, false, err);
    if (status == KFIT_OK)
        status = check_key(s, t, key, key_bytes, err);
    if (status != KFIT_OK)
        return status;
    int rc = txn ? 0 : begin(s, MDB_RDONLY, &txn);
    if (rc)
        return fail(s, rc, "reading", err);
    status = copy_value(s, txn, t, (MDB_val){key_bytes, (void *)(uintptr_t)key}, value, value_bytes, err);
    if (txn != s->snapshot)
        s->lmdb->txn_abort(txn);
    return status;
}

enum kfit_status kfit_store_each(struct kfit_store *s, enum kfit_table t, const void *prefix,
                                 size_t prefix_bytes,
                                 int (*fn)(void *ctx, const void *key, size_t key_bytes, const void *value,
                                           size_t value_bytes, const char *problem),
                                 void *ctx, struct kfit_error *err)
{
    const struct kfit_lmdb *lmdb = s->lmdb;
    MDB_txn *outer = s->snapshot, *txn = outer;
    MDB_cursor *cursor = NULL;
    enum kfit_status status = usable(s, false, err);
    if (status == KFIT_OK)
        status = check_key(s, t, prefix_bytes ? prefix : "", prefix_bytes ? prefix_bytes : 1, err);
    if (status != KFIT_OK || !s->present[t])
        return status;
    int rc = txn ? 0 : begin(s, MDB_RDONLY, &txn);
    if (rc)
        return fail(s, rc, "reading", err);
    s->snapshot = txn;
    MDB_val key = {prefix_bytes, (void *)(uintptr_t)prefix}, stored;
    rc = lmdb->cursor_open(txn, s->dbi[t], &cursor);
    if (!rc)
        rc = lmdb->cursor_get(cursor, &key, &stored, prefix_bytes ? MDB_SET_RANGE : MDB_FIRST);
    for (; !rc; rc = lmdb->cursor_get(cursor, &key, &stored, MDB_NEXT)) {
        const void *value;
        size_t n;
        if (prefix_bytes && (key.mv_size < prefix_bytes || memcmp(key.mv_data, prefix, prefix_bytes)))
            break;
        const char *problem = value_check(&key, &stored, &value, &n);
        if (fn(ctx, key.mv_data, key.mv_size, problem ? NULL : value, problem ? 0 : n, problem))
            break;
    }
    if (rc && rc != MDB_NOTFOUND)
        status = fail(s, rc, "reading", err);
    if (cursor)
        lmdb->cursor_close(cursor);
    s->snapshot = outer;
    if (!outer)
        lmdb->txn_abort(txn);
    return status;
}

size_t kfit_store_key(uint8_t *buf, uint64_t env_hard, const union kfit_key *key, const uint8_t *digest)
{
    size_t n = kfit_generation_key(buf, env_hard, key);
    if (digest)
        memcpy(buf + n, digest, 32);
    return n + (digest ? 32 : 0);
}
