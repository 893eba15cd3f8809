#include "library.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

static const char here; /* an address in the object that holds this code */

static void *open_one(const char *soname)
{
    Dl_info self;
    const char *slash = dladdr(&here, &self) && self.dli_fname ? strrchr(self.dli_fname, '/') : NULL;
    char beside[PATH_MAX];
    void *lib = NULL;
    if (slash && (size_t)(slash - self.dli_fname) + strlen(soname) + 2 < sizeof beside) {
        snprintf(beside, sizeof beside, "%.*s/%s", (int)(slash - self.dli_fname), self.dli_fname, soname);
        lib = dlopen(beside, RTLD_NOW | RTLD_LOCAL);
    }
    return lib ? lib : dlopen(soname, RTLD_NOW | RTLD_LOCAL);
}

bool kfit_library_load(const struct kfit_library *l, void *table, char *problem, size_t size)
{
    const char *const *soname = l->sonames;
    void *lib = NULL;
    while (*soname && !(lib = open_one(*soname)))
        soname++;
    if (!lib) {
        const char *why = dlerror();
        snprintf(problem, size, "%s cannot be loaded: %.150s; install %s (Debian: %s)", l->name,
                 why ? why : "unknown error", l->sonames[0], l->package);
        return false;
    }
    for (size_t i = 0; i < l->count; i++) {
        void *p = dlsym(lib, l->symbols[i].name);
        memcpy((char *)table + l->symbols[i].offset, &p, sizeof p);
        if (!p) {
            snprintf(problem, size, "%s has no %s; install another version of %s (Debian: %s)", *soname,
                     l->symbols[i].name, l->name, l->package);
            return false;
        }
    }
    return true;
}
