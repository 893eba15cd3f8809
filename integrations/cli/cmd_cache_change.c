/* kfit cache diff, disable, enable, and cache ls --generations: which generations there are, what differs, what is
 * banned. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cache.h"
#include "changes.h"
#include "graphs.h"

enum { GENERATIONS_MAX = 4096 };

/* ---- generations ---- */

int cli_cache_generations(const char *dir, bool json)
{
    static uint64_t numbers[GENERATIONS_MAX];
    struct kfit_error err = {0};
    uint64_t current = 0;
    uint8_t sha256[32];
    int rc = CLI_OK;
    enum kfit_status s = kfit_generation_current(dir, &current, sha256, &err);
    if (s == KFIT_E_NOTFOUND)
        return cli_fail("%s: nothing is published here; run `kfit approve`", cli_str(dir));
    if (s != KFIT_OK)
        rc = cli_failed(dir, s, &err);
    size_t n = kfit_generation_list(dir, numbers, GENERATIONS_MAX);
    cJSON *list = json ? cJSON_CreateArray() : NULL;
    if (!json)
        printf("  %6s %8s  %-19s %-12s %-16s %s\n", "NUMBER", "RECORDS", "PUBLISHED", "BY", "SHA256", "NOTE");
    for (size_t i = 0; i < n && i < GENERATIONS_MAX; i++) {
        struct kfit_manifest m;
        char digest[65];
        s = kfit_manifest_read(dir, numbers[i], &m, &err);
        if (s != KFIT_OK) {
            rc = cli_failed(NULL, s, &err);
            continue;
        }
        kfit_hex(m.sha256, 32, digest);
        if (json) {
            cJSON *o = cJSON_CreateObject();
            cJSON_AddNumberToObject(o, "number", (double)m.number);
            cJSON_AddBoolToObject(o, "current", m.number == current);
            cJSON_AddStringToObject(o, "sha256", digest);
            cJSON_AddNumberToObject(o, "records", (double)m.records);
            cJSON_AddNumberToObject(o, "created_unix", (double)m.created_unix_s);
            cJSON_AddStringToObject(o, "approver", SAFE(m.approver));
            cJSON_AddStringToObject(o, "note", SAFE(m.note));
            cJSON_AddNumberToObject(o, "republishes", (double)m.republishes);
            cJSON_AddItemToArray(list, o);
        } else {
            printf("%c %6llu %8llu  %-19s %-12s %.16s %s\n", m.number == current ? '*' : ' ',
                   (unsigned long long)m.number, (unsigned long long)m.records, cli_when(m.created_unix_s),
                   SAFE(m.approver), digest, SAFE(m.note));
        }
    }
    return json && cli_json_print(list) ? CLI_FAILED : rc;
}

/* ---- diff ---- */

int cli_cache_diff(int argc, char **argv)
{
    const char *cache = NULL;
    bool json = false;
    struct cli_list args = {0};
    struct cli_outcome sides[2] = {{.dir = ""}};
    struct cli_changes changes = {0};
    size_t counts[CLI_CHANGE_KINDS] = {0};
    unsigned long long numbers[2];
    int rc = CLI_FAILED, opened = 0;
    const struct cli_option options[] = {CLI_OPTION_CACHE(&cache), CLI_OPTION_JSON(&json), {0}};
    cli_parse(argc, argv,
              &(struct cli_usage){.args = "GENERATION [GENERATION]",
                                  .doc = "Lists what the second generation (a number or digest; default: the "
                                         "current one) has, lacks or "
                                         "has otherwise, seen from the first.",
                                  .options = options,
                                  .min = 1,
                                  .max = 2},
              &args);
    for (; opened < 2; opened++) {
        const char *which = opened < (int)args.count ? args.item[opened] : NULL;
        if (!cli_outcome_open(&sides[opened], cache, which, CLI_WANT_GENERATION | CLI_NO_STORE))
            goto out;
        numbers[opened] = kfit_generation_manifest(sides[opened].generation)->number;
    }
    cli_changes_find(&changes, &sides[0].published, &sides[1].published, true, NULL);
    cJSON *list = json ? cJSON_CreateArray() : NULL;
    for (size_t i = 0; i < changes.count; i++) {
        const struct cli_change *c = &changes.item[i];
        counts[c->kind]++;
        if (json)
            cJSON_AddItemToArray(list, cli_change_json(c, &sides[c->to != NULL]));
        else
            cli_change_print(c, !i, false);
    }
    rc = sides[0].published.bad || sides[1].published.bad ? CLI_FAILED : CLI_OK;
    if (json) {
        cJSON *root = cJSON_CreateObject();
        cJSON_AddNumberToObject(root, "from", (double)numbers[0]);
        cJSON_AddNumberToObject(root, "to", (double)numbers[1]);
        cJSON_AddItemToObject(root, "changes", list);
        cJSON_AddNumberToObject(root, "same", (double)changes.same);
        cli_json_print(root);
    } else {
        cli_say("generation %llu to %llu: %zu new, %zu replaced, %zu confirmed, %zu withdrawn, %zu same",
                numbers[0], numbers[1], counts[CLI_CHANGE_NEW], counts[CLI_CHANGE_REPLACES],
                counts[CLI_CHANGE_CONFIRMS], counts[CLI_CHANGE_WITHDRAWS], changes.same);
    }
out:
    cli_changes_free(&changes);
    for (int i = 0; i < 2 && i <= opened; i++)
        cli_outcome_close(&sides[i]);
    return rc;
}

/* ---- bans ---- */

static void show_bans(const struct cli_bans *bans, bool json)
{
    cJSON *list = json ? cJSON_CreateArray() : NULL;
    for (size_t i = 0; i < bans->count; i++) {
        const struct cli_ban *b = &bans->item[i];
        if (!json) {
            printf("%s\n    %s\n", cli_key(&b->key), cli_ban_text(b));
            continue;
        }
        cJSON *o = cJSON_CreateObject();
        cJSON_AddStringToObject(o, "key", cli_key(&b->key));
        cJSON_AddStringToObject(o, "by", SAFE(b->by));
        cJSON_AddNumberToObject(o, "when_unix", (double)b->when_unix_s);
        cJSON_AddStringToObject(o, "why", SAFE(b->why));
        cJSON_AddItemToArray(list, o);
    }
    if (json)
        cli_json_print(list);
    else
        cli_say("%zu keys are banned", bans->count);
}

static bool published(const struct cli_outcome *o, const union kfit_key *key)
{
    for (size_t i = 0; i < o->published.count; i++)
        if (o->published.item[i].kind == KFIT_RECORD_WINNER && kfit_key_equal(&o->published.item[i].key, key))
            return true;
    return false;
}

/* What a ban does not do by itself. */
static void say_still_published(const struct cli_outcome *o, const struct cli_keys *keys)
{
    for (size_t i = 0; i < keys->count; i++) {
        if (published(o, &keys->item[i]))
            cli_say(
                "generation %llu still holds a kernel for %s, until the next `kfit approve`: with that KEY "
                "alone it "
                "only takes banned keys out; `kfit off` stops running processes now, KFIT_BAN=KEY new ones",
                (unsigned long long)kfit_generation_manifest(o->generation)->number, cli_key(&keys->item[i]));
        cli_graphs_say_all(&keys->item[i]);
    }
}

static enum kfit_status ban_all(struct kfit_store *store, const struct cli_keys *keys, const char *why,
                                struct kfit_error *err)
{
    enum kfit_status s = KFIT_OK;
    for (size_t i = 0; i < keys->count && s == KFIT_OK; i++) {
        struct cli_ban ban = {.key = keys->item[i], .when_unix_s = (int64_t)time(NULL)};
        snprintf(ban.by, sizeof ban.by, "%s", cli_user());
        snprintf(ban.why, sizeof ban.why, "%s", why ? cli_str(why) : "");
        s = cli_ban_put(store, &ban, err);
        if (s == KFIT_OK)
            cli_say("%s is %s", cli_key(&ban.key), cli_ban_text(&ban));
    }
    return s;
}

static enum kfit_status lift_all(struct kfit_store *store, const struct cli_bans *bans,
                                 const struct cli_keys *keys, struct kfit_error *err)
{
    enum kfit_status s = KFIT_OK;
    for (size_t i = 0; i < keys->count && s == KFIT_OK; i++) {
        const struct cli_ban *ban = cli_bans_find(bans, &keys->item[i]);
        if (!ban) {
            cli_say("%s was not banned", cli_key(&keys->item[i]));
            continue;
        }
        s = cli_ban_remove(store, &ban->key, err);
        if (s == KFIT_OK)
            cli_say("%s is no longer %s; `kfit approve` publishes it again", cli_key(&ban->key),
                    cli_ban_text(ban));
    }
    return s;
}

static int set_bans(int argc, char **argv, bool off, const char *doc)
{
    const char *cache = NULL, *why = NULL, *file = NULL;
    bool json = false;
    struct cli_list args = {0};
    struct cli_keys keys = {0};
    struct cli_outcome o = {0};
    struct cli_bans bans = {0};
    struct kfit_error err = {0};
    int rc = CLI_FAILED;
    const struct cli_option options[] = {
        CLI_OPTION_CACHE(&cache),
        {"keys", 'f', CLI_TEXT, &file, "FILE", "the keys in this file, one a line, # begins a comment"},
        CLI_OPTION_JSON(&json),
        {off ? "reason" : NULL, 'r', CLI_TEXT, &why, "TEXT", "why; kept with the ban"},
        {0},
    };
    cli_parse(argc, argv,
              &(struct cli_usage){
                  .args = off ? "[KEY...]" : "KEY...", .doc = doc, .options = options, .max = CLI_ANY},
              &args);
    for (size_t i = 0; i < args.count; i++)
        if (!cli_keys_add(&keys, args.item[i], &err))
            return cli_usage_error(argv, "%s: %s", cli_str(args.item[i]), SAFE(err.text));
    if (file && !cli_keys_read(&keys, file))
        return CLI_FAILED;
    if (!keys.count && !off)
        return cli_usage_error(argv, "name keys; `kfit cache disable` lists those that are banned");
    if (!cli_outcome_open(&o, cache, NULL, CLI_WANT_STORE | (keys.count ? CLI_WANT_WRITE : 0))) {
        if (keys.count)
            cli_fail("no ban is changed; meanwhile KFIT_BAN=KEY keeps a key out of new processes, and `kfit "
                     "off` stops "
                     "all");
        goto out;
    }
    if (!cli_bans_read(&bans, o.store))
        goto out;
    enum kfit_status s = !keys.count ? KFIT_OK
                         : off       ? ban_all(o.store, &keys, why, &err)
                                     : lift_all(o.store, &bans, &keys, &err);
    if (s != KFIT_OK) {
        cli_failed(o.dir, s, &err);
        goto out;
    }
    if (off)
        say_still_published(&o, &keys);
    if (!keys.count || json) {
        cli_bans_free(&bans);
        if (!cli_bans_read(&bans, o.store))
            goto out;
        show_bans(&bans, json);
    }
    rc = CLI_OK;
out:
    free(keys.item);
    cli_bans_free(&bans);
    cli_outcome_close(&o);
    return rc;
}

int cli_cache_disable(int argc, char **argv)
{
    return set_bans(
        argc, argv, true,
        "Bans keys: the next `kfit approve` takes their kernels out, and none comes in, until `kfit cache "
        "enable`. Without KEY, lists what is banned, by whom, when and why.");
}

int cli_cache_enable(int argc, char **argv)
{
    return set_bans(argc, argv, false, "Lifts bans. The next `kfit approve` may publish the keys again.");
}
