#include <cpuid.h>
#include <stdio.h>
#include <string.h>

#include "kfit/env.h"
#include "kfit/hash.h"

uint64_t kfit_text_hash(const char *text)
{
    return XXH3_64bits(text, strlen(text));
}

/* By cpuid: __builtin_cpu_supports brings libgcc's constructor into every process that loads the shim. */
const char *kfit_host_isa(void)
{
    const unsigned avx512 = bit_AVX512F | bit_AVX512BW | bit_AVX512CD | bit_AVX512DQ | bit_AVX512VL;
    unsigned a, b, c, d, leaf1_c = 0, leaf7_b = 0, saved = 0; /* registers the kernel saves */
    if (__get_cpuid(1, &a, &b, &c, &d))
        leaf1_c = c;
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d))
        leaf7_b = b;
    if (leaf1_c & bit_OSXSAVE)
        __asm__("xgetbv" : "=a"(saved), "=d"(d) : "c"(0));
    if ((saved & 6) != 6 || !(leaf1_c & bit_FMA) || !(leaf7_b & bit_AVX2) || !(leaf7_b & bit_BMI2))
        return "x86-64-v2";
    return (saved & 0xe0) == 0xe0 && (leaf7_b & avx512) == avx512 ? "x86-64-v4" : "x86-64-v3";
}

static void brand(char out[64])
{
    unsigned r[12] = {0};
    snprintf(out, 64, "unknown");
    if ((unsigned)__get_cpuid_max(0x80000000u, NULL) < 0x80000004u)
        return;
    for (unsigned i = 0; i < 3; i++)
        __get_cpuid(0x80000002u + i, &r[4 * i], &r[4 * i + 1], &r[4 * i + 2], &r[4 * i + 3]);
    char text[sizeof r + 1];
    memcpy(text, r, sizeof r);
    text[sizeof r] = '\0';
    size_t n = strlen(text), start = strspn(text, " ");
    while (n > start && text[n - 1] == ' ')
        text[--n] = '\0';
    if (n > start)
        snprintf(out, 64, "%s", text + start);
}

/* Appends "name=value;" with separators in value replaced; a pair that does not fit is left out whole. */
static void add(char text[KFIT_ENV_TEXT_MAX], const char *name, const char *value)
{
    size_t used = strlen(text);
    int n = snprintf(text + used, KFIT_ENV_TEXT_MAX - used, "%s=%s;", name, value);
    if (n < 0 || used + (size_t)n >= KFIT_ENV_TEXT_MAX) {
        text[used] = '\0';
        return;
    }
    for (char *p = text + used + strlen(name) + 1; p[1]; p++)
        if (*p == ';' || *p == '=' || (unsigned char)*p < ' ')
            *p = '_';
}

static void hash(struct kfit_env *env)
{
    env->hard_hash = kfit_text_hash(env->hard);
    env->soft_hash = kfit_text_hash(env->soft);
}

void kfit_env_host(struct kfit_env *env, int blas_threads, const char *blas, const char *compiler)
{
    char model[64], threads[16];
    brand(model);
    snprintf(threads, sizeof threads, "%d", blas_threads);
    memset(env, 0, sizeof *env);
    add(env->hard, "device", "host");
    add(env->hard, "isa", kfit_host_isa());
    add(env->hard, "model", model);
    add(env->hard, "threads", threads);
    if (blas)
        add(env->soft, "blas", blas);
    if (compiler)
        add(env->soft, "compiler", compiler);
    hash(env);
}

void kfit_env_cuda(struct kfit_env *env, const char *arch, const char *model, unsigned units,
                   const char *driver, const char *blas, const char *compiler)
{
    char count[16];
    snprintf(count, sizeof count, "%u", units);
    memset(env, 0, sizeof *env);
    add(env->hard, "device", "cuda");
    add(env->hard, "isa", arch);
    add(env->hard, "model", model);
    add(env->hard, "units", count);
    if (driver)
        add(env->soft, "driver", driver);
    if (blas)
        add(env->soft, "blas", blas);
    if (compiler)
        add(env->soft, "compiler", compiler);
    hash(env);
}

int kfit_env_get(const char *text, const char *name, char *buf, size_t size)
{
    size_t want = strlen(name);
    if (size)
        buf[0] = '\0';
    for (const char *p = text; *p;) {
        size_t len = strcspn(p, ";");
        if (len > want && !strncmp(p, name, want) && p[want] == '=') {
            size_t n = len - want - 1;
            if (n >= size)
                return 0;
            memcpy(buf, p + want + 1, n);
            buf[n] = '\0';
            return 1;
        }
        p += len + (p[len] == ';');
    }
    return 0;
}

bool kfit_env_differs(const char *ours, const char *theirs)
{
    for (const char *p = ours; *p; p += strcspn(p, ";"), p += *p == ';') {
        char name[32], a[KFIT_ENV_TEXT_MAX], b[KFIT_ENV_TEXT_MAX];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(p, "="), p);
        if (kfit_env_get(ours, name, a, sizeof a) && kfit_env_get(theirs, name, b, sizeof b) && strcmp(a, b))
            return true;
    }
    return false;
}
