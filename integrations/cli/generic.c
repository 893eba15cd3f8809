/* The BLAS as a file: how it names its functions, what it says of itself. */
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli.h"

/* naming, name of its configuration text, name of its thread count, integer bits */
static const struct {
    const char *naming, *config, *threads;
    uint32_t int_bits;
} kinds[] = {
    {"cblas_%s", "openblas_get_config", "openblas_get_num_threads", 32},
    {"scipy_cblas_%s64_", "scipy_openblas_get_config64_", "scipy_openblas_get_num_threads64_", 64},
    {"scipy_cblas_%s", "scipy_openblas_get_config", "scipy_openblas_get_num_threads", 32},
    {"cblas_%s64_", "openblas_get_config64_", "openblas_get_num_threads64_", 64},
};
static const char *const system_names[] = {"libopenblas.so.0", "libcblas.so.3", "libblas.so.3"};

static void *symbol(void *handle, const char *pattern, const char *word)
{
    char name[64];
    const char *at = strstr(pattern, "%s");
    snprintf(name, sizeof name, "%.*s%s%s", at ? (int)(at - pattern) : (int)strlen(pattern), pattern,
             at ? word : "", at ? at + 2 : "");
    return dlsym(handle, name);
}

enum kfit_status cli_generic_probe(const char *path, struct kfit_generic *g, struct kfit_error *err)
{
    void *handle = NULL;
    struct link_map *map;
    char real[PATH_MAX];
    *g = (struct kfit_generic){0};
    if (path && !strchr(path, '/')) /* a bare name would be searched for; a file is meant */
        path = realpath(path, real) ? real : path;
    if (path)
        handle = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
    for (unsigned i = 0; !path && !handle && i < sizeof system_names / sizeof *system_names; i++)
        handle = dlopen(system_names[i], RTLD_LAZY | RTLD_LOCAL);
    if (!handle)
        return kfit_fail(err, KFIT_E_NOTFOUND, "%s; name one with --generic, or install libopenblas0-pthread",
                         path ? dlerror() : "no BLAS library is installed");
    for (unsigned i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (!symbol(handle, kinds[i].naming, "sgemm"))
            continue;
        void *config = dlsym(handle, kinds[i].config), *threads = dlsym(handle, kinds[i].threads);
        char *(*get_config)(void);
        int (*get_threads)(void);
        memcpy(&get_config, &config, sizeof get_config);
        memcpy(&get_threads, &threads, sizeof get_threads);
        snprintf(g->naming, sizeof g->naming, "%s", kinds[i].naming);
        snprintf(g->config, sizeof g->config, "%s", config ? get_config() : "unknown BLAS");
        g->threads = threads ? get_threads() : 1;
        g->int_bits = kinds[i].int_bits;
        if (!dlinfo(handle, RTLD_DI_LINKMAP, &map) && realpath(map->l_name, real) &&
            strlen(real) < sizeof g->path)
            strcpy(g->path, real);
        return g->path[0] ? KFIT_OK : kfit_fail(err, KFIT_E_ARG, "%s: its path is too long", map->l_name);
    }
    return kfit_fail(err, KFIT_E_UNSUPPORTED, "%s: has no cblas_sgemm under a name that kfit knows",
                     path ? path : "the system's BLAS");
}

/* ---- cuBLAS ---- */

static const char *const cublas_names[] = {"libcublas.so.13", "libcublas.so.12"};
/* below a toolkit, site-packages/nvidia, site-packages, or an environment's folder of them */
static const char *const cublas_places[] = {
    "", "lib64", "lib", "cu13/lib", "cublas/lib", "nvidia/cu13/lib", "nvidia/cublas/lib"};
#define TOOLKIT "/usr/local/cuda"

static bool cublas_below(const char *folder, char real[PATH_MAX])
{
    char at[2 * PATH_MAX];
    for (unsigned n = 0; n < sizeof cublas_names / sizeof *cublas_names; n++)
        for (unsigned p = 0; p < sizeof cublas_places / sizeof *cublas_places; p++) {
            snprintf(at, sizeof at, "%.4000s/%s/%s", folder, cublas_places[p], cublas_names[n]);
            if (realpath(at, real))
                return true;
        }
    return false;
}

static bool cublas_of_loader(char real[PATH_MAX])
{
    struct link_map *map;
    bool found = false;
    for (unsigned n = 0; n < sizeof cublas_names / sizeof *cublas_names && !found; n++) {
        void *handle = dlopen(cublas_names[n], RTLD_LAZY | RTLD_LOCAL);
        found = handle && !dlinfo(handle, RTLD_DI_LINKMAP, &map) && realpath(map->l_name, real);
        if (handle)
            dlclose(handle);
    }
    return found;
}

enum kfit_status cli_generic_cublas(const char *path, struct kfit_generic *g, struct kfit_error *err)
{
    char real[PATH_MAX] = "";
    struct stat st;
    *g = (struct kfit_generic){.naming = "cublas%s", .config = "cuBLAS", .int_bits = 32};
    if (path && (!realpath(path, real) || stat(real, &st)))
        return kfit_fail(err, KFIT_E_NOTFOUND, "%.300s: %s; --generic names a libcublas or a folder with one",
                         path, strerror(errno));
    if (path && S_ISDIR(st.st_mode) && !cublas_below(path, real))
        return kfit_fail(err, KFIT_E_NOTFOUND,
                         "%.200s: has no libcublas.so.13 or .12, nor lib, lib64, nvidia/cu13/lib or "
                         "nvidia/cublas/lib with one",
                         path);
    if (!path && !cublas_of_loader(real) && !cublas_below(TOOLKIT, real))
        return kfit_fail(err, KFIT_E_NOTFOUND,
                         "no libcublas.so.13 or .12 where the loader looks or in " TOOLKIT
                         "; name one with --generic (PyPI: site-packages/nvidia/cu13/lib)");
    if (strlen(real) >= sizeof g->path)
        return kfit_fail(err, KFIT_E_ARG, "%.200s...: its path is too long", real);
    strcpy(g->path, real);
    return KFIT_OK;
}

const char *cli_generic_name(const struct kfit_generic *g, char buf[64])
{
    const char *slash = strrchr(g->path, '/');
    size_t n = strcspn(g->config, " ");
    if (g->config[n])
        snprintf(buf, 64, "%.*s", (int)(n + 1 + strcspn(g->config + n + 1, " ")), g->config);
    else
        snprintf(buf, 64, "%.63s", slash ? slash + 1 : g->path);
    return buf;
}
