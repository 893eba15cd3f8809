/* Inside a GPU worker: its state, and the parts it is made of. */
#ifndef KFIT_WORKER_CUDA_H
#define KFIT_WORKER_CUDA_H

#include <stdbool.h>

#include "kfit/cuda.h"

#include "runner_cuda.h"

/* A mapping with nothing mapped before and behind it; the argument lies at `at`. */
struct guarded {
    kfit_cu_ptr base, reserved;
    size_t bytes, reserved_bytes, at;
    kfit_cu_mem memory;
};

/* The judge's own kernels (harness/judge.cu). */
enum helper { H_FILL, H_HASH, H_DIFFERS, H_REFERENCE, H_DELAY, H_READ_2, H_READ_4, H_READ_8,
              H_COPY_2, H_COPY_4, H_COPY_8, HELPERS };

struct generic_cuda; /* worker_cublas.c */

/* timed copies: one per argument (the output's place unused), an output of each side, the inout argument before */
enum { TIMED_OUT = KFIT_CU_ARGS, TIMED_BEFORE = TIMED_OUT + 2, TIMED };

struct worker {
    const struct kfit_cuda *cu;
    kfit_cu_stream stream;
    kfit_cu_event event[2];
    kfit_cu_function helper[HELPERS];
    uint8_t *arena;
    size_t arena_bytes;
    struct kfit_cu_reply *reply;
    uint32_t limit_ms;

    union kfit_key key;
    const struct kfit_op *op;
    unsigned nargs, out; /* arguments of the key, and which is its output */
    struct kfit_tensor tensor[KFIT_CU_ARGS];
    size_t bytes[KFIT_CU_ARGS];
    struct guarded arg[KFIT_CU_ARGS], workspace;
    size_t workspace_bytes;
    kfit_cu_ptr scratch; /* 4 KB of counters */
    uint64_t inputs_hash;
    uint64_t seed;
    uint32_t distribution;

    struct kfit_modules *modules[2]; /* candidate, incumbent */
    struct kfit_kernel kernel[2];
    struct kfit_plan plan[2];
    struct generic_cuda *generic;

    /* timed copies: a set is the inputs; slot i is an output, of each side, for inputs of set i % sets, and what an
     * inout argument holds there before a call. Few large sets are gone round several times, each time to new slots. */
    unsigned sets, slots, launches; /* launches: of one cold graph */
    kfit_cu_ptr timed[TIMED];
    size_t stride[KFIT_CU_ARGS];
};

/* Everything returns false after noting the error in w->reply; a worker then ends. */
bool worker_check(struct worker *w, kfit_cu_result r, const char *what);
#define CU(w, call) worker_check(w, (w)->cu->call, #call)

bool worker_helper(struct worker *w, enum helper h, unsigned blocks, unsigned threads, void **params);
/* Waits for the stream at most limit_ms; notes a hang. */
bool worker_wait(struct worker *w);
/* Enqueues one call of who on the given pointers. */
bool worker_call(struct worker *w, unsigned who, const kfit_cu_ptr args[KFIT_CU_ARGS]);
bool worker_fill(struct worker *w, unsigned arg, kfit_cu_ptr at, uint32_t distribution, uint64_t seed);

bool worker_make_sets(struct worker *w, size_t cold_bytes);
bool worker_pairs(struct worker *w, const struct kfit_cu_command *c);
/* Captures all cold graphs of who, as side 0 or 1, and replays each once: how many calls, and their time by events. */
bool worker_replays(struct worker *w, unsigned who, unsigned side, uint32_t *calls, double *event_ns);
bool worker_kernels(struct worker *w, const struct kfit_cu_command *c); /* worker_cupti.c */
/* Waits for both events; their distance, per call. */
bool worker_elapsed(struct worker *w, unsigned calls, double *ns);
bool worker_floor(struct worker *w, const struct kfit_cu_command *c); /* these two: worker_ceilings.c */
bool worker_flops(struct worker *w, const struct kfit_cu_command *c);

/* The generic as PyTorch calls it: see worker_cublas.c. */
bool generic_cuda_open(struct worker *w, const struct kfit_generic *g);
int generic_cuda_version(struct worker *w); /* 130100 */
bool generic_cuda_call(struct worker *w, const kfit_cu_ptr args[KFIT_CU_ARGS]);

#endif
