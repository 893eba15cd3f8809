/* Candidate headers and their expressions: what is accepted, what it means, and that nothing else is. */
#include "kfit_test.h"

#include "kfit/compile.h"

#include "expr.h"

static const char key_text[] =
    "gemm/f32,f32,f32/acc=f32/m=4,n=768,k=512/nn/lda=512,ldb=768,ldc=768/alpha=1,beta=0/align=16";

static struct kfit_candidate *parse(const char *source)
{
    struct kfit_candidate *c;
    struct kfit_error err = {0};
    CHECK_OK(kfit_candidate_parse(source, strlen(source), &c, &err), err);
    return c;
}

/* ---- expressions ---- */

static const struct kfit_dim names[] = {{"M", 7}, {"NV", -3}, {"_x1", 1000}};

static void expressions_have_values(void)
{
    static const struct {
        const char *text;
        int64_t value;
    } good[] = {
        {"0", 0},
        {" 42 ", 42},
        {"M", 7},
        {"NV*M+_x1", 979},
        {"1+2*3", 7},
        {"(1+2)*3", 9},
        {"10-4-3", 3},
        {"100/10/5", 2},
        {"-7/2", -3},
        {"-7%2", -1},
        {"- - 3", 3},
        {"!0 + !5", 1},
        {"!!M", 1},
        {"1<2 == 3>2", 1},
        {"1 || 1/0", 1},
        {"0 && 1/0", 0},
        {"1 && 0 || 1", 1},
        {"0 || 0 && 1", 0},
        {"ceil(7,2)", 4},
        {"ceil(8,2)", 4},
        {"ceil(-7,2)", -3},
        {"ceil(7,-2)", -3},
        {"ceil(-7,-2)", 4},
        {"min(M,NV)", -3},
        {"max(M,min(8,9))", 8},
        {"5 % 3 == 2 && 4 != 5", 1},
        {"9223372036854775807", INT64_MAX},
        {"-9223372036854775807-1", INT64_MIN},
        {"1<=1", 1},
        {"2>=3", 0},
        {"1-1||0", 0},
        {"2*-3", -6},
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        int64_t v;
        struct kfit_error err = {0};
        CHECK_OK(kfit_expr_eval(good[i].text, names, 3, &v, &err), err);
        CHECK_MSG(v == good[i].value, "%s is %" PRId64 ", expected %" PRId64, good[i].text, v, good[i].value);
    }
}

static void bad_expressions_are_refused(void)
{
    static const char *const bad[] = {
        "",
        " ",
        "+",
        "1+",
        "(",
        "(1",
        "1)",
        "()",
        "1 2",
        "M M",
        "m",
        "1//2",
        "1=1",
        "1&1",
        "1|1",
        "1&&",
        "~1",
        "1<<2",
        "M(",
        "M(1)",
        "min(1)",
        "min(1,2",
        "min(1,2,3)",
        "ceil(1,0)",
        "1/0",
        "1%0",
        "M/(M-7)",
        "9223372036854775808",
        "9223372036854775807+1",
        "92233720368547758070",
        "-9223372036854775807-2",
        "9223372036854775807*2",
        "(-9223372036854775807-1)/-1",
        "(-9223372036854775807-1)%-1",
        "-(-9223372036854775807-1)",
        "0x10",
        "1.5",
        "1e3",
        "\"a\"",
        "M;",
        "M,",
        "sizeof(1)",
        "0 || unknown",
        "1 && 1/0",
        "ceil(1 2)",
        "\xff",
        "1\n+1",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        int64_t v = 99;
        struct kfit_error err = {0};
        CHECK_MSG(kfit_expr_eval(bad[i], names, 3, &v, &err) == KFIT_E_FORMAT, "accepted \"%s\" as %" PRId64,
                  bad[i], v);
        CHECK(err.text[0]);
    }
    char deep[KFIT_EXPR_BYTES_MAX + 64];
    int64_t v;
    for (int depth = 1; depth < 120; depth++) {
        memset(deep, '(', (size_t)depth);
        deep[depth] = '1';
        memset(deep + depth + 1, ')', (size_t)depth);
        deep[2 * depth + 1] = '\0';
        CHECK_INT(kfit_expr_eval(deep, names, 3, &v, NULL),
                  depth < KFIT_EXPR_DEPTH_MAX ? KFIT_OK : KFIT_E_FORMAT);
        memset(deep, depth % 2 ? '-' : '!', (size_t)depth);
        deep[depth] = '1';
        deep[depth + 1] = '\0';
        CHECK_INT(kfit_expr_eval(deep, names, 3, &v, NULL),
                  depth < KFIT_EXPR_DEPTH_MAX ? KFIT_OK : KFIT_E_FORMAT);
    }
    memset(deep, '1', sizeof deep);
    deep[sizeof deep - 1] = '\0';
    CHECK_STATUS(kfit_expr_eval(deep, names, 3, &v, NULL), KFIT_E_FORMAT);
}

/* A random tree, written out and worked out side by side in 128 bits; *ok false: it has no value. */
static __int128 grow(char **p, const char *end, int depth, bool *ok)
{
    static const char *const ops[] = {
        "+", "-", "*", "/", "%", "<", "<=", ">", ">=", "==", "!=", "ceil", "min", "max"};
    uint64_t r = kfit_test_random();
    __int128 v, a, b;
    if (!depth || end - *p < 60 || r % 8 == 0) {
        static const int64_t numbers[] = {0, 1, 2, 3, 10, 768, INT32_MAX, INT64_MAX};
        unsigned pick = r / 8 % 11;
        if (pick < 3)
            *p += sprintf(*p, "%s", names[pick].name);
        else
            *p += sprintf(*p, "%" PRId64, numbers[pick - 3]);
        return pick < 3 ? names[pick].value : numbers[pick - 3];
    }
    if (r % 8 == 1) {
        *p += sprintf(*p, "%s(", r / 8 % 2 ? "-" : "!");
        a = grow(p, end, depth - 1, ok);
        *p += sprintf(*p, ")");
        v = r / 8 % 2 ? -a : !a;
    } else {
        unsigned op = r / 8 % 14;
        *p += sprintf(*p, "%s(", op > 10 ? ops[op] : "(");
        a = grow(p, end, depth - 1, ok);
        *p += sprintf(*p, "%s", op > 10 ? "," : ")");
        if (op <= 10)
            *p += sprintf(*p, " %s (", ops[op]);
        b = grow(p, end, depth - 1, ok);
        *p += sprintf(*p, op > 10 ? ")" : "))");
        if ((op == 3 || op == 4 || op == 11) && !b)
            *ok = false, b = 1;
        if ((op == 3 || op == 4 || op == 11) && a == INT64_MIN && b == -1)
            *ok = false;
        __int128 d = b ? b : 1, floor = a / d - (a % d != 0 && (a < 0) != (d < 0));
        const __int128 all[] = {a + b,         a - b,
                                a * b,         a / d,
                                a % d,         a<b, a <= b, a> b,
                                a >= b,        a == b,
                                a != b,        floor + (a % d != 0),
                                a < b ? a : b, a > b ? a : b};
        v = all[op];
    }
    if (v != (int64_t)v)
        *ok = false, v = 1;
    return v;
}

static void random_trees_have_their_values(void)
{
    unsigned with_value = 0, without = 0;
    for (int i = 0; i < 100000; i++) {
        char text[1024], *p = text;
        bool ok = true;
        int64_t got;
        __int128 want = grow(&p, text + 200, 1 + i % 4, &ok);
        if (p - text > KFIT_EXPR_BYTES_MAX)
            continue;
        enum kfit_status s = kfit_expr_eval(text, names, 3, &got, NULL);
        CHECK_MSG(ok == (s == KFIT_OK), "%s: %s", text, kfit_status_str(s));
        CHECK_MSG(!ok || got == want, "%s is %" PRId64 ", expected %" PRId64, text, got, (int64_t)want);
        ok ? with_value++ : without++;
    }
    CHECK(with_value > 20000 && without > 1000);
}

/* ---- headers ---- */

static const char full[] =
    "/* kfit-candidate 1\n{\"op\":\"gemm\", \"device\":\"host\", \"name\":\"full-1.0\",\n"
    " \"knobs\":{\"NV\":[1,2,4], \"MR\":[-8,16]}, \"require\":[\"N % (NV*VL) == 0\", \"M >= 1\"],\n"
    " \"workspace\":{\"bytes\":\"NV*M*BYTES_C\", \"init\":\"zero\"},"
    " \"launches\":[{\"entry\":\"my_entry\"}]}\n*/\nint x;\n";

static void header_means_what_it_says(void)
{
    struct kfit_candidate *c = parse(full);
    const struct kfit_knob *knobs;
    struct kfit_error err = {0};
    size_t bytes;
    char text[64];
    CHECK_STR(kfit_candidate_source(c, &bytes), full);
    CHECK_INT(bytes, strlen(full));
    CHECK_STR(kfit_candidate_name(c), "full-1.0");
    CHECK_STR(kfit_candidate_device(c), "host");
    CHECK_STR(kfit_candidate_op(c)->name, "gemm");
    CHECK_STR(kfit_candidate_entry(c, 0), "my_entry");
    CHECK(!kfit_candidate_entry(c, 1));
    CHECK_INT(kfit_candidate_knobs(c, &knobs), 2);
    CHECK_STR(knobs[1].name, "MR");
    CHECK_INT(knobs[1].count, 2);
    CHECK_INT(knobs[1].values[0], -8);

    union kfit_key key;
    struct kfit_choice choice = {{2, 1}};
    struct kfit_limits limits;
    struct kfit_plan plan;
    CHECK_OK(kfit_key_parse(key_text, &key, &err), err);
    kfit_host_limits("x86-64-v3", &limits);
    CHECK_OK(kfit_candidate_resolve(c, &key, &choice, &limits, &plan, &err), err);
    CHECK_INT(plan.workspace_bytes, 4 * 4 * 4);
    CHECK_INT(plan.workspace_init, KFIT_WS_ZERO);
    CHECK_INT(plan.launch_count, 1);
    CHECK_INT(plan.launches[0].grid[2], 1);
    CHECK(!strncmp(plan.launches[0].entry, "kfit_gemm_", 10) && strlen(plan.launches[0].entry) == 18);
    CHECK_INT(kfit_choice_format(c, &choice, text, sizeof text), 10);
    CHECK_STR(text, "NV=4 MR=16");
    struct kfit_choice again;
    CHECK_OK(kfit_choice_parse(c, text, &again, &err), err);
    CHECK(!memcmp(&again, &choice, sizeof again));
    static const char *const wrong[] = {
        "",           "NV=4",        "NV=4 MR=1",   "NV=4 MR=160",   "NV=3 MR=16",
        "MR=16 NV=4", "NV=4  MR=16", "NV=4 MR=16 ", "NV=4 MR=16 X=1"};
    for (unsigned i = 0; i < sizeof wrong / sizeof *wrong; i++)
        CHECK_STATUS(kfit_choice_parse(c, wrong[i], &again, &err), KFIT_E_FORMAT);

    /* the digest and with it the name depend on each knob's value and on every byte */
    uint8_t one[32], two[32];
    kfit_candidate_digest(c, &choice, one);
    choice.index[1] = 0;
    kfit_candidate_digest(c, &choice, two);
    CHECK(memcmp(one, two, 32));
    char *other = strdup(full);
    other[strlen(other) - 2] = ' ';
    struct kfit_candidate *d = parse(other);
    kfit_candidate_digest(d, &choice, one);
    CHECK(memcmp(one, two, 32));

    choice.index[0] = 3;
    CHECK_STATUS(kfit_candidate_resolve(c, &key, &choice, &limits, &plan, &err), KFIT_E_ARG);
    choice.index[0] = 0;
    key.gemm.n = 767;
    CHECK_STATUS(kfit_candidate_resolve(c, &key, &choice, &limits, &plan, &err), KFIT_E_REFUSED);
    CHECK(strstr(err.text, "N % (NV*VL) == 0"));
    key.gemm.m = -1;
    CHECK_STATUS(kfit_candidate_resolve(c, &key, &choice, &limits, &plan, &err), KFIT_E_FORMAT);
    kfit_candidate_destroy(c);
    kfit_candidate_destroy(d);
    kfit_candidate_destroy(NULL);
    free(other);
}

static void cuda_headers_are_read(void)
{
    struct kfit_candidate *c =
        parse("/* kfit-candidate 1 {\"op\":\"gemm\",\"device\":\"cuda\",\"arch\":\">=80\","
              "\"knobs\":{\"BN\":[64,128]},\"tensormaps\":[],\"launches\":[{\"entry\":\"k\","
              "\"grid\":[\"ceil(N,BN)\",\"M\",1],\"block\":[256,1,1],\"smem\":\"BN*64*2\"},"
              "{\"entry\":\"second\",\"cooperative\":true}]} */");
    union kfit_key key;
    struct kfit_plan plan;
    struct kfit_error err = {0};
    CHECK_OK(kfit_key_parse(key_text, &key, &err), err);
    CHECK_OK(kfit_candidate_resolve(c, &key, &(struct kfit_choice){{1}}, NULL, &plan, &err), err);
    CHECK_INT(plan.launch_count, 2);
    CHECK_INT(plan.launches[0].grid[0], 6);
    CHECK_INT(plan.launches[0].grid[1], 4);
    CHECK_INT(plan.launches[0].block[0], 256);
    CHECK_INT(plan.launches[0].smem_bytes, 16384);
    CHECK_INT(plan.launches[1].cooperative, 1);
    CHECK(strcmp(plan.launches[0].entry, plan.launches[1].entry));
    kfit_candidate_destroy(c);
}

/* The argument as it lies in memory, the box as asked for. */
static void tensor_maps_are_resolved(void)
{
#define WITH_MAP(map)                                                                                        \
    "/* kfit-candidate 1 "                                                                                   \
    "{\"op\":\"gemm\",\"device\":\"cuda\",\"knobs\":{\"BN\":[64,300]},\"tensormaps\":[" map                  \
    "],\"launches\":[{\"entry\":\"k\"}]} */"
    struct kfit_candidate *c = parse(WITH_MAP(
        "{\"arg\":\"b\",\"box\":[\"BN\",64],\"swizzle\":128},{\"arg\":\"a\",\"box\":[\"M\",\"2*8\"]}"));
    static const char batched[] =
        "gemm/bf16,bf16,bf16/acc=f32/m=4,n=200,k=256/nt/lda=256,ldb=264,ldc=200/alpha=1,beta=0/align=16"
        "/batch=3,sa=1024,sb=60000,sc=800";
    union kfit_key key;
    struct kfit_plan plan;
    struct kfit_error err = {0};
    CHECK_OK(kfit_key_parse(batched, &key, &err), err);
    CHECK_OK(kfit_candidate_resolve(c, &key, &(struct kfit_choice){{0}}, NULL, &plan, &err), err);
    CHECK_INT(plan.tensormap_count, 2);
    const struct kfit_tensormap b = {.arg = 1,
                                     .type = KFIT_BF16,
                                     .box_rows = 64,
                                     .box_cols = 64,
                                     .swizzle = 128,
                                     .batch = 3,
                                     .rows = 200,
                                     .cols = 256,
                                     .row_bytes = 528,
                                     .matrix_bytes = 120000};
    const struct kfit_tensormap a = {.type = KFIT_BF16,
                                     .box_rows = 4,
                                     .box_cols = 16,
                                     .batch = 3,
                                     .rows = 4,
                                     .cols = 256,
                                     .row_bytes = 512,
                                     .matrix_bytes = 2048};
    CHECK(!memcmp(&plan.tensormaps[0], &b, sizeof b) && !memcmp(&plan.tensormaps[1], &a, sizeof a));
    CHECK_STATUS(kfit_candidate_resolve(c, &key, &(struct kfit_choice){{1}}, NULL, &plan, &err),
                 KFIT_E_FORMAT); /* 300 rows */
    CHECK_MSG(strstr(err.text, "tensor map 0"), "%s", err.text);
    kfit_candidate_destroy(c);
    c = parse(WITH_MAP("{\"arg\":\"bias\",\"box\":[1,64]}"));
    CHECK_STATUS(kfit_candidate_resolve(c, &key, &(struct kfit_choice){{0}}, NULL, &plan, &err),
                 KFIT_E_REFUSED);
    CHECK_MSG(strstr(err.text, "bias"), "%s", err.text);
    kfit_candidate_destroy(c);
    static const char *const bad[] = {
        WITH_MAP("{\"arg\":\"b\"}"),
        WITH_MAP("{\"arg\":\"w\",\"box\":[1,64]}"),
        WITH_MAP("{\"arg\":\"b\",\"box\":[1,2,3]}"),
        WITH_MAP("{\"arg\":\"b\",\"box\":[1]}"),
        WITH_MAP("{\"arg\":\"b\",\"box\":[1,8],\"oob\":1}"),
        WITH_MAP("7"),
        WITH_MAP("{\"arg\":\"b\",\"box\":[1,8]},{\"arg\":\"b\",\"box\":[1,8]},{\"arg\":\"b\",\"box\":[1,8]},"
                 "{\"arg\":\"b\",\"box\":[1,8]},{\"arg\":\"b\",\"box\":[1,8]}"),
    };
    for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK_STATUS(kfit_candidate_parse(bad[i], strlen(bad[i]), &c, &err), KFIT_E_FORMAT);
}

#define L  "\"launches\":[{\"entry\":\"k\"}]"
#define OD "\"op\":\"gemm\",\"device\":\"host\","

static void bad_headers_are_refused(void)
{
    static const char *const bad[] = {
        "",
        "{",
        "int x;",
        "// kfit-candidate 1 {" OD L "}",
        "{} */",
        "{" OD L "}", /* no comment around it: see below */
        "{" OD L "} x",
        "{" OD L "} {}",
        "[]",
        "1",
        "\"x\"",
        "null",
        "{" L "}",
        "{\"op\":\"gemm\"," L "}",
        "{\"device\":\"host\"," L "}",
        "{\"op\":\"conv\",\"device\":\"host\"," L "}",
        "{\"op\":1,\"device\":\"host\"," L "}",
        "{\"op\":\"gemm\",\"device\":\"tpu\"," L "}",
        "{" OD "\"launches\":[]}",
        "{" OD "\"launches\":{}}",
        "{" OD "\"launches\":[1]}",
        "{" OD "\"launches\":[{}]}",
        "{" OD "\"launches\":[{\"entry\":\"a b\"}]}",
        "{" OD "\"launches\":[{\"entry\":\"\"}]}",
        "{" OD "\"launches\":[{\"entry\":\"1a\"}]}",
        "{" OD "\"launches\":[{\"entry\":\"k\"},{\"entry\":\"l\"}]}",
        "{" OD "\"launches\":[{\"entry\":\"k\",\"grid\":[1,1,1]}]}",
        "{" OD L ",\"surprise\":1}",
        "{" OD L "," L "}",
        "{" OD "\"op\":\"gemm\"," L "}",
        "{" OD "\"name\":\"\"," L "}",
        "{" OD "\"name\":\"a b\"," L "}",
        "{" OD "\"name\":7," L "}",
        "{" OD "\"arch\":\">=80\"," L "}",
        "{" OD "\"knobs\":[]," L "}",
        "{" OD "\"knobs\":{\"nv\":[1]}," L "}",
        "{" OD "\"knobs\":{\"M\":[1]}," L "}",
        "{" OD "\"knobs\":{\"VL\":[1]}," L "}",
        "{" OD "\"knobs\":{\"TYPE\":[1]}," L "}",
        "{" OD "\"knobs\":{\"HOST_H\":[1]}," L "}",
        "{" OD "\"knobs\":{\"NV\":[1],\"NV\":[2]}," L "}",
        "{" OD "\"knobs\":{\"NV\":[]}," L "}",
        "{" OD "\"knobs\":{\"NV\":1}," L "}",
        "{" OD "\"knobs\":{\"NV\":[1.5]}," L "}",
        "{" OD "\"knobs\":{\"NV\":[\"1\"]}," L "}",
        "{" OD "\"knobs\":{\"NV\":[1e30]}," L "}",
        "{" OD "\"knobs\":{\"NV\":[9999999999]}," L "}",
        "{" OD "\"knobs\":{\"NV\":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,"
        "28,29,30,31,32,33]}," L "}",
        "{" OD "\"knobs\":{\"ABCDEFGHIJKLMNOPQRSTUVWXYZABCDEFG\":[1]}," L "}",
        "{" OD "\"knobs\":{\"\":[1]}," L "}",
        "{" OD "\"knobs\":{\"NV\":[1]},\"starts\":\"NV=1\"," L "}",
        "{" OD "\"knobs\":{\"NV\":[1]},\"starts\":[1]," L "}",
        "{" OD "\"knobs\":{\"NV\":[1]},\"starts\":[\"NV=2\"]," L "}",
        "{" OD "\"starts\":[\"NV=1\"]," L "}",
        "{" OD
        "\"starts\":[\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\","
        "\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\"]," L "}",
        "{" OD "\"require\":\"M\"," L "}",
        "{" OD "\"require\":[\"M =\"]," L "}",
        "{" OD "\"require\":[{}]," L "}",
        "{" OD "\"require\":[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0]," L "}",
        "{" OD "\"workspace\":1," L "}",
        "{" OD "\"workspace\":{\"init\":\"zero\"}," L "}",
        "{" OD "\"workspace\":{\"bytes\":\"0\",\"init\":\"one\"}," L "}",
        "{" OD "\"workspace\":{\"bytes\":\"((\"}," L "}",
        "{" OD L ",}",
        "{" OD L,
        "{" OD "'a':1," L "}",
        "{" OD L ",\"name\":[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]}",
        "{" OD "\"knobs\":{\"NV\":[null]}," L "}",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char source[1024];
        struct kfit_candidate *c = NULL;
        struct kfit_error err = {0};
        bool bare = i < 6;
        snprintf(source, sizeof source, bare ? "%s" : "/* kfit-candidate 1\n%s\n*/", bad[i]);
        enum kfit_status s = kfit_candidate_parse(source, strlen(source), &c, &err);
        CHECK_MSG(s == KFIT_E_FORMAT && !c, "%s: %s", source, kfit_status_str(s));
        CHECK(err.text[0]);
        CHECK_STR(kfit_candidate_code(s), "static:header");
    }
    static const char *const frames[] = {
        "/* kfit-candidate 2\n{" OD L "}*/", "/* kfit-candidate 11\n{" OD L "}*/",
        "int x; /* kfit-candidate 1\n{" OD L "}*/", "/* kfit-candidate 1\n{" OD L "}",
        "/* kfit candidate 1\n{" OD L "}*/"};
    for (size_t i = 0; i < sizeof frames / sizeof *frames; i++) {
        struct kfit_candidate *c;
        CHECK_STATUS(kfit_candidate_parse(frames[i], strlen(frames[i]), &c, NULL), KFIT_E_FORMAT);
    }
}

static void size_is_bounded(void)
{
    size_t bytes = 10u << 20;
    char *big = malloc(bytes);
    struct kfit_candidate *c;
    struct kfit_error err = {0};
    memset(big, ' ', bytes);
    memcpy(big, full, strlen(full));
    CHECK_STATUS(kfit_candidate_parse(big, bytes, &c, &err), KFIT_E_FULL);
    CHECK_STR(kfit_candidate_code(KFIT_E_FULL), "static:size");
    CHECK_STATUS(kfit_candidate_parse(big, KFIT_SOURCE_BYTES_MAX + 1, &c, &err), KFIT_E_FULL);
    CHECK_OK(kfit_candidate_parse(big, KFIT_SOURCE_BYTES_MAX, &c, &err), err);
    kfit_candidate_destroy(c);
    big[500] = '\0';
    CHECK_STATUS(kfit_candidate_parse(big, 1000, &c, &err), KFIT_E_FORMAT);
    memset(big, '[', bytes);
    memcpy(big, "/* kfit-candidate 1 ", 20);
    memcpy(big + 15000, "*/", 2);
    CHECK_STATUS(kfit_candidate_parse(big, 20000, &c, &err), KFIT_E_FORMAT);
    free(big);
}

/* Whatever bytes a header has, it is refused or resolves to a plan that passes its check. */
static void mutated_headers_are_safe(void)
{
    static const char bits[] = "{}[]\",:0129-\\*/eE. MNVR()%<=&|!x\n";
    union kfit_key key;
    struct kfit_limits limits;
    unsigned accepted = 0;
    CHECK_STATUS(kfit_key_parse(key_text, &key, NULL), KFIT_OK);
    kfit_host_limits(NULL, &limits);
    for (int i = 0; i < 30000; i++) {
        char text[sizeof full];
        size_t n = strlen(full);
        struct kfit_candidate *c = NULL;
        struct kfit_plan plan;
        memcpy(text, full, sizeof full);
        for (unsigned k = 1 + kfit_test_random() % 3; k; k--)
            text[kfit_test_random() % n] = kfit_test_random() % 8
                                               ? bits[kfit_test_random() % (sizeof bits - 1)]
                                               : (char)(1 + kfit_test_random() % 255);
        if (kfit_test_random() % 8 == 0)
            n = kfit_test_random() % n;
        if (kfit_candidate_parse(text, n, &c, NULL) != KFIT_OK)
            continue;
        accepted++;
        if (kfit_candidate_resolve(c, &key, &(struct kfit_choice){{0}}, &limits, &plan, NULL) == KFIT_OK)
            CHECK_STATUS(kfit_plan_check(&plan, 1 << 20, NULL), KFIT_OK);
        kfit_candidate_destroy(c);
    }
    CHECK(accepted > 100);
}

static void absurd_plans_are_refused(void)
{
    static const char *const bytes[] = {"-1",  "1073741825", "M*N*K*1000000000", "9223372036854775807*2",
                                        "0-N", "1/0"};
    union kfit_key key;
    CHECK_STATUS(kfit_key_parse(key_text, &key, NULL), KFIT_OK);
    for (size_t i = 0; i < sizeof bytes / sizeof *bytes; i++) {
        char source[512];
        struct kfit_plan plan;
        snprintf(source, sizeof source,
                 "/* kfit-candidate 1\n{" OD "\"workspace\":{\"bytes\":\"%s\"}," L "}\n*/", bytes[i]);
        struct kfit_candidate *c = parse(source);
        CHECK_STATUS(kfit_candidate_resolve(c, &key, &(struct kfit_choice){{0}}, NULL, &plan, NULL),
                     KFIT_E_FORMAT);
        kfit_candidate_destroy(c);
    }
}

static void seeds_are_embedded(void)
{
    CHECK(kfit_seed_count >= 4);
    for (unsigned i = 0; i < kfit_seed_count; i++) {
        CHECK_INT(strlen(kfit_seeds[i].source), kfit_seeds[i].bytes);
        struct kfit_candidate *c = parse(kfit_seeds[i].source);
        CHECK_STR(kfit_candidate_name(c), kfit_seeds[i].name);
        CHECK_STR(kfit_candidate_device(c), kfit_seeds[i].device);
        kfit_candidate_destroy(c);
    }
    CHECK(!kfit_seeds[kfit_seed_count].name);
}

static const struct kfit_test tests[] = {
    TEST(expressions_have_values),
    TEST(bad_expressions_are_refused),
    TEST(random_trees_have_their_values),
    TEST(header_means_what_it_says),
    TEST(cuda_headers_are_read),
    TEST(tensor_maps_are_resolved),
    TEST(bad_headers_are_refused),
    TEST(size_is_bounded),
    TEST(mutated_headers_are_safe),
    TEST(absurd_plans_are_refused),
    TEST(seeds_are_embedded),
};
TEST_MAIN(tests)
