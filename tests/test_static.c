/* Gate 0: kernels that must be refused, each for its own reason, and its stages on their own with input that
 * no compiler would make. */
#include "building.h"

#include "kfit/env.h"

#include "gate0.h"

/* ---- refused ---- */

static const struct {
    const char *file, *code;
} bad_kernels[] = {
    {"include_file", "static:include"},
    {"include_splice", "static:include"},
    {"include_macro", "static:include"},
    {"include_digraph", "static:include"},
    {"include_comment", "static:include"},
    {"has_include", "static:include"},
    {"line", "static:include"},
    {"macro", "static:macro"},
    {"macro_spliced", "static:macro"},
    {"macro_builtin", "static:macro"},
    {"macro_pushed", "static:pragma"},
    {"asm", "static:asm"},
    {"asm_pasted", "static:asm"},
    {"asm_incbin", "static:asm"},
    {"asm_register", "static:asm"},
    {"asm_raw_string", "static:asm"},
    {"asm_spelled", "static:compile"},
    {"pragma", "static:pragma"},
    {"pragma_operator", "static:pragma"},
    {"attribute_optimize", "static:attribute"},
    {"attribute_section", "static:attribute"},
    {"attribute_bracket", "static:attribute"},
    {"attribute_constructor", "static:attribute"},
    {"attribute_split", "static:attribute"},
    {"extern", "static:extern"},
    {"extern_libc", "static:extern"},
    {"writable_global", "static:writable"},
    {"writable_local", "static:writable"},
    {"writable_thread", "static:writable"},
    {"reloc_table", "static:reloc"},
    {"section_align", "static:section"},
    {"instruction_rdtsc", "static:instruction"},
    {"instruction_data", "static:instruction"},
    {"instruction_pointer", "static:instruction"},
    {"instruction_goto", "static:instruction"},
    {"instruction_flags", "static:instruction"},
    {"instruction_rounding", "static:instruction"},
    {"size_array", "static:size"},
    {"entry_missing", "static:entry"},
    {"entry_decoy", "static:entry"},
    {"entry_data", "static:entry"},
    {"compile", "static:compile"},
    {"require", "static:require"},
    {"require_zero", "static:header"},
    {"timeout_macros", "static:timeout"},
    {"timeout_inline", "static:timeout"},
};

static void refuse_all(bool timeouts)
{
    const char *cc[2];
    unsigned n = compilers(cc);
    for (size_t i = 0; i < sizeof bad_kernels / sizeof *bad_kernels; i++) {
        size_t bytes;
        if (!strcmp(bad_kernels[i].code, "static:timeout") != timeouts)
            continue;
        char *source = bad_kernel(bad_kernels[i].file, &bytes);
        for (unsigned k = 0; k < n; k++) {
            struct kfit_built b;
            struct kfit_error err = {0};
            enum kfit_status s = build(source, bytes, cc[k], timeouts ? 500 : 0, &b, &err);
            CHECK_MSG(s == KFIT_E_REFUSED && !strcmp(b.code, bad_kernels[i].code),
                      "%s, %s: %s [%s] %s, expected %s", bad_kernels[i].file, cc[k], kfit_status_str(s),
                      b.code, err.text, bad_kernels[i].code);
            CHECK(b.detail[0] && err.text[0] && !b.image && known_code(b.code));
        }
        free(source);
    }
}

static void bad_kernels_are_refused(void)
{
    refuse_all(false);
}

static void endless_compiles_are_stopped(void)
{
    refuse_all(true);
}

/* One file more in the folder than in the table, or the reverse, is a test that does not run. */
static void every_bad_kernel_has_a_row(void)
{
    char *out = NULL;
    unsigned files = 0;
    CHECK_INT(kfit_test_run((const char *const[]){"ls", BAD_KERNELS "/host", NULL}, NULL, &out, NULL), 0);
    for (char *line = strtok(out, "\n"); line; line = strtok(NULL, "\n")) {
        bool found = false;
        if (strncmp(line, "static_", 7))
            continue;
        files++;
        for (size_t i = 0; i < sizeof bad_kernels / sizeof *bad_kernels; i++)
            found |= !strncmp(line + 7, bad_kernels[i].file, strlen(bad_kernels[i].file)) &&
                     !strcmp(line + 7 + strlen(bad_kernels[i].file), ".c");
        CHECK_MSG(found, "%s has no row", line);
    }
    CHECK_INT(files, sizeof bad_kernels / sizeof *bad_kernels);
    free(out);
}

/* ---- stages on their own ---- */

/* Any damaged object is refused or placed inside its bounds. */
static void damaged_objects_are_safe(void)
{
    const char *cc[2];
    compilers(cc);
    char source[160], object[160];
    size_t bytes;
    static const char text[] =
        "static const float t[4] = {1, 2, 3, 4};\n__attribute__((noinline)) static float g(int i) "
        "{ return t[i & 3]; }\nvoid kfit_main(const float *a, float *c)\n{ c[0] = g((int)a[0]); }\n";
    snprintf(source, sizeof source, "%s/x.c", kfit_test_dir());
    snprintf(object, sizeof object, "%s/x.o", kfit_test_dir());
    kfit_test_write(source, text, strlen(text));
    CHECK_INT(kfit_test_run((const char *const[]){cc[0], "-O2", "-fPIC", "-fvisibility=hidden", "-c", "-o",
                                                  object, source, NULL},
                            NULL, NULL, NULL),
              0);
    char *good = kfit_test_read(object, &bytes);
    unsigned accepted = 0;
    for (int i = 0; i < 60000; i++) {
        uint8_t *copy = malloc(bytes);
        size_t n = i % 16 ? bytes : kfit_test_random() % bytes, text_bytes = 0;
        struct kfit_built b = {0};
        memcpy(copy, good, bytes);
        for (unsigned k = i ? 1 + kfit_test_random() % 3 : 0; k; k--) {
            size_t at = kfit_test_random() % bytes;
            copy[at] = kfit_test_random() % 2 ? (uint8_t)kfit_test_random()
                                              : (uint8_t)(copy[at] ^ 1u << kfit_test_random() % 8);
        }
        enum kfit_status s = kfit_link_host(copy, i ? n : bytes, "kfit_main", &b, &text_bytes);
        CHECK(s == KFIT_OK || (s == KFIT_E_REFUSED && known_code(b.code)));
        if (s == KFIT_OK) {
            accepted++;
            CHECK(b.plan.launches[0].entry_offset < text_bytes && text_bytes <= b.image_bytes);
            CHECK(b.image[text_bytes - 2] == 0x0f && b.image[text_bytes - 1] == 0x0b);
        }
        CHECK(i || s == KFIT_OK);
        free(b.image);
        free(copy);
    }
    CHECK(accepted > 1000);
    free(good);
}

static void listings_are_read_strictly(void)
{
    static const struct {
        const char *listing;
        size_t bytes;
        uint64_t entry;
        bool ok;
    } rows[] = {
        {"   0:\t90                   \tnop\n   1:\tc3                   \tret\n", 2, 0, true},
        {"headline\n\n0000 <.data>:\n   0:\t90                   \tnop\n   1:\tc3                   \tret\n",
         2, 1, true},
        {"   0:\teb 00                \tjmp    0x2\n   2:\tc3                   \tret\n", 3, 0, true},
        {"   0:\t2e 66 90             \tcs xchg %ax,%ax\n   3:\tc3                   \tret\n", 4, 0, true},
        {"   0:\t90                   \tnop\n   1:\tc3                   \tret\n", 3, 0,
         false}, /* too short */
        {"   0:\t90                   \tnop\n   1:\tc3                   \tret\n", 1, 0,
         false}, /* too long */
        {"   1:\t90                   \tnop\n   2:\tc3                   \tret\n", 3, 2, false}, /* gap */
        {"   0:\t90                   \tnop\n   1:\tc3                   \tret\n", 2, 2,
         true}, /* judged by the plan */
        {"   0:\t66 90                \txchg %ax,%ax\n   2:\tc3                   \tret\n", 3, 1,
         false}, /* entry inside */
        {"   0:\teb 01                \tjmp    0x1\n   2:\tc3                   \tret\n", 3, 0,
         false}, /* branch inside */
        {"   0:\teb 10                \tjmp    0x40\n   2:\tc3                   \tret\n", 3, 0,
         false}, /* branch out */
        {"   0:\te8 ff ff ff ff       \tcall   0xffffffffffffffff\n   5:\tc3                   \tret\n", 6, 0,
         false},
        {"   0:\tff e0                \tjmp    *%rax\n   2:\tc3                   \tret\n", 3, 0, false},
        {"   0:\tff 10                \tcall   *(%rax)\n   2:\tc3                   \tret\n", 3, 0, false},
        {"   0:\t3e ff e0             \tnotrack jmp *%rax\n   3:\tc3                   \tret\n", 4, 0, false},
        {"   0:\tc2 08 00             \tret    $0x8\n", 3, 0, false},
        {"   0:\t0f 05                \tsyscall\n   2:\tc3                   \tret\n", 3, 0, false},
        {"   0:\t48 0f 05             \trex.W syscall\n   3:\tc3                   \tret\n", 4, 0, false},
        {"   0:\tf0 0f 05             \tlock syscall\n   3:\tc3                   \tret\n", 4, 0, false},
        {"   0:\tcd 80                \tint    $0x80\n   2:\tc3                   \tret\n", 3, 0, false},
        {"   0:\t06                   \t(bad)\n   1:\tc3                   \tret\n", 2, 0, false},
        {"   0:\t64 48 8b 04 25 00 00 00 00 \tmov    %fs:0x0,%rax\n   9:\tc3                   \tret\n", 10,
         0, false},
        {"   0:\t64                   \tfs\n   1:\tc3                   \tret\n", 2, 0, false},
        {"   0:\t65 90                \tgs nop\n   2:\tc3                   \tret\n", 3, 0, false},
        {"   0:\t0f 6f 07             \tmovq   (%rdi),%mm0\n   3:\tc3                   \tret\n", 4, 0,
         false},
        {"   0:\txx                   \tnop\n   1:\tc3                   \tret\n", 2, 0, false},
        {"   0:\t90 90 90 90 90 90 90 90\n   8:\tc3                   \tret\n", 9, 0, false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct kfit_built b = {0};
        enum kfit_status s = kfit_static_instructions(rows[i].listing, strlen(rows[i].listing), rows[i].bytes,
                                                      rows[i].entry, &b);
        CHECK_MSG((s == KFIT_OK) == rows[i].ok, "row %zu: %s %s\n%s", i, kfit_status_str(s), b.detail,
                  rows[i].listing);
        CHECK(rows[i].ok || !strcmp(b.code, "static:instruction"));
    }
}

/* Any text passes or is refused, and what passes has no directive left but line markers and pragmas. */
static void mutated_sources_are_safe(void)
{
    static const char bits[] = "#\\\n\"'/*%:<>()[]_ KFIT";
    static const char directives[] = "#define VL 4\n#if VL > 3 // so\n#pragma GCC unroll 4\n#endif\n";
    static const char code[] =
        "/* for */ static const char *s = \"a\\\"b\", c = '\\'';\n# 1 \"candidate.c\"\n#pragma GCC ivdep\n"
        "typedef float vf __attribute__((vector_size(16), aligned(4)));\nvoid f(float *p)\n{\n    p[0] = "
        "p[1];\n}\n";
    unsigned accepted[2] = {0};
    for (int i = 0; i < 20000; i++) {
        char text[sizeof directives + sizeof code], *second = text + sizeof directives - 1;
        size_t n = (size_t)sprintf(text, "%s%s", directives, code);
        struct kfit_text out = {0}, clean = {0};
        struct kfit_built b = {0};
        for (unsigned k = kfit_test_random() % 4; k; k--)
            text[kfit_test_random() % n] = kfit_test_random() % 4
                                               ? bits[kfit_test_random() % (sizeof bits - 1)]
                                               : (char)(1 + kfit_test_random() % 255);
        size_t marker = strcspn(second, "#"); /* # 1 "candidate.c" is no directive of a source */
        if (second[marker] && !strncmp(second + marker, "# 1 ", 4))
            second[marker] = ' ';
        enum kfit_status s = kfit_static_source(text, n, &out, &b);
        accepted[0] += s == KFIT_OK;
        CHECK(s == KFIT_OK || (s == KFIT_E_REFUSED && known_code(b.code)));
        if (second[marker])
            second[marker] = '#';
        s = kfit_static_preprocessed(second, strlen(second), &clean, &b);
        accepted[1] += s == KFIT_OK;
        CHECK(s == KFIT_OK || (s == KFIT_E_REFUSED && known_code(b.code)));
        CHECK(s != KFIT_OK || !strstr(clean.data, "#define"));
        free(out.data);
        free(clean.data);
    }
    CHECK(accepted[0] > 1000 && accepted[1] > 1000 && accepted[0] < 20000 && accepted[1] < 20000);
}

/* What counts as ours ends where the source begins, once and for all. */
static void preprocessed_text_is_read_strictly(void)
{
    static const char begin[] =
        "#define KFIT_M 4\n# 1 \"kfit_host.h\"\n#define KFIT_VL 16\n__asm__ x;\n# 1 \"candidate.c\"\n";
    static const struct {
        const char *text, *code;
    } rows[] = {
        {"int x;\n", ""},
        {"# 12 \"candidate.c\" 2\nint x;\n", ""},
        {"#define MINE 1\n#undef MINE\n#pragma GCC unroll 4\n", ""},
        {"const char *s = \"asm \\\" asm\"; char c = '\"';\n", ""},
        {"int x __attribute__((aligned(4), __unused__));\nint section;\n", ""},
        {"# 1 \"kfit_host.h\"\n", "static:include"},
        {"# 1 \"/etc/hostname\" 1\n", "static:include"},
        {"# 1 \"candidate.cc\"\n", "static:include"},
        {"#define KFIT_M 5\n", "static:macro"},
        {"#undef kfit_load\n", "static:macro"},
        {"#define __x86_64__ 0\n", "static:macro"},
        {"#define _Static_assert(x, y)\n", "static:macro"},
        {"#ident \"x\"\n", "static:pragma"},
        {"#pragma STDC FP_CONTRACT OFF\n", "static:pragma"},
        {"#pragma GCC unrolled\n", "static:pragma"},
        {"char c = '\"'; asm(\"\");\n", "static:asm"},
        {"x = \"\\\\\"; asm(\"\");\n", "static:asm"},
        {"u8R\"(x)\";\n", "static:asm"},
        {"int a[ [gnu::x]];\n", "static:attribute"},
        {"<: <:gnu::section(\"x\"):>:> int x;\n", "static:attribute"},
        {"int x __attribute((aligned(4), section(\"x\")));\n", "static:attribute"},
        {"int x __attribute__\n(\n(\nsection(\"x\")));\n", "static:attribute"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[512];
        struct kfit_text out = {0};
        struct kfit_built b = {0};
        snprintf(text, sizeof text, "%s%s", begin, rows[i].text);
        enum kfit_status s = kfit_static_preprocessed(text, strlen(text), &out, &b);
        CHECK_MSG(s == (rows[i].code[0] ? KFIT_E_REFUSED : KFIT_OK) && !strcmp(b.code, rows[i].code),
                  "%s: [%s] %s", rows[i].text, b.code, b.detail);
        CHECK(s != KFIT_OK || !strstr(out.data, "#define"));
        free(out.data);
    }
}

/* Each of these lets loaded data decide where to go or what to touch. */
static void data_dependence_is_seen(void)
{
    static const struct {
        bool oblivious;
        const char *body;
    } rows[] = {
        {true, "for (int i = 0; i < KFIT_M * KFIT_N; i++)\n c[i] = a[i & 255] * b[i];"},
        {true,
         "vf s = kfit_zero();\n for (int k = 0; k < KFIT_K; k++) s += kfit_load(a + k) * kfit_load(b + k);\n"
         "c[0] = kfit_hsum(s);"},
        {true, "kfit_store_n(c, kfit_load_n(a, 3) * kfit_load_n(b, 3), 3);"},
        {true, "vf s[40];\n for (int i = 0; i < 40; i++) s[i] = kfit_zero();\n"
               "for (int k = 0; k < KFIT_K; k++) KFIT_UNROLL(40) for (int i = 0; i < 40; i++) s[i] += b[k] * "
               "kfit_load(a + 99 * i);\n"
               "KFIT_UNROLL(40) for (int i = 0; i < 40; i++) kfit_store(c + KFIT_VL * i, s[i]);"},
        {false, "if (a[0] > 0)\n for (int i = 0; i < KFIT_N; i++) c[i] = 0;"},
        {false, "c[0] = b[(int)a[0]];"},
        {false, "c[(int)a[0]] = b[0];"},
        {false, "for (int i = 0; i < ((const int *)a)[0]; i++) c[i] = 0;"},
        {false, "if (((const int *)a)[0] == 7) for (int i = 0; i < KFIT_N; i++) c[i] = 1;"},
        {false, "int i = 0;\n while (a[i] != 0) i++;\n c[i] = 1;"},
        {false, "static const KFIT_TYPE t[4] = {1, 2, 3, 4};\n c[0] = t[((const int *)a)[0] & 3];"},
        {false, "for (int i = 0; i < 64; i++) c[i] = b[((const int *)a)[i]];"},
        {false, "for (int i = 0; i < 64; i++) if (a[i] > 0) c[i] = b[i];"},
        {false,
         "KFIT_TYPE t[64];\n for (int i = 0; i < 64; i += KFIT_VL) kfit_store(t + i, kfit_load(a + i));\n"
         "for (int i = 0; i < 64; i++) c[i] = b[((volatile int *)t)[i] & 7];"},
        {false, "volatile KFIT_TYPE t = a[0];\n c[((volatile int *)&t)[0] & 7] = 1;"},
        {false, "kfit_store_n(c, kfit_load(b), ((const int *)a)[0] & 15);"},
    };
    const char *cc[2];
    unsigned n = compilers(cc);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (unsigned k = 0; k < n; k++) {
            char source[2048];
            struct kfit_built b;
            struct kfit_error err = {0};
            if (strstr(rows[i].body, "load_n") && strcmp(kfit_host_isa(), "x86-64-v4"))
                continue; /* masks are vectors there, which the rule does not follow */
            snprintf(source, sizeof source, HEAD "#include \"kfit_host.h\"\n" ENTRY "{\n%s\n}\n",
                     rows[i].body);
            CHECK_OK(build(source, strlen(source), cc[k], 0, &b, &err), err);
            CHECK_MSG(b.data_oblivious == rows[i].oblivious, "%s: data-oblivious %d\n%s", cc[k],
                      b.data_oblivious, rows[i].body);
            kfit_built_finish(&b);
        }
}

static const struct kfit_test tests[] = {
    TEST(bad_kernels_are_refused),
    TEST(endless_compiles_are_stopped),
    TEST(every_bad_kernel_has_a_row),
    TEST(damaged_objects_are_safe),
    TEST(listings_are_read_strictly),
    TEST(mutated_sources_are_safe),
    TEST(preprocessed_text_is_read_strictly),
    TEST(data_dependence_is_seen),
};
TEST_MAIN(tests)
