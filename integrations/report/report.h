/* report.h - what kfit means for a server: gain per key, share of time, why the rest is kept.
 *
 * A trace holds calls, not times. A key's time is its calls x what the generic takes, as the judge measured
 * it (basis "measured"). For a key never measured it is estimated from its FLOPs and bytes, scaled so that
 * the measured keys of the same report come out right (basis "estimated"); with nothing measured only the
 * shares mean anything. Shares and gain are of the recorded time in known ops. What the program gains is
 * measured only by running it with and without dispatch (`kfit ab`); else it is estimated, see struct
 * kfit_report_gain.
 *
 * Thread-safety: one thread per object; nothing here is shared.
 */
#ifndef KFIT_REPORT_H
#define KFIT_REPORT_H

#include <stdio.h>

#include <cjson/cJSON.h>

#include "kfit/receipt.h"
#include "kfit/trace.h"
#include "records.h"

#define KFIT_REPORT_VERSION 1

/* A key of interest beside what was recorded: a row without calls where no trace has it. */
struct kfit_report_want {
    union kfit_key key;
    uint64_t env_hard;
};

/* What `kfit ab` measured: the same program with and without dispatch. */
struct kfit_report_ab {
    char command[256], mode[8]; /* words joined by spaces; "runs" or "phases" */
    char metric[128];           /* regular expression of the number that was compared; "": the time */
    unsigned pairs;
    uint64_t generation;  /* 0: not said */
    double ratio, lo, hi; /* time without / time with dispatch (or the metric's), 95 % interval */
    double off_s, on_s;   /* the times; 0: not said */
    double predicted;     /* the ratio that the per-shape gains predicted; 0: none */
    double spread;        /* relative, of the runs without dispatch; < 0: not said */
};

/* Reads the file of `kfit ab --out`. KFIT_E_FORMAT, KFIT_E_VERSION: what is wrong is in err, *out undefined. */
enum kfit_status kfit_report_ab_parse(const char *json, size_t bytes, struct kfit_report_ab *out,
                                      struct kfit_error *err);

/* What only `kfit report` looks at. All may be zero. */
struct kfit_report_extra {
    const struct kfit_records *previous; /* of an earlier generation, to compare the published one with */
    uint64_t previous_generation;
    double wall_s; /* the processes' time from first call to end, added up; 0: not known of all */
    const struct kfit_report_ab *ab;
};

struct kfit_report_input {
    struct kfit_trace *const *traces; /* may be many; a key in two environments is two rows */
    size_t count;
    const struct kfit_report_want *wanted;
    size_t wanted_count;
    const struct kfit_records *published,
        *staged;                           /* may be NULL; the published result of a key comes first */
    struct kfit_store *store;              /* for codes from receipts; may be NULL */
    uint64_t generation;                   /* number of the published records, 0: none */
    const struct kfit_report_extra *extra; /* may be NULL */
};

/* What the published generation changed against the previous one, in records. */
struct kfit_report_changes {
    uint64_t previous; /* number, 0: there is none */
    size_t added, removed, changed, same;
};

/* What the program gains: time saved / its time without kfit. The formulas are in README.md. */
struct kfit_report_gain {
    bool known;    /* false: no promoted winner, nothing measured */
    bool measured; /* by kfit ab, end to end; else estimated from the shapes' own ratios */
    bool at_most;  /* of the recorded time in known ops only: what else the program does is not known */
    bool realised; /* by the calls that ran winners; else what replacing every replaceable call would bring */
    double gain, lo, hi;
};

struct kfit_report_key {
    union kfit_key key;
    uint64_t env_hard;
    bool gpu; /* where it was called; false also if it never was */
    uint64_t calls, count[KFIT_TRACE_REASONS];
    double share;               /* of the recorded time in known ops */
    double before_ns, after_ns; /* generic, and what the known result makes of it; 0: not known */
    double floor_ns;      /* measured lower bound of any kernel for it, from the receipt; 0: not known */
    double ratio, lo, hi; /* before / after; 0: never judged */
    bool measured, judged, published;
    enum kfit_verdict verdict; /* if judged */
    char code[40];             /* why it was kept or refused; "" if promoted or not known */
    char near_miss[200];       /* filled by the caller, who may ask the dispatcher */
};

struct kfit_report {
    struct kfit_report_key *keys; /* by share, largest first */
    size_t count;
    uint64_t generation, calls, unkeyed;
    uint64_t miss[KFIT_TRACE_REASONS];   /* calls by reason, unkeyed ones included */
    struct kfit_trace_launches launches; /* on GPUs, by whom; all zero where no trace is of one */
    double share_known_ops;              /* of the launches on GPUs; where there are none, of the calls */
    double share_replaceable;            /* of the time: keys with a promoted winner */
    double share_replaced;               /* of the time: calls that ran one */
    double gain, gain_lo, gain_hi; /* of the time: what is saved if every replaceable call is replaced */
    double wall_s;                 /* as given */
    struct kfit_report_gain program;
    struct kfit_report_changes changes;
    struct kfit_report_ab ab; /* ab.pairs is 0 if there was none */
    size_t promoted, kept, untuned;
    bool any_measured;
};

enum kfit_status kfit_report_make(const struct kfit_report_input *in, struct kfit_report *out,
                                  struct kfit_error *err);
void kfit_report_finish(struct kfit_report *r);

/* Whether the key was judged and kept the original for this code. */
bool kfit_report_kept_for(const struct kfit_report_key *k, const char *code);
/* Whether keys[i] is the first of those that kept the original for its code. */
bool kfit_report_reason_begins(const struct kfit_report *r, size_t i);

/* The first line of every report, one sentence without a full stop; returns buf. */
const char *kfit_report_headline(const struct kfit_report *r, char *buf, size_t size);
/* What that line rests on, in one or two sentences; returns buf. */
const char *kfit_report_basis(const struct kfit_report *r, char *buf, size_t size);

/* The caller's to delete; NULL when out of memory. */
cJSON *kfit_report_json(const struct kfit_report *r);
void kfit_report_text(const struct kfit_report *r, FILE *to);

/* ---- the page (report_html.c) ---- */

/* What the page shows beside the report. All borrowed for the call, all may be NULL or zero. */
struct kfit_report_page {
    const struct kfit_report *report; /* required */
    const struct kfit_records *published, *staged;
    const struct kfit_records *previous;           /* of the generation before the published one */
    const struct kfit_manifest *manifest, *before; /* of published and previous */
    struct kfit_store *store;                      /* for receipts */
    const struct kfit_trace *const *processes;     /* one trace a process, not merged */
    size_t process_count;
    int64_t made_unix_s;
    const char *version; /* of kfit */
};

/* Writes one self-contained HTML page. Every text is escaped where it is written, whatever it holds.
 * KFIT_E_NOMEM; errors of `to` are the caller's to look for. */
enum kfit_status kfit_report_html(const struct kfit_report_page *p, FILE *to, struct kfit_error *err);

/* ---- words and figures ---- */

/* What share_known_ops is a share of: "them", the calls, or "all launches on GPUs". */
const char *kfit_report_counted(const struct kfit_report *r);

/* "45.2 us"; "-" if not positive. Returns buf. */
const char *kfit_report_ns(double ns, char buf[24]);
/* Plain words for a code of a receipt ("slow:tie"), what it means for the reader; never NULL. */
const char *kfit_report_code_words(const char *code);

#endif
