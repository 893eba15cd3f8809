#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "double.h"

/* The driver's own header, made from our list: a definition below that differs does not compile. */
#define KFIT_X(member, symbol, args) EXPORT kfit_cu_result symbol args;
KFIT_CUDA_LIST(KFIT_X)
#undef KFIT_X

enum { INVALID_VALUE = 1, NOT_INITIALIZED = 3, INVALID_IMAGE = 200, NOT_FOUND = 500, CLUSTER_SIZE = 912 };
enum { COOPERATIVE_TOO_LARGE = 720 };
#define GRAIN 4096u

struct CUstream_st {
    struct CUgraph_st *capture;
};
struct CUevent_st {
    bool recorded, never;
    double at_ns;
};
struct CUgraph_st {
    unsigned count, room;
    struct call *call;
};
struct block {
    kfit_cu_ptr at;
    size_t bytes;
    struct block *next;
};

static struct {
    bool ready, current, hung;
    kfit_cu_result sticky;
    double now_ns;
    size_t used;
    struct block *blocks;
    int capturing;
} gpu;

/* ---- settings ---- */

static const char *settings(void)
{
    static char text[4096];
    char path[512];
    if (text[0])
        return text;
    strcpy(text, "\n");
    const char *home = getenv("HOME");
    snprintf(path, sizeof path, "%s/kfit-double", home ? home : "");
    FILE *f = fopen(path, "r");
    if (f) {
        size_t n = fread(text + 1, 1, sizeof text - 2, f);
        text[1 + n] = '\0';
        fclose(f);
    }
    return text;
}

const char *kfit_double_text(const char *name, const char *otherwise)
{
    static char value[64];
    char line[64];
    snprintf(line, sizeof line, "\n%s ", name);
    const char *p = strstr(settings(), line);
    if (!p)
        return otherwise;
    p += strlen(line);
    snprintf(value, sizeof value, "%.*s", (int)strcspn(p, "\n"), p);
    return value;
}

double kfit_double_number(const char *name, double otherwise)
{
    const char *v = kfit_double_text(name, NULL);
    return v ? atof(v) : otherwise;
}

/* ---- faults ---- */

static sigjmp_buf back;
static volatile sig_atomic_t inside; /* device code, or a copy */

static void fault(int number)
{
    if (inside)
        siglongjmp(back, 1);
    signal(number, SIG_DFL); /* somebody else's: let it happen again */
}

static void catch_faults(void)
{
    struct sigaction on = {.sa_handler = fault, .sa_flags = SA_NODEFER};
    sigaction(SIGSEGV, &on, NULL);
    sigaction(SIGBUS, &on, NULL);
}

/* Runs f with a real fault turned into the driver's: the context is lost from then on. */
static void guarded(void (*f)(const void *), const void *arg)
{
    if (gpu.sticky || gpu.hung)
        return;
    inside = 1;
    if (sigsetjmp(back, 0))
        gpu.sticky = KFIT_CU_ILLEGAL_ADDRESS;
    else
        f(arg);
    inside = 0;
}

void device_hang(void)
{
    gpu.hung = true;
}

#define ENTER                                                                                                \
    do {                                                                                                     \
        if (!gpu.ready || !gpu.current)                                                                      \
            return NOT_INITIALIZED;                                                                          \
        if (gpu.sticky)                                                                                      \
            return gpu.sticky;                                                                               \
    } while (0)
/* What would wait for, or change, work that a capture only notes. */
#define ENTER_UNCAPTURED                                                                                     \
    do {                                                                                                     \
        ENTER;                                                                                               \
        if (gpu.capturing)                                                                                   \
            return KFIT_CU_CAPTURING;                                                                                \
    } while (0)

/* ---- the device ---- */

kfit_cu_result cuInit(unsigned flags)
{
    (void)flags;
    gpu.ready = true;
    catch_faults();
    return kfit_double_number("gpus", 1) > 0 ? 0 : KFIT_CU_NO_DEVICE;
}

kfit_cu_result cuDriverGetVersion(int *version)
{
    *version = (int)kfit_double_number("driver", 13000);
    return 0;
}

static const struct {
    int code;
    const char *name, *text;
} errors[] = {
    {0, "CUDA_SUCCESS", "no error"},
    {INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {KFIT_CU_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {KFIT_CU_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {KFIT_CU_NO_BINARY_FOR_GPU, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device"},
    {NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {KFIT_CU_NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    {KFIT_CU_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {KFIT_CU_LAUNCH_OUT_OF_RESOURCES, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch"},
    {KFIT_CU_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {COOPERATIVE_TOO_LARGE, "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE", "too many blocks in cooperative launch"},
    {KFIT_CU_CAPTURING, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "operation not permitted when stream is capturing"},
    {CLUSTER_SIZE, "CUDA_ERROR_INVALID_CLUSTER_SIZE", "cluster misconfiguration"},
};

static kfit_cu_result of_error(kfit_cu_result r, const char **out, bool name)
{
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].code == r)
            return *out = name ? errors[i].name : errors[i].text, 0;
    return *out = NULL, INVALID_VALUE;
}

kfit_cu_result cuGetErrorName(kfit_cu_result r, const char **name)
{
    return of_error(r, name, true);
}

kfit_cu_result cuGetErrorString(kfit_cu_result r, const char **text)
{
    return of_error(r, text, false);
}

kfit_cu_result cuDeviceGetCount(int *count)
{
    *count = (int)kfit_double_number("gpus", 1);
    return gpu.ready ? 0 : NOT_INITIALIZED;
}

kfit_cu_result cuDeviceGet(kfit_cu_device *device, int ordinal)
{
    *device = ordinal;
    return ordinal < kfit_double_number("gpus", 1) ? 0 : 101;
}

kfit_cu_result cuDeviceGetName(char *name, int bytes, kfit_cu_device d)
{
    (void)d;
    snprintf(name, (size_t)bytes, "kfit test double");
    return 0;
}

kfit_cu_result cuDeviceGetUuid_v2(struct kfit_cu_uuid *uuid, kfit_cu_device d)
{
    memset(uuid, 0xd0 + d, sizeof *uuid);
    return 0;
}

kfit_cu_result cuDeviceGetAttribute(int *value, int attribute, kfit_cu_device d)
{
    int cc = (int)kfit_double_number("cc", 90);
    (void)d;
    switch (attribute) {
    case KFIT_CU_ATTR_MULTIPROCESSOR_COUNT: *value = (int)kfit_double_number("sms", 4); return 0;
    case KFIT_CU_ATTR_L2_CACHE_SIZE: *value = (int)kfit_double_number("l2", 65536); return 0;
    case KFIT_CU_ATTR_COMPUTE_CAPABILITY_MAJOR: *value = cc / 10; return 0;
    case KFIT_CU_ATTR_COMPUTE_CAPABILITY_MINOR: *value = cc % 10; return 0;
    case KFIT_CU_ATTR_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: *value = (int)kfit_double_number("smem", 232448); return 0;
    default: return INVALID_VALUE;
    }
}

static size_t memory(void)
{
    return (size_t)kfit_double_number("memory", 4e9);
}

kfit_cu_result cuDeviceTotalMem_v2(size_t *bytes, kfit_cu_device d)
{
    (void)d;
    *bytes = memory();
    return 0;
}

kfit_cu_result cuDevicePrimaryCtxRetain(kfit_cu_context *context, kfit_cu_device d)
{
    (void)d;
    *context = (kfit_cu_context)(void *)&gpu;
    return gpu.ready ? 0 : NOT_INITIALIZED;
}

kfit_cu_result cuDevicePrimaryCtxRelease_v2(kfit_cu_device d)
{
    (void)d;
    return 0;
}

kfit_cu_result cuCtxSetCurrent(kfit_cu_context context)
{
    gpu.current = (void *)context == (void *)&gpu;
    return gpu.sticky;
}

/* Nothing runs later than the call that asked for it, except what never ends. */
static kfit_cu_result wait_for_all(void)
{
    ENTER_UNCAPTURED;
    while (gpu.hung)
        pause();
    return 0;
}

kfit_cu_result cuCtxSynchronize(void)
{
    return wait_for_all();
}

kfit_cu_result cuCtxResetPersistingL2Cache(void)
{
    ENTER;
    return 0;
}

/* ---- memory ---- */

static kfit_cu_result take(size_t bytes)
{
    if (gpu.used + bytes > memory())
        return KFIT_CU_OUT_OF_MEMORY;
    gpu.used += bytes;
    return 0;
}

static kfit_cu_result note(kfit_cu_ptr at, size_t bytes)
{
    struct block *b = malloc(sizeof *b);
    if (!b)
        return KFIT_CU_OUT_OF_MEMORY;
    *b = (struct block){at, bytes, gpu.blocks};
    gpu.blocks = b;
    return 0;
}

static size_t forget(kfit_cu_ptr at)
{
    for (struct block **b = &gpu.blocks; *b; b = &(*b)->next)
        if ((*b)->at == at) {
            struct block *gone = *b;
            size_t bytes = gone->bytes;
            *b = gone->next;
            free(gone);
            return bytes;
        }
    return 0;
}

static void *map(void *at, size_t bytes, int prot)
{
    void *p = mmap(at, bytes, prot, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (at ? MAP_FIXED : 0), -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    if (bytes >= 64 << 20)
        madvise(p, bytes, MADV_HUGEPAGE); /* the judge's bound takes half a gigabyte */
    return p;
}

kfit_cu_result cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
    ENTER;
    *total = memory();
    *free_bytes = *total - gpu.used;
    return 0;
}

kfit_cu_result cuMemAlloc_v2(kfit_cu_ptr *out, size_t bytes)
{
    ENTER_UNCAPTURED;
    if (!bytes)
        return INVALID_VALUE;
    kfit_cu_result r = take(bytes);
    void *p = r ? NULL : map(NULL, bytes, PROT_READ | PROT_WRITE);
    if (!p)
        return KFIT_CU_OUT_OF_MEMORY;
    *out = (kfit_cu_ptr)(uintptr_t)p;
    return note(*out, bytes);
}

kfit_cu_result cuMemFree_v2(kfit_cu_ptr p)
{
    ENTER_UNCAPTURED;
    if (!p)
        return 0;
    size_t bytes = forget(p);
    if (!bytes)
        return INVALID_VALUE;
    gpu.used -= bytes;
    munmap((void *)(uintptr_t)p, bytes);
    return 0;
}

struct move {
    void *dst;
    const void *src;
    size_t bytes;
    uint32_t word;
};

static void move(const void *arg)
{
    const struct move *m = arg;
    if (m->src)
        memcpy(m->dst, m->src, m->bytes);
    uint32_t *word = m->dst;
    for (size_t i = 0, n = m->src ? 0 : m->bytes / 4; i < n; i++)
        word[i] = m->word;
}

static kfit_cu_result moved(const struct move *m)
{
    ENTER_UNCAPTURED;
    guarded(move, m);
    return 0;
}

static void *at(kfit_cu_ptr p)
{
    return (void *)(uintptr_t)p;
}

kfit_cu_result cuMemcpy(kfit_cu_ptr dst, kfit_cu_ptr src, size_t bytes)
{
    kfit_cu_result r = wait_for_all();
    if (!r)
        r = moved(&(struct move){at(dst), at(src), bytes, 0});
    return r ? r : gpu.sticky; /* it waits, so the error is its own */
}

kfit_cu_result cuMemcpyHtoDAsync_v2(kfit_cu_ptr dst, const void *src, size_t bytes, kfit_cu_stream s)
{
    (void)s;
    return moved(&(struct move){at(dst), src, bytes, 0});
}

kfit_cu_result cuMemcpyDtoHAsync_v2(void *dst, kfit_cu_ptr src, size_t bytes, kfit_cu_stream s)
{
    (void)s;
    return moved(&(struct move){dst, at(src), bytes, 0});
}

kfit_cu_result cuMemcpyDtoDAsync_v2(kfit_cu_ptr dst, kfit_cu_ptr src, size_t bytes, kfit_cu_stream s)
{
    (void)s;
    return moved(&(struct move){at(dst), at(src), bytes, 0});
}

kfit_cu_result cuMemsetD32Async(kfit_cu_ptr dst, unsigned value, size_t count, kfit_cu_stream s)
{
    (void)s;
    return dst & 3 ? INVALID_VALUE : moved(&(struct move){at(dst), NULL, 4 * count, value});
}

/* ---- address space and memory apart: what is reserved but not mapped faults ---- */

kfit_cu_result cuMemGetAllocationGranularity(size_t *bytes, const struct kfit_cu_mem_prop *p, int option)
{
    (void)p, (void)option;
    *bytes = GRAIN;
    return 0;
}

kfit_cu_result cuMemAddressReserve(kfit_cu_ptr *out, size_t bytes, size_t alignment, kfit_cu_ptr hint,
                                   unsigned long long flags)
{
    (void)alignment, (void)hint, (void)flags;
    ENTER;
    void *p = bytes % GRAIN ? NULL : map(NULL, bytes, PROT_NONE);
    *out = (kfit_cu_ptr)(uintptr_t)p;
    return p ? note(*out, bytes) : INVALID_VALUE;
}

kfit_cu_result cuMemAddressFree(kfit_cu_ptr p, size_t bytes)
{
    if (forget(p) != bytes)
        return INVALID_VALUE;
    munmap(at(p), bytes);
    return 0;
}

/* A handle is the number of its bytes. */
kfit_cu_result cuMemCreate(kfit_cu_mem *out, size_t bytes, const struct kfit_cu_mem_prop *p, unsigned long long flags)
{
    (void)flags;
    ENTER;
    if (bytes % GRAIN || p->type != 1 || p->location.type != 1)
        return INVALID_VALUE;
    *out = bytes;
    return take(bytes);
}

kfit_cu_result cuMemRelease(kfit_cu_mem m)
{
    gpu.used -= m;
    return 0;
}

kfit_cu_result cuMemMap(kfit_cu_ptr p, size_t bytes, size_t offset, kfit_cu_mem m, unsigned long long flags)
{
    (void)flags;
    ENTER;
    return offset + bytes <= m && map(at(p), bytes, PROT_NONE) ? 0 : INVALID_VALUE;
}

kfit_cu_result cuMemUnmap(kfit_cu_ptr p, size_t bytes)
{
    return map(at(p), bytes, PROT_NONE) ? 0 : INVALID_VALUE;
}

kfit_cu_result cuMemSetAccess(kfit_cu_ptr p, size_t bytes, const struct kfit_cu_mem_access *a, size_t n)
{
    ENTER;
    return n == 1 && a->flags == 3 && !mprotect(at(p), bytes, PROT_READ | PROT_WRITE) ? 0 : INVALID_VALUE;
}

/* ---- images ---- */

const char *image_get(const struct image *i, const char *name, const char *otherwise)
{
    for (unsigned s = 0; i && s < i->set_count; s++)
        if (!strcmp(i->set[s].name, name))
            return i->set[s].value;
    return otherwise;
}

double image_number(const struct image *i, const char *name, double otherwise)
{
    const char *v = image_get(i, name, NULL);
    return v ? atof(v) : otherwise;
}

/* Was an image with this entry loaded by another process before? The first leaves its number in $HOME. */
static bool seen_before(const char *entry)
{
    char path[512], text[32] = "";
    snprintf(path, sizeof path, "%s/seen-%s", getenv("HOME") ? getenv("HOME") : "", entry);
    FILE *f = fopen(path, "r");
    if (f) {
        bool other = fgets(text, sizeof text, f) && atol(text) != (long)getpid();
        fclose(f);
        return other;
    }
    f = fopen(path, "w");
    if (f) {
        fprintf(f, "%ld\n", (long)getpid());
        fclose(f);
    }
    return false;
}

static kfit_cu_result parse(struct image *i, const char *text)
{
    static const char magic[] = "kfit-double 1\n";
    char name[80], what[64], params[PARAMS_MAX + 1];
    int n;
    if (memcmp(text, magic, sizeof magic - 1))
        return INVALID_IMAGE;
    for (text += sizeof magic - 1; strncmp(text, "end\n", 4); text += n) {
        n = 0;
        if (sscanf(text, "arch %15s\n%n", i->arch, &n) == 1 && n)
            continue;
        if (i->set_count < SETS_MAX &&
            sscanf(text, "set %23s %39s\n%n", i->set[i->set_count].name, i->set[i->set_count].value, &n) == 2 && n) {
            i->set_count++;
            continue;
        }
        params[0] = '\0';
        if (i->entry_count == ENTRIES_MAX || sscanf(text, "entry %79s %63s %16s\n%n", name, what, params, &n) < 3 || !n)
            return INVALID_IMAGE;
        struct CUfunc_st *f = &i->entry[i->entry_count++];
        f->image = i;
        f->kernel = kernel_find(what);
        f->smem_max = 49152;
        strcpy(f->name, name);
        strcpy(f->params, params);
        if (!f->kernel)
            return INVALID_IMAGE;
        i->again |= image_get(i, "again", NULL) && seen_before(name);
    }
    return 0;
}

kfit_cu_result cuLibraryLoadData(kfit_cu_library *out, const void *data, int *jit_options, void **jit_values,
                                 unsigned jit_count, int *options, void **values, unsigned count)
{
    char arch[16];
    int cc = (int)kfit_double_number("cc", 90);
    (void)jit_options, (void)jit_values, (void)jit_count, (void)options, (void)values, (void)count;
    ENTER_UNCAPTURED;
    struct image *i = calloc(1, sizeof *i);
    kfit_cu_result r = i ? parse(i, data) : KFIT_CU_OUT_OF_MEMORY;
    snprintf(arch, sizeof arch, "sm_%d", cc);
    if (!r && strncmp(i->arch, arch, strlen(arch)))
        r = KFIT_CU_NO_BINARY_FOR_GPU;
    if (r)
        free(i);
    else
        *out = (kfit_cu_library)(void *)i;
    return r;
}

kfit_cu_result cuLibraryUnload(kfit_cu_library l)
{
    ENTER_UNCAPTURED;
    free((void *)l);
    return 0;
}

kfit_cu_result cuLibraryGetKernel(kfit_cu_kernel *out, kfit_cu_library l, const char *name)
{
    struct image *i = (struct image *)(void *)l;
    ENTER;
    for (unsigned e = 0; e < i->entry_count; e++)
        if (!strcmp(i->entry[e].name, name))
            return *out = (kfit_cu_kernel)(void *)&i->entry[e], 0;
    return NOT_FOUND;
}

kfit_cu_result cuKernelGetFunction(kfit_cu_function *out, kfit_cu_kernel k)
{
    ENTER;
    *out = (kfit_cu_function)(void *)k;
    return 0;
}

kfit_cu_result cuFuncGetAttribute(int *value, int attribute, kfit_cu_function f)
{
    ENTER;
    *value = attribute == KFIT_CU_FUNC_MAX_DYNAMIC_SHARED ? f->smem_max : 0;
    return 0;
}

kfit_cu_result cuFuncSetAttribute(kfit_cu_function f, int attribute, int value)
{
    ENTER;
    if (attribute == KFIT_CU_FUNC_NON_PORTABLE_CLUSTER)
        return f->non_portable = value, 0;
    if (attribute != KFIT_CU_FUNC_MAX_DYNAMIC_SHARED || value > kfit_double_number("smem", 232448))
        return INVALID_VALUE;
    f->smem_max = value;
    return 0;
}

kfit_cu_function kfit_double_builtin(const char *name)
{
    struct CUfunc_st *f = calloc(1, sizeof *f);
    if (f) {
        f->kernel = kernel_find(name);
        f->smem_max = 49152;
        strcpy(f->params, "qqqiiiiiiiiiii");
    }
    return f;
}

/* ---- streams, launches, graphs ---- */

static double cost(const struct call *c)
{
    const struct image *i = c->f->image;
    if (c->f->kernel->cost)
        return c->f->kernel->cost(c);
    double ns = image_number(i, "ns", 1000);
    ns = c->in_graph ? ns : image_number(i, "plain", ns);
    return i && i->again ? image_number(i, "again", ns) : ns;
}

static void run(const void *arg)
{
    const struct call *c = arg;
    gpu.now_ns += cost(c);
    if (c->f->image)
        c->f->image->launches++;
    c->f->kernel->run(c);
}

/* What a real launch refuses. */
static kfit_cu_result refuse(const struct call *c)
{
    const struct kfit_cu_launch_config *k = &c->config;
    unsigned threads = k->block[0] * k->block[1] * k->block[2], blocks = k->grid[0] * k->grid[1] * k->grid[2];
    if (!threads || !blocks || threads > 1024 || (int)k->smem_bytes > c->f->smem_max)
        return INVALID_VALUE;
    if (c->cluster > (c->f->non_portable ? 16u : 8u) || blocks % c->cluster)
        return CLUSTER_SIZE;
    if (c->cooperative && blocks > kfit_double_number("sms", 4) * (2048 / threads))
        return COOPERATIVE_TOO_LARGE;
    return c->f->kernel->launch_error;
}

static kfit_cu_result append(struct CUgraph_st *g, const struct call *c)
{
    if (g->count == g->room) {
        unsigned room = g->room ? 2 * g->room : 64;
        struct call *more = realloc(g->call, room * sizeof *more);
        if (!more)
            return KFIT_CU_OUT_OF_MEMORY;
        g->call = more;
        g->room = room;
    }
    g->call[g->count++] = *c;
    return 0;
}

kfit_cu_result cuLaunchKernelEx(const struct kfit_cu_launch_config *config, kfit_cu_function f, void **params,
                                void **extra)
{
    (void)extra;
    ENTER;
    struct call c = {.f = f, .config = *config, .cluster = 1};
    for (unsigned i = 0; i < config->attr_count; i++) {
        const struct kfit_cu_launch_attribute *a = &config->attrs[i];
        if (a->id == KFIT_CU_LAUNCH_CLUSTER)
            c.cluster = a->value.cluster.x * a->value.cluster.y * a->value.cluster.z;
        else if (a->id == KFIT_CU_LAUNCH_COOPERATIVE)
            c.cooperative = a->value.cooperative;
        else
            return INVALID_VALUE;
    }
    kfit_cu_result r = c.cluster ? refuse(&c) : CLUSTER_SIZE;
    if (r)
        return r;
    c.config.attrs = NULL; /* the caller's, like the parameters, only for the call */
    for (unsigned i = 0; f->params[i]; i++)
        memcpy(&c.param[i], params[i], f->params[i] == 'q' ? 8 : 4);
    if (config->stream && config->stream->capture) {
        c.in_graph = true;
        return append(config->stream->capture, &c);
    }
    guarded(run, &c); /* an error is the next call's, as on the real thing */
    return 0;
}

kfit_cu_result cuStreamCreate(kfit_cu_stream *out, unsigned flags)
{
    (void)flags;
    ENTER;
    *out = calloc(1, sizeof **out);
    return *out ? 0 : KFIT_CU_OUT_OF_MEMORY;
}

kfit_cu_result cuStreamDestroy_v2(kfit_cu_stream s)
{
    free(s);
    return 0;
}

kfit_cu_result cuStreamSynchronize(kfit_cu_stream s)
{
    (void)s;
    return wait_for_all();
}

kfit_cu_result cuStreamQuery(kfit_cu_stream s)
{
    (void)s;
    ENTER_UNCAPTURED;
    return gpu.hung ? KFIT_CU_NOT_READY : 0;
}

kfit_cu_result cuStreamBeginCapture_v2(kfit_cu_stream s, int mode)
{
    (void)mode;
    ENTER_UNCAPTURED;
    s->capture = calloc(1, sizeof *s->capture);
    gpu.capturing += s->capture != NULL;
    return s->capture ? 0 : KFIT_CU_OUT_OF_MEMORY;
}

kfit_cu_result cuStreamEndCapture(kfit_cu_stream s, kfit_cu_graph *out)
{
    ENTER;
    if (!s->capture)
        return INVALID_VALUE;
    *out = s->capture;
    s->capture = NULL;
    gpu.capturing--;
    return 0;
}

kfit_cu_result cuGraphDestroy(kfit_cu_graph g)
{
    free(g->call);
    free(g);
    return 0;
}

kfit_cu_result cuGraphInstantiateWithFlags(kfit_cu_exec *out, kfit_cu_graph g, unsigned long long flags)
{
    (void)flags;
    ENTER;
    struct CUgraph_st *copy = calloc(1, sizeof *copy);
    kfit_cu_result r = copy ? 0 : KFIT_CU_OUT_OF_MEMORY;
    for (unsigned i = 0; !r && i < g->count; i++)
        r = append(copy, &g->call[i]);
    *out = (kfit_cu_exec)(void *)copy;
    return r;
}

#ifndef OLD_DRIVER
kfit_cu_result cuGraphUpload(kfit_cu_exec e, kfit_cu_stream s)
{
    (void)e, (void)s;
    ENTER_UNCAPTURED;
    return 0;
}
#endif

kfit_cu_result cuGraphLaunch(kfit_cu_exec e, kfit_cu_stream s)
{
    const struct CUgraph_st *g = (const struct CUgraph_st *)(void *)e;
    (void)s;
    ENTER_UNCAPTURED;
    for (unsigned i = 0; i < g->count; i++)
        guarded(run, &g->call[i]);
    return 0;
}

kfit_cu_result cuGraphExecDestroy(kfit_cu_exec e)
{
    return cuGraphDestroy((kfit_cu_graph)(void *)e);
}

/* ---- events ---- */

kfit_cu_result cuEventCreate(kfit_cu_event *out, unsigned flags)
{
    (void)flags;
    ENTER;
    *out = calloc(1, sizeof **out);
    return *out ? 0 : KFIT_CU_OUT_OF_MEMORY;
}

kfit_cu_result cuEventDestroy_v2(kfit_cu_event e)
{
    free(e);
    return 0;
}

kfit_cu_result cuEventRecord(kfit_cu_event e, kfit_cu_stream s)
{
    (void)s;
    ENTER_UNCAPTURED;
    *e = (struct CUevent_st){true, gpu.hung, gpu.now_ns};
    return 0;
}

kfit_cu_result cuEventQuery(kfit_cu_event e)
{
    ENTER_UNCAPTURED;
    return e->never ? KFIT_CU_NOT_READY : 0;
}

kfit_cu_result cuEventSynchronize(kfit_cu_event e)
{
    ENTER_UNCAPTURED;
    while (e->never)
        pause();
    return 0;
}

kfit_cu_result cuEventElapsedTime(float *ms, kfit_cu_event start, kfit_cu_event end)
{
    ENTER_UNCAPTURED;
    if (!start->recorded || !end->recorded)
        return INVALID_VALUE;
    if (end->never)
        return KFIT_CU_NOT_READY;
    *ms = (float)((end->at_ns - start->at_ns) * 1e-6);
    return 0;
}
