/* recording.h - recorders of products that differ in m, for the tests of the recorder and of its traces. A failed check ends
 * the case. */
#ifndef RECORDING_H
#define RECORDING_H

#include "kfit_test.h"

#include "kfit/trace.h"

extern struct kfit_error err;

union kfit_key key_of(int m, int n, int k);
/* dir NULL: in memory only; slots 0: as many as usual. */
struct kfit_recorder *recorder(const char *dir, uint32_t slots);
/* A call of m x 8 x 8; false: there was no room for its key. */
bool record(struct kfit_recorder *r, int m, unsigned reason);
/* Of all keys, for all reasons. */
uint64_t calls_in(const struct kfit_trace *t);

#endif
