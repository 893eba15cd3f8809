/* http.h - one page, served over HTTP by libmicrohttpd, which is opened at run time.
 *
 * GET and HEAD of one path; anything else is refused. Connections are few, short and closed after one answer: what
 * a client may take in all is bounded, however slowly it talks. One thread, no other.
 */
#ifndef KFIT_METRICS_HTTP_H
#define KFIT_METRICS_HTTP_H

#include <stdint.h>

#include "kfit/status.h"

struct kfit_http_params {
    const char
        *listen; /* "PORT", ":PORT", "ADDR:PORT", "[ADDR6]:PORT"; without ADDR the loopback; port 0: any */
    const char *path, *type;
    unsigned deadline_s; /* a connection's, from accept to its end */
    /* The page, malloc'ed, no longer ours once returned; NULL: an error is answered. Called at most once a second. */
    char *(*render)(void *ctx, size_t *bytes);
    void (*ready)(void *ctx, const char *where); /* "http://127.0.0.1:9464/metrics", once it listens */
    void *ctx;
};

/* Serves until SIGTERM or SIGINT (blocked and awaited by this function), then KFIT_OK. KFIT_E_ARG: bad address,
 * KFIT_E_UNSUPPORTED: no libmicrohttpd, KFIT_E_IO: cannot listen there. */
enum kfit_status kfit_http_serve(const struct kfit_http_params *params, struct kfit_error *err);

#endif
