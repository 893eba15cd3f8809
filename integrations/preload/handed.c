/* Functions of cuBLAS that a program takes by dlsym from a library's handle: CuPy, XLA, whoever uses ctypes.
 *
 * Who calls such a pointer says nothing of what it stands for: it is passed on, kept in tables, called by libffi. So each
 * library's function is answered with an entry of its own (KFIT_HANDED_LIST), whose original is what dlsym found, and no
 * other. When there are no more entries the pointers are the library's own, and its calls are not seen.
 *
 * The first call, not the question, is what looks at the library and keeps it loaded: one that is only asked whether
 * it has a function can be closed. If it is opened again at the same place, its entries are the same. */
#include <string.h>

#include "preload.h"

enum { FREE, WRITING, READY }; /* a site's key */
enum { FUNCTIONS = KFIT_HOOKS - KFIT_HOOK_COUNT };

static const struct {
    const char *name;
    void *entry[4];
} functions[FUNCTIONS] = {
#define KFIT_Z(k, function)               (void *)kfit_handed##k##_##function,
#define KFIT_Y(function, file, arguments) {#function, {KFIT_HANDED_LIST(KFIT_Z, function)}},
    KFIT_CUDA_HOOK_LIST(KFIT_Y)
#undef KFIT_Y
#undef KFIT_Z
};
enum { ENTRIES = sizeof functions->entry / sizeof *functions->entry };

static struct handed {
    void *real; /* NULL: free */
    struct kfit_site site;
} handed[FUNCTIONS][ENTRIES];

unsigned kfit_cuda_hook_of(const char *name)
{
    static const char common[] = "cublas"; /* which few names are that anybody asks for */
    if (strncmp(name, common, sizeof common - 1))
        return 0;
    for (unsigned i = 0; i < FUNCTIONS; i++)
        if (!strcmp(name, functions[i].name))
            return KFIT_HOOK_COUNT + i;
    return 0;
}

void *kfit_hand_out(unsigned hook, void *real, const void *asker)
{
    const unsigned f = hook - KFIT_HOOK_COUNT;
    struct kfit_manners manners = kfit_manners_begin();
    const bool takes = kfit_takes(asker, real);
    kfit_manners_end(manners);
    for (unsigned k = 0; takes && k < ENTRIES; k++) {
        void *seen = NULL;
        if (__atomic_compare_exchange_n(&handed[f][k].real, &seen, real, false, __ATOMIC_ACQ_REL,
                                        __ATOMIC_ACQUIRE) ||
            seen == real)
            return functions[f].entry[k];
    }
    return real;
}

/* Threads that call an entry first, all at once: one fills in its site, the others one for this call. */
static __attribute__((noinline)) const struct kfit_site *resolve(unsigned hook, struct handed *h)
{
    static __thread struct kfit_site spare __attribute__((tls_model("initial-exec")));
    uintptr_t key = FREE;
    struct kfit_manners manners = kfit_manners_begin();
    struct kfit_site *s =
        __atomic_compare_exchange_n(&h->site.key, &key, WRITING, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)
            ? &h->site
            : &spare;
    kfit_site_fill(s, hook, __atomic_load_n(&h->real, __ATOMIC_ACQUIRE), false);
    __atomic_store_n(&s->key, READY, __ATOMIC_RELEASE);
    kfit_manners_end(manners);
    return s;
}

const struct kfit_site *kfit_handed_site(unsigned hook, unsigned k)
{
    struct handed *h = &handed[hook - KFIT_HOOK_COUNT][k];
    return __builtin_expect(__atomic_load_n(&h->site.key, __ATOMIC_ACQUIRE) == READY, 1) ? &h->site
                                                                                         : resolve(hook, h);
}
