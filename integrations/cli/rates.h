/* rates.h - calls per second, from what live processes' traces said twice. */
#ifndef CLI_RATES_H
#define CLI_RATES_H

#include "processes.h"

struct cli_rate {
    double calls, hits; /* per second */
};

struct cli_rate_process {
    const struct kfit_trace *t; /* of `now` */
    struct cli_rate rate;
};

struct cli_rate_key {
    union kfit_key key;
    struct cli_rate rate;
    unsigned why; /* why most of its misses were; NONE: there were none */
};

struct cli_rates {
    double seconds; /* between the two looks; 0: since each process started */
    struct cli_rate rate;
    double miss[KFIT_REASON_COUNT];   /* per second, by reason; [NONE] unused */
    struct cli_rate_process *process; /* live ones, most calls per second first */
    size_t processes;
    struct cli_rate_key *key; /* the keys_max called most */
    size_t keys, keys_total;
};

/* before NULL: rates since each process started. Both sets stay the caller's and must outlive *out, but for its keys.
 * A counter that went back counts as one that stood still. */
void cli_rates_make(struct cli_rates *out, const struct cli_traces *before, const struct cli_traces *now,
                    double seconds, int64_t now_unix_ns, size_t keys_max);
void cli_rates_free(struct cli_rates *r);

#endif
