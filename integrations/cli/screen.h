/* screen.h - a terminal taken over for a while, and given back whatever happens.
 *
 * Plain ANSI: the alternate screen, a hidden cursor, keys without Enter. Ctrl-C and Ctrl-Z stay signals. The terminal
 * is given back by cli_screen_close, at exit(), before stopping, and before the process dies of any signal that can
 * be caught. One screen per process: a signal handler knows no other.
 */
#ifndef CLI_SCREEN_H
#define CLI_SCREEN_H

#include <stdbool.h>
#include <stddef.h>

/* Whether standard output is a terminal that can be taken over. */
bool cli_screen_possible(void);
/* False after a message. */
bool cli_screen_open(void);
void cli_screen_close(void);

struct cli_screen_size {
    unsigned rows, cols; /* at least 1 */
};
struct cli_screen_size cli_screen_size(void);

/* Shows a frame: lines that end in "\r\n" but for the last, none wider than the screen. */
void cli_screen_show(const char *text, size_t bytes);

enum cli_screen_event {
    CLI_SCREEN_TIME,   /* the time is up */
    CLI_SCREEN_REDRAW, /* another size, or back after a stop */
    CLI_SCREEN_KEY,    /* in *key */
    CLI_SCREEN_END,    /* Ctrl-C, or the terminal is gone */
};
enum cli_screen_event cli_screen_wait(double seconds, char *key);

#endif
