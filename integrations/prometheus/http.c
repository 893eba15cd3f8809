/* The server: libmicrohttpd does HTTP, we decide who may take how long. */
#include "http.h"

#ifndef KFIT_HAVE_MICROHTTPD

enum kfit_status kfit_http_serve(const struct kfit_http_params *params, struct kfit_error *err)
{
    (void)params;
    return kfit_fail(
        err, KFIT_E_UNSUPPORTED,
        "this kfit was built without libmicrohttpd's headers (Debian: libmicrohttpd-dev); use --textfile");
}

#else

#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    CONNECTIONS = 32,
    MEMORY_BYTES = 16384, /* of one connection: its request's head must fit */
    FRESH_NS = 1000000000,
};

/* The one list of its functions: pointers and loader. */
#define FUNCTIONS(X)                                                                                         \
    X(MHD_start_daemon)                                                                                      \
    X(MHD_stop_daemon)                                                                                       \
    X(MHD_run)                                                                                               \
    X(MHD_get_timeout)                                                                                       \
    X(MHD_get_daemon_info)                                                                                   \
    X(MHD_get_connection_info)                                                                               \
    X(MHD_create_response_from_buffer)                                                                       \
    X(MHD_add_response_header)                                                                               \
    X(MHD_queue_response)                                                                                    \
    X(MHD_destroy_response)

struct api {
    void *library;
#define X(name) __typeof__(&name) name;
    FUNCTIONS(X)
#undef X
};

struct server {
    struct api api;
    const struct kfit_http_params *params;
    struct client { /* fd -1: free */
        int fd;
        int64_t since_ns;
    } client[CONNECTIONS];
    char *page;
    size_t page_bytes;
    int64_t page_ns; /* 0: none */
    bool closed;     /* a connection was closed in this run */
};

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static enum kfit_status load(struct api *a, struct kfit_error *err)
{
    a->library = dlopen("libmicrohttpd.so.12", RTLD_NOW | RTLD_LOCAL);
    if (!a->library)
        return kfit_fail(
            err, KFIT_E_UNSUPPORTED,
            "libmicrohttpd.so.12 cannot be opened (%s); install it (Debian: libmicrohttpd12), or use "
            "--textfile",
            dlerror());
#define X(name)                                                                                              \
    if (!(a->name = (__typeof__(&name))dlsym(a->library, #name)))                                            \
        return kfit_fail(err, KFIT_E_UNSUPPORTED, "libmicrohttpd.so.12 has no %s; use --textfile", #name);
    FUNCTIONS(X)
#undef X
    return KFIT_OK;
}

/* ---- address ---- */

union address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

static enum kfit_status parse(const char *text, union address *a, struct kfit_error *err)
{
    char host[INET6_ADDRSTRLEN + 2] = "127.0.0.1";
    const char *colon = strrchr(text, ':'), *port = colon ? colon + 1 : text;
    char *end;
    errno = 0;
    unsigned long n = strtoul(port, &end, 10);
    size_t length = colon ? (size_t)(colon - text) : 0;
    bool six = length > 2 && text[0] == '[' && text[length - 1] == ']';
    if (*port < '0' || *port > '9' || *end || errno || n > 65535)
        return kfit_fail(err, KFIT_E_ARG, "\"%.60s\" is no ADDR:PORT: \"%.20s\" is no port", text, port);
    if (length >= sizeof host)
        return kfit_fail(err, KFIT_E_ARG, "\"%.60s\" is no ADDR:PORT: the address is too long", text);
    if (length)
        snprintf(host, sizeof host, "%.*s", (int)(six ? length - 2 : length), text + six);
    memset(a, 0, sizeof *a);
    a->any.sa_family = six ? AF_INET6 : AF_INET;
    if (inet_pton(a->any.sa_family, host, six ? (void *)&a->v6.sin6_addr : (void *)&a->v4.sin_addr) != 1)
        return kfit_fail(
            err, KFIT_E_ARG,
            "\"%.60s\" is no ADDR:PORT: \"%.50s\" is no address; write 127.0.0.1, 0.0.0.0 or [::1]", text,
            host);
    *(six ? &a->v6.sin6_port : &a->v4.sin_port) = htons((uint16_t)n);
    return KFIT_OK;
}

/* ---- answers ---- */

/* The page, no older than a second. */
static bool refresh(struct server *s)
{
    int64_t now = now_ns();
    if (s->page_ns && now - s->page_ns < FRESH_NS)
        return s->page != NULL;
    free(s->page);
    s->page = s->params->render(s->params->ctx, &s->page_bytes);
    s->page_ns = now;
    return s->page != NULL;
}

static enum MHD_Result answer(struct server *s, struct MHD_Connection *c, unsigned code, const char *text,
                              size_t bytes, const char *type)
{
    struct api *a = &s->api;
    /* MHD copies: the page may be made anew while a slow client still reads it */
    struct MHD_Response *r = a->MHD_create_response_from_buffer(bytes, (void *)text, MHD_RESPMEM_MUST_COPY);
    if (!r)
        return MHD_NO;
    a->MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    a->MHD_add_response_header(r, MHD_HTTP_HEADER_CONNECTION, "close");
    a->MHD_add_response_header(r, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
    a->MHD_add_response_header(r, "X-Content-Type-Options", "nosniff");
    if (code == MHD_HTTP_METHOD_NOT_ALLOWED)
        a->MHD_add_response_header(r, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
    enum MHD_Result done = a->MHD_queue_response(c, code, r);
    a->MHD_destroy_response(r);
    return done;
}

static enum MHD_Result serve(void *ctx, struct MHD_Connection *c, const char *url, const char *method,
                             const char *version, const char *data, size_t *data_bytes, void **con)
{
    struct server *s = ctx;
    const char *text;
    unsigned code = MHD_HTTP_OK;
    (void)version, (void)data, (void)data_bytes, (void)con;
    if (strcmp(method, "GET") && strcmp(method, "HEAD"))
        text = "only GET and HEAD are answered\n", code = MHD_HTTP_METHOD_NOT_ALLOWED;
    else if (strcmp(url, s->params->path))
        text = "there is one page: /metrics\n", code = MHD_HTTP_NOT_FOUND;
    else if (!refresh(s))
        text = "the metrics could not be made\n", code = MHD_HTTP_INTERNAL_SERVER_ERROR;
    else
        return answer(s, c, code, s->page, s->page_bytes, s->params->type);
    return answer(s, c, code, text, strlen(text), "text/plain; charset=utf-8");
}

/* ---- connections ---- */

static void note(void *ctx, struct MHD_Connection *c, void **con, enum MHD_ConnectionNotificationCode what)
{
    struct server *s = ctx;
    const union MHD_ConnectionInfo *info =
        s->api.MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);
    int fd = info ? (int)info->connect_fd : -1;
    (void)con;
    s->closed |= what == MHD_CONNECTION_NOTIFY_CLOSED;
    for (unsigned i = 0; i < CONNECTIONS; i++) {
        bool started = what == MHD_CONNECTION_NOTIFY_STARTED;
        if (s->client[i].fd != (started ? -1 : fd))
            continue;
        s->client[i] = started ? (struct client){fd, now_ns()} : (struct client){-1, 0};
        return;
    }
}

/* Shuts what took too long, however it spent its time; returns milliseconds until the next is due, -1: none. */
static int end_late(struct server *s)
{
    int64_t now = now_ns(), deadline = (int64_t)s->params->deadline_s * 1000000000, next = -1;
    for (unsigned i = 0; i < CONNECTIONS; i++) {
        struct client *c = &s->client[i];
        int64_t left = deadline - (now - c->since_ns);
        if (c->fd < 0 || c->since_ns == INT64_MAX)
            continue;
        if (left <= 0) {
            shutdown(c->fd, SHUT_RDWR); /* MHD sees its end, and closes it */
            c->since_ns = INT64_MAX;
        } else if (next < 0 || left < next) {
            next = left;
        }
    }
    return next < 0 ? -1 : (int)(next / 1000000) + 1;
}

/* A path is compared as it was sent: one page needs no %XX. */
static size_t as_sent(void *ctx, struct MHD_Connection *c, char *text)
{
    (void)ctx, (void)c;
    return strlen(text);
}

static void quiet(void *ctx, const char *fmt, va_list ap)
{
    (void)ctx, (void)fmt, (void)ap; /* what clients do wrong is not our operator's to read */
}

/* Ours, since libmicrohttpd forgets why it could not. */
static int listening(const union address *a)
{
    const int on = 1, six = a->any.sa_family == AF_INET6;
    int fd = socket(a->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    if (!setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) &&
        !setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on) &&
        (!six || !setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on)) &&
        !bind(fd, &a->any, six ? sizeof a->v6 : sizeof a->v4) && !listen(fd, SOMAXCONN))
        return fd;
    int why = errno;
    close(fd);
    errno = why;
    return -1;
}

static struct MHD_Daemon *start(struct server *s, bool six, int listening_fd)
{
    const struct MHD_OptionItem options[] = {
        {MHD_OPTION_EXTERNAL_LOGGER, (intptr_t)quiet, NULL}, /* first, so that it holds for the others */
        {MHD_OPTION_UNESCAPE_CALLBACK, (intptr_t)as_sent, NULL},
        {MHD_OPTION_LISTEN_SOCKET, listening_fd, NULL},
        {MHD_OPTION_CONNECTION_LIMIT, CONNECTIONS, NULL},
        {MHD_OPTION_CONNECTION_MEMORY_LIMIT, MEMORY_BYTES, NULL},
        {MHD_OPTION_CONNECTION_TIMEOUT, s->params->deadline_s, NULL},
        {MHD_OPTION_NOTIFY_CONNECTION, (intptr_t)note, s},
        {MHD_OPTION_END, 0, NULL},
    };
    unsigned flags = MHD_USE_EPOLL | MHD_USE_ERROR_LOG | (six ? MHD_USE_IPv6 : 0);
    return s->api.MHD_start_daemon(flags, 0, NULL, NULL, serve, s, MHD_OPTION_ARRAY, options, MHD_OPTION_END);
}

/* Where it listens, with the port that a port of 0 became. */
static void tell(struct server *s, struct MHD_Daemon *d)
{
    union address a = {0};
    socklen_t size = sizeof a;
    char host[INET6_ADDRSTRLEN] = "?", where[128];
    const union MHD_DaemonInfo *info = s->api.MHD_get_daemon_info(d, MHD_DAEMON_INFO_LISTEN_FD);
    if (info)
        getsockname(info->listen_fd, &a.any, &size);
    bool six = a.any.sa_family == AF_INET6;
    inet_ntop(a.any.sa_family, six ? (void *)&a.v6.sin6_addr : (void *)&a.v4.sin_addr, host, sizeof host);
    snprintf(where, sizeof where, "http://%s%s%s:%u%s", six ? "[" : "", host, six ? "]" : "",
             ntohs(six ? a.v6.sin6_port : a.v4.sin_port), s->params->path);
    s->params->ready(s->params->ctx, where);
}

static int shorter(int a, int b)
{
    return a < 0 || (b >= 0 && b < a) ? b : a;
}

static enum kfit_status loop(struct server *s, struct MHD_Daemon *d, int signals, struct kfit_error *err)
{
    const union MHD_DaemonInfo *info = s->api.MHD_get_daemon_info(d, MHD_DAEMON_INFO_EPOLL_FD);
    if (!info)
        return kfit_fail(err, KFIT_E_UNSUPPORTED, "this libmicrohttpd has no epoll; use --textfile");
    struct pollfd fds[] = {{info->epoll_fd, POLLIN, 0}, {signals, POLLIN, 0}};
    while (!(fds[1].revents & POLLIN)) {
        MHD_UNSIGNED_LONG_LONG ms;
        int wait = end_late(s);
        if (s->api.MHD_get_timeout(d, &ms) == MHD_YES)
            wait = shorter(wait, ms > 60000 ? 60000 : (int)ms);
        if (poll(fds, 2, wait) < 0 && errno != EINTR)
            return kfit_fail(err, KFIT_E_IO, "poll: %s", strerror(errno));
        do { /* again after a close: where all places were taken, only the next run listens again */
            s->closed = false;
            if (s->api.MHD_run(d) != MHD_YES)
                return kfit_fail(err, KFIT_E_IO, "libmicrohttpd gave up: %s", strerror(errno));
        } while (s->closed);
    }
    return KFIT_OK;
}

enum kfit_status kfit_http_serve(const struct kfit_http_params *params, struct kfit_error *err)
{
    struct server s = {.params = params};
    union address address;
    struct MHD_Daemon *d = NULL;
    sigset_t set; /* stays blocked: what comes after the first is for the one that is under way */
    int signals = -1;
    for (unsigned i = 0; i < CONNECTIONS; i++)
        s.client[i].fd = -1;
    enum kfit_status st = parse(params->listen, &address, err);
    if (st == KFIT_OK)
        st = load(&s.api, err);
    if (st != KFIT_OK)
        goto end;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    signal(SIGPIPE, SIG_IGN); /* a client that goes away is its own affair */
    sigprocmask(SIG_BLOCK, &set, NULL);
    signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    int fd = signals < 0 ? -1 : listening(&address);
    if (fd < 0) {
        st = kfit_fail(err, KFIT_E_IO, "cannot listen on %.60s: %s", params->listen, strerror(errno));
        goto end;
    }
    d = start(&s, address.any.sa_family == AF_INET6, fd); /* which closes fd when it ends, or fails */
    if (!d) {
        st = kfit_fail(err, KFIT_E_IO, "cannot listen on %.60s: refused by libmicrohttpd", params->listen);
        goto end;
    }
    tell(&s, d);
    st = loop(&s, d, signals, err);
end:
    if (d)
        s.api.MHD_stop_daemon(d);
    if (signals >= 0)
        close(signals);
    if (s.api.library)
        dlclose(s.api.library);
    free(s.page);
    return st;
}

#endif
