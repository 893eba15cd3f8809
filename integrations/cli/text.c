/* Messages, and text that is safe to show. */
#include <errno.h>
#include <pwd.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cli.h"

enum { TEXTS = 16, TEXT_BYTES = 1024 };

/* The next of a ring of buffers: callers print, they do not keep. */
static char *text(void)
{
    static char ring[TEXTS][TEXT_BYTES];
    static unsigned next;
    return ring[next++ % TEXTS];
}

static void say(const char *fmt, va_list ap)
{
    fflush(stdout);
    fputs("kfit: ", stderr);
    vfprintf(stderr, fmt, ap);
    fputc('\n', stderr);
}

void cli_say(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    say(fmt, ap);
    va_end(ap);
}

int cli_fail(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    say(fmt, ap);
    va_end(ap);
    return CLI_FAILED;
}

int cli_failed(const char *what, enum kfit_status s, const struct kfit_error *err)
{
    const char *why = err && err->text[0] ? SAFE(err->text) : kfit_status_str(s);
    return what ? cli_fail("%s: %s", cli_str(what), why) : cli_fail("%s", why);
}

static void log_line(void *ctx, enum kfit_log_level level, const char *line)
{
    (void)ctx, (void)level;
    cli_say("%s", cli_str(line));
}

const struct kfit_log cli_log = {.fn = log_line, .level = KFIT_LOG_WARN};

const char *cli_safe(const char *s, size_t max)
{
    char *out = text(), *p = out;
    size_t n = strnlen(s, max);
    for (size_t i = 0; i < n && p < out + TEXT_BYTES - 8; i++) {
        unsigned char c = (unsigned char)s[i];
        if (c >= ' ' && c <= '~')
            *p++ = (char)c;
        else
            p += sprintf(p, "\\x%02x", c);
    }
    *p = '\0';
    return out;
}

const char *cli_str(const char *s)
{
    return cli_safe(s, SIZE_MAX);
}

const char *cli_key(const union kfit_key *key)
{
    char *out = text();
    if (!kfit_key_format(key, out, TEXT_BYTES))
        snprintf(out, TEXT_BYTES, "(not a valid key)");
    return out;
}

const char *cli_ns(double ns)
{
    static const struct {
        double unit;
        const char *name;
    } units[] = {{1e9, "s"}, {1e6, "ms"}, {1e3, "us"}, {0, "ns"}};
    char *out = text();
    if (!(ns > 0))
        return strcpy(out, "-");
    for (unsigned i = 0; i < sizeof units / sizeof *units; i++) {
        if (ns < units[i].unit)
            continue;
        double v = units[i].unit > 0 ? ns / units[i].unit : ns;
        snprintf(out, TEXT_BYTES,
                 v < 9.995   ? "%.2f %s"
                 : v < 99.95 ? "%.1f %s"
                             : "%.0f %s",
                 v, units[i].name);
        break;
    }
    return out;
}

const char *cli_when(int64_t unix_s)
{
    char *out = text();
    struct tm tm;
    time_t t = (time_t)unix_s;
    if (!unix_s || !localtime_r(&t, &tm) || !strftime(out, TEXT_BYTES, "%Y-%m-%d %H:%M:%S", &tm))
        strcpy(out, "-");
    return out;
}

const char *cli_user(void)
{
    const struct passwd *pw = getpwuid(getuid());
    char *out = text();
    if (pw)
        snprintf(out, TEXT_BYTES, "%s", pw->pw_name);
    else
        snprintf(out, TEXT_BYTES, "uid %u", getuid());
    return out;
}

void *cli_alloc(void *p, size_t bytes)
{
    p = realloc(p, bytes ? bytes : 1);
    if (!p)
        exit(cli_fail("out of memory (%zu bytes)", bytes));
    return p;
}

int cli_json_print(cJSON *root)
{
    char *json = root ? cJSON_Print(root) : NULL;
    cJSON_Delete(root);
    if (!json)
        return cli_fail("out of memory for the JSON output");
    puts(json);
    cJSON_free(json);
    return CLI_OK;
}

int cli_write(const char *path, int (*fill)(void *ctx, FILE *to), void *ctx)
{
    struct kfit_error err = {0};
    char *text = NULL;
    size_t bytes;
    mode_t closed = umask(0);
    umask(closed);
    FILE *f = open_memstream(&text, &bytes);
    if (!f)
        return cli_fail("%s: %s", cli_str(path), strerror(errno));
    int rc = fill(ctx, f);
    bool whole = !ferror(f);
    whole = !fclose(f) && whole;
    if (rc == CLI_OK && !whole)
        rc = cli_fail("%s: out of memory", cli_str(path));
    if (rc == CLI_OK && cli_write_file(path, text, bytes, 0666 & ~closed, &err) != KFIT_OK)
        rc = cli_fail("%s", cli_str(err.text));
    free(text);
    return rc;
}

static int fill_line(void *ctx, FILE *to)
{
    fprintf(to, "%s\n", (const char *)ctx);
    return CLI_OK;
}

int cli_json_write(cJSON *root, const char *path)
{
    char *text = root ? cJSON_Print(root) : NULL;
    cJSON_Delete(root);
    if (!text)
        return cli_fail("out of memory for the JSON output");
    int rc = cli_write(path, fill_line, text);
    cJSON_free(text);
    return rc;
}

cJSON *cli_json_reasons(const uint64_t count[KFIT_TRACE_REASONS])
{
    cJSON *o = cJSON_CreateObject();
    for (unsigned i = 0; i < KFIT_REASON_COUNT; i++)
        if (count[i])
            cJSON_AddNumberToObject(o, kfit_reason_name(i), (double)count[i]);
    return o;
}
