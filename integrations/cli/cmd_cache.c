/* kfit cache ls, show; the table of kfit cache. */
#include <stdlib.h>
#include <string.h>

#include "cache.h"
#include "ceilings.h"
#include "signing.h"

static cJSON *describe(const struct cli_outcome *o, const struct kfit_record *r)
{
    char env[KFIT_ENV_TEXT_MAX], digest[65];
    cJSON *e = cJSON_CreateObject();
    kfit_hex(r->source_digest, 32, digest);
    cJSON_AddStringToObject(e, "key", cli_key(&r->key));
    cJSON_AddStringToObject(e, "kind", r->kind == KFIT_RECORD_WINNER ? "winner" : "negative");
    cJSON_AddNumberToObject(e, "ratio", r->ratio);
    cJSON_AddNumberToObject(e, "lo", r->lo);
    cJSON_AddNumberToObject(e, "hi", r->hi);
    cJSON_AddNumberToObject(e, "ns_candidate", r->ns_candidate);
    cJSON_AddNumberToObject(e, "ns_incumbent", r->ns_incumbent);
    cJSON_AddNumberToObject(e, "ns_generic", r->ns_generic);
    cJSON_AddStringToObject(e, "origin", SAFE(r->origin));
    cJSON_AddStringToObject(e, "approver", SAFE(r->approver));
    cJSON_AddStringToObject(e, "source_digest", digest);
    cJSON_AddNumberToObject(e, "image_bytes", (double)r->image_bytes);
    cJSON_AddNumberToObject(e, "made_unix", (double)r->made_unix_s);
    cJSON_AddStringToObject(e, "environment", cli_safe(cli_outcome_env(o, r->env_hard, env), sizeof env));
    cJSON_AddStringToObject(e, "environment_soft",
                            cli_safe(cli_outcome_env(o, r->env_soft, env), sizeof env));
    return e;
}

static int ls(int argc, char **argv)
{
    const char *cache = NULL, *generation = NULL;
    bool staged = false, generations = false, json = false;
    struct cli_list none = {0};
    struct cli_outcome o;
    char dir[4096];
    const struct cli_option options[] = {
        CLI_OPTION_CACHE(&cache),
        {"generation", 'g', CLI_TEXT, &generation, "G", "number or digest (default: the current one)"},
        {"staged", 's', CLI_FLAG, &staged, NULL, "what was tuned, published or not"},
        {"generations", 'a', CLI_FLAG, &generations, NULL, "the generations, not their records"},
        CLI_OPTION_JSON(&json),
        {0},
    };
    cli_parse(argc, argv,
              &(struct cli_usage){.args = "",
                                  .doc = "Lists the records of a generation or of the staged set.",
                                  .options = options},
              &none);
    if (generations)
        return cli_cache_generations(cli_cache_dir(cache, dir, sizeof dir), json);
    if (!cli_outcome_open(&o, cache, generation, staged ? CLI_WANT_STORE : CLI_WANT_GENERATION))
        return CLI_FAILED;
    const struct kfit_records *list = staged ? &o.staged : &o.published;
    cJSON *array = json ? cJSON_CreateArray() : NULL;
    if (!json && !staged) {
        const struct kfit_manifest *m = kfit_generation_manifest(o.generation);
        char digest[65];
        kfit_hex(m->sha256, 32, digest);
        printf("generation %llu, sha256 %s\n%llu records, %s, approved by %s%s%s\n%s\n",
               (unsigned long long)m->number, digest, (unsigned long long)m->records,
               cli_when(m->created_unix_s), SAFE(m->approver), m->note[0] ? ": " : "", SAFE(m->note),
               cli_signature(m));
    }
    if (!json)
        printf("%-8s %9s %9s  %-19s %8s  %-20s %s\n", "KIND", "BEFORE", "AFTER", "RATIO [95 %]", "IMAGE",
               "ORIGIN", "KEY");
    for (size_t i = 0; i < list->count; i++) {
        const struct kfit_record *r = &list->item[i];
        char ratio[48];
        bool winner = r->kind == KFIT_RECORD_WINNER;
        if (json)
            cJSON_AddItemToArray(array, describe(&o, r));
        else
            printf("%-8s %9s %9s  %-19s %8llu  %-20s %s\n", winner ? "winner" : "negative",
                   cli_ns(r->ns_incumbent), cli_ns(winner ? r->ns_candidate : r->ns_incumbent),
                   cli_ratio(r->ratio, r->lo, r->hi, ratio), (unsigned long long)r->image_bytes,
                   SAFE(r->origin), cli_key(&r->key));
    }
    int rc = list->bad ? CLI_FAILED : CLI_OK;
    if (json)
        cli_json_print(array);
    cli_outcome_close(&o);
    return rc;
}

static void print_one(const struct cli_outcome *o, const char *title, const struct kfit_record *r)
{
    char env[KFIT_ENV_TEXT_MAX], ratio[48], digest[65];
    kfit_hex(r->source_digest, 32, digest);
    printf("%s: %s, %s\n", title,
           r->kind == KFIT_RECORD_WINNER ? "winner" : "negative (the original is kept)",
           cli_when(r->made_unix_s));
    printf("  candidate %s, incumbent %s, generic %s, ratio %s\n", cli_ns(r->ns_candidate),
           cli_ns(r->ns_incumbent), cli_ns(r->ns_generic), cli_ratio(r->ratio, r->lo, r->hi, ratio));
    printf("  origin %s, source %s%s%s\n", SAFE(r->origin), digest, r->approver[0] ? ", approved by " : "",
           SAFE(r->approver));
    if (r->kind == KFIT_RECORD_WINNER)
        printf("  image %llu bytes, workspace %llu bytes, %u launch%s\n", (unsigned long long)r->image_bytes,
               (unsigned long long)r->plan.workspace_bytes, r->plan.launch_count,
               r->plan.launch_count == 1 ? "" : "es");
    printf("  %s\n", cli_safe(cli_outcome_env(o, r->env_hard, env), sizeof env));
    printf("  %s\n", cli_safe(cli_outcome_env(o, r->env_soft, env), sizeof env));
}

/* An evaluation that waits for a person: its receipt is all that is kept. */
static void show_waiting(void *ctx, const struct kfit_receipt *r)
{
    cJSON *array = ctx;
    char *text = kfit_receipt_to_json(r);
    if (array) {
        cJSON *e = cJSON_CreateObject();
        cJSON_AddStringToObject(e, "key", cli_key(&r->key));
        cJSON_AddStringToObject(e, "set", "waiting");
        cJSON_AddItemToObject(e, "receipt", text ? cJSON_Parse(text) : cJSON_CreateNull());
        cJSON_AddItemToArray(array, e);
    } else {
        printf("waits for a person: %s %s, %s\n  receipt: %s\n", SAFE(r->name), SAFE(r->knobs),
               kfit_code_str(r->code), text ? text : "out of memory");
    }
    free(text);
}

static int print_ceilings(void *ctx, const struct kfit_gpu_ceilings *c)
{
    char text[600];
    (void)ctx;
    cli_ceilings_text(c, text, sizeof text);
    printf("device %s, measured %s\n", SAFE(text), cli_when(c->measured_unix_s));
    return 0;
}

static int show(int argc, char **argv)
{
    const char *cache = NULL, *generation = NULL;
    bool json = false;
    struct cli_list args = {0};
    struct cli_outcome o;
    union kfit_key key;
    struct kfit_error err = {0};
    const struct cli_option options[] = {
        CLI_OPTION_CACHE(&cache),
        {"generation", 'g', CLI_TEXT, &generation, "G", "number or digest (default: the current one)"},
        CLI_OPTION_JSON(&json),
        {0},
    };
    cli_parse(
        argc, argv,
        &(struct cli_usage){
            .args = "KEY",
            .doc = "Shows what is published, staged and waiting for a person for a key, with its receipt.",
            .options = options,
            .min = 1,
            .max = 1},
        &args);
    if (kfit_key_parse(args.item[0], &key, &err) != KFIT_OK)
        return cli_usage_error(argv, "%s", SAFE(err.text));
    if (!cli_outcome_open(&o, cache, generation, 0))
        return CLI_FAILED;
    const struct {
        const char *name;
        const struct kfit_records *list;
    } sets[] = {{"published", &o.published}, {"staged", &o.staged}};
    struct kfit_receipt *receipt = cli_alloc(NULL, sizeof *receipt);
    cJSON *array = json ? cJSON_CreateArray() : NULL;
    size_t found = 0;
    for (unsigned s = 0; s < 2; s++) {
        for (size_t i = 0; i < sets[s].list->count; i++) {
            const struct kfit_record *r = &sets[s].list->item[i];
            if (!kfit_key_equal(&r->key, &key))
                continue;
            found++;
            char *text = kfit_record_receipt(r, o.store, receipt) ? kfit_receipt_to_json(receipt) : NULL;
            if (json) {
                cJSON *e = describe(&o, r);
                cJSON_AddStringToObject(e, "set", sets[s].name);
                cJSON_AddItemToObject(e, "receipt", text ? cJSON_Parse(text) : cJSON_CreateNull());
                cJSON_AddItemToArray(array, e);
            } else {
                print_one(&o, sets[s].name, r);
                printf("  receipt: %s\n", text ? text : "none in this store");
            }
            free(text);
        }
    }
    free(receipt);
    size_t waits = 0;
    bool ok = cli_outcome_waiting(&o, &key, show_waiting, array, &waits);
    found += waits;
    if (json)
        cli_json_print(array);
    else if (found && o.store) /* what the receipts' bounds come from */
        kfit_ceilings_each(o.store, print_ceilings, NULL, NULL);
    if (ok && !found)
        cli_fail("%s: neither published nor tuned in %s", cli_key(&key), cli_str(o.dir));
    cli_outcome_close(&o);
    return ok && found ? CLI_OK : CLI_FAILED;
}

const struct cli_command cli_cache_commands[] = {
    {"ls", ls, NULL, "records of a generation, or of what was tuned"},
    {"show", show, NULL, "record and receipt of a key"},
    {"verify", cli_cache_verify, NULL, "read everything, explain each problem"},
    {"export", cli_cache_export, NULL, "a generation as one file"},
    {"import", cli_cache_import, NULL, "such a file, to review or to publish"},
    {"sign", cli_cache_sign, NULL, "sign a generation"},
    {"diff", cli_cache_diff, NULL, "what differs between two generations"},
    {"disable", cli_cache_disable, NULL, "ban keys; list what is banned"},
    {"enable", cli_cache_enable, NULL, "lift bans"},
    {"retime", cli_retime, NULL, "judge stale winners again: confirm or retire them"},
    {"gc", cli_cache_gc, NULL, "remove old generations, and what only they needed"},
    {0},
};
