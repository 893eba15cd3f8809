/* runner_cuda.h - what the judge (parent) and a GPU worker (child, `kfit-runner-cuda`) share.
 *
 * One program, two uses: the runner holds candidates, the generic and inputs; the referee holds the float64 reference
 * and never a candidate. The parent holds no CUDA at all. Device code cannot reach the worker's own memory, so the
 * worker's word on hashes, bands and times is trusted; verdicts and references are the parent's and the referee's.
 *
 * Commands and replies are one struct each on a socket (descriptor 0); images, sources and results travel in the
 * arena (descriptor 3), one at a time, from its first byte. A worker that has seen a CUDA error answers with it and
 * ends: the context is lost with it. A hang is answered with KFIT_CU_HANG after `limit_ms`, and ends the worker too.
 */
#ifndef KFIT_RUNNER_CUDA_H
#define KFIT_RUNNER_CUDA_H

#include "kfit/device.h"
#include "kfit/op.h"
#include "kfit/trace.h"

#include "timing.h"

#define KFIT_CU_ARGS 4           /* at most; the output is argument op->out_arg */
#define KFIT_CU_BAND 4096u       /* bytes on both sides of an argument in the middle of its mapping */
#define KFIT_CU_BAND_WORD 0x7fc5a5a5u /* NaN as f32, bf16 and fp16 */
#define KFIT_CU_LAUNCHES 64u     /* of one timed graph */
#define KFIT_CU_CHECKED 4u       /* timed launches whose outputs are looked at */

enum kfit_cu_what {
    KFIT_CU_START = 1, /* arena: judge.cu's cubin; key, generic, sets, workspace_bytes. Reply: device facts */
    KFIT_CU_FILL,      /* inputs of `distribution` and `seed` at `placement` */
    KFIT_CU_LOAD,      /* arena: cubin of `bytes`; plan; as `who` */
    KFIT_CU_LAUNCH,    /* `who`, count times; output and scratch poisoned with the word `poison` before the first.
                          Reply: integrity. Arena: the output's bytes, gaps between rows included */
    KFIT_CU_PAIRS,     /* count timed pairs of who, who2 in `mode`, order from seed; with `fill`, the sets get new
                          inputs first (set s: normal, fill_seed + s). Arena: struct kfit_cu_times */
    KFIT_CU_OUTPUT,    /* arena: output of timed slot `slot` by `who`: of the inputs of set slot % sets */
    KFIT_CU_REFERENCE, /* arena: ref, then mag, of the inputs in place (referee) */
    KFIT_CU_KERNELS,   /* who, who2 cold in graphs under CUPTI, all slots; count 0: only whether that can be done.
                          generic: the library beside which CUPTI may lie. Arena: struct kfit_cu_kernels. Slows all
                          launches of this worker from then on */
    KFIT_CU_ARGUMENT,  /* arena: the bytes of argument `slot` as they are */
    KFIT_CU_DESCRIBE,  /* device facts only; needs nothing before it */
    KFIT_CU_FLOOR,     /* arena: sizes as uint64_t[count] in, best ns as double[count] out, cold; who 0: pure reads, 1: copies */
    KFIT_CU_FLOPS,     /* arena: double out, the FLOPs per ns of the generic's best large product, of dtype `slot`. The
                          worker is of no other use then */
    KFIT_CU_IDENTIFY,  /* the device's id alone; makes no context */
};

enum kfit_cu_who { KFIT_CU_CANDIDATE, KFIT_CU_INCUMBENT, KFIT_CU_GENERIC, KFIT_CU_WHO };
enum kfit_cu_mode { KFIT_CU_COLD, KFIT_CU_WARM, KFIT_CU_PLAIN, KFIT_CU_MODES };
enum { KFIT_CU_HANG = -1 };

struct kfit_cu_command {
    uint32_t what, who, who2, count, poison, distribution, placement, mode, slot, limit_ms, fill;
    uint64_t seed, fill_seed, bytes, workspace_bytes;
    union kfit_key key;
    struct kfit_generic generic;
    struct kfit_plan plan;
};

struct kfit_cu_reply {
    int32_t error;    /* 0, a CUDA error, or KFIT_CU_HANG */
    uint32_t refused; /* the image could not be loaded or launched (too much shared memory ...): not sticky */
    uint32_t inputs_changed, bands_changed, workspace_dirty;
    int64_t band_offset; /* of the first changed band byte: from the argument's end, or negative from its start */
    uint32_t sets, launches; /* START: how many copies of the inputs a cold timing goes round, launches of one graph */
    struct kfit_device_info info; /* START */
    uint64_t others_bytes; /* START, a worker's first: device memory in use by others, contexts included */
    int32_t driver;  /* 13000 */
    int32_t blas;    /* 130100; START with a generic, DESCRIBE with one */
    char message[256];
};

/* What CUPTI saw. */
enum { KFIT_CU_KERNEL_NAMES = 8 };
struct kfit_cu_side_kernels {
    uint32_t calls, records, names;
    double kernel_ns, event_ns; /* of all of them; by records, and by the events around them in this pass */
    struct {
        char text[80];
        uint32_t count;
    } name[KFIT_CU_KERNEL_NAMES];
};
struct kfit_cu_kernels {
    uint32_t seen; /* 0: it could not be asked, `why` */
    uint32_t version;
    char why[200];
    struct kfit_cu_side_kernels side[2];
};

struct kfit_cu_times {
    double ns[2][KFIT_PAIRS_MAX]; /* per call */
    double outer_ns;              /* by the worker's CPU clock, all of it */
};

#endif
