#include "sodium_api.h"

#include <pthread.h>
#include <stdio.h>

#include "library.h"

static struct kfit_sodium api;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static char problem[256]; /* empty: loaded */

static void load(void)
{
    /* 23 is libsodium 1.0.11 to 1.0.18, 26 what follows; these functions are the same in both */
    static const char *const sonames[] = {"libsodium.so.23", "libsodium.so.26", NULL};
    static const struct kfit_library_symbol symbols[] = {
#define KFIT_X(name) {#name, offsetof(struct kfit_sodium, name)},
        KFIT_SODIUM_SYMBOLS(KFIT_X)
#undef KFIT_X
    };
    static const struct kfit_library sodium = {"libsodium", "libsodium23", sonames, symbols,
                                               sizeof symbols / sizeof *symbols};
    if (kfit_library_load(&sodium, &api, problem, sizeof problem) && api.sodium_init() < 0)
        snprintf(problem, sizeof problem,
                 "libsodium cannot be initialised; it finds no source of randomness");
}

enum kfit_status kfit_sodium_load(const struct kfit_sodium **out, struct kfit_error *err)
{
    pthread_once(&once, load);
    *out = &api;
    return problem[0] ? kfit_fail(err, KFIT_E_UNSUPPORTED, "%s", problem) : KFIT_OK;
}
