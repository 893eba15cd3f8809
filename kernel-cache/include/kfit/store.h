/* kfit/store.h - the tuner's working LMDB: winners, receipts, sources, evaluations, bans.
 *
 * Only tools open it, never a server. One process at a time may have it open for writing (KFIT_E_BUSY names
 * the holder); readers in other processes are fine, but only of one PID namespace, because LMDB's lock file
 * knows processes by number. A process opens a store once. After fork the child's copy of the object refuses
 * every call (KFIT_E_BUSY) but close.
 *
 * On a read-only mount KFIT_STORE_READ works on a private copy, made while no writer has the store open: it
 * shows the store as it was when opened.
 *
 * The map grows by itself, and growth by others is followed. Every value carries a checksum over itself and
 * its key, so that a flipped bit is an error (KFIT_E_FORMAT) and not a lie; a truncated or foreign file is
 * refused at open. Damage inside LMDB's own pages cannot be seen in advance: a store that others can
 * write is refused.
 *
 * Tables (named databases) are rows of one list; keys are 1 to 511 bytes, values are bytes.
 * Thread-safety: one thread per object at a time.
 */
#ifndef KFIT_STORE_H
#define KFIT_STORE_H

#include "kfit/record.h"

#ifdef __cplusplus
extern "C" {
#endif

/* X(name, what it maps). Append only. */
#define KFIT_TABLE_LIST(X)                                                                                   \
    X(META, "meta", "names to small values: format version, created")                                        \
    X(ENVS, "envs", "environment hash to text")                                                              \
    X(STAGED, "staged", "env hash + key: record of the present best, not yet published")                     \
    X(RECEIPTS, "receipts", "env hash + key + source digest: receipt JSON")                                  \
    X(SOURCES, "sources", "source digest: candidate source")                                                 \
    X(EVALS, "evals", "env hash + key + source digest: one evaluation, also a failed one")                   \
    X(BANS, "bans", "key: why it must not run")                                                              \
    X(LESSONS, "lessons", "id: lesson JSON")                                                                 \
    X(DEVICES, "devices", "\"ceilings/\" + device identity: what it was measured to do at most, JSON")

enum kfit_table {
#define KFIT_X(name, str, text) KFIT_TABLE_##name,
    KFIT_TABLE_LIST(KFIT_X)
#undef KFIT_X
        KFIT_TABLE_COUNT
};

struct kfit_store;

enum kfit_store_flags { KFIT_STORE_READ = 0, KFIT_STORE_WRITE = 1 };

/* Opens (with WRITE: makes) dir/store. Errors: KFIT_E_NOTFOUND, KFIT_E_PERM (another user's, writable by
 * others, or WRITE on a read-only mount), KFIT_E_BUSY, KFIT_E_FULL, KFIT_E_FORMAT, KFIT_E_VERSION (made by a
 * newer kfit), KFIT_E_UNSUPPORTED (no LMDB), KFIT_E_IO. */
enum kfit_status kfit_store_open(const char *dir, unsigned flags, struct kfit_store **out,
                                 struct kfit_error *err);
void kfit_store_close(struct kfit_store *s);

/* Single operations, each its own transaction, durable on return. On failure (KFIT_E_FULL, KFIT_E_IO ...)
 * nothing has changed. Deleting what is not there succeeds. */
enum kfit_status kfit_store_put(struct kfit_store *s, enum kfit_table t, const void *key, size_t key_bytes,
                                const void *value, size_t value_bytes, struct kfit_error *err);
/* *value is malloc'ed, NUL-terminated beyond value_bytes, the caller's to free. KFIT_E_NOTFOUND
 * leaves it NULL. */
enum kfit_status kfit_store_get(struct kfit_store *s, enum kfit_table t, const void *key, size_t key_bytes,
                                void **value, size_t *value_bytes, struct kfit_error *err);
enum kfit_status kfit_store_del(struct kfit_store *s, enum kfit_table t, const void *key, size_t key_bytes,
                                struct kfit_error *err);

/* Several puts (value NULL: delete) in one transaction: all or nothing. */
struct kfit_store_op {
    enum kfit_table table;
    const void *key;
    size_t key_bytes;
    const void *value;
    size_t value_bytes;
};
enum kfit_status kfit_store_apply(struct kfit_store *s, const struct kfit_store_op *ops, size_t n,
                                  struct kfit_error *err);

/* Calls fn in key order for entries whose key starts with prefix, from one snapshot. Bytes are valid during
 * the call; problem is non-NULL (and value NULL) for an entry whose checksum fails. fn returns 0 to go on; it
 * may read the store (the same snapshot) but not write it (KFIT_E_BUSY). */
enum kfit_status kfit_store_each(struct kfit_store *s, enum kfit_table t, const void *prefix,
                                 size_t prefix_bytes,
                                 int (*fn)(void *ctx, const void *key, size_t key_bytes, const void *value,
                                           size_t value_bytes, const char *problem),
                                 void *ctx, struct kfit_error *err);

/* The compound key of STAGED, RECEIPTS and EVALS: 8 bytes big-endian env hash, then the key's used bytes,
 * then (digest not NULL) 32 bytes. Returns its length; buf holds at least KFIT_STORE_KEY_MAX bytes. */
#define KFIT_STORE_KEY_MAX (8 + KFIT_KEY_MAX_BYTES + 32)
size_t kfit_store_key(uint8_t *buf, uint64_t env_hard, const union kfit_key *key, const uint8_t *digest);

/* ---- records in STAGED ---- */

/* Makes r the staged record of its key and keeps its receipt and the environment's texts, all in one
 * transaction. r must belong to env (KFIT_E_ARG) and decode (KFIT_E_FORMAT). receipt_json may be
 * NULL: none is kept. */
enum kfit_status kfit_store_stage(struct kfit_store *s, const struct kfit_env *env,
                                  const struct kfit_record *r, const char *receipt_json,
                                  struct kfit_error *err);

/* Stages records without receipts, and the texts of their environments, in one transaction: all or nothing. A
 * key that is staged already keeps its record unless replace is set. *staged: how many were taken. Errors: as
 * kfit_store_stage; KFIT_E_ARG also for a record whose environment is not among envs. */
struct kfit_stage_params {
    const struct kfit_record *records;
    size_t count;
    const struct kfit_env *envs;
    size_t env_count;
    bool replace;
};
enum kfit_status kfit_store_stage_all(struct kfit_store *s, const struct kfit_stage_params *p, size_t *staged,
                                      struct kfit_error *err);

/* The staged record of one key. r->image points into *bytes, which is the caller's to free (NULL on failure).
 * Errors: KFIT_E_NOTFOUND, KFIT_E_FORMAT, KFIT_E_VERSION. */
enum kfit_status kfit_store_staged(struct kfit_store *s, uint64_t env_hard, const union kfit_key *key,
                                   struct kfit_record *r, void **bytes, struct kfit_error *err);

/* All staged records of an environment (0: of all), in key order, as kfit_generation_each. */
enum kfit_status kfit_store_staged_each(struct kfit_store *s, uint64_t env_hard,
                                        int (*fn)(void *ctx, const struct kfit_record *r,
                                                  const char *problem),
                                        void *ctx, struct kfit_error *err);

/* Text of a hard or soft environment hash; false if the store does not have it. */
bool kfit_store_env(struct kfit_store *s, uint64_t hash, char buf[KFIT_ENV_TEXT_MAX]);

#ifdef __cplusplus
}
#endif
#endif
