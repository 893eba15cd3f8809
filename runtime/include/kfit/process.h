/* kfit/process.h - what a process can know of how it came to be and of what it was told. Thread-safety: any. */
#ifndef KFIT_PROCESS_H
#define KFIT_PROCESS_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Whether this process came by fork and has not exec'd since: a worker of a pool, a daemon that put itself into
 * the background. False where the kernel does not tell. Reads /proc. */
bool kfit_process_forked(void);

/* A switch in the environment: 1 for "1", "yes", "on", "true", 0 for their opposites, NULL and "", -1 for anything
 * else, which the caller takes as the careful side. */
int kfit_switch(const char *text);

#ifdef __cplusplus
}
#endif
#endif
