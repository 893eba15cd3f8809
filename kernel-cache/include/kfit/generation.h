/* kfit/generation.h - a published generation: an immutable, approved set of records, by number and digest.
 *
 * A cache directory holds
 *   store/                       the tuner's working LMDB (kfit/store.h); servers never open it
 *   generations/<n>.mdb          one compact LMDB file: (hard environment hash, key) -> record
 *   generations/<n>.json         manifest: number, length, sha256, LMDB format, records, when, by whom
 *   current                      "<n> <sha256>\n", replaced by rename
 *   off                          present: new processes only record; its text says who and why
 *
 * A reader copies the .mdb into a sealed memfd, checks owner (the user or root), mode (not writable by group
 * or others) and digest, and only then lets LMDB look at that copy. Removing or replacing files never affects
 * a process that has loaded them.
 */
#ifndef KFIT_GENERATION_H
#define KFIT_GENERATION_H

#include "kfit/record.h"

#ifdef __cplusplus
extern "C" {
#endif

struct kfit_generation; /* opened, verified, private copy */

struct kfit_manifest {
    uint64_t number;
    uint64_t length;
    uint8_t sha256[32];
    uint64_t records;
    int64_t created_unix_s;
    char approver[64];
    char note[128];
    uint64_t republishes; /* the generation that this one repeats; 0: it is none of a rollback */
    bool is_signed;       /* the two below are there; whether they are right and wanted: kfit/trust.h */
    uint8_t signed_by[32], signature[64];
};

/* Opens what `which` names in cache directory dir: NULL or "" = current, decimal = a number, 64 hex digits =
 * a digest. No malloc beyond a few small blocks, LMDB by dlopen. Errors: KFIT_E_NOTFOUND (nothing published),
 * KFIT_E_PERM, KFIT_E_DIGEST, KFIT_E_FORMAT, KFIT_E_VERSION, KFIT_E_UNSUPPORTED (no LMDB), KFIT_E_IO.
 * Thread-safety: one thread per object. */
enum kfit_status kfit_generation_open(const char *dir, const char *which, struct kfit_generation **out,
                                      struct kfit_error *err);
/* The same, but only if its signature is by one of the keys in trust, which is read as KFIT_TRUST is
 * (kfit/trust.h); NULL: signed or not. KFIT_E_TRUST: it is not, or that cannot be told; nothing of the
 * generation but its manifest has been looked at. */
enum kfit_status kfit_generation_open_trusted(const char *dir, const char *which, const char *trust,
                                              struct kfit_generation **out, struct kfit_error *err);
void kfit_generation_close(struct kfit_generation *g);

const struct kfit_manifest *kfit_generation_manifest(const struct kfit_generation *g);

/* Calls fn for each record of hard environment env_hard (0: of all), in key order. The record and its image
 * are valid only during the call. A record that does not decode is passed to fn as NULL with its message in
 * err, and skipped. fn returns 0 to go on. */
enum kfit_status kfit_generation_each(struct kfit_generation *g, uint64_t env_hard,
                                      int (*fn)(void *ctx, const struct kfit_record *r, const char *problem),
                                      void *ctx, struct kfit_error *err);

/* Text of a hard or soft environment hash kept in the generation; false if unknown. */
bool kfit_generation_env(struct kfit_generation *g, uint64_t hash, char buf[KFIT_ENV_TEXT_MAX]);

/* ---- publishing (CLI only) ---- */

struct kfit_publish_params {
    const char *dir;
    const struct kfit_record *records;
    size_t count;
    const struct kfit_env *envs; /* texts for every hash used by the records */
    size_t env_count;
    const char *approver, *note;        /* may be NULL */
    uint64_t republishes;               /* see struct kfit_manifest */
    const struct kfit_secret_key *sign; /* kfit/trust.h; NULL: not signed */
};

/* Writes generation number max + 1 and its manifest, fsyncs, then makes it current, all by rename: a reader
 * or a crash at any moment sees the old or the new one. The number is returned in *number. One publisher at a
 * time (fcntl lock; KFIT_E_BUSY). */
enum kfit_status kfit_generation_publish(const struct kfit_publish_params *params, uint64_t *number,
                                         struct kfit_error *err);

/* Makes an existing generation current again, after verifying it. `kfit rollback` publishes it anew instead, so that a
 * number tells when it was decided; this is for who keeps generations by other means. */
enum kfit_status kfit_generation_make_current(const char *dir, uint64_t number, struct kfit_error *err);

struct kfit_collect_params {
    const char *dir;
    const uint64_t *keep; /* beside the current generation and the one with the highest number, always kept */
    size_t keep_count;
    bool dry_run;
    /* For each file taken away (or to be), a generation's manifest before its other files; number 0: left by a
     * publisher that was killed. May be NULL. */
    void (*fn)(void *ctx, uint64_t number, const char *name, uint64_t bytes);
    void *ctx;
};

/* Removes generations; processes that have one loaded keep it. No publisher runs meanwhile (KFIT_E_BUSY). Killed at
 * any moment it leaves whole generations, and the next call removes the rest. KFIT_E_NOTFOUND or KFIT_E_FORMAT,
 * and nothing is removed, when `current` does not say which one is. */
enum kfit_status kfit_generation_collect(const struct kfit_collect_params *params, struct kfit_error *err);

/* Reads `current`; KFIT_E_NOTFOUND if nothing is published. */
enum kfit_status kfit_generation_current(const char *dir, uint64_t *number, uint8_t sha256[32],
                                         struct kfit_error *err);
/* Reads one manifest without opening the generation. */
enum kfit_status kfit_manifest_read(const char *dir, uint64_t number, struct kfit_manifest *m,
                                    struct kfit_error *err);
/* Numbers present, ascending; returns how many exist (may exceed max). */
size_t kfit_generation_list(const char *dir, uint64_t *numbers, size_t max);

/* SHA-256 (FIPS 180-4), with the CPU's instructions where it has them. */
void kfit_sha256(const void *data, size_t bytes, uint8_t out[32]);
void kfit_hex(const uint8_t *bytes, size_t n, char *out); /* 2n + 1 bytes */
/* Default cache directory: $KFIT_CACHE, else $XDG_CACHE_HOME/kfit, else $HOME/.cache/kfit. */
size_t kfit_cache_default_dir(char *buf, size_t size);

#ifdef __cplusplus
}
#endif
#endif
