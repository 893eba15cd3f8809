/* Which function would have been called without us, and what library it belongs to.
 *
 * The dynamic linker looks through the global scope, then through what the caller was loaded with. So do we:
 *   1. the next definition in the global scope (RTLD_NEXT): a program linked with its BLAS, a BLAS or another
 *      interposer preloaded behind us;
 *   2. the caller's own scope (dlopen of the object that the return address lies in, dlsym on it): Python
 *      loads numpy and its BLAS privately, where RTLD_NEXT sees nothing;
 *   3. any loaded object that has it: the caller was loaded by something that has.
 * What the caller's scope gives is refused if it is ours or what the global scope gives first, which then is
 * an interposer in front of us that expects the next one.
 *
 * A BLAS that calls itself by name comes through here too. If the caller is one of the hooked functions of
 * the same library (netlib and BLIS: cblas_sgemm calls sgemm_) the call is counted already; LAPACK inside the
 * library, which is not hooked, is a caller like any other.
 */
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "preload.h"

enum { EMPTY, CLAIMED, READY }; /* a struct kfit_blas */
enum { FREE, WRITING, GONE };   /* a site's key */

struct naming {
    const char *before, *after;                 /* of a function's name */
    const char *control_before, *control_after; /* of openblas_get_config's */
    uint32_t bits;
    void (*describe)(struct kfit_blas *b, void *handle);
};

static void describe_blas(struct kfit_blas *b, void *handle);

/* after those of KFIT_NAMING_LIST: the files of KFIT_CUDA_HOOK_LIST */
enum { NAMING_cublas = KFIT_HOOK_COUNT / KFIT_HOOKS_PER_NAMING, NAMING_cublaslt };

static const struct naming namings[] = {
#define KFIT_X(Y, before, after, interface, bits, control_before, control_after)                             \
    {#before, #after, control_before, control_after, bits, describe_blas},
    KFIT_NAMING_LIST(KFIT_X, )
#undef KFIT_X
        [NAMING_cublas] = {"cublas", "", "", "", 32, kfit_cublas_describe},
    [NAMING_cublaslt] = {"cublas", "", "", "", 32, kfit_cublaslt_describe},
};

static const char *const names[KFIT_HOOKS] = {
#define KFIT_Y(function, interface, operation, type, kfit_type) #function,
    KFIT_HOOK_LIST(KFIT_Y)
#undef KFIT_Y
#define KFIT_Y(function, file, arguments) #function,
        KFIT_CUDA_HOOK_LIST(KFIT_Y)
#undef KFIT_Y
};

static unsigned naming_of(unsigned hook)
{
    static const uint8_t of_cuda[] = {
#define KFIT_Y(function, file, arguments) NAMING_##file,
        KFIT_CUDA_HOOK_LIST(KFIT_Y)
#undef KFIT_Y
    };
    return hook < KFIT_HOOK_COUNT ? hook / KFIT_HOOKS_PER_NAMING : of_cuda[hook - KFIT_HOOK_COUNT];
}

struct kfit_site kfit_sites[KFIT_SITES];
static struct kfit_blas blases[KFIT_BLAS_MAX];

struct kfit_manners kfit_manners_begin(void)
{
    struct kfit_manners m = {.error = errno};
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &m.cancel);
    return m;
}

void kfit_manners_end(struct kfit_manners m)
{
    dlerror(); /* a failed dlsym of ours is not the program's */
    pthread_setcancelstate(m.cancel, NULL);
    errno = m.error;
}

/* ---- finding ---- */

/* The loaded object that an address lies in. Not by dladdr, which looks through all of its symbols. */
struct object {
    const void *address, *id; /* id: NULL if there is none */
    const char *path;         /* valid while the object is loaded; "" for the program */
};

static int holds_address(struct dl_phdr_info *info, size_t size, void *ctx)
{
    struct object *o = ctx;
    (void)size;
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        if (p->p_type == PT_LOAD && (uintptr_t)o->address - info->dlpi_addr - p->p_vaddr < p->p_memsz) {
            o->id = info->dlpi_phdr;
            o->path = info->dlpi_name;
            return 1;
        }
    }
    return 0;
}

static struct object object_of(const void *address)
{
    struct object o = {address, NULL, ""};
    dl_iterate_phdr(holds_address, &o);
    return o;
}

static void *in_object(const char *path, const char *name)
{
    void *handle = path[0] ? dlopen(path, RTLD_LAZY | RTLD_NOLOAD) : NULL;
    if (!handle)
        return NULL;
    void *f = dlsym(handle, name);
    dlclose(handle);
    return f && object_of(f).id != object_of(names).id && f != dlsym(RTLD_DEFAULT, name) ? f : NULL;
}

/* Paths of all loaded objects, gathered under the linker's lock, opened after it. */
struct paths {
    size_t used;
    char text[(1 << 18) - sizeof(size_t)];
};

static int add_path(struct dl_phdr_info *info, size_t size, void *ctx)
{
    struct paths *paths = ctx;
    size_t n = strlen(info->dlpi_name) + 1;
    (void)size;
    if (n > 1 && n <= sizeof paths->text - paths->used) {
        memcpy(paths->text + paths->used, info->dlpi_name, n);
        paths->used += n;
    }
    return 0;
}

static void *anywhere(const char *name)
{
    struct paths *paths =
        mmap(NULL, sizeof *paths, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    void *f = NULL;
    if (paths == MAP_FAILED)
        return NULL;
    dl_iterate_phdr(add_path, paths);
    for (size_t i = 0; !f && i < paths->used; i += strlen(paths->text + i) + 1)
        f = in_object(paths->text + i, name);
    munmap(paths, sizeof *paths);
    return f;
}

static void *find(const char *name, const struct object *caller)
{
    void *f = dlsym(RTLD_NEXT, name);
    if (!f)
        f = in_object(caller->path, name);
    return f ? f : anywhere(name);
}

void *kfit_find_loaded(const char *name)
{
    const struct object nobody = {NULL, NULL, ""};
    return find(name, &nobody);
}

const char *kfit_path_of(const void *address)
{
    return object_of(address).path;
}

/* Whether the caller is itself one of the hooked functions. */
static bool is_hooked(const void *address)
{
    Dl_info info;
    if (!dladdr(address, &info) || !info.dli_sname)
        return false;
    for (unsigned i = 0; i < KFIT_HOOKS; i++)
        if (!strcmp(info.dli_sname, names[i]))
            return true;
    return false;
}

/* Whether an object is libcublas, which calls libcublasLt, and itself, from functions that nobody hooks. */
static bool is_cublas(const struct object *o)
{
    void *handle = o->path[0] ? dlopen(o->path, RTLD_LAZY | RTLD_NOLOAD) : NULL;
    void *f = handle ? dlsym(handle, "cublasGetProperty") : NULL;
    if (handle)
        dlclose(handle);
    return f && object_of(f).id == o->id;
}

bool kfit_takes(const void *asker, const void *fn)
{
    struct object from = object_of(asker), to = object_of(fn);
    return to.id && to.id != from.id && !is_cublas(&from); /* without an id: of another namespace */
}

/* ---- describing ---- */

static void *control(void *handle, const struct naming *n, const char *function)
{
    char name[64];
    snprintf(name, sizeof name, "%s%s%s", n->control_before, function, n->control_after);
    return handle ? dlsym(handle, name) : NULL;
}

static void describe_blas(struct kfit_blas *b, void *handle)
{
    const struct naming *n = &namings[b->naming];
    struct kfit_generic *g = &b->generic;
    const char *(*config)(void) = (const char *(*)(void))control(handle, n, "openblas_get_config");
    const char *(*corename)(void) = (const char *(*)(void))control(handle, n, "openblas_get_corename");
    b->threads = (int (*)(void))control(handle, n, "openblas_get_num_threads");
    g->threads = b->threads ? b->threads() : 0;
    if (config) {
        const char *text = config(), *core = corename ? corename() : "";
        snprintf(g->config, sizeof g->config, strstr(text, core) ? "%s" : "%s %s", text, core);
        if (strstr(text, "USE64BITINT")) /* Debian's libopenblas64: 64 bits under the plain names */
            g->int_bits = 64;
    }
}

static void describe(struct kfit_blas *b, const char *path)
{
    const struct naming *n = &namings[b->naming];
    struct kfit_generic *g = &b->generic;
    snprintf(g->path, sizeof g->path, "%s", path);
    snprintf(g->naming, sizeof g->naming, "%s%%s%s", n->before, n->after);
    g->int_bits = n->bits;
    n->describe(b, dlopen(path, RTLD_LAZY | RTLD_NOLOAD)); /* kept: sites hold its functions for good */
}

static const struct kfit_blas *blas_of(const struct object *o, unsigned naming)
{
    if (!o->id)
        return NULL;
    for (unsigned i = 0; i < KFIT_BLAS_MAX; i++) {
        struct kfit_blas *b = &blases[i];
        uint32_t state = __atomic_load_n(&b->state, __ATOMIC_ACQUIRE);
        if (state == READY && b->object == o->id && b->naming == naming)
            return b;
        if (state == EMPTY && __atomic_compare_exchange_n(&b->state, &state, CLAIMED, false, __ATOMIC_ACQUIRE,
                                                          __ATOMIC_RELAXED)) {
            b->index = i;
            b->naming = naming;
            b->object = o->id;
            describe(b, o->path);
            __atomic_store_n(&b->state, READY, __ATOMIC_RELEASE);
            return b;
        }
    }
    return NULL;
}

/* ---- sites ---- */

/* A free place near its hash, or one of the thread's own that serves this call only. */
static struct kfit_site *place(uintptr_t key)
{
    static __thread struct kfit_site spare __attribute__((tls_model("initial-exec")));
    uint32_t at = kfit_site_hash(key);
    for (unsigned i = 0; i < KFIT_SITE_PROBES; i++, at = (at + 1) & (KFIT_SITES - 1)) {
        uintptr_t have = __atomic_load_n(&kfit_sites[at].key, __ATOMIC_RELAXED);
        if ((have == FREE || have == GONE) &&
            __atomic_compare_exchange_n(&kfit_sites[at].key, &have, WRITING, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
            return &kfit_sites[at];
    }
    return &spare;
}

/* Under the linker's lock, so that nothing comes where something went. A caller in no object (generated code) stays: nobody
 * can tell. */
static int forget_gone(struct dl_phdr_info *info, size_t size, void *unused)
{
    static unsigned long long unloads;
    (void)size, (void)unused;
    for (struct kfit_site *s = kfit_sites; info->dlpi_subs != unloads && s < kfit_sites + KFIT_SITES; s++) {
        const uintptr_t key = __atomic_load_n(&s->key, __ATOMIC_ACQUIRE);
        if (key > GONE && s->in_object && !object_of(kfit_site_caller(key)).id)
            __atomic_store_n(&s->key, GONE, __ATOMIC_RELEASE);
    }
    unloads = info->dlpi_subs;
    return 1;
}

static uint32_t any_site;

/* Hooked for this alone: the next library may lie where this one was, with calls in the same places. */
KFIT_HOOKED int dlclose(void *handle)
{
    static void *next;
    void *real = __atomic_load_n(&next, __ATOMIC_RELAXED);
    if (!real)
        __atomic_store_n(&next, real = dlsym(RTLD_NEXT, "dlclose"), __ATOMIC_RELAXED);
    const int failed = ((int (*)(void *))real)(handle);
    if (!failed && __atomic_load_n(&any_site, __ATOMIC_ACQUIRE))
        dl_iterate_phdr(forget_gone, NULL);
    return failed;
}

void kfit_site_fill(struct kfit_site *s, unsigned hook, void *fn, bool inner)
{
    struct object to = object_of(fn);
    const struct kfit_blas *blas = blas_of(&to, naming_of(hook));
    s->fn = fn;
    s->blas = inner || (blas && blas->unfit) ? NULL : blas;
    s->wide = blas && blas->generic.int_bits == 64;
    s->library = blas ? (uint8_t)blas->index : 0;
    if (blas && naming_of(hook) == NAMING_cublas)
        s->fields = blas->cublas.fields;
}

static const struct kfit_site *resolve(unsigned hook, const void *caller)
{
    static const struct kfit_blas nothing = {.state = READY};
    static const struct kfit_site missing = {.blas = &nothing},
                                  missing_wide = {.blas = &nothing, .wide = true},
                                  missing_cuda = {.blas = NULL}; /* nobody to ask about a handle */
    unsigned naming = naming_of(hook);
    struct kfit_manners manners = kfit_manners_begin();
    const struct kfit_site *result = naming >= NAMING_cublas      ? &missing_cuda
                                     : namings[naming].bits == 64 ? &missing_wide
                                                                  : &missing;
    const void *inside = kfit_site_caller(kfit_site_key(hook, caller));
    struct object from = object_of(inside);
    void *fn = find(names[hook], &from);
    if (fn) { /* a missing one is not remembered: its library may be loaded yet */
        bool inner = (from.id == object_of(fn).id && is_hooked(inside)) ||
                     (naming >= NAMING_cublas && is_cublas(&from));
        uintptr_t key = kfit_site_key(hook, caller);
        struct kfit_site *s = place(key);
        kfit_site_fill(s, hook, fn, inner);
        s->in_object = from.id != NULL;
        __atomic_store_n(&s->key, key, __ATOMIC_RELEASE);
        __atomic_store_n(&any_site, 1, __ATOMIC_RELEASE);
        result = s;
    }
    kfit_manners_end(manners);
    return result;
}

const struct kfit_site *kfit_site_far(unsigned hook, const void *caller)
{
    const uintptr_t key = kfit_site_key(hook, caller);
    uint32_t at = kfit_site_hash(key);
    for (unsigned i = 0; i < KFIT_SITE_PROBES; i++, at = (at + 1) & (KFIT_SITES - 1)) {
        const uintptr_t seen = __atomic_load_n(&kfit_sites[at].key, __ATOMIC_ACQUIRE);
        if (seen == key)
            return &kfit_sites[at];
        if (!seen)
            break;
    }
    return resolve(hook, caller);
}
