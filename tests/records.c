#include "records.h"

#include <stdio.h>

#include "kfit/op.h"
#include "kfit_test.h"

struct kfit_env records_env(void)
{
    struct kfit_env e = {.hard = "device=host;isa=x86-64-v3;model=Test;threads=1;", .soft = "blas=none;"};
    e.hard_hash = kfit_text_hash(e.hard);
    e.soft_hash = kfit_text_hash(e.soft);
    return e;
}

void records_fill(struct kfit_record *r, unsigned i, uint8_t *image)
{
    const int64_t m = 1 + i % 16, n = 16 * (1 + i / 16 % 64), k = 16 * (1 + i / 1024);
    const struct kfit_gemm_call call = {.type = KFIT_F32,
                                        .m = m,
                                        .n = n,
                                        .k = k,
                                        .lda = k,
                                        .ldb = n,
                                        .ldc = n,
                                        .alpha = 1,
                                        .a = (void *)64,
                                        .b = (void *)64,
                                        .c = (void *)64};
    const struct kfit_env env = records_env();
    const void *args[3];
    memset(r, 0, sizeof *r);
    CHECK(kfit_gemm_key_fill(&call, &r->key, args));
    r->kind = i % 8 == 7 ? KFIT_RECORD_NEGATIVE : KFIT_RECORD_WINNER;
    r->op_version = kfit_op_of(&r->key)->version;
    r->env_hard = env.hard_hash;
    r->env_soft = env.soft_hash;
    r->made_unix_s = 1700000000 + i;
    r->ns_candidate = 100 + i;
    r->ns_incumbent = 200 + 2.0 * i;
    r->ns_generic = 300 + 2.0 * i;
    r->ratio = 2;
    r->lo = 1.75;
    r->hi = 2.25;
    for (unsigned b = 0; b < sizeof r->source_digest; b++)
        r->source_digest[b] = (uint8_t)(b + i);
    snprintf(r->origin, sizeof r->origin, "seed:test%u", i % 3);
    if (r->kind == KFIT_RECORD_NEGATIVE)
        return;
    r->plan.workspace_bytes = 64 * (i % 5);
    r->plan.launch_count = 1;
    r->plan.launches[0] = (struct kfit_launch){.entry = "kfit_main",
                                               .entry_offset = 16 * (i % 4),
                                               .grid = {1, 1, 1},
                                               .block = {1, 1, 1},
                                               .cluster = {1, 1, 1}};
    for (unsigned b = 0; b < RECORDS_IMAGE_BYTES; b++)
        image[b] = (uint8_t)(b * 7 + i);
    r->image = image;
    r->image_bytes = RECORDS_IMAGE_BYTES;
}

struct kfit_record records_winner(const struct kfit_env *env, const void *image, uint64_t bytes)
{
    return (struct kfit_record){
        .kind = KFIT_RECORD_WINNER,
        .op_version = 1,
        .env_hard = env->hard_hash,
        .env_soft = env->soft_hash,
        .made_unix_s = 1700000000,
        .ns_candidate = 10,
        .ns_incumbent = 20,
        .ns_generic = 20,
        .ratio = 2,
        .lo = 1.9,
        .hi = 2.1,
        .origin = "person:test",
        .image = image,
        .image_bytes = bytes,
        .plan = {.launch_count = 1,
                 .launches = {
                     {.entry = "kfit_main", .grid = {1, 1, 1}, .block = {1, 1, 1}, .cluster = {1, 1, 1}}}}};
}

struct kfit_record *records_make(unsigned n)
{
    struct kfit_record *r = calloc(n, sizeof *r);
    uint8_t *images = calloc(n, RECORDS_IMAGE_BYTES);
    CHECK(r && images);
    for (unsigned i = 0; i < n; i++)
        records_fill(&r[i], i, images + (size_t)i * RECORDS_IMAGE_BYTES);
    return r;
}

uint64_t records_publish(const char *dir, unsigned n, const char *approver, const char *note,
                         const struct kfit_secret_key *sign)
{
    const struct kfit_env env = records_env();
    struct kfit_record *r = records_make(n);
    struct kfit_publish_params p = {.dir = dir,
                                    .records = r,
                                    .count = n,
                                    .envs = &env,
                                    .env_count = 1,
                                    .approver = approver,
                                    .note = note,
                                    .sign = sign};
    struct kfit_error err = {0};
    uint64_t number = 0;
    CHECK_OK(kfit_generation_publish(&p, &number, &err), err);
    free(r);
    return number;
}

bool records_same(const struct kfit_record *a, const struct kfit_record *b)
{
    struct kfit_record x = *a, y = *b;
    x.image = y.image = NULL;
    return !memcmp(&x, &y, sizeof x) && (!a->image_bytes || !memcmp(a->image, b->image, a->image_bytes));
}
