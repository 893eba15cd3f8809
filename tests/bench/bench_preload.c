/* What the shim costs a program that it has nothing to offer: nanoseconds per BLAS call that goes to the
 * original, and milliseconds for a program that calls none. The program runs in children with and without the
 * shim in turn. */
#include <cblas.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "median.h"

enum { ROUNDS = 15, BLOCKS = 60, CALLS = 5000, STARTS = 300 };

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* The child: the best block's time per call, and the first call's. */
static int child(void)
{
    _Alignas(64) float a[16] = {1}, b[16] = {2}, c[16];
    double best = 1e9, first = now_ns();
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, 4, 4, 4, 1, a, 4, b, 4, 0, c, 4);
    first = now_ns() - first;
    for (int block = 0; block < BLOCKS; block++) {
        double start = now_ns();
        for (int i = 0; i < CALLS; i++)
            cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, 4, 4, 4, 1, a, 4, b, 4, 0, c, 4);
        double ns = (now_ns() - start) / CALLS;
        best = ns < best ? ns : best;
    }
    printf("%.2f %.0f\n", best, first);
    return c[0] == 2 ? 0 : 1;
}

struct way {
    const char *name;
    const char *env[6];
};

/* Runs program in this environment; reads its two numbers if it prints them. Returns wall time in ns. */
static double run(const struct way *way, const char *program, const char *arg, double *best, double *first)
{
    const char *argv[] = {program, arg, NULL};
    int p[2], st;
    pid_t pid;
    posix_spawn_file_actions_t actions;
    char text[64] = "";
    if (pipe2(p, O_CLOEXEC))
        exit(1);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, p[1], 1);
    double start = now_ns();
    if (posix_spawn(&pid, program, &actions, NULL, (char *const *)(uintptr_t)argv,
                    (char *const *)(uintptr_t)way->env))
        exit(1);
    close(p[1]);
    ssize_t got = read(p[0], text, sizeof text - 1);
    if (waitpid(pid, &st, 0) != pid || st) {
        fprintf(stderr, "%s %s: status %d\n", program, arg ? arg : "", st);
        exit(1);
    }
    double wall = now_ns() - start;
    close(p[0]);
    posix_spawn_file_actions_destroy(&actions);
    if (best && (got <= 0 || sscanf(text, "%lf %lf", best, first) != 2))
        exit(1);
    return wall;
}

int main(int argc, char **argv)
{
    char trace[] = "/dev/shm/kfit-bench-XXXXXX", trace_env[64], clean[128];
    if (argc > 1 && !strcmp(argv[1], "child"))
        return child();
    if (!mkdtemp(trace))
        return 1;
    snprintf(trace_env, sizeof trace_env, "KFIT_TRACE=%s", trace);
    snprintf(clean, sizeof clean, "rm -rf %s", trace);
    const struct way ways[] = {
        {"without", {"OPENBLAS_NUM_THREADS=1", NULL}},
        {"off", {"OPENBLAS_NUM_THREADS=1", "LD_PRELOAD=" SHIM, NULL}},
        {"record", {"OPENBLAS_NUM_THREADS=1", "LD_PRELOAD=" SHIM, trace_env, NULL}},
        {"both",
         {"OPENBLAS_NUM_THREADS=1", "LD_PRELOAD=" SHIM, trace_env, "KFIT_MODE=both", "KFIT_LOG=none"}},
    };
    enum { WAYS = sizeof ways / sizeof *ways };
    static double ns[WAYS][ROUNDS], more[WAYS][ROUNDS], first[WAYS][ROUNDS], ms[2][STARTS];
    for (int r = 0; r < ROUNDS; r++)
        for (int w = 0; w < WAYS; w++) {
            run(&ways[w], argv[0], "child", &ns[w][r], &first[w][r]);
            more[w][r] = ns[w][r] - ns[0][r];
        }
    printf("cblas_sgemm 4x4x4, %d rounds in turn: median ns per call, and more than without the shim\n",
           ROUNDS);
    for (int w = 0; w < WAYS; w++)
        printf("  %-8s %7.1f ns  %+6.1f ns   first call %7.1f us\n", ways[w].name, median(ns[w], ROUNDS),
               median(more[w], ROUNDS), median(first[w], ROUNDS) / 1e3);
    for (int i = 0; i < STARTS; i++)
        for (int w = 0; w < 2; w++)
            ms[w][i] = run(&ways[w ? 2 : 0], "/bin/true", NULL, NULL, NULL) / 1e6;
    double bare = median(ms[0], STARTS), shim = median(ms[1], STARTS);
    printf("/bin/true, %d starts in turn: %.3f ms without, %.3f ms with, %+.3f ms\n", STARTS, bare, shim,
           shim - bare);
    return system(clean) ? 1 : 0;
}
