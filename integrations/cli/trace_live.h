/* trace_live.h - a GPU's trace for people: whose kernels ran, and how much of that kfit knows. */
#ifndef CLI_TRACE_LIVE_H
#define CLI_TRACE_LIVE_H

#include "cli.h"

int cli_trace_kernels(int argc, char **argv);
int cli_trace_graphs(int argc, char **argv);

/* Share of the launches that are known ops, kfit's own included; negative if there are none. */
double cli_known_ops(const struct kfit_trace_launches *l);
/* {by_kfit, in_known_ops, other} */
cJSON *cli_launches_json(const struct kfit_trace_launches *l);

/* t's kernels, launched most first; the caller frees the list. */
const struct kfit_trace_kernel **cli_kernels_sorted(const struct kfit_trace *t);
/* {name, image, launches, in_known_ops} */
cJSON *cli_kernel_json(const struct kfit_trace_kernel *k);

#endif
