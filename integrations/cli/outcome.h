/* outcome.h - everything known of results: the published generation and the store, opened together. */
#ifndef CLI_OUTCOME_H
#define CLI_OUTCOME_H

#include "cli.h"
#include "records.h"
#include "report.h"

struct cli_outcome {
    char dir[4096];
    struct kfit_store *store;           /* NULL: there is none */
    struct kfit_generation *generation; /* NULL: nothing published */
    struct kfit_records published, staged;
};

enum {
    CLI_WANT_STORE = 1,
    CLI_WANT_GENERATION = 2,
    CLI_WANT_IMAGES = 4,
    CLI_WANT_WRITE = 8,
    CLI_NO_STORE = 16
};

/* Opens what there is in the cache directory (NULL: the default; CLI_NO_STORE: not the store). That a part does not
 * exist is no error unless it is wanted; that it is damaged or unsafe is one, said on stderr. which: generation, NULL
 * for the current. */
bool cli_outcome_open(struct cli_outcome *o, const char *dir, const char *which, unsigned want);
void cli_outcome_close(struct cli_outcome *o);

/* Text of an environment hash, from generation or store; "" if neither knows it. buf holds KFIT_ENV_TEXT_MAX.
 */
const char *cli_outcome_env(const struct cli_outcome *o, uint64_t hash, char *buf);

/* The environments of the records, each once, for publishing; the caller's to free. text fills in a hash's text
 * (KFIT_ENV_TEXT_MAX) and says whether it is known. *unknown: the first record where it is not (then NULL is
 * returned), else NULL. */
struct kfit_env *cli_envs(const struct kfit_records *records,
                          bool (*text)(void *ctx, uint64_t hash, char *to), void *ctx, size_t *count,
                          const struct kfit_record **unknown);

/* What to report beside what traces hold: keys, and more to weigh them by. */
struct cli_wanted {
    struct kfit_report_want *item; /* the caller's to free */
    size_t count;
    struct kfit_report_extra extra; /* borrows */
};
void cli_wanted_add(struct cli_wanted *w, const union kfit_key *key, uint64_t env_hard);

/* Report over merged traces and other keys (NULL: none); says what is wrong. */
bool cli_outcome_report(const struct cli_outcome *o, const struct cli_traces *ts,
                        const struct cli_wanted *wanted, struct kfit_report *report);

/* Calls fn for every evaluation that only a person can decide about, of one key or (NULL) of all; the receipt
 * lives for the call. *count (may be NULL): how many. False after a message. */
bool cli_outcome_waiting(const struct cli_outcome *o, const union kfit_key *key,
                         void (*fn)(void *ctx, const struct kfit_receipt *r), void *ctx, size_t *count);

/* "2.31 [2.20, 2.40]"; "-" if never timed. buf holds 48 bytes. */
const char *cli_ratio(double ratio, double lo, double hi, char *buf);

#endif
