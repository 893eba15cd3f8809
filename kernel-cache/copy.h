/* A private copy of a file that LMDB can open and nobody can change. */
#ifndef KFIT_COPY_H
#define KFIT_COPY_H

#include <stdint.h>

#include "kfit/status.h"

/* Copies the `length` bytes that `from` must hold into a sealed memfd and digests the copy. path
 * is for messages. */
enum kfit_status kfit_copy_sealed(int from, uint64_t length, const char *path, int *out, uint8_t digest[32],
                                  struct kfit_error *err);

#endif
