/* Which keys are worth a search, and in which order. */
#include <stdlib.h>
#include <string.h>

#include "kfit/tune.h"

/* Beyond this a float64 reference takes seconds and no host kernel of ours has anything to win. */
#define FLOPS_MAX 4e9

static bool tunable(const union kfit_key *key, bool host)
{
    const struct kfit_gemm_key *g = &key->gemm;
    bool plain = g->len == KFIT_GEMM_KEY_BYTES && !g->epi; /* all that a host's BLAS computes */
    return key->h.op == KFIT_OP_GEMM && (plain || !host) && g->alpha == KFIT_SCALAR_ONE &&
           g->beta != KFIT_SCALAR_OTHER && kfit_op_of(key)->flops(key) <= FLOPS_MAX;
}

static int by_score(const void *a, const void *b)
{
    const struct kfit_target *x = a, *y = b;
    if (x->score != y->score)
        return x->score < y->score ? 1 : -1;
    return x->calls != y->calls ? (x->calls < y->calls ? 1 : -1) : 0;
}

enum kfit_status kfit_targets_from_trace(const struct kfit_trace *t, uint64_t min_calls,
                                         struct kfit_target **out, size_t *count, size_t *skipped,
                                         struct kfit_error *err)
{
    size_t slots = kfit_trace_count(t), n = 0, left = 0;
    char device[16] = "host";
    kfit_env_get(kfit_trace_header(t)->env.hard, "device", device, sizeof device);
    bool host = !strcmp(device, "host");
    struct kfit_target *list = calloc(slots ? slots : 1, sizeof *list);
    if (!list)
        return kfit_fail(err, KFIT_E_NOMEM, "targets: no memory for %zu keys", slots);
    for (size_t i = 0; i < slots; i++) {
        const struct kfit_trace_slot *s = kfit_trace_at(t, i);
        uint64_t calls = kfit_slot_calls(s);
        if (calls < min_calls || !tunable(&s->key, host)) {
            left++;
            continue;
        }
        /* Before anything is timed, work stands in for time. */
        list[n++] = (struct kfit_target){.key = s->key,
                                         .calls = calls,
                                         .generic = s->generic,
                                         .score = (double)calls * kfit_op_of(&s->key)->flops(&s->key)};
    }
    qsort(list, n, sizeof *list, by_score);
    *out = list;
    *count = n;
    if (skipped)
        *skipped = left;
    return KFIT_OK;
}

enum kfit_status kfit_targets_measure(struct kfit_judge *j, struct kfit_target *targets, size_t count,
                                      struct kfit_error *err)
{
    for (size_t i = 0; i < count; i++) {
        struct kfit_target *t = &targets[i];
        enum kfit_status s = kfit_judge_time_generic(j, &t->key, &t->ns_incumbent, err);
        if (s == KFIT_OK)
            s = kfit_judge_bound(j, &t->key, &t->ns_bound, err);
        if (s != KFIT_OK)
            return s;
        double room = t->ns_incumbent - t->ns_bound;
        t->score = (double)t->calls * (room > 0 ? room : 0);
    }
    qsort(targets, count, sizeof *targets, by_score);
    return KFIT_OK;
}
