/* libsodium without linking to it: the few functions of it that sign and verify, filled by dlopen. */
#ifndef KFIT_SODIUM_API_H
#define KFIT_SODIUM_API_H

#include <sodium.h>

#include "kfit/status.h"

#define KFIT_SODIUM_SYMBOLS(X)                                                                               \
    X(sodium_init)                                                                                           \
    X(crypto_sign_verify_detached)                                                                           \
    X(crypto_sign_detached)                                                                                  \
    X(crypto_sign_seed_keypair)

struct kfit_sodium {
#define KFIT_X(name) __typeof__(name) *name;
    KFIT_SODIUM_SYMBOLS(KFIT_X)
#undef KFIT_X
};

/* As kfit_lmdb_load. */
enum kfit_status kfit_sodium_load(const struct kfit_sodium **out, struct kfit_error *err);

#endif
