/* Published kernels that do not multiply: they write 42, so that a program's output says which of its calls ran
 * them. */
#ifndef PUBLISHED_H
#define PUBLISHED_H

#include <sys/types.h>

#include "traces.h"

/* calls.c's `step` and its kin, each element 0.390625 when multiplied; a row of numpy's x @ W */
extern const char square_text[], row_text[];
extern char cache_env[400], trace_dir[300]; /* "KFIT_CACHE=DIR/cache", DIR/trace; set by publish */

extern char preload_env[400]; /* "LD_PRELOAD=..." */

/* Publishes both kernels in DIR/cache for this machine at one BLAS thread, or so many; DIR: kfit_test_dir. */
void publish(void);
void publish_for(int threads);
/* Lets other users read what publish made, and gives them a copy of the shim, since the build may lie where they see
 * nothing. */
void open_to_others(void);

/* A program under the shim, with that cache and trace directory, that multiplies once each time it is asked. */
struct server {
    pid_t pid;
    int to; /* closed, the server ends */
    FILE *from;
    char line[64];
};
struct server start_server(void);
const char *ask_server(struct server *s); /* its answer */

#define CALLS_ARGV(...) ((const char *[]){CALLS, __VA_ARGS__, NULL})

#endif
