/* An open-addressed table by the keys' own hashes, doubled when half full. */
#include <stdlib.h>
#include <string.h>

#include "key_sums.h"

enum { ROOM_FIRST = 64 };

static struct cli_key_sum *place(const struct cli_key_sums *s, const union kfit_key *key, uint64_t hash)
{
    size_t at = hash & (s->room - 1);
    while (s->item[at].key && (s->item[at].hash != hash || !kfit_key_equal(s->item[at].key, key)))
        at = (at + 1) & (s->room - 1);
    return &s->item[at];
}

static void grow(struct cli_key_sums *s)
{
    struct cli_key_sums more = {.room = s->room ? 2 * s->room : ROOM_FIRST, .count = s->count};
    more.item = cli_alloc(NULL, more.room * sizeof *more.item);
    memset(more.item, 0, more.room * sizeof *more.item);
    for (size_t i = 0; i < s->room; i++)
        if (s->item[i].key)
            *place(&more, s->item[i].key, s->item[i].hash) = s->item[i];
    free(s->item);
    *s = more;
}

void cli_key_sums_add(struct cli_key_sums *s, const union kfit_key *key, uint64_t hash, double weight)
{
    if (2 * s->count >= s->room)
        grow(s);
    struct cli_key_sum *sum = place(s, key, hash);
    s->count += !sum->key;
    sum->key = key;
    sum->hash = hash;
    sum->weight += weight;
}

static int by_weight(const void *a, const void *b)
{
    const struct cli_key_sum *x = a, *y = b;
    if (x->weight != y->weight)
        return x->weight < y->weight ? 1 : -1;
    return (x->hash > y->hash) - (x->hash < y->hash);
}

void cli_key_sums_sort(struct cli_key_sums *s)
{
    size_t n = 0;
    for (size_t i = 0; i < s->room; i++)
        if (s->item[i].key)
            s->item[n++] = s->item[i];
    if (n)
        qsort(s->item, n, sizeof *s->item, by_weight);
}

void cli_key_sums_free(struct cli_key_sums *s)
{
    free(s->item);
    *s = (struct cli_key_sums){0};
}
