/* kfit/process.h - what a process can know of how it came to be and of what it was told. Thread-safety: any. */
#ifndef KFIT_PROCESS_H
#define KFIT_PROCESS_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Whether this process came by fork and has not exec'd since: a worker of a pool, a daemon that put itself into
 * the background. False where the kernel does not tell. Reads /proc. */
bool kfit_process_forked(void);

/* A switch in the environment: 1 for "1", "yes", "on", "true", 0 for their opposites, NULL and "", -1 for anything
 * else, which the caller takes as the careful side. */
int kfit_switch(const char *text);

/* How much of a GPU's memory kernels' workspaces may take, from KFIT_GPU_MEMORY: a whole number of MiB, at most 1 TiB; NULL
 * and "": KFIT_GPU_MEMORY_DEFAULT. False, and 0 bytes, for anything else. */
#define KFIT_GPU_MEMORY_DEFAULT ((size_t)64 << 20)
bool kfit_gpu_memory(const char *text, size_t *bytes);

#ifdef __cplusplus
}
#endif
#endif
