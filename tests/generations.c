#include "generations.h"
#include "kfit_test.h"
#include "records.h"

#include <sys/stat.h>

char *path(const char *name)
{
    char in_cache[500];
    snprintf(in_cache, sizeof in_cache, "cache/%s", name);
    return kfit_test_path(in_cache);
}

char *cache(void)
{
    static char text[512];
    snprintf(text, sizeof text, "%s/cache", kfit_test_dir());
    return text;
}

/* Publishes the first n records; the note is their number. */
uint64_t publish(unsigned n)
{
    const struct kfit_env env = records_env();
    struct kfit_record *r = records_make(n);
    struct kfit_publish_params p = {
        .dir = cache(), .records = r, .count = n, .envs = &env, .env_count = 1, .approver = "test"};
    struct kfit_error err = {0};
    uint64_t number = 0;
    CHECK_OK(kfit_generation_publish(&p, &number, &err), err);
    free(r); /* the images stay: small */
    return number;
}

int see(void *ctx, const struct kfit_record *r, const char *problem)
{
    struct seen *s = ctx;
    CHECK(!r == !!problem);
    if (!r)
        return s->bad++, 0;
    bool found = !s->want;
    for (unsigned i = 0; s->want && i < RECORDS; i++)
        found |= records_same(r, &s->want[i]);
    CHECK(found);
    return ++s->good == s->stop_at;
}

uint64_t count(struct kfit_generation *g)
{
    struct seen s = {0};
    struct kfit_error err = {0};
    CHECK_OK(kfit_generation_each(g, 0, see, &s, &err), err);
    CHECK_INT(s.bad, 0);
    return s.good;
}

/* Opens what must not open; the message has to contain `text`. */
void refused(const char *which, enum kfit_status want, const char *text)
{
    struct kfit_generation *g;
    struct kfit_error err = {0};
    enum kfit_status s = kfit_generation_open(cache(), which, &g, &err);
    CHECK_MSG(s == want, "open: %s (%s), expected %s", kfit_status_str(s), err.text, kfit_status_str(want));
    CHECK_MSG(strstr(err.text, text), "\"%s\" does not say \"%s\"", err.text, text);
    CHECK(!g);
}

void opens(const char *which, uint64_t records)
{
    struct kfit_generation *g;
    struct kfit_error err = {0};
    CHECK_OK(kfit_generation_open(cache(), which, &g, &err), err);
    CHECK_INT(count(g), records);
    kfit_generation_close(g);
}

/* Replaces a published (read-only) file by rename, as an attacker or a broken copy would. */
void replace(const char *name, const void *data, size_t n)
{
    char temp[600];
    snprintf(temp, sizeof temp, "%s.new", path(name));
    kfit_test_write(temp, data, n);
    CHECK(!chmod(temp, 0444) && !rename(temp, path(name)));
}
