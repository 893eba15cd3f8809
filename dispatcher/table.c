/* The table of a generation: entries in one array, found through an array of indexes twice as long. */
#include "internal.h"

struct kfit_table {
    size_t room, count;
    uint32_t mask;
    uint32_t *index; /* entry + 1; 0: none */
    struct kfit_table_entry *entries;
};

const struct kfit_table_entry *kfit_table_find(const struct kfit_table *t, const union kfit_key *key, uint64_t hash)
{
    if (!t)
        return NULL;
    for (uint32_t at = (uint32_t)hash & t->mask; t->index[at]; at = (at + 1) & t->mask) {
        const struct kfit_table_entry *e = &t->entries[t->index[at] - 1];
        if (e->hash == hash && kfit_short_key_equal(&e->key, e->len, key))
            return e;
    }
    return NULL;
}

void kfit_table_destroy(struct kfit_table *t)
{
    if (!t)
        return;
    kfit_unmap(t->index, (t->mask + (size_t)1) * sizeof *t->index);
    kfit_unmap(t->entries, t->room * sizeof *t->entries);
    kfit_unmap(t, sizeof *t);
}
