/* What a parsed candidate holds: candidate.c fills it, resolve.c evaluates it. */
#ifndef KFIT_CANDIDATE_PRIVATE_H
#define KFIT_CANDIDATE_PRIVATE_H

#include "kfit/candidate.h"

#define KFIT_REQUIRES_MAX 16

struct kfit_candidate_launch {
    char entry[KFIT_ENTRY_NAME_MAX];
    char *grid[3], *block[3], *cluster[3], *smem; /* expressions; NULL: the default */
    bool cooperative;
};

struct kfit_candidate_map {
    unsigned arg;
    char *box[2], *swizzle; /* expressions: rows, columns; bytes, NULL: none */
};

struct kfit_candidate {
    char *source;
    size_t bytes;
    const struct kfit_op *op;
    char device[8], name[64];
    unsigned knob_count, start_count, require_count, launch_count;
    struct kfit_knob knobs[KFIT_KNOBS_MAX];
    struct kfit_choice starts[KFIT_STARTS_MAX];
    char *requires[KFIT_REQUIRES_MAX];
    char *workspace; /* NULL: none */
    enum kfit_ws_init workspace_init;
    struct kfit_candidate_launch launches[KFIT_LAUNCHES_MAX];
    unsigned map_count;
    struct kfit_candidate_map maps[KFIT_TENSORMAPS_MAX];
};

/* The value chosen for knob i. */
int64_t kfit_choice_value(const struct kfit_candidate *c, const struct kfit_choice *choice, unsigned i);

#endif
