/* inputs.h - input values from a distribution and a seed. */
#ifndef KFIT_INPUTS_H
#define KFIT_INPUTS_H

#include "kfit/op.h"

enum kfit_judged {
    KFIT_JUDGED_REFERENCE,
    KFIT_JUDGED_GENERIC
}; /* by the float64 value; by what the generic did */

struct kfit_row; /* one row of one argument, see inputs.c */

struct kfit_distribution {
    const char *name;
    void (*shape)(struct kfit_row *); /* turns a row of standard normal values into this distribution */
    bool hidden;                      /* the proposer is not told of it: gate 2 only */
    enum kfit_judged judged;
    bool uneven; /* has terms that outweigh all others, wherever a kernel's order puts them: see accuracy.h */
};

/* The most telling first: large shapes use only the first few. */
extern const struct kfit_distribution kfit_distributions[];
extern const unsigned kfit_distribution_count;

/* Fills the kfit_tensor_bytes(t) bytes of argument arg of nargs; what lies between rows gets the band pattern
 * (kfit_band_fill). The same call gives the same bytes. False: out of memory. */
bool kfit_inputs_fill(const struct kfit_distribution *d, uint64_t seed, const struct kfit_tensor *t,
                      unsigned arg, unsigned nargs, void *out);

#endif
