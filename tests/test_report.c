/* The report's parts: the gain's formulas, the words, the template, and the one place where text is escaped. */
#include <math.h>

#include "kfit_test.h"
#include "page.h"

/* ---- the gain ---- */

/* Two winners and a shape that was never tuned: 600 and 200 calls of 1 ms, 200 of 1 ms. */
static struct kfit_report_key keys[3];
static struct kfit_report two_winners(uint64_t hits_a, uint64_t hits_b)
{
    keys[0] = (struct kfit_report_key){.calls = 600,
                                       .share = 0.6,
                                       .before_ns = 1e6,
                                       .after_ns = 4e5,
                                       .ratio = 2.5,
                                       .lo = 2,
                                       .hi = 4,
                                       .judged = true,
                                       .measured = true,
                                       .verdict = KFIT_VERDICT_PROMOTED,
                                       .count[KFIT_REASON_NONE] = hits_a};
    keys[1] = (struct kfit_report_key){.calls = 200,
                                       .share = 0.2,
                                       .before_ns = 1e6,
                                       .after_ns = 5e5,
                                       .ratio = 2,
                                       .lo = 1.6,
                                       .hi = 2.5,
                                       .judged = true,
                                       .measured = true,
                                       .verdict = KFIT_VERDICT_PROMOTED,
                                       .count[KFIT_REASON_NONE] = hits_b};
    keys[2] = (struct kfit_report_key){.calls = 200, .share = 0.2, .before_ns = 1e6, .after_ns = 1e6};
    return (struct kfit_report){
        .keys = keys, .count = 3, .calls = 1000, .any_measured = true, .share_replaceable = 0.8};
}

#define CHECK_NEAR(a, b)                                                                                     \
    CHECK_MSG(fabs((a) - (b)) < 1e-9, "%s is %g, expected %g", #a, (double)(a), (double)(b))

static void gain_of_the_time_in_known_ops(void)
{
    struct kfit_report r = two_winners(0, 0);
    kfit_report_weigh(&r);
    CHECK_NEAR(r.gain, 0.6 * 0.6 + 0.2 * 0.5);
    CHECK_NEAR(r.gain_lo, 0.6 * (1 - 1 / 2.0) + 0.2 * (1 - 1 / 1.6));
    CHECK_NEAR(r.gain_hi, 0.6 * (1 - 1 / 4.0) + 0.2 * (1 - 1 / 2.5));
    CHECK(r.program.known && r.program.at_most && !r.program.realised && !r.program.measured);
    CHECK_NEAR(r.program.gain, r.gain);
    r = two_winners(300, 0);
    kfit_report_weigh(&r);
    CHECK(r.program.realised);
    CHECK_NEAR(r.program.gain, 0.3 * 0.6);
    CHECK_NEAR(r.program.lo, 0.3 * 0.5);
    CHECK_NEAR(r.program.hi, 0.3 * 0.75);
}

/* The processes' time is known: what was saved, of what it would have been without. */
static void gain_of_the_processes_time(void)
{
    struct kfit_report r = two_winners(0, 0);
    r.wall_s = 20;
    kfit_report_weigh(&r);
    CHECK(!r.program.at_most);
    CHECK_NEAR(r.program.gain, (0.6 * 0.6 + 0.2 * 0.5) / 20);
    r = two_winners(600, 200);
    r.wall_s = 20;
    kfit_report_weigh(&r);
    CHECK_NEAR(r.program.gain, 0.46 / (20 + 0.46));
    CHECK_NEAR(r.program.lo, (0.6 * 0.5 + 0.2 * 0.375) / (20 + 0.6 * 0.5 + 0.2 * 0.375));
    /* ten thousand times the calls: more time in ops than the processes had, so threads called side by side */
    for (unsigned i = 0; i < 3; i++) {
        keys[i].calls *= 10000;
        keys[i].count[KFIT_REASON_NONE] *= 10000;
    }
    kfit_report_weigh(&r);
    CHECK(r.program.at_most);
    CHECK_NEAR(r.program.gain, 0.46);
    /* a short program is mostly start */
    r = two_winners(0, 0);
    r.wall_s = 9;
    kfit_report_weigh(&r);
    CHECK(r.program.at_most);
}

static void odd_intervals_hold_the_point(void)
{
    struct kfit_report r = two_winners(0, 0);
    keys[0].lo = 3; /* timed again, and the medians give another ratio */
    keys[1].lo = keys[1].hi = 0;
    kfit_report_weigh(&r);
    CHECK(r.gain_lo <= r.gain && r.gain <= r.gain_hi);
    CHECK_NEAR(r.gain_lo, r.gain);
    keys[0].before_ns = 0;
    kfit_report_weigh(&r);
    CHECK(isfinite(r.gain) && isfinite(r.gain_lo) && isfinite(r.gain_hi));
    r = (struct kfit_report){0};
    kfit_report_weigh(&r);
    CHECK(!r.program.known);
}

static void headline(const struct kfit_report *r, const char *end)
{
    char line[512];
    kfit_report_headline(r, line, sizeof line);
    size_t n = strlen(line), m = strlen(end);
    CHECK_MSG(n >= m && !strcmp(line + n - m, end), "\"%s\" does not end in \"%s\"", line, end);
}

static void first_lines(void)
{
    struct kfit_report r = two_winners(600, 200);
    kfit_report_weigh(&r);
    headline(&r, "; the program gains at most 46 % [38, 57], estimated");
    r.wall_s = 20;
    kfit_report_weigh(&r);
    headline(&r, "; the program gains 2.2 % [1.8, 2.8], estimated");
    r = two_winners(0, 0);
    kfit_report_weigh(&r);
    headline(&r, "; the program would gain at most 46 % [38, 57], estimated");
    r.ab = (struct kfit_report_ab){.pairs = 5, .ratio = 1.25, .lo = 1.2, .hi = 1.3};
    kfit_report_weigh(&r);
    headline(&r, "; the program gains 20 % [17, 23], measured");
    r.ab.lo = 0.99;
    kfit_report_weigh(&r);
    headline(&r, "; no gain: 20 % [-1.0, 23], measured");
    r.ab.ratio = 0.5, r.ab.lo = 0.4, r.ab.hi = 0.8;
    kfit_report_weigh(&r);
    headline(&r, "; the program loses 100 % [25, 150], measured");
    r = two_winners(0, 0);
    r.count = 0;
    kfit_report_weigh(&r);
    headline(&r, "; no gain");
    r.calls = 0;
    headline(&r, "no call in known ops was recorded");
}

/* ---- words ---- */

static void every_code_has_words(void)
{
    for (unsigned c = 1; c < KFIT_CODE_COUNT; c++) {
        const char *code = kfit_code_str(c);
        CHECK_MSG(strcmp(kfit_report_code_words(code), code),
                  "%s has no words in integrations/report/report_words.c", code);
    }
    CHECK_STR(kfit_report_code_words("later:code"), "later:code");
    CHECK(*kfit_report_code_words(""));
}

static void figures(void)
{
    char a[64];
    CHECK_STR(kfit_page_count(0, a), "0");
    CHECK_STR(kfit_page_count(999, a), "999");
    CHECK_STR(kfit_page_count(1000, a), "1,000");
    CHECK_STR(kfit_page_count(UINT64_MAX, a), "18,446,744,073,709,551,615");
    CHECK_STR(kfit_page_percent(0.0004, a), "< 0.1 %");
    CHECK_STR(kfit_page_percent(0, a), "0.0 %");
    CHECK_STR(kfit_page_when(1700000000, a), "2023-11-14 22:13 UTC");
    CHECK_STR(kfit_page_when(0, a), "-");
    CHECK_STR(kfit_page_when(INT64_MAX, a), "-");
    CHECK_STR(kfit_page_dims("gemm/f32,f32/acc=f32/m=1,n=2/nt/lda=1,ldb=2", a, sizeof a), "m=1, n=2");
    CHECK_STR(kfit_page_dims("sum/f32", a, sizeof a), "sum/f32");
    CHECK_STR(kfit_page_dims("x/m=123456,n=1", a, 8), "m=123");
}

/* ---- escaping and the template ---- */

static char *escaped(const char *s, enum kfit_escape how)
{
    char *out = NULL;
    size_t bytes;
    FILE *to = open_memstream(&out, &bytes);
    CHECK(to);
    kfit_write_escaped(to, s, how);
    fclose(to);
    return out;
}

static void every_byte_is_escaped(void)
{
    for (unsigned b = 1; b < 256; b++) {
        char s[2] = {(char)b, 0}, spelled[8];
        bool plain = b >= ' ' && b <= '~';
        snprintf(spelled, sizeof spelled, plain ? "%c" : "\\x%02x", b);
        char *html = escaped(s, KFIT_ESCAPE_HTML), *json = escaped(s, KFIT_ESCAPE_JSON);
        CHECK_MSG(!strpbrk(html, "<>\"'`"), "byte %u: %s", b, html);
        CHECK_MSG(html[0] != '&' || html[strlen(html) - 1] == ';', "byte %u: %s", b, html);
        CHECK_MSG(!strpbrk(json, "<>&"), "byte %u: %s", b, json);
        for (const char *p = html; *p; p++)
            CHECK(*p >= ' ' && *p <= '~');
        cJSON *read = cJSON_Parse(json);
        CHECK_MSG(cJSON_IsString(read), "byte %u: %s", b, json);
        CHECK_STR(read->valuestring, spelled);
        cJSON_Delete(read);
        free(html);
        free(json);
    }
    char *s = escaped("a<b>&\"'`\xe2\x80\xa8", KFIT_ESCAPE_HTML);
    CHECK_STR(s, "a&lt;b&gt;&amp;&quot;&#39;&#96;\\xe2\\x80\\xa8");
    free(s);
    s = escaped("</script>\"\\\xff\n", KFIT_ESCAPE_JSON);
    CHECK_STR(s, "\"\\u003c/script\\u003e\\\"\\\\\\\\xff\\\\x0a\"");
    free(s);
}

static enum kfit_status write_page(const char *text, const char *json, char **out, struct kfit_error *err)
{
    const struct kfit_part parts[] = {{"raw", "<{{x}}>"}, {NULL, NULL}};
    size_t bytes;
    FILE *to = open_memstream(out, &bytes);
    cJSON *values = cJSON_Parse(json);
    CHECK(to && values);
    enum kfit_status s = kfit_template_write(text, values, parts, to, err);
    fclose(to);
    cJSON_Delete(values);
    return s;
}

static void templates(void)
{
    static const struct {
        const char *text, *json, *out;
    } cases[] = {
        {"plain { { }} text", "{}", "plain { { }} text"},
        {"{{a}}-{{b}}-{{none}}", "{\"a\":\"<\",\"b\":2.5}", "&lt;-2.5-"},
        {"{{a}}", "{\"a\":\"{{b}}\",\"b\":\"no\"}", "{{b}}"},
        {"{{#a}}[{{.}}]{{/a}}{{^a}}none{{/a}}", "{\"a\":[\"x\",\"y\"]}", "[x][y]"},
        {"{{#a}}[{{.}}]{{/a}}{{^a}}none{{/a}}", "{\"a\":[]}", "none"},
        {"{{#a}}yes{{/a}}{{^a}}no{{/a}}", "{\"a\":\"\"}", "no"},
        {"{{#a}}yes{{/a}}{{^a}}no{{/a}}", "{\"a\":false}", "no"},
        {"{{#a}}yes{{/a}}", "{\"a\":0}", "yes"},
        {"{{#a}}{{#b}}{{c}}{{d}}{{/b}}{{/a}}",
         "{\"c\":\"out\",\"a\":{\"b\":[{\"d\":\"1\"},{\"c\":\"in\",\"d\":\"2\"}]}}", "out1in2"},
        {"{{#a}}<{{#.}}{{.}},{{/.}}>{{/a}}", "{\"a\":[[\"1\",\"2\"],[\"3\"]]}", "<1,2,><3,>"},
        {"{{>raw}}{{>p}}{{>p}}{{<p}}({{a}}){{/p}}", "{\"a\":\"1\",\"x\":\"2\"}", "<{{x}}>(1)(1)"},
        {"{{#a}}{{>p}}{{/a}}{{<p}}{{#.}}{{.}}{{/.}};{{/p}}", "{\"a\":[[\"1\"],[\"2\",\"3\"]]}", "1;23;"},
    };
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct kfit_error err = {0};
        char *out = NULL;
        CHECK_OK(write_page(cases[i].text, cases[i].json, &out, &err), err);
        CHECK_STR(out, cases[i].out);
        free(out);
    }
}

static void wrong_templates_are_named(void)
{
    static const struct {
        const char *text, *words;
    } cases[] = {
        {"{{#a}}x", "{{#a}}: has no end"},
        {"x{{/a}}", "{{/a}}: ends nothing"},
        {"{{>piece}}", "{{>piece}}: there is no such piece"},
        {"{{<p}}{{>p}}{{/p}}{{>p}}", "nested too deep"},
    };
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct kfit_error err = {0};
        char *out = NULL;
        CHECK_STATUS(write_page(cases[i].text, "{\"a\":\"1\"}", &out, &err), KFIT_E_FORMAT);
        CHECK_MSG(strstr(err.text, cases[i].words), "\"%s\" does not say \"%s\"", err.text, cases[i].words);
        free(out);
    }
}

static const struct kfit_test tests[] = {
    TEST(gain_of_the_time_in_known_ops), TEST(gain_of_the_processes_time),
    TEST(odd_intervals_hold_the_point),  TEST(first_lines),
    TEST(every_code_has_words),          TEST(figures),
    TEST(every_byte_is_escaped),         TEST(templates),
    TEST(wrong_templates_are_named),
};
TEST_MAIN(tests)
