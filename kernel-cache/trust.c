/* Public keys as texts, and whether a manifest is signed by one of them. */
#include "kfit/trust.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dir.h"
#include "manifest.h"
#include "sodium_api.h"

enum { FILE_BYTES_MAX = 16 << 10 };

static const char prefix[] = "ed25519:";

size_t kfit_public_key_format(const struct kfit_public_key *key, char buf[KFIT_PUBLIC_KEY_TEXT_MAX])
{
    char hex[65];
    kfit_hex(key->bytes, 32, hex);
    return (size_t)snprintf(buf, KFIT_PUBLIC_KEY_TEXT_MAX, "%s%s%s%s", prefix, hex, key->name[0] ? " " : "",
                            key->name);
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

/* The name may hold spaces; what is not printable becomes a '?'. */
static void take_name(struct kfit_public_key *key, const char *p, size_t n)
{
    size_t at = strlen(key->name);
    if (at && at + 1 < sizeof key->name - 1)
        key->name[at++] = ' ';
    for (size_t i = 0; i < n && at < sizeof key->name - 1; i++)
        key->name[at++] = (unsigned char)p[i] < ' ' || p[i] == 0x7f ? '?' : p[i];
}

/* One word of a line: a key, or part of the name of the one before it. */
static bool take_word(struct kfit_trust *t, bool first, const char *p, size_t n)
{
    const char *hex = p + sizeof prefix - 1;
    if (n < sizeof prefix - 1 || memcmp(p, prefix, sizeof prefix - 1)) {
        if (!first)
            take_name(&t->key[t->count - 1], p, n);
        return !first;
    }
    struct kfit_public_key *key = &t->key[t->count];
    if (t->count == KFIT_TRUST_KEYS_MAX || !kfit_scan_digest(&hex, p + n, key->bytes) || hex != p + n)
        return false;
    t->count++;
    return true;
}

enum kfit_status kfit_trust_parse(const char *text, size_t bytes, const char *path, struct kfit_trust *out,
                                  struct kfit_error *err)
{
    struct kfit_trust t = {0};
    unsigned line = 1;
    bool first = true;
    for (const char *p = text, *end = text + bytes; p < end;) {
        if (*p == '\n') {
            line++, first = true, p++;
        } else if (is_space(*p)) {
            p++;
        } else if (*p == '#') {
            while (p < end && *p != '\n')
                p++;
        } else {
            const char *word = p;
            while (p < end && *p != '\n' && *p != '#' && !is_space(*p))
                p++;
            if (!take_word(&t, first, word, (size_t)(p - word)))
                return kfit_fail(err, KFIT_E_TRUST,
                                 "%.300s: line %u: expected \"ed25519:\" and 64 lower-case hex digits, as "
                                 "`kfit key show` prints them, and at most %d keys in all",
                                 path, line, KFIT_TRUST_KEYS_MAX);
            first = false;
        }
    }
    if (!t.count)
        return kfit_fail(err, KFIT_E_TRUST, "%.300s: names no key, so nothing is trusted", path);
    *out = t;
    return KFIT_OK;
}

enum kfit_status kfit_trust_read(const char *value, struct kfit_trust *out, struct kfit_error *err)
{
    static const char variable[] = "KFIT_TRUST";
    struct kfit_error why = {0};
    struct stat st;
    size_t n;
    while (is_space(*value))
        value++;
    if (!*value || !strncmp(value, prefix, sizeof prefix - 1))
        return kfit_trust_parse(value, strlen(value), variable, out, err);
    char *text = malloc(FILE_BYTES_MAX);
    if (!text)
        return kfit_fail(err, KFIT_E_NOMEM, "%s: out of memory", variable);
    enum kfit_status s = kfit_file_read(value, text, FILE_BYTES_MAX, &n, &st, &why);
    s = s == KFIT_OK ? kfit_trust_parse(text, n, value, out, err)
                     : kfit_fail(err, KFIT_E_TRUST, "%s, a file of public keys: %s", variable, why.text);
    free(text);
    return s;
}

static const struct kfit_public_key *find(const struct kfit_trust *t, const uint8_t key[32])
{
    for (unsigned i = 0; i < t->count; i++)
        if (!memcmp(t->key[i].bytes, key, 32))
            return &t->key[i];
    return NULL;
}

enum kfit_status kfit_manifest_trusted(const struct kfit_manifest *m, const struct kfit_trust *trust,
                                       const char *path, struct kfit_public_key *signer,
                                       struct kfit_error *err)
{
    const struct kfit_sodium *sodium;
    struct kfit_public_key key = {0};
    struct kfit_error why = {0};
    char statement[KFIT_STATEMENT_BYTES_MAX], text[KFIT_PUBLIC_KEY_TEXT_MAX];
    if (!m->is_signed)
        return kfit_fail(err, KFIT_E_TRUST,
                         "%.300s: not signed; look at it, then `kfit cache sign %" PRIu64 " --sign KEYFILE`",
                         path, m->number);
    memcpy(key.bytes, m->signed_by, sizeof key.bytes);
    if (trust) {
        const struct kfit_public_key *known = find(trust, m->signed_by);
        kfit_public_key_format(&key, text);
        if (!known)
            return kfit_fail(err, KFIT_E_TRUST,
                             "%.300s: signed by %s, which is not one of the %u trusted keys", path, text,
                             trust->count);
        key = *known;
    }
    if (kfit_sodium_load(&sodium, &why) != KFIT_OK)
        return kfit_fail(err, KFIT_E_TRUST, "%.200s: its signature cannot be checked: %s", path, why.text);
    size_t n = kfit_manifest_statement(m, statement);
    if (sodium->crypto_sign_verify_detached(m->signature, (const unsigned char *)statement, n, m->signed_by))
        return kfit_fail(err, KFIT_E_TRUST,
                         "%.300s: its signature is not that of these values: they were changed after they "
                         "were signed; restore the file, or go to another generation with `kfit rollback N`",
                         path);
    if (signer)
        *signer = key;
    return KFIT_OK;
}
