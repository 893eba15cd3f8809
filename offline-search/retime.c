/* A winner of another soft environment, judged again in the present one. */
#include <stdio.h>
#include <time.h>

#include "evaluation.h"

/* What is known of it from when it was made stays; what is judged now is new. */
static void identify(const struct kfit_tune_params *p, const struct kfit_record *winner,
                     struct kfit_receipt *r)
{
    if (!archive_find(p, &winner->key, winner->source_digest, r)) {
        *r = (struct kfit_receipt){.key = winner->key, .deterministic = true};
        memcpy(r->digest, winner->source_digest, sizeof r->digest);
        snprintf(r->name, sizeof r->name, "%.63s", winner->origin);
        snprintf(r->proposer, sizeof r->proposer, "unknown");
    }
    memcpy(r->origin, winner->origin, sizeof r->origin);
    snprintf(r->operator_name, sizeof r->operator_name, "retime");
    snprintf(r->campaign, sizeof r->campaign, "%s", p->campaign ? p->campaign : "retime");
    r->plan = winner->plan;
    r->env = *p->env;
    r->gate_count = r->timing_count = 0;
    r->noise = r->bound_ns = r->compile_ns = 0;
    r->detail[0] = '\0';
    r->verdict = KFIT_VERDICT_KEPT;
    r->code = KFIT_CODE_NONE;
    r->made_unix_s = (int64_t)time(NULL);
}

static enum kfit_retimed outcome_of(const struct kfit_receipt *r)
{
    if (r->verdict == KFIT_VERDICT_PROMOTED)
        return KFIT_RETIMED_CONFIRMED;
    if (r->code == KFIT_CODE_GENERIC_WRONG) /* the library's fault, not the winner's */
        return KFIT_RETIMED_UNDECIDED;
    return r->verdict == KFIT_VERDICT_REFUSED || evaluation_found_slow(r) ? KFIT_RETIMED_RETIRED
                                                                          : KFIT_RETIMED_UNDECIDED;
}

enum kfit_status kfit_retime(const struct kfit_tune_params *params, const struct kfit_record *winner,
                             enum kfit_retimed *outcome, struct kfit_receipt *receipt, struct kfit_error *err)
{
    struct kfit_tune_result result = {0};
    struct tuner t = {.p = params, .result = &result, .start_ns = kfit_now_ns()};
    const struct kfit_built built = {
        .image = (void *)(uintptr_t)winner->image, .image_bytes = winner->image_bytes, .plan = winner->plan};
    *outcome = KFIT_RETIMED_UNDECIDED;
    if (winner->kind != KFIT_RECORD_WINNER || !winner->image)
        return kfit_fail(err, KFIT_E_ARG, "retime: not a winner with its image");
    if (winner->env_hard != params->env->hard_hash)
        return kfit_fail(err, KFIT_E_ENV, "retime: the winner is of another machine than %.200s",
                         params->env->hard);
    identify(params, winner, receipt);
    enum kfit_status s = evaluation_judge(&t, &built, NULL, EVALUATION_FULL, receipt, err);
    if (s != KFIT_OK)
        return s;
    *outcome = outcome_of(receipt);
    if (*outcome == KFIT_RETIMED_UNDECIDED) /* what waits for a person must be found by one */
        return receipt->verdict == KFIT_VERDICT_REVIEW ? archive_note(params, receipt, err) : KFIT_OK;
    bool confirmed = *outcome == KFIT_RETIMED_CONFIRMED;
    return archive_stage(params, receipt, confirmed ? winner->image : NULL,
                         confirmed ? winner->image_bytes : 0, NULL, 0, err);
}
