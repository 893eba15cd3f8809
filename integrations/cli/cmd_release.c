/* kfit approve, rollback: from what was found to what servers load, and back. */
#include <stdlib.h>
#include <string.h>

#include "policy.h"
#include "release.h"

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

/* Keeps of the changes those of the named keys, and what bans take out. False after a message: a key of which nothing
 * is known. */
static bool only_named(struct cli_release *r, const struct cli_keys *keys)
{
    for (size_t k = 0; k < keys->count; k++) {
        const union kfit_key *key = &keys->item[k];
        const struct cli_ban *ban = cli_bans_find(&r->bans, key);
        size_t waits = 0;
        bool any = false;
        for (size_t i = 0; i < r->o.staged.count && !any; i++)
            any = kfit_key_equal(&r->o.staged.item[i].key, key);
        if (ban)
            cli_say("%s is %s; it is not published (`kfit cache enable KEY` lifts the ban)", cli_key(key),
                    cli_ban_text(ban));
        if (!cli_outcome_waiting(&r->o, key, say_waiting, NULL, &waits))
            return false;
        if (any || ban)
            continue;
        if (waits)
            return !cli_fail("nothing is published");
        return !cli_fail("%s: was not tuned here; nothing is published (`kfit review` lists what could be)",
                         cli_key(key));
    }
    struct cli_changes *c = &r->changes;
    size_t n = 0;
    for (size_t i = 0; i < c->count; i++) {
        bool named = c->item[i].ban != NULL;
        for (size_t k = 0; k < keys->count && !named; k++)
            named = kfit_key_equal(&keys->item[k], cli_change_key(&c->item[i]));
        if (named)
            c->item[n++] = c->item[i];
    }
    c->count = n;
    return true;
}

/* One by one, from the standard input. False when it ends before the last answer: nobody decided. */
static bool ask(struct cli_changes *c)
{
    char *line = NULL, answer = 0;
    size_t room = 0;
    bool ok = true;
    for (size_t i = 0; i < c->count && ok; i++) {
        struct cli_change *one = &c->item[i];
        if (one->left[0] || one->ban)
            continue;
        while (answer != 'a' && answer != 'q') {
            cli_change_print(one, false, false);
            fflush(stdout);
            fputs("take it? y: yes, n: no, a: this and all that follow, q: neither this nor what follows: ",
                  stderr);
            if (getline(&line, &room, stdin) < 0) {
                ok = false;
                break;
            }
            answer = line[0];
            if (strchr("ynaq", answer) && answer)
                break;
        }
        if (answer == 'n' || answer == 'q')
            snprintf(one->left, sizeof one->left, "declined");
    }
    free(line);
    return ok || !cli_fail("the answers ended before the questions did; nothing is published");
}

/* What comes of the published records; what is taken over gets its approver. */
static bool apply(const struct cli_release *r, struct kfit_records *next)
{
    struct kfit_error err = {0};
    enum kfit_status s = KFIT_OK;
    const struct kfit_records *now = &r->o.published;
    for (size_t i = 0; i < now->count && s == KFIT_OK; i++)
        s = kfit_records_put(next, &now->item[i], &err);
    for (size_t i = 0; i < r->changes.count && s == KFIT_OK; i++) {
        const struct cli_change *c = &r->changes.item[i];
        if (c->left[0])
            continue;
        if (!c->to) {
            kfit_records_remove(next, kfit_records_find(next, c->from->env_hard, &c->from->key));
            continue;
        }
        struct kfit_record taken = *c->to;
        snprintf(taken.approver, sizeof taken.approver, "%s", cli_user());
        s = kfit_records_put(next, &taken, &err);
    }
    return s == KFIT_OK || !cli_failed(r->o.dir, s, &err);
}

struct tally {
    size_t taken, withdrawn, banned, left, kernels;
};

static struct tally count(const struct cli_changes *c, const struct kfit_records *next)
{
    struct tally t = {0};
    for (size_t i = 0; i < c->count; i++) {
        const struct cli_change *one = &c->item[i];
        *(one->left[0]                        ? &t.left
          : one->ban                          ? &t.banned
          : one->kind == CLI_CHANGE_WITHDRAWS ? &t.withdrawn
                                              : &t.taken) += 1;
    }
    for (size_t i = 0; i < next->count; i++)
        t.kernels += next->item[i].kind == KFIT_RECORD_WINNER;
    return t;
}

static unsigned long long current_number(const struct cli_outcome *o)
{
    return o->generation ? kfit_generation_manifest(o->generation)->number : 0;
}

/* What was decided, for people: all of it before anything is published, else only what stays out. */
static void print_decisions(const struct cli_release *r, bool all)
{
    size_t shown = 0;
    for (size_t i = 0; i < r->changes.count; i++)
        if (all || r->changes.item[i].left[0])
            cli_change_print(&r->changes.item[i], !shown++, true);
}

static int decide(struct cli_release *r, const char *note, const char *keyfile, bool dry_run, bool json)
{
    struct kfit_records next = {0};
    uint64_t number = 0;
    int rc = CLI_FAILED;
    if (!apply(r, &next))
        goto out;
    struct tally t = count(&r->changes, &next);
    bool changes = t.taken || t.withdrawn || t.banned;
    if (!json)
        print_decisions(r, dry_run);
    if (changes && !dry_run && !cli_publish(&r->o, &next, note, 0, keyfile, &number))
        goto out;
    rc = CLI_OK;
    if (json) {
        cJSON *root = cJSON_CreateObject(), *list = cJSON_AddArrayToObject(root, "changes");
        for (size_t i = 0; i < r->changes.count; i++)
            cJSON_AddItemToArray(list, cli_change_json(&r->changes.item[i], &r->o));
        if (number)
            cJSON_AddNumberToObject(root, "generation", (double)number);
        else
            cJSON_AddNullToObject(root, "generation");
        cJSON_AddNumberToObject(root, "was", (double)current_number(&r->o));
        cJSON_AddBoolToObject(root, "dry_run", dry_run);
        cJSON_AddNumberToObject(root, "kernels", (double)t.kernels);
        cJSON_AddNumberToObject(root, "kept", (double)(next.count - t.kernels));
        cJSON_AddStringToObject(root, "approver", cli_user());
        cli_release_add_gain(root, r);
        cli_json_print(root);
    } else if (number) {
        printf("generation %llu: %zu kernels, %zu keys kept with the original\n", (unsigned long long)number,
               t.kernels, next.count - t.kernels);
    }
    if (!changes) {
        cli_say("nothing changes%s; generation %llu stays", t.left ? ": all is left out" : "",
                current_number(&r->o));
    } else {
        cli_release_say_gain(r);
        cli_say("%s%zu taken over, %zu withdrawn, %zu banned taken out, %zu left out%s",
                dry_run ? "nothing is published; would be: " : "", t.taken, t.withdrawn, t.banned, t.left,
                dry_run ? "" : "; undo with `kfit rollback`");
    }
out:
    kfit_records_finish(&next);
    return rc;
}

int cli_approve(int argc, char **argv)
{
    const char *cache = NULL, *note = NULL, *policy = NULL, *file = NULL, *keyfile = NULL;
    bool all = false, one_by_one = false, dry_run = false, json = false;
    struct cli_rules rules = {0}, written = {0};
    struct cli_list args = {0}, traces = {0};
    struct cli_keys keys = {0};
    struct cli_release r = {0};
    struct kfit_error err = {0};
    const struct cli_option options[] = {
        CLI_OPTION_CACHE(&cache),
        {"all", 'a', CLI_FLAG, &all, NULL, "everything that was found"},
        {"keys", 'f', CLI_TEXT, &file, "FILE", "the keys in this file, one a line, # begins a comment"},
        {"ask", 'i', CLI_FLAG, &one_by_one, NULL, "ask about each"},
        {"policy", 'p', CLI_TEXT, &policy, "FILE",
         "what satisfies these rules (JSON): min_ratio, min_share_percent, origins, max_keys"},
        {"min-ratio", 'r', CLI_REAL, &rules.min_ratio, "R",
         "only winners at least so many times as fast as the original, by the lower end of their interval"},
        {"min-share", 0, CLI_REAL, &rules.min_share_percent, "PERCENT",
         "only winners whose key takes so much of the recorded time"},
        {"origin", 'o', CLI_EACH, &rules.origins, "ORIGIN",
         "only winners from there: seed:*, person:NAME ...; may be repeated"},
        {"max-keys", 'm', CLI_COUNT, &rules.max_keys, "N",
         "at most N new or replaced kernels, those that bring most first"},
        {"trace", 't', CLI_EACH, &traces, "TRACE", "weigh by the calls recorded there"},
        {"note", 'n', CLI_TEXT, &note, "TEXT", "why; kept in the manifest"},
        {"dry-run", 'd', CLI_FLAG, &dry_run, NULL, "say what would be published, and publish nothing"},
        CLI_OPTION_SIGN(&keyfile),
        CLI_OPTION_JSON(&json),
        {0},
    };
    cli_parse(
        argc, argv,
        &(struct cli_usage){
            .args = "KEY...",
            .doc = "Publishes a new generation: the current one, with the named keys (or --all, or what a "
                   "policy lets in) as they were last tuned. Rules given as options and in a policy add up. "
                   "Bans always take effect. Servers load it when they next start.",
            .options = options,
            .max = CLI_ANY},
        &args);
    bool named = args.count || file;
    if (all ? named : !named && !policy && !one_by_one)
        return cli_usage_error(argv, "name keys, or --all, --policy FILE or --ask");
    for (size_t i = 0; i < args.count; i++)
        if (!cli_keys_add(&keys, args.item[i], &err))
            return cli_usage_error(argv, "%s: %s", cli_str(args.item[i]), SAFE(err.text));
    for (size_t i = 0; i < rules.origins.count; i++)
        if (!cli_origin_pattern(rules.origins.item[i]))
            return cli_usage_error(argv, "--origin: \"%s\" is no origin: a * can only be its last character",
                                   cli_str(rules.origins.item[i]));
    if ((file && !cli_keys_read(&keys, file)) || (policy && !cli_rules_read(&written, policy)))
        return CLI_FAILED;
    bool shares = cli_rules_need_shares(&rules) || cli_rules_need_shares(&written);
    if (!cli_release_open(&r, cache, &traces, shares, CLI_WANT_STORE | CLI_WANT_IMAGES))
        return CLI_FAILED;
    int rc = CLI_FAILED;
    if (r.o.published.bad) /* said; a copy without them would lose them */
        goto out;
    if (shares && !r.report.calls) {
        cli_fail("a rule is about shares of the recorded time, and no calls are recorded; name traces with "
                 "--trace");
        goto out;
    }
    if (named && !only_named(&r, &keys))
        goto out;
    cli_rules_apply(&rules, &r.changes);
    cli_rules_apply(&written, &r.changes);
    if (!one_by_one || ask(&r.changes))
        rc = decide(&r, note, keyfile, dry_run, json);
out:
    free(keys.item);
    cli_release_close(&r);
    return rc;
}

/* ---- rollback ---- */

/* The one to go back to, without being told: before the current one, or before the one that it repeats, so that going
 * back twice goes back two. 0 after a message. */
static uint64_t before_current(const char *dir)
{
    enum { GENERATIONS_MAX = 4096 };
    static uint64_t numbers[GENERATIONS_MAX];
    struct kfit_error err = {0};
    struct kfit_manifest m;
    uint64_t now, to = 0;
    uint8_t sha256[32];
    enum kfit_status s = kfit_generation_current(dir, &now, sha256, &err);
    if (s != KFIT_OK)
        return cli_failed(dir, s, &err), 0;
    uint64_t from = kfit_manifest_read(dir, now, &m, NULL) == KFIT_OK && m.republishes && m.republishes < now
                        ? m.republishes
                        : now;
    size_t n = kfit_generation_list(dir, numbers, GENERATIONS_MAX);
    for (size_t i = 0; i < n && i < GENERATIONS_MAX; i++)
        if (numbers[i] < from)
            to = numbers[i];
    if (!to)
        cli_fail("%s: there is no generation before %llu; `kfit off` stops replacing calls", cli_str(dir),
                 (unsigned long long)from);
    return to;
}

/* Takes out of the records what is banned, and says so. */
static size_t drop_banned(struct kfit_records *records, const struct cli_bans *bans)
{
    size_t n = 0;
    for (size_t i = records->count; i-- > 0;) {
        const struct cli_ban *ban = cli_bans_find(bans, &records->item[i].key);
        if (!ban)
            continue;
        cli_say("%s is %s; it is left out", cli_key(&records->item[i].key), cli_ban_text(ban));
        kfit_records_remove(records, &records->item[i]);
        n++;
    }
    return n;
}

int cli_rollback(int argc, char **argv)
{
    const char *cache = NULL, *note = NULL, *keyfile = NULL;
    bool dry_run = false, json = false;
    struct cli_list args = {0};
    struct cli_outcome o = {0};
    struct cli_bans bans = {0};
    char dir[4096], which[72], text[128];
    const struct cli_option options[] = {
        CLI_OPTION_CACHE(&cache),
        {"note", 'n', CLI_TEXT, &note, "TEXT", "why; kept in the manifest"},
        {"dry-run", 'd', CLI_FLAG, &dry_run, NULL, "say what would be published, and publish nothing"},
        CLI_OPTION_SIGN(&keyfile),
        CLI_OPTION_JSON(&json),
        {0},
    };
    cli_parse(
        argc, argv,
        &(struct cli_usage){
            .args = "[GENERATION]",
            .doc =
                "Publishes what an earlier generation held (a number or digest; default: the one before the "
                "current) as a new one. Keys banned since then stay out.",
            .options = options,
            .max = 1},
        &args);
    cli_cache_dir(cache, dir, sizeof dir);
    if (args.count) {
        size_t n = strlen(args.item[0]);
        bool digest = n == 64 && strspn(args.item[0], "0123456789abcdef") == n;
        if (!digest && (strspn(args.item[0], "0123456789") != n || !n || n > 18 || *args.item[0] == '0'))
            return cli_usage_error(argv, "\"%s\" is neither the number of a generation nor its digest",
                                   cli_str(args.item[0]));
        snprintf(which, sizeof which, "%s", args.item[0]);
    } else {
        uint64_t to = before_current(dir);
        if (!to)
            return CLI_FAILED;
        snprintf(which, sizeof which, "%llu", (unsigned long long)to);
    }
    struct kfit_error err = {0};
    uint64_t now = 0, number = 0;
    uint8_t current[32] = {0};
    int rc = CLI_FAILED;
    /* a current one that cannot be read is what rollback is for */
    enum kfit_status s = kfit_generation_current(dir, &now, current, &err);
    if (s != KFIT_OK)
        cli_failed(dir, s, &err);
    if (!cli_outcome_open(&o, cache, which, CLI_WANT_GENERATION | CLI_WANT_IMAGES))
        return cli_fail("nothing is published; `kfit off` stops replacing calls at once");
    const struct kfit_manifest *m = kfit_generation_manifest(o.generation);
    if (!cli_bans_read(&bans, o.store))
        goto out;
    if (o.published.bad) { /* said */
        cli_fail("generation %llu is damaged; nothing is published", (unsigned long long)m->number);
        goto out;
    }
    size_t banned = drop_banned(&o.published, &bans);
    bool same = !banned && !memcmp(m->sha256, current, sizeof current);
    snprintf(text, sizeof text, "%s", note ? note : "");
    if (!note)
        snprintf(text, sizeof text, "rollback to generation %llu", (unsigned long long)m->number);
    if (!same && !dry_run && !cli_publish(&o, &o.published, text, m->number, keyfile, &number))
        goto out;
    rc = CLI_OK;
    if (json) {
        cJSON *root = cJSON_CreateObject();
        if (number)
            cJSON_AddNumberToObject(root, "generation", (double)number);
        else
            cJSON_AddNullToObject(root, "generation");
        cJSON_AddNumberToObject(root, "republishes", (double)m->number);
        cJSON_AddNumberToObject(root, "was", (double)now);
        cJSON_AddNumberToObject(root, "banned", (double)banned);
        cJSON_AddBoolToObject(root, "dry_run", dry_run);
        cli_json_print(root);
    } else if (number) {
        printf("generation %llu is current (was %llu): what generation %llu held%s\n",
               (unsigned long long)number, (unsigned long long)now, (unsigned long long)m->number,
               banned ? ", without banned keys" : "");
    }
    if (same)
        cli_say("nothing changes: generation %llu holds what generation %llu held", (unsigned long long)now,
                (unsigned long long)m->number);
    else if (dry_run)
        cli_say(
            "nothing is published; generation %llu would be, %zu records; `kfit cache diff %llu` lists the "
            "differences",
            (unsigned long long)m->number, o.published.count, (unsigned long long)m->number);
    else
        cli_say("servers take it when they next start; `kfit off` stops running ones");
out:
    cli_bans_free(&bans);
    cli_outcome_close(&o);
    return rc;
}
