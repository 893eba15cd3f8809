/* Can the kernels of a live executable graph be switched, by whose nodes, and what does that cost:
 * graph_switch OUT.json [NODES ...] (50, 500 and 2000 unless given). A table on stdout, everything in OUT.json.
 *
 * A program that captures a graph often destroys it as soon as it is instantiated, PyTorch does; the driver knows the nodes of
 * an executable graph by those of the graph that it was made from. What a guest could keep is a clone. So a chain of kernels
 * is captured, instantiated, the original destroyed, and then each of `ways` tries to make every tenth node run each
 * of `shapes`; what a replay has written says which kernel ran where, with which grid, shared memory and cluster. Then
 * all nodes at once, for the time of it, and all of them while replays are running and waiting.
 *
 * Expected before anything was measured: `original`, `exec_of_clone`, `update` and `swap` work, `clone_node` and `destroyed_node`
 * are refused (the nodes are not those of the executable's graph; the last may crash); a cluster that is an attribute of the
 * launch needs `update` or `swap`, since the parameters of a node have no place for it; a clone takes 0.2 us and 0.5 to 1 KB
 * of host memory a node, and no device memory; an executable 1 to 2 us and some hundred bytes of both; switching 0.5 us a
 * node; replays under way are not affected, and nobody waits for them. What was seen, two traps among it, stands in
 * integrations/preload/README.md.
 *
 * Each way runs in a process of its own, since it may crash. Exit status 77: no GPU that has clusters. 1: the control, `original`,
 * failed. What else works or fails is what was asked, and no failure. */
#include "graph_switch.h"

#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- ways ---- */

static const struct way ways[] = {
    {"original", "cuGraphExecKernelNodeSetParams, nodes of the original, which is kept: the control", NODE, true, false, false},
    {"clone_node", "cuGraphExecKernelNodeSetParams, nodes of a clone; made from the original", NODE, false, true, false},
    {"exec_of_clone", "cuGraphExecKernelNodeSetParams, nodes of a clone; made from the clone", NODE, false, true, true},
    {"update", "cuGraphExecUpdate with an edited clone; made from the original", UPDATE, false, true, false},
    {"swap", "another executable, made from an edited clone, is launched instead", SWAP, false, true, false},
    {"destroyed_node", "cuGraphExecKernelNodeSetParams, nodes of the original, which is destroyed", NODE, false, false, false},
};
enum { WAYS = sizeof ways / sizeof *ways };

/* ---- all of them, each in a process of its own ---- */

/* Copies a child's members to the file, whole lines only; kept in `text` too. Its exit status, or minus its signal. */
static int members(char *self, const char *way, const char *nodes, FILE *out, char *text, size_t size)
{
    int fd[2], status;
    char got[4096];
    *text = '\0';
    if (pipe(fd))
        return -1;
    fflush(out);
    const pid_t pid = fork();
    if (!pid) {
        dup2(fd[1], 1);
        close(fd[0]);
        close(fd[1]);
        execl(self, self, "-", way, nodes, (char *)NULL);
        _exit(127);
    }
    close(fd[1]);
    FILE *in = fdopen(fd[0], "r");
    if (pid < 0 || !in)
        return -1;
    while (fgets(got, sizeof got, in)) {
        char *end = strchr(got, '\n');
        if (!end)
            continue;
        *end = '\0';
        fprintf(out, ",\n   %s", got);
        if (strlen(text) + strlen(got) + 2 < size)
            strcat(strcat(text, got), "\n");
    }
    fclose(in);
    if (waitpid(pid, &status, 0) != pid)
        return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/* A number or word of what a child told: of `member` in the line of `of`. */
static const char *told(const char *text, const char *of, const char *member)
{
    static char value[4][64];
    static unsigned turn;
    char name[80];
    char *v = value[turn++ % 4];
    strcpy(v, "-");
    snprintf(name, sizeof name, "\"%s\": {", of);
    const char *at = strstr(text, name), *end = at ? strchr(at, '\n') : NULL;
    snprintf(name, sizeof name, "\"%s\": ", member);
    at = at ? strstr(at, name) : NULL;
    if (at && at < end) {
        at += strlen(name);
        at += *at == '"';
        snprintf(v, sizeof value[0], "%.*s", (int)strcspn(at, "\",}"), at);
    }
    return v;
}

static int everything(char *self, const char *path, int argc, char **nodes)
{
    static char text[16384];
    int failed = 0;
    FILE *out = fopen(path, "w");
    if (!out)
        return perror(path), 2;
    fprintf(out, "{\n \"what\": \"kernels of executable graphs switched: each way and size in a process of its own\"");
    const int none = members(self, "device", "1", out, text, sizeof text);
    if (none) {
        printf("skipped: %s", text[0] ? text : "no GPU\n");
        fprintf(out, "\n}\n");
        fclose(out);
        return none == 77 ? 77 : 1;
    }
    fprintf(out, ",\n \"runs\": [");
    printf("%-15s %5s %9s %9s %8s  %s\n", "way", "nodes", "node us", "whole us", "replay", "every tenth: right of those switched; in flight");
    for (int a = 0; a < argc; a++)
        for (unsigned w = 0; w < WAYS; w++) {
            fprintf(out, "%s\n  {\"way\": \"%s\", \"calls\": \"%s\", \"nodes\": %s", a || w ? "," : "", ways[w].name, ways[w].what, nodes[a]);
            const int status = members(self, ways[w].name, nodes[a], out, text, sizeof text);
            fprintf(out, ",\n   \"ended\": %d}", status);
            printf("%-15s %5s %9s %9s %8s ", ways[w].name, nodes[a], told(text, "all", "node_us"), told(text, "all", "whole_us"),
                   told(text, "all", "replay_us"));
            for (unsigned s = 0; s < SHAPES; s++) {
                const char *e = told(text, shapes[s].name, "error");
                printf(" %s %s%s%s", shapes[s].name, told(text, shapes[s].name, "right"), *e && *e != '-' ? " " : "", *e != '-' ? e : "");
            }
            printf("; %s, then %s%s\n", told(text, "in_flight", "under_way_ran"), told(text, "in_flight", "next_ran"),
                   status < 0 ? ": died" : status ? ": failed" : "");
            fflush(stdout);
            failed |= ways[w].kept && (status || strcmp(told(text, "all", "right"), nodes[a]));
        }
    fprintf(out, "\n ]\n}\n");
    return fclose(out) ? 1 : failed;
}

int main(int argc, char **argv)
{
    static char *sizes[] = {"50", "500", "2000"};
    if (argc == 4 && !strcmp(argv[1], "-")) {
        if (!strcmp(argv[2], "device"))
            return of_device();
        for (unsigned w = 0; w < WAYS; w++)
            if (!strcmp(argv[2], ways[w].name))
                return try(&ways[w], (unsigned)atoi(argv[3]));
    }
    bool usage = argc < 2 || argv[1][0] == '-';
    for (int i = 2; i < argc; i++)
        usage |= atoi(argv[i]) < EVERY || atoi(argv[i]) > 100000;
    if (usage)
        return fprintf(stderr, "usage: graph_switch OUT.json [NODES ...], each from 10 to 100000\n"), 2;
    return everything("/proc/self/exe", argv[1], argc > 2 ? argc - 2 : 3, argc > 2 ? argv + 2 : sizes);
}
