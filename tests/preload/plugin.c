/* A plugin that multiplies, compiled twice: linked to OpenBLAS, and to small_blas.c. The host loads both
 * privately. With HOST it is the host: plugins [close] FIRST CALLS SECOND CALLS; with close each goes before the next comes,
 * which the linker puts in its place. */
#ifndef HOST

void cblas_sgemm(int, int, int, int, int, int, float, const float *, int, const float *, int, float, float *,
                 int);
float multiply(int calls);

__attribute__((visibility("default"))) float multiply(int calls)
{
    const float a[] = {1, 2, 3}, b[] = {4, 5, 6};
    float c = 0;
    for (int i = 0; i < calls; i++)
        cblas_sgemm(101, 111, 111, 1, 1, 3, 1, a, 3, b, 1, 0, &c, 1);
    return c;
}

#else
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
    const int close = argc > 1 && !strcmp(argv[1], "close");
    for (int i = 1 + close; i + 1 < argc; i += 2) {
        void *plugin = dlopen(argv[i], RTLD_NOW | RTLD_LOCAL);
        float (*multiply)(int) = plugin ? (float (*)(int))dlsym(plugin, "multiply") : NULL;
        if (!multiply)
            return fprintf(stderr, "%s\n", dlerror()), 1;
        printf("%g", (double)multiply(atoi(argv[i + 1])));
        const int *calls = dlsym(plugin, "small_blas_calls"); /* only one of the two has it */
        printf(" %d\n", calls ? *calls : -1);
        if (close)
            dlclose(plugin);
    }
    return 0;
}
#endif
