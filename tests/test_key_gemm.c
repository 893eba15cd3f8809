/* gemm's further key fields, epilogue and strided batch: text, bytes, arguments, reference, cost; and that the host's judge
 * takes neither. */
#include "kfit_test.h"

#include "kfit/judge.h"
#include "kfit/op.h"

#define START "gemm/bf16,bf16,f32/acc=f32/m=2,n=3,k=5/nt/lda=8,ldb=6,ldc=4/alpha=1,beta="
static const char plain[] = START "0/align=2", bias[] = START "0/align=2/epi=bias";
static const char batched[] = START "1/align=2/batch=4,sa=16,sb=0,sc=8";
static const char both[] = START "1/align=2/batch=4,sa=16,sb=18,sc=8/epi=bias";

static struct kfit_error err;

static union kfit_key key_of(const char *text)
{
    union kfit_key key;
    CHECK_OK(kfit_key_parse(text, &key, &err), err);
    return key;
}

static void text_round_trips(void)
{
    const char *const texts[] = {plain, bias, batched, both};
    for (int i = 0; i < 4; i++) {
        union kfit_key key = key_of(texts[i]);
        char buf[KFIT_KEY_TEXT_MAX];
        CHECK_INT(kfit_key_format(&key, buf, sizeof buf), strlen(texts[i]));
        CHECK_STR(buf, texts[i]);
        for (size_t size = 0; size <= strlen(texts[i]); size++) /* never half a text */
            CHECK_INT(kfit_key_format(&key, buf, size), 0);
    }
}

static void golden_bytes(void)
{
    static const uint8_t head[16] = {72, 1, 0, 1, 4, 4, 1, 1, 1, 1, 2, 1, 0, 0, 0, 0}; /* flags; epi is the 12th */
    static const uint8_t tail[32] = {4,  0, 0, 0, 0, 0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0, /* batch, sa */
                                     18, 0, 0, 0, 0, 0, 0, 0, 8,  0, 0, 0, 0, 0, 0, 0}; /* sb, sc */
    union kfit_key key = key_of(both);
    CHECK(!memcmp(key.bytes, head, sizeof head));
    CHECK(!memcmp(key.bytes + 40, tail, sizeof tail));
    key = key_of(bias);
    CHECK_INT(key.h.len, KFIT_GEMM_KEY_BYTES);
    CHECK_INT(key.bytes[11], 1);
    union kfit_key without = key_of(plain);
    key.bytes[11] = 0;
    CHECK(kfit_key_equal(&key, &without)); /* nothing else tells them apart */
}

static void every_bit_matters(void)
{
    const char *const texts[] = {bias, both};
    for (int t = 0; t < 2; t++) {
        union kfit_key key = key_of(texts[t]);
        for (unsigned bit = 0; bit < key.h.len * 8u; bit++) {
            union kfit_key other = key;
            char buf[KFIT_KEY_TEXT_MAX];
            other.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
            CHECK(!kfit_key_equal(&key, &other));
            if (kfit_key_check(&other, NULL) == KFIT_OK) {
                CHECK(kfit_key_format(&other, buf, sizeof buf));
                CHECK(strcmp(buf, texts[t]));
            }
        }
    }
}

static void nonsense_is_refused(void)
{
    static const char *const bad[] = {
        START "0/align=2/epi=",          START "0/align=2/epi=none",       START "0/align=2/epi=biased",
        START "0/align=2/epi=bias/",     START "0/align=2/epi=bias/epi=bias", START "0/align=2/epi=relu_bias",
        START "0/align=2/epi=bias/batch=4,sa=16,sb=18,sc=8", START "0/align=2/batch=4,sa=16,sb=18",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        union kfit_key key;
        CHECK_MSG(kfit_key_parse(bad[i], &key, &err) == KFIT_E_FORMAT, "accepted \"%s\"", bad[i]);
        CHECK(err.text[0]);
    }
}

static void arguments(void)
{
    const struct kfit_op *op = kfit_op_by_name("gemm", 4);
    struct kfit_tensor t;
    union kfit_key key = key_of(plain);
    CHECK_INT(op->nargs(&key), 3);
    CHECK_INT(op->bytes(&key), 2 * 5 * 2 + 3 * 5 * 2 + 2 * 3 * 4);
    key = key_of(bias);
    CHECK_INT(op->nargs(&key), 4);
    CHECK_STR(op->arg_names[3], "bias");
    op->tensor(&key, 3, &t);
    CHECK(t.dir == KFIT_IN && t.type == KFIT_F32 && t.batch == 1 && t.rows == 1 && t.cols == 3);
    CHECK_INT(kfit_tensor_bytes(&t), 12);
    CHECK_INT(op->bytes(&key), 2 * 5 * 2 + 3 * 5 * 2 + 2 * 3 * 4 + 12);
    key = key_of(batched); /* one B for all is read once; C is read and written */
    CHECK_INT(op->bytes(&key), 4 * 2 * 5 * 2 + 3 * 5 * 2 + 4 * 2 * 3 * 4 * 2);
    CHECK_INT(op->flops(&key), 4 * 2 * 2 * 3 * 5);
    struct kfit_dim dims[KFIT_DIMS_MAX];
    unsigned n = op->dims(&key, dims), found = 0;
    for (unsigned i = 0; i < n; i++) {
        found += !strcmp(dims[i].name, "BATCH") && dims[i].value == 4;
        found += !strcmp(dims[i].name, "SC") && dims[i].value == 8;
        found += !strcmp(dims[i].name, "EPI") && dims[i].value == 0;
    }
    CHECK_INT(found, 3);
}

/* Against sums written out by hand: C[z][i][j] = sum A[z][i][p] B[z][j][p] (+ C) + bias[j]. */
static void reference_agrees_with_definition(void)
{
    enum { M = 3, N = 4, K = 6, LDA = 7, LDB = 9, LDC = 5, Z = 3 };
    for (int variant = 0; variant < 8; variant++) {
        int beta = variant & 1, epi = variant >> 1 & 1, sb = variant >> 2 ? 40 : 0;
        char text[KFIT_KEY_TEXT_MAX];
        snprintf(text, sizeof text,
                 "gemm/f64,f64,f64/acc=f64/m=%d,n=%d,k=%d/nt/lda=%d,ldb=%d,ldc=%d/alpha=1,beta=%d/align=8/batch=%d,sa=%d,sb=%d,"
                 "sc=%d%s",
                 M, N, K, LDA, LDB, LDC, beta, Z, 23, sb, 17, epi ? "/epi=bias" : "");
        union kfit_key key = key_of(text);
        double a[23 * Z], b[40 * Z], c[17 * Z], add[N], ref[Z * M * N], mag[Z * M * N];
        double *const all[] = {a, b, c, add};
        const size_t counts[] = {23 * Z, 40 * Z, 17 * Z, N};
        for (int x = 0; x < 4; x++)
            for (size_t i = 0; i < counts[x]; i++)
                all[x][i] = (double)(int64_t)kfit_test_random() * 0x1p-63;
        const void *args[] = {a, b, c, epi ? add : NULL};
        kfit_op_of(&key)->reference(&key, args, ref, mag);
        for (int z = 0; z < Z; z++)
            for (int i = 0; i < M; i++)
                for (int j = 0; j < N; j++) {
                    double want = beta ? c[z * 17 + i * LDC + j] : 0, size = __builtin_fabs(want);
                    for (int p = 0; p < K; p++) {
                        double t = a[z * 23 + i * LDA + p] * b[z * sb + j * LDB + p];
                        want += t;
                        size += __builtin_fabs(t);
                    }
                    want += epi ? add[j] : 0;
                    size += epi ? __builtin_fabs(add[j]) : 0;
                    const int o = (z * M + i) * N + j;
                    CHECK(__builtin_fabs(ref[o] - want) <= 1e-15 * size);
                    CHECK(__builtin_fabs(mag[o] - size) <= 1e-14 * size);
                }
    }
}

/* Such keys have nothing to beat on the host: said before anything is compiled or measured. */
static void the_host_says_what_it_lacks(void)
{
    struct kfit_generic g = {.path = "/nowhere/libblas.so", .naming = "cblas_%s", .int_bits = 32, .threads = 1};
    static const struct {
        const char *key, *why;
    } row[] = {
        {"gemm/f32,f32,f32/acc=f32/m=2,n=3,k=5/nt/lda=8,ldb=6,ldc=4/alpha=1,beta=0/align=4/epi=bias", "has no epilogue"},
        {"gemm/f32,f32,f32/acc=f32/m=2,n=3,k=5/nt/lda=8,ldb=6,ldc=4/alpha=1,beta=0/align=4/batch=2,sa=16,sb=18,sc=8",
         "has no strided batch"},
    };
    struct kfit_env env;
    struct kfit_judge *j;
    kfit_env_host(&env, 1, "blas", NULL);
    const struct kfit_judge_params p = {.runner = RUNNER, .generic = &g, .env = &env, .lock_dir = kfit_test_dir()};
    CHECK_OK(kfit_judge_create(&p, &j, &err), err);
    for (unsigned i = 0; i < 2; i++) {
        union kfit_key key = key_of(row[i].key);
        double ns;
        CHECK_STATUS(kfit_judge_takes(j, &key, &err), KFIT_E_UNSUPPORTED);
        CHECK_MSG(strstr(err.text, row[i].why) && strstr(err.text, "cuda"), "%s", err.text);
        CHECK_STATUS(kfit_judge_time_generic(j, &key, &ns, &err), KFIT_E_UNSUPPORTED);
    }
    kfit_judge_destroy(j);
}

static const struct kfit_test tests[] = {
    TEST(text_round_trips),
    TEST(golden_bytes),
    TEST(every_bit_matters),
    TEST(nonsense_is_refused),
    TEST(arguments),
    TEST(reference_agrees_with_definition),
    TEST(the_host_says_what_it_lacks),
};
TEST_MAIN(tests)
