/* graphs.h - executable graphs of live processes: what was captured is replayed, whatever is switched, banned or
 * published since, until the program restarts or captures it again. */
#ifndef CLI_GRAPHS_H
#define CLI_GRAPHS_H

#include "cli.h"

struct cli_graph_sums {
    uint64_t made, live;          /* that the trace has room for */
    uint64_t ours;                /* live ones that hold kernels of kfit's, if the process lives */
    uint64_t replays;             /* launches of all */
    uint64_t calls_lost, no_room; /* calls that found no room in their graphs; graphs that found none */
};

struct cli_graph_sums cli_graphs_sum(const struct cli_trace *t);
/* {made, live, holding_kernels, replays, calls_lost, without_room} */
cJSON *cli_graphs_json(const struct cli_graph_sums *s);

/* Which live graphs of a live process are asked for. */
enum cli_graphs_which {
    CLI_GRAPHS_OURS, /* hold a kernel of kfit's, of key if not NULL */
    CLI_GRAPHS_OFF,  /* captured while kfit was off */
};

enum { CLI_GRAPHS_BYTES = 400 }; /* enough for the text of cli_graphs_list */
/* Their numbers into list, and as "3, 7-12, 40" into buf, cut where it gets long; either may be NULL. Returns how many. */
size_t cli_graphs_list(const struct cli_trace *t, enum cli_graphs_which which, const union kfit_key *key,
                       cJSON *list, char *buf, size_t size);
/* Captures with kernels of kfit's that a live process has not ended, or made no executable graph of yet. */
uint32_t cli_graphs_making(const struct cli_trace *t);
/* Says on stderr, once per trace, which these are and what they do until a restart or a new capture; their numbers
 * into list, if not NULL. Returns how many, those included that found no room in the trace, and, of no key, captures that
 * may become one of them. */
size_t cli_graphs_say(const struct cli_trace *t, enum cli_graphs_which which, const union kfit_key *key,
                      cJSON *list);
/* The same for all live processes in the usual places. */
size_t cli_graphs_say_all(const union kfit_key *key);

#endif
