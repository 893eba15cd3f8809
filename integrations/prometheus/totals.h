/* totals.h - counters that only grow, from traces that come and go.
 *
 * A trace belongs to one process and disappears some time after it; a counter of Prometheus must not. So what
 * each trace said when it was last looked at is kept, and only what came since is added to the totals of its
 * deployment (label and program). A trace that is gone keeps its share of the totals; one that was moved or
 * copied is known again by its process. What was never looked at between a process' birth and its trace's end
 * is not counted.
 *
 * Everything is bounded: deployments beyond KFIT_METRICS_DEPLOYMENTS are counted together as "(other)", traces
 * gone for a day are forgotten, keys are counted one by one only if asked for, and then the leading ones.
 *
 * Thread-safety: one thread per object. Memory that is not there ends the program (cli_alloc).
 */
#ifndef KFIT_METRICS_TOTALS_H
#define KFIT_METRICS_TOTALS_H

#include "processes.h"

enum {
    KFIT_METRICS_DEPLOYMENTS = 64,
    KFIT_METRICS_KEYS_MAX = 100, /* the most that can be asked for */
    KFIT_METRICS_KEYS_KEPT = 4,  /* so many times more are kept count of, so that the leaders may change */
    KFIT_METRICS_TRACES = 16384, /* remembered, gone ones included */
    KFIT_METRICS_FORGET_S = 24 * 3600, /* a trace gone for so long */
    KFIT_METRICS_STATE_VERSION = 1,
};

/* Of the processes that ran at the last scan. */
struct kfit_metrics_live {
    uint64_t processes[KFIT_REASON_COUNT]; /* by why calls go to the original; [NONE]: dispatching */
    uint64_t calls, hits;
    uint64_t oldest, newest;             /* generation; 0: a process holds none */
    struct kfit_trace_loaded loaded;     /* the largest of each */
    uint64_t keys;                       /* most slots any of them has in use */
    uint64_t mixed_jobs;                 /* whose ranks hold different generations */
    uint64_t graphs, graphs_ours;        /* captured and not gone; of these, with kernels of kfit's */
    struct kfit_trace_launches launches; /* on GPUs, by whom */
    bool any;
};

struct kfit_metrics_deployment {
    char label[64], program[128]; /* printable */
    /* only grow */
    uint64_t count[KFIT_TRACE_REASONS]; /* calls by enum kfit_reason, keyed or not */
    uint64_t started, ended_clean, ended_unknown;
    struct kfit_metrics_live live;
};

struct kfit_metrics_counts {
    uint64_t hits, misses;
};

struct kfit_metrics_key {
    union kfit_key key;
    struct kfit_metrics_counts sum;
};

/* What a trace said when it was last looked at. */
struct kfit_metrics_seen {
    uint64_t id;      /* cli_trace_id */
    uint64_t process; /* which process; 0: not known */
    uint32_t deployment;
    bool ended, present;
    bool further; /* a process' further trace, another stands for it where processes are counted */
    int64_t at_unix_s;
    uint64_t count[KFIT_TRACE_REASONS];
    struct kfit_metrics_counts *keys; /* by index of kfit_metrics.key; NULL: none yet */
};

struct kfit_metrics {
    struct kfit_metrics_deployment *deployment;
    size_t deployments;
    struct kfit_metrics_seen *seen; /* by id */
    size_t seen_count;
    struct kfit_metrics_key *key; /* room for keys_wanted * KFIT_METRICS_KEYS_KEPT */
    size_t keys, keys_wanted;
    /* of the last scan */
    size_t traces_live, traces_ended, traces_unreadable;
    double scan_s;
};

void kfit_metrics_init(struct kfit_metrics *m, size_t keys_wanted);
void kfit_metrics_finish(struct kfit_metrics *m);

/* Takes in what the traces say now. Merged traces, which belong to no process, are left out. */
void kfit_metrics_scan(struct kfit_metrics *m, const struct cli_traces *ts, int64_t now_unix_s);

/* ---- state.c: totals kept over a restart ---- */

/* m is initialised and empty. No such file: KFIT_OK, nothing is known yet. A damaged one is refused and left as
 * it is: KFIT_E_FORMAT, KFIT_E_VERSION. */
enum kfit_status kfit_metrics_load(struct kfit_metrics *m, const char *path, struct kfit_error *err);
/* Atomic; 0600. */
enum kfit_status kfit_metrics_save(const struct kfit_metrics *m, const char *path, struct kfit_error *err);

/* ---- exposition.c ---- */

/* What is not in traces. */
struct kfit_metrics_place {
    uint64_t published; /* generation that is current in the cache; 0: none */
    bool off;           /* the file `off` is there */
};

/* Prometheus' text format 0.0.4. */
void kfit_metrics_print(const struct kfit_metrics *m, const struct kfit_metrics_place *place, FILE *to);

#endif
