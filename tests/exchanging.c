#include "exchanging.h"

#include "kfit_test.h"
#include "records.h"

#include <unistd.h>

const struct kfit_secret_key *key(unsigned i)
{
    static struct kfit_secret_key keys[2];
    struct kfit_public_key made;
    struct kfit_error err = {0};
    const char *names[] = {"key0", "key1"};
    if (access(kfit_test_path(names[i]), F_OK))
        CHECK_OK(kfit_secret_key_make(kfit_test_path(names[i]), NULL, &made, &err), err);
    CHECK_OK(kfit_secret_key_read(kfit_test_path(names[i]), &keys[i], &err), err);
    return &keys[i];
}

uint64_t publish(const char *dir, unsigned n, const struct kfit_secret_key *sign)
{
    return records_publish(kfit_test_path(dir), n, "Ada", "a note", sign);
}

void export(const char *dir, const char *which, const char *to)
{
    struct kfit_generation *g;
    struct kfit_error err = {0};
    CHECK_OK(kfit_generation_open(kfit_test_path(dir), which, &g, &err), err);
    CHECK_OK(kfit_generation_export(g, kfit_test_path(to), &err), err);
    kfit_generation_close(g);
}

struct kfit_generation *opened(const char *file)
{
    struct kfit_generation *g;
    struct kfit_error err = {0};
    CHECK_OK(kfit_generation_open_file(kfit_test_path(file), NULL, &g, &err), err);
    return g;
}

void write_file(const char *name, const void *bytes, size_t n)
{
    unlink(kfit_test_path(name));
    kfit_test_write(kfit_test_path(name), bytes, n);
}

/* The file of manifest m and data, whatever they are: all digests right. */
void forge(const char *name, struct kfit_manifest *m, const void *data, size_t bytes)
{
    char head[KFIT_EXPORT_HEAD_MAX];
    kfit_sha256(data, bytes, m->sha256);
    size_t n = kfit_export_head(m, head);
    char *all = malloc(n + bytes);
    memcpy(all, head, n);
    memcpy(all + n, data, bytes);
    write_file(name, all, n + bytes);
    free(all);
}

int see(void *ctx, const struct kfit_record *r, const char *problem)
{
    const struct kfit_record *want = ctx;
    bool found = false;
    CHECK_MSG(r, "%s", problem);
    for (unsigned i = 0; i < 50; i++)
        found |= records_same(r, &want[i]);
    CHECK(found);
    return 0;
}
