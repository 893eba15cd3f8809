/* bans.h - the store's bans: keys that must not run, by whom, when and why. */
#ifndef CLI_BANS_H
#define CLI_BANS_H

#include "cli.h"

struct cli_ban {
    union kfit_key key;
    char by[64], why[256]; /* "" if not known */
    int64_t when_unix_s;
};

struct cli_bans {
    struct cli_ban *item;
    size_t count;
};

/* All of them (store NULL: none). A ban whose text is damaged is still a ban; one whose key is unreadable is an error:
 * false, after a message. */
bool cli_bans_read(struct cli_bans *bans, struct kfit_store *store);
void cli_bans_free(struct cli_bans *bans);
const struct cli_ban *cli_bans_find(const struct cli_bans *bans, const union kfit_key *key); /* NULL: none */

enum kfit_status cli_ban_put(struct kfit_store *store, const struct cli_ban *ban, struct kfit_error *err);
enum kfit_status cli_ban_remove(struct kfit_store *store, const union kfit_key *key, struct kfit_error *err);
/* "banned by WHO at WHEN: WHY", for people; lives as cli_safe's texts do. */
const char *cli_ban_text(const struct cli_ban *ban);

#endif
