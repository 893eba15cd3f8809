/* CUDA C++ to a cubin for the exact architecture, and gate 0 on the PTX of the same compilation. */
#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "compile_cuda.h"
#include "isolate_compile.h"
#include "judge_device.h"
#include "static_cuda.h"

#define TIMEOUT_MS  60000u
#define OPTIONS_MAX (16 + KFIT_NAMES_MAX)

/* No fast math: denormals, division and square root stay exact. Contraction is wanted. */
static const char *const flags[] = {"-std=c++17", "-default-device", "-fmad=true", "-w",
                                    "--no-source-include"};

/* ---- finding the tool and the library ---- */

static bool exists(char *path, size_t size, const char *real)
{
    char *p = real ? realpath(real, NULL) : NULL;
    bool ok = p && access(p, R_OK) == 0 && strlen(p) < size;
    if (ok)
        memcpy(path, p, strlen(p) + 1);
    free(p);
    return ok;
}

/* The file a name resolves to, for the loader's own search order (LD_LIBRARY_PATH, ld.so.cache). */
static bool loadable(char *path, size_t size, const char *name)
{
    struct link_map *map = NULL;
    void *lib = dlopen(name, RTLD_LAZY | RTLD_LOCAL);
    bool ok = lib && dlinfo(lib, RTLD_DI_LINKMAP, &map) == 0 && exists(path, size, map->l_name);
    if (lib)
        dlclose(lib);
    return ok;
}

static enum kfit_status find_nvrtc(char path[PATH_MAX], struct kfit_error *err)
{
    static const char *const names[] = {"libnvrtc.so.13", "libnvrtc.so.12"};
    static const char *const files[] = {"/usr/local/cuda/lib64/libnvrtc.so.13",
                                        "/usr/local/cuda/lib64/libnvrtc.so.12"};
    const char *given = secure_getenv("KFIT_NVRTC");
    if (given && *given) {
        if (exists(path, PATH_MAX, given))
            return KFIT_OK;
        return kfit_fail(err, KFIT_E_NOTFOUND, "compile: KFIT_NVRTC names %.200s, which cannot be read",
                         given);
    }
    for (int i = 0; i < 2; i++)
        if (loadable(path, PATH_MAX, names[i]) || exists(path, PATH_MAX, files[i]))
            return KFIT_OK;
    return kfit_fail(err, KFIT_E_NOTFOUND,
                     "compile: no libnvrtc.so.13 or .12; install CUDA's NVRTC (or the package "
                     "nvidia-cuda-nvrtc from PyPI) and set KFIT_NVRTC or LD_LIBRARY_PATH to it");
}

enum kfit_status kfit_nvrtc_version(char *buf, size_t size, struct kfit_error *err)
{
    char path[PATH_MAX];
    int major = 0, minor = 0;
    enum kfit_status s = find_nvrtc(path, err);
    void *lib = s == KFIT_OK ? dlopen(path, RTLD_LAZY | RTLD_LOCAL) : NULL;
    int (*version)(int *, int *) = NULL;
    if (lib)
        *(void **)&version = dlsym(lib, "nvrtcVersion");
    if (version)
        version(&major, &minor);
    if (lib)
        dlclose(lib);
    if (s == KFIT_OK && !version)
        s = kfit_fail(err, KFIT_E_UNSUPPORTED, "compile: %s is no NVRTC", path);
    if (s == KFIT_OK && major * 100 + minor < 1206)
        s = kfit_fail(err, KFIT_E_UNSUPPORTED,
                      "compile: NVRTC %d.%d at %s is too old; 12.6 or newer is needed", major, minor, path);
    snprintf(buf, size, "NVRTC %d.%d", major, minor);
    return s;
}

/* ---- one compilation ---- */

enum kfit_status kfit_nvrtc_run(const struct kfit_compile_params *params, const char *const *options,
                                unsigned count, const char *source, size_t bytes, char **cubin,
                                size_t *cubin_bytes, char **ptx, size_t *ptx_bytes, struct kfit_built *b,
                                struct kfit_error *err)
{
    char found[512], tool_path[PATH_MAX], nvrtc[PATH_MAX];
    const char *argv[OPTIONS_MAX + 3];
    struct kfit_isolation iso = {.ruleset = -1};
    size_t ignored;
    *cubin = NULL;
    if (ptx)
        *ptx = NULL;
    enum kfit_status s = find_nvrtc(nvrtc, err);
    if (s == KFIT_OK)
        s = judge_find_program(NULL, "kfit-nvrtc", found, err);
    if (s == KFIT_OK && !exists(tool_path, sizeof tool_path, found))
        s = kfit_fail(err, KFIT_E_IO, "compile: %s vanished", found);
    if (s == KFIT_OK)
        s = kfit_isolation_init(&iso, tool_path, nvrtc, params->allow_no_isolation, err);
    if (s != KFIT_OK)
        return s;
    snprintf(b->isolation, sizeof b->isolation, "%s", iso.name);
    argv[0] = tool_path;
    argv[1] = nvrtc;
    for (unsigned i = 0; i < count && i < OPTIONS_MAX; i++)
        argv[2 + i] = options[i];
    argv[2 + count] = NULL;
    struct kfit_tool tool = {.argv = argv,
                             .input = kfit_memfd(),
                             .output = kfit_memfd(),
                             .object = kfit_memfd(),
                             .timeout_ms = params->timeout_ms ? params->timeout_ms : TIMEOUT_MS};
    if (tool.input < 0 || tool.output < 0 || tool.object < 0 || !kfit_memfd_fill(tool.input, source, bytes))
        s = kfit_fail(err, KFIT_E_IO, "compile: cannot pass the source on");
    if (s == KFIT_OK)
        s = kfit_tool_run(&iso, &tool, err);
    if (s == KFIT_OK && tool.timed_out)
        s = kfit_refuse(b, "static:timeout", "NVRTC took more than %u ms", tool.timeout_ms);
    else if (s == KFIT_OK && tool.status == 2)
        s = kfit_fail(err, KFIT_E_UNSUPPORTED, "%s", tool.messages);
    else if (s == KFIT_OK && tool.status)
        s = kfit_refuse(
            b, strstr(tool.messages, "cannot open source file") ? "static:include" : "static:compile",
            "%.900s", tool.messages[0] ? tool.messages : "NVRTC ended without a message");
    else if (s == KFIT_OK &&
             (!(*cubin = kfit_memfd_read(tool.object, cubin_bytes)) ||
              (ptx && !(*ptx = kfit_memfd_read(tool.output, ptx_bytes ? ptx_bytes : &ignored)))))
        s = kfit_fail(err, KFIT_E_NOMEM, "compile: out of memory");
    int fds[] = {tool.input, tool.output, tool.object};
    for (int i = 0; i < 3; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    kfit_isolation_finish(&iso);
    return s;
}

enum kfit_status kfit_compile_cuda(const struct kfit_compile_params *p, struct kfit_built *b,
                                   struct kfit_error *err)
{
    struct kfit_limits limits;
    struct kfit_error why = {0};
    struct kfit_dim names[KFIT_NAMES_MAX];
    char text[KFIT_NAMES_MAX][64], arch[48], detail[512] = "", *cubin = NULL, *ptx = NULL;
    const char *options[OPTIONS_MAX];
    unsigned n = 0;
    size_t cubin_bytes = 0, ptx_bytes = 0, source_bytes;
    if (!p->isa)
        return kfit_fail(err, KFIT_E_ARG, "compile: the cuda device needs an architecture, as in sm_90a");
    kfit_cuda_limits(p->isa, &limits);
    enum kfit_status s = kfit_candidate_resolve(p->candidate, p->key, p->choice, &limits, &b->plan, &why);
    if (s == KFIT_E_ARG)
        return kfit_fail(err, s, "%s", why.text);
    if (s != KFIT_OK)
        return kfit_refuse(b, kfit_candidate_code(s), "%s", why.text);
    for (; n < sizeof flags / sizeof *flags; n++)
        options[n] = flags[n];
    snprintf(arch, sizeof arch, "--gpu-architecture=%.20s", p->isa);
    options[n++] = arch;
    unsigned count = kfit_candidate_names(p->candidate, p->key, p->choice, &limits, names);
    for (unsigned i = 0; i < count; i++) {
        snprintf(text[i], sizeof text[i], "-DKFIT_%s=%lld", names[i].name, (long long)names[i].value);
        options[n++] = text[i];
    }
    /* The plan's entries have public names that tell whose they are; the source's names become them. */
    char entries[KFIT_LAUNCHES_MAX][160];
    for (unsigned i = 0; i < b->plan.launch_count; i++) {
        snprintf(entries[i], sizeof entries[i], "-D%.64s=%.64s", kfit_candidate_entry(p->candidate, i),
                 b->plan.launches[i].entry);
        options[n++] = entries[i];
    }
    const char *source = kfit_candidate_source(p->candidate, &source_bytes);
    s = kfit_nvrtc_run(p, options, n, source, source_bytes, &cubin, &cubin_bytes, &ptx, &ptx_bytes, b, err);
    if (s == KFIT_OK) {
        enum kfit_code code =
            static_cuda(ptx, ptx_bytes, &b->plan, kfit_candidate_op(p->candidate)->nargs(p->key) + 1,
                        &b->data_oblivious, detail, sizeof detail);
        if (code)
            s = kfit_refuse(b, kfit_code_str(code), "%s", detail);
    }
    if (s == KFIT_OK) {
        b->image = (uint8_t *)cubin;
        b->image_bytes = cubin_bytes;
        cubin = NULL;
    }
    free(cubin);
    free(ptx);
    return s;
}

/* ---- limits ---- */

static const struct {
    const char *arch;
    int sm, sms, smem, l2_mb;
} gpus[] = {
    /* the largest of each architecture: what a plan may ask for is checked again when it is loaded */
    {"sm_80", 80, 108, 166912, 40},    {"sm_86", 86, 84, 101376, 6},    {"sm_89", 89, 142, 101376, 96},
    {"sm_90", 90, 132, 232448, 50},    {"sm_90a", 90, 132, 232448, 50}, {"sm_100a", 100, 148, 232448, 126},
    {"sm_120a", 120, 188, 101376, 96},
};

void kfit_cuda_limits(const char *arch, struct kfit_limits *limits)
{
    unsigned row = 0;
    for (unsigned i = 0; i < sizeof gpus / sizeof *gpus; i++)
        if (!strcmp(gpus[i].arch, arch))
            row = i;
    const struct kfit_dim all[] = {{"SM", gpus[row].sm},
                                   {"SMS", gpus[row].sms},
                                   {"SMEM", gpus[row].smem},
                                   {"L2", (int64_t)gpus[row].l2_mb << 20}};
    memset(limits, 0, sizeof *limits);
    memcpy(limits->entry, all, sizeof all);
    limits->count = sizeof all / sizeof *all;
}
