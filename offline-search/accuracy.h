/* accuracy.h - how far an output is from float64, and whether that is near enough.
 *
 * With u the unit roundoff of the output, K the terms of a sum and mag the sum of their magnitudes, an
 * element is off by e = |y - ref| / (u mag). Accepted: rms(e) <= max(1.5 rms(e of the generic), 0.3
 * sqrt(max(K, 12))), pooled over the seeds of a distribution, and no element beyond four times that (or 8).
 * Plain sequential sums reach 0.22 sqrt(K).
 */
#ifndef KFIT_ACCURACY_H
#define KFIT_ACCURACY_H

#include "kfit/op.h"
#include "kfit/receipt.h"

#include "inputs.h"

struct kfit_accuracy { /* zero it, then add outputs */
    double sum_of_squares, worst;
    uint64_t n;
};

struct kfit_expected {
    const struct kfit_tensor *tensor;
    const void *before; /* what the output held before the call, to tell unwritten from wrong */
    const double *ref, *mag;
    const void *generic; /* its output, where the generic is the judge of NaN and Inf; else NULL */
};

/* Compares one output. NONE also when it is inaccurate: that is for kfit_accuracy_accept over all outputs.
 * wrong:unwritten, partial, nonfinite, values are final. at: the first such element, for people. */
enum kfit_code kfit_accuracy_add(struct kfit_accuracy *a, const struct kfit_expected *e, const void *out,
                                 char at[64]);

double kfit_accuracy_rms(const struct kfit_accuracy *a);
/* uneven: the inputs may have terms that outweigh all others, see kfit_distribution. Where such a term comes
 * first, each addition after it loses up to half an ulp of the whole sum: 0.577 sqrt(K) rms. Twice the bound. */
bool kfit_accuracy_accept(const struct kfit_accuracy *a, const struct kfit_accuracy *generic,
                          int64_t reduction, bool uneven);
/* Is the generic itself beyond what any honest sum does? Twice the bound: terms of one sign whose sum lies
 * low between two powers of two cost a plain sum 0.35 sqrt(K). */
bool kfit_accuracy_hopeless(const struct kfit_accuracy *generic, int64_t reduction);

#endif
