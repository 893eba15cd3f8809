/* kfit review: what was found and is not published yet. */
#include <stdlib.h>

#include "release.h"

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

/* The receipt in a line: what was checked, how it was timed. */
static void print_receipt(const struct kfit_receipt *r)
{
    printf("          ");
    for (unsigned i = 0; i < r->gate_count; i++)
        printf("%s%s%s%s", i ? ", " : "", SAFE(r->gates[i].name), r->gates[i].ok ? " ok" : " ",
               r->gates[i].ok ? "" : kfit_code_str(r->gates[i].code));
    if (r->timing_count)
        printf("; %s: %s against %s, %u pairs, noise %.1f %%", SAFE(r->timings[0].mode),
               cli_ns(r->timings[0].ns_candidate), cli_ns(r->timings[0].ns_incumbent), r->timings[0].n,
               100 * r->noise);
    printf("%s%s %s, judged %s\n", r->gate_count || r->timing_count ? "; " : "", SAFE(r->name),
           SAFE(r->knobs), cli_when(r->made_unix_s));
}

int cli_review(int argc, char **argv)
{
    const char *cache = NULL;
    bool json = false, receipts = false;
    struct cli_list traces = {0}, none = {0};
    struct cli_release r = {0};
    const struct cli_option options[] = {
        CLI_OPTION_CACHE(&cache),
        {"trace", 't', CLI_EACH, &traces, "TRACE",
         "weigh by the calls recorded there (default: in the usual places)"},
        {"receipts", 'v', CLI_FLAG, &receipts, NULL,
         "a line with what the judge checked and timed, for each"},
        CLI_OPTION_JSON(&json),
        {0},
    };
    cli_parse(argc, argv,
              &(struct cli_usage){
                  .args = "",
                  .doc = "Lists what `kfit approve --all` would change, what share of the recorded time "
                         "each key takes and what of the whole the change saves, and candidates that "
                         "only a person can decide about.",
                  .options = options},
              &none);
    if (!cli_release_open(&r, cache, &traces, true, CLI_WANT_STORE))
        return CLI_FAILED;
    cJSON *list = json ? cJSON_CreateArray() : NULL;
    struct kfit_receipt *receipt = cli_alloc(NULL, sizeof *receipt);
    for (size_t i = 0; i < r.changes.count; i++) {
        const struct cli_change *c = &r.changes.item[i];
        bool known = (json || receipts) && kfit_record_receipt(cli_change_record(c), r.o.store, receipt);
        if (json) {
            cJSON *e = cli_change_json(c, &r.o);
            char *text = known ? kfit_receipt_to_json(receipt) : NULL;
            cJSON_AddItemToObject(e, "receipt", text ? cJSON_Parse(text) : cJSON_CreateNull());
            free(text);
            cJSON_AddItemToArray(list, e);
            continue;
        }
        cli_change_print(c, !i, false);
        if (known)
            print_receipt(receipt);
        else if (receipts)
            printf("          no receipt in this store\n");
    }
    free(receipt);
    cJSON *waiting = json ? cJSON_CreateArray() : NULL;
    size_t waits;
    int rc = cli_outcome_waiting(&r.o, NULL, show_waiting, waiting, &waits) ? CLI_OK : CLI_FAILED;
    if (json) {
        cJSON *root = cJSON_CreateObject();
        cJSON_AddItemToObject(root, "changes", list);
        cJSON_AddItemToObject(root, "waiting", waiting);
        cli_release_add_gain(root, &r);
        cli_json_print(root);
    } else {
        if (r.changes.count)
            cli_release_say_gain(&r);
        cli_say("%zu to publish, %zu published already, %zu wait for a person%s", r.changes.count,
                r.changes.same, waits, r.changes.count ? "; next: `kfit approve --all`" : "");
    }
    cli_release_close(&r);
    return rc;
}
