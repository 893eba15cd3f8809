/* How a program comes by the driver's functions, and that it comes by our wrappers (of cuBLAS's: handed.c):
 *
 *   linked with libcuda          our exports of the same names come first
 *   dlsym                        dlsym.S; where a handle gives the driver's function, the wrapper
 *   cuGetProcAddress             by the pointer that it answers with, whatever was asked for
 *
 * A pointer is replaced only if it is what our wrapper would call: the next function of that name in the global scope
 * (another interposer's, behind us), else libcuda's. Anything else of that name passes. Nothing is opened: libcuda is
 * looked for among what is loaded, when the program first asks for a function of it. */
#include <dlfcn.h>
#include <link.h>
#include <string.h>

#include "driver.h"
#include "preload.h"

enum {
    NO_DRIVER = 34
}; /* CUDA_ERROR_STUB_LIBRARY: what a program hears that calls an export of ours without libcuda */

/* ---- the table of real functions ---- */

static bool resolve(void);

#define KFIT_X(symbol, flags, asked, since, params, args, before, after)                                     \
    static kfit_cu_result first_##symbol params                                                              \
    {                                                                                                        \
        return resolve() && kfit_driver.symbol != first_##symbol ? kfit_driver.symbol args : NO_DRIVER;      \
    }
KFIT_DRIVER_LIST(KFIT_X)
#undef KFIT_X
#define KFIT_X(symbol, params, args)                                                                         \
    static kfit_cu_result first_##symbol params                                                              \
    {                                                                                                        \
        return resolve() && kfit_driver.symbol != first_##symbol ? kfit_driver.symbol args : NO_DRIVER;      \
    }
KFIT_DRIVER_QUERIES(KFIT_X)
#undef KFIT_X

_Alignas(64) struct kfit_driver kfit_driver = {
#define KFIT_X(symbol, flags, asked, since, params, args, before, after) .symbol = first_##symbol,
    KFIT_DRIVER_LIST(KFIT_X)
#undef KFIT_X
#define KFIT_X(symbol, params, args) .symbol = first_##symbol,
        KFIT_DRIVER_QUERIES(KFIT_X)
#undef KFIT_X
};

/* ---- wrappers ---- */

/* Exported under the driver's own names; ours by the others, which no interposer before us can take. Each begins a line of the
 * cache: a usual launch is three to five of them. */
#define STREAM(stream)                                                                                       \
    ((uintptr_t)(stream) || !per_thread ? (void *)(stream) : (void *)KFIT_STREAM_PER_THREAD)
#define UNLESS(failed)                                                                                       \
    do {                                                                                                     \
        const kfit_cu_result failed_ = failed;                                                               \
        if (failed_)                                                                                         \
            return failed_;                                                                                  \
    } while (0)
#define KFIT_X(symbol, flags, asked, since, params, args, before, after)                                     \
    static __attribute__((aligned(64))) kfit_cu_result hook_##symbol params                                  \
    {                                                                                                        \
        enum { per_thread = flags == KFIT_PTSZ };                                                            \
        before;                                                                                              \
        kfit_cu_result r = kfit_driver.symbol args;                                                          \
        after;                                                                                               \
        return r;                                                                                            \
    }                                                                                                        \
    extern __attribute__((alias("hook_" #symbol), visibility("default"))) kfit_cu_result symbol params;
KFIT_DRIVER_LIST(KFIT_X)
#undef KFIT_X

static const struct hooked {
    const char *name;
    void *wrapper, *first;
    size_t at; /* in struct kfit_driver */
    const char *asked;
    int since;
    unsigned flags;
} hooked[] = {
#define KFIT_X(symbol, flags, asked, since, params, args, before, after)                                     \
    {#symbol,                                                                                                \
     (void *)hook_##symbol,                                                                                  \
     (void *)first_##symbol,                                                                                 \
     offsetof(struct kfit_driver, symbol),                                                                   \
     #asked,                                                                                                 \
     since,                                                                                                  \
     flags},
    KFIT_DRIVER_LIST(KFIT_X)
#undef KFIT_X
};
enum { HOOKED = sizeof hooked / sizeof *hooked };

static const struct {
    const char *name;
    size_t at;
} queries[] = {
#define KFIT_X(symbol, params, args) {#symbol, offsetof(struct kfit_driver, symbol)},
    KFIT_DRIVER_QUERIES(KFIT_X)
#undef KFIT_X
};

static inline void **real_at(size_t at)
{
    return (void **)(void *)((char *)&kfit_driver + at);
}

static inline void *real_of(const struct hooked *h)
{
    return __atomic_load_n(real_at(h->at), __ATOMIC_RELAXED);
}

/* The row of a whole name. Most names have a length that none of them has, or one that few have. */
static const struct hooked *hooked_by_name(const char *name)
{
    static const uint8_t lengths[HOOKED] = {
#define KFIT_X(symbol, flags, asked, since, params, args, before, after) sizeof #symbol - 1,
        KFIT_DRIVER_LIST(KFIT_X)
#undef KFIT_X
    };
    const uint64_t some = 0
#define KFIT_X(symbol, flags, asked, since, params, args, before, after) | UINT64_C(1) << (sizeof #symbol - 1)
        KFIT_DRIVER_LIST(KFIT_X)
#undef KFIT_X
        ;
    const size_t n = strlen(name);
    if (n > 63 || !(some >> n & 1))
        return NULL;
    for (unsigned i = 0; i < HOOKED; i++)
        if (lengths[i] == n && !memcmp(hooked[i].name, name, n))
            return &hooked[i];
    return NULL;
}

static const struct hooked *hooked_by_pointer(const void *real)
{
    for (unsigned i = 0; i < HOOKED; i++)
        if (real_of(&hooked[i]) == real)
            return &hooked[i];
    return NULL;
}

/* ---- finding the real ones ---- */

typedef void *lookup(void *handle, const char *name);

/* libc's own dlsym, whatever else is called so. */
static lookup *libc_dlsym(void)
{
    static void *found;
    void *p = __atomic_load_n(&found, __ATOMIC_RELAXED);
    if (__builtin_expect(!p, 0)) {
        p = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
        if (!p)
            p = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
        __atomic_store_n(&found, p, __ATOMIC_RELAXED);
    }
    return (lookup *)p;
}

/* The one that a program would have called without us: another interposer's, or libc's. */
static lookup *next_dlsym(void)
{
    static void *found;
    void *p = __atomic_load_n(&found, __ATOMIC_RELAXED);
    if (__builtin_expect(!p, 0)) {
        p = libc_dlsym()(RTLD_NEXT, "dlsym");
        __atomic_store_n(&found, p, __ATOMIC_RELAXED);
    }
    return (lookup *)p;
}

/* What our call of `name` goes on to. libcuda: NULL if it is not loaded. */
static void *next_of(const char *name, void *libcuda)
{
    void *p = libc_dlsym()(RTLD_NEXT, name);
    return p || !libcuda ? p : next_dlsym()(libcuda, name);
}

/* Finds the real functions once there is a driver. Threads that do so at once write the same. */
static bool resolve(void)
{
    static uint32_t resolved;
    if (__atomic_load_n(&resolved, __ATOMIC_ACQUIRE))
        return true;
    struct kfit_manners manners = kfit_manners_begin();
    void *libcuda = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    const bool there = next_of("cuInit", libcuda) != NULL;
    for (unsigned i = 0; there && i < HOOKED; i++) {
        void *p = next_of(hooked[i].name, libcuda);
        if (p)
            __atomic_store_n(real_at(hooked[i].at), p, __ATOMIC_RELAXED);
    }
    for (unsigned i = 0; there && i < sizeof queries / sizeof *queries; i++) {
        void *p = next_of(queries[i].name, libcuda);
        if (p)
            __atomic_store_n(real_at(queries[i].at), p, __ATOMIC_RELAXED);
    }
    if (there)
        __atomic_store_n(&resolved, 1, __ATOMIC_RELEASE);
    if (libcuda)
        dlclose(libcuda);
    kfit_manners_end(manners);
    return there;
}

/* ---- dlsym ---- */

static bool is_ours(const void *address)
{
    extern const char __ehdr_start[] __attribute__((visibility("hidden"))),
        etext[] __attribute__((visibility("hidden")));
    return (const char *)address >= __ehdr_start && (const char *)address < etext;
}

/* A library's own function of cuBLAS: an entry of its own (handed.c). */
static struct kfit_found of_cublas(unsigned hook, void *handle, const char *name, const void *caller)
{
    void *real = next_dlsym()(handle, name);
    return (struct kfit_found){
        NULL, real && !is_ours(real) && kfit_asked() ? kfit_hand_out(hook, real, caller) : real};
}

/* An export of ours is no sign of a driver: without one, a program is told that there is no such symbol. Where the
 * real lookup fails, dlerror says so: nothing of ours comes after it. */
struct kfit_found kfit_dlsym(void *handle, const char *name, const void *caller)
{
    if (is_ours(caller))
        return (struct kfit_found){libc_dlsym(), NULL};
    if (handle == RTLD_NEXT || !name)
        return (struct kfit_found){next_dlsym(), NULL};
    const struct hooked *h = hooked_by_name(name);
    const unsigned cublas = h || handle == RTLD_DEFAULT ? 0 : kfit_cuda_hook_of(name);
    if (cublas)
        return of_cublas(cublas, handle, name, caller);
    if (!h)
        return (struct kfit_found){next_dlsym(), NULL};
    if (handle == RTLD_DEFAULT && resolve())
        return (struct kfit_found){next_dlsym(), NULL};
    void *real = handle == RTLD_DEFAULT ? h->wrapper : next_dlsym()(handle, name);
    if (!real)
        return (struct kfit_found){NULL, NULL};
    const bool driver = resolve();
    if (real == h->wrapper)
        return (struct kfit_found){NULL, driver ? real : libc_dlsym()(RTLD_NEXT, name)};
    return (struct kfit_found){NULL, driver && real == real_of(h) && kfit_asked() ? h->wrapper : real};
}

/* ---- cuGetProcAddress ---- */

/* The last version whose every name we know: beyond it a name may have got other parameters. */
enum { KNOWN_TO = 13000 };

/* What cuGetProcAddress means by a name, a version and flags. From 12.0 on, cuGraphInstantiate is what the library
 * exports under another name. */
static const struct hooked *hooked_by_version(const char *name, int version, uint64_t flags)
{
    const struct hooked *best = NULL;
    if (version > KNOWN_TO)
        return NULL;
    if (version >= 12000 && !strcmp(name, "cuGraphInstantiate"))
        return hooked_by_name("cuGraphInstantiateWithFlags");
    for (unsigned i = 0; i < HOOKED; i++) {
        const struct hooked *h = &hooked[i];
        if (!strcmp(h->asked, name) && h->since <= version && h->flags == (flags & KFIT_PTSZ) &&
            (!best || h->since > best->since))
            best = h;
    }
    return best;
}

static const void *object_base(const void *address)
{
    Dl_info info;
    return dladdr(address, &info) ? info.dli_fbase : NULL;
}

/* One without an export of its own address is known by its name, if it is of the same library. */
void kfit_answered(int r, const char *name, void **out, int version, uint64_t flags)
{
    if (r || !out || !*out || !kfit_asked() || !resolve())
        return;
    const struct hooked *h = hooked_by_pointer(*out);
    if (!h && (h = hooked_by_version(name, version, flags))) {
        struct kfit_manners manners = kfit_manners_begin();
        const void *base = object_base(*out);
        if (!base || base != object_base(real_of(h)))
            h = NULL;
        kfit_manners_end(manners);
    }
    if (h)
        *out = h->wrapper;
}
