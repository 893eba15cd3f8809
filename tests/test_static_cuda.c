/* Gate 0 on cuda: the PTX reader refuses what it must, for its own reason, and nothing else. */
#include "kfit_test.h"

#include "static_cuda.h"

static const char head[] = ".version 8.5\n.target sm_90a\n.address_size 64\n"
                           "// comment; with { } and .global\n/* and\n .managed */\n";
#define PARAMS "(.param .u64 p0, .param .u64 p1,\n.param .u64 p2, .param .u64 p3)"
#define ENTRY  ".visible .entry kfit_main" PARAMS
static const char plain[] =
    ENTRY "\n.maxntid 128, 1, 1\n{\n .reg .pred %p<3>; .reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .f32 %f<9>;\n"
          " .shared .align 16 .b8 tile[512];\n"
          " ld.param.u64 %rd1, [p0];\n ld.param.u64 %rd2, [p2];\n mov.u32 %r1, %tid.x;\n mul.wide.u32 %rd3, "
          "%r1, 16;\n"
          " add.s64 %rd4, %rd1, %rd3;\n ld.global.nc.v4.f32 {%f1, %f2, %f3, %f4}, [%rd4];\n"
          " setp.gt.u32 %p1, %r1, 63;\n @%p1 bra $L_1;\n add.f32 %f5, %f1, %f2;\n st.global.f32 [%rd2], "
          "%f5;\n$L_1:\n ret;\n}\n";

static const struct kfit_plan plan = {.launch_count = 1, .launches = {{.entry = "kfit_main"}}};

static enum kfit_code judge(const char *body, bool *oblivious)
{
    char text[8192], detail[256] = "";
    snprintf(text, sizeof text, "%s%s", head, body);
    enum kfit_code code = static_cuda(text, strlen(text), &plan, 4, oblivious, detail, sizeof detail);
    CHECK_MSG(code == KFIT_CODE_NONE || detail[0], "no detail for %s", kfit_code_str(code));
    return code;
}

static void a_plain_kernel_passes(void)
{
    bool oblivious;
    CHECK_INT(judge(plain, &oblivious), KFIT_CODE_NONE);
    CHECK(oblivious);
}

/* Puts a statement into the plain kernel. */
static const char *with(const char *module, const char *statement)
{
    static char text[4096];
    const char *ret = strstr(plain, " ret;");
    snprintf(text, sizeof text, "%s%.*s%s\n%s", module, (int)(ret - plain), plain, statement, ret);
    return text;
}

static void refused_for_its_own_reason(void)
{
    static const struct {
        const char *module, *statement;
        enum kfit_code code;
    } bad[] = {
        {".global .align 4 .u32 memo;\n", "", KFIT_CODE_STATIC_WRITABLE},
        {".visible .global .align 4 .u32 memo;\n", "", KFIT_CODE_STATIC_WRITABLE},
        {".visible .global .attribute(.managed) .align 4 .u32 memo;\n", "", KFIT_CODE_STATIC_WRITABLE},
        {"", " mov.u64 %rd5, %clock64;", KFIT_CODE_STATIC_INSTRUCTION},
        {"", " mov.u64 %rd5, %globaltimer;", KFIT_CODE_STATIC_INSTRUCTION},
        {"", " createpolicy.fractional.L2::evict_last.b64 %rd5, 1.0;", KFIT_CODE_STATIC_INSTRUCTION},
        {"", " ld.global.L2::cache_hint.f32 %f1, [%rd4], %rd5;", KFIT_CODE_STATIC_INSTRUCTION},
        {"", " ld.global.L1::evict_last.f32 %f1, [%rd4];", KFIT_CODE_STATIC_INSTRUCTION},
        {"", " prefetch.global.L2 [%rd4];", KFIT_CODE_STATIC_INSTRUCTION},
        {"", " cp.async.bulk.prefetch.L2.global [%rd4], 256;", KFIT_CODE_STATIC_INSTRUCTION},
        {"", " discard.global.L2 [%rd4], 128;", KFIT_CODE_STATIC_INSTRUCTION},
        {"", " griddepcontrol.wait;", KFIT_CODE_STATIC_INSTRUCTION},
        {"", " @%p1 trap;", KFIT_CODE_STATIC_INSTRUCTION},
        {".extern .func (.param .b32 r) vprintf (.param .b64 a, .param .b64 b);\n", "",
         KFIT_CODE_STATIC_EXTERN},
        {"", " call.uni (retval0), vprintf, (param0, param1);", KFIT_CODE_STATIC_EXTERN},
    };
    bool oblivious;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        enum kfit_code code = judge(with(bad[i].module, bad[i].statement), &oblivious);
        CHECK_MSG(code == bad[i].code, "\"%s%s\" got \"%s\", expected \"%s\"", bad[i].module,
                  bad[i].statement, kfit_code_str(code), kfit_code_str(bad[i].code));
    }
}

static void looks_suspicious_but_is_fine(void)
{
    static const char *const good[][2] = {
        {".extern .shared .align 16 .b8 dynamic[];\n", ""},
        {".const .align 4 .b8 table[8] = {1, 2, 3, 4, 5, 6, 7, 8};\n", ""},
        {"", " ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%r2, %r3, %r4, %r5}, [%rd4];"},
        {"", " ld.global.L1::evict_first.f32 %f1, [%rd4];"},
        {"", " { .reg .b32 trick; mov.b32 trick, {%r1, %r2}; }"},
        {"", " barrier.cluster.arrive.release; barrier.cluster.wait.acquire;"},
    };
    bool oblivious;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        CHECK_MSG(judge(with(good[i][0], good[i][1]), &oblivious) == KFIT_CODE_NONE, "refused \"%s%s\"",
                  good[i][0], good[i][1]);
}

static void data_dependence_is_seen(void)
{
    static const char *const dependent[] = {
        " setp.gt.f32 %p2, %f1, 0f00000000;\n @%p2 bra $L_1;",
        (" cvt.rzi.s32.f32 %r2, %f1; mul.wide.s32 %rd5, %r2, 4; add.s64 %rd6, %rd1, %rd5; ld.global.f32 %f6, "
         "[%rd6];"),
        " atom.global.add.u32 %r2, [%rd2], 1;\n setp.eq.u32 %p2, %r2, 7;\n @%p2 bra $L_1;",
        " ld.shared.f32 %f6, [tile]; setp.gt.f32 %p2, %f6, %f5; @%p2 st.global.f32 [%rd2], %f5;",
        /* around a loop: clean at first */
        (" mov.u64 %rd5, %rd4;\n$L_2: ld.global.u32 %r2, [%rd5]; cvt.u64.u32 %rd5, %r2; setp.lt.u32 %p2, "
         "%r1, "
         "9; @%p2 bra $L_2;"),
        /* only on one way */
        " @%p1 bra $L_2; ld.global.u32 %r1, [%rd4];\n$L_2: setp.eq.u32 %p2, %r1, 7; @%p2 bra $L_1;",
        /* perhaps overwritten */
        " ld.global.u32 %r2, [%rd4]; @%p1 mov.u32 %r2, 0; setp.eq.u32 %p2, %r2, 7; @%p2 bra $L_1;",
        /* another register of that name is overwritten */
        (" ld.global.u32 %r2, [%rd4]; { .reg .b32 %r2; mov.u32 %r2, 0; } setp.eq.u32 %p2, %r2, 7; @%p2 bra "
         "$L_1;"),
        /* through the carry flag */
        (" ld.global.u32 %r2, [%rd4]; add.cc.u32 %r3, %r2, %r2; addc.u32 %r4, %r1, 0; setp.eq.u32 %p2, %r4, "
         "7; "
         "@%p2 bra $L_1;"),
        /* an operand is no result */
        " ld.global.u32 %r2, [%rd4]; bar.sync %r2; setp.eq.u32 %p2, %r2, 7; @%p2 bra $L_1;",
    };
    static const char *const independent[] = {
        " setp.gt.f32 %p2, %f1, 0f00000000;\n selp.f32 %f6, %f1, %f2, %p2;",
        " cvt.rzi.s32.f32 %r2, %f1; st.global.u32 [%rd2], %r2;",
        " mbarrier.try_wait.parity.shared.b64 %p2, [tile], 0;\n @!%p2 bra $L_1;",
        /* the same register, later */
        " ld.global.u32 %r2, [%rd4]; mov.u32 %r2, 0; setp.eq.u32 %p2, %r2, 7; @%p2 bra $L_1;",
        " setp.eq.u32 %p2, %r1, 7; @%p2 bra $L_1; ld.global.u32 %r1, [%rd4]; st.global.u32 [%rd2], %r1;",
        /* a way that is none */
        " bra $L_1; ld.global.u32 %r2, [%rd4]; setp.eq.u32 %p2, %r2, 7; @%p2 bra $L_1;",
    };
    bool oblivious;
    for (size_t i = 0; i < sizeof dependent / sizeof *dependent; i++) {
        CHECK_INT(judge(with("", dependent[i]), &oblivious), KFIT_CODE_NONE);
        CHECK_MSG(!oblivious, "missed: %s", dependent[i]);
    }
    for (size_t i = 0; i < sizeof independent / sizeof *independent; i++) {
        CHECK_INT(judge(with("", independent[i]), &oblivious), KFIT_CODE_NONE);
        CHECK_MSG(oblivious, "false alarm: %s", independent[i]);
    }
}

static void entries_must_match_the_plan(void)
{
    bool oblivious;
    CHECK_INT(judge(".visible .entry other" PARAMS "{ ret; }\n", &oblivious), KFIT_CODE_STATIC_ENTRY);
    CHECK_INT(judge(".visible .entry kfit_main(.param .u64 a){ ret; }\n", &oblivious),
              KFIT_CODE_STATIC_ENTRY);
    CHECK_INT(
        judge(
            ".visible .entry kfit_main(.param .u64 a, .param .u64 b, .param .u64 c, .param .u32 d){ ret; }\n",
            &oblivious),
        KFIT_CODE_STATIC_ENTRY);
}

/* After the pointers, as many as the plan has, of their size and alignment. */
static void tensor_maps_are_parameters_too(void)
{
#define POINTERS ".visible .entry kfit_main(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 d"
#define MAP      ", .param .align 64 .b8 m[128]"
    static const struct {
        const char *entry;
        unsigned maps;
        enum kfit_code code;
    } row[] = {
        {POINTERS MAP "){ ret; }\n", 1, KFIT_CODE_NONE},
        {POINTERS MAP MAP "){ ret; }\n", 2, KFIT_CODE_NONE},
        {POINTERS MAP "){ ret; }\n", 0, KFIT_CODE_STATIC_ENTRY},
        {POINTERS "){ ret; }\n", 1, KFIT_CODE_STATIC_ENTRY},
        {POINTERS ", .param .align 64 .b8 m[64]){ ret; }\n", 1, KFIT_CODE_STATIC_ENTRY},
        {POINTERS ", .param .align 8 .b8 m[128]){ ret; }\n", 1, KFIT_CODE_STATIC_ENTRY},
        {".visible .entry kfit_main(.param .align 64 .b8 m[128], .param .u64 a, .param .u64 b, .param .u64 "
         "c, .param .u64 d)"
         "{ ret; }\n",
         1, KFIT_CODE_STATIC_ENTRY},
    };
    for (unsigned i = 0; i < sizeof row / sizeof *row; i++) {
        char text[1024], detail[256];
        bool oblivious;
        struct kfit_plan with_maps = plan;
        with_maps.tensormap_count = row[i].maps;
        snprintf(text, sizeof text, "%s%s", head, row[i].entry);
        enum kfit_code code =
            static_cuda(text, strlen(text), &with_maps, 4, &oblivious, detail, sizeof detail);
        CHECK_MSG(code == row[i].code, "%u: %s", i, kfit_code_str(code));
    }
}

static void hostile_text_is_survived(void)
{
    size_t n = sizeof head + sizeof plain;
    for (int i = 0; i < 20000; i++) {
        char text[sizeof head + sizeof plain], detail[64];
        bool oblivious;
        snprintf(text, sizeof text, "%s%s", head, plain);
        for (unsigned k = 1 + kfit_test_random() % 8; k; k--)
            text[kfit_test_random() % (n - 2)] = (char)(kfit_test_random() % 256);
        static_cuda(text, kfit_test_random() % n, &plan, 4, &oblivious, detail, sizeof detail);
    }
}

static const struct kfit_test tests[] = {
    TEST(a_plain_kernel_passes),    TEST(refused_for_its_own_reason),  TEST(looks_suspicious_but_is_fine),
    TEST(data_dependence_is_seen),  TEST(entries_must_match_the_plan), TEST(tensor_maps_are_parameters_too),
    TEST(hostile_text_is_survived),
};
TEST_MAIN(tests)
