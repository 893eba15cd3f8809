/* kfit/trust.h - who may say what runs: Ed25519 keys, signed generations, and what KFIT_TRUST means.
 *
 * A public key is a text: "ed25519:" and 64 lower-case hex digits. Keys stand in a file, one a line, each
 * followed by a name for people if wanted; what follows a # is a comment. KFIT_TRUST is the path of such a
 * file, or one or more keys themselves, separated by spaces. A private key is a file of its own, which only
 * its owner may read.
 *
 * A signature belongs to the manifest (kfit/generation.h) and covers every value in it: number, length and
 * digest of the data, LMDB format, records, time, approver, note. It does not cover `current`: who can write
 * the cache directory can make an older signed generation current, unless KFIT_GENERATION names the one that
 * is wanted.
 *
 * libsodium does the arithmetic, by dlopen, as LMDB. Without it nothing is trusted.
 */
#ifndef KFIT_TRUST_H
#define KFIT_TRUST_H

#include "kfit/generation.h"

#ifdef __cplusplus
extern "C" {
#endif

#define KFIT_PUBLIC_KEY_TEXT_MAX 128
#define KFIT_TRUST_KEYS_MAX      32

struct kfit_public_key {
    uint8_t bytes[32];
    char name[40]; /* "" if none; cut if longer */
};

struct kfit_trust {
    unsigned count; /* at least 1 once read */
    struct kfit_public_key key[KFIT_TRUST_KEYS_MAX];
};

/* Reads what KFIT_TRUST says. The file must belong to the user or root and be writable by nobody else; its
 * path may lead through links. One bad line is a failure: KFIT_E_TRUST, with file and line; so is an empty
 * value or file. Thread-safety: any. */
enum kfit_status kfit_trust_read(const char *value, struct kfit_trust *out, struct kfit_error *err);
/* The keys of a text, any bytes at all; path is for messages. */
enum kfit_status kfit_trust_parse(const char *text, size_t bytes, const char *path, struct kfit_trust *out,
                                  struct kfit_error *err);

/* "ed25519:..." and the name, NUL-terminated; returns the length. */
size_t kfit_public_key_format(const struct kfit_public_key *key, char buf[KFIT_PUBLIC_KEY_TEXT_MAX]);

/* Whether m is signed, rightly, and by one of the keys (NULL: by whatever key it names, which shows only that
 * nothing was changed since). path, of the manifest, is for messages. KFIT_E_TRUST if not, or if libsodium is
 * missing. *signer (may be NULL) becomes the key that signed, with its name in trust. */
enum kfit_status kfit_manifest_trusted(const struct kfit_manifest *m, const struct kfit_trust *trust,
                                       const char *path, struct kfit_public_key *signer,
                                       struct kfit_error *err);

/* ---- signing (CLI only) ---- */

struct kfit_secret_key { /* to be wiped when done: kfit_secret_key_finish */
    uint8_t bytes[64];
    struct kfit_public_key public_key;
};

/* Makes a new key: path (0600) with the private one, path.pub with the public one. Neither may exist
 * (KFIT_E_EXISTS); on failure neither does. name may be NULL. */
enum kfit_status kfit_secret_key_make(const char *path, const char *name, struct kfit_public_key *out,
                                      struct kfit_error *err);
/* Reads a private key; KFIT_E_PERM if the file is not the user's or if anybody else may read it. */
enum kfit_status kfit_secret_key_read(const char *path, struct kfit_secret_key *out, struct kfit_error *err);
void kfit_secret_key_finish(struct kfit_secret_key *key);

/* Fills signed_by and signature, over an older signature if there is one. */
enum kfit_status kfit_manifest_sign(struct kfit_manifest *m, const struct kfit_secret_key *key,
                                    struct kfit_error *err);
/* Signs a published generation, after verifying it as publishing does; its manifest is replaced by rename. */
enum kfit_status kfit_generation_sign(const char *dir, uint64_t number, const struct kfit_secret_key *key,
                                      struct kfit_error *err);

#ifdef __cplusplus
}
#endif
#endif
