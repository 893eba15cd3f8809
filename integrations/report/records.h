/* records.h - records of a generation or of the staged set, in memory, in key order. */
#ifndef KFIT_RECORDS_H
#define KFIT_RECORDS_H

#include "kfit/generation.h"
#include "kfit/receipt.h"
#include "kfit/store.h"

struct kfit_records {
    struct kfit_record *item; /* images are ours, or NULL when loaded without */
    size_t count, room;
    size_t bad; /* entries that did not decode; the first's message is in problem */
    char problem[256];
};

/* Both read everything, for every environment. images: keep the images (for publishing). Zero-initialise
 * *out; on failure it holds what was read. Bad entries are counted, not fatal. */
enum kfit_status kfit_records_published(struct kfit_records *out, struct kfit_generation *g, bool images,
                                        struct kfit_error *err);
enum kfit_status kfit_records_staged(struct kfit_records *out, struct kfit_store *s, bool images,
                                     struct kfit_error *err);
void kfit_records_finish(struct kfit_records *r);

/* NULL if there is none. O(log n). */
struct kfit_record *kfit_records_find(const struct kfit_records *r, uint64_t env_hard,
                                      const union kfit_key *key);
/* Puts a copy of record in place of the one with the same key, or beside the others. */
enum kfit_status kfit_records_put(struct kfit_records *r, const struct kfit_record *record,
                                  struct kfit_error *err);
/* Removes one that find returned. */
void kfit_records_remove(struct kfit_records *r, struct kfit_record *record);

/* Calls fn for each key of either set, in key order, with its two records; one is NULL where a set has none. */
void kfit_records_compare(const struct kfit_records *before, const struct kfit_records *now,
                          void (*fn)(void *ctx, const struct kfit_record *before,
                                     const struct kfit_record *now),
                          void *ctx);

/* Same winner (or both negative), so that publishing it again would change nothing. */
bool kfit_record_same(const struct kfit_record *a, const struct kfit_record *b);
/* The receipt behind a record; false if the store (may be NULL) has none that parses. */
bool kfit_record_receipt(const struct kfit_record *r, struct kfit_store *s, struct kfit_receipt *out);

#endif
