/* kfit/ceilings.h - what a GPU was measured to be able to do at most, and the bound that follows.
 *
 * Measured once per device by a worker of the judge and kept in the store (table DEVICES), under the device's identity;
 * measured again where the identity, the driver or the architecture is another. On the host they are measured per judge
 * (bound.c): that takes a tenth of a second.
 *
 * Reads: the fastest of many launch shapes that only read that many cold bytes, back to back in a graph. Copies: the same,
 * reading half of the bytes and writing the other half. FLOPs: the vendor's own product of large square matrices, per type of
 * its operands: no instruction path that the vendor uses is missed, and on a large enough product it is limited by nothing
 * else (f32: without TF32, as PyTorch's default).
 *
 * The bound of a key is that of the roofline model (Williams, Waterman, Patterson, CACM 52:4, 2009): no kernel is faster than
 * the slower of its compulsory bytes (each input once, each output once) and its FLOPs:
 *
 *     bound_ns = max(read_ns(bytes), flops / flops_per_ns[type of A])
 *
 * Where the time is latency the curve has it: read_ns of few bytes is mostly the launch. Between two points the curve is a
 * line; below the first it is the first point, beyond the last it goes on at the last two points' slope.
 *
 * Thread-safety: one thread per store; the rest is pure.
 */
#ifndef KFIT_CEILINGS_H
#define KFIT_CEILINGS_H

#include "kfit/key.h"
#include "kfit/store.h"

#ifdef __cplusplus
extern "C" {
#endif

#define KFIT_GPU_CEILING_POINTS 18u

struct kfit_gpu_ceilings {
    char device[48];                      /* "GPU-" and its UUID, of the MIG instance if it is one */
    char model[64], arch[32], driver[32]; /* "CUDA 13.0" */
    int64_t measured_unix_s;
    uint64_t bytes[KFIT_GPU_CEILING_POINTS]; /* ascending */
    double read_ns[KFIT_GPU_CEILING_POINTS], copy_ns[KFIT_GPU_CEILING_POINTS];
    double flops_per_ns[KFIT_DTYPE_END]; /* by type of the operands; 0: not measured, then no bound follows */
};

/* KFIT_E_NOTFOUND: never measured, or for another driver or architecture, which are those in *c before; KFIT_E_FORMAT:
 * damaged. Either way: measure. c->device says of which. */
enum kfit_status kfit_ceilings_load(struct kfit_store *s, struct kfit_gpu_ceilings *c, struct kfit_error *err);
enum kfit_status kfit_ceilings_save(struct kfit_store *s, const struct kfit_gpu_ceilings *c, struct kfit_error *err);
/* All that the store has, in order of device; fn returns 0 to go on. Damaged ones are passed over. */
enum kfit_status kfit_ceilings_each(struct kfit_store *s, int (*fn)(void *ctx, const struct kfit_gpu_ceilings *c),
                                    void *ctx, struct kfit_error *err);

/* The bound of a checked key, ns. */
double kfit_ceilings_bound_ns(const struct kfit_gpu_ceilings *c, const union kfit_key *key);
/* A curve (read_ns or copy_ns) at a number of bytes. */
double kfit_ceilings_at(const struct kfit_gpu_ceilings *c, const double ns[KFIT_GPU_CEILING_POINTS], double bytes);

#ifdef __cplusplus
}
#endif
#endif
