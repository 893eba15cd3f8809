/* kfit metrics: what traces say, as Prometheus reads it: printed, as a file for node_exporter, or served. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "http.h"
#include "totals.h"

/* What one command works on, scan after scan. */
struct job {
    struct kfit_metrics metrics;
    struct cli_list where;
    const char *state; /* NULL: none kept */
    char dir[4096];    /* the cache */
    bool quiet;        /* what could not be read has been named */
    bool unsaved;      /* that the state could not be saved has been said */
    int rc;
};

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The state goes to disk before its totals are shown: what was shown once is never taken back. */
static void save(struct job *j)
{
    struct kfit_error err = {0};
    enum kfit_status s = j->state ? kfit_metrics_save(&j->metrics, j->state, &err) : KFIT_OK;
    if (s != KFIT_OK && !j->unsaved)
        j->rc = cli_failed("--state", s, &err);
    j->unsaved = s != KFIT_OK;
}

static char *render(void *ctx, size_t *bytes)
{
    struct job *j = ctx;
    struct cli_traces ts = {.quiet = j->quiet};
    struct kfit_metrics_place place = {0};
    char path[4200], *text = NULL;
    double start = seconds();
    if (!cli_traces_read(&ts, &j->where) || ts.unreadable)
        j->rc = CLI_FAILED;
    kfit_metrics_scan(&j->metrics, &ts, time(NULL));
    cli_traces_free(&ts);
    j->quiet = true;
    j->metrics.scan_s = seconds() - start;
    save(j);
    snprintf(path, sizeof path, "%s/off", j->dir);
    place.off = !access(path, F_OK);
    kfit_generation_current(j->dir, &place.published, (uint8_t[32]){0}, NULL);
    FILE *to = open_memstream(&text, bytes);
    if (to)
        kfit_metrics_print(&j->metrics, &place, to);
    if (to && !fclose(to))
        return text;
    free(text);
    return NULL;
}

/* Two of us with one state would each take back what the other counted. The lock goes with the process. */
static bool lock(const char *state)
{
    char path[4200];
    snprintf(path, sizeof path, "%s.lock", state);
    int fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0600);
    if (fd < 0) {
        cli_fail("--state: %s: %s", cli_str(path), strerror(errno));
        return false;
    }
    if (!flock(fd, LOCK_EX | LOCK_NB))
        return true;
    close(fd);
    cli_fail("--state: %s is in use by another kfit metrics; give each a state of its own", cli_str(state));
    return false;
}

static void ready(void *ctx, const char *where)
{
    (void)ctx;
    cli_say("serving %s", where);
}

static int serve(struct job *j, const char *listen, unsigned deadline_s)
{
    struct kfit_error err = {0};
    enum kfit_status s = kfit_http_serve(
        &(struct kfit_http_params){
            .listen = listen,
            .path = "/metrics",
            .type = "text/plain; version=0.0.4; charset=utf-8",
            .deadline_s = deadline_s,
            .render = render,
            .ready = ready,
            .ctx = j,
        },
        &err);
    return s == KFIT_OK ? CLI_OK : cli_failed("--listen", s, &err);
}

static int write_once(struct job *j, const char *textfile)
{
    struct kfit_error err = {0};
    enum kfit_status s = KFIT_OK;
    size_t bytes;
    char *text = render(j, &bytes);
    if (!text)
        return cli_fail("out of memory for the metrics");
    if (textfile)
        s = cli_write_file(textfile, text, bytes, 0644, &err);
    else
        fwrite(text, 1, bytes, stdout);
    free(text);
    return s == KFIT_OK ? j->rc : cli_failed("--textfile", s, &err);
}

static bool ends_in(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n > m && !strcmp(text + n - m, end);
}

int cli_metrics(int argc, char **argv)
{
    const char *cache = NULL, *textfile = NULL, *listen = NULL;
    uint64_t keys = 0, deadline = 10;
    char beside[4200];
    struct kfit_error err = {0};
    struct job j = {.rc = CLI_OK};
    const struct cli_option options[] = {
        CLI_OPTION_CACHE(&cache),
        {"textfile", 'f', CLI_TEXT, &textfile, "FILE.prom",
         "write this file of node_exporter's textfile collector, atomically"},
        {"listen", 'l', CLI_TEXT, &listen, "[ADDR:]PORT",
         "serve http://ADDR:PORT/metrics until SIGTERM (default ADDR: 127.0.0.1; port 0: any that is free)"},
        {"state", 's', CLI_TEXT, &j.state, "FILE",
         "keep totals in FILE, so that counters go on where traces are gone (default with --textfile: beside "
         "it)"},
        {"keys", 'k', CLI_COUNT, &keys, "N", "also count the N keys called most, one by one (default 0)"},
        {"deadline", 'd', CLI_COUNT, &deadline, "SECONDS", "what a connection may take in all (default 10)"},
        {0},
    };
    cli_parse(argc, argv,
              &(struct cli_usage){
                  .args = "[TRACE|DIR...]",
                  .doc = "Prints what kfit does in live and ended processes as Prometheus reads it. With no "
                         "directory, the usual places are searched.",
                  .options = options,
                  .max = CLI_ANY},
              &j.where);
    if (textfile && listen)
        return cli_usage_error(argv, "--textfile and --listen exclude each other");
    if (textfile && !ends_in(textfile, ".prom"))
        return cli_usage_error(argv, "--textfile: \"%s\" must end in .prom, or node_exporter passes over it",
                               cli_str(textfile));
    if (keys > KFIT_METRICS_KEYS_MAX)
        return cli_usage_error(argv, "--keys: at most %d", KFIT_METRICS_KEYS_MAX);
    if (!deadline || deadline > 3600)
        return cli_usage_error(argv, "--deadline: from 1 to 3600 seconds");
    if (!j.state && textfile) {
        snprintf(beside, sizeof beside, "%s.state", textfile);
        j.state = beside;
    }
    kfit_metrics_init(&j.metrics, keys);
    cli_cache_dir(cache, j.dir, sizeof j.dir);
    enum kfit_status s = KFIT_OK;
    if (j.state && !lock(j.state))
        j.rc = CLI_FAILED;
    else if (j.state && (s = kfit_metrics_load(&j.metrics, j.state, &err)) != KFIT_OK)
        j.rc = cli_failed("--state", s, &err);
    else
        j.rc = listen ? serve(&j, listen, (unsigned)deadline) : write_once(&j, textfile);
    kfit_metrics_finish(&j.metrics);
    return j.rc;
}
