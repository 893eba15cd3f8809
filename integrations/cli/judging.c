#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "judging.h"

static enum kfit_status host_env(const char *path, struct kfit_generic *g, struct kfit_env *env,
                                 struct kfit_error *err)
{
    char compiler[128], blas[64];
    enum kfit_status s = KFIT_OK;
    bool recorded = g->path[0]; /* then the thread count is the program's, whatever library is taken */
    int threads = g->threads;
    if (path || !g->path[0])
        s = cli_generic_probe(path, g, err);
    if (s == KFIT_OK)
        s = kfit_compiler_version(NULL, compiler, sizeof compiler, err);
    if (recorded)
        g->threads = threads;
    if (s == KFIT_OK)
        kfit_env_host(env, g->threads, cli_generic_name(g, blas), compiler);
    return s;
}

static enum kfit_status cuda_env(const char *path, struct kfit_generic *g, struct kfit_env *env,
                                 struct kfit_error *err)
{
    char runner[PATH_MAX], blas[64];
    enum kfit_status s = KFIT_OK;
    if (path || !g->path[0])
        s = cli_generic_cublas(path, g, err);
    if (s == KFIT_OK && !cli_find_runner_cuda(runner, sizeof runner))
        s = kfit_fail(err, KFIT_E_NOTFOUND,
                      "kfit-runner-cuda is not where this program belongs; build or install kfit completely");
    if (s == KFIT_OK)
        s = kfit_judge_cuda_env(runner, g, env, NULL, err);
    if (s == KFIT_OK && kfit_env_get(env->soft, "blas", blas, sizeof blas))
        snprintf(g->config, sizeof g->config, "%s", blas);
    return s;
}

static const struct {
    const char *name;
    enum kfit_status (*env)(const char *, struct kfit_generic *, struct kfit_env *, struct kfit_error *);
    bool (*find_runner)(char *path, size_t size);
} devices[] = {
    {"host", host_env, cli_find_runner},
    {"cuda", cuda_env, cli_find_runner_cuda},
};
enum { DEVICES = sizeof devices / sizeof *devices };

static unsigned device_index(const char *name)
{
    unsigned i = 0;
    while (i < DEVICES && strcmp(devices[i].name, name))
        i++;
    return i;
}

bool cli_judging_device(const char *device)
{
    return device_index(device) < DEVICES;
}

enum kfit_status cli_judging_env(const char *device, const char *path, struct kfit_generic *g,
                                 struct kfit_env *env, struct kfit_error *err)
{
    unsigned i = device_index(device);
    return i < DEVICES ? devices[i].env(path, g, env, err)
                       : kfit_fail(err, KFIT_E_UNSUPPORTED, "no device \"%.40s\" in this build", device);
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
    char runner[PATH_MAX], device[16], id[48];
    struct kfit_error err = {0};
    struct kfit_judge *j = NULL;
    double load;
    kfit_env_get(env->hard, "device", device, sizeof device);
    unsigned d = device_index(device);
    if (d == DEVICES || !devices[d].find_runner(runner, sizeof runner)) {
        cli_fail("kfit's runner is not where this program belongs; build or install kfit completely");
        return NULL;
    }
    const struct kfit_judge_params params = {
        .runner = runner, .generic = g, .env = env, .seed = seed, .device_id = id, .log = cli_log};
    enum kfit_status s = kfit_judge_device_id(device, runner, id, &err);
    if (s == KFIT_OK)
        s = kfit_judge_create(&params, &j, &err);
    if (s == KFIT_E_BUSY && wait)
        cli_say("waiting: %s", SAFE(err.text));
    while (s == KFIT_E_BUSY && wait && !stop) {
        nanosleep(&pause, NULL);
        s = kfit_judge_create(&params, &j, &err);
    }
    if (s != KFIT_OK)
        cli_failed(NULL, s, &err);
    else if (!strcmp(device, "host") && getloadavg(&load, 1) == 1 &&
             load > (double)sysconf(_SC_NPROCESSORS_ONLN) / 2)
        cli_say(
            "the machine is busy (load %.1f): times will be noisy, and gains may look larger than they are",
            load);
    return s == KFIT_OK ? j : NULL;
}
