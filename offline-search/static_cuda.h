/* Gate 0 on cuda: what the PTX of a candidate may contain. Pure text in, verdict out. */
#ifndef KFIT_STATIC_CUDA_H
#define KFIT_STATIC_CUDA_H

#include "kfit/plan.h"
#include "kfit/receipt.h"

/* Reads the PTX that NVRTC made together with the cubin. plan names the entries; each must take `params`
 * 64-bit parameters. Returns NONE and fills *data_oblivious, or the reason, with the offending
 * line in detail.
 */
enum kfit_code static_cuda(const char *ptx, size_t bytes, const struct kfit_plan *plan, unsigned params,
                           bool *data_oblivious, char *detail, size_t detail_bytes);

/* No branch, no predicate of a memory access and no address depends on a value that was loaded from memory
 * (parameters excepted). Follows registers through the flow of control, memory not at all: what is loaded is
 * data, wherever from. May say false where a finer analysis would not, never the other way round. */
bool data_oblivious_cuda(const char *ptx, size_t bytes);

#endif
