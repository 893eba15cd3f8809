/* What a tune gives, and whether it holds: tunes a few keys in a fresh store, then judges every winner again, whole,
 * in a fresh runner each time, and counts the intervals that lie wholly below 1.
 *
 *     bench_winners [--json FILE] [--retimings N] [--evaluations N] [--threads N] [--runner PATH] [--verbose] [KEY ...]
 *
 * The generic is the OpenBLAS that ldconfig knows, with N threads (default 1). Ratios are generic / winner, warm, with
 * the cost of a dispatched call added to the winner. */
#include <cjson/cJSON.h>
#include <dlfcn.h>
#include <link.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kfit/tune.h"
#include "median.h"

#define KEY(m, n, k, layout, lda, ldb)                                                                       \
    "gemm/f32,f32,f32/acc=f32/m=" #m ",n=" #n ",k=" #k "/" layout "/lda=" #lda ",ldb=" #ldb ",ldc=" #n         \
    "/alpha=1,beta=0/align=16"

static const char *const keys[] = {
    KEY(4, 768, 768, "nn", 768, 768),   KEY(4, 768, 3072, "nn", 3072, 768), KEY(4, 3072, 768, "nn", 768, 3072),
    KEY(1, 768, 3072, "nn", 3072, 768), KEY(8, 256, 256, "nn", 256, 256),   KEY(16, 256, 768, "nn", 768, 256),
    KEY(64, 256, 768, "nn", 768, 256),  KEY(8, 768, 768, "nt", 768, 768),   KEY(16, 16, 16, "nn", 16, 16),
    KEY(32, 32, 32, "nn", 32, 32),
};
enum { KEYS = sizeof keys / sizeof *keys, RETIMINGS_MAX = 100 };

static int fail(const char *what, const struct kfit_error *err)
{
    fprintf(stderr, "bench_winners: %s: %s\n", what, err->text);
    return 1;
}

/* The system's OpenBLAS, as the loader finds it. */
static bool find_generic(struct kfit_generic *g, int threads)
{
    struct link_map *map;
    void *lib = dlopen("libopenblas.so.0", RTLD_LAZY | RTLD_LOCAL);
    if (!lib || dlinfo(lib, RTLD_DI_LINKMAP, &map))
        return false;
    char *real = realpath(map->l_name, NULL);
    const char *(*config)(void) = (const char *(*)(void))dlsym(lib, "openblas_get_config");
    snprintf(g->path, sizeof g->path, "%s", real ? real : map->l_name);
    snprintf(g->naming, sizeof g->naming, "cblas_%%s");
    snprintf(g->config, sizeof g->config, "%.127s", config ? config() : "OpenBLAS");
    g->threads = threads;
    g->int_bits = 32;
    free(real);
    return true;
}

int main(int argc, char **argv)
{
    const char *json = NULL, *runner = NULL, *given[KEYS];
    unsigned retimings = 20, evaluations = 16, count = 0;
    int threads = 1;
    bool verbose = false;
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (!strcmp(argv[i], "--json"))
            json = value, i++;
        else if (!strcmp(argv[i], "--retimings"))
            retimings = (unsigned)atoi(value), i++;
        else if (!strcmp(argv[i], "--evaluations"))
            evaluations = (unsigned)atoi(value), i++;
        else if (!strcmp(argv[i], "--threads"))
            threads = atoi(value), i++;
        else if (!strcmp(argv[i], "--verbose"))
            verbose = true;
        else if (!strcmp(argv[i], "--runner"))
            runner = value, i++;
        else if (count < KEYS)
            given[count++] = argv[i];
    }
    retimings = retimings < RETIMINGS_MAX ? retimings : RETIMINGS_MAX;

    struct kfit_error err = {0};
    struct kfit_generic generic = {0};
    struct kfit_env env;
    struct kfit_target targets[KEYS] = {0};
    char dir[] = "/tmp/kfit-bench-XXXXXX", compiler[64];
    if (!find_generic(&generic, threads)) {
        printf("skipped: no libopenblas.so.0 here\n");
        return 77;
    }
    kfit_compiler_version(NULL, compiler, sizeof compiler, &err);
    kfit_env_host(&env, threads, generic.config, compiler);
    if (!count)
        for (; count < KEYS; count++)
            given[count] = keys[count];
    for (unsigned i = 0; i < count; i++) {
        targets[i].calls = 1000;
        if (kfit_key_parse(given[i], &targets[i].key, &err) != KFIT_OK)
            return fail(given[i], &err);
    }
    struct kfit_judge *judge;
    struct kfit_store *store;
    struct kfit_judge_params jp = {.runner = runner, .generic = &generic, .env = &env};
    if (verbose) /* where an evaluation's time goes, gate by gate */
        jp.log = (struct kfit_log){kfit_log_to_fd, (void *)(intptr_t)2, KFIT_LOG_DEBUG};
    if (!mkdtemp(dir) || kfit_store_open(dir, KFIT_STORE_WRITE, &store, &err) != KFIT_OK)
        return fail("store", &err);
    if (kfit_judge_create(&jp, &judge, &err) != KFIT_OK)
        return fail("judge", &err);
    const struct kfit_tune_params tp = {.store = store, .judge = judge, .env = &env, .targets = targets, .count = count,
                                        .evaluations = evaluations, .campaign = "bench"};
    struct kfit_tune_result result;
    if (kfit_tune(&tp, &result, &err) != KFIT_OK)
        return fail("tune", &err);
    printf("%s, %d threads\n%s\n%u promoted, %u kept; %u evaluations in %.1f s (%.1f s judging, %.1f s compiling)\n\n",
           generic.config, threads, env.hard, result.promoted, result.kept, result.evaluations, result.seconds,
           result.evaluate_seconds, result.compile_seconds);
    printf("%-12s %8s %10s %10s %7s %7s %7s %6s  %s\n", "verdict", "times", "generic us", "winner us", "ratio", "least",
           "most", "below", "key");

    cJSON *root = cJSON_CreateObject(), *list = cJSON_AddArrayToObject(root, "keys");
    cJSON_AddStringToObject(root, "environment", env.hard);
    cJSON_AddStringToObject(root, "generic", generic.config);
    double all_seconds[KEYS * RETIMINGS_MAX];
    size_t full = 0;
    unsigned below_all = 0;
    for (unsigned i = 0; i < count; i++) {
        struct kfit_record record;
        void *bytes = NULL;
        if (kfit_store_staged(store, env.hard_hash, &targets[i].key, &record, &bytes, &err) != KFIT_OK) {
            printf("%-12s %s\n", "no finding", given[i]); /* noise; the next tune would try again */
            continue;
        }
        double ratio[RETIMINGS_MAX] = {record.ratio}, least = record.ratio, most = record.ratio;
        unsigned below = 0, n = record.kind == KFIT_RECORD_WINNER ? retimings : 0;
        for (unsigned r = 0; r < n; r++) {
            struct kfit_receipt receipt = {0};
            const struct kfit_judge_job job = {.key = &record.key, .image = record.image,
                                               .image_bytes = record.image_bytes, .plan = &record.plan};
            if (kfit_judge_run(judge, &job, &receipt, &err) != KFIT_OK)
                return fail(given[i], &err);
            const struct kfit_timing *t = &receipt.timings[0];
            ratio[r] = t->ratio;
            least = r && t->ratio > least ? least : t->ratio;
            most = r && t->ratio < most ? most : t->ratio;
            below += receipt.timing_count && t->hi < 1;
            all_seconds[full++] = receipt.evaluate_ns * 1e-9;
        }
        double mid = n ? median(ratio, n) : record.ratio;
        below_all += below;
        printf("%-12s %8u %10.2f %10.2f %7.2f %7.2f %7.2f %6u  %s\n", n ? "promoted" : "kept", n, record.ns_generic * 1e-3,
               record.ns_candidate * 1e-3, mid, least, most, below, given[i]);
        cJSON *o = cJSON_CreateObject();
        cJSON_AddStringToObject(o, "key", given[i]);
        cJSON_AddStringToObject(o, "verdict", n ? "promoted" : "kept");
        cJSON_AddStringToObject(o, "origin", record.origin);
        cJSON_AddNumberToObject(o, "ns_generic", record.ns_generic);
        cJSON_AddNumberToObject(o, "ns_winner", record.ns_candidate);
        cJSON_AddNumberToObject(o, "ratio", mid);
        cJSON_AddNumberToObject(o, "least", least);
        cJSON_AddNumberToObject(o, "most", most);
        cJSON_AddNumberToObject(o, "intervals_below_1", below);
        cJSON_AddNumberToObject(o, "retimings", n);
        cJSON_AddItemToArray(list, o);
        free(bytes);
    }
    double seconds = full ? median(all_seconds, full) : 0;
    printf("\nintervals wholly below 1: %u of %zu re-timings\none full evaluation beyond compiling: median %.3f s\n", below_all,
           full, seconds);
    cJSON_AddNumberToObject(root, "intervals_below_1", below_all);
    cJSON_AddNumberToObject(root, "retimings", (double)full);
    cJSON_AddNumberToObject(root, "evaluation_median_s", seconds);
    if (json) {
        char *text = cJSON_Print(root);
        FILE *f = fopen(json, "w");
        if (!f || !text || fprintf(f, "%s\n", text) < 0 || fclose(f))
            return fail(json, &(struct kfit_error){"cannot write"});
        free(text);
    }
    cJSON_Delete(root);
    kfit_judge_destroy(judge);
    kfit_store_close(store);
    char command[64];
    snprintf(command, sizeof command, "rm -rf %s", dir);
    return system(command) ? 1 : 0;
}
