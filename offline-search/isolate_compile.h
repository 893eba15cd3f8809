/* Runs a compiler, or another tool, where it sees nothing but the toolchain: no other files, no network, an
 * empty environment, no descriptors of ours, limits on time, memory and output. */
#ifndef KFIT_ISOLATE_COMPILE_H
#define KFIT_ISOLATE_COMPILE_H

#include "kfit/status.h"

#include <stdbool.h>
#include <sys/types.h>

#define KFIT_PREFIXES 2

struct kfit_isolation {
    int ruleset; /* Landlock; -1: namespace or none */
    bool namespaces;
    const char *name;                /* "landlock", "namespace", "none" */
    char prefix[KFIT_PREFIXES][256]; /* where the tool and its library live, if not in the usual places; "" */
    char id_map[2][48];              /* uid_map and gid_map of the namespace */
};

/* tool: absolute path of the compiler; library: of a library it opens from elsewhere, or NULL. Landlock if
 * the kernel has it, else a mount namespace, else nothing if allow_none, else KFIT_E_UNSUPPORTED. */
enum kfit_status kfit_isolation_init(struct kfit_isolation *iso, const char *tool, const char *library,
                                     bool allow_none, struct kfit_error *err);
void kfit_isolation_finish(struct kfit_isolation *iso);

/* Inside, input is descriptor 0, output 1, and object 3 (/proc/self/fd/3); all are memfds of the caller. */
struct kfit_tool {
    const char *const *argv;   /* [0] is the absolute path */
    int input, output, object; /* -1: none */
    unsigned timeout_ms;
    int status;          /* exit status, 128 + signal */
    bool timed_out;      /* out of time, or of its processor time */
    char messages[4096]; /* start of what it wrote to stderr */
};

/* KFIT_OK: the tool has ended, see status. Errors are ours: KFIT_E_IO, KFIT_E_NOMEM. */
enum kfit_status kfit_tool_run(const struct kfit_isolation *iso, struct kfit_tool *tool,
                               struct kfit_error *err);

int kfit_memfd(void); /* -1 on failure */
/* Fills a memfd from memory, position at the start. */
bool kfit_memfd_fill(int fd, const void *data, size_t bytes);
/* Copies a memfd out; malloc'ed, NUL beyond the end; NULL if it cannot. */
char *kfit_memfd_read(int fd, size_t *bytes);

#endif
