/* judging.h - what tune and eval share: a library to beat, an environment, a judge. */
#ifndef CLI_JUDGING_H
#define CLI_JUDGING_H

#include "cli.h"
#include "kfit/tune.h"

/* Whether there is a device of that name to judge on. */
bool cli_judging_device(const char *device);
/* What is measured against, and where: *g is the library at path, else the one that *g names, else the
 * system's; if *g named one, its thread count stays. *env is what measurements here are valid in.
 * KFIT_E_UNSUPPORTED says what is missing for a GPU. */
enum kfit_status cli_judging_env(const char *device, const char *path, struct kfit_generic *g,
                                 struct kfit_env *env, struct kfit_error *err);
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
