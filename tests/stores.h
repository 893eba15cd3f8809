/* stores.h - opening, filling and checking a store, for the tests of the store. A failed check ends the case. */
#ifndef STORES_H
#define STORES_H

#include <sys/types.h>

#include "kfit/store.h"

/* The case's cache directory, with name appended; one of four buffers in turn. */
char *stores_path(const char *name);
struct kfit_store *stores_open(unsigned flags);
/* Opening is refused with this status and a text that has these words. */
void stores_refused(unsigned flags, enum kfit_status want, const char *text);
/* Puts entry i, so many bytes, into the table of evaluations. */
void stores_put(struct kfit_store *s, unsigned i, size_t bytes);
/* The entry that stores_put wrote is there and right. */
void stores_expect(struct kfit_store *s, unsigned i, size_t bytes);

/* A kfit_store_visit that counts; ctx is a struct stores_seen. */
struct stores_seen {
    unsigned count, bad;
    struct kfit_store *store;
};
int stores_see(void *ctx, const void *key, size_t key_bytes, const void *value, size_t n,
               const char *problem);
/* The entries whose key begins with prefix; none may be damaged. */
unsigned stores_count(struct kfit_store *s, const char *prefix);

/* Forks a child that runs fn and then waits to be killed; returns when fn is done. */
pid_t stores_beside(void (*fn)(void));
void stores_end(pid_t pid);
/* For stores_beside and kfit_test_child: open the store and leave it open. */
void stores_write_one(void);
void stores_read_all(void);

#endif
