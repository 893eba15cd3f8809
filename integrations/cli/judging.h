/* judging.h - what tune and eval share: an environment, a generic, a judge. */
#ifndef CLI_JUDGING_H
#define CLI_JUDGING_H

#include "cli.h"
#include "kfit/tune.h"

/* The environment of measurements here: a library of that name with so many threads, and this compiler. */
enum kfit_status cli_judging_env(struct kfit_env *env, const char *blas, int threads, struct kfit_error *err);
/* A judge with the runner of this installation; NULL after a message (also: who holds the device). wait:
 * until the device is free, or *cli_judging_stop() is set. */
struct kfit_judge *cli_judging_start(const struct kfit_generic *g, const struct kfit_env *env, uint64_t seed,
                                     bool wait);
/* Becomes non-zero on the first SIGINT or SIGTERM; the second one kills. */
const volatile int *cli_judging_stop(void);

#define CLI_OPTION_WAIT(to)                                                                                  \
    {                                                                                                        \
        "wait", 'w', CLI_FLAG, to, NULL, "wait while another tune or eval uses the device"                   \
    }

#endif
