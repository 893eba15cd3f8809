/* kfit explain --pid: a live process' own generation, environment and policy, and what it counted. */
#include <stdlib.h>
#include <string.h>

#include "explain.h"
#include "graphs.h"
#include "kfit/process.h"
#include "processes.h"

enum { ENVIRON_BYTES = 1 << 20 };

/* The variables a process was started with, NUL-separated; "" where we may not look. */
static char *read_environ(int pid)
{
    char path[40], *text = cli_alloc(NULL, ENVIRON_BYTES + 2);
    size_t n = 0;
    snprintf(path, sizeof path, "/proc/%d/environ", pid);
    FILE *f = fopen(path, "re");
    if (f) {
        n = fread(text, 1, ENVIRON_BYTES, f);
        fclose(f);
    }
    text[n] = text[n + 1] = '\0';
    return text;
}

static const char *variable_of(const char *environ_text, const char *name)
{
    size_t n = strlen(name);
    for (const char *p = environ_text; *p; p += strlen(p) + 1)
        if (!strncmp(p, name, n) && p[n] == '=')
            return p[n + 1] ? p + n + 1 : NULL;
    return NULL;
}

/* A dispatcher with what the process has loaded; NULL after a message, or where it has loaded nothing. */
static struct kfit_dispatcher *dispatcher_of(const struct kfit_trace_header *h)
{
    char cache[4096], digest[65], *vars = read_environ(h->pid);
    const char *dir = h->cache[0] ? h->cache : variable_of(vars, "KFIT_CACHE");
    struct kfit_dispatcher *d = NULL;
    if (h->generation && dir) {
        const struct cli_policy policy = {.allow = variable_of(vars, "KFIT_ALLOW"),
                                          .bans = variable_of(vars, "KFIT_BAN"),
                                          .state = variable_of(vars, "KFIT_STATE"),
                                          .strict = kfit_switch(variable_of(vars, "KFIT_STRICT")) != 0,
                                          .memory = variable_of(vars, "KFIT_GPU_MEMORY")};
        kfit_hex(h->generation_digest, 32, digest);
        if (*dir == '/')
            snprintf(cache, sizeof cache, "%s", dir);
        else
            snprintf(cache, sizeof cache, "/proc/%d/cwd/%s", h->pid, dir);
        d = cli_explainer(cache, digest, &h->env, &policy);
    }
    free(vars);
    return d;
}

static bool has(const struct kfit_trace *t, const union kfit_key *key)
{
    for (size_t i = 0; i < kfit_trace_count(t); i++)
        if (kfit_key_equal(&kfit_trace_at(t, i)->key, key))
            return true;
    return false;
}

static void counted(const struct kfit_trace *t, const union kfit_key *key, uint64_t count[KFIT_TRACE_REASONS])
{
    memset(count, 0, KFIT_TRACE_REASONS * sizeof *count);
    for (size_t i = 0; i < kfit_trace_count(t); i++)
        if (kfit_key_equal(&kfit_trace_at(t, i)->key, key))
            for (unsigned r = 0; r < KFIT_TRACE_REASONS; r++)
                count[r] += kfit_trace_at(t, i)->count[r];
}

static void explain(const struct cli_trace *ct, struct kfit_dispatcher *d, const union kfit_key *key,
                    cJSON *list)
{
    const struct kfit_trace *t = ct->t;
    const struct kfit_trace_header *h = kfit_trace_header(t);
    uint64_t count[KFIT_TRACE_REASONS], calls = 0;
    char text[CLI_EXPLAIN_BYTES] = "", generation[40] = "no generation";
    unsigned why;
    bool dispatching = cli_dispatching(h, &why);
    counted(t, key, count);
    for (unsigned r = 0; r < KFIT_TRACE_REASONS; r++)
        calls += count[r];
    if (d)
        kfit_dispatcher_explain(d, key, text, sizeof text);
    if (list) {
        cJSON *o = cli_explain_json(key, text);
        cJSON_AddNumberToObject(o, "pid", h->pid);
        cJSON_AddStringToObject(o, "device", cli_device(h));
        cJSON_AddNumberToObject(o, "generation", (double)h->generation);
        cJSON_AddBoolToObject(o, "dispatching", dispatching);
        cJSON_AddStringToObject(o, "state_text", SAFE(h->state_text));
        cJSON_AddNumberToObject(o, "calls", (double)calls);
        cJSON_AddNumberToObject(o, "hits", (double)count[KFIT_REASON_NONE]);
        count[KFIT_REASON_NONE] = 0;
        cJSON_AddItemToObject(o, "misses", cli_json_reasons(count));
        cJSON *graphs = cJSON_AddArrayToObject(o, "graphs");
        cli_graphs_list(ct, CLI_GRAPHS_OURS, key, graphs, NULL, 0);
        cJSON_AddItemToArray(list, o);
        return;
    }
    if (h->generation)
        snprintf(generation, sizeof generation, "generation %llu", (unsigned long long)h->generation);
    printf("%s\n    process %d %s on %s: %s; %s\n", cli_key(key), h->pid, SAFE(h->program), cli_device(h),
           generation, SAFE(h->state_text));
    if (!dispatching)
        printf("    runs the original: %s\n", kfit_reason_text(why));
    bool first = true;
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"), first = false)
        if (!first && strncmp(line, "state: ", 7)) /* the key, and a state that is not the process' */
            printf("    %s%s\n", dispatching ? "" : "its generation alone: ", cli_str(line));
    printf("    called %llu times, %llu by a kfit kernel", (unsigned long long)calls,
           (unsigned long long)count[KFIT_REASON_NONE]);
    for (unsigned r = 1; r < KFIT_REASON_COUNT; r++)
        if (count[r])
            printf(", %llu %s", (unsigned long long)count[r], kfit_reason_name(r));
    putchar('\n');
    char numbers[CLI_GRAPHS_BYTES];
    const size_t graphs = cli_graphs_list(ct, CLI_GRAPHS_OURS, key, NULL, numbers, sizeof numbers);
    if (graphs)
        printf("    graph%s %s replay%s its kernel, whatever is switched: restart or re-capture\n",
               graphs == 1 ? "" : "s", numbers, graphs == 1 ? "s" : "");
}

int cli_explain_process(uint64_t pid, const union kfit_key *key, cJSON *list)
{
    struct cli_traces ts = {.quiet = true};
    size_t traces = 0, have = 0;
    int rc = CLI_OK;
    cli_traces_read(&ts, NULL);
    for (size_t i = 0; i < ts.count; i++) {
        const struct cli_trace *t = &ts.item[i];
        if (!t->alive || (uint64_t)kfit_trace_header(t->t)->pid != pid)
            continue;
        traces++;
        have += key && has(t->t, key);
    }
    if (!traces)
        rc = cli_fail("--pid: process %llu has no trace that can be read here; `kfit status --live` shows "
                      "those that have",
                      (unsigned long long)pid);
    for (size_t i = 0; i < ts.count; i++) {
        const struct cli_trace *t = &ts.item[i];
        const struct kfit_trace_header *h = kfit_trace_header(t->t);
        if (!t->alive || (uint64_t)h->pid != pid || (have && !has(t->t, key)))
            continue;
        struct kfit_dispatcher *d = dispatcher_of(h);
        if (key)
            explain(t, d, key, list);
        for (size_t k = 0; !key && k < kfit_trace_count(t->t); k++)
            explain(t, d, &kfit_trace_at(t->t, k)->key, list);
        if (!d && h->generation)
            rc = CLI_FAILED;
        kfit_dispatcher_destroy(d);
    }
    cli_traces_free(&ts);
    return rc;
}
