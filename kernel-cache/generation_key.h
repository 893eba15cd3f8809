/* LMDB keys inside a generation: 8 bytes of hard environment hash, big-endian so that one environment's
 * records are neighbours, then the key's used bytes. Hash 0 is nobody's: under it, the texts of hashes (8
 * more bytes). */
#ifndef KFIT_GENERATION_KEY_H
#define KFIT_GENERATION_KEY_H

#include "kfit/key.h"

#define KFIT_GENERATION_ENVS    0u
#define KFIT_GENERATION_KEY_MAX (8 + KFIT_KEY_MAX_BYTES)
#define KFIT_GENERATION_ENV_KEY 16

static inline size_t kfit_generation_key(uint8_t *buf, uint64_t env_hard, const union kfit_key *key)
{
    uint64_t be = __builtin_bswap64(env_hard);
    memcpy(buf, &be, 8);
    memcpy(buf + 8, key->bytes, key->h.len);
    return 8u + key->h.len;
}

static inline void kfit_generation_env_key(uint8_t buf[KFIT_GENERATION_ENV_KEY], uint64_t hash)
{
    uint64_t be = __builtin_bswap64(hash);
    memset(buf, 0, 8); /* KFIT_GENERATION_ENVS */
    memcpy(buf + 8, &be, 8);
}

#endif
