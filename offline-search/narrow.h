/* narrow.h - how far a 16-bit output is from float64, and whether that is near enough.
 *
 * An element should be the float64 value rounded once to the output type. Accepted: at most max(4 x the
 * generic's share, 1 %) of the elements are not, and none is off by more than 2 ulp of the type plus what
 * float32 accumulation may lose: 4 x 0.3 sqrt(K) u32 mag, mag being the sum of the magnitudes of what was
 * added up. Sums in float32 miss the rounding in at most 0.08 % of the elements; truncation in 50 %,
 * accumulation in half precision in 29 to 55 %.
 */
#ifndef KFIT_NARROW_H
#define KFIT_NARROW_H

#include "kfit/op.h"
#include "kfit/receipt.h"

struct narrow { /* zero it, then add outputs */
    uint64_t n, misrounded;
    double worst; /* largest error over what is allowed; above 1 is wrong */
};

/* Bits of x rounded to nearest, ties to even; overflow gives infinity. type: KFIT_F16 or KFIT_BF16. */
uint16_t narrow_round(double x, enum kfit_dtype type);
double narrow_value(uint16_t bits, enum kfit_dtype type);

/* Compares one output with its float64 values (batch x rows x cols, no gaps). before: bits that stood there before
 * the call. generic: its output, the judge of what is not finite, or NULL. NONE also when the error is too
 * large, which is for narrow_accept; unwritten, partial, nonfinite and values are final. */
enum kfit_code narrow_add(struct narrow *a, const struct kfit_tensor *t, uint16_t before, const double *ref,
                          const double *mag, int64_t reduction, const uint16_t *generic, const uint16_t *out,
                          char at[64]);
/* generic NULL: by the absolute bound alone. */
bool narrow_accept(const struct narrow *a, const struct narrow *generic);

#endif
