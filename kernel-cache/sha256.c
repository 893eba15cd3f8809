#include "sha256.h"

#include <cpuid.h>
#include <immintrin.h>
#include <string.h>

#include "kfit/generation.h"

static const uint32_t k[64] __attribute__((aligned(16))) = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t ror(uint32_t x, unsigned n)
{
    return x >> n | x << (32 - n);
}

void kfit_sha256_blocks_c(uint32_t h[8], const uint8_t *p, size_t n)
{
    for (; n--; p += 64) {
        uint32_t w[64], v[8];
        for (unsigned i = 0; i < 16; i++) {
            memcpy(&w[i], p + 4 * i, 4);
            w[i] = __builtin_bswap32(w[i]);
        }
        for (unsigned i = 16; i < 64; i++) {
            uint32_t a = w[i - 15], b = w[i - 2];
            w[i] = w[i - 16] + (ror(a, 7) ^ ror(a, 18) ^ a >> 3) + w[i - 7] +
                   (ror(b, 17) ^ ror(b, 19) ^ b >> 10);
        }
        memcpy(v, h, sizeof v);
        for (unsigned i = 0; i < 64; i++) {
            uint32_t a = v[0], e = v[4];
            uint32_t t1 =
                v[7] + (ror(e, 6) ^ ror(e, 11) ^ ror(e, 25)) + ((e & v[5]) ^ (~e & v[6])) + k[i] + w[i];
            uint32_t t2 = (ror(a, 2) ^ ror(a, 13) ^ ror(a, 22)) + ((a & v[1]) ^ (a & v[2]) ^ (v[1] & v[2]));
            memmove(v + 1, v, 7 * sizeof *v);
            v[4] += t1;
            v[0] = t1 + t2;
        }
        for (unsigned i = 0; i < 8; i++)
            h[i] += v[i];
    }
}

/* The instructions keep the state as (a b e f) and (c d g h), high lane first, and do two rounds
 * at a time. */
__attribute__((target("sha,sse4.1"))) void kfit_sha256_blocks_ni(uint32_t h[8], const uint8_t *p, size_t n)
{
    const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
    __m128i abef = _mm_set_epi32((int)h[0], (int)h[1], (int)h[4], (int)h[5]);
    __m128i cdgh = _mm_set_epi32((int)h[2], (int)h[3], (int)h[6], (int)h[7]);
    for (; n--; p += 64) {
        __m128i w[4], abef0 = abef, cdgh0 = cdgh;
        for (unsigned i = 0; i < 4; i++)
            w[i] = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(const void *)(p + 16 * i)), swap);
/* Four rounds with words 4i .. 4i+3, then (for the first 48) the words that come 16 later in their place. */
#define ROUNDS(i, more)                                                                                      \
    do {                                                                                                     \
        __m128i x = _mm_add_epi32(w[(i) % 4], _mm_load_si128((const __m128i *)(const void *)(k + 4 * (i)))); \
        cdgh = _mm_sha256rnds2_epu32(cdgh, abef, x);                                                         \
        abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(x, 0x0e));                                \
        if (more)                                                                                            \
            w[(i) % 4] =                                                                                     \
                _mm_sha256msg2_epu32(_mm_add_epi32(_mm_sha256msg1_epu32(w[(i) % 4], w[((i) + 1) % 4]),       \
                                                   _mm_alignr_epi8(w[((i) + 3) % 4], w[((i) + 2) % 4], 4)),  \
                                     w[((i) + 3) % 4]);                                                      \
    } while (0)
        for (unsigned i = 0; i < 12; i += 4) {
            ROUNDS(i, 1);
            ROUNDS(i + 1, 1);
            ROUNDS(i + 2, 1);
            ROUNDS(i + 3, 1);
        }
        ROUNDS(12, 0);
        ROUNDS(13, 0);
        ROUNDS(14, 0);
        ROUNDS(15, 0);
#undef ROUNDS
        abef = _mm_add_epi32(abef, abef0);
        cdgh = _mm_add_epi32(cdgh, cdgh0);
    }
    h[0] = (uint32_t)_mm_extract_epi32(abef, 3);
    h[1] = (uint32_t)_mm_extract_epi32(abef, 2);
    h[4] = (uint32_t)_mm_extract_epi32(abef, 1);
    h[5] = (uint32_t)_mm_extract_epi32(abef, 0);
    h[2] = (uint32_t)_mm_extract_epi32(cdgh, 3);
    h[3] = (uint32_t)_mm_extract_epi32(cdgh, 2);
    h[6] = (uint32_t)_mm_extract_epi32(cdgh, 1);
    h[7] = (uint32_t)_mm_extract_epi32(cdgh, 0);
}

int kfit_sha256_has_ni(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_SSE4_1) && (c & bit_SSSE3) &&
           __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & bit_SHA);
}

void kfit_sha256_init(struct kfit_sha256_state *s)
{
    static const uint32_t start[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    memset(s, 0, sizeof *s);
    memcpy(s->h, start, sizeof start);
    s->blocks = kfit_sha256_has_ni() ? kfit_sha256_blocks_ni : kfit_sha256_blocks_c;
}

void kfit_sha256_update(struct kfit_sha256_state *s, const void *data, size_t bytes)
{
    const uint8_t *p = data;
    size_t used = s->bytes % 64;
    s->bytes += bytes;
    if (used) {
        size_t n = bytes < 64 - used ? bytes : 64 - used;
        memcpy(s->tail + used, p, n);
        if (used + n < 64)
            return;
        s->blocks(s->h, s->tail, 1);
        p += n;
        bytes -= n;
    }
    s->blocks(s->h, p, bytes / 64);
    if (bytes % 64)
        memcpy(s->tail, p + bytes / 64 * 64, bytes % 64);
}

void kfit_sha256_final(struct kfit_sha256_state *s, uint8_t out[32])
{
    size_t used = s->bytes % 64;
    uint8_t last[128] = {0};
    size_t n = used < 56 ? 64 : 128;
    uint64_t bits = __builtin_bswap64(s->bytes * 8);
    memcpy(last, s->tail, used);
    last[used] = 0x80;
    memcpy(last + n - 8, &bits, 8);
    s->blocks(s->h, last, n / 64);
    for (unsigned i = 0; i < 8; i++) {
        uint32_t be = __builtin_bswap32(s->h[i]);
        memcpy(out + 4 * i, &be, 4);
    }
}

void kfit_sha256(const void *data, size_t bytes, uint8_t out[32])
{
    struct kfit_sha256_state s;
    kfit_sha256_init(&s);
    kfit_sha256_update(&s, data, bytes);
    kfit_sha256_final(&s, out);
}

void kfit_hex(const uint8_t *bytes, size_t n, char *out)
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < n; i++) {
        *out++ = digits[bytes[i] >> 4];
        *out++ = digits[bytes[i] & 15];
    }
    *out = '\0';
}
