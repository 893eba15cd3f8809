/* reference.h - the op's float64 reference, sooner.
 *
 * Same contract as kfit_op.reference, which decides what is right: tests compare the two. Keys that this file
 * has no short way for go to the op's own.
 */
#ifndef KFIT_REFERENCE_H
#define KFIT_REFERENCE_H

#include "kfit/op.h"

/* False: out of memory. */
bool kfit_reference(const union kfit_key *key, const void *const args[], double *ref, double *mag);

#endif
