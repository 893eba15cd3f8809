/* Records for the tests of kernel-cache: all fields filled, different for each i. */
#ifndef KFIT_TEST_RECORDS_H
#define KFIT_TEST_RECORDS_H

#include "kfit/env.h"
#include "kfit/record.h"
#include "kfit/trust.h"

#define RECORDS_IMAGE_BYTES 1500

/* The environment the records below belong to. */
struct kfit_env records_env(void);
/* image: RECORDS_IMAGE_BYTES, filled and lent to *r. Every 8th record is a negative one. */
void records_fill(struct kfit_record *r, unsigned i, uint8_t *image);
/* A winner of env, twice as fast, whose image is one launch as it is; the key is for the caller to fill. */
struct kfit_record records_winner(const struct kfit_env *env, const void *image, uint64_t bytes);
/* n records and their images; never freed. */
struct kfit_record *records_make(unsigned n);
/* Publishes records_make(n) in cache directory dir, signed if sign; returns its number. */
uint64_t records_publish(const char *dir, unsigned n, const char *approver, const char *note,
                         const struct kfit_secret_key *sign);
bool records_same(const struct kfit_record *a, const struct kfit_record *b);

#endif
