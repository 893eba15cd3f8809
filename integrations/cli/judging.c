#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "judging.h"

enum kfit_status cli_judging_env(struct kfit_env *env, const char *blas, int threads, struct kfit_error *err)
{
    char compiler[128];
    enum kfit_status s = kfit_compiler_version(NULL, compiler, sizeof compiler, err);
    if (s == KFIT_OK)
        kfit_env_host(env, threads, blas, compiler);
    return s;
}

static volatile int stop;

static void on_signal(int sig)
{
    (void)sig;
    stop = 1;
}

const volatile int *cli_judging_stop(void)
{
    const struct sigaction sa = {.sa_handler = on_signal, .sa_flags = (int)(SA_RESTART | SA_RESETHAND)};
    sigaction(SIGINT, &sa, NULL);
    sigaction(SIGTERM, &sa, NULL);
    return &stop;
}

struct kfit_judge *cli_judging_start(const struct kfit_generic *g, const struct kfit_env *env, uint64_t seed,
                                     bool wait)
{
    const struct timespec pause = {0, 200000000};
    char runner[PATH_MAX];
    struct kfit_error err = {0};
    struct kfit_judge *j = NULL;
    double load;
    if (!cli_find_runner(runner, sizeof runner)) {
        cli_fail("kfit-runner is not where this program belongs; build or install kfit completely");
        return NULL;
    }
    const struct kfit_judge_params params = {
        .runner = runner, .generic = g, .env = env, .seed = seed, .log = cli_log};
    enum kfit_status s = kfit_judge_create(&params, &j, &err);
    if (s == KFIT_E_BUSY && wait)
        cli_say("waiting: %s", SAFE(err.text));
    while (s == KFIT_E_BUSY && wait && !stop) {
        nanosleep(&pause, NULL);
        s = kfit_judge_create(&params, &j, &err);
    }
    if (s != KFIT_OK)
        cli_failed(NULL, s, &err);
    else if (getloadavg(&load, 1) == 1 && load > (double)sysconf(_SC_NPROCESSORS_ONLN) / 2)
        cli_say(
            "the machine is busy (load %.1f): times will be noisy, and gains may look larger than they are",
            load);
    return s == KFIT_OK ? j : NULL;
}
