/* libFuzzer: any bytes as the start of an exported generation (as they are, and with a right digest, to reach the
 * manifest), and as a list of public keys. What is accepted must be written again as something that says the same.
 *     CC=clang meson setup build-fuzz -Db_sanitize=address,undefined -Db_lundef=false
 *     build-fuzz/tests/fuzz/fuzz_trust -max_total_time=60 CORPUS tests/golden */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kfit/trust.h"
#include "manifest.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int ok)
{
    if (!ok)
        abort();
}

static void head(const char *data, size_t size)
{
    struct kfit_manifest m, back;
    struct kfit_error err;
    char text[KFIT_EXPORT_HEAD_MAX], ours[KFIT_STATEMENT_BYTES_MAX], theirs[KFIT_STATEMENT_BYTES_MAX];
    size_t offset, again;
    if (kfit_export_parse(data, size, size, "fuzz", &m, &offset, &err) != KFIT_OK)
        return;
    check(offset <= size && size - offset == m.length);
    size_t n = kfit_export_head(&m, text);
    check(kfit_export_parse(text, n, n + m.length, "fuzz", &back, &again, &err) == KFIT_OK && again == n);
    check(!memcmp(&m, &back, sizeof m));
    n = kfit_manifest_statement(&m, ours);
    check(kfit_manifest_statement(&back, theirs) == n && !memcmp(ours, theirs, n));
}

static void head_made_whole(const char *data, size_t size)
{
    char hex[65];
    uint8_t digest[32];
    if (size > KFIT_MANIFEST_BYTES_MAX)
        return;
    kfit_sha256(data, size, digest);
    kfit_hex(digest, sizeof digest, hex);
    char *all = malloc(size + 128);
    int n = sprintf(all, "kfit generation file 1 %zu %s\n", size, hex);
    memcpy(all + n, data, size);
    head(all, (size_t)n + size);
    free(all);
}

static void keys(const char *data, size_t size)
{
    struct kfit_trust t, back;
    struct kfit_error err;
    char text[KFIT_TRUST_KEYS_MAX * KFIT_PUBLIC_KEY_TEXT_MAX + 1];
    if (kfit_trust_parse(data, size, "fuzz", &t, &err) != KFIT_OK)
        return;
    check(t.count >= 1 && t.count <= KFIT_TRUST_KEYS_MAX);
    size_t n = 0;
    for (unsigned i = 0; i < t.count; i++) {
        n += kfit_public_key_format(&t.key[i], text + n);
        text[n++] = '\n';
    }
    check(kfit_trust_parse(text, n, "fuzz", &back, &err) == KFIT_OK && back.count == t.count);
    for (unsigned i = 0; i < t.count; i++)
        check(!memcmp(t.key[i].bytes, back.key[i].bytes, 32) && !strcmp(t.key[i].name, back.key[i].name));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    head((const char *)data, size);
    head_made_whole((const char *)data, size);
    keys((const char *)data, size);
    return 0;
}
