/* Another interposer of dlsym and of one function of the driver, as GPU-sharing libraries are: it finds libc's dlsym by
 * version, answers the driver's name with its own function, and calls on what dlsym gives after itself. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PUBLIC __attribute__((visibility("default")))

typedef int launch(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *,
                   void **, void **);

static int seen;
static launch *from_handle;

static void *real_dlsym(void *handle, const char *name)
{
    static void *(*real)(void *, const char *);
    if (!real)
        *(void **)&real = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
    if (!real)
        *(void **)&real = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
    return real(handle, name);
}

static void say(void)
{
    if (getenv("OTHER_SAYS"))
        printf("other saw %d launches\n", seen);
}

PUBLIC launch cuLaunchKernel;
PUBLIC int cuLaunchKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                          unsigned bz, unsigned smem, void *stream, void **params, void **extra)
{
    launch *next = (launch *)real_dlsym(RTLD_NEXT, "cuLaunchKernel");
    if (!seen++)
        atexit(say);
    if (!next)
        next = from_handle;
    return next(f, gx, gy, gz, bx, by, bz, smem, stream, params, extra);
}

PUBLIC void *dlsym(void *handle, const char *name)
{
    if (handle != RTLD_NEXT && !strcmp(name, "cuLaunchKernel")) {
        from_handle = (launch *)real_dlsym(handle, name);
        return from_handle ? (void *)cuLaunchKernel : NULL;
    }
    return real_dlsym(handle, name);
}
