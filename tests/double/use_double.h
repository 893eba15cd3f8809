/* A case's own GPU that is none: its settings, its libraries, its lock. */
#ifndef KFIT_TEST_USE_DOUBLE_H
#define KFIT_TEST_USE_DOUBLE_H

#include <dlfcn.h>
#include <unistd.h>

#include "kfit_test.h"

/* settings: lines of "name value" (double.h). driver: the library that this process and its workers find. */
static inline void use_double(const char *settings, const char *driver)
{
    char path[256];
    snprintf(path, sizeof path, "%s/kfit-double", kfit_test_dir());
    kfit_test_write(path, settings, strlen(settings));
    snprintf(path, sizeof path, "%s/libcuda.so.1", kfit_test_dir());
    CHECK(!symlink(driver, path));
    setenv("HOME", kfit_test_dir(), 1);
    setenv("LD_LIBRARY_PATH", kfit_test_dir(), 1); /* for workers; this process has read it already */
    setenv("KFIT_NVRTC", DOUBLE "/libnvrtc.so.13", 1);
}

/* The loader remembers it by its soname, so the next who asks for libcuda.so.1 gets it. */
static inline void load_double(const char *driver)
{
    CHECK_MSG(dlopen(driver, RTLD_NOW | RTLD_LOCAL), "%s", dlerror());
}

#endif
