/* processes.h - what traces say of processes: in what state, why, and whether the ranks of a job agree. */
#ifndef CLI_PROCESSES_H
#define CLI_PROCESSES_H

#include "cli.h"

/* Which process (and which of its recorders) wrote a trace, whatever path the file has now: `kfit run` moves
 * and people copy them. */
uint64_t cli_trace_id(const struct kfit_trace_header *h);

/* "cuda0"; "host" of a trace without a GPU. Lives as cli_str's. */
const char *cli_device(const struct kfit_trace_header *h);
/* How many processes the traces are of; a merged one is one. */
size_t cli_process_count(const struct cli_traces *ts);

/* Which process: the same for all its traces. */
uint64_t cli_process_id(const struct kfit_trace_header *h);

/* Whether calls of keys with a kernel are replaced now; *why is NONE if so, else what a call would be told. */
bool cli_dispatching(const struct kfit_trace_header *h, unsigned *why);
const char *cli_mode_name(uint32_t mode); /* never NULL */

/* Live processes of one job: same job as the launcher names it, else same label and program, on one boot. */
struct cli_job {
    size_t *item; /* indexes into the traces, by rank; at least one */
    size_t count;
    bool mixed; /* two ranks hold different generations, or one holds none */
};

struct cli_jobs {
    struct cli_job *job;
    size_t count;
};

/* Every live process that knows its rank is in one job. Free with cli_jobs_free. */
void cli_jobs_find(struct cli_jobs *jobs, const struct cli_traces *ts);
void cli_jobs_free(struct cli_jobs *jobs);

#endif
