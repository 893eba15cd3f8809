/* kfit eval: one source, one key, the same judge as for everyone. */
#include <stdlib.h>
#include <string.h>

#include "judging.h"
#include "outcome.h"

/* --knob NAME=VALUE onto the candidate's choice; knobs not named keep their first value. */
static bool choose(const struct kfit_candidate *c, const struct cli_list *given, struct kfit_choice *choice,
                   char text[256])
{
    const struct kfit_knob *knobs;
    unsigned count = kfit_candidate_knobs(c, &knobs);
    for (size_t i = 0; i < given->count; i++) {
        const char *eq = strchr(given->item[i], '=');
        size_t len = eq ? (size_t)(eq - given->item[i]) : 0;
        unsigned k = 0, v = 0;
        char *end;
        while (k < count && (strlen(knobs[k].name) != len || strncmp(knobs[k].name, given->item[i], len)))
            k++;
        if (!eq || k == count) {
            snprintf(text, 256, "\"%.60s\" names no knob of this candidate (NAME=VALUE)",
                     cli_str(given->item[i]));
            return false;
        }
        long long value = strtoll(eq + 1, &end, 10);
        while (v < knobs[k].count && knobs[k].values[v] != value)
            v++;
        if (end == eq + 1 || *end || v == knobs[k].count) {
            snprintf(text, 256, "%s cannot be \"%.60s\"", knobs[k].name, cli_str(eq + 1));
            return false;
        }
        choice->index[k] = (uint8_t)v;
    }
    return true;
}

/* The library and environment of the first trace from that device; without traces, those of the system or
 * --generic. */
static enum kfit_status surroundings(const struct cli_traces *ts, const char *device, const char *path,
                                     struct kfit_generic *g, struct kfit_env *env, struct kfit_error *err)
{
    char threads[16], recorded[16];
    const struct kfit_trace_header *h = NULL;
    *g = (struct kfit_generic){0};
    for (size_t i = 0; i < ts->count && !h; i++) {
        const struct kfit_trace_header *at = kfit_trace_header(ts->item[i].t);
        kfit_env_get(at->env.hard, "device", recorded, sizeof recorded);
        h = at->generic_count && !strcmp(recorded, device) ? at : NULL;
    }
    if (ts->count && !h)
        return kfit_fail(err, KFIT_E_NOTFOUND, "--trace: none there is from device %s and names its library",
                         device);
    if (h) {
        *g = h->generics[0];
        if (kfit_env_get(h->env.hard, "threads", threads, sizeof threads))
            g->threads = atoi(threads);
    }
    return cli_judging_env(device, path, g, env, err);
}

static void print_receipt(const struct kfit_receipt *r)
{
    printf("%s%s%s\n", kfit_verdict_str(r->verdict), r->code ? " " : "", kfit_code_str(r->code));
    printf("key       %s\ncandidate %s %s\n", cli_key(&r->key), SAFE(r->name), SAFE(r->knobs));
    for (unsigned i = 0; i < r->gate_count && i < KFIT_GATES_MAX; i++) {
        const struct kfit_gate_result *g = &r->gates[i];
        printf("gate      %-8s %s", SAFE(g->name), g->ok ? "ok" : kfit_code_str(g->code));
        if (g->seeds)
            printf(", %u seeds, error rms %.3g, worst %.3g%s%s", g->seeds, g->err_rms, g->err_worst,
                   g->distribution[0] ? " in " : "", SAFE(g->distribution));
        if (g->at[0])
            printf(" at %s", SAFE(g->at));
        putchar('\n');
    }
    for (unsigned i = 0; i < r->timing_count && i < KFIT_TIMINGS_MAX; i++) {
        const struct kfit_timing *t = &r->timings[i];
        char ratio[48];
        printf("timing    %s by the %s clock: %s against %s, ratio %s, %u pairs\n", SAFE(t->mode),
               SAFE(t->clock), cli_ns(t->ns_candidate), cli_ns(t->ns_incumbent),
               cli_ratio(t->ratio, t->lo, t->hi, ratio), t->n);
    }
    if (r->detail[0])
        printf("detail    %s\n", SAFE(r->detail));
    printf("compiled in %s (%s), judged in %s; seed %llu\n", cli_ns(r->compile_ns), SAFE(r->isolation),
           cli_ns(r->evaluate_ns), (unsigned long long)r->seed);
}

/* A name that goes into receipts and records, and that KFIT_ALLOW can match. */
static bool is_name(const char *text, size_t max)
{
    size_t n = strlen(text);
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)text[i] <= ' ' || text[i] == 0x7f || strchr(",*", text[i]))
            return false;
    return n && n <= max;
}

int cli_eval(int argc, char **argv)
{
    const char *by = NULL, *model = NULL, *campaign = "eval";
    const char *key_text = NULL, *cache = NULL, *generic = NULL, *device = NULL;
    bool json = false, wait = false, trusted = false;
    uint64_t seed = 0;
    struct cli_list knobs = {0}, traces = {0}, args = {0};
    struct cli_traces ts = {0};
    const struct cli_option options[] = {
        {"key", 'k', CLI_TEXT, &key_text, "KEY", "text of the key (required)"},
        {"knob", 'K', CLI_EACH, &knobs, "NAME=V", "value of a knob (default: its first)"},
        CLI_OPTION_CACHE(&cache),
        {"device", 'd', CLI_TEXT, &device, "DEVICE", "host or cuda; must be what the source's header says"},
        {"generic", 0, CLI_TEXT, &generic, "PATH",
         "the BLAS library to beat (default: of --trace, else the system's); with cuda also a folder with a "
         "libcublas"},
        {"trusted", 0, CLI_FLAG, &trusted, NULL,
         "compile also where nothing keeps the compiler from reading files for the source"},
        {"trace", 't', CLI_EACH, &traces, "TRACE", "take library and threads from this trace or directory"},
        {"seed", 0, CLI_COUNT, &seed, "N", "of the fixed inputs (default: from the OS)"},
        {"by", 0, CLI_TEXT, &by, "NAME", "who proposes it, for its origin and KFIT_ALLOW (default: you)"},
        {"model", 0, CLI_TEXT, &model, "NAME",
         "the language model that wrote it; its origin is then llm:NAME"},
        {"campaign", 0, CLI_TEXT, &campaign, "NAME", "what it is part of (default: eval)"},
        CLI_OPTION_WAIT(&wait),
        CLI_OPTION_JSON(&json),
        {0},
    };
    cli_parse(argc, argv,
              &(struct cli_usage){
                  .args = "KERNEL.c",
                  .doc = "Compiles and judges one candidate source. Exit status 0 if it is promoted or "
                         "kept (right, not enough faster), 1 if it is refused or waits for review.",
                  .options = options,
                  .min = 1,
                  .max = 1},
              &args);
    union kfit_key key;
    struct kfit_error err = {0};
    if (!key_text)
        return cli_usage_error(argv, "say for which key: --key KEY");
    if (kfit_key_parse(key_text, &key, &err) != KFIT_OK)
        return cli_usage_error(argv, "--key: %s", SAFE(err.text));
    char proposer[sizeof((struct kfit_receipt *)0)->proposer];
    snprintf(proposer, sizeof proposer, "%s", cli_user());
    for (char *p = proposer; !by && *p; p++) /* "uid 7" */
        *p = *p == ' ' ? '-' : *p;
    if (!by)
        by = proposer;
    const struct {
        const char *option, *name;
        size_t max;
    } names[] = {{"by", by, sizeof proposer - 1},
                 {"model", model ? model : "none", sizeof((struct kfit_receipt *)0)->model - 1},
                 {"campaign", campaign, sizeof((struct kfit_receipt *)0)->campaign - 1}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!is_name(names[i].name, names[i].max))
            return cli_usage_error(argv,
                                   "--%s: \"%s\" is no name: up to %zu characters without spaces, commas, *",
                                   names[i].option, cli_str(names[i].name), names[i].max);

    int rc = CLI_FAILED;
    char *source = NULL, text[256], dir[4096];
    size_t bytes;
    struct kfit_candidate *c = NULL;
    struct kfit_choice choice = {0};
    struct kfit_generic g;
    struct kfit_env env;
    struct kfit_store *store = NULL;
    struct kfit_judge *judge = NULL;
    struct kfit_receipt *receipt = cli_alloc(NULL, sizeof *receipt);
    *receipt = (struct kfit_receipt){0};

    enum kfit_status s = cli_read_file(args.item[0], KFIT_SOURCE_BYTES_MAX, &source, &bytes, &err);
    if (s == KFIT_OK && (s = kfit_candidate_parse(source, bytes, &c, &err)) != KFIT_OK) {
        cli_failed(args.item[0], s, &err);
        goto out;
    }
    if (s == KFIT_OK && !choose(c, &knobs, &choice, text)) {
        rc = cli_usage_error(argv, "--knob: %s", text);
        goto out;
    }
    if (s == KFIT_OK && device && strcmp(device, kfit_candidate_device(c))) {
        rc = cli_usage_error(argv, "--device: %s says that it is for device \"%s\"", cli_str(args.item[0]),
                             cli_str(kfit_candidate_device(c)));
        goto out;
    }
    if (s == KFIT_OK && traces.count && !cli_traces_read(&ts, &traces))
        goto out;
    if (s == KFIT_OK)
        s = surroundings(&ts, kfit_candidate_device(c), generic, &g, &env, &err);
    cli_cache_dir(cache, dir, sizeof dir);
    if (s == KFIT_OK)
        s = kfit_store_open(dir, KFIT_STORE_WRITE, &store, &err);
    const volatile int *stop = cli_judging_stop();
    if (s == KFIT_OK && !(judge = cli_judging_start(&g, &env, seed, wait)))
        goto out;
    if (s == KFIT_OK)
        s = kfit_eval(&(struct kfit_tune_params){.store = store,
                                                 .judge = judge,
                                                 .env = &env,
                                                 .seed = seed,
                                                 .campaign = campaign,
                                                 .proposer = by,
                                                 .model = model,
                                                 .allow_no_isolation = trusted,
                                                 .stop = stop,
                                                 .log = cli_log},
                      &key, source, bytes, &choice, receipt, &err);
    if (s != KFIT_OK) {
        cli_failed(NULL, s, &err);
        goto out;
    }
    char *out = json ? kfit_receipt_to_json(receipt) : NULL;
    if (out)
        puts(out);
    else
        print_receipt(receipt);
    free(out);
    rc = receipt->verdict == KFIT_VERDICT_PROMOTED || receipt->verdict == KFIT_VERDICT_KEPT ? CLI_OK
                                                                                            : CLI_FAILED;
out:
    kfit_judge_destroy(judge);
    kfit_store_close(store);
    kfit_candidate_destroy(c);
    cli_traces_free(&ts);
    free(receipt);
    free(source);
    return rc;
}
