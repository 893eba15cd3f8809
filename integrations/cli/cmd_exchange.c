/* kfit cache export, import: one generation as one file, to another cache and from one. */
#include <stdlib.h>
#include <string.h>

#include "kfit/exchange.h"
#include "signing.h"

/* "128 records", "1 record" */
static const char *count_of(size_t n, const char *what)
{
    static char text[4][64];
    static unsigned turn;
    char *t = text[turn++ % 4];
    snprintf(t, sizeof text[0], "%zu %s%s", n, what, n == 1 ? "" : "s");
    return t;
}

int cli_cache_export(int argc, char **argv)
{
    const char *cache = NULL;
    struct cli_list args = {0};
    struct kfit_generation *g;
    struct kfit_error err = {0};
    char dir[4096];
    const struct cli_option options[] = {CLI_OPTION_CACHE(&cache), {0}};
    cli_parse(
        argc, argv,
        &(struct cli_usage){.args = "GENERATION FILE",
                            .doc = "Writes a generation (number, digest, or \"current\"), its manifest and "
                                   "its signature to one new file, for `kfit cache import`.",
                            .options = options,
                            .min = 2,
                            .max = 2},
        &args);
    cli_cache_dir(cache, dir, sizeof dir);
    const char *which = strcmp(args.item[0], "current") ? args.item[0] : NULL;
    enum kfit_status s = kfit_generation_open_trusted(dir, which, cli_trust(), &g, &err);
    if (s == KFIT_E_ARG)
        return cli_usage_error(argv, "%s", SAFE(err.text));
    if (s != KFIT_OK)
        return cli_failed(dir, s, &err);
    const struct kfit_manifest m = *kfit_generation_manifest(g);
    s = kfit_generation_export(g, args.item[1], &err);
    kfit_generation_close(g);
    if (s != KFIT_OK)
        return cli_failed(NULL, s, &err);
    printf("generation %llu: %s, %s\n", (unsigned long long)m.number, count_of(m.records, "record"),
           cli_signature(&m));
    return CLI_OK;
}

/* ---- import ---- */

struct content {
    struct kfit_records records;
    struct kfit_env *envs;
    size_t env_count;
};

static bool env_text(void *g, uint64_t hash, char *to)
{
    return kfit_generation_env(g, hash, to);
}

static bool read_content(struct content *c, struct kfit_generation *g, const char *path)
{
    struct kfit_error err = {0};
    enum kfit_status s = kfit_records_published(&c->records, g, true, &err);
    if (s != KFIT_OK) {
        cli_failed(path, s, &err);
        return false;
    }
    const struct kfit_record *unknown;
    c->envs = cli_envs(&c->records, env_text, g, &c->env_count, &unknown);
    if (unknown) {
        cli_fail("%s: the environment of %s is not in it; export it again from a cache that verifies",
                 cli_str(path), cli_key(&unknown->key));
        return false;
    }
    return true;
}

static void content_finish(struct content *c)
{
    kfit_records_finish(&c->records);
    free(c->envs);
}

/* Whether a host environment can be this machine's, whatever its threads: other devices are not asked. */
static bool is_foreign(const struct kfit_env *e)
{
    static const char *const names[] = {"isa", "model"};
    struct kfit_env here;
    char ours[KFIT_ENV_TEXT_MAX], theirs[KFIT_ENV_TEXT_MAX];
    if (!kfit_env_get(e->hard, "device", theirs, sizeof theirs) || strcmp(theirs, "host"))
        return false;
    kfit_env_host(&here, 1, NULL, NULL);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (kfit_env_get(e->hard, names[i], theirs, sizeof theirs) &&
            kfit_env_get(here.hard, names[i], ours, sizeof ours) && strcmp(ours, theirs))
            return true;
    return false;
}

/* For which machines it is; returns whether all of it is for others than this. */
static bool say_environments(const struct content *c)
{
    size_t foreign = 0;
    for (size_t i = 0; i < c->env_count; i++) {
        size_t n = 0;
        bool listed = false;
        for (size_t k = 0; k < i; k++)
            listed |= c->envs[k].hard_hash == c->envs[i].hard_hash;
        for (size_t k = 0; k < c->records.count; k++)
            n += c->records.item[k].env_hard == c->envs[i].hard_hash;
        foreign += is_foreign(&c->envs[i]);
        if (!listed)
            cli_say("%s for %s%s", count_of(n, "record"), SAFE(c->envs[i].hard),
                    is_foreign(&c->envs[i]) ? ", which is not this machine" : "");
    }
    return c->env_count && foreign == c->env_count;
}

static int stage(const char *dir, const struct content *c, bool replace)
{
    struct kfit_store *store;
    struct kfit_error err = {0};
    size_t staged = 0;
    enum kfit_status s = kfit_store_open(dir, KFIT_STORE_WRITE, &store, &err);
    if (s != KFIT_OK)
        return cli_failed(dir, s, &err);
    s = kfit_store_stage_all(store,
                             &(struct kfit_stage_params){.records = c->records.item,
                                                         .count = c->records.count,
                                                         .envs = c->envs,
                                                         .env_count = c->env_count,
                                                         .replace = replace},
                             &staged, &err);
    kfit_store_close(store);
    if (s != KFIT_OK)
        return cli_failed(dir, s, &err);
    printf("%s staged\n", count_of(staged, "record"));
    if (staged < c->records.count)
        cli_say("%s tuned here already and left as they are; --replace takes the file's",
                count_of(c->records.count - staged, "key"));
    cli_say("nothing is published: look at it with `kfit review`, then `kfit approve`; or import it with "
            "--approve as it is");
    return CLI_OK;
}

static int publish(const struct kfit_import_params *p, const char *keyfile)
{
    struct kfit_import_params with_key = *p;
    const struct kfit_manifest *m = kfit_generation_manifest(p->from);
    struct cli_signer signer = {0};
    struct kfit_error err = {0};
    enum kfit_imported how;
    uint64_t number = 0;
    if (keyfile && !cli_signer_open(&signer, keyfile, p->dir, NULL))
        return CLI_FAILED;
    with_key.sign = cli_signer_key(&signer);
    enum kfit_status s = kfit_generation_import(&with_key, &number, &how, &err);
    cli_signer_close(&signer);
    if (s != KFIT_OK)
        return cli_failed(p->dir, s, &err);
    const unsigned long long n = number;
    if (how == KFIT_IMPORTED)
        printf("generation %llu is current: %s\n", n, count_of(m->records, "record"));
    else if (how == KFIT_IMPORTED_SIGNATURE)
        printf("generation %llu was here; it has the signature of the file now\n", n);
    else
        printf("generation %llu is here already; nothing changes\n", n);
    if (how == KFIT_IMPORTED && number != m->number)
        cli_say("it was generation %llu where it comes from; that number is taken or passed here",
                (unsigned long long)m->number);
    if (how != KFIT_IMPORTED)
        cli_say("`kfit rollback %llu` makes it current, if another one is", n);
    return CLI_OK;
}

int cli_cache_import(int argc, char **argv)
{
    const char *cache = NULL, *keyfile = NULL;
    bool approve = false, replace = false, drop = false, foreign = false;
    struct cli_list args = {0};
    struct kfit_generation *g;
    struct kfit_error err = {0};
    struct content c = {0};
    char dir[4096];
    const struct cli_option options[] = {
        CLI_OPTION_CACHE(&cache),
        {"approve", 'a', CLI_FLAG, &approve, NULL, "publish it as it is; without, it is staged for review"},
        {"replace", 'r', CLI_FLAG, &replace, NULL, "stage also over what was tuned here"},
        {"other-machine", 'o', CLI_FLAG, &foreign, NULL,
         "publish it although none of it is for this machine"},
        CLI_OPTION_SIGN(&keyfile),
        {"drop-signature", 'd', CLI_FLAG, &drop, NULL,
         "publish it unsigned where it cannot keep its number, and so its signature"},
        {0},
    };
    cli_parse(
        argc, argv,
        &(struct cli_usage){
            .args = "FILE",
            .doc = "Takes over what `kfit cache export` wrote: all of it or nothing. Its records are staged, "
                   "for review; with --approve it becomes the current generation, under its own number "
                   "where that is above all that are here, else under the next.",
            .options = options,
            .min = 1,
            .max = 1},
        &args);
    if (approve ? replace : keyfile || drop || foreign)
        return cli_usage_error(argv, approve ? "--replace is for staging: leave it or --approve"
                                             : "--sign, --drop-signature and --other-machine need --approve");
    cli_cache_dir(cache, dir, sizeof dir);
    enum kfit_status s = kfit_generation_open_file(args.item[0], cli_trust(), &g, &err);
    if (s != KFIT_OK)
        return cli_failed(NULL, s, &err);
    const struct kfit_manifest *m = kfit_generation_manifest(g);
    cli_say("generation %llu, %s, approved by %s%s%s; %s", (unsigned long long)m->number,
            cli_when(m->created_unix_s), SAFE(m->approver), m->note[0] ? ": " : "", SAFE(m->note),
            cli_signature(m));
    int rc = CLI_FAILED;
    if (!read_content(&c, g, args.item[0]))
        goto out;
    if (say_environments(&c) && approve && !foreign) {
        cli_fail(
            "none of it would run here; nothing is published (--other-machine publishes it all the same)");
        goto out;
    }
    rc = approve ? publish(
                       &(struct kfit_import_params){
                           .dir = dir, .from = g, .approver = cli_user(), .drop_signature = drop},
                       keyfile)
                 : stage(dir, &c, replace);
out:
    content_finish(&c);
    kfit_generation_close(g);
    return rc;
}
