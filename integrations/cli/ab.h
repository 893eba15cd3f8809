/* ab.h - what the parts of `kfit ab` share.
 *
 * A program runs again and again, or once with dispatch switched off and on (phases), and is compared with
 * itself. Both sides run under the same shim and count their calls; one of them replaces some. Times are
 * seconds. One thread; functions that return bool have said on stderr what is wrong when they return false.
 */
#ifndef AB_H
#define AB_H

#include <regex.h>

#include "cli.h"
#include "kfit/interval.h"

enum {
    AB_PAIRS_MAX = KFIT_INTERVAL_MAX,
    AB_PAIRS_95 = 6,    /* fewer pairs give no 95 % interval of a median */
    AB_LINE_MAX = 4096, /* a longer line is taken in pieces */
    AB_HEAD_MAX = 1 << 16,
    AB_METRICS_MAX = 8,
};

enum ab_side { AB_WITHOUT, AB_WITH };
extern const char *const ab_side_names[]; /* "without dispatch", "with dispatch" */

double ab_now_s(void);

/* ---- what a program prints (ab_program.c) ---- */

/* A number in the program's own words: the first group of a POSIX extended regular expression, or all it matches. */
struct ab_metric {
    const char *text;
    regex_t regex;
};

struct ab_metrics {
    struct ab_metric item[AB_METRICS_MAX];
    size_t count;
    bool lower; /* is better */
};

/* Compiles text as the next metric. It is tried first in a child with little memory and time, since a regular
 * expression may ask for any amount of both. */
bool ab_metric_add(struct ab_metrics *m, const char *text);

struct ab_numbers { /* of one metric */
    double *item;
    size_t count;
    unsigned drop; /* yet to be ignored */
    bool bad;      /* it matched what is no number: */
    char bad_text[128];
};

/* Taken line by line as it comes. Kept are a digest of all lines, the beginning, and the metrics' numbers, whose
 * lines do not count in digest and beginning: they differ from run to run. */
struct ab_output {
    const struct ab_metrics *metrics;
    char line[AB_LINE_MAX];
    size_t used;
    uint64_t digest;
    char *head;
    size_t head_bytes;
    struct ab_numbers numbers[AB_METRICS_MAX];
};

/* Medians of the numbers seen, by metric; false if one has none, and why. */
bool ab_output_numbers(const struct ab_output *o, double number[AB_METRICS_MAX]);
/* Whether every metric has a number. */
bool ab_output_complete(const struct ab_output *o);
/* Where two outputs first differ, for people: "line 3 is \"a\", not \"b\"". */
const char *ab_output_difference(const struct ab_output *expected, const struct ab_output *got,
                                 char buf[512]);
void ab_output_finish(struct ab_output *o);

/* ---- one program (ab_program.c) ---- */

struct ab_program {
    pid_t pid;
    int out; /* its stdout, -1 when it is closed */
    double start_s, end_s;
    int status; /* as a shell gives it */
    bool ended;
    struct ab_output output;
};

/* ---- the measurement ---- */

/* Whether what is printed is the same on both sides. */
enum ab_same { AB_SAME, AB_VARIES /* also without dispatch */, AB_DIFFERS };

struct ab {
    /* what to do */
    const char *const *command;
    size_t words;
    const char *shim, *work, *cache, *label; /* work: directory of the traces */
    char generation[24];                     /* pinned, as text; "" in an A/A */
    uint64_t generation_number;
    const char *mode[2]; /* KFIT_MODE by side */
    struct ab_metrics metrics;
    unsigned want_pairs, warm_ups;
    double phase_s; /* 0: runs */
    bool aa, same_output, quiet;
    uint64_t seed, random;
    int signals; /* signalfd: a child's end, and what ends us */
    int guard;   /* pipe to a process that ends the program if we are killed */
    sigset_t before;

    /* what came of it */
    bool stopped;     /* by a signal: what was measured counts */
    bool ended_early; /* phases: the program was done first */
    unsigned pairs;
    double seconds[2][AB_PAIRS_MAX]; /* of a run; of a phase, per call (0: it made none) */
    double number[AB_METRICS_MAX][2][AB_PAIRS_MAX];
    enum ab_same same;
    char difference[512];
    struct cli_traces traces; /* of the last run with dispatch, or of the phases' program */
};

/* Starts the process behind ab->guard. */
bool ab_guard(struct ab *ab);
/* Starts the command on that side. The program leads a process group of its own, which dies with us. */
bool ab_start(struct ab *ab, enum ab_side side, struct ab_program *p);
enum ab_event { AB_ENDED, AB_TIME, AB_STOP };
/* Reads what the program prints until it ends, the time comes (INFINITY: never), or somebody wants us to stop. When
 * it has ended, so has what was left of its process group, and the output is whole. */
enum ab_event ab_watch(struct ab *ab, struct ab_program *p, double until_s);
/* Forgets the numbers that were printed so far, whether read or not, and of each metric the next one too. */
void ab_restart(struct ab_program *p);
/* Ends it: asked to, then, after a while or when somebody is in a hurry, killed. */
void ab_end(struct ab *ab, struct ab_program *p);
void ab_program_finish(struct ab_program *p);

/* Whether a program did what it is measured for; says what is in the way. */
bool ab_dispatched(const struct ab *ab, const struct cli_traces *ts);

/* Takes one whole pair, and says it. */
void ab_note(struct ab *ab, const double seconds[2], double number[2][AB_METRICS_MAX]);

/* All phases of one run (ab_phases.c). */
bool ab_phases(struct ab *ab);

/* ---- conclusions (ab_result.c) ---- */

/* Prints the finding, as text or JSON, and writes the JSON to out (NULL: nowhere). Returns an exit status. */
int ab_conclude(struct ab *ab, const char *out, bool json);

#endif
