/* kfit ab: what dispatch brings a program, end to end. Pairs of runs, or phases of one run. */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "ab.h"
#include "outcome.h"

enum { PAIRS_DEFAULT = 10, WARM_UPS_DEFAULT = 1 };

static const int ending[] = {SIGINT, SIGTERM, SIGHUP};

bool ab_dispatched(const struct ab *ab, const struct cli_traces *ts)
{
    const struct kfit_trace_header *h = NULL;
    uint64_t hits = 0;
    if (!ts->count)
        return !cli_fail(
            "no call was seen: the program did not use a BLAS function that kfit knows, or was statically "
            "linked. There is nothing to compare");
    for (size_t i = 0; i < ts->count; i++) {
        uint64_t count[KFIT_TRACE_REASONS];
        cli_trace_totals(ts->item[i].t, count);
        hits += count[KFIT_REASON_NONE];
        if (!h || kfit_trace_header(ts->item[i].t)->state_reason == KFIT_REASON_NONE)
            h = kfit_trace_header(ts->item[i].t);
    }
    if (h->state_reason != KFIT_REASON_NONE)
        return !cli_fail("the program does not dispatch, there is nothing to compare: %s",
                         SAFE(h->state_text));
    if (!hits && !(ab->phase_s > 0))
        cli_say("no call was replaced in the first run with dispatch: expect no gain; `kfit report` and "
                "`kfit explain` "
                "say why");
    return true;
}

void ab_note(struct ab *ab, const double seconds[2], double number[2][AB_METRICS_MAX])
{
    for (unsigned side = 0; side < 2; side++) {
        ab->seconds[side][ab->pairs] = seconds[side];
        for (size_t i = 0; i < ab->metrics.count; i++)
            ab->number[i][side][ab->pairs] = number[side][i];
    }
    ab->pairs++;
    if (!ab->quiet && ab->metrics.count)
        cli_say("pair %u of %u: %.5g without, %.5g with dispatch", ab->pairs, ab->want_pairs, number[0][0],
                number[1][0]);
    else if (!ab->quiet)
        cli_say("pair %u of %u: %s%s without, %s with dispatch", ab->pairs, ab->want_pairs,
                cli_ns(seconds[0] * 1e9), ab->phase_s > 0 ? " a call" : "", cli_ns(seconds[1] * 1e9));
}

/* ---- runs ---- */

/* What was printed, by side: of the first run, to compare the others with. */
struct printed {
    struct ab_output first[2];
    bool any[2];
};

static bool same(const struct ab_output *a, const struct ab_output *b)
{
    return a->digest == b->digest && a->head_bytes == b->head_bytes;
}

/* Keeps the output (and takes it from p) if it is a side's first. */
static bool compare(struct ab *ab, struct printed *seen, enum ab_side side, struct ab_program *p)
{
    char text[sizeof ab->difference];
    struct ab_output *other = seen->any[!side] ? &seen->first[!side] : NULL,
                     *own = seen->any[side] ? &seen->first[side] : NULL;
    const struct ab_output *expected = own && !same(own, &p->output)       ? own
                                       : other && !same(other, &p->output) ? other
                                                                           : NULL;
    if (expected) {
        ab_output_difference(expected, &p->output, text);
        if (ab->same_output)
            return !cli_fail(
                "--same-output: a run %s printed something else than %s: %s; nothing is concluded",
                ab_side_names[side],
                expected == own ? "another one on the same side" : "one on the other side", text);
        enum ab_same now = expected == own && side == AB_WITHOUT ? AB_VARIES : AB_DIFFERS;
        if (ab->same == AB_SAME || (ab->same == AB_DIFFERS && now == AB_VARIES)) {
            ab->same = now;
            memcpy(ab->difference, text, sizeof ab->difference);
        }
    }
    if (!seen->any[side]) {
        seen->first[side] = p->output;
        p->output = (struct ab_output){0};
        seen->any[side] = true;
    }
    return true;
}

/* Takes the traces of the run that has ended, and removes their files. */
static bool collect(struct ab *ab, enum ab_side side, bool first)
{
    struct cli_list where = {0};
    struct cli_traces ts = {0};
    cli_list_add(&where, ab->work);
    bool ok = cli_traces_read(&ts, &where);
    free(where.item);
    for (size_t i = 0; i < ts.count; i++)
        if (!ts.item[i].alive)
            unlink(ts.item[i].path);
    if (ok && first && !ab->aa)
        ok = ab_dispatched(ab, &ts);
    if (side == AB_WITHOUT || ab->stopped) { /* stopped: what is half done predicts nothing */
        cli_traces_free(&ts);
    } else {
        cli_traces_free(&ab->traces);
        ab->traces = ts;
    }
    return ok;
}

/* False when nothing may be concluded. ab->stopped: this run does not count. */
static bool one_run(struct ab *ab, struct printed *seen, enum ab_side side, bool warm_up, bool first,
                    double *seconds, double *number)
{
    struct ab_program p;
    bool ok = ab_start(ab, side, &p);
    if (!ok)
        return false;
    if (ab_watch(ab, &p, INFINITY) != AB_ENDED) {
        ab_end(ab, &p);
        goto out;
    }
    ok = !p.status;
    if (!ok) {
        cli_fail("the run %s ended with status %d%s; nothing is concluded", ab_side_names[side], p.status,
                 p.status == 127  ? " (is there such a command?)"
                 : p.status > 128 ? " (128 + signal)"
                                  : "");
        goto out;
    }
    *seconds = p.end_s - p.start_s;
    ok = ab_output_numbers(&p.output, number) && (warm_up || compare(ab, seen, side, &p));
out:
    ok &= collect(ab, side, ok && first && !ab->stopped);
    ab_program_finish(&p);
    return ok;
}

static bool runs(struct ab *ab)
{
    struct printed seen = {0};
    double seconds[2], number[2][AB_METRICS_MAX];
    bool first = true, ok = true;
    for (unsigned i = 0; i < ab->warm_ups && ok && !ab->stopped; i++, first = false)
        ok = one_run(ab, &seen, AB_WITH, true, first, &seconds[0], number[0]);
    while (ok && !ab->stopped && ab->pairs < ab->want_pairs) {
        unsigned order = kfit_random(&ab->random) >> 63;
        for (unsigned turn = 0; turn < 2 && ok && !ab->stopped; turn++) {
            enum ab_side side = order ^ turn ? AB_WITH : AB_WITHOUT;
            ok = one_run(ab, &seen, side, false, first && side == AB_WITH, &seconds[side], number[side]);
            first &= side != AB_WITH;
        }
        if (ok && !ab->stopped)
            ab_note(ab, seconds, number);
    }
    for (unsigned side = 0; side < 2; side++)
        ab_output_finish(&seen.first[side]);
    return ok;
}

/* ---- the command ---- */

/* Which generation both sides name, so that an approval in between changes nothing. */
static bool pin(struct ab *ab, const char *cache, const char *which, char dir[4096])
{
    struct cli_outcome o;
    ab->cache = cli_cache_dir(cache, dir, 4096);
    if (ab->aa)
        return true;
    bool ok = cli_outcome_open(&o, ab->cache, which, CLI_WANT_GENERATION);
    if (ok) {
        ab->generation_number = kfit_generation_manifest(o.generation)->number;
        snprintf(ab->generation, sizeof ab->generation, "%llu", (unsigned long long)ab->generation_number);
    }
    cli_outcome_close(&o);
    return ok;
}

static bool watch_signals(struct ab *ab)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    for (size_t i = 0; i < sizeof ending / sizeof *ending; i++)
        sigaddset(&set, ending[i]);
    signal(SIGCHLD, SIG_DFL);
    sigprocmask(SIG_BLOCK, &set, &ab->before);
    ab->signals = signalfd(-1, &set, SFD_CLOEXEC);
    return ab->signals >= 0 || !cli_fail("signalfd: %s", strerror(errno));
}

static bool is_live_trace(const char *path)
{
    struct kfit_trace *t;
    bool live = kfit_trace_read(path, &t, NULL) == KFIT_OK;
    if (live) {
        live = kfit_trace_alive(t);
        kfit_trace_destroy(t);
    }
    return live;
}

/* Removes the traces' directory, with what was killed before it was a trace. Those of processes that got away
 * stay, since `kfit off` needs them. */
static void clean_up(const struct ab *ab)
{
    DIR *dir = opendir(ab->work);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        char path[PATH_MAX];
        snprintf(path, sizeof path, "%s/%s", ab->work, e->d_name);
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, "..") && !is_live_trace(path))
            unlink(path);
    }
    if (dir)
        closedir(dir);
    if (rmdir(ab->work) && errno != ENOENT)
        cli_say("%s: left there, something in it is still in use", cli_str(ab->work));
}

int cli_ab(int argc, char **argv)
{
    static struct ab ab = {.same = AB_SAME};
    const char *cache = NULL, *generation = NULL, *out = NULL, *without = "record";
    uint64_t pairs = PAIRS_DEFAULT, warm_ups = WARM_UPS_DEFAULT;
    bool json = false;
    struct cli_list command = {0}, metrics = {0};
    const struct cli_option options[] = {
        CLI_OPTION_CACHE(&cache),
        {"generation", 'g', CLI_TEXT, &generation, "G", "number or digest, instead of the current one"},
        {"pairs", 'n', CLI_COUNT, &pairs, "N", "pairs of runs or phases (10); six or more give an interval"},
        {"phases", 'p', CLI_REAL, &ab.phase_s, "S",
         "run the program once and switch dispatch off and on every S seconds; progress is --metric, else "
         "its calls"},
        {"metric", 'M', CLI_EACH, &metrics, "REGEX",
         "compare a number that the program prints, the first group of this extended regular expression, "
         "e.g. 'tokens/s: "
         "([0-9.]+)'; of several in a run or phase, their median. May be repeated: the first is the result, "
         "the others are shown"},
        {"lower", 'l', CLI_FLAG, &ab.metrics.lower, NULL, "a lower metric is better (a latency)"},
        {"without", 'w', CLI_TEXT, &without, "MODE",
         "the shim's mode in runs without dispatch: record (default: both sides count their calls), or off"},
        {"warm-up", 0, CLI_COUNT, &warm_ups, "N",
         "runs or pairs of phases that do not count, at the beginning (1)"},
        {"aa", 0, CLI_FLAG, &ab.aa, NULL,
         "no dispatch on either side: how much the machine's noise makes of nothing"},
        {"same-output", 0, CLI_FLAG, &ab.same_output, NULL,
         "it is an error if any two runs print different things"},
        {"out", 'o', CLI_TEXT, &out, "FILE", "write the result there as JSON, for `kfit report --ab`"},
        {"seed", 0, CLI_COUNT, &ab.seed, "N", "of the order and the interval (default: from the OS)"},
        {"label", 0, CLI_TEXT, &ab.label, "TEXT", "name of the deployment, kept in live traces"},
        {"quiet", 'q', CLI_FLAG, &ab.quiet, NULL, "no line per pair"},
        CLI_OPTION_JSON(&json),
        {0},
    };
    cli_parse(
        argc, argv,
        &(struct cli_usage){
            .args = "[--] COMMAND [ARGUMENT...]",
            .doc =
                "Runs COMMAND with and without dispatch in turn, in random order, and says what dispatch "
                "makes of "
                "the whole program's time (or of --metric), with a 95 % interval, beside what the receipts "
                "predicted. Both sides run under the same shim and count their calls.\n"
                "COMMAND reads nothing, its output is compared and not shown, its messages are. It must end "
                "with status 0 and, with --phases, run until it is ended. What it leaves running is ended. "
                "Ctrl-C ends with what was measured.\n"
                "Run it on a machine that does nothing else; --aa shows whether that is so.",
            .options = options,
            .min = 1,
            .max = CLI_ANY,
            .command = true},
        &command);
    if (pairs < 1 || pairs > AB_PAIRS_MAX)
        return cli_usage_error(argv, "--pairs: expected 1 to %d", AB_PAIRS_MAX);
    if (strcmp(without, "record") && strcmp(without, "off"))
        return cli_usage_error(argv, "--without: \"%s\" is neither record nor off", cli_str(without));
    if (warm_ups > 1000)
        return cli_usage_error(argv, "--warm-up: at most 1000");
    if (ab.metrics.lower && !metrics.count)
        return cli_usage_error(argv, "--lower is about a --metric");
    if (ab.phase_s > 0 && (ab.same_output || strcmp(without, "record")))
        return cli_usage_error(argv, "--phases measures one run: %s is about several",
                               ab.same_output ? "--same-output" : "--without");
    for (size_t i = 0; i < metrics.count; i++)
        if (!ab_metric_add(&ab.metrics, metrics.item[i]))
            return CLI_USAGE;

    char shim[4096], work[4096], dir[4096];
    struct kfit_error err = {0};
    if (!ab.seed && getrandom(&ab.seed, 4, 0) != 4) /* 32 bits: JSON keeps them exactly */
        return cli_fail("no random seed from the system");
    ab.command = command.item;
    ab.words = command.count;
    ab.want_pairs = (unsigned)pairs;
    ab.warm_ups = (unsigned)warm_ups;
    ab.random = ab.seed;
    ab.mode[AB_WITHOUT] = without;
    ab.mode[AB_WITH] = ab.aa ? without : "both";
    ab.shim = shim;
    ab.work = work;
    if (!cli_shim(shim, sizeof shim) || !pin(&ab, cache, generation, dir))
        return CLI_FAILED;
    if (!cli_work_dir(work, sizeof work, &err))
        return cli_failed("no place for the traces", KFIT_E_IO, &err);
    bool ok = watch_signals(&ab) && ab_guard(&ab) && (ab.phase_s > 0 ? ab_phases(&ab) : runs(&ab));
    clean_up(&ab);
    int rc = CLI_FAILED;
    if (ok && ab.ended_early)
        cli_say("the program ended after %u of %u pairs", ab.pairs, ab.want_pairs);
    else if (ok && ab.stopped)
        cli_say("stopped after %u of %u pairs", ab.pairs, ab.want_pairs);
    if (ok && !ab.pairs)
        cli_fail("no pair was measured; nothing is concluded");
    else if (ok)
        rc = ab_conclude(&ab, out, json);
    for (size_t i = 0; i < ab.metrics.count; i++)
        regfree(&ab.metrics.item[i].regex);
    cli_traces_free(&ab.traces);
    return rc;
}
