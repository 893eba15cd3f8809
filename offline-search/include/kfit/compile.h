/* kfit/compile.h - from candidate, key and choice to an image, and gate 0 on the way.
 *
 * host: the system's C compiler, in a child with an empty environment, source on stdin, no files beyond the
 * toolchain (Landlock; without it a mount namespace; the result says which), limits on time and memory. The
 * object is laid out by us (link_host.c) as one flat blob: text and read-only data, no
 * relocations, no imports.
 */
#ifndef KFIT_COMPILE_H
#define KFIT_COMPILE_H

#include "kfit/candidate.h"

#ifdef __cplusplus
extern "C" {
#endif

struct kfit_compile_params {
    const struct kfit_candidate *candidate;
    const union kfit_key *key;
    const struct kfit_choice *choice;
    const char *cc;          /* NULL: $KFIT_CC, else cc */
    const char *isa;         /* NULL: this machine's (kfit_host_isa) */
    unsigned timeout_ms;     /* 0: 20 s */
    bool allow_no_isolation; /* compile even where neither Landlock nor a namespace is to be had */
};

struct kfit_built {
    uint8_t *image; /* malloc'ed */
    size_t image_bytes;
    struct kfit_plan plan;
    bool data_oblivious; /* proved: no branch and no address depends on loaded data */
    double compile_ns;
    char isolation[16]; /* "landlock", "namespace", "none" */
    char code[32];      /* on refusal: "static:asm", "static:compile" ...; "" if accepted */
    char detail[1024];  /* compiler's first errors, offending instruction ... */
};

/* KFIT_OK: built->image is the caller's (kfit_built_finish). KFIT_E_REFUSED: gate 0 said no, see code. Other
 * errors are ours, not the candidate's (no compiler, no memory). Thread-safety: any, one child per call. */
enum kfit_status kfit_compile(const struct kfit_compile_params *params, struct kfit_built *built,
                              struct kfit_error *err);
void kfit_built_finish(struct kfit_built *built);

/* Limits for kfit_candidate_resolve on this host: VL_BYTES, VL32, VL64 (a vector register in bytes, f32 and
 * f64 lanes), VREGS (how many there are), L1, L2 (data caches, bytes). An unknown isa is
 * taken for x86-64-v2. */
void kfit_host_limits(const char *isa, struct kfit_limits *limits);
/* The same for a GPU architecture: SM (80, 90 ...), SMS (multiprocessors), SMEM (shared memory of
 * a block, bytes), L2. */
void kfit_cuda_limits(const char *arch, struct kfit_limits *limits);

/* "gcc 12.2.0", for the soft environment. */
enum kfit_status kfit_compiler_version(const char *cc, char *buf, size_t size, struct kfit_error *err);
/* "NVRTC 13.0", the compiler of the cuda device: $KFIT_NVRTC, else the system's. KFIT_E_NOTFOUND,
 * KFIT_E_UNSUPPORTED (too old). */
enum kfit_status kfit_nvrtc_version(char *buf, size_t size, struct kfit_error *err);

#ifdef __cplusplus
}
#endif
#endif
