#include <stdlib.h>
#include <string.h>

#include "held.h"
#include "release.h"

bool cli_release_open(struct cli_release *r, const char *cache, const struct cli_list *traces, bool usual,
                      unsigned want)
{
    if ((traces->count || usual) && (!cli_traces_read(&r->ts, traces) || !cli_traces_merge(&r->ts)))
        return false;
    if (!cli_outcome_open(&r->o, cache, NULL, want) || !cli_bans_read(&r->bans, r->o.store))
        return false;
    cli_changes_find(&r->changes, &r->o.published, &r->o.staged, false, &r->bans);
    if (!r->ts.groups)
        return true;
    if (!cli_outcome_report(&r->o, &r->ts, NULL, &r->report))
        return false;
    cli_changes_weigh(&r->changes, &r->report);
    for (size_t i = 0; i < r->report.count; i++) {
        const struct kfit_report_key *k = &r->report.keys[i];
        r->gain_now +=
            k->share * (1 - cli_record_factor(kfit_records_find(&r->o.published, k->env_hard, &k->key)));
    }
    return true;
}

void cli_release_close(struct cli_release *r)
{
    cli_changes_free(&r->changes);
    kfit_report_finish(&r->report);
    cli_bans_free(&r->bans);
    cli_outcome_close(&r->o);
    cli_traces_free(&r->ts);
}

void cli_release_say_gain(const struct cli_release *r)
{
    double gain = cli_changes_gain(&r->changes);
    if (r->report.calls)
        cli_say("estimated from the recorded calls: %.2f %% of their time is saved now, %.2f %% with these "
                "changes",
                100 * r->gain_now, 100 * (r->gain_now + gain));
}

void cli_release_add_gain(cJSON *root, const struct cli_release *r)
{
    if (!r->report.calls)
        return;
    cJSON_AddNumberToObject(root, "gain_now", r->gain_now);
    cJSON_AddNumberToObject(root, "gain_then", r->gain_now + cli_changes_gain(&r->changes));
}

static bool env_text(void *o, uint64_t hash, char *to)
{
    return !hash || kfit_text_hash(cli_outcome_env(o, hash, to)) == hash;
}

bool cli_publish(const struct cli_outcome *o, const struct kfit_records *records, const char *note,
                 uint64_t republishes, const char *keyfile, uint64_t *number)
{
    size_t count;
    struct kfit_error err = {0};
    struct cli_signer signer;
    const struct kfit_record *unknown;
    struct kfit_env *envs = cli_envs(records, env_text, (void *)o, &count, &unknown);
    if (unknown) {
        cli_fail("%s: the environment of %s is not in the store; see `kfit cache verify`", cli_str(o->dir),
                 cli_key(&unknown->key));
        return false;
    }
    bool ok = cli_signer_open(&signer, keyfile, o->dir,
                              o->generation ? kfit_generation_manifest(o->generation) : NULL);
    if (ok) {
        enum kfit_status s =
            kfit_generation_publish(&(struct kfit_publish_params){.dir = o->dir,
                                                                  .records = records->item,
                                                                  .count = records->count,
                                                                  .envs = envs,
                                                                  .env_count = count,
                                                                  .approver = cli_user(),
                                                                  .note = note,
                                                                  .republishes = republishes,
                                                                  .sign = cli_signer_key(&signer)},
                                    number, &err);
        ok = s == KFIT_OK || !cli_failed(o->dir, s, &err);
        cli_signer_close(&signer);
    }
    if (ok)
        cli_follow(o->dir);
    free(envs);
    return ok;
}
