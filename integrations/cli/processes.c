/* States and jobs, from the headers of traces. */
#include <stdlib.h>
#include <string.h>

#include "kfit/hash.h"
#include "processes.h"

uint64_t cli_trace_id(const struct kfit_trace_header *h)
{
    char text[160];
    snprintf(text, sizeof text, "%.40s/%llu/%d/%llu/%lld", h->boot_id, (unsigned long long)h->pid_namespace,
             h->pid, (unsigned long long)h->start_ticks, (long long)h->start_unix_ns);
    return kfit_text_hash(text);
}

const char *cli_device(const struct kfit_trace_header *h)
{
    return h->device[0] ? SAFE(h->device) : "host";
}

size_t cli_process_count(const struct cli_traces *ts)
{
    size_t n = 0;
    for (size_t i = 0; i < ts->count; i++) {
        size_t j = 0;
        while (j < i &&
               !kfit_trace_same_process(kfit_trace_header(ts->item[i].t), kfit_trace_header(ts->item[j].t)))
            j++;
        n += j == i;
    }
    return n;
}

uint64_t cli_process_id(const struct kfit_trace_header *h)
{
    char text[160];
    snprintf(text, sizeof text, "%.40s/%llu/%d/%llu", h->boot_id, (unsigned long long)h->pid_namespace,
             h->pid, (unsigned long long)h->start_ticks);
    return kfit_text_hash(text);
}

bool cli_dispatching(const struct kfit_trace_header *h, unsigned *why)
{
    *why = h->state_reason < KFIT_REASON_COUNT ? h->state_reason : (unsigned)KFIT_REASON_LOAD_FAILED;
    if (!*why && kfit_control_is_off(h->control))
        *why = KFIT_REASON_OFF;
    if (!*why && !(h->mode & KFIT_MODE_DISPATCH))
        *why = KFIT_REASON_OFF;
    return *why == KFIT_REASON_NONE;
}

const char *cli_mode_name(uint32_t mode)
{
    static const char *const names[] = {"off", "record", "dispatch", "both"};
    return mode < sizeof names / sizeof *names ? names[mode] : "?";
}

static bool same_job(const struct kfit_trace_header *a, const struct kfit_trace_header *b)
{
    if (strcmp(a->boot_id, b->boot_id) || a->uid != b->uid || strcmp(a->job, b->job))
        return false;
    return a->job[0] || (!strcmp(a->label, b->label) && !strcmp(a->program, b->program));
}

static bool same_generation(const struct kfit_trace_header *a, const struct kfit_trace_header *b)
{
    return a->generation == b->generation &&
           !memcmp(a->generation_digest, b->generation_digest, sizeof a->generation_digest);
}

/* Puts trace i where its rank belongs. */
static void join(struct cli_job *j, const struct cli_traces *ts, size_t i)
{
    const struct kfit_trace_header *h = kfit_trace_header(ts->item[i].t);
    size_t at = j->count++;
    j->item = cli_alloc(j->item, j->count * sizeof *j->item);
    for (; at && kfit_trace_header(ts->item[j->item[at - 1]].t)->rank > h->rank; at--)
        j->item[at] = j->item[at - 1];
    j->item[at] = i;
    j->mixed |= !same_generation(h, kfit_trace_header(ts->item[j->item[at ? 0 : j->count - 1]].t));
}

void cli_jobs_find(struct cli_jobs *jobs, const struct cli_traces *ts)
{
    *jobs = (struct cli_jobs){0};
    for (size_t i = 0; i < ts->count; i++) {
        const struct kfit_trace_header *h = kfit_trace_header(ts->item[i].t);
        if (!ts->item[i].alive || h->rank < 0)
            continue;
        size_t j = 0;
        while (j < jobs->count && !same_job(h, kfit_trace_header(ts->item[jobs->job[j].item[0]].t)))
            j++;
        if (j == jobs->count) {
            jobs->job = cli_alloc(jobs->job, ++jobs->count * sizeof *jobs->job);
            jobs->job[j] = (struct cli_job){0};
        }
        join(&jobs->job[j], ts, i);
    }
}

void cli_jobs_free(struct cli_jobs *jobs)
{
    for (size_t i = 0; i < jobs->count; i++)
        free(jobs->job[i].item);
    free(jobs->job);
    *jobs = (struct cli_jobs){0};
}
