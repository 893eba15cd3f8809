/* generations.h - publishing in the case's cache and opening what is there, for the tests of generations. A failed check ends the
 * case. */
#ifndef GENERATIONS_H
#define GENERATIONS_H

#include "kfit/generation.h"

enum { RECORDS = 100 };

/* The case's cache directory, and of a name in it (kfit_test_path's). */
char *cache(void);
char *path(const char *name);
/* Publishes the first n of records_make; returns its number. */
uint64_t publish(unsigned n);

/* A kfit_generation_each visitor that counts; ctx is a struct seen. */
struct seen {
    uint64_t good, bad;
    const struct kfit_record *want; /* RECORDS of them, each good one among them; may be NULL */
    uint64_t stop_at;
};
int see(void *ctx, const struct kfit_record *r, const char *problem);
/* The records, none of which may be bad. */
uint64_t count(struct kfit_generation *g);

/* Opens what must not open; the message has to contain `text`. */
void refused(const char *which, enum kfit_status want, const char *text);
/* It opens, and has so many records. */
void opens(const char *which, uint64_t records);
/* Replaces a published (read-only) file by rename, as an attacker or a broken copy would. */
void replace(const char *name, const void *data, size_t n);

#endif
