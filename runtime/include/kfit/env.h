/* kfit/env.h - the environment a measurement or a record is valid in.
 *
 * Two canonical texts of the form "name=value;name=value;". `hard` must be equal or a record is not loaded;
 * `soft` may differ, the record then counts as stale. Both are hashed with XXH3-64.
 *
 *   host, hard: device=host;isa=x86-64-v4;model=<cpu brand>;threads=<BLAS threads>;
 *   host, soft: blas=<name and version>;compiler=<name and version>;
 *   cuda, hard: device=cuda;isa=sm_90a;model=<GPU name>;units=<multiprocessors>;
 *   cuda, soft: driver=<version>;blas=<name and version>;compiler=<name and version>;
 *
 * Thread-safety: pure, except that probing reads /proc and cpuid.
 */
#ifndef KFIT_ENV_H
#define KFIT_ENV_H

#include <stdbool.h>
#include <stdint.h>

#include "kfit/status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define KFIT_ENV_TEXT_MAX 256

struct kfit_env {
    char hard[KFIT_ENV_TEXT_MAX];
    char soft[KFIT_ENV_TEXT_MAX];
    uint64_t hard_hash, soft_hash;
};

/* Fills the hard part for this machine's CPU and `blas_threads` (0: unknown), and the soft part from the
 * given names (NULL: left out). Separators (';', '=', control characters) inside values become '_'. */
void kfit_env_host(struct kfit_env *env, int blas_threads, const char *blas, const char *compiler);

/* The same for a GPU, from what its device describes. units tells a MIG slice from the whole. */
void kfit_env_cuda(struct kfit_env *env, const char *arch, const char *model, unsigned units,
                   const char *driver, const char *blas, const char *compiler);

/* Name of the instruction-set level of this CPU, for -march and for the environment:
 * "x86-64-v2", "-v3", "-v4". */
const char *kfit_host_isa(void);

/* Copies value of `name` in a text of this form into buf; returns false (buf "") if absent or too long. */
int kfit_env_get(const char *text, const char *name, char *buf, size_t size);

/* Whether a name that both texts give has two values: a tuner knows its compiler, a server does not know one. Of two
 * soft texts: whether a record made in the one is stale in the other. */
bool kfit_env_differs(const char *ours, const char *theirs);

uint64_t kfit_text_hash(const char *text);

#ifdef __cplusplus
}
#endif
#endif
