/* Reading what a program under the shim left behind. */
#ifndef TRACES_H
#define TRACES_H

#include "kfit/trace.h"
#include "kfit_test.h"

enum { TRACES_MAX = 256 };

/* All traces of a directory that read well; fails the case for one that does not. 0 if there is no directory.
 */
size_t traces_read(const char *dir, struct kfit_trace *out[TRACES_MAX]);
/* The only one. */
struct kfit_trace *trace_only(const char *dir);
/* All calls, keyed or not. */
uint64_t trace_calls(const struct kfit_trace *t);
/* Calls of a key by its text, by reason; reason KFIT_REASON_COUNT: all. */
uint64_t trace_calls_of(const struct kfit_trace *t, const char *text, unsigned reason);
/* The trace of a process; NULL if there is none. */
const struct kfit_trace *trace_of_pid(struct kfit_trace *const *t, size_t n, int pid);
/* Everything in it, for a failure's message. */
void trace_print(const struct kfit_trace *t);

/* Runs argv under the shim with the trace directory dir and extra environment; fails the case if its exit
 * status is not 0. NULL dir: KFIT_TRACE stays unset. */
void run_shimmed(const char *const argv[], const char *dir, const char *const extra[], char **out,
                 char **err);

#endif
