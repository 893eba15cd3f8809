/* A GPU that is none: doubles of libcuda.so.1, libcublas and libnvrtc, so that the real worker, judge and runtime run
 * where there is no GPU.
 *
 * Device memory is host memory, streams run at once, a clock of its own advances by what each kernel is said to cost,
 * and known kernels run as C (kernels*.c). NVRTC's double makes an "image": text that names the entries and what they
 * do. What a source does here stands in a comment of it, `// double: do=NAME ns=COST ...`; without one it does what
 * its header's "name", or the entry, says.
 *
 * The file $HOME/kfit-double, lines of "name value", describes the GPU:
 *   gpus 1 · memory BYTES · l2 BYTES · sms N · cc 90 · driver 13000 · smem BYTES · generic_ns COST · generic NAME ·
 *   read_bytes_per_ns N · copy_bytes_per_ns N · flops_per_ns N · uuid N · load PERCENT · others BYTES · nvrtc 1300 · reference wrong · lt none · inner_matmul 1 or 2 · cupti ERROR or lost · generic_kernel_ns N · generic_hidden 1
 * and images may say, each in nanoseconds per launch: ns, plain (outside graphs), again (in processes after the first
 * that loaded it). To a profiler they may lie: kernel (ns), alias (another name), hidden, hiddenagain (as again), twice.
 */
#ifndef KFIT_TEST_DOUBLE_H
#define KFIT_TEST_DOUBLE_H

#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kfit/cuda.h"

#define ENTRIES_MAX 16
#define PARAMS_MAX  24
#define SETS_MAX    64

#define EXPORT __attribute__((visibility("default")))

struct image {
    char arch[16];
    unsigned set_count, entry_count;
    struct {
        char name[24], value[40];
    } set[SETS_MAX];
    struct CUfunc_st {
        struct image *image;
        const struct kernel *kernel;
        struct CUctx_st *context;              /* that it was made for; NULL: any */
        char name[80], params[PARAMS_MAX + 1]; /* params: 'q' 8 bytes, 'i' 4 bytes, 'm' a tensor map */
        int smem_max, non_portable;
    } entry[ENTRIES_MAX];
    unsigned launches;
    bool library;
    struct image *free; /* the next one, last freed first */
    bool again;         /* another process had it before */
};

/* One launch: what a stream runs, and what a graph holds. */
struct call {
    struct CUfunc_st *f;
    struct kfit_cu_launch_config config;
    unsigned cluster;
    bool cooperative, in_graph;
    uint64_t param[PARAMS_MAX];
};

struct kernel {
    const char *name;
    void (*run)(const struct call *);
    double (*cost)(const struct call *); /* NULL: what the image says */
    int launch_error;
};

const struct kernel *kernel_find(const char *name);
const char *image_get(const struct image *i, const char *name, const char *otherwise);
double image_number(const struct image *i, const char *name, double otherwise);

/* Settings of the GPU. */
EXPORT double kfit_double_number(const char *name, double otherwise);
EXPORT const char *kfit_double_text(const char *name, const char *otherwise);
/* A function that no image holds: cuBLAS's double launches it. */
EXPORT kfit_cu_function kfit_double_builtin(const char *name);

/* The last launch as it came, whichever function it came by. */
struct kfit_double_launch {
    const char *symbol;
    const void *config_at; /* cuLaunchKernelEx: the caller's own */
    kfit_cu_function f;
    struct kfit_cu_launch_config config;
    void **params, **extra;
};
EXPORT const struct kfit_double_launch *kfit_double_last_launch(void);
/* Launches in all, of graphs too. */
EXPORT unsigned kfit_double_launches(void);
/* How often anyone asked whether a stream captures. */
EXPORT unsigned kfit_double_capture_queries(void);
/* What cuGetProcAddress of the double answers, without calling it. */
EXPORT void *kfit_double_pointer(const char *name, int version, uint64_t flags);
/* Every name that it knows, NULL after the last. */
EXPORT const char *kfit_double_name(unsigned i);

/* Tells of each launch from now on: name, start and end in ns. */
EXPORT void kfit_double_observe(void (*seen)(const char *name, double start_ns, double end_ns));

/* A kernel that never ends: the stream stays busy from here on. */
void device_hang(void);

#endif
