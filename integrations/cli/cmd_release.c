/* kfit review, approve, rollback: from what was found to what servers load. */
#include <stdlib.h>
#include <string.h>

#include "held.h"
#include "signing.h"

static bool banned(struct kfit_store *s, const union kfit_key *key)
{
    void *why;
    size_t bytes;
    if (!s || kfit_store_get(s, KFIT_TABLE_BANS, key->bytes, key->h.len, &why, &bytes, NULL) != KFIT_OK)
        return false;
    free(why);
    return true;
}

/* A person looks at this list: a linear search is soon enough. */
static double share_of(const struct kfit_report *r, const struct kfit_record *record)
{
    for (size_t i = 0; i < r->count; i++)
        if (r->keys[i].env_hard == record->env_hard && kfit_key_equal(&r->keys[i].key, &record->key))
            return r->keys[i].share;
    return -1;
}

/* What publishing the staged record would do to the current generation. */
static const char *change(const struct kfit_record *staged, const struct kfit_record *now)
{
    bool winner = staged->kind == KFIT_RECORD_WINNER;
    if (!now)
        return winner ? "new" : "kept";
    if (kfit_record_same(staged, now))
        return NULL;
    return winner ? "replaces" : "withdraws";
}

static void show_waiting(void *ctx, const struct kfit_receipt *r)
{
    cJSON *list = ctx;
    char digest[65];
    kfit_hex(r->digest, 32, digest);
    if (list) {
        cJSON *o = cJSON_CreateObject();
        cJSON_AddStringToObject(o, "key", cli_key(&r->key));
        cJSON_AddStringToObject(o, "candidate", SAFE(r->name));
        cJSON_AddStringToObject(o, "code", kfit_code_str(r->code));
        cJSON_AddStringToObject(o, "digest", digest);
        cJSON_AddItemToArray(list, o);
    } else {
        printf("  %s %s\n      %s %s %s, source %.12s; look at it with `kfit cache show KEY`\n",
               kfit_code_str(r->code), cli_key(&r->key), SAFE(r->name), SAFE(r->knobs), SAFE(r->detail),
               digest);
    }
}

int cli_review(int argc, char **argv)
{
    const char *cache = NULL;
    bool json = false;
    struct cli_list traces = {0}, none = {0};
    struct cli_traces ts = {0};
    struct cli_outcome o;
    struct kfit_report report = {0};
    const struct cli_option options[] = {
        CLI_OPTION_CACHE(&cache),
        {"trace", 't', CLI_EACH, &traces, "TRACE", "show each key's share of the time recorded there"},
        CLI_OPTION_JSON(&json),
        {0},
    };
    cli_parse(
        argc, argv,
        &(struct cli_usage){.args = "",
                            .doc = "Lists what `kfit approve --all` would change, and candidates that only a "
                                   "person can decide about.",
                            .options = options},
        &none);
    if (traces.count && (!cli_traces_read(&ts, &traces) || !cli_traces_merge(&ts)))
        return CLI_FAILED;
    if (!cli_outcome_open(&o, cache, NULL, CLI_WANT_STORE) || !cli_outcome_report(&o, &ts, NULL, &report))
        return CLI_FAILED;
    cJSON *list = json ? cJSON_CreateArray() : NULL;
    size_t changes = 0, same = 0;
    for (size_t i = 0; i < o.staged.count; i++) {
        const struct kfit_record *r = &o.staged.item[i];
        const struct kfit_record *now = kfit_records_find(&o.published, r->env_hard, &r->key);
        const char *what = banned(o.store, &r->key) ? (now ? "withdraws" : NULL) : change(r, now);
        double share = share_of(&report, r);
        char ratio[48], env[KFIT_ENV_TEXT_MAX], part[16] = "-";
        if (!what) {
            same++;
            continue;
        }
        if (share >= 0)
            snprintf(part, sizeof part, "%.1f%%", 100 * share);
        if (json) {
            cJSON *e = cJSON_CreateObject();
            cJSON_AddStringToObject(e, "key", cli_key(&r->key));
            cJSON_AddStringToObject(e, "change", what);
            cJSON_AddStringToObject(e, "kind", r->kind == KFIT_RECORD_WINNER ? "winner" : "negative");
            cJSON_AddNumberToObject(e, "ratio", r->ratio);
            cJSON_AddNumberToObject(e, "lo", r->lo);
            cJSON_AddNumberToObject(e, "hi", r->hi);
            cJSON_AddStringToObject(e, "origin", SAFE(r->origin));
            cJSON_AddStringToObject(e, "environment",
                                    cli_safe(cli_outcome_env(&o, r->env_hard, env), sizeof env));
            if (share >= 0)
                cJSON_AddNumberToObject(e, "share", share);
            cJSON_AddItemToArray(list, e);
        } else {
            if (!changes)
                printf("%-9s %-19s %6s  %-20s %s\n", "CHANGE", "RATIO [95 %]", "SHARE", "ORIGIN", "KEY");
            printf("%-9s %-19s %6s  %-20s %s\n", what, cli_ratio(r->ratio, r->lo, r->hi, ratio), part,
                   SAFE(r->origin), cli_key(&r->key));
        }
        changes++;
    }
    cJSON *waiting = json ? cJSON_CreateArray() : NULL;
    size_t waits;
    int rc = cli_outcome_waiting(&o, NULL, show_waiting, waiting, &waits) ? CLI_OK : CLI_FAILED;
    if (json) {
        cJSON *root = cJSON_CreateObject();
        cJSON_AddItemToObject(root, "changes", list);
        cJSON_AddItemToObject(root, "waiting", waiting);
        cli_json_print(root);
    } else {
        cli_say("%zu to publish, %zu published already, %zu wait for a person%s", changes, same, waits,
                changes ? "; next: `kfit approve --all`" : "");
    }
    kfit_report_finish(&report);
    cli_outcome_close(&o);
    cli_traces_free(&ts);
    return rc;
}

/* Why a key, or the better candidate for it, is not taken over. */
static void say_waiting(void *ctx, const struct kfit_receipt *r)
{
    (void)ctx;
    cli_say(
        "%s: candidate %s %s waits for a person: %s (%s). It is not published, by whomever it is approved: "
        "find "
        "out why with `kfit cache show KEY`, then judge it again on an idle device with `kfit eval SOURCE "
        "--key KEY`; what is promoted then can be approved",
        cli_key(&r->key), SAFE(r->name), SAFE(r->knobs), kfit_code_str(r->code),
        r->detail[0] ? SAFE(r->detail) : "no detail");
}

struct approval {
    struct cli_outcome *o;
    double min_ratio;
    size_t added, withdrawn, banned, below;
};

/* Takes one staged record over into o->published. */
static enum kfit_status take(struct approval *a, const struct kfit_record *r, struct kfit_error *err)
{
    struct kfit_record *now = kfit_records_find(&a->o->published, r->env_hard, &r->key);
    if (banned(a->o->store, &r->key) || (now && kfit_record_same(r, now)))
        return KFIT_OK;
    if (r->kind == KFIT_RECORD_WINNER && r->ratio < a->min_ratio) {
        a->below++;
        return KFIT_OK;
    }
    *(r->kind == KFIT_RECORD_WINNER || !now ? &a->added : &a->withdrawn) += 1;
    return kfit_records_put(&a->o->published, r, err);
}

static void drop_banned(struct approval *a)
{
    struct kfit_records *p = &a->o->published;
    for (size_t i = p->count; i-- > 0;)
        if (banned(a->o->store, &p->item[i].key)) {
            kfit_records_remove(p, &p->item[i]);
            a->banned++;
        }
}

static bool env_text(const struct cli_outcome *o, uint64_t hash, char *to)
{
    return !hash || kfit_text_hash(cli_outcome_env(o, hash, to)) == hash;
}

/* The texts behind the hashes of the records, each pair once. */
static struct kfit_env *environments(const struct cli_outcome *o, size_t *count)
{
    const struct kfit_records *p = &o->published;
    struct kfit_env *envs = NULL;
    *count = 0;
    for (size_t i = 0; i < p->count; i++) {
        const struct kfit_record *r = &p->item[i];
        size_t k = 0;
        while (k < *count && (envs[k].hard_hash != r->env_hard || envs[k].soft_hash != r->env_soft))
            k++;
        if (k < *count)
            continue;
        envs = cli_alloc(envs, (*count + 1) * sizeof *envs);
        struct kfit_env *e = &envs[(*count)++];
        *e = (struct kfit_env){.hard_hash = r->env_hard, .soft_hash = r->env_soft};
        if (!env_text(o, r->env_hard, e->hard) || !env_text(o, r->env_soft, e->soft)) {
            cli_fail("%s: the environment of %s is not in the store; see `kfit cache verify`",
                     cli_str(o->dir), cli_key(&r->key));
            free(envs);
            return NULL;
        }
    }
    return envs ? envs : cli_alloc(NULL, sizeof *envs);
}

int cli_approve(int argc, char **argv)
{
    const char *cache = NULL, *note = NULL, *keyfile = NULL;
    bool all = false;
    struct approval a = {0};
    struct cli_list keys = {0};
    struct cli_outcome o;
    struct kfit_error err = {0};
    const struct cli_option options[] = {
        CLI_OPTION_CACHE(&cache),
        {"all", 'a', CLI_FLAG, &all, NULL, "everything that was found"},
        {"min-ratio", 'r', CLI_REAL, &a.min_ratio, "R", "only winners at least so many times as fast"},
        {"note", 'n', CLI_TEXT, &note, "TEXT", "why; kept in the manifest"},
        CLI_OPTION_SIGN(&keyfile),
        {0},
    };
    cli_parse(argc, argv,
              &(struct cli_usage){
                  .args = "KEY...",
                  .doc = "Publishes a new generation: the current one, with the named keys (or --all) as "
                         "they were last tuned. Servers load it when they next start.",
                  .options = options,
                  .max = CLI_ANY},
              &keys);
    if (all == (keys.count > 0))
        return cli_usage_error(argv, "name keys, or --all");
    union kfit_key *wanted = cli_alloc(NULL, keys.count * sizeof *wanted);
    for (size_t i = 0; i < keys.count; i++)
        if (kfit_key_parse(keys.item[i], &wanted[i], &err) != KFIT_OK)
            return cli_usage_error(argv, "%s: %s", cli_str(keys.item[i]), SAFE(err.text));
    if (!cli_outcome_open(&o, cache, NULL, CLI_WANT_STORE | CLI_WANT_IMAGES))
        return CLI_FAILED;

    int rc = CLI_FAILED;
    struct cli_signer signer;
    struct kfit_env *envs = NULL;
    size_t env_count;
    enum kfit_status s = KFIT_OK;
    a.o = &o;
    if (!cli_signer_open(&signer, keyfile, o.dir,
                         o.generation ? kfit_generation_manifest(o.generation) : NULL) ||
        o.published.bad)
        goto out; /* said; a copy without them would lose them */
    for (size_t i = 0; all && i < o.staged.count && s == KFIT_OK; i++)
        s = take(&a, &o.staged.item[i], &err);
    for (size_t k = 0; k < keys.count && s == KFIT_OK; k++) {
        bool any = false;
        for (size_t i = 0; i < o.staged.count && s == KFIT_OK; i++)
            if (kfit_key_equal(&o.staged.item[i].key, &wanted[k])) {
                any = true;
                s = take(&a, &o.staged.item[i], &err);
            }
        size_t waits = 0;
        if (s == KFIT_OK && !cli_outcome_waiting(&o, &wanted[k], say_waiting, NULL, &waits))
            goto out;
        if (!any && waits) {
            cli_fail("nothing is published");
            goto out;
        }
        if (!any) {
            cli_fail("%s: was not tuned here; nothing is published (`kfit review` lists what could be)",
                     cli_key(&wanted[k]));
            goto out;
        }
    }
    if (s == KFIT_OK)
        drop_banned(&a);
    if (s == KFIT_OK && !a.added && !a.withdrawn && !a.banned) {
        cli_say("nothing changes%s; generation %llu stays", a.below ? " (all below --min-ratio)" : "",
                o.generation ? (unsigned long long)kfit_generation_manifest(o.generation)->number : 0ull);
        rc = CLI_OK;
        goto out;
    }
    if (s == KFIT_OK && !(envs = environments(&o, &env_count)))
        goto out;
    uint64_t number = 0;
    if (s == KFIT_OK)
        s = kfit_generation_publish(&(struct kfit_publish_params){.dir = o.dir,
                                                                  .records = o.published.item,
                                                                  .count = o.published.count,
                                                                  .envs = envs,
                                                                  .env_count = env_count,
                                                                  .approver = cli_user(),
                                                                  .note = note,
                                                                  .sign = cli_signer_key(&signer)},
                                    &number, &err);
    if (s != KFIT_OK) {
        cli_failed(o.dir, s, &err);
        goto out;
    }
    size_t winners = 0;
    for (size_t i = 0; i < o.published.count; i++)
        winners += o.published.item[i].kind == KFIT_RECORD_WINNER;
    printf("generation %llu: %zu kernels, %zu keys kept with the original\n", (unsigned long long)number,
           winners, o.published.count - winners);
    cli_say("%zu taken over, %zu withdrawn, %zu banned taken out, %zu below --min-ratio; undo with `kfit "
            "rollback`",
            a.added, a.withdrawn, a.banned, a.below);
    cli_follow(o.dir);
    rc = CLI_OK;
out:
    cli_signer_close(&signer);
    free(envs);
    free(wanted);
    cli_outcome_close(&o);
    return rc;
}

int cli_rollback(int argc, char **argv)
{
    const char *cache = NULL;
    struct cli_list args = {0};
    struct kfit_error err = {0};
    char dir[4096], *end = NULL;
    uint64_t now = 0, numbers[4096], to = 0;
    const struct cli_option options[] = {CLI_OPTION_CACHE(&cache), {0}};
    cli_parse(
        argc, argv,
        &(struct cli_usage){.args = "[N]",
                            .doc = "Makes generation N (default: the one before the current) current again.",
                            .options = options,
                            .max = 1},
        &args);
    if (args.count && ((to = strtoull(args.item[0], &end, 10)) == 0 || *end || *args.item[0] == '-'))
        return cli_usage_error(argv, "\"%s\" is not the number of a generation", cli_str(args.item[0]));
    cli_cache_dir(cache, dir, sizeof dir);
    enum kfit_status s = kfit_generation_current(dir, &now, (uint8_t[32]){0}, &err);
    size_t n = kfit_generation_list(dir, numbers, sizeof numbers / sizeof *numbers);
    if (!args.count) {
        if (s != KFIT_OK)
            return cli_failed(dir, s, &err);
        for (size_t i = 0; i < n && i < sizeof numbers / sizeof *numbers; i++)
            if (numbers[i] < now)
                to = numbers[i];
        if (!to)
            return cli_fail("%s: there is no generation before %llu; `kfit off` stops replacing calls",
                            cli_str(dir), (unsigned long long)now);
    }
    s = kfit_generation_make_current(dir, to, &err);
    if (s != KFIT_OK)
        return cli_failed(dir, s, &err);
    printf("generation %llu is current (was %llu)\n", (unsigned long long)to, (unsigned long long)now);
    cli_say("servers take it when they next start; `kfit off` stops running ones");
    cli_follow(dir);
    return CLI_OK;
}
