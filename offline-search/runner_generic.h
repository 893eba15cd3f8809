/* runner_generic.h - the generic of a key: the BLAS function that the served program would have called. */
#ifndef KFIT_RUNNER_GENERIC_H
#define KFIT_RUNNER_GENERIC_H

#include "runner.h"

struct kfit_generic_calls {
    void *gemm, *gemv; /* gemv NULL: the key is no matrix-vector product, or the library has none */
    bool cblas;        /* else Fortran's by-reference interface */
    bool wide;         /* 64-bit integers */
    union kfit_key key;
};

/* Opens the library and finds the functions; on failure writes why into message. Not before any isolation. */
bool kfit_generic_open(struct kfit_generic_calls *g, const struct kfit_generic *lib,
                       const union kfit_key *key, char message[256]);

/* One call of KFIT_RUN_GEMM or KFIT_RUN_GEMV with the key's arguments. */
void kfit_generic_call(const struct kfit_generic_calls *g, enum kfit_who who, void *const args[]);

#endif
