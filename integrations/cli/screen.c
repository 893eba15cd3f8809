/* Taking a terminal over, and giving it back. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <termios.h>
#include <unistd.h>

#include "cli.h"
#include "screen.h"

#define ENTER "\x1b[?1049h\x1b[?25l\x1b[H\x1b[2J"
#define LEAVE "\x1b[0m\x1b[?25h\x1b[?1049l"
#define HOME  "\x1b[H"
#define BELOW "\x1b[J"

/* The one place where a signal handler finds it. */
static struct {
    volatile sig_atomic_t taken;
    struct termios before;
    int signals; /* signalfd */
    bool keys;   /* standard input is a terminal, too */
} screen = {.signals = -1};

static const int waited_for[] = {SIGINT, SIGTSTP, SIGCONT, SIGWINCH};
/* These end nothing, or stop, or cannot be caught. */
static const int left_alone[] = {SIGKILL, SIGSTOP, SIGCHLD, SIGURG,  SIGTTIN,
                                 SIGTTOU, SIGINT,  SIGTSTP, SIGCONT, SIGWINCH};

static bool among(int sig, const int *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (list[i] == sig)
            return true;
    return false;
}

static void put(const char *text, size_t bytes)
{
    while (bytes) {
        ssize_t n = write(STDOUT_FILENO, text, bytes);
        if (n < 0 && errno != EINTR)
            return; /* a terminal that is gone is found by the next read */
        text += n > 0 ? n : 0;
        bytes -= n > 0 ? (size_t)n : 0;
    }
}

/* Async-signal-safe. */
static void give_back(void)
{
    if (!screen.taken)
        return;
    screen.taken = false;
    put(LEAVE, sizeof LEAVE - 1);
    tcsetattr(STDOUT_FILENO, TCSANOW, &screen.before);
}

static void take(void)
{
    struct termios raw = screen.before;
    raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    raw.c_cc[VMIN] = 1;
    raw.c_cc[VTIME] = 0;
    screen.taken = true;
    tcsetattr(STDOUT_FILENO, TCSANOW, &raw);
    put(ENTER, sizeof ENTER - 1);
}

/* The handler was reset when it was entered: what is raised again does what it does by default. */
static void on_signal(int sig)
{
    int was = errno;
    give_back();
    errno = was;
    raise(sig);
}

bool cli_screen_possible(void)
{
    const char *term = getenv("TERM");
    return isatty(STDOUT_FILENO) && term && *term && strcmp(term, "dumb");
}

bool cli_screen_open(void)
{
    sigset_t set;
    if (tcgetattr(STDOUT_FILENO, &screen.before)) {
        cli_fail("the terminal cannot be asked for its settings: %s", strerror(errno));
        return false;
    }
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof waited_for / sizeof *waited_for; i++)
        sigaddset(&set, waited_for[i]);
    sigprocmask(SIG_BLOCK, &set, NULL);
    screen.signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (screen.signals < 0) {
        cli_fail("signalfd: %s", strerror(errno));
        return false;
    }
    struct sigaction act = {.sa_handler = on_signal, .sa_flags = (int)(SA_RESETHAND | SA_NODEFER)}, old;
    for (int sig = 1; sig <= SIGRTMAX; sig++)
        if (!among(sig, left_alone, sizeof left_alone / sizeof *left_alone) && !sigaction(sig, NULL, &old) &&
            old.sa_handler == SIG_DFL)
            sigaction(sig, &act, NULL);
    screen.keys = isatty(STDIN_FILENO);
    atexit(give_back); /* where memory ends, for one */
    take();
    return true;
}

void cli_screen_close(void)
{
    give_back();
    if (screen.signals >= 0)
        close(screen.signals);
    screen.signals = -1;
}

struct cli_screen_size cli_screen_size(void)
{
    struct winsize w;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) || !w.ws_row || !w.ws_col)
        return (struct cli_screen_size){24, 80};
    return (struct cli_screen_size){w.ws_row, w.ws_col};
}

void cli_screen_show(const char *text, size_t bytes)
{
    put(HOME, sizeof HOME - 1);
    put(text, bytes);
    put(BELOW, sizeof BELOW - 1);
}

static enum cli_screen_event on_waited(int sig)
{
    struct signalfd_siginfo info;
    switch (sig) {
    case SIGINT:
        return CLI_SCREEN_END;
    case SIGTSTP: /* stopped here; the SIGCONT that ends it waits to be read */
        give_back();
        raise(SIGSTOP);
        while (read(screen.signals, &info, sizeof info) == sizeof info)
            ;
        take();
        return CLI_SCREEN_REDRAW;
    case SIGCONT: /* somebody else had stopped us, and may have used the terminal */
        take();
        return CLI_SCREEN_REDRAW;
    default:
        return CLI_SCREEN_REDRAW;
    }
}

enum cli_screen_event cli_screen_wait(double seconds, char *key)
{
    struct pollfd fds[] = {{screen.signals, POLLIN, 0}, {screen.keys ? STDIN_FILENO : -1, POLLIN, 0}};
    struct signalfd_siginfo info;
    int n = poll(fds, 2, (int)(1000 * seconds));
    if (n == 0)
        return CLI_SCREEN_TIME;
    if (n < 0)
        return errno == EINTR ? CLI_SCREEN_REDRAW : CLI_SCREEN_END;
    if (fds[0].revents && read(screen.signals, &info, sizeof info) == sizeof info)
        return on_waited((int)info.ssi_signo);
    if (fds[1].revents)
        return read(STDIN_FILENO, key, 1) == 1 ? CLI_SCREEN_KEY : CLI_SCREEN_END;
    return CLI_SCREEN_REDRAW;
}
