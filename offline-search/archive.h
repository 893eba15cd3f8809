/* What the tuner keeps in the store: evaluations as they happen, and the outcome per key. */
#ifndef KFIT_ARCHIVE_H
#define KFIT_ARCHIVE_H

#include "kfit/store.h"
#include "kfit/tune.h"

/* The stored evaluation of digest at key, if there is one that parses. */
bool archive_find(const struct kfit_tune_params *t, const union kfit_key *key, const uint8_t digest[32],
                  struct kfit_receipt *out);
/* Stores one evaluation; durable on return. */
enum kfit_status archive_note(const struct kfit_tune_params *t, const struct kfit_receipt *r,
                              struct kfit_error *err);
/* How many evaluations are stored for key. */
unsigned archive_count(const struct kfit_tune_params *t, const union kfit_key *key);

/* The staged record of key; its image points into *bytes, the caller's to free. false: none
 * (*bytes is NULL). */
bool archive_staged(const struct kfit_tune_params *t, const union kfit_key *key, struct kfit_record *record,
                    void **bytes);
/* Stages a winner (image not NULL) or a negative with its receipt, source (NULL: the one that is kept) and
 * environment: all or nothing. */
enum kfit_status archive_stage(const struct kfit_tune_params *t, const struct kfit_receipt *r,
                               const void *image, size_t image_bytes, const char *source, size_t source_bytes,
                               struct kfit_error *err);

/* Receipts of staged winners of other keys, in key order; fn returns 0 to go on. */
enum kfit_status archive_each_winner(const struct kfit_tune_params *t,
                                     int (*fn)(void *ctx, const struct kfit_receipt *r), void *ctx,
                                     struct kfit_error *err);

#endif
