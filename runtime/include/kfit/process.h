/* kfit/process.h - what a process can know of how it came to be. Thread-safety: any. */
#ifndef KFIT_PROCESS_H
#define KFIT_PROCESS_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Whether this process came by fork and has not exec'd since: a worker of a pool, a daemon that put itself into
 * the background. False where the kernel does not tell. Reads /proc. */
bool kfit_process_forked(void);

#ifdef __cplusplus
}
#endif
#endif
