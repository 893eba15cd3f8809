#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda.h"

/* ---- modules ---- */

static struct image *image_of(const void *module)
{
    return (struct image *)((uintptr_t)module & ~(uintptr_t)1); /* a library's module is another handle */
}

static kfit_cu_result load(void **module, const void *data)
{
    struct image *i;
    ENTER;
    kfit_cu_result r = image_load(&i, data);
    if (!r)
        *module = i;
    return r;
}

static char *file(const char *path)
{
    FILE *f = fopen(path, "r");
    char *text = f ? calloc(1, 1 << 16) : NULL;
    if (text && !fread(text, 1, (1 << 16) - 1, f))
        *text = '\0';
    if (f)
        fclose(f);
    return text;
}

kfit_cu_result cuModuleLoad(void **module, const char *path)
{
    char *text = file(path);
    kfit_cu_result r = text ? load(module, text) : 301; /* CUDA_ERROR_FILE_NOT_FOUND */
    free(text);
    return r;
}

kfit_cu_result cuModuleLoadData(void **module, const void *image)
{
    return load(module, image);
}

kfit_cu_result cuModuleLoadDataEx(void **module, const void *image, unsigned count, int *options,
                                  void **values)
{
    (void)count, (void)options, (void)values;
    return load(module, image);
}

kfit_cu_result cuModuleLoadFatBinary(void **module, const void *image)
{
    return load(module, image);
}

kfit_cu_result cuModuleUnload(void *module)
{
    ENTER;
    image_unload(image_of(module));
    return 0;
}

kfit_cu_result cuModuleGetFunction(kfit_cu_function *f, void *module, const char *name)
{
    struct image *i = image_of(module);
    ENTER;
    for (unsigned e = 0; e < i->entry_count; e++)
        if (!strcmp(i->entry[e].name, name)) {
            i->entry[e].context = current;
            return *f = &i->entry[e], 0;
        }
    return NOT_FOUND;
}

/* ---- libraries ---- */

kfit_cu_result cuLibraryLoadFromFile(kfit_cu_library *library, const char *path, KFIT_LOAD_OPTIONS)
{
    char *text = file(path);
    kfit_cu_result r =
        text ? cuLibraryLoadData(library, text, jit_options, jit_values, jit_count, options, values, count)
             : 301;
    free(text);
    return r;
}

kfit_cu_result cuLibraryGetModule(void **module, kfit_cu_library library)
{
    ENTER;
    *module = (char *)library + 1;
    return 0;
}

/* ---- names ---- */

kfit_cu_result cuFuncGetName(const char **name, kfit_cu_function f)
{
    ENTER;
    if (is_kernel(f))
        return INVALID_HANDLE;
    *name = f->name[0] ? f->name : f->kernel->name;
    return 0;
}

kfit_cu_result cuFuncGetModule(void **module, kfit_cu_function f)
{
    ENTER;
    if (is_kernel(f) || !f->image)
        return INVALID_HANDLE;
    *module = (char *)f->image + f->image->library;
    return 0;
}

kfit_cu_result cuKernelGetName(const char **name, kfit_cu_kernel k)
{
    ENTER;
    if (!is_kernel(k))
        return INVALID_HANDLE;
    *name = function_of(k)->name;
    return 0;
}

kfit_cu_result cuKernelGetLibrary(kfit_cu_library *library, kfit_cu_kernel k)
{
    ENTER;
    if (!is_kernel(k))
        return INVALID_HANDLE;
    *library = (kfit_cu_library)(void *)function_of(k)->image;
    return 0;
}

/* ---- contexts that go ---- */

kfit_cu_result cuCtxDestroy_v2(kfit_cu_context context)
{
    if (current == context)
        current = NULL;
    free(context);
    return 0;
}

kfit_cu_result cuCtxDestroy(kfit_cu_context context)
{
    return cuCtxDestroy_v2(context);
}

kfit_cu_result cuDevicePrimaryCtxReset_v2(kfit_cu_device device)
{
    (void)device;
    ENTER;
    return 0;
}

kfit_cu_result cuDevicePrimaryCtxReset(kfit_cu_device device)
{
    return cuDevicePrimaryCtxReset_v2(device);
}
