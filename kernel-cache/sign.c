/* Private keys, and signing with them. Only the CLI needs this. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "dir.h"
#include "kfit/trust.h"
#include "manifest.h"
#include "sodium_api.h"

enum { SEED_BYTES = crypto_sign_SEEDBYTES, KEY_FILE_MAX = 1024 };
_Static_assert(SEED_BYTES == 32 && crypto_sign_SECRETKEYBYTES == 64 && crypto_sign_PUBLICKEYBYTES == 32 &&
                   crypto_sign_BYTES == 64,
               "the sizes of our structs");

static const char secret_prefix[] = "kfit-secret-ed25519:";

void kfit_secret_key_finish(struct kfit_secret_key *key)
{
    explicit_bzero(key, sizeof *key);
}

/* A new file, in full or not at all. */
static enum kfit_status write_new(const char *path, const char *text, size_t bytes, mode_t mode,
                                  struct kfit_error *err)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
    if (fd < 0 && errno == EEXIST)
        return kfit_fail(err, KFIT_E_EXISTS, "%.300s: is there already and stays as it is; name another file",
                         path);
    if (fd < 0)
        return kfit_dir_fail(NULL, path, "making", err);
    enum kfit_status s = KFIT_OK;
    ssize_t put = write(fd, text, bytes);
    if (put != (ssize_t)bytes || fchmod(fd, mode) || fsync(fd)) {
        if (put >= 0 && put != (ssize_t)bytes)
            errno = ENOSPC;
        s = kfit_dir_fail(NULL, path, "writing", err);
    }
    if (close(fd) && s == KFIT_OK)
        s = kfit_dir_fail(NULL, path, "writing", err);
    if (s != KFIT_OK)
        unlink(path);
    return s;
}

static void set_name(struct kfit_public_key *key, const char *name)
{
    size_t n = strnlen(name, sizeof key->name - 1);
    for (size_t i = 0; i < n; i++) /* what would not come back from the file */
        key->name[i] = (unsigned char)name[i] <= ' ' || name[i] == 0x7f || name[i] == '#' ? '_' : name[i];
}

static enum kfit_status from_seed(struct kfit_secret_key *key, const uint8_t seed[SEED_BYTES],
                                  struct kfit_error *err)
{
    const struct kfit_sodium *sodium;
    enum kfit_status s = kfit_sodium_load(&sodium, err);
    if (s == KFIT_OK && sodium->crypto_sign_seed_keypair(key->public_key.bytes, key->bytes, seed))
        s = kfit_fail(err, KFIT_E_IO, "libsodium made no key");
    return s;
}

enum kfit_status kfit_secret_key_make(const char *path, const char *name, struct kfit_public_key *out,
                                      struct kfit_error *err)
{
    struct kfit_secret_key key = {0};
    uint8_t seed[SEED_BYTES];
    char hex[2 * SEED_BYTES + 1], text[KEY_FILE_MAX], pub[PATH_MAX];
    if (snprintf(pub, sizeof pub, "%s.pub", path) >= (int)sizeof pub)
        return kfit_fail(err, KFIT_E_ARG, "%.100s...: path too long", path);
    if (getrandom(seed, sizeof seed, 0) != sizeof seed)
        return kfit_fail(err, KFIT_E_IO, "getrandom: %m");
    enum kfit_status s = from_seed(&key, seed, err);
    if (s != KFIT_OK)
        goto end;
    set_name(&key.public_key, name ? name : "");
    kfit_hex(seed, sizeof seed, hex);
    int n =
        snprintf(text, sizeof text,
                 "# a private key of kfit: whoever can read it can sign generations; the public one is in "
                 "the file beside it\n%s%s %s\n",
                 secret_prefix, hex, key.public_key.name);
    s = write_new(path, text, (size_t)n, 0600, err);
    if (s != KFIT_OK)
        goto end;
    size_t bytes = kfit_public_key_format(&key.public_key, text);
    text[bytes++] = '\n';
    s = write_new(pub, text, bytes, 0644, err);
    if (s != KFIT_OK)
        unlink(path);
    else
        *out = key.public_key;
end:
    explicit_bzero(seed, sizeof seed);
    explicit_bzero(hex, sizeof hex);
    explicit_bzero(text, sizeof text);
    kfit_secret_key_finish(&key);
    return s;
}

enum kfit_status kfit_secret_key_read(const char *path, struct kfit_secret_key *out, struct kfit_error *err)
{
    struct kfit_secret_key key = {0};
    uint8_t seed[SEED_BYTES];
    char text[KEY_FILE_MAX];
    struct stat st;
    size_t n = 0;
    enum kfit_status s = kfit_file_read(path, text, sizeof text, &n, &st, err);
    if (s != KFIT_OK)
        goto end;
    const char *p = text, *stop = text + n;
    while (p < stop && *p == '#') /* whole lines of comment */
        for (p += strcspn(p, "\n"); p < stop && (*p == '\n' || !*p);)
            p++;
    bool ok = !strncmp(p, secret_prefix, sizeof secret_prefix - 1);
    p += ok ? sizeof secret_prefix - 1 : 0;
    ok = ok && kfit_scan_hex(&p, stop, seed, sizeof seed) && (*p == ' ' || *p == '\n' || !*p);
    if (!ok) {
        s = kfit_fail(err, KFIT_E_FORMAT,
                      "%.300s: holds no private key of kfit; `kfit key new FILE` makes one", path);
        goto end;
    }
    if (st.st_uid != geteuid() || st.st_mode & 077) {
        s = kfit_fail(
            err, KFIT_E_PERM,
            "%.300s: mode %04o, uid %u: a private key must be yours and nobody else's to read; chmod "
            "600, and if others could read it, make a new one",
            path, (unsigned)st.st_mode & 07777, (unsigned)st.st_uid);
        goto end;
    }
    s = from_seed(&key, seed, err);
    if (s == KFIT_OK) {
        p += *p == ' ';
        char name[sizeof key.public_key.name];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(p, " \n"), p);
        set_name(&key.public_key, name);
        *out = key;
    }
end:
    explicit_bzero(seed, sizeof seed);
    explicit_bzero(text, sizeof text);
    kfit_secret_key_finish(&key);
    return s;
}

enum kfit_status kfit_manifest_sign(struct kfit_manifest *m, const struct kfit_secret_key *key,
                                    struct kfit_error *err)
{
    const struct kfit_sodium *sodium;
    char statement[KFIT_STATEMENT_BYTES_MAX];
    enum kfit_status s = kfit_sodium_load(&sodium, err);
    if (s != KFIT_OK)
        return s;
    size_t n = kfit_manifest_statement(m, statement);
    if (sodium->crypto_sign_detached(m->signature, NULL, (const unsigned char *)statement, n, key->bytes))
        return kfit_fail(err, KFIT_E_IO, "libsodium made no signature");
    m->is_signed = true;
    memcpy(m->signed_by, key->public_key.bytes, sizeof m->signed_by);
    return KFIT_OK;
}
