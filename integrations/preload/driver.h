/* What the parts of the driver level share: the real functions, what follows a call of each hooked one, and what we
 * know of the driver's handles. */
#ifndef KFIT_PRELOAD_DRIVER_H
#define KFIT_PRELOAD_DRIVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "driver_hooks.h"
#include "gpu.h"
#include "kfit/cuda.h"

/* What would be called without us. Never NULL: until the driver is loaded, functions that look for it. They begin with
 * those that are called most, and what each call of these looks at lies before them, in the same cache line. */
struct kfit_driver {
    struct kfit_tables *handles; /* handles.c */
    uint32_t captures;           /* streams of this process that capture, kept by the hooks of begin and end */
#define KFIT_X(symbol, flags, asked, since, params, args, before, after) kfit_cu_result(*symbol) params;
    KFIT_DRIVER_LIST(KFIT_X)
#undef KFIT_X
#define KFIT_X(symbol, params, args) kfit_cu_result(*symbol) params;
    KFIT_DRIVER_QUERIES(KFIT_X)
#undef KFIT_X
};
extern _Alignas(64) struct kfit_driver kfit_driver;

enum { KFIT_STREAM_PER_THREAD = 2 }; /* CU_STREAM_PER_THREAD: one handle for each thread's own */

/* ---- route.c ---- */

struct kfit_found {
    void *(*jump)(void *handle, const char *name); /* NULL: value is the answer */
    void *value;
};
/* Called by dlsym.S. */
struct kfit_found kfit_dlsym(void *handle, const char *name, const void *caller);
void kfit_answered(int r, const char *name, void **out, int version, uint64_t flags);

/* ---- driver.c ---- */
void kfit_loaded(int r, void *const *handle, const void *image);
void kfit_loaded_file(int r, void *const *handle, const char *path);
void kfit_unloading(const void *handle);
void kfit_unloading_all(void);
void kfit_library_module(int r, void *const *module, kfit_cu_library library);
void kfit_kernel_function(int r, const kfit_cu_function *f, kfit_cu_kernel kernel);

/* The trace's entry for a function (or CUkernel) of the current context, and whose trace; NULL: not counted. */
struct kfit_trace_kernel *kfit_kernel_of(kfit_cu_function f, struct kfit_gpu **gpu);
static inline unsigned kfit_launcher(void)
{
    return kfit_library_depth ? KFIT_LAUNCHED_IN_OP : KFIT_LAUNCHED_OTHER;
}

/* ---- image.c ---- */

/* XXH3-64 of an image that the driver has taken: cubin, fat binary or PTX; 0: of no form that says where it ends. Of
 * one larger than KFIT_IMAGE_WHOLE, and of a fat binary, its length and parts of it. */
enum { KFIT_IMAGE_WHOLE = 4 << 20 };
uint64_t kfit_image_hash(const void *image);
uint64_t kfit_image_hash_file(const char *path);

/* ---- graphs.c ---- */
/* into_graph: which someone has already, who may do anything with it. */
void kfit_capture_begun(int r, void *stream, bool into_graph);
/* Before the call that ends one: it is beyond those that there is room for. */
bool kfit_capture_unplaced(void *stream);
void kfit_capture_ended(int r, void *stream, const kfit_cu_graph *graph, bool unplaced);
void kfit_capture_launch(uint64_t id, struct kfit_gpu *gpu, const struct kfit_trace_kernel *k);
/* CUDA_KERNEL_NODE_PARAMS_v2, and the beginning of _v3; the first version ends before `kernel`. */
struct kfit_kernel_node {
    kfit_cu_function f;
    unsigned shape[7];
    void **params, **extra;
    kfit_cu_kernel kernel; /* in place of f */
    kfit_cu_context context;
};
enum { KFIT_NODE_KERNEL = 0, KFIT_NODE_CHILD = 4 };
void kfit_graph_kernel(int r, kfit_cu_graph graph, const void *params, bool has_kernel);
void kfit_graph_child(int r, kfit_cu_graph graph, kfit_cu_graph child);
void kfit_graph_node(int r, kfit_cu_graph graph, const void *params);
void kfit_graph_cloned(int r, const kfit_cu_graph *clone, kfit_cu_graph graph);
void kfit_graph_going(kfit_cu_graph graph);
/* Before and after something is made of a graph, or copied from it. An error is the program's to hear instead. */
int kfit_graph_use(kfit_cu_graph graph);
int kfit_graph_update(kfit_cu_exec exec, kfit_cu_graph graph);
int kfit_graph_use_node(const void *params);
void kfit_graph_used(int r, kfit_cu_graph graph);
void kfit_graph_used_node(int r, const void *params);
/* A program has the handle of a graph that is in another one: what is made of it is not seen. */
void kfit_graph_shown(int r);
void kfit_capture_untied(int r, void *stream, unsigned flags);
/* Before the call that destroys one. */
void kfit_stream_going(void *stream);
/* A slab for what this stream launches in a capture, the same each time; NULL: none. Under the handles' lock. */
char *kfit_capture_slab(uint64_t id, struct kfit_gpu *gpu, void *stream);
void kfit_exec_made(int r, const kfit_cu_exec *exec, kfit_cu_graph graph);
void kfit_exec_going(kfit_cu_exec exec);

/* ---- workspace.c ---- */

/* The next slab of a pool, to keep; NULL: no more. */
char *kfit_slab_take(struct kfit_pool *p);
/* Gives other slabs to all kernels in a graph that have some. */
int kfit_renew_graph(kfit_cu_graph graph);

/* ---- handles.c: what we know of the driver's handles ----
 *
 * Finding takes no lock. All else does, a short one, and is rare; no call of the driver is made under it. All of it
 * lies in memory that a fork wipes: a child has no handles, and no lock held by a thread it does not have. */

enum kfit_handles {
    KFIT_FUNCTIONS,    /* value: struct kfit_trace_kernel */
    KFIT_IMAGES,       /* modules and libraries; value: image hash */
    KFIT_GRAPHS,       /* value: struct kfit_list */
    KFIT_EXECS,        /* value: struct kfit_trace_graph */
    KFIT_BLAS_HANDLES, /* not the driver's; value: struct kfit_gpu */
    KFIT_HANDLES
};
struct kfit_handle { /* half a cache line */
    uint64_t key;
    uint64_t owner; /* goes with it */
    uint64_t value;
    union {
        uint64_t given; /* of executable graphs */
        struct {
            uint32_t gpu;      /* of functions: whose trace it is */
            uint32_t anywhere; /* a CUkernel, which belongs to no context, and has an entry for each GPU more */
        } on;
    };
};
/* Places that went in the midst of chains are never all free again. Where less than a quarter is taken they stay few, however
 * long handles come and go; at a half the free ones run out, and a search for what is not there goes through all. */
enum { KFIT_PLACES_LOG2 = 16, KFIT_PLACES = 1 << KFIT_PLACES_LOG2, KFIT_PLACES_TAKEN = 12 << 10, KFIT_OWNERS_LOG2 = 12 };
struct kfit_tables {
    struct kfit_handle at[KFIT_HANDLES][KFIT_PLACES];
    uint32_t lock;
    uint32_t used[KFIT_HANDLES];
    uint16_t owned[KFIT_HANDLES][1 << KFIT_OWNERS_LOG2]; /* by hash of the owner: most have nothing to look for */
};

static inline uint32_t kfit_handle_place(uint64_t key)
{
    return (uint32_t)(key * 0x9e3779b97f4a7c15u >> (64 - KFIT_PLACES_LOG2));
}

/* Where it is if it stands where its key says, as nearly all do, and its value; else NULL, and kfit_handle_find knows. Read
 * once: a fork in a handler of signals wipes it. */
static inline const struct kfit_handle *kfit_handle_near(enum kfit_handles which, const void *handle, void **value)
{
    const struct kfit_tables *t = __atomic_load_n(&kfit_driver.handles, __ATOMIC_ACQUIRE);
    const uint64_t key = (uint64_t)(uintptr_t)handle;
    const struct kfit_handle *h = t ? &t->at[which][kfit_handle_place(key)] : NULL;
    if (!h || __atomic_load_n(&h->key, __ATOMIC_ACQUIRE) != key)
        return NULL;
    *value = (void *)(uintptr_t)__atomic_load_n(&h->value, __ATOMIC_ACQUIRE);
    return *value ? h : NULL;
}

/* NULL: not known. Valid until the driver's object goes, which is the program's to order. */
const struct kfit_handle *kfit_handle_find(enum kfit_handles which, uint64_t key);
/* Replaces one of the same key. False: no room. */
bool kfit_handle_put(enum kfit_handles which, const struct kfit_handle *h);
/* Takes it out; false: not known. */
bool kfit_handle_take(enum kfit_handles which, uint64_t key, struct kfit_handle *out);
/* Takes out all of an owner, 0: of any. */
void kfit_handle_drop(enum kfit_handles which, uint64_t owner);

/* The lock, for graphs.c; put and take are made inside of it as well. False: no memory. */
bool kfit_handles_lock(void);
void kfit_handles_unlock(void);

static inline uint64_t kfit_handle_key(const void *handle)
{
    return (uint64_t)(uintptr_t)handle;
}

/* ---- served.c ---- */

/* The GPU of a handle of cuBLAS or cuBLASLt is the one that it was made on, says NVIDIA, and so the one it was first used
 * on. That is good enough to count by, and asks nobody; who launches asks first (kfit_gpu_is_current). */
static inline struct kfit_gpu *kfit_gpu_of_handle(const void *handle)
{
    void *gpu;
    return __builtin_expect(kfit_handle_near(KFIT_BLAS_HANDLES, handle, &gpu) != NULL, 1)
               ? gpu
               : kfit_gpu_of_new_handle(handle);
}

/* ---- driver.c, graphs.c: what follows a launch ----
 *
 * The whole of the usual one is in the wrapper itself: each line of code and of data is one that the driver has pushed out
 * of the near caches since the last launch, and costs as much as all the work. */

void kfit_launched_far(int r, kfit_cu_function f, void *stream) __attribute__((cold));
void kfit_exec_launched_far(int r, kfit_cu_exec exec) __attribute__((cold));

static inline __attribute__((always_inline)) void kfit_launched(int r, kfit_cu_function f, void *stream)
{
    void *value;
    const struct kfit_handle *h = kfit_handle_near(KFIT_FUNCTIONS, f, &value);
    if (__builtin_expect(r || !h || __atomic_load_n(&kfit_driver.captures, __ATOMIC_RELAXED) ||
                             (h->on.anywhere && !kfit_gpu_is_current(h->on.gpu)), 0)) {
        kfit_launched_far(r, f, stream);
        return;
    }
    struct kfit_trace_kernel *k = value;
    __atomic_fetch_add(&k->launches[kfit_launcher()], 1, __ATOMIC_RELAXED);
}

/* Never in a capture: that the driver refuses. */
static inline __attribute__((always_inline)) void kfit_exec_launched(int r, kfit_cu_exec exec)
{
    void *value;
    if (__builtin_expect(r || !kfit_handle_near(KFIT_EXECS, exec, &value), 0)) {
        kfit_exec_launched_far(r, exec);
        return;
    }
    struct kfit_trace_graph *g = value;
    __atomic_fetch_add(&g->launches, 1, __ATOMIC_RELAXED);
}

#endif
