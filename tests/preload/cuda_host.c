/* Runs cuda_calls.c as a module of its own, which nobody else sees: so are the libraries that it is linked with. */
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    void *module = dlopen(MODULE, RTLD_NOW | RTLD_LOCAL);
    int (*run)(int, char **) = NULL;
    if (module)
        *(void **)&run = dlsym(module, "cuda_main");
    if (!run) {
        fprintf(stderr, "%s\n", dlerror());
        return 3;
    }
    return run(argc, argv);
}
