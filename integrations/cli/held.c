/* What this host remembers of crashes, and asking live processes to follow. */
#include "graphs.h"
#include "held.h"
#include "processes.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "kfit/state.h"

const char *cli_state_dir(const char *dir, char *buf, size_t size)
{
    return dir ? dir : kfit_state_default_dir(buf, size, NULL) ? buf : NULL;
}

struct showing {
    const uint8_t *digest;
    cJSON *list;
};

static int show(void *ctx, const struct kfit_state_held *h)
{
    const struct showing *s = ctx;
    char digest[65];
    kfit_hex(h->digest, 32, digest);
    if (s->digest && memcmp(s->digest, h->digest, 32))
        return 0;
    if (s->list) {
        cJSON *o = cJSON_CreateObject();
        cJSON_AddNumberToObject(o, "generation", (double)h->generation);
        cJSON_AddStringToObject(o, "generation_digest", digest);
        cJSON_AddStringToObject(o, "program", SAFE(h->program));
        cJSON_AddStringToObject(o, "label", SAFE(h->label));
        cJSON_AddNumberToObject(o, "unclean_ends", h->ends);
        cJSON_AddNumberToObject(o, "last_unix_s", (double)h->at_unix_s);
        cJSON_AddItemToArray(s->list, o);
        return 0;
    }
    printf("HELD BACK here: generation %llu (%.12s) for %s%s%s%s: %u unclean ends in %d minutes, the last at "
           "%s; "
           "it only records. `kfit on` clears it\n",
           (unsigned long long)h->generation, digest, SAFE(h->program), h->label[0] ? " (" : "",
           SAFE(h->label), h->label[0] ? ")" : "", h->ends, KFIT_STATE_WINDOW_S / 60, cli_when(h->at_unix_s));
    return 0;
}

bool cli_held_show(const char *state, const uint8_t digest[32], cJSON *list)
{
    struct showing s = {digest, list};
    struct kfit_error err = {0};
    enum kfit_status st = state ? kfit_state_each(state, show, &s, &err) : KFIT_OK;
    return st == KFIT_OK || !cli_failed("--state", st, &err);
}

bool cli_held_clear(const char *state)
{
    struct kfit_error err = {0};
    unsigned cleared = 0;
    enum kfit_status st = state ? kfit_state_clear(state, &cleared, &err) : KFIT_OK;
    if (cleared)
        cli_say("%s: %u held back generation%s cleared; restart the programs that only record",
                cli_str(state), cleared, cleared == 1 ? "" : "s");
    return st == KFIT_OK || !cli_failed("--state", st, &err);
}

/* What a process calls its cache may be seen from its own mounts only. */
static bool may_follow(const struct kfit_trace_header *h, const struct stat *cache)
{
    char path[sizeof h->cache + 1];
    struct stat st;
    snprintf(path, sizeof path, "%.*s", (int)sizeof h->cache, h->cache);
    return h->follows && (stat(path, &st) || (st.st_dev == cache->st_dev && st.st_ino == cache->st_ino));
}

void cli_follow(const char *cache)
{
    struct stat st;
    struct cli_traces ts = {0}, told = {0}; /* told: borrowed */
    if (stat(cache, &st))
        return; /* removed since */
    cli_traces_read(&ts, NULL);
    told.item = cli_alloc(NULL, ts.count * sizeof *told.item);
    for (size_t i = 0; i < ts.count; i++) {
        const struct kfit_trace_header *h = kfit_trace_header(ts.item[i].t);
        if (!ts.item[i].alive || !may_follow(h, &st) ||
            kfit_trace_set_control(ts.item[i].path, KFIT_CONTROL_RELOAD, NULL) != KFIT_OK)
            continue;
        told.item[told.count++] = ts.item[i];
        cli_graphs_say(&ts.item[i], CLI_GRAPHS_OURS, NULL, NULL);
    }
    const size_t follow = cli_process_count(&told);
    free(told.item);
    if (follow)
        cli_say("%zu running process%s follow%s new generations: taken over with the next call", follow,
                follow == 1 ? "" : "es", follow == 1 ? "s" : "");
    cli_traces_free(&ts);
}
