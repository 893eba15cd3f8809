/* A real campaign on a GPU: tunes keys against cuBLAS and writes what came of each beside the measured floor.
 *
 *     bench_tune_cuda [--json FILE] [--commit ID] [--evaluations N] [--seconds S] [--seed N]
 *                     [--m M,M,...] [--min-mb MB] [--max-mb MB] [--types A,B,C] [--tail TEXT] [NxK ...]
 *
 * y[M,N] = x[M,K] W[N,K]^T, in bf16 unless --types says f16,f16,f16 or the like; --tail is the end of the keys' text, as
 * /epi=bias. Without shapes: the projections of workloads of today. Cold: weights rotate beyond twice the L2, CUDA graph
 * replay, both sides alike. Exit 77 where there is no GPU. */
#include <cjson/cJSON.h>
#include <math.h>
#include <string.h>
#include <time.h>

#include "gpu.h"
#include "kfit/tune.h"

static const int shapes[][2] = {
    {256, 3072},  {128, 3072},   {512, 2048},   {64, 2048},    {1024, 3072}, {768, 4096},  {1536, 4096},
    {2048, 3072}, {3072, 1024},  {3072, 2048},  {4096, 1024},  {2048, 2048}, {2048, 4096}, {1280, 2880},
    {2880, 1024}, {3072, 4096},  {4096, 4096},  {5120, 3072},  {8192, 2048}, {6144, 4096}, {12288, 2048},
    {3072, 8192}, {10240, 3072}, {28672, 4096}, {4096, 14336},
};
enum { SHAPES = sizeof shapes / sizeof *shapes, TARGETS_MAX = 400 };

static struct kfit_target targets[TARGETS_MAX];
static char won_by[TARGETS_MAX][128]; /* the choice of knobs */
static size_t count;

static void add(const char *types, const char *tail, int m, int n, int k)
{
    char text[256];
    struct kfit_error err;
    snprintf(text, sizeof text,
             "gemm/%s/acc=f32/m=%d,n=%d,k=%d/nt/lda=%d,ldb=%d,ldc=%d/alpha=1,beta=0/align=16%s", types, m, n, k, k, k,
             n, tail);
    if (count < TARGETS_MAX && kfit_key_parse(text, &targets[count].key, &err) == KFIT_OK)
        targets[count++].calls = 1;
}

static void seen(void *ctx, const struct kfit_tune_progress *p)
{
    (void)ctx;
    if (p->event != KFIT_TUNE_DONE)
        return;
    const struct kfit_gemm_key *g = &p->at->key.gemm;
    const struct kfit_receipt *r = p->best;
    snprintf(won_by[p->target], sizeof *won_by, "%s", r ? r->knobs : "");
    printf("[%zu/%zu] m=%d %dx%d ", p->target + 1, p->targets, g->m, g->n, g->k);
    if (r && r->timing_count)
        printf("%s %s %.3f [%.3f, %.3f] %.2f -> %.2f us  %s %s %s\n", kfit_verdict_str(r->verdict),
               kfit_code_str(r->code), r->timings[0].ratio, r->timings[0].lo, r->timings[0].hi,
               r->timings[0].ns_incumbent * 1e-3, r->timings[0].ns_candidate * 1e-3, r->name, r->knobs,
               r->detail);
    else
        printf("%s %s\n", r ? kfit_code_str(r->code) : "nothing right", r ? r->detail : "");
    fflush(stdout);
}

static int fail(const char *what, const struct kfit_error *err)
{
    fprintf(stderr, "bench_tune_cuda: %s: %s\n", what, err->text);
    return 1;
}

int main(int argc, char **argv)
{
    struct kfit_generic generic;
    struct kfit_env env = {0};
    struct kfit_device_info info = {0};
    struct kfit_error err = {0};
    const char *json = NULL, *commit = "", *ms = "1,2,4,8,16", *types = "bf16,bf16,bf16", *tail = "";
    char command[512] = "bench_tune_cuda";
    unsigned evaluations = 16;
    double seconds = 0, min_mb = 0, max_mb = 20;
    uint64_t seed = 1;
    int first_shape = argc;
    for (int i = 1; i < argc; i++)
        snprintf(command + strlen(command), sizeof command - strlen(command), " %s", argv[i]);
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (!strcmp(argv[i], "--json"))
            json = value, i++;
        else if (!strcmp(argv[i], "--commit"))
            commit = value, i++;
        else if (!strcmp(argv[i], "--evaluations"))
            evaluations = (unsigned)atoi(value), i++;
        else if (!strcmp(argv[i], "--seconds"))
            seconds = atof(value), i++;
        else if (!strcmp(argv[i], "--seed"))
            seed = strtoull(value, NULL, 10), i++;
        else if (!strcmp(argv[i], "--m"))
            ms = value, i++;
        else if (!strcmp(argv[i], "--types"))
            types = value, i++;
        else if (!strcmp(argv[i], "--tail"))
            tail = value, i++;
        else if (!strcmp(argv[i], "--min-mb"))
            min_mb = atof(value), i++;
        else if (!strcmp(argv[i], "--max-mb"))
            max_mb = atof(value), i++;
        else {
            first_shape = i;
            break;
        }
    }
    const char *why = gpu_find(&generic, &env, &info);
    if (why) {
        printf("skipped: %s\n", why);
        return 77;
    }
    for (const char *p = ms; *p; p += strcspn(p, ","), p += *p == ',') {
        int m = atoi(p), n, k;
        for (int i = first_shape; i < argc; i++)
            if (sscanf(argv[i], "%dx%d", &n, &k) == 2)
                add(types, tail, m, n, k);
        for (unsigned i = 0; first_shape == argc && i < SHAPES; i++) {
            double mb = 2e-6 * shapes[i][0] * shapes[i][1];
            if (mb >= min_mb && mb <= max_mb)
                add(types, tail, m, shapes[i][0], shapes[i][1]);
        }
    }
    printf("%s\n%s\n%zu keys, %u evaluations each\n", env.hard, env.soft, count, evaluations);

    char dir[] = "/tmp/kfit-gpu-XXXXXX";
    struct kfit_store *store;
    struct kfit_judge *judge;
    const struct kfit_judge_params jp = {.generic = &generic, .env = &env, .seed = seed};
    if (!mkdtemp(dir) || kfit_store_open(dir, KFIT_STORE_WRITE, &store, &err) != KFIT_OK)
        return fail("store", &err);
    if (kfit_judge_create(&jp, &judge, &err) != KFIT_OK)
        return fail("judge", &err);
    struct kfit_tune_result result;
    const struct kfit_tune_params tp = {.store = store,
                                        .judge = judge,
                                        .env = &env,
                                        .targets = targets,
                                        .count = count,
                                        .evaluations = evaluations,
                                        .seconds = seconds,
                                        .seed = seed,
                                        .progress = seen,
                                        .campaign = "bench",
                                        .allow_no_isolation = true}; /* the seeds are ours */
    enum kfit_status s = kfit_tune(&tp, &result, &err);
    if (s != KFIT_OK)
        return fail("tune", &err);
    printf("%u promoted, %u kept, %u without a right candidate; %u evaluations in %.1f s: %.1f s judging "
           "(%.1f a second, gate 5 apart %.1f), %.1f s compiling\n",
           result.promoted, result.kept, result.refused_targets, result.evaluations, result.seconds,
           result.evaluate_seconds, result.evaluations / result.evaluate_seconds,
           result.evaluations / (result.evaluate_seconds - result.again_seconds), result.compile_seconds);

    cJSON *root = cJSON_CreateObject(), *list = cJSON_AddArrayToObject(root, "keys");
    cJSON_AddStringToObject(root, "environment", env.hard);
    cJSON_AddStringToObject(root, "versions", env.soft);
    cJSON_AddStringToObject(root, "commit", commit);
    cJSON_AddStringToObject(root, "command", command);
    cJSON_AddNumberToObject(root, "evaluations", result.evaluations);
    cJSON_AddNumberToObject(root, "evaluate_seconds", result.evaluate_seconds);
    cJSON_AddNumberToObject(root, "again_seconds", result.again_seconds);
    cJSON_AddNumberToObject(root, "seconds", result.seconds);
    double log_sum = 0, log_floor = 0;
    unsigned n = 0;
    printf("%4s %12s %8s %9s %9s %9s %7s %15s %8s\n", "M", "NxK", "MB", "cuBLAS us", "winner us", "floor us",
           "ratio", "95 %", "of floor");
    for (size_t i = 0; i < count; i++) {
        struct kfit_record record;
        void *bytes = NULL;
        double floor = 0;
        const struct kfit_gemm_key *g = &targets[i].key.gemm;
        char text[KFIT_KEY_TEXT_MAX];
        bool have =
            kfit_store_staged(store, env.hard_hash, &targets[i].key, &record, &bytes, &err) == KFIT_OK;
        kfit_judge_bound(judge, &targets[i].key, &floor, &err);
        bool won = have && record.kind == KFIT_RECORD_WINNER;
        double ratio = won ? record.ns_generic / record.ns_candidate : 1, now = won    ? record.ns_candidate
                                                                                : have ? record.ns_generic
                                                                                       : 0;
        cJSON *o = cJSON_CreateObject();
        kfit_key_format(&targets[i].key, text, sizeof text);
        cJSON_AddStringToObject(o, "key", text);
        cJSON_AddStringToObject(o, "verdict", won ? "promoted" : have ? "kept" : "open");
        cJSON_AddNumberToObject(o, "floor_ns", floor);
        if (have) {
            cJSON_AddNumberToObject(o, "generic_ns", record.ns_generic);
            cJSON_AddNumberToObject(o, "candidate_ns", record.ns_candidate);
            cJSON_AddNumberToObject(o, "ratio", record.ratio);
            cJSON_AddNumberToObject(o, "lo", record.lo);
            cJSON_AddNumberToObject(o, "hi", record.hi);
            cJSON_AddStringToObject(o, "origin", record.origin);
            cJSON_AddStringToObject(o, "knobs", won_by[i]);
            log_sum += log(ratio);
            log_floor += log(now / floor);
            n++;
            printf("%4d %6dx%-6d %8.2f %9.2f %9.2f %9.2f %7.3f [%.3f, %.3f] %8.2f\n", g->m, g->n, g->k,
                   2e-6 * g->n * g->k, record.ns_generic * 1e-3, now * 1e-3, floor * 1e-3, ratio, record.lo,
                   record.hi, now / floor);
        }
        cJSON_AddItemToArray(list, o);
        free(bytes);
    }
    if (n)
        printf("geometric mean over %u keys: %.3f x cuBLAS (kept count as 1), %.3f x floor\n", n,
               exp(log_sum / n), exp(log_floor / n));
    cJSON_AddNumberToObject(root, "geometric_mean", n ? exp(log_sum / n) : 0);
    cJSON_AddNumberToObject(root, "geometric_mean_over_floor", n ? exp(log_floor / n) : 0);
    char *text = cJSON_Print(root);
    FILE *f = json ? fopen(json, "w") : NULL;
    if (json && (!f || !text || fprintf(f, "%s\n", text) < 0 || fclose(f)))
        return fail(json, &(struct kfit_error){"cannot write"});
    free(text);
    cJSON_Delete(root);
    kfit_judge_destroy(judge);
    kfit_store_close(store);
    snprintf(command, sizeof command, "rm -rf %s", dir);
    return system(command) ? 1 : 0;
}
