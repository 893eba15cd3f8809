/* See cuda_taken.h. Library 0 is the one that the loader finds; the others are copies of it, $HOME/copyN. */
#include "cuda_taken.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef ELSEWHERE
__attribute__((visibility("default"))) void *ask_elsewhere(void *handle, const char *name);
void *ask_elsewhere(void *handle, const char *name)
{
    void *found = dlsym(handle, name);
    return found; /* no tail call: the return address is here */
}
#else
void *ask_elsewhere(void *handle, const char *name);

#define WIDTH(X, after)                                                                                      \
    X(cublasGemmEx##after)                                                                                   \
    X(cublasGemmStridedBatchedEx##after) X(cublasSgemm_v2##after) X(cublasSgemmStridedBatched##after)
#define LIST(X)                                                                                              \
    X(cublasCreate_v2)                                                                                       \
    X(cublasDestroy_v2)                                                                                      \
    X(cublasLtDestroy)                                                                                       \
    X(cublasSetStream_v2)                                                                                    \
    X(cublasSetWorkspace_v2)                                                                                 \
    X(cublasSetPointerMode_v2)                                                                               \
    X(cublasSetMathMode)                                                                                     \
    X(cublasLtMatmulDescCreate)                                                                              \
    X(cublasLtMatmulDescSetAttribute)                                                                        \
    X(cublasLtMatmulDescDestroy)                                                                             \
    X(cublasLtMatrixLayoutCreate)                                                                            \
    X(cublasLtMatrixLayoutSetAttribute)                                                                      \
    X(cublasLtMatrixLayoutDestroy)                                                                           \
    X(cublasLtMatmulPreferenceCreate)                                                                        \
    X(cublasLtMatmulPreferenceSetAttribute)                                                                  \
    X(cublasLtMatmulPreferenceDestroy)                                                                       \
    X(cublasLtMatmulAlgoGetHeuristic)                                                                        \
    X(cublasLtMatmul)                                                                                        \
    X(cublasUnhooked)                                                                                        \
    X(kfit_double_cublas_calls)                                                                              \
    X(kfit_double_cublaslt_calls)                                                                            \
    X(kfit_double_cublaslt_reads)                                                                            \
    WIDTH(X, )                                                                                               \
    WIDTH(X, _64)

/* Each name is a jump to what was taken, so that the caller is who it would be. */
#define X(name)                                                                                              \
    __asm__(".pushsection .text; .globl " #name "; .hidden " #name "; " #name ": jmp *taken_" #name          \
            "(%rip); .popsection");                                                                          \
    __attribute__((visibility("hidden"))) void *taken_##name;
LIST(X)
#undef X

enum {
#define X(name) AT_##name,
    LIST(X) COUNT
#undef X
};
static const char *const names[COUNT] = {
#define X(name) #name,
    LIST(X)
#undef X
};
static void **const current[COUNT] = {
#define X(name) &taken_##name,
    LIST(X)
#undef X
};

enum { LIBRARIES = 8 };
static struct {
    void *handle, *taken[COUNT];
} libraries[LIBRARIES];

static void *must(void *found)
{
    if (!found) {
        fprintf(stderr, "%s\n", dlerror());
        exit(6);
    }
    return found;
}

static void open_library(unsigned i)
{
    char path[512] = "libcublas.so.13";
    if (i)
        snprintf(path, sizeof path, "%s/copy%u", getenv("HOME"), i);
    libraries[i].handle = must(dlopen(path, RTLD_NOW | RTLD_LOCAL));
}

static void print_file(const void *address)
{
    Dl_info info;
    must(dladdr(address, &info) ? &info : NULL);
    printf("%s", strrchr(info.dli_fname, '/') + 1);
}

bool taken_command(const char *command, unsigned i, bool elsewhere)
{
    const size_t n = strcspn(command, " ");
    if (!strncmp(command, "take", n)) {
        if (!libraries[i].handle)
            open_library(i);
        for (unsigned f = 0; f < COUNT; f++)
            *current[f] = libraries[i].taken[f] =
                must(elsewhere ? ask_elsewhere(libraries[i].handle, names[f])
                               : dlsym(libraries[i].handle, names[f]));
    } else if (!strncmp(command, "use", n)) {
        for (unsigned f = 0; f < COUNT; f++)
            *current[f] = libraries[i].taken[f];
    } else if (!strncmp(command, "close", n)) {
        dlclose(libraries[i].handle);
        libraries[i].handle = NULL;
    } else if (!strncmp(command, "whose", n)) {
        print_file(taken_cublasGemmEx);
        printf(" ");
        print_file(taken_cublasLtMatmul);
        printf("\n");
    } else
        return false;
    return true;
}
#endif
