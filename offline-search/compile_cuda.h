#ifndef KFIT_COMPILE_CUDA_H
#define KFIT_COMPILE_CUDA_H

#include "kfit/compile.h"

#include "gate0.h"

/* kfit_compile for device cuda: CUDA C++ through NVRTC in an isolated child, gate 0 on its PTX. The
 * architecture is params->isa ("sm_90a"); $KFIT_NVRTC, else the system's libnvrtc, compiles. */
enum kfit_status kfit_compile_cuda(const struct kfit_compile_params *params, struct kfit_built *built,
                                   struct kfit_error *err);

/* The same without a candidate, for the judge's own device code. cubin and ptx (may be NULL) are malloc'ed.
 * Refusals are in b. */
enum kfit_status kfit_nvrtc_run(const struct kfit_compile_params *params, const char *const *options,
                                unsigned count, const char *source, size_t bytes, char **cubin,
                                size_t *cubin_bytes, char **ptx, size_t *ptx_bytes, struct kfit_built *b,
                                struct kfit_error *err);

#endif
