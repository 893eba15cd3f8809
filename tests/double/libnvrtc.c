/* libnvrtc: reads a source only as far as to know its entries, and makes the double's image of it (double.h).
 *
 * NVRTC's log, where the source says `#error TEXT` or the architecture is newer than this compiler. */
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "double.h"

#ifndef VERSION
#define VERSION 1300
#endif
#define NEWEST_ARCH 90
enum { COMPILATION = 6 };

struct program {
    char *source, log[512], image[8192], ptx[8192];
    size_t image_bytes, ptx_bytes;
};

EXPORT int nvrtcVersion(int *, int *);
EXPORT int nvrtcCreateProgram(struct program **, const char *, const char *, int, const char *const *, const char *const *);
EXPORT int nvrtcCompileProgram(struct program *, int, const char *const *);
EXPORT int nvrtcGetProgramLogSize(struct program *, size_t *);
EXPORT int nvrtcGetProgramLog(struct program *, char *);
EXPORT int nvrtcGetPTXSize(struct program *, size_t *);
EXPORT int nvrtcGetPTX(struct program *, char *);
EXPORT int nvrtcGetCUBINSize(struct program *, size_t *);
EXPORT int nvrtcGetCUBIN(struct program *, char *);

int nvrtcVersion(int *major, int *minor)
{
    *major = VERSION / 100;
    *minor = VERSION % 100;
    return 0;
}

int nvrtcCreateProgram(struct program **out, const char *source, const char *name, int headers, const char *const *texts,
                       const char *const *names)
{
    (void)name, (void)headers, (void)texts, (void)names;
    struct program *p = calloc(1, sizeof *p);
    if (p)
        p->source = strdup(source);
    *out = p;
    return !p || !p->source;
}

__attribute__((format(printf, 4, 5))) static void add(char *text, size_t *n, size_t size, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int k = vsnprintf(text + *n, size - *n, fmt, ap);
    va_end(ap);
    *n += k > 0 && (size_t)k < size - *n ? (size_t)k : 0;
}
#define IMAGE(...) add(p->image, &p->image_bytes, sizeof p->image, __VA_ARGS__)
#define PTX(...)   add(p->ptx, &p->ptx_bytes, sizeof p->ptx, __VA_ARGS__)

/* What -DNAME=VALUE makes of a name. */
static const char *renamed(const char *name, int options, const char *const *option)
{
    size_t n = strlen(name);
    for (int i = 0; i < options; i++)
        if (!strncmp(option[i], "-D", 2) && !strncmp(option[i] + 2, name, n) && option[i][2 + n] == '=')
            return option[i] + 3 + n;
    return name;
}

static const char *skip_space(const char *s)
{
    while (isspace((unsigned char)*s))
        s++;
    return s;
}

/* The word after `key` in the source, or otherwise. */
static const char *word_after(const char *source, const char *key, char out[64], const char *otherwise)
{
    const char *s = strstr(source, key);
    if (!s)
        return otherwise;
    s += strlen(key);
    snprintf(out, 64, "%.*s", (int)strspn(s, "abcdefghijklmnopqrstuvwxyz_0123456789"), s);
    return out;
}

int nvrtcCompileProgram(struct program *p, int options, const char *const *option)
{
    const char *arch = "sm_75", *error = strstr(p->source, "#error "), *note = strstr(p->source, "// double:");
    char name[64], header_name[64], given[64], value[40], params[PARAMS_MAX + 1];
    for (int i = 0; i < options; i++)
        if (!strncmp(option[i], "--gpu-architecture=", 19))
            arch = option[i] + 19;
    if (atoi(arch + 3) > NEWEST_ARCH)
        snprintf(p->log, sizeof p->log, "nvrtc: error: invalid value for --gpu-architecture (-arch)\n");
    else if (error)
        snprintf(p->log, sizeof p->log, "candidate.cu: error: #error directive: %.*s\n", (int)strcspn(error + 7, "\n"), error + 7);
    if (p->log[0])
        return COMPILATION;

    IMAGE("kfit-double 1\narch %.15s\n", arch);
    PTX(".version 9.0\n.target %s\n.address_size 64\n", arch);
    for (int i = 0; i < options; i++)
        if (sscanf(option[i], "-D%23[A-Z_0-9]=%39s", name, value) == 2)
            IMAGE("set %s %s\n", name, value);
    for (int n = 0; note && sscanf(note + 10 + n, " %23[a-z]=%39s", name, value) == 2 && note[10 + n] != '\n';) {
        IMAGE("set %s %s\n", name, value);
        n += (int)(skip_space(note + 10 + n) - note - 10 - n) + (int)strlen(name) + 1 + (int)strlen(value);
    }
    for (const char *s = p->source; (s = strstr(s, "__global__ void ")) != NULL;) {
        s = skip_space(s + 16);
        if (!strncmp(s, "__launch_bounds__", 17))
            s = skip_space(strchr(s, ')') + 1);
        size_t n = strcspn(s, "( \n"), count = 0;
        snprintf(name, sizeof name, "%.*s", (int)n, s);
        s += n + 1;
        for (bool more = true; more && count < PARAMS_MAX; count++) { /* one parameter each */
            n = strcspn(s, ",)");
            params[count] = memmem(s, n, "tensor_map", 10)                        ? 'm'
                            : memchr(s, '*', n) || memmem(s, n, "u64 ", 4) ? 'q'
                                                                           : 'i';
            more = s[n] == ',';
            s += n + 1;
        }
        params[count] = '\0';
        const char *public = renamed(name, options, option);
        const char *what = word_after(p->source, "\"name\":\"", header_name, name);
        what = word_after(note ? note : "", "do=", given, what);
        IMAGE("entry %s %s %s\n", public, what, params);
        PTX(".visible .entry %s(", public);
        for (size_t i = 0; i < count; i++)
            if (params[i] == 'm')
                PTX("%s.param .align 64 .b8 p%zu[128]", i ? ", " : "", i);
            else
                PTX("%s.param .u%d p%zu", i ? ", " : "", params[i] == 'q' ? 64 : 32, i);
        PTX(")\n{\n ret;\n}\n");
    }
    IMAGE("end\n");
    return 0;
}

static int give(char *out, const char *text, size_t bytes)
{
    memcpy(out, text, bytes);
    return 0;
}

int nvrtcGetProgramLogSize(struct program *p, size_t *n)
{
    *n = strlen(p->log) + 1;
    return 0;
}

int nvrtcGetProgramLog(struct program *p, char *out)
{
    return give(out, p->log, strlen(p->log) + 1);
}

int nvrtcGetPTXSize(struct program *p, size_t *n)
{
    *n = p->ptx_bytes + 1;
    return 0;
}

int nvrtcGetPTX(struct program *p, char *out)
{
    return give(out, p->ptx, p->ptx_bytes + 1);
}

int nvrtcGetCUBINSize(struct program *p, size_t *n)
{
    *n = p->image_bytes + 1;
    return 0;
}

int nvrtcGetCUBIN(struct program *p, char *out)
{
    return give(out, p->image, p->image_bytes + 1);
}
