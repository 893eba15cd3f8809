/* Key, op registry and gemm: text and bytes are one to one, every field matters, hostile text is refused. */
#include "kfit_test.h"

#include "kfit/env.h"
#include "kfit/op.h"

static const char sample[] =
    "gemm/f32,f32,f32/acc=f32/m=4,n=768,k=512/nt/lda=512,ldb=520,ldc=768/alpha=1,beta=0/align=16";
static const char batched[] =
    "gemm/bf16,bf16,f32/acc=f32/m=2,n=3,k=5/tn/lda=7,ldb=3,ldc=4/alpha=other,beta=1/align=2"
    "/batch=11,sa=40,sb=0,sc=12";

static void text_round_trips(void)
{
    const char *const texts[] = {sample, batched};
    struct kfit_error err = {0};
    for (int i = 0; i < 2; i++) {
        union kfit_key key;
        char buf[KFIT_KEY_TEXT_MAX];
        CHECK_OK(kfit_key_parse(texts[i], &key, &err), err);
        CHECK_INT(kfit_key_format(&key, buf, sizeof buf), strlen(texts[i]));
        CHECK_STR(buf, texts[i]);
        CHECK_INT(kfit_key_format(&key, buf, strlen(texts[i])), 0); /* one byte short */
        CHECK_STR(buf, "");
    }
}

static void golden_bytes(void)
{
    static const uint8_t want[KFIT_GEMM_KEY_BYTES] = {
        40, 1, 0, 1, 1, 1, 1, 1, 1, 0, 16, 0, 0, 0, 0, 0, /* flags */
        4,  0, 0, 0, 0, 3, 0, 0, 0, 2, 0,  0,             /* m n k */
        0,  2, 0, 0, 8, 2, 0, 0, 0, 3, 0,  0,             /* lda ldb ldc */
    };
    union kfit_key key;
    CHECK_STATUS(kfit_key_parse(sample, &key, NULL), KFIT_OK);
    CHECK(!memcmp(key.bytes, want, sizeof want));
    CHECK_INT(kfit_key_hash(&key), UINT64_C(16567871082354095814));
}

/* Flip any bit of the used bytes: the key must differ, and either be refused or have another text. */
static void every_bit_matters(void)
{
    const char *const texts[] = {sample, batched};
    for (int t = 0; t < 2; t++) {
        union kfit_key key;
        CHECK_STATUS(kfit_key_parse(texts[t], &key, NULL), KFIT_OK);
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

static void nonsense_text_is_refused(void)
{
    static const char *const bad[] = {
        "",
        "/",
        "gemm",
        "gemm/",
        "conv/f32",
        "gemm/f32,f32,f32",
        "gemm/f32,f32,f32/acc=f32/m=04,n=768,k=512/nt/lda=512,ldb=520,ldc=768/alpha=1,beta=0/align=16",
        "gemm/f32,f32,f32/acc=f32/m=0,n=768,k=512/nt/lda=512,ldb=520,ldc=768/alpha=1,beta=0/align=16",
        "gemm/f32,f32,f32/acc=f32/m=4,n=768,k=512/nx/lda=512,ldb=520,ldc=768/alpha=1,beta=0/align=16",
        "gemm/f32,f32,f32/acc=f32/m=4,n=768,k=512/nt/lda=511,ldb=520,ldc=768/alpha=1,beta=0/align=16",
        "gemm/f32,f32,f32/acc=f32/m=4,n=768,k=512/nt/lda=512,ldb=520,ldc=768/alpha=2,beta=0/align=16",
        "gemm/f32,f32,f32/acc=f32/m=4,n=768,k=512/nt/lda=512,ldb=520,ldc=768/alpha=1,beta=0/align=3",
        "gemm/f32,f32,f32/acc=f32/m=4,n=768,k=512/nt/lda=512,ldb=520,ldc=768/alpha=1,beta=0/align=16 ",
        "gemm/f32,f32,f32/acc=f32/m=99999999999,n=768,k=512/nt/lda=512,ldb=520,ldc=768/alpha=1,beta=0/"
        "align=16",
        "gemm/f32,f32,f32/acc=f32/m=4,n=768,k=512/nt/lda=512,ldb=520,ldc=768/alpha=1,beta=0/align=16/"
        "batch=1,sa=0,sb=0,sc=0",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        union kfit_key key;
        struct kfit_error err = {0};
        CHECK_MSG(kfit_key_parse(bad[i], &key, &err) == KFIT_E_FORMAT, "accepted \"%s\"", bad[i]);
        CHECK(err.text[0]);
    }
    /* and mutations of a good one never crash, nor print as something else than they parsed from */
    for (int i = 0; i < 200000; i++) {
        char text[sizeof sample], back[KFIT_KEY_TEXT_MAX];
        union kfit_key key;
        memcpy(text, sample, sizeof sample);
        for (unsigned n = 1 + kfit_test_random() % 3; n; n--)
            text[kfit_test_random() % (sizeof sample - 1)] =
                (char)(kfit_test_random() % 2 ? '0' + kfit_test_random() % 10 : kfit_test_random() % 256);
        if (kfit_key_parse(text, &key, NULL) == KFIT_OK) {
            CHECK(kfit_key_format(&key, back, sizeof back));
            CHECK_STR(back, text);
        }
    }
}

static void column_major_is_the_same_key(void)
{
    /* C[3,5] = A[3,7] B[7,5], row-major; and as the column-major caller of the same memory would say it */
    static float a[21], b[35], c[15];
    struct kfit_gemm_call row = {.type = KFIT_F32,
                                 .m = 3,
                                 .n = 5,
                                 .k = 7,
                                 .lda = 7,
                                 .ldb = 5,
                                 .ldc = 5,
                                 .alpha = 1,
                                 .a = a,
                                 .b = b,
                                 .c = c};
    struct kfit_gemm_call col = {.col_major = true,
                                 .type = KFIT_F32,
                                 .m = 5,
                                 .n = 3,
                                 .k = 7,
                                 .lda = 5,
                                 .ldb = 7,
                                 .ldc = 5,
                                 .alpha = 1,
                                 .a = b,
                                 .b = a,
                                 .c = c};
    union kfit_key x, y;
    const void *xa[3], *ya[3];
    CHECK(kfit_gemm_key_fill(&row, &x, xa) && kfit_gemm_key_fill(&col, &y, ya));
    CHECK(kfit_key_equal(&x, &y));
    CHECK(!memcmp(xa, ya, sizeof xa));
    CHECK_STATUS(kfit_key_check(&x, NULL), KFIT_OK);
    row.k = 0;
    CHECK(!kfit_gemm_key_fill(&row, &x, xa));
    row.k = (int64_t)1 << 31;
    CHECK(!kfit_gemm_key_fill(&row, &x, xa));
}

static void alignment_is_the_least(void)
{
    static _Alignas(64) char mem[4096];
    union kfit_key key;
    const void *args[3];
    for (int off = 4; off <= 32; off += 4) {
        struct kfit_gemm_call call = {.type = KFIT_F32,
                                      .m = 2,
                                      .n = 16,
                                      .k = 16,
                                      .lda = 16,
                                      .ldb = 16,
                                      .ldc = 16,
                                      .alpha = 1,
                                      .a = mem,
                                      .b = mem + off,
                                      .c = mem + 1024};
        CHECK(kfit_gemm_key_fill(&call, &key, args));
        CHECK_INT(key.gemm.align, off % 16 == 0 ? 16 : off % 8 == 0 ? 8 : 4);
        call.b = mem;
        call.ldc = 17;
        CHECK(kfit_gemm_key_fill(&call, &key, args));
        CHECK_INT(key.gemm.align, 4);
    }
}

/* The reference against sums written out by hand, for every transpose, odd strides and beta = 1. */
static void reference_agrees_with_definition(void)
{
    enum { M = 3, N = 5, K = 7, LDA = 11, LDB = 13, LDC = 6 };
    for (int variant = 0; variant < 8; variant++) {
        int ta = variant & 1, tb = variant >> 1 & 1, beta = variant >> 2;
        char text[KFIT_KEY_TEXT_MAX];
        snprintf(text, sizeof text,
                 "gemm/f64,f64,f64/acc=f64/m=%d,n=%d,k=%d/%c%c/lda=%d,ldb=%d,ldc=%d/alpha=1,beta=%d/align=8",
                 M, N, K, "nt"[ta], "nt"[tb], LDA, LDB, LDC, beta);
        union kfit_key key;
        struct kfit_error err = {0};
        CHECK_OK(kfit_key_parse(text, &key, &err), err);
        double a[LDA * 16], b[LDB * 16], c[LDC * M], ref[M * N], mag[M * N];
        for (size_t i = 0; i < LDA * 16; i++)
            a[i] = (double)(int64_t)kfit_test_random() * 0x1p-63;
        for (size_t i = 0; i < LDB * 16; i++)
            b[i] = (double)(int64_t)kfit_test_random() * 0x1p-63;
        for (size_t i = 0; i < LDC * M; i++)
            c[i] = (double)(int64_t)kfit_test_random() * 0x1p-63;
        const void *args[3] = {a, b, c};
        kfit_op_of(&key)->reference(&key, args, ref, mag);
        for (int i = 0; i < M; i++)
            for (int j = 0; j < N; j++) {
                double want = beta ? c[i * LDC + j] : 0, size = __builtin_fabs(want);
                for (int k = 0; k < K; k++) {
                    double t =
                        (ta ? a[k * LDA + i] : a[i * LDA + k]) * (tb ? b[j * LDB + k] : b[k * LDB + j]);
                    want += t;
                    size += __builtin_fabs(t);
                }
                CHECK(__builtin_fabs(ref[i * N + j] - want) <= 1e-15 * size);
                CHECK(__builtin_fabs(mag[i * N + j] - size) <= 1e-14 * size);
            }
        struct kfit_tensor t;
        kfit_op_of(&key)->tensor(&key, 0, &t);
        CHECK_INT(kfit_tensor_bytes(&t), ((ta ? (K - 1) * LDA + M : (M - 1) * LDA + K)) * 8);
        kfit_op_of(&key)->tensor(&key, 2, &t);
        CHECK_INT(t.dir, beta ? KFIT_INOUT : KFIT_OUT);
    }
}

static void environment_text(void)
{
    struct kfit_env env;
    char v[64];
    kfit_env_host(&env, 2, "Open;BLAS=x", NULL);
    CHECK(kfit_env_get(env.hard, "device", v, sizeof v));
    CHECK_STR(v, "host");
    CHECK(kfit_env_get(env.hard, "threads", v, sizeof v));
    CHECK_STR(v, "2");
    CHECK(kfit_env_get(env.soft, "blas", v, sizeof v));
    CHECK_STR(v, "Open_BLAS_x");
    CHECK(!kfit_env_get(env.soft, "compiler", v, sizeof v));
    CHECK_INT(env.hard_hash, kfit_text_hash(env.hard));
}

static const struct kfit_test tests[] = {
    TEST(text_round_trips),
    TEST(golden_bytes),
    TEST(every_bit_matters),
    TEST(nonsense_text_is_refused),
    TEST(column_major_is_the_same_key),
    TEST(alignment_is_the_least),
    TEST(reference_agrees_with_definition),
    TEST(environment_text),
};
TEST_MAIN(tests)
