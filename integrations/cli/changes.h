/* changes.h - what differs between two sets of records: for review and approve (what publishing what was tuned would
 * do to the current generation) and for cache diff (one generation against another). */
#ifndef CLI_CHANGES_H
#define CLI_CHANGES_H

#include "bans.h"
#include "outcome.h"

enum cli_change_kind {
    CLI_CHANGE_NEW,       /* a kernel where none was */
    CLI_CHANGE_REPLACES,  /* another kernel than before */
    CLI_CHANGE_CONFIRMS,  /* the same result, measured again in another soft environment */
    CLI_CHANGE_WITHDRAWS, /* the original again where a kernel was */
    CLI_CHANGE_KEPT,      /* tuned, the original stays: not known before */
    CLI_CHANGE_FORGETS,   /* the same, known before and no longer */
    CLI_CHANGE_KINDS
};

struct cli_change {
    enum cli_change_kind kind;
    const struct kfit_record *from, *to; /* NULL: none; they live as long as the two sets */
    const struct cli_ban *ban;           /* why it is withdrawn; NULL: it is not for a ban */
    double share;                        /* of the recorded time; negative: not known */
    double gain;    /* of the whole recorded time, what the change saves; 0 where share is not known */
    char left[160]; /* why it is left out; "": it is taken */
};

struct cli_changes {
    struct cli_change *item; /* in the records' order */
    size_t count;
    size_t same; /* records of `to` that change nothing */
};

/* From one set to another. whole: `to` is all there will be, so that what it lacks goes; else it is laid over
 * `from`. With bans (NULL: none) what is banned goes, whatever `to` says. */
void cli_changes_find(struct cli_changes *c, const struct kfit_records *from, const struct kfit_records *to,
                      bool whole, const struct cli_bans *bans);
void cli_changes_free(struct cli_changes *c);

/* Fills share and gain from a report over traces. Sums of gains are of the same whole: the recorded time, every call
 * with the original. */
void cli_changes_weigh(struct cli_changes *c, const struct kfit_report *report);
/* Sum over what is taken. */
double cli_changes_gain(const struct cli_changes *c);

const char *cli_change_name(enum cli_change_kind kind); /* "replaces" */
const union kfit_key *cli_change_key(const struct cli_change *c);
/* The record that people look at: the new one, else the old. */
static inline const struct kfit_record *cli_change_record(const struct cli_change *c)
{
    return c->to ? c->to : c->from;
}

/* One row; the first prints a heading. decisions: with what is left out, and why. */
void cli_change_print(const struct cli_change *c, bool heading, bool decisions);
/* o: for the environment's text. */
cJSON *cli_change_json(const struct cli_change *c, const struct cli_outcome *o);
/* What the change means for one server's time, once: 1 with the original, less with a kernel. */
double cli_record_factor(const struct kfit_record *r);

#endif
