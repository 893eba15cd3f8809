/* policy.h - which winners are published: rules that a person can read, from options and from a file.
 *
 * A policy file is one JSON object; an unknown name, a name given twice, or a value of another kind is an error that
 * names it:
 *
 *     {"kfit_policy": 1,
 *      "min_ratio": 1.05,             so many times as fast as the original, by the lower end of the interval
 *      "min_share_percent": 0.1,      its key takes at least so much of the recorded time (needs traces)
 *      "origins": ["seed:*", "person:ann"],   where it comes from; patterns as in KFIT_ALLOW
 *      "max_keys": 50}                at most so many new or replaced kernels at a time, those that bring most first
 *
 * Rules add up: a winner must satisfy the file's and the options'. They say what may come in. What goes out (a ban, a
 * key that kept the original) always goes: that is the safe side.
 */
#ifndef CLI_POLICY_H
#define CLI_POLICY_H

#include "changes.h"

struct cli_rules {
    const char *from; /* the file's path; NULL: options */
    double min_ratio, min_share_percent;
    struct cli_list origins;
    uint64_t max_keys; /* 0: any number */
};

/* False after a message. The rules' texts live until exit. */
bool cli_rules_read(struct cli_rules *rules, const char *path);
bool cli_rules_need_shares(const struct cli_rules *rules);
/* Marks in c what is left out and why; call it once for each set of rules. */
void cli_rules_apply(const struct cli_rules *rules, struct cli_changes *c);
/* Whole, or what stands before a * at the end. */
bool cli_origin_matches(const char *origin, const char *pattern);
bool cli_origin_pattern(const char *text); /* whether it can be one */

#endif
