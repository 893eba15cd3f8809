/* release.h - what review, approve and rollback share. */
#ifndef CLI_RELEASE_H
#define CLI_RELEASE_H

#include "changes.h"
#include "signing.h"

/* What was tuned, what is published, and what taking the one over into the other would change. */
struct cli_release {
    struct cli_outcome o;
    struct cli_bans bans;
    struct cli_traces ts;
    struct kfit_report report; /* over the traces; calls is 0 where there are none */
    double gain_now;           /* of the recorded time: what the published kernels save */
    struct cli_changes changes;
};

/* traces: to weigh by; usual: with none given, those of the usual places. want: of cli_outcome_open. False after a
 * message. */
bool cli_release_open(struct cli_release *r, const char *cache, const struct cli_list *traces, bool usual,
                      unsigned want);
void cli_release_close(struct cli_release *r);

/* What the changes mean for the program that was recorded; nothing where no calls are. */
void cli_release_say_gain(const struct cli_release *r);
void cli_release_add_gain(cJSON *root, const struct cli_release *r);

/* Publishes records, built on o's generation and with environments that o knows, in the name of who runs kfit. note
 * may be NULL; republishes: see struct kfit_manifest; keyfile: see cli_signer_open. *number is the new generation's.
 * False after a message. */
bool cli_publish(const struct cli_outcome *o, const struct kfit_records *records, const char *note,
                 uint64_t republishes, const char *keyfile, uint64_t *number);

#endif
