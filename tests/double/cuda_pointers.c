/* cuGetProcAddress: a table, as on the real thing, where its answers are the exported functions but for one. */
#include <string.h>

#include "cuda.h"
#include "names.h"

/* Known by name only, unless the double does define it. */
#define X(name)                                                                                              \
    EXPORT kfit_cu_result name_##name(void) __asm__(#name) __attribute__((weak));                            \
    kfit_cu_result name_##name(void)                                                                         \
    {                                                                                                        \
        return sizeof #name ? 801 : 0; /* CUDA_ERROR_NOT_SUPPORTED */                                        \
    }
DOUBLE_NAMES(X)
#undef X

static kfit_cu_result instantiate_12000(kfit_cu_exec *exec, kfit_cu_graph graph, unsigned long long flags)
{
    return cuGraphInstantiateWithFlags(exec, graph, flags);
}

static const struct {
    const char *symbol;
    void *pointer;
} exports[] = {
#define X(name) {#name, (void *)name_##name},
    DOUBLE_NAMES(X)
#undef X
#define X(member, symbol, args) {#symbol, (void *)symbol},
        KFIT_CUDA_LIST(X)
#undef X
#define X(symbol, flags, asked, since, params, args, before, after) {#symbol, (void *)symbol},
            KFIT_DRIVER_LIST(X)
#undef X
#define X(symbol, params, args) {#symbol, (void *)symbol},
                KFIT_DRIVER_QUERIES(X)
#undef X
                    {"cuModuleGetFunction", (void *)cuModuleGetFunction},
    {"cuGraphCreate", (void *)cuGraphCreate},
    {"cuStreamWaitEvent", (void *)cuStreamWaitEvent},
    {"cuThreadExchangeStreamCaptureMode", (void *)cuThreadExchangeStreamCaptureMode},
};
enum { EXPORTS = sizeof exports / sizeof *exports };

/* What a name means from a version on, where that matters here; any other means the last symbol of it. */
static const struct {
    const char *name;
    int since;
    const char *symbol;
} versions[] = {
    {"cuStreamBeginCapture", 10000, "cuStreamBeginCapture"},
    {"cuStreamBeginCapture", 10010, "cuStreamBeginCapture_v2"},
    {"cuGraphExecUpdate", 10020, "cuGraphExecUpdate"},
    {"cuGraphExecUpdate", 12000, "cuGraphExecUpdate_v2"},
    {"cuGraphAddKernelNode", 10000, "cuGraphAddKernelNode"},
    {"cuGraphAddKernelNode", 12000, "cuGraphAddKernelNode_v2"},
    {"cuGraphAddNode", 12020, "cuGraphAddNode"},
    {"cuGraphAddNode", 12030, "cuGraphAddNode_v2"},
    {"cuGraphKernelNodeGetParams", 10000, "cuGraphKernelNodeGetParams"},
    {"cuGraphKernelNodeGetParams", 12000, "cuGraphKernelNodeGetParams_v2"},
    {"cuGraphKernelNodeSetParams", 10000, "cuGraphKernelNodeSetParams"},
    {"cuGraphKernelNodeSetParams", 12000, "cuGraphKernelNodeSetParams_v2"},
    {"cuGraphExecKernelNodeSetParams", 10010, "cuGraphExecKernelNodeSetParams"},
    {"cuGraphExecKernelNodeSetParams", 12000, "cuGraphExecKernelNodeSetParams_v2"},
    {"cuGraphInstantiate", 10000, "cuGraphInstantiate"},
    {"cuGraphInstantiate", 11000, "cuGraphInstantiate_v2"},
    {"cuGraphInstantiate", 12000, "12000"},
    {"cuGetProcAddress", 11030, "cuGetProcAddress"},
    {"cuGetProcAddress", 12000, "cuGetProcAddress_v2"},
};

static void *export_of(const char *name, const char *suffix)
{
    const size_t n = strlen(name);
    for (unsigned i = 0; i < EXPORTS; i++)
        if (!strncmp(exports[i].symbol, name, n) && !strcmp(exports[i].symbol + n, suffix))
            return exports[i].pointer;
    return NULL;
}

void *kfit_double_pointer(const char *name, int version, uint64_t flags)
{
    static const char *const suffixes[] = {"_v3", "_v2", ""};
    const char *symbol = NULL;
    void *p = NULL;
    for (unsigned i = 0; i < sizeof versions / sizeof *versions; i++)
        if (!strcmp(versions[i].name, name) && versions[i].since <= version)
            symbol = versions[i].symbol;
    if (symbol && !strcmp(symbol, "12000"))
        return (void *)instantiate_12000;
    for (unsigned i = 0; !p && i < 3; i++) {
        char full[128];
        if (strlen(name) > 100)
            return NULL;
        strcat(strcpy(full, symbol ? symbol : name), symbol ? "" : suffixes[i]);
        if (flags & 2 && (p = export_of(full, "_ptsz")) && version < 7000)
            return NULL; /* there were none yet */
        p = p ? p : export_of(full, "");
    }
    return p;
}

const char *kfit_double_name(unsigned i)
{
    return i < EXPORTS ? exports[i].symbol : NULL;
}

kfit_cu_result cuGetProcAddress_v2(const char *name, void **out, int version, uint64_t flags, int *status)
{
    static __thread struct {
        char name[100];
        int version;
        uint64_t flags;
        void *answer;
    } last; /* so that a benchmark sees more than our search */
    if (strcmp(last.name, name) || last.version != version || last.flags != flags) {
        last.answer = kfit_double_pointer(name, version, flags);
        last.version = version;
        last.flags = flags;
        strncpy(last.name, name, sizeof last.name - 1);
    }
    *out = last.answer;
    if (status)
        *status = !*out; /* CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND */
    return 0;
}

kfit_cu_result cuGetProcAddress(const char *name, void **out, int version, uint64_t flags)
{
    const kfit_cu_result r = cuGetProcAddress_v2(name, out, version, flags, NULL);
    return r || *out ? r : NOT_FOUND;
}
