#include <dlfcn.h>
#include <string.h>

#include "kfit/cuda.h"

static struct kfit_cuda table;

static const struct {
    const char *member, *symbol;
    size_t offset;
} symbols[] = {
#define KFIT_X(member, symbol, args) {#member, #symbol, offsetof(struct kfit_cuda, member)},
    KFIT_CUDA_LIST(KFIT_X)
#undef KFIT_X
};

/* Two threads may both fill the table: they write the same pointers. */
enum kfit_status kfit_cuda_load(const struct kfit_cuda **out, struct kfit_error *err)
{
    static int loaded;
    if (__atomic_load_n(&loaded, __ATOMIC_ACQUIRE)) {
        *out = &table;
        return KFIT_OK;
    }
    void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!lib)
        return kfit_fail(err, KFIT_E_UNSUPPORTED, "cuda: no NVIDIA driver here; install one, or run where a GPU is (%s)", dlerror());
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        void *p = dlsym(lib, symbols[i].symbol);
        if (!p)
            return kfit_fail(err, KFIT_E_UNSUPPORTED,
                             "cuda: the driver lacks %s; kfit needs driver 560 (CUDA 12.6) or newer",
                             symbols[i].symbol);
        *(void **)((char *)&table + symbols[i].offset) = p;
    }
    __atomic_store_n(&loaded, 1, __ATOMIC_RELEASE);
    *out = &table;
    return KFIT_OK;
}

enum kfit_status kfit_cuda_fail(const struct kfit_cuda *cu, kfit_cu_result r, const char *what,
                                struct kfit_error *err)
{
    const char *name = NULL, *text = NULL;
    size_t n = strcspn(what, "(");
    for (size_t i = 0; what[n] && i < sizeof symbols / sizeof *symbols; i++)
        if (strlen(symbols[i].member) == n && !memcmp(symbols[i].member, what, n))
            what = symbols[i].symbol, n = strlen(what);
    cu->error_name(r, &name);
    cu->error_string(r, &text);
    enum kfit_status s = r == KFIT_CU_OUT_OF_MEMORY       ? KFIT_E_NOMEM
                         : r == KFIT_CU_NO_DEVICE         ? KFIT_E_UNSUPPORTED
                         : r == KFIT_CU_NO_BINARY_FOR_GPU ? KFIT_E_ENV
                         : r >= KFIT_CU_ILLEGAL_ADDRESS   ? KFIT_E_CRASH
                                                          : KFIT_E_IO;
    return kfit_fail(err, s, "%.*s: %s (%s)", (int)n, what, name ? name : "unknown CUDA error", text ? text : "?");
}
