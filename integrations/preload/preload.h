/* What the parts of the shim share. A call comes in through entries.S, or as a call of cuBLAS (cublas.c, cublaslt.c),
 * finds its site (original.c), is offered to a dispatcher (hooks.c, served.c, start.c), and otherwise goes on to the
 * original as it came. */
#ifndef KFIT_PRELOAD_H
#define KFIT_PRELOAD_H

#include <stdbool.h>
#include <stdint.h>

#include "cublas.h"
#include "driver.h"
#include "hooks.h"
#include "kfit/dispatch.h"

enum kfit_hook {
#define KFIT_Y(function, interface, operation, type, kfit_type) KFIT_HOOK_##function,
    KFIT_HOOK_LIST(KFIT_Y)
#undef KFIT_Y
        KFIT_HOOK_COUNT, /* of those that have an entry in entries.S */
    KFIT_HOOK_BEFORE_CUDA = KFIT_HOOK_COUNT - 1,
#define KFIT_Y(function, file, arguments) KFIT_HOOK_##function,
    KFIT_CUDA_HOOK_LIST(KFIT_Y)
#undef KFIT_Y
        KFIT_HOOKS
};

/* ---- original.c: which function would have been called without us ---- */

/* A BLAS of this process under one naming pattern, or NVIDIA's. Never freed: sites point to it. */
struct kfit_blas {
    uint32_t state;     /* EMPTY, CLAIMED, READY */
    unsigned index;     /* its place in the table */
    unsigned naming;    /* row of original.c's table */
    const void *object; /* the loaded file, by its program headers */
    bool unfit;         /* lacks what we must ask it: its calls pass on, uncounted */
    union {
        int (*threads)(void); /* NULL: not known */
        struct kfit_cublas cublas;
        struct kfit_cublaslt lt;
    };
    struct kfit_generic generic;
};

/* One place that calls one hooked function. Written once, then constant until its caller is unloaded. One cache line, with
 * a copy of what a call needs of its library. */
struct kfit_site {
    _Alignas(64) uintptr_t key;   /* return address and hook; 0 free, 1 being written, 2 gone */
    void *fn;                     /* the original; NULL: there is none, compute it here */
    const struct kfit_blas *blas; /* NULL: a BLAS calling itself (or one too many): pass on, do not count */
    bool wide;                    /* integers are 64 bits */
    bool in_object;               /* the caller is in one, which may be unloaded */
    uint8_t library;              /* blas->index */
    struct kfit_cublas_fields fields; /* blas->cublas.fields, of a site of cuBLAS */
};
_Static_assert(sizeof(struct kfit_site) == 64, "one cache line");

#define KFIT_SITES_LOG2  12
#define KFIT_SITES       (1u << KFIT_SITES_LOG2)
#define KFIT_SITE_PROBES 16
extern struct kfit_site kfit_sites[KFIT_SITES];

static inline uintptr_t kfit_site_key(unsigned hook, const void *caller)
{
    return (uintptr_t)caller << 6 | hook;
}
_Static_assert(KFIT_HOOKS <= 64, "kfit_site_key");

/* The call itself, not what follows it. */
static inline const void *kfit_site_caller(uintptr_t key)
{
    return (const void *)((key >> 6) - 1);
}

static inline uint32_t kfit_site_hash(uintptr_t key)
{
    return (uint32_t)(key * 0x9e3779b97f4a7c15u >> (64 - KFIT_SITES_LOG2));
}

/* One that does not stand where its hash says. Seen for the first time, its original is found; microseconds. Never NULL. */
const struct kfit_site *kfit_site_far(unsigned hook, const void *caller) __attribute__((cold));

static inline const struct kfit_site *kfit_site_find(unsigned hook, const void *caller)
{
    const uintptr_t key = kfit_site_key(hook, caller);
    const struct kfit_site *s = &kfit_sites[kfit_site_hash(key)];
    return __builtin_expect(__atomic_load_n(&s->key, __ATOMIC_ACQUIRE) == key, 1) ? s : kfit_site_far(hook, caller);
}

/* Fills in all of s but its key. inner: the call of a library that calls itself. */
void kfit_site_fill(struct kfit_site *s, unsigned hook, void *fn, bool inner);

/* A function that nobody hooks, of any loaded object; NULL: nowhere. Microseconds. */
void *kfit_find_loaded(const char *name);
/* The file that holds it; "" for the program. */
const char *kfit_path_of(const void *address);
/* Whether `asker`, an address in its code, takes fn from another library than its own, and is not cuBLAS. */
bool kfit_takes(const void *asker, const void *fn);

/* ---- handed.c: cuBLAS by dlsym ---- */

/* The row of KFIT_CUDA_HOOK_LIST as a hook; 0: not one of them. */
unsigned kfit_cuda_hook_of(const char *name);
/* What dlsym answers in place of `real`: an entry whose original that is, or `real` itself. */
void *kfit_hand_out(unsigned hook, void *real, const void *asker);
/* The site of entry k. Never NULL. */
const struct kfit_site *kfit_handed_site(unsigned hook, unsigned k);

/* ---- cublas.c, cublaslt.c ---- */

#define KFIT_HOOKED                       __attribute__((visibility("default"), noinline))
#define KFIT_Y(function, file, arguments) KFIT_HOOKED KFIT_HOT int function arguments;
KFIT_CUDA_HOOK_LIST(KFIT_Y)
#undef KFIT_Y
#define KFIT_Z(k, declaration)            int kfit_handed##k##_##declaration;
#define KFIT_Y(function, file, arguments) KFIT_HANDED_LIST(KFIT_Z, function arguments)
KFIT_CUDA_HOOK_LIST(KFIT_Y)
#undef KFIT_Y
#undef KFIT_Z

/* A function's site, in its exported form and in entry k of those handed out. */
#define KFIT_BY_CALLER(function, k) kfit_site_find(KFIT_HOOK_##function, __builtin_return_address(0))
#define KFIT_BY_ENTRY(function, k)  kfit_handed_site(KFIT_HOOK_##function, k)

/* What the caller of a CUDA function is served with, if at all. handle: of the function's library. */
static inline struct kfit_gpu *kfit_call_begin(const struct kfit_site *site, const void *handle)
{
    if (kfit_library_depth || !site->blas)
        return NULL;
    struct kfit_gpu *gpu = kfit_gpu_of_handle(handle);
    if (gpu) /* on its way while the call is read */
        __builtin_prefetch(gpu->dispatcher);
    return gpu;
}

/* A library that this GPU's trace has not met: its index there + 1; 0: there is no trace. */
uint32_t kfit_meet_library(struct kfit_gpu *gpu, const struct kfit_site *site) __attribute__((cold));
/* A call that is not just counted. x: what was decided; NULL: nothing, as something captures. */
bool kfit_call_far(struct kfit_gpu *gpu, const struct kfit_site *site, const union kfit_key *key, const void *const args[],
                   const cublas_stream *stream, const void *handle, uint32_t generic, struct kfit_decision *x);

/* Offers a call to the dispatcher. True: launched, the caller returns success. stream: NULL: the handle's own, which is asked
 * for only where it matters: where anything captures, or a kernel is about to run. */
static inline __attribute__((always_inline)) bool kfit_call_offer(struct kfit_gpu *gpu, const struct kfit_site *site,
                                                                  const union kfit_key *key, const void *const args[],
                                                                  const cublas_stream *stream, const void *handle)
{
    struct kfit_decision x;
    uint32_t generic = __atomic_load_n(&gpu->generic[site->library], __ATOMIC_RELAXED);
    if (__builtin_expect(!generic, 0) && !(generic = kfit_meet_library(gpu, site)))
        return false;
    if (__builtin_expect(__atomic_load_n(&kfit_driver.captures, __ATOMIC_RELAXED) != 0, 0))
        return kfit_call_far(gpu, site, key, args, stream, handle, generic - 1, NULL);
    return !kfit_dispatch_passes(gpu->dispatcher, key, generic - 1, &x) &&
           kfit_call_far(gpu, site, key, args, stream, handle, generic - 1, &x);
}

/* ---- start.c: whether we serve at all ---- */

/* What this process does with calls of one device. A forked child goes on with it: the dispatcher sees the fork
 * itself. */
struct kfit_server {
    struct kfit_dispatcher *dispatcher; /* NULL until started */
    bool off;                           /* for good */
    bool dispatching;
    int threads;                     /* host: of the BLAS, as in the environment */
    int32_t starter;                 /* pid of the process that starts or has started; 0: nobody yet */
    uint32_t missed;                 /* calls that came while starting, not yet counted */
    uint32_t generic[KFIT_BLAS_MAX]; /* index in the trace + 1; 0: not asked yet */
};
enum {
    KFIT_SERVER_HOST,
    KFIT_SERVER_GPU,
    KFIT_SERVERS = KFIT_SERVER_GPU + KFIT_GPUS_MAX
}; /* GPU + its ordinal */
extern struct kfit_server kfit_servers[KFIT_SERVERS];

/* What a server has to be told of its device. */
struct kfit_surroundings {
    struct kfit_env env;
    char suffix[16];  /* of the trace's name; "": none */
    const char *hold; /* kfit_dispatcher_params.hold */
};

/* The dispatcher of s, or NULL: off, or another thread is starting just now. In the thread that starts it, and only if
 * the environment does not say off, `look` fills in what the dispatcher is told. count: this is
 * a call, which is counted once there is where if another thread is starting. */
struct kfit_dispatcher *kfit_serve(struct kfit_server *s,
                                   void (*look)(struct kfit_server *s, struct kfit_surroundings *o,
                                                const void *ctx),
                                   const void *ctx, bool count);

/* Whether the environment asks for anything at all; read once. */
bool kfit_asked(void);

/* A variable of the environment, NULL if it is unset or empty, or not ours to heed (setuid). */
const char *kfit_variable(const char *name);

/* Where the trace keeps this library; false if there is no trace. */
bool kfit_note_generic(struct kfit_server *s, struct kfit_dispatcher *d, const struct kfit_blas *blas,
                       uint32_t *index);
static inline bool kfit_generic_of(struct kfit_server *s, struct kfit_dispatcher *d,
                                   const struct kfit_blas *blas, uint32_t *index)
{
    uint32_t known = __atomic_load_n(&s->generic[blas->index], __ATOMIC_RELAXED);
    *index = known - 1;
    return __builtin_expect(known, 1) || kfit_note_generic(s, d, blas, index);
}

/* ---- what a guest must not leave behind: errno, cancellation in the middle of our work, dlerror ---- */

struct kfit_manners {
    int error, cancel;
};
struct kfit_manners kfit_manners_begin(void);
void kfit_manners_end(struct kfit_manners m);

/* ---- hooks.c, reference.c ---- */

struct frame;
const void *kfit_hooked(const struct frame *f, unsigned hook);

/* The plain definition, for a call that has no original. Strides may be negative. */
void kfit_reference_gemm(const struct kfit_gemm_call *call);

#endif
