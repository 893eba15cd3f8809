/* kfit report: coverage, gain per key, and why the rest stays with the original. */
#include <stdlib.h>
#include <string.h>

#include "explain.h"
#include "outcome.h"

enum { NEAR_MISSES = 10 };

/* The dispatcher's own words for the largest keys that have no record. */
static void near_misses(struct kfit_report *r, const struct cli_traces *ts, const char *cache)
{
    for (size_t g = 0; g < ts->groups; g++) {
        const struct kfit_env *env = &kfit_trace_header(ts->group[g])->env;
        struct kfit_dispatcher *d = NULL;
        unsigned n = 0;
        for (size_t i = 0; i < r->count && n < NEAR_MISSES; i++) {
            struct kfit_report_key *k = &r->keys[i];
            char text[4096], *at;
            if (k->judged || k->env_hard != kfit_text_hash(env->hard))
                continue;
            if (!d && !(d = cli_explainer(cache, NULL, env)))
                return;
            kfit_dispatcher_explain(d, &k->key, text, sizeof text);
            if ((at = strstr(text, "differs from"))) {
                at[strcspn(at, "\n")] = '\0';
                snprintf(k->near_miss, sizeof k->near_miss, "%s", cli_str(at));
                n++;
            }
        }
        kfit_dispatcher_destroy(d);
    }
}

int cli_report(int argc, char **argv)
{
    const char *cache = NULL;
    struct cli_optional json = {0};
    struct cli_list where = {0};
    struct cli_traces ts = {0};
    struct cli_outcome o;
    struct cli_wanted wanted = {0};
    struct kfit_report report;
    const struct cli_option options[] = {
        CLI_OPTION_CACHE(&cache),
        {"json", 'j', CLI_OPTIONAL, &json, "FILE",
         "print JSON; with =FILE, write it there and print the text"},
        {0},
    };
    cli_parse(argc, argv,
              &(struct cli_usage){
                  .args = "[TRACE|DIR...]",
                  .doc = "Shows what kfit means for the recorded programs. With no trace, the usual places "
                         "are searched, and results for keys that no trace there has are shown too.",
                  .options = options,
                  .max = CLI_ANY},
              &where);
    if (!cli_traces_read(&ts, &where) || !cli_traces_merge(&ts))
        return CLI_FAILED;
    if (!ts.count && where.count)
        return cli_fail("no traces there; make some with `kfit run -- COMMAND`");
    if (!cli_outcome_open(&o, cache, NULL, 0))
        return CLI_FAILED;
    const struct kfit_records *sets[] = {&o.published, &o.staged};
    for (unsigned s = 0; s < 2 && !where.count; s++)
        for (size_t i = 0; i < sets[s]->count; i++)
            cli_wanted_add(&wanted, &sets[s]->item[i].key, sets[s]->item[i].env_hard);
    if (!ts.count && !wanted.count)
        return cli_fail(
            "no traces and no results; make some with `kfit run -- COMMAND` or `kfit tune --key KEY`");
    if (!cli_outcome_report(&o, &ts, &wanted, &report))
        return CLI_FAILED;
    if (o.generation)
        near_misses(&report, &ts, o.dir);
    int rc = CLI_OK;
    if (json.value)
        rc = cli_json_write(kfit_report_json(&report), json.value);
    if (json.given && !json.value)
        rc = cli_json_print(kfit_report_json(&report));
    else
        kfit_report_text(&report, stdout);
    kfit_report_finish(&report);
    free(wanted.item);
    cli_outcome_close(&o);
    cli_traces_free(&ts);
    return rc;
}
