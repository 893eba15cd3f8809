/* held.h - what this host remembers of crashes, for people; and asking live processes to follow. */
#ifndef CLI_HELD_H
#define CLI_HELD_H

#include "cli.h"

#define CLI_OPTION_STATE(to)                                                                                 \
    {                                                                                                        \
        "state", 's', CLI_TEXT, to, "DIR",                                                                   \
            "what this host remembers ($KFIT_STATE, else kfit in $XDG_STATE_HOME or ~/.local/state)"         \
    }

/* dir, else the default; NULL if there is no such place. */
const char *cli_state_dir(const char *dir, char *buf, size_t size);

/* Shows (list NULL) or adds to list what is held back: of one generation, or of all (digest NULL). False, and
 * said, if the directory cannot be read; state NULL holds nothing. */
bool cli_held_show(const char *state, const uint8_t digest[32], cJSON *list);
/* Forgets it, and says what; false, and said, if that failed. */
bool cli_held_clear(const char *state);

/* Asks every live process that follows this cache (or one whose directory is not to be seen from here) to take over
 * what is current, and says how many there are. */
void cli_follow(const char *cache);

#endif
