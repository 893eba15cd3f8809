/* kfit status: what kfit does in each process, now or until it ended. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"

static const char *const mode_names[] = {"off", "record", "dispatch", "both"};

static const char *mode_name(uint32_t mode)
{
    return mode < sizeof mode_names / sizeof *mode_names ? mode_names[mode] : "?";
}

static void print(const struct cli_trace *t, const uint64_t count[KFIT_TRACE_REASONS])
{
    const struct kfit_trace_header *h = kfit_trace_header(t->t);
    uint64_t calls = 0;
    for (unsigned i = 0; i < KFIT_TRACE_REASONS; i++)
        calls += count[i];
    printf("%s %d %s%s%s%s\n", t->alive ? "live " : "ended", h->pid, SAFE(h->program),
           h->label[0] ? " (" : "", SAFE(h->label), h->label[0] ? ")" : "");
    printf("      mode %s%s", mode_name(h->mode), h->control == KFIT_CONTROL_OFF ? ", switched off" : "");
    if (h->generation && !h->state_text[0])
        printf(", generation %llu", (unsigned long long)h->generation);
    printf("; %s%s", SAFE(h->state_text), h->state_text[0] ? "" : kfit_reason_text(h->state_reason));
    if (h->rank >= 0)
        printf("; rank %d", h->rank);
    putchar('\n');
    printf("      %llu calls, %zu keys, %llu by kfit kernels", (unsigned long long)calls,
           kfit_trace_count(t->t), (unsigned long long)count[KFIT_REASON_NONE]);
    for (unsigned i = 1; i < KFIT_REASON_COUNT; i++)
        if (count[i])
            printf(", %llu %s", (unsigned long long)count[i], kfit_reason_name(i));
    putchar('\n');
}

static cJSON *describe(const struct cli_trace *t, const uint64_t count[KFIT_TRACE_REASONS])
{
    const struct kfit_trace_header *h = kfit_trace_header(t->t);
    char digest[65];
    kfit_hex(h->generation_digest, 32, digest);
    cJSON *o = cJSON_CreateObject();
    cJSON_AddNumberToObject(o, "pid", h->pid);
    cJSON_AddBoolToObject(o, "alive", t->alive);
    cJSON_AddStringToObject(o, "program", SAFE(h->program));
    cJSON_AddStringToObject(o, "label", SAFE(h->label));
    cJSON_AddNumberToObject(o, "rank", h->rank);
    cJSON_AddStringToObject(o, "mode", mode_name(h->mode));
    cJSON_AddBoolToObject(o, "off", h->control == KFIT_CONTROL_OFF);
    cJSON_AddStringToObject(o, "state", kfit_reason_name(h->state_reason));
    cJSON_AddStringToObject(o, "state_text", SAFE(h->state_text));
    cJSON_AddNumberToObject(o, "generation", (double)h->generation);
    cJSON_AddStringToObject(o, "generation_digest", h->generation ? digest : "");
    cJSON_AddNumberToObject(o, "keys", (double)kfit_trace_count(t->t));
    cJSON_AddNumberToObject(o, "hits", (double)count[KFIT_REASON_NONE]);
    uint64_t misses[KFIT_TRACE_REASONS], calls = 0;
    for (unsigned i = 0; i < KFIT_TRACE_REASONS; i++)
        calls += misses[i] = count[i];
    misses[KFIT_REASON_NONE] = 0;
    cJSON_AddNumberToObject(o, "calls", (double)calls);
    cJSON_AddItemToObject(o, "misses", cli_json_reasons(misses));
    cJSON_AddStringToObject(o, "trace", cli_str(t->path));
    return o;
}

int cli_status(int argc, char **argv)
{
    const char *cache = NULL;
    bool json = false, live = false;
    struct cli_list where = {0};
    struct cli_traces ts = {0};
    struct kfit_error err = {0};
    char dir[4096], path[4200], *off = NULL;
    size_t bytes;
    const struct cli_option options[] = {
        CLI_OPTION_CACHE(&cache),
        {"live", 'l', CLI_FLAG, &live, NULL, "only processes that still run"},
        CLI_OPTION_JSON(&json),
        {0},
    };
    cli_parse(argc, argv,
              &(struct cli_usage){
                  .args = "[TRACE|DIR...]",
                  .doc = "Shows each recorded process: what kfit does there and why, hits, misses by "
                         "reason. With no directory, the usual places are searched.",
                  .options = options,
                  .max = CLI_ANY},
              &where);
    int rc = cli_traces_read(&ts, &where) && !ts.unreadable ? CLI_OK : CLI_FAILED;
    cli_cache_dir(cache, dir, sizeof dir);
    snprintf(path, sizeof path, "%s/off", dir);
    bool is_off = !access(path, F_OK);
    if (is_off && cli_read_file(path, 512, &off, &bytes, &err) == KFIT_OK)
        off[strcspn(off, "\n")] = '\0';
    cJSON *root = json ? cJSON_CreateObject() : NULL, *list = json ? cJSON_CreateArray() : NULL;
    if (is_off && !json)
        printf("%s: %s\n", cli_str(dir), off ? cli_str(off) : "off");
    for (size_t i = 0; i < ts.count; i++) {
        uint64_t count[KFIT_TRACE_REASONS];
        if ((live && !ts.item[i].alive) || !kfit_trace_header(ts.item[i].t)->pid)
            continue;
        cli_trace_totals(ts.item[i].t, count);
        if (json)
            cJSON_AddItemToArray(list, describe(&ts.item[i], count));
        else
            print(&ts.item[i], count);
    }
    if (json) {
        cJSON_AddBoolToObject(root, "off", is_off);
        cJSON_AddStringToObject(root, "off_text", off ? cli_str(off) : "");
        cJSON_AddItemToObject(root, "processes", list);
        cli_json_print(root);
    } else if (!ts.count) {
        cli_say("no traces; processes show up here when they run under `kfit run`");
    }
    free(off);
    cli_traces_free(&ts);
    return rc;
}
