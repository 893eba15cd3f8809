/* Libraries that nothing of ours may be linked to: found by name when they are needed first. */
#ifndef KFIT_LIBRARY_H
#define KFIT_LIBRARY_H

#include <stdbool.h>
#include <stddef.h>

struct kfit_library {
    const char *name;           /* for people */
    const char *package;        /* of Debian */
    const char *const *sonames; /* in the order to try; NULL ends them */
    const struct kfit_library_symbol {
        const char *name;
        size_t offset; /* of its pointer in the table */
    } * symbols;
    size_t count;
};

/* Fills the table with the library's functions: the one beside the object that holds this code, else one of
 * the system's. False, and why and what to do in problem. What was opened stays open. */
bool kfit_library_load(const struct kfit_library *l, void *table, char *problem, size_t size);

#endif
