/* explain.h - a dispatcher that is only asked. */
#ifndef CLI_EXPLAIN_H
#define CLI_EXPLAIN_H

#include "cli.h"
#include "kfit/dispatch.h"

/* What an operator asks of servers; zero asks nothing. */
struct cli_policy {
    const char *allow, *bans, *state;
    bool strict;
};

/* A dispatcher for this cache as a process in env would make it, without a trace; NULL after a message. policy may
 * be NULL. */
struct kfit_dispatcher *cli_explainer(const char *cache, const char *generation, const struct kfit_env *env,
                                      const struct cli_policy *policy);

#endif
