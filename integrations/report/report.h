/* report.h - what kfit means for a server: gain per key, share of time, why the rest is kept.
 *
 * A trace holds calls, not times. A key's time is its calls x what the generic takes, as the judge measured
 * it (basis "measured"). For a key never measured it is estimated from its FLOPs and bytes, scaled so that
 * the measured keys of the same report come out right (basis "estimated"); with nothing measured only the
 * shares mean anything. Shares and gain are of the recorded time in known ops; what else the program does is
 * not known here.
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

struct kfit_report_input {
    struct kfit_trace *const *traces; /* may be many; a key in two environments is two rows */
    size_t count;
    const struct kfit_report_want *wanted;
    size_t wanted_count;
    const struct kfit_records *published,
        *staged;              /* may be NULL; the published result of a key comes first */
    struct kfit_store *store; /* for codes from receipts; may be NULL */
    uint64_t generation;      /* number of the published records, 0: none */
};

struct kfit_report_key {
    union kfit_key key;
    uint64_t env_hard;
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
    uint64_t miss[KFIT_TRACE_REASONS]; /* calls by reason, unkeyed ones included */
    double share_known_ops;            /* of the calls: those that became a key */
    double share_replaceable;          /* of the time: keys with a promoted winner */
    double share_replaced;             /* of the time: calls that ran one */
    double gain;                       /* of the time: what is saved if every replaceable call is replaced */
    size_t promoted, kept, untuned;
    bool any_measured;
};

enum kfit_status kfit_report_make(const struct kfit_report_input *in, struct kfit_report *out,
                                  struct kfit_error *err);
void kfit_report_finish(struct kfit_report *r);

/* The caller's to delete; NULL when out of memory. */
cJSON *kfit_report_json(const struct kfit_report *r);
void kfit_report_text(const struct kfit_report *r, FILE *to);

#endif
