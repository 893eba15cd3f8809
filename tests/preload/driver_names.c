/* What an exported dlsym must leave alone, in four parts: the program (driver_names SCENE), two libraries of which one
 * asks for the other's function by RTLD_NEXT (FIRST, compiled at -O0 and at -O2; SECOND), a plugin whose own library
 * only it can see (PLUGIN, DEEP), and a library with names much like the driver's (LOOKALIKE). */
#define PUBLIC __attribute__((visibility("default")))

#if defined FIRST
#include <dlfcn.h>
PUBLIC int FIRST(void);
PUBLIC int FIRST(void)
{
    int (*next)(void) = (int (*)(void))dlsym(RTLD_NEXT, "who");
    return next ? next() : -1;
}
#elif defined SECOND
PUBLIC int who(void);
PUBLIC int who(void)
{
    return 2;
}
#elif defined DEEP
PUBLIC int deep(void);
PUBLIC int deep(void)
{
    return 7;
}
#elif defined PLUGIN
#include <dlfcn.h>
int deep(void);
PUBLIC int ask(void);
PUBLIC int ask(void)
{
    int (*found)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "deep");
    return found ? found() : -deep();
}
PUBLIC int tail(void *(*f)(void *, const char *));
PUBLIC int tail(void *(*f)(void *, const char *))
{
    int (*found)(void) = (int (*)(void))f(RTLD_DEFAULT, "deep");
    return found ? found() : -1;
}
#elif defined LOOKALIKE
#define X(name, value)                                                                                       \
    PUBLIC int name(void);                                                                                   \
    PUBLIC int name(void)                                                                                    \
    {                                                                                                        \
        return value;                                                                                        \
    }
X(cuLaunchKernel, 1)
X(cuLaunchKernelExC, 2)
X(cuLaunch, 3)
X(cublasLtCreate, 4)
#else
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

int first_plain(void), first_fast(void), who(void);

int main(int argc, char **argv)
{
    if (argc == 3 && !strcmp(argv[1], "names")) {
        static const char *const names[] = {"cuLaunchKernel", "cuLaunchKernelExC", "cuLaunch",
                                            "cublasLtCreate"};
        void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL),
             *lib = dlopen(argv[2], RTLD_NOW | RTLD_LOCAL);
        if (!driver || !dlsym(driver, "cuLaunchKernel"))
            return 1;
        for (int i = 0; i < 4; i++) {
            int (*f)(void) = (int (*)(void))dlsym(lib, names[i]);
            printf("%s %d\n", names[i], f ? f() : -1);
        }
        return 0;
    }
    if (argc == 2 && !strcmp(argv[1], "next"))
        return printf("next %d, %d of %d\n", first_plain(), first_fast(), who()), 0;
    if (argc == 3 && !strcmp(argv[1], "scope")) {
        void *plugin = dlopen(argv[2], RTLD_NOW | RTLD_LOCAL);
        int (*ask)(void) = (int (*)(void))dlsym(plugin, "ask");
        int (*tail)(void *(*)(void *, const char *)) =
            (int (*)(void *(*)(void *, const char *)))dlsym(plugin, "tail");
        return printf("scope %d, %d\n", ask(), tail(dlsym)), 0;
    }
    if (argc == 2 && !strcmp(argv[1], "none")) {
        extern int cuLaunchKernel(void) __attribute__((weak)); /* which the shim exports */
        void *self = dlopen(NULL, RTLD_NOW);
        const char *a = dlsym(RTLD_DEFAULT, "cuGetProcAddress_v2") ? "a symbol"
                        : dlerror()                                ? "no symbol"
                                                                   : "no error";
        const char *b = dlsym(self, "cuGetProcAddress_v2") ? "a symbol"
                        : dlerror()                        ? "no symbol"
                                                           : "no error";
        return printf("none: %s, %s, error %d\n", a, b, cuLaunchKernel ? cuLaunchKernel() : -1), 0;
    }
    return 1;
}
#endif
