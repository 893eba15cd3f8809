#include <stdio.h>

#include "kfit/hash.h"
#include "kfit/op.h"

static const struct {
    const char *name;
    unsigned bytes;
    double roundoff;
} dtypes[KFIT_DTYPE_END] = {
    [0] = {"?", 0, 0},
    [KFIT_F32] = {"f32", 4, 0x1p-24},
    [KFIT_F64] = {"f64", 8, 0x1p-53},
    [KFIT_F16] = {"f16", 2, 0x1p-11},
    [KFIT_BF16] = {"bf16", 2, 0x1p-8},
};

const char *kfit_dtype_name(enum kfit_dtype t)
{
    return dtypes[(unsigned)t < KFIT_DTYPE_END ? t : 0].name;
}

unsigned kfit_dtype_bytes(enum kfit_dtype t)
{
    return dtypes[(unsigned)t < KFIT_DTYPE_END ? t : 0].bytes;
}

double kfit_dtype_roundoff(enum kfit_dtype t)
{
    return dtypes[(unsigned)t < KFIT_DTYPE_END ? t : 0].roundoff;
}

uint64_t kfit_key_hash(const union kfit_key *key)
{
    /* the usual length as a constant: the hash has one path per length */
    return key->h.len == KFIT_GEMM_KEY_BYTES ? XXH3_64bits(key->bytes, KFIT_GEMM_KEY_BYTES)
                                             : XXH3_64bits(key->bytes, key->h.len);
}

enum kfit_status kfit_key_check(const union kfit_key *key, struct kfit_error *err)
{
    const struct kfit_op *op = kfit_op_of(key);
    if (!op)
        return kfit_fail(err, KFIT_E_FORMAT, "key: unknown op number %u", key->h.op);
    if (key->h.len < 8 || key->h.len > KFIT_KEY_MAX_BYTES || key->h.len % 8)
        return kfit_fail(err, KFIT_E_FORMAT, "key: length %u is not a multiple of 8 up to %u", key->h.len,
                         KFIT_KEY_MAX_BYTES);
    return op->check(key, err);
}

size_t kfit_key_format(const union kfit_key *key, char *buf, size_t size)
{
    if (size)
        buf[0] = '\0';
    if (kfit_key_check(key, NULL) != KFIT_OK)
        return 0;
    size_t n = kfit_op_of(key)->format(key, buf, size);
    if (n >= size && size)
        buf[0] = '\0';
    return n < size ? n : 0;
}

enum kfit_status kfit_key_parse(const char *text, union kfit_key *key, struct kfit_error *err)
{
    size_t len = strcspn(text, "/");
    const struct kfit_op *op = kfit_op_by_name(text, len);
    if (!op)
        return kfit_fail(err, KFIT_E_FORMAT,
                         "key: unknown op \"%.*s\"; a key starts with an op name, as in gemm/f32,...",
                         (int)(len < 40 ? len : 40), text);
    enum kfit_status s = op->parse(text, key, err);
    if (s != KFIT_OK)
        return s;
    s = op->check(key, err);
    if (s != KFIT_OK)
        return s;
    /* One text per key: what we would write must be what was given. */
    char canonical[KFIT_KEY_TEXT_MAX];
    if (!kfit_key_format(key, canonical, sizeof canonical) || strcmp(canonical, text))
        return kfit_fail(err, KFIT_E_FORMAT, "key: \"%.200s\" is not canonical; expected \"%.200s\"", text,
                         canonical);
    return KFIT_OK;
}
