/* judge_device.h - what a device brings to the judge: its gates, and how a trial begins and ends.
 *
 * judge.c walks the gates, writes the receipt and decides the verdict; a device is one file judge_NAME.c and
 * one row of the table there. */
#ifndef KFIT_JUDGE_DEVICE_H
#define KFIT_JUDGE_DEVICE_H

#include "kfit/judge.h"

/* One evaluation in flight. */
struct judge_trial {
    const struct judge_device *ops;
    void *device; /* what open made */
    const struct kfit_judge_job *job;
    struct kfit_receipt *r;
};

struct judge_gate {
    const char *name;
    /* Fills g; KFIT_OK also when the candidate is refused. */
    enum kfit_status (*run)(struct judge_trial *t, struct kfit_gate_result *g, struct kfit_error *err);
    bool screen, full; /* part of a screening, of a full evaluation */
};

struct judge_device {
    const char *name;
    const struct judge_gate *gates; /* in order of cost, ends with a row without name */

    /* The parameters are checked and live as long as the judge; seed is that of the fixed inputs. */
    enum kfit_status (*open)(const struct kfit_judge_params *p, uint64_t seed, void **device,
                             struct kfit_error *err);
    void (*close)(void *device);

    enum kfit_status (*check_key)(const union kfit_key *key, struct kfit_error *err);
    enum kfit_status (*begin)(struct judge_trial *t, struct kfit_error *err);
    void (*end)(struct judge_trial *t);

    enum kfit_status (*time_generic)(void *device, const union kfit_key *key, double *ns,
                                     struct kfit_error *err);
    enum kfit_status (*bound)(void *device, const union kfit_key *key, double *ns, struct kfit_error *err);
    void (*keep)(void *device, struct kfit_store *store); /* where measured ceilings may be kept; NULL: nothing to keep */
    /* Which device this is, without disturbing who measures on it; NULL: there is only one, of the device's name. */
    enum kfit_status (*identify)(const char *runner, char id[48], struct kfit_error *err);
};

extern const struct judge_device judge_host, judge_cuda;

/* Faster than the device can be is a reason to look, then to disbelieve: the gate both devices share. */
enum kfit_status judge_gate_bound(struct judge_trial *t, struct kfit_gate_result *g, struct kfit_error *err);

/* What a second evaluation in a fresh process means: a code of its own, and why in the receipt's detail. */
void judge_repeat_verdict(struct judge_trial *t, struct kfit_gate_result *g, bool wrong);

/* Where a program of ours lies: `given`, else beside the running program, in an installed tree, in
 * a build tree. */
enum kfit_status judge_find_program(const char *given, const char *name, char out[512],
                                    struct kfit_error *err);
uint64_t judge_os_random(void);

#endif
