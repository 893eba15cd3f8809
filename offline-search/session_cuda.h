/* session_cuda.h - the parent's side of one GPU worker: start it, give commands, replace it when it is lost. */
#ifndef KFIT_SESSION_CUDA_H
#define KFIT_SESSION_CUDA_H

#include <sys/types.h>

#include "runner_cuda.h"

struct session_cuda {
    pid_t pid; /* 0: not running */
    int socket, arena_fd;
    uint8_t *arena;
    size_t arena_bytes;
    struct kfit_cu_reply reply; /* of the last command */
    unsigned started;           /* how many processes there have been */
};

/* Starts the worker program; the arena holds at least arena_bytes. *s is zeroed caller storage; finish it also after
 * an error. */
enum kfit_status session_cuda_open(struct session_cuda *s, const char *program, size_t arena_bytes,
                                   struct kfit_error *err);
void session_cuda_close(struct session_cuda *s);

/* One command and its reply. KFIT_OK: done, see s->reply. KFIT_E_CRASH: the worker ended on a CUDA error, named in
 * s->reply, or without a word; KFIT_E_NOMEM: no device memory; KFIT_E_UNSUPPORTED: no GPU; KFIT_E_TIMEOUT: it hung (killed
 * if it did not say so itself). The session is closed in all these cases. */
enum kfit_status session_cuda_do(struct session_cuda *s, const struct kfit_cu_command *c, struct kfit_error *err);

#endif
