/* kfit/log.h - a callback for what a person may want to know. Never stdout. */
#ifndef KFIT_LOG_H
#define KFIT_LOG_H

#ifdef __cplusplus
extern "C" {
#endif

enum kfit_log_level { KFIT_LOG_NONE, KFIT_LOG_ERROR, KFIT_LOG_WARN, KFIT_LOG_INFO, KFIT_LOG_DEBUG };

struct kfit_log {
    /* Called with one line, without newline. Must be safe to call from any thread. */
    void (*fn)(void *ctx, enum kfit_log_level level, const char *line);
    void *ctx;
    enum kfit_log_level level; /* lines above this level are dropped before formatting */
};

/* log may be NULL. Lines are cut at 1023 bytes. Thread-safety: as log->fn. */
#if defined(__GNUC__)
__attribute__((format(printf, 3, 4)))
#endif
void kfit_logf(const struct kfit_log *log, enum kfit_log_level level, const char *fmt, ...);

/* Writes "kfit: LINE\n" to the descriptor in ctx (cast from int through intptr_t) with one write(2). */
void kfit_log_to_fd(void *ctx, enum kfit_log_level level, const char *line);

#ifdef __cplusplus
}
#endif
#endif
