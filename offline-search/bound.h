/* bound.h - what this machine can do at best, measured, and the least time that leaves for a key. */
#ifndef KFIT_BOUND_H
#define KFIT_BOUND_H

#include "kfit/key.h"

#define KFIT_READ_POINTS 7u /* 16 kB to 64 MB */

/* One core's: host kernels run in the thread that calls them. */
struct kfit_ceilings {
    struct {
        size_t bytes;
        double bytes_per_ns;
    } read[KFIT_READ_POINTS];
    double flops_per_ns[2]; /* f32, f64 */
};

/* Takes about 0.1 s. False: out of memory. */
bool kfit_ceilings_measure(struct kfit_ceilings *c);

/* max(compulsory bytes / read bandwidth at that size, FLOPs / peak). Compulsory traffic and definition FLOPs
 * are the op's own (kfit_op.bytes, kfit_op.flops). */
double kfit_bound_ns(const struct kfit_ceilings *c, const union kfit_key *key);

#endif
