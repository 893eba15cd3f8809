/* A seed compiled for one key and loaded, for tests and benchmarks. */
#ifndef SEED_KERNEL_H
#define SEED_KERNEL_H

#include "kfit/compile.h"
#include "kfit/device.h"

struct seed_kernel {
    struct kfit_plan plan;
    struct kfit_modules *modules;
    struct kfit_kernel kernel;
    double compile_ns;
    bool data_oblivious;
};

/* cc, isa: as kfit_compile. KFIT_E_REFUSED when the choice is not legal for the key, or gate 0 says no. */
enum kfit_status seed_kernel_build(struct seed_kernel *k, const struct kfit_candidate *candidate,
                                   const union kfit_key *key, const struct kfit_choice *choice,
                                   const char *cc, const char *isa, struct kfit_error *err);
void seed_kernel_finish(struct seed_kernel *k);

/* Row-major C[m,n] = op(A) op(B) (+ C), with leading dimensions `gap` elements longer than the rows. */
void seed_key(union kfit_key *key, enum kfit_dtype type, int m, int n, int k, bool ta, bool tb, bool beta,
              const int gap[3]);

#endif
