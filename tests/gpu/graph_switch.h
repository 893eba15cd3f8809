/* graph_switch.h - what is tried: a way to switch kernels (graph_switch.c has them), and what they are switched to. */
#ifndef GRAPH_SWITCH_H
#define GRAPH_SWITCH_H

#include <stdbool.h>

enum { EVERY = 10 }; /* this one of the nodes is switched */

struct shape {
    const char *name;
    unsigned kernel, grid, smem_bytes;
    unsigned cluster; /* by an attribute; 0: none is set */
    bool off;         /* does not run at all: our one kernel for two of theirs */
};
enum { SHAPES = 6 };
extern const struct shape shapes[SHAPES];

struct way {
    const char *name, *what;
    enum { NODE, UPDATE, SWAP } by;
    bool kept;     /* the original, not destroyed */
    bool clone;    /* one is made before instantiating, and its nodes are named */
    bool of_clone; /* the executable is made from it, not from the original */
};

/* In a process of their own, which may crash, and which they end where the driver refuses what it must not: they tell members of a
 * JSON object, a line each. What they return is its exit status, 77 where there is no GPU for it. */
int try(const struct way *w, unsigned nodes);
int of_device(void);

#endif
