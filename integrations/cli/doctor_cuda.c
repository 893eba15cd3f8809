/* doctor's checks of what a GPU needs. A machine without one is no broken one: nothing here fails, it warns. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ceilings.h"
#include "cli.h"
#include "doctor.h"
#include "kfit/compile.h"
#include "kfit/dispatch.h"
#include "kfit/generation.h"
#include "kfit/judge.h"
#include "kfit/process.h"

static const char cuda_only[] = "needed for --device=cuda only";

enum level doctor_nvrtc(const struct doctor *d, struct line *l)
{
    char version[64];
    struct kfit_error err = {0};
    (void)d;
    return doctor_found(l, kfit_nvrtc_version(version, sizeof version, &err) == KFIT_OK, version, err.text,
                        WARN, cuda_only);
}

enum level doctor_cublas(const struct doctor *d, struct line *l)
{
    struct kfit_generic g;
    struct kfit_error err = {0};
    (void)d;
    return doctor_found(l, cli_generic_cublas(NULL, &g, &err) == KFIT_OK, g.path, err.text, WARN, cuda_only);
}

enum level doctor_runner_cuda(const struct doctor *d, struct line *l)
{
    char path[PATH_MAX];
    (void)d;
    return doctor_found(l, cli_find_runner_cuda(path, sizeof path), path, "kfit-runner-cuda not found", WARN,
                        "build or install kfit completely; needed for --device=cuda only");
}

/* "580.159.03" of "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.03  ..."; false: no module. */
static bool module_version(char *out, size_t size)
{
    char line[256] = "";
    FILE *f = fopen("/proc/driver/nvidia/version", "re");
    if (!f)
        return false;
    if (!fgets(line, sizeof line, f))
        line[0] = '\0';
    fclose(f);
    snprintf(out, size, "?");
    for (char *rest = line, *word; (word = strtok_r(rest, " \n", &rest));)
        if (strspn(word, "0123456789.") == strlen(word) && strchr(word, '.')) {
            snprintf(out, size, "%s", word);
            break;
        }
    return true;
}

/* Asked of the runner, as tune does: what is said here is what it will say. */
enum level doctor_gpu(const struct doctor *d, struct line *l)
{
    char path[PATH_MAX], driver[64] = "?", module[32];
    bool loaded = module_version(module, sizeof module);
    struct kfit_generic none = {0};
    struct kfit_env env = {0};
    struct kfit_device_info info = {0};
    struct kfit_error err = {0};
    (void)d;
    enum kfit_status s =
        kfit_judge_cuda_env(cli_find_runner_cuda(path, sizeof path) ? path : NULL, &none, &env, &info, &err);
    if (s != KFIT_OK) {
        doctor_say(l, "not here: %s", err.text[0] ? err.text : kfit_status_str(s));
        return loaded ? doctor_bad(l, WARN,
                                   "NVIDIA's kernel module %s is loaded: a container must be started with "
                                   "its GPU (docker "
                                   "run --gpus all; nvidia.com/gpu in a pod's limits), and libcuda.so.1 must "
                                   "be where the "
                                   "loader looks",
                                   module)
                      : doctor_bad(l, WARN, cuda_only);
    }
    kfit_env_get(env.soft, "driver", driver, sizeof driver);
    doctor_say(l, "%s, %s, %u multiprocessors, L2 %llu MiB, memory %llu MiB, driver %s%sfor %s", info.model,
               info.arch, info.units, (unsigned long long)info.l2_bytes >> 20,
               (unsigned long long)info.memory_bytes >> 20, loaded ? module : "", loaded ? " " : "", driver);
    return FINE;
}

/* Really switched on and off again in the runner: a driver may refuse it only then. */
enum level doctor_cupti(const struct doctor *d, struct line *l)
{
    char path[PATH_MAX], text[64];
    struct kfit_generic g = {0};
    struct kfit_error err = {0};
    (void)d;
    cli_generic_cublas(NULL, &g, &err);
    enum kfit_status s = kfit_judge_cuda_profiler(cli_find_runner_cuda(path, sizeof path) ? path : NULL, &g,
                                                  text, sizeof text, &err);
    if (s != KFIT_OK) {
        doctor_say(l, "%s", err.text[0] ? err.text : kfit_status_str(s));
        return doctor_bad(
            l, WARN,
            "kernel times are then not checked by a second clock, and every receipt says so; needed "
            "for --device=cuda only");
    }
    doctor_say(l, "%s", text);
    return FINE;
}

static int add_ceilings(void *line, const struct kfit_gpu_ceilings *c)
{
    struct line *l = line;
    char text[600];
    cli_ceilings_text(c, text, sizeof text);
    doctor_say(l, "%s%s", l->text[0] ? " | " : "", text);
    return 0;
}

/* What tune measured of the GPUs it ran on. */
enum level doctor_ceilings(const struct doctor *d, struct line *l)
{
    struct kfit_store *store = NULL;
    struct kfit_error err = {0};
    enum kfit_status s = kfit_store_open(d->cache, KFIT_STORE_READ, &store, &err);
    if (s == KFIT_OK)
        s = kfit_ceilings_each(store, add_ceilings, l, &err);
    kfit_store_close(store);
    if (!l->text[0])
        doctor_say(l, "%s",
                   s == KFIT_OK || s == KFIT_E_NOTFOUND ? "no GPU measured yet; tune and eval do it"
                                                        : err.text);
    return FINE;
}

/* What kernels of the current generation need of a GPU's memory, and what they may. */
struct needs {
    struct kfit_generation *generation;
    size_t most;
    unsigned count, too_large;
    uint64_t largest;
};

static int add_need(void *needs, const struct kfit_record *r, const char *problem)
{
    struct needs *n = needs;
    char env[KFIT_ENV_TEXT_MAX], device[16];
    (void)problem;
    if (!r || !r->plan.workspace_bytes || !kfit_generation_env(n->generation, r->env_hard, env) ||
        !kfit_env_get(env, "device", device, sizeof device) || strcmp(device, "cuda"))
        return 0;
    n->count++;
    n->too_large += r->plan.workspace_bytes > n->most;
    if (n->largest < r->plan.workspace_bytes)
        n->largest = r->plan.workspace_bytes;
    return 0;
}

enum level doctor_memory(const struct doctor *d, struct line *l)
{
    const char *said = getenv("KFIT_GPU_MEMORY");
    struct needs n = {0};
    size_t memory;
    const bool read = kfit_gpu_memory(said, &memory);
    n.most = kfit_workspace_most(memory);
    doctor_say(l, "at most %zu MiB of each GPU for kernels' workspaces (KFIT_GPU_MEMORY)", memory >> 20);
    if (kfit_generation_open(d->cache, NULL, &n.generation, NULL) == KFIT_OK)
        kfit_generation_each(n.generation, 0, add_need, &n, NULL);
    kfit_generation_close(n.generation);
    if (n.count)
        doctor_say(l, "; %u of the generation's kernels need some, up to %llu KiB each", n.count,
                   (unsigned long long)(n.largest + 1023) >> 10);
    else
        doctor_say(l, "; no kernel of the generation needs any, so none is taken");
    if (!read)
        return doctor_bad(l, WARN, "KFIT_GPU_MEMORY=%.40s is no whole number of MiB, and taken as 0", said);
    return n.too_large ? doctor_bad(l, WARN,
                                    "%u of them need more than half of that and do not run: set "
                                    "KFIT_GPU_MEMORY to %llu or more",
                                    n.too_large, (unsigned long long)((2 * n.largest + (1 << 20) - 1) >> 20))
                       : FINE;
}

/* ---- hooks: a program that makes a known number of calls ---- */

/* Runs the probe under the shim, its traces in work. Returns its exit status; its output and messages in out. */
static int run_probe(const char *probe, const char *shim, const char *cublas, const char *work, char *out,
                     size_t size)
{
    int fds[2], st;
    size_t used = 0;
    if (pipe(fds))
        return -1;
    pid_t pid = fork();
    if (!pid) {
        dup2(fds[1], 1);
        dup2(fds[1], 2);
        close(fds[0]);
        close(fds[1]);
        cli_under_shim(shim, &(struct cli_served){.mode = "record", .trace = work});
        setenv("KFIT_STATE", "/dev/null", 1);
        setenv("KFIT_LOG", "none", 1);
        execl(probe, probe, cublas, NULL);
        _exit(127);
    }
    close(fds[1]);
    for (ssize_t n; pid > 0 && used + 1 < size && (n = read(fds[0], out + used, size - used - 1)) > 0;)
        used += (size_t)n;
    close(fds[0]);
    out[used] = '\0';
    out[strcspn(out, "\n")] = '\0';
    while (pid > 0 && waitpid(pid, &st, 0) < 0 && errno == EINTR)
        continue;
    return pid > 0 && WIFEXITED(st) ? WEXITSTATUS(st) : -1;
}

/* Calls counted in the traces of work; the files are removed. */
static double counted(const char *work)
{
    struct cli_list where = {0};
    struct cli_traces ts = {0};
    double n = 0;
    cli_list_add(&where, work);
    cli_traces_read(&ts, &where);
    for (size_t i = 0; i < ts.count; i++) {
        uint64_t count[KFIT_TRACE_REASONS];
        cli_trace_totals(ts.item[i].t, count);
        for (unsigned r = 0; r < KFIT_TRACE_REASONS; r++)
            n += (double)count[r];
        unlink(ts.item[i].path);
    }
    cli_traces_free(&ts);
    free(where.item);
    return n;
}

/* Whether the shim sees what a program calls here: what else is preloaded, an unknown driver or cuBLAS may come between. */
enum level doctor_hooks(const struct doctor *d, struct line *l)
{
    char probe[PATH_MAX], path[PATH_MAX], work[PATH_MAX + 16], out[300];
    struct kfit_generic g = {0};
    struct kfit_error err = {0};
    int calls, replayed;
    (void)d;
    if (!cli_find_probe_cuda(probe, sizeof probe) || !cli_find_shim(path, sizeof path))
        return doctor_found(l, false, "", "kfit-probe-cuda or the shim not found", WARN,
                            "build or install kfit completely");
    if (cli_generic_cublas(NULL, &g, &err) != KFIT_OK || !cli_work_dir(work, sizeof work, &err))
        return doctor_found(l, false, "", err.text, WARN, cuda_only);
    int rc = run_probe(probe, path, g.path, work, out, sizeof out);
    double seen = counted(work);
    rmdir(work);
    if (rc == 77) {
        doctor_say(l, "not tried: %s", out);
        return doctor_bad(l, WARN, cuda_only);
    }
    if (rc || sscanf(out, "%d %d", &calls, &replayed) != 2) {
        doctor_say(l, "a program with a few calls of cuBLAS ended with status %d under the shim: %s", rc,
                   out);
        return doctor_bad(
            l, WARN, "run `LD_PRELOAD= %.150s %.80s`: if it works, look at the line preloads, and report it",
            probe, g.path);
    }
    doctor_say(l, "%d calls and %d replays of captured ones were made, %.0f counted", calls, replayed, seen);
    return seen == calls + replayed ? FINE
                                    : doctor_bad(l, WARN,
                                                 "calls go past the shim: look at the line preloads; a "
                                                 "driver or a cuBLAS newer than this kfit may "
                                                 "need a newer kfit");
}

/* ---- other preloaded libraries ---- */

static const char *const ours[] = {"dlsym",
                                   "cuGetProcAddress",
                                   "cuGetProcAddress_v2",
                                   "cuLaunchKernel",
                                   "cuLaunchKernelEx",
                                   "cuGraphLaunch",
                                   "cublasGemmEx",
                                   "cublasLtMatmul",
                                   "cblas_sgemm",
                                   "sgemm_",
                                   NULL};

/* Each library of a list as the loader reads it; how many of them define what the shim does. */
static unsigned look_at_list(struct line *l, const char *source, char *list)
{
    unsigned rivals = 0;
    for (char *rest = list, *path; (path = strtok_r(rest, " \t\n:", &rest));) {
        char defines[200];
        const char *slash = strrchr(path, '/');
        if (!strcmp(slash ? slash + 1 : path, "libkfit_preload.so"))
            continue;
        bool read = slash && doctor_defines(path, ours, defines, sizeof defines);
        doctor_say(l, "%s%s: %.200s%s%s", l->text[0] ? "; " : "", source, path,
                   !slash     ? " (found by the loader, not looked into)"
                   : !read    ? " (cannot be read)"
                   : *defines ? " defines "
                              : "",
                   read ? defines : "");
        rivals += read && *defines;
    }
    return rivals;
}

/* A library that takes the same functions may hide calls from the shim, or the shim from it. */
enum level doctor_preloads(const struct doctor *d, struct line *l)
{
    const char *variable = getenv("LD_PRELOAD");
    char *copy = strdup(variable ? variable : ""), *file = NULL;
    unsigned rivals = 0;
    size_t bytes;
    (void)d;
    if (copy)
        rivals = look_at_list(l, "LD_PRELOAD", copy);
    free(copy);
    if (cli_read_file("/etc/ld.so.preload", 1 << 16, &file, &bytes, NULL) == KFIT_OK) {
        for (char *comment = file; (comment = strchr(comment, '#'));)
            memset(comment, ' ', strcspn(comment, "\n"));
        rivals += look_at_list(l, "/etc/ld.so.preload", file);
        free(file);
    }
    if (!l->text[0])
        doctor_say(l, "nothing else is preloaded");
    return rivals ? doctor_bad(l, WARN,
                               "it takes functions that the shim takes too; who comes first is called first, "
                               "and LD_PRELOAD comes "
                               "before /etc/ld.so.preload: see whether the line hooks counts every call, "
                               "else leave one of them out")
                  : FINE;
}
