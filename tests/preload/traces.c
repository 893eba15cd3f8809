#include "traces.h"

#include <dirent.h>

#include "kfit/reason.h"

size_t traces_read(const char *dir, struct kfit_trace *out[TRACES_MAX])
{
    DIR *d = opendir(dir);
    size_t n = 0;
    for (struct dirent *e; d && (e = readdir(d));) {
        char path[1024];
        struct kfit_error err = {""};
        const char *dot = strrchr(e->d_name, '.');
        if (!dot || strcmp(dot, ".kft"))
            continue;
        snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        CHECK(n < TRACES_MAX);
        CHECK_OK(kfit_trace_read(path, &out[n], &err), err);
        n++;
    }
    if (d)
        closedir(d);
    return n;
}

struct kfit_trace *trace_only(const char *dir)
{
    struct kfit_trace *t[TRACES_MAX];
    CHECK_INT(traces_read(dir, t), 1);
    return t[0];
}

uint64_t trace_calls(const struct kfit_trace *t)
{
    uint64_t n = 0;
    for (size_t i = 0; i < kfit_trace_count(t); i++)
        n += kfit_slot_calls(kfit_trace_at(t, i));
    for (unsigned i = 0; i < KFIT_TRACE_REASONS; i++)
        n += kfit_trace_header(t)->unkeyed[i];
    return n;
}

uint64_t trace_calls_of(const struct kfit_trace *t, const char *text, unsigned reason)
{
    char buf[KFIT_KEY_TEXT_MAX];
    for (size_t i = 0; i < kfit_trace_count(t); i++) {
        const struct kfit_trace_slot *s = kfit_trace_at(t, i);
        CHECK(kfit_key_format(&s->key, buf, sizeof buf));
        if (!strcmp(buf, text))
            return reason == KFIT_REASON_COUNT ? kfit_slot_calls(s) : s->count[reason];
    }
    return 0;
}

const struct kfit_trace *trace_of_pid(struct kfit_trace *const *t, size_t n, int pid)
{
    for (size_t i = 0; i < n; i++)
        if (kfit_trace_header(t[i])->pid == pid)
            return t[i];
    return NULL;
}

void trace_print(const struct kfit_trace *t)
{
    const struct kfit_trace_header *h = kfit_trace_header(t);
    char buf[KFIT_KEY_TEXT_MAX];
    printf("  pid %d: %s\n", h->pid, h->state_text);
    for (size_t i = 0; i < kfit_trace_count(t); i++) {
        const struct kfit_trace_slot *s = kfit_trace_at(t, i);
        kfit_key_format(&s->key, buf, sizeof buf);
        printf("  %s", buf);
        for (unsigned r = 0; r < KFIT_REASON_COUNT; r++)
            if (s->count[r])
                printf(" %s=%" PRIu64, kfit_reason_name(r), s->count[r]);
        printf("\n");
    }
    for (unsigned r = 0; r < KFIT_REASON_COUNT; r++)
        if (h->unkeyed[r])
            printf("  unkeyed %s=%" PRIu64 "\n", kfit_reason_name(r), h->unkeyed[r]);
}

void run_shimmed(const char *const argv[], const char *dir, const char *const extra[], char **out, char **err)
{
    static const char preload[] = "LD_PRELOAD=" SHIM;
    const char *env[16] = {preload, "OPENBLAS_NUM_THREADS=1", "KFIT_MODE", "KFIT_CACHE", "KFIT_LOG"};
    char trace[1024] = "KFIT_TRACE", *o, *e;
    size_t n = 5;
    if (dir)
        snprintf(trace, sizeof trace, "KFIT_TRACE=%s", dir);
    env[n++] = trace;
    for (; extra && *extra; extra++) {
        CHECK(n < 15);
        env[n++] = *extra;
    }
    int rc = kfit_test_run(argv, env, &o, &e);
    CHECK_MSG(rc == 0, "%s: status %d\n%s%s", argv[0], rc, o, e);
    if (out)
        *out = o;
    if (err)
        *err = e;
}
