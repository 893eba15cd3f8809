#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

#include "kfit/log.h"

void kfit_logf(const struct kfit_log *log, enum kfit_log_level level, const char *fmt, ...)
{
    if (!log || !log->fn || level > log->level)
        return;
    char line[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    log->fn(log->ctx, level, line);
}

void kfit_log_to_fd(void *ctx, enum kfit_log_level level, const char *line)
{
    (void)level;
    char buf[1040];
    int n = snprintf(buf, sizeof buf, "kfit: %s\n", line);
    if (n > 0)
        (void)!write((int)(intptr_t)ctx, buf, (size_t)n < sizeof buf ? (size_t)n : sizeof buf - 1);
}
