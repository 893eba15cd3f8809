/* kfit/hash.h - the hash of a key, inlined for hot paths. XXH3-64, https://xxhash.com (header-only build). */
#ifndef KFIT_HASH_H
#define KFIT_HASH_H

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "kfit/key.h"

static inline uint64_t kfit_key_hash_inline(const union kfit_key *key)
{
    /* the usual length as a constant: the hash has one path per length */
    return key->h.len == KFIT_GEMM_KEY_BYTES ? XXH3_64bits(key->bytes, KFIT_GEMM_KEY_BYTES)
                                             : XXH3_64bits(key->bytes, key->h.len);
}

#endif
