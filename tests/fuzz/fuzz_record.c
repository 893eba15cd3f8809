/* libFuzzer: any bytes as a record (as they are, and with a right length and checksum, to reach what is
 * behind them), as a manifest and as `current`. What is accepted must be written again as the same bytes.
 *     CC=clang meson setup build-fuzz -Db_sanitize=address,undefined -Db_lundef=false
 *     build-fuzz/tests/fuzz/fuzz_record -max_total_time=60 CORPUS tests/golden */
#include <stdlib.h>

#include "kfit/hash.h"
#include "kfit/record.h"
#include "manifest.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int ok)
{
    if (!ok)
        abort();
}

static void record(const uint8_t *data, size_t size)
{
    struct kfit_record r;
    struct kfit_error err;
    if (kfit_record_decode(data, size, &r, &err) != KFIT_OK)
        return;
    uint8_t *again = malloc(size);
    check(kfit_record_size(&r) == size);
    kfit_record_encode(&r, again);
    check(!memcmp(again, data, size));
    free(again);
}

static void record_made_whole(const uint8_t *data, size_t size)
{
    const uint64_t bytes = size;
    if (size < 176)
        return;
    const uint32_t start[] = {1 + data[8] % KFIT_RECORD_VERSION, 176};
    uint8_t *copy = malloc(size);
    memcpy(copy, data, size);
    memcpy(copy, "kfitrec", 8);
    memcpy(copy + 8, start, sizeof start);
    memcpy(copy + 24, &bytes, sizeof bytes);
    const uint64_t sum = XXH3_64bits(copy + 24, size - 24);
    memcpy(copy + 16, &sum, sizeof sum);
    record(copy, size);
    free(copy);
}

static void texts(const char *data, size_t size)
{
    struct kfit_manifest m, back;
    struct kfit_error err;
    char text[KFIT_MANIFEST_BYTES_MAX], line[KFIT_CURRENT_BYTES_MAX];
    uint64_t number;
    uint8_t sha256[32];
    if (kfit_manifest_parse(data, size, "fuzz", &m, &err) == KFIT_OK) {
        size_t n = kfit_manifest_format(&m, text);
        check(kfit_manifest_parse(text, n, "fuzz", &back, &err) == KFIT_OK && !memcmp(&m, &back, sizeof m));
    }
    if (kfit_current_parse(data, size, "fuzz", &number, sha256, &err) == KFIT_OK)
        check(kfit_current_format(number, sha256, line) == size && !memcmp(line, data, size));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    record(data, size);
    record_made_whole(data, size);
    texts((const char *)data, size);
    return 0;
}
