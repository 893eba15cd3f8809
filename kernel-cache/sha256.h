/* SHA-256 in pieces (FIPS 180-4). kfit_sha256 in kfit/generation.h is the one-call form. */
#ifndef KFIT_SHA256_H
#define KFIT_SHA256_H

#include <stddef.h>
#include <stdint.h>

struct kfit_sha256_state {
    uint32_t h[8];
    uint64_t bytes;
    uint8_t tail[64];
    void (*blocks)(uint32_t h[8], const uint8_t *p, size_t n);
};

void kfit_sha256_init(struct kfit_sha256_state *s);
void kfit_sha256_update(struct kfit_sha256_state *s, const void *data, size_t bytes);
void kfit_sha256_final(struct kfit_sha256_state *s, uint8_t out[32]);

/* Both ways to digest n blocks of 64 bytes; init chooses. The second only where kfit_sha256_has_ni. */
void kfit_sha256_blocks_c(uint32_t h[8], const uint8_t *p, size_t n);
void kfit_sha256_blocks_ni(uint32_t h[8], const uint8_t *p, size_t n);
int kfit_sha256_has_ni(void);

#endif
