/* kfit explain: what would run for a key here, and why. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "explain.h"
#include "graphs.h"
#include "held.h"
#include "kfit/process.h"
#include "signing.h"

struct kfit_dispatcher *cli_explainer(const char *cache, const char *generation, const struct kfit_env *env,
                                      const struct cli_policy *policy)
{
    static const struct cli_policy none;
    const struct cli_policy *p = policy ? policy : &none;
    struct kfit_dispatcher *d = NULL;
    struct kfit_error err = {0};
    char dir[4096];
    size_t memory;
    kfit_gpu_memory(p->memory, &memory);
    enum kfit_status s = kfit_dispatcher_create(
        &d,
        &(struct kfit_dispatcher_params){.mode = KFIT_MODE_DISPATCH,
                                         .trust = cli_trust(),
                                         .cache_dir = cli_cache_dir(cache, dir, sizeof dir),
                                         .generation = generation,
                                         .allow = p->allow,
                                         .bans = p->bans,
                                         .state_dir = p->state,
                                         .strict = p->strict,
                                         .workspace_most = kfit_workspace_most(memory),
                                         .asks_only = true,
                                         .env = env},
        &err);
    if (s != KFIT_OK)
        cli_failed("explain", s, &err);
    return s == KFIT_OK ? d : NULL;
}

static const char *variable(const char *name)
{
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

const char *cli_near_miss(const char *explanation, unsigned i)
{
    char one[1024];
    const char *at = strstr(explanation, "differs from");
    for (; at && i; i--)
        at = strstr(at + 1, "differs from");
    if (!at)
        return NULL;
    snprintf(one, sizeof one, "%.*s", (int)strcspn(at, "\n"), at);
    return cli_str(one);
}

cJSON *cli_explain_json(const union kfit_key *key, const char *explanation)
{
    cJSON *o = cJSON_CreateObject();
    cJSON_AddStringToObject(o, "key", cli_key(key));
    cJSON_AddStringToObject(o, "explanation", explanation);
    cJSON *list = cJSON_AddArrayToObject(o, "near_misses");
    for (unsigned i = 0; cli_near_miss(explanation, i); i++)
        cJSON_AddItemToArray(list, cJSON_CreateString(cli_near_miss(explanation, i)));
    return o;
}

static void explain(struct kfit_dispatcher *d, const union kfit_key *key, cJSON *list)
{
    char text[CLI_EXPLAIN_BYTES];
    kfit_dispatcher_explain(d, key, text, sizeof text);
    size_t n = strlen(text);
    while (n && text[n - 1] == '\n')
        text[--n] = '\0';
    if (list) {
        cJSON_AddItemToArray(list, cli_explain_json(key, text));
        return;
    }
    bool first = true;
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"), first = false)
        printf("%s%s\n", first ? "" : "    ", cli_str(line));
}

/* Programs of this host that only record with the generation explained; under --json beside the last key. */
static bool held(struct kfit_dispatcher *d, const char *state, cJSON *list)
{
    const struct kfit_trace_header *h = kfit_recorder_header(kfit_dispatcher_recorder(d));
    cJSON *last = list ? cJSON_GetArrayItem(list, cJSON_GetArraySize(list) - 1) : NULL;
    if (!h->generation || (list && !last))
        return true;
    return cli_held_show(state, h->generation_digest, last ? cJSON_AddArrayToObject(last, "held") : NULL);
}

int cli_explain(int argc, char **argv)
{
    const char *cache = NULL, *generation = NULL;
    struct cli_policy policy = {.allow = variable("KFIT_ALLOW"),
                                .bans = variable("KFIT_BAN"),
                                .strict = kfit_switch(variable("KFIT_STRICT")) != 0,
                                .memory = variable("KFIT_GPU_MEMORY")};
    char state_buf[4096];
    uint64_t threads = 0, pid = 0;
    bool json = false;
    struct cli_list args = {0};
    struct cli_traces ts = {0};
    struct kfit_error err = {0};
    char name[64];
    union kfit_key key;
    struct kfit_env env;
    struct kfit_dispatcher *d;
    const struct cli_option options[] = {
        CLI_OPTION_CACHE(&cache),
        {"generation", 'g', CLI_TEXT, &generation, "G", "number or digest (default: the current one)"},
        {"threads", 'n', CLI_COUNT, &threads, "N",
         "BLAS threads of the process (default: those of the system's BLAS)"},
        {"allow", 'a', CLI_TEXT, &policy.allow, "LIST", "origins of kernels that may run ($KFIT_ALLOW)"},
        {"strict", 'S', CLI_FLAG, &policy.strict, NULL, "what would be stale does not run ($KFIT_STRICT)"},
        {"pid", 'p', CLI_COUNT, &pid, "PID", "what this live process does, by what it has loaded"},
        CLI_OPTION_STATE(&policy.state),
        CLI_OPTION_JSON(&json),
        {0},
    };
    cli_parse(argc, argv,
              &(struct cli_usage){
                  .args = "[KEY|TRACE]",
                  .doc = "Says what would run for a key, or for every key of a trace, on this machine now; with --pid, in that process (without a key: for every key it called).",
                  .options = options,
                  .max = 1},
              &args);
    if (!args.count && !pid)
        return cli_usage_error(argv, "expected KEY|TRACE or --pid");
    policy.state = cli_state_dir(policy.state, state_buf, sizeof state_buf);
    if (pid) {
        if (args.count && kfit_key_parse(args.item[0], &key, &err) != KFIT_OK)
            return cli_usage_error(argv, "\"%s\" is no key: %s", cli_str(args.item[0]), SAFE(err.text));
        cJSON *keys = json ? cJSON_CreateArray() : NULL;
        int failed = cli_explain_process(pid, args.count ? &key : NULL, keys);
        return json && !failed ? cli_json_print(keys) : failed;
    }
    bool is_key = kfit_key_parse(args.item[0], &key, &err) == KFIT_OK;
    if (!is_key && access(args.item[0], F_OK))
        return cli_usage_error(argv, "\"%s\" is no file, and no key: %s", cli_str(args.item[0]),
                               SAFE(err.text));
    if (!is_key && (!cli_traces_read(&ts, &args) || !cli_traces_merge(&ts)))
        return CLI_FAILED;
    cJSON *list = json ? cJSON_CreateArray() : NULL;
    int rc = CLI_OK;
    if (is_key) {
        struct kfit_generic g = {0};
        if (cli_generic_probe(NULL, &g, &err) == KFIT_OK && !threads)
            threads = (uint64_t)g.threads;
        kfit_env_host(&env, threads ? (int)threads : 1, g.path[0] ? cli_generic_name(&g, name) : NULL, NULL);
        if (!(d = cli_explainer(cache, generation, &env, &policy)))
            return CLI_FAILED;
        explain(d, &key, list);
        rc |= !held(d, policy.state, list);
        kfit_dispatcher_destroy(d);
        cli_graphs_say_all(&key);
    }
    for (size_t g = 0; g < ts.groups; g++) {
        const struct kfit_trace *t = ts.group[g];
        if (!(d = cli_explainer(cache, generation, &kfit_trace_header(t)->env, &policy))) {
            rc = CLI_FAILED;
            break;
        }
        for (size_t i = 0; i < kfit_trace_count(t); i++)
            explain(d, &kfit_trace_at(t, i)->key, list);
        rc |= !held(d, policy.state, list);
        kfit_dispatcher_destroy(d);
    }
    if (json)
        cli_json_print(list);
    cli_traces_free(&ts);
    return rc;
}
