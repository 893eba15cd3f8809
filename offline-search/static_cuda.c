#include <stdio.h>
#include <string.h>

#include "ptx.h"
#include "static_cuda.h"

/* ---- what is refused: the first part of an instruction or directive, or a word anywhere in
 * a statement ---- */

static const struct {
    const char *word;
    bool prefix; /* also "word.anything" */
    enum kfit_code code;
} refused_opcodes[] = {
    {"createpolicy", true, KFIT_CODE_STATIC_INSTRUCTION}, /* residency belongs to the judge */
    {"discard", true, KFIT_CODE_STATIC_INSTRUCTION},
    {"applypriority", true, KFIT_CODE_STATIC_INSTRUCTION},
    {"prefetch", true, KFIT_CODE_STATIC_INSTRUCTION},
    {"prefetchu", true, KFIT_CODE_STATIC_INSTRUCTION},
    {"cp.async.bulk.prefetch", true, KFIT_CODE_STATIC_INSTRUCTION},
    {"griddepcontrol", true, KFIT_CODE_STATIC_INSTRUCTION}, /* programmatic dependent launch is not offered */
    {"trap", false, KFIT_CODE_STATIC_INSTRUCTION},
    {"brkpt", false, KFIT_CODE_STATIC_INSTRUCTION},
    {"pmevent", true, KFIT_CODE_STATIC_INSTRUCTION},
    {"brx", true, KFIT_CODE_STATIC_INSTRUCTION}, /* indirect branch */
    {"nanosleep", true, KFIT_CODE_STATIC_INSTRUCTION},
    {"tex", true, KFIT_CODE_STATIC_INSTRUCTION},
    {"suld", true, KFIT_CODE_STATIC_INSTRUCTION},
    {"sust", true, KFIT_CODE_STATIC_INSTRUCTION},
    {"call", true, KFIT_CODE_STATIC_EXTERN}, /* everything of ours is inlined */
    {".extern", false, KFIT_CODE_STATIC_EXTERN},
    {".weak", false, KFIT_CODE_STATIC_EXTERN},
    {".alias", false, KFIT_CODE_STATIC_EXTERN},
    {".common", false, KFIT_CODE_STATIC_WRITABLE},
};

static const struct {
    const char *text;
    enum kfit_code code;
} refused_words[] = {
    {"%clock", KFIT_CODE_STATIC_INSTRUCTION},     {"%globaltimer", KFIT_CODE_STATIC_INSTRUCTION},
    {"%pm", KFIT_CODE_STATIC_INSTRUCTION},        {"%envreg", KFIT_CODE_STATIC_INSTRUCTION},
    {"cache_hint", KFIT_CODE_STATIC_INSTRUCTION}, {"evict_last", KFIT_CODE_STATIC_INSTRUCTION},
    {".managed", KFIT_CODE_STATIC_WRITABLE},
};

/* ---- the gate ---- */

static enum kfit_code refuse(enum kfit_code code, const char *why, const char *text, char *detail,
                             size_t size)
{
    snprintf(detail, size, "%s: %.120s", why, text);
    return code;
}

/* A tensor map: 128 bytes by value. */
static bool is_map(const char *param)
{
    static const char type[] = ".align 64 .b8 ";
    return !strncmp(param, type, sizeof type - 1) && !strncmp(param + strcspn(param, "[,)"), "[128]", 5);
}

enum kfit_code static_cuda(const char *ptx, size_t bytes, const struct kfit_plan *plan, unsigned params,
                           bool *data_oblivious, char *detail, size_t detail_bytes)
{
    struct ptx x = {.p = ptx, .end = ptx + bytes};
    struct ptx_statement s;
    unsigned found[KFIT_LAUNCHES_MAX] = {0};
    *data_oblivious = false;
    while (ptx_next(&x, &s)) {
        const char *op = ptx_opcode(s.text);
        bool dynamic_shared = !strncmp(op, ".extern .shared ", 16);
        for (size_t i = 0; i < sizeof refused_opcodes / sizeof *refused_opcodes && !dynamic_shared; i++)
            if (ptx_is(op, refused_opcodes[i].word, refused_opcodes[i].prefix))
                return refuse(refused_opcodes[i].code, "not allowed", s.text, detail, detail_bytes);
        for (size_t i = 0; i < sizeof refused_words / sizeof *refused_words; i++)
            if (strstr(s.text, refused_words[i].text))
                return refuse(refused_words[i].code, "not allowed", s.text, detail, detail_bytes);
        if ((ptx_is(s.text, ".global", true) || !strncmp(s.text, ".visible .global", 16)))
            return refuse(KFIT_CODE_STATIC_WRITABLE, "global variable", s.text, detail, detail_bytes);
        const char *entry = strstr(s.text, ".entry ");
        if (entry) {
            entry += 7;
            size_t n = strcspn(entry, " (");
            unsigned count = 0, maps = 0;
            for (const char *p = entry; (p = strstr(p, ".param ")); p++) {
                if (count == params && is_map(p + 7)) { /* after the pointers */
                    maps++;
                    continue;
                }
                count++;
                if (strncmp(p + 7, ".u64", 4) && strncmp(p + 7, ".b64", 4) && strncmp(p + 7, ".s64", 4))
                    return refuse(KFIT_CODE_STATIC_ENTRY, "a parameter is neither a pointer nor, after them, a tensor map", entry, detail,
                                  detail_bytes);
            }
            for (unsigned i = 0; i < plan->launch_count; i++)
                if (strlen(plan->launches[i].entry) == n && !memcmp(plan->launches[i].entry, entry, n)) {
                    found[i]++;
                    if (count != params || maps != plan->tensormap_count)
                        return refuse(KFIT_CODE_STATIC_ENTRY, "wrong number of parameters", entry, detail,
                                      detail_bytes);
                }
        }
    }
    if (x.bad)
        return refuse(KFIT_CODE_STATIC_COMPILE, "PTX not understood",
                      "statement too long or comment not closed", detail, detail_bytes);
    for (unsigned i = 0; i < plan->launch_count; i++)
        if (!found[i])
            return refuse(KFIT_CODE_STATIC_ENTRY, "no such entry", plan->launches[i].entry, detail,
                          detail_bytes);
    *data_oblivious = data_oblivious_cuda(ptx, bytes);
    return KFIT_CODE_NONE;
}
