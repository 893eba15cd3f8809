/* key_sums.h - which keys weigh most, over many traces. */
#ifndef CLI_KEY_SUMS_H
#define CLI_KEY_SUMS_H

#include "cli.h"

struct cli_key_sum {
    const union kfit_key *key; /* the caller's; NULL: unused */
    uint64_t hash;
    double weight;
};

/* Zero is empty. */
struct cli_key_sums {
    struct cli_key_sum *item;
    size_t count, room; /* room is a power of two, or 0 */
};

void cli_key_sums_add(struct cli_key_sums *s, const union kfit_key *key, uint64_t hash, double weight);
/* Heaviest first, the first `count`; the same for the same weights. Nothing may be added afterwards. */
void cli_key_sums_sort(struct cli_key_sums *s);
void cli_key_sums_free(struct cli_key_sums *s);

#endif
