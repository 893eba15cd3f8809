/* exchanging.h - generations written to one file and read back, for the tests of that file and of what is taken in from it.
 * All names are of files and directories of the case; a failed check ends it. */
#ifndef EXCHANGING_H
#define EXCHANGING_H

#include "kfit/exchange.h"
#include "manifest.h"

/* The case's first or second key. */
const struct kfit_secret_key *key(unsigned i);
/* The first n of records_make, approved by Ada with the note "a note", signed if sign; returns its number. */
uint64_t publish(const char *dir, unsigned n, const struct kfit_secret_key *sign);
void export(const char *dir, const char *which, const char *to);
struct kfit_generation *opened(const char *file);
void write_file(const char *name, const void *bytes, size_t n);
/* The file of manifest m and data, whatever they are: all digests right. */
void forge(const char *name, struct kfit_manifest *m, const void *data, size_t bytes);
/* For kfit_generation_each: every record is good, and one of the 50 at ctx. */
int see(void *ctx, const struct kfit_record *r, const char *problem);

#endif
