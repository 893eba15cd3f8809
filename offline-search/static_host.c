/* Gate 0 on machine code: reads objdump's listing strictly. The compiler made the code and the source has no
 * asm, so what must be kept out is what builtins can ask for, and any way to run bytes that the listing does
 * not show. */
#include <stdlib.h>
#include <string.h>

#include "gate0.h"

/* Mnemonics in AT&T spelling; a trailing * stands for any ending. */
static const struct {
    const char *name, *why;
} refused[] = {
    {"syscall", "enters the kernel"},
    {"sysenter", "enters the kernel"},
    {"sysret*", "privileged"},
    {"sysexit*", "privileged"},
    {"int", "enters the kernel"},
    {"int1", "trap"},
    {"int3", "trap"},
    {"into", "trap"},
    {"iret*", "privileged"},
    {"rdtsc*", "reads a clock"},
    {"rdpmc", "reads a counter"},
    {"rdpru", "reads a counter"},
    {"rdrand", "random numbers"},
    {"rdseed", "random numbers"},
    {"rdpid", "asks where it runs"},
    {"rdmsr*", "privileged"},
    {"wrmsr*", "privileged"},
    {"cpuid", "asks where it runs"},
    {"xgetbv", "asks where it runs"},
    {"xsetbv", "privileged"},
    {"clflush*", "flushes caches"},
    {"clwb", "flushes caches"},
    {"cldemote", "flushes caches"},
    {"clzero", "bypasses caches"},
    {"in", "port"},
    {"insb", "port"},
    {"insl", "port"},
    {"insw", "port"},
    {"out", "port"},
    {"outsb", "port"},
    {"outsl", "port"},
    {"outsw", "port"},
    {"hlt", "privileged"},
    {"cli", "privileged"},
    {"sti", "privileged"},
    {"std", "changes the direction flag"},
    {"popf*", "changes the flags register"},
    {"ldmxcsr", "changes rounding"},
    {"vldmxcsr", "changes rounding"},
    {"fldcw", "changes rounding"},
    {"fldenv", "changes rounding"},
    {"frstor", "changes rounding"},
    {"fninit", "changes rounding"},
    {"finit", "changes rounding"},
    {"fxrstor*", "restores state"},
    {"xrstor*", "restores state"},
    {"xsave*", "saves state"},
    {"fxsave*", "saves state"},
    {"wrfsbase", "thread pointer"},
    {"wrgsbase", "thread pointer"},
    {"rdfsbase", "thread pointer"},
    {"rdgsbase", "thread pointer"},
    {"swapgs", "thread pointer"},
    {"monitor*", "waits"},
    {"mwait*", "waits"},
    {"umonitor", "waits"},
    {"umwait", "waits"},
    {"tpause", "waits"},
    {"xbegin", "transaction"},
    {"xabort", "transaction"},
    {"xend", "transaction"},
    {"xtest", "transaction"},
    {"encl*", "enclave"},
    {"ptwrite*", "trace"},
    {"incssp*", "shadow stack"},
    {"rdssp*", "shadow stack"},
    {"wrss*", "shadow stack"},
    {"wruss*", "shadow stack"},
    {"rstorssp", "shadow stack"},
    {"saveprevssp", "shadow stack"},
    {"wrpkru", "protection keys"},
    {"rdpkru", "protection keys"},
    {"enqcmd*", "device"},
    {"movdir*", "device"},
    {"lret*", "far return"},
    {"ljmp*", "far jump"},
    {"lcall*", "far call"},
    {"senduipi", "interrupt"},
    {"uiret", "interrupt"},
    {"stui", "interrupt"},
    {"clui", "interrupt"},
    {"vmcall", "enters a hypervisor"},
    {"vmmcall", "enters a hypervisor"},
    {"vmfunc", "enters a hypervisor"},
    {"lgdt*", "privileged"},
    {"lidt*", "privileged"},
    {"lldt*", "privileged"},
    {"ltr*", "privileged"},
    {"sgdt*", "asks where it runs"},
    {"sidt*", "asks where it runs"},
    {"sldt*", "asks where it runs"},
    {"str", "asks where it runs"},
    {"smsw*", "asks where it runs"},
    {"lmsw*", "privileged"},
    {"clts", "privileged"},
    {"inv*", "privileged"},
    {"wbinvd", "privileged"},
    {"wbnoinvd", "privileged"},
    {"serialize", "waits"},
    {"(bad)", "no instruction"},
    {".byte", "no instruction"},
};

static const char *const prefixes[] = {"lock", "rep", "repz", "repnz", "bnd",    "notrack", "data16",
                                       "cs",   "ds",  "es",   "ss",    "addr32", "rex*",    NULL};

static bool matches(const char *p, size_t n, const char *pattern)
{
    size_t m = strlen(pattern);
    return pattern[m - 1] == '*' ? n >= m - 1 && !memcmp(p, pattern, m - 1)
                                 : n == m && !memcmp(p, pattern, m);
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static const char *hex(const char *p, uint64_t *out)
{
    for (*out = 0; hex_digit(*p) >= 0 && *out >> 56 == 0; p++)
        *out = *out << 4 | (uint64_t)hex_digit(*p);
    return p;
}

/* "  4f:\tc5 fc 58 c1\tvaddps %ymm1,%ymm0,%ymm0": false if the line is anything else. */
bool kfit_listing_line(const char *p, const char *end, struct kfit_instruction *out)
{
    uint64_t byte;
    const char *start;
    p += strspn(p, " ");
    start = p;
    p = hex(p, &out->at);
    if (p == start || p[0] != ':' || p[1] != '\t')
        return false;
    for (p += 2, out->bytes = 0; hex_digit(p[0]) >= 0 && hex_digit(p[1]) >= 0 && p[2] == ' '; p += 3)
        out->bytes++;
    p += strspn(p, " ");
    if (!out->bytes || *p++ != '\t')
        return false;
    for (;;) { /* prefixes printed as words */
        size_t n = strcspn(p, " \t\n"), i = 0;
        while (prefixes[i] && !matches(p, n, prefixes[i]))
            i++;
        if (!prefixes[i] || p + n >= end || p[n] == '\n' || p[n + strspn(p + n, " ")] == '\n')
            break;
        p += n + strspn(p + n, " ");
    }
    out->name = p;
    out->name_bytes = strcspn(p, " \t\n");
    p += out->name_bytes;
    p += strspn(p, " ");
    out->operands = p;
    out->operand_bytes = (size_t)(end - p);
    out->branch = (*out->name == 'j' || matches(out->name, out->name_bytes, "call*") ||
                   matches(out->name, out->name_bytes, "loop*")) &&
                  out->operand_bytes;
    out->target = UINT64_MAX;
    if (out->branch && *p != '*') {
        byte = 0;
        if (!strncmp(p, "0x", 2))
            hex(p + 2, &byte);
        out->target = byte;
    }
    return true;
}

static bool contains(const char *p, size_t n, const char *word)
{
    return memmem(p, n, word, strlen(word)) != NULL;
}

static enum kfit_status check(const struct kfit_instruction *in, const char *line, struct kfit_built *b)
{
    const char *why = NULL;
    for (size_t i = 0; i < sizeof refused / sizeof *refused && !why; i++)
        if (matches(in->name, in->name_bytes, refused[i].name))
            why = refused[i].why;
    if (!why && (contains(in->operands, in->operand_bytes, "(bad)") ||
                 contains(in->operands, in->operand_bytes, ".byte")))
        why = "no instruction";
    if (!why && (contains(in->operands, in->operand_bytes, "%fs") ||
                 contains(in->operands, in->operand_bytes, "%gs") ||
                 matches(in->name, in->name_bytes, "fs") || matches(in->name, in->name_bytes, "gs")))
        why = "thread-local memory";
    if (!why && contains(in->operands, in->operand_bytes, "%mm"))
        why = "MMX, which shares its registers with x87";
    if (!why && in->branch && *in->operands == '*')
        why = "an indirect jump or call";
    if (!why && matches(in->name, in->name_bytes, "ret*") && in->operand_bytes)
        why = "a return that moves the stack";
    return why ? kfit_refuse(b, "static:instruction", "%.*s: %s",
                             (int)(strcspn(line, "\n") < 200 ? strcspn(line, "\n") : 200), line, why)
               : KFIT_OK;
}

enum kfit_status kfit_static_instructions(const char *listing, size_t bytes, size_t text_bytes,
                                          uint64_t entry, struct kfit_built *b)
{
    uint64_t expected = 0;
    enum kfit_status s = KFIT_OK;
    uint8_t *starts = calloc(text_bytes + 1, 1); /* 1: an instruction begins here; 2: a branch goes here */
    if (!starts)
        return KFIT_E_NOMEM;
    if (entry < text_bytes)
        starts[entry] |= 2;
    for (const char *p = listing, *end = listing + bytes, *next; p < end && s == KFIT_OK; p = next) {
        const char *nl = memchr(p, '\n', (size_t)(end - p));
        struct kfit_instruction in;
        next = nl ? nl + 1 : end;
        if (!kfit_listing_line(p, nl ? nl : end, &in)) {
            if (*p == ' ' && p[1] == ' ') /* headlines start in the first column */
                s = kfit_refuse(b, "static:instruction", "cannot read \"%.*s\"",
                                (int)(next - p < 80 ? next - p : 80), p);
            continue;
        }
        if (in.at != expected || in.bytes > text_bytes - in.at) {
            s = kfit_refuse(b, "static:instruction", "the listing has a gap at 0x%llx",
                            (unsigned long long)expected);
            break;
        }
        starts[in.at] |= 1;
        expected += in.bytes;
        s = check(&in, p, b);
        if (s == KFIT_OK && in.target != UINT64_MAX) {
            if (in.target >= text_bytes)
                s = kfit_refuse(b, "static:instruction", "a branch out of the code: %.*s",
                                (int)(next - p - 1), p);
            else
                starts[in.target] |= 2;
        }
    }
    if (s == KFIT_OK && expected != text_bytes)
        s = kfit_refuse(b, "static:instruction", "the listing ends at 0x%llx of 0x%zx",
                        (unsigned long long)expected, text_bytes);
    for (size_t i = 0; s == KFIT_OK && i < text_bytes; i++)
        if (starts[i] == 2)
            s = kfit_refuse(b, "static:instruction", "a branch into the middle of an instruction, to 0x%zx",
                            i);
    free(starts);
    return s;
}
