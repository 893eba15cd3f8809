/* What it costs a server to take a generation of 10,000 records: private copy, digest, decoding every record.
 * The peer is LMDB on the published file itself, trusting it: open, read one byte of every page
 * of every value. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "kfit/generation.h"
#include "kfit_test.h"
#include "lmdb_api.h"
#include "median.h"
#include "records.h"

enum { RECORDS = 10000, ROUNDS = 21 };

static char file[600];

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static double resident_mb(const char *field)
{
    char line[128];
    double kb = 0;
    FILE *f = fopen("/proc/self/status", "r");
    CHECK(f);
    while (fgets(line, sizeof line, f))
        if (!strncmp(line, field, strlen(field)))
            kb = strtod(line + strlen(field) + 1, NULL);
    fclose(f);
    return kb / 1024;
}

static int add(void *ctx, const struct kfit_record *r, const char *problem)
{
    CHECK_MSG(r, "%s", problem);
    *(uint64_t *)ctx += 1 + r->image_bytes;
    return 0;
}

static void ours(double ms[3], uint64_t *sum)
{
    struct kfit_generation *g;
    struct kfit_error err = {0};
    double t[4] = {now_ms()};
    CHECK_OK(kfit_generation_open(kfit_test_dir(), NULL, &g, &err), err);
    t[1] = now_ms();
    CHECK_OK(kfit_generation_each(g, 0, add, sum, &err), err);
    t[2] = now_ms();
    kfit_generation_close(g);
    t[3] = now_ms();
    for (unsigned i = 0; i < 3; i++)
        ms[i] = t[i + 1] - t[i];
}

static double peer(uint64_t *sum)
{
    const struct kfit_lmdb *lmdb;
    MDB_env *env;
    MDB_txn *txn;
    MDB_dbi dbi;
    MDB_cursor *cursor;
    MDB_val key, value;
    double start = now_ms();
    CHECK(!kfit_lmdb_load(&lmdb, NULL) && !lmdb->env_create(&env) &&
          !lmdb->env_open(env, file, MDB_RDONLY | MDB_NOLOCK | MDB_NOSUBDIR, 0) &&
          !lmdb->txn_begin(env, NULL, MDB_RDONLY, &txn) && !lmdb->dbi_open(txn, NULL, 0, &dbi) &&
          !lmdb->cursor_open(txn, dbi, &cursor));
    while (!lmdb->cursor_get(cursor, &key, &value, MDB_NEXT))
        for (size_t i = 0; i < value.mv_size; i += 4096)
            *sum += ((const uint8_t *)value.mv_data)[i];
    lmdb->cursor_close(cursor);
    lmdb->txn_abort(txn);
    lmdb->env_close(env);
    return now_ms() - start;
}

/* "best (median)": on a shared machine the best says what it costs, the median how much others disturbed. */
static double print(const char *what, double *x)
{
    qsort(x, ROUNDS, sizeof *x, by_value);
    printf("  %-28s %7.2f ms (median %.2f)\n", what, x[0], x[ROUNDS / 2]);
    return x[0];
}

static void generation_of_10000(void)
{
    const struct kfit_env env = records_env();
    struct kfit_record *r = records_make(RECORDS);
    struct kfit_publish_params p = {
        .dir = kfit_test_dir(), .records = r, .count = RECORDS, .envs = &env, .env_count = 1};
    struct kfit_error err = {0};
    struct kfit_manifest m;
    uint64_t number, sum = 0;
    double open_ms[ROUNDS], each_ms[ROUNDS], close_ms[ROUNDS], all_ms[ROUNDS], peer_ms[ROUNDS];
    double start = now_ms();
    CHECK_OK(kfit_generation_publish(&p, &number, &err), err);
    printf("  publish %d records: %.0f ms\n", RECORDS, now_ms() - start);
    CHECK_OK(kfit_manifest_read(kfit_test_dir(), number, &m, &err), err);
    snprintf(file, sizeof file, "%s/generations/%" PRIu64 ".mdb", kfit_test_dir(), number);

    double before = resident_mb("VmRSS:");
    for (unsigned i = 0; i < ROUNDS; i++) {
        double ms[3];
        ours(ms, &sum);
        open_ms[i] = ms[0], each_ms[i] = ms[1], close_ms[i] = ms[2];
        all_ms[i] = ms[0] + ms[1] + ms[2];
        peer_ms[i] = peer(&sum);
    }
    double after = resident_mb("VmRSS:");
    printf("  %.1f MB, best of %d rounds:\n", (double)m.length / 1e6, ROUNDS);
    print("copy, digest, open", open_ms);
    print("decode each", each_ms);
    print("close", close_ms);
    double all = print("together", all_ms), other = print("plain LMDB, nothing checked", peer_ms);
    printf("  ratio %.1f; resident before %.1f MB, after closing %+.1f MB\n", all / other, before,
           after - before);
    CHECK(sum);
}

static const struct kfit_test tests[] = {TEST(generation_of_10000)};
TEST_MAIN(tests)
