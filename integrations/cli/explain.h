/* explain.h - a dispatcher that is only asked. */
#ifndef CLI_EXPLAIN_H
#define CLI_EXPLAIN_H

#include "cli.h"
#include "kfit/dispatch.h"

/* What an operator asks of servers; zero asks nothing. */
struct cli_policy {
    const char *allow, *bans, *state;
    bool strict;
    const char *memory; /* KFIT_GPU_MEMORY */
};

/* A dispatcher for this cache as a process in env would make it, without a trace; NULL after a message. policy may
 * be NULL. */
struct kfit_dispatcher *cli_explainer(const char *cache, const char *generation, const struct kfit_env *env,
                                      const struct cli_policy *policy);

enum { CLI_EXPLAIN_BYTES = 4096 }; /* enough for kfit_dispatcher_explain */

/* The i-th near miss that an explanation names ("differs from a tuned key only in n: 2688, tuned 2624"), nearest
 * first, escaped; NULL if there is none. Lives as cli_str's. */
const char *cli_near_miss(const char *explanation, unsigned i);
/* {key, explanation, near_misses} */
cJSON *cli_explain_json(const union kfit_key *key, const char *explanation);

/* What live process pid does with key, or (NULL) with every key it called, by what it has loaded; into list, or
 * (NULL) as text. CLI_FAILED after a message. */
int cli_explain_process(uint64_t pid, const union kfit_key *key, cJSON *list);

#endif
