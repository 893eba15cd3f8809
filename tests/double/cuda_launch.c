#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cuda.h"

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

/* The text in an image: alone, or where a cubin, a fat binary or PTX says. */
static const char *text_of(const char *image)
{
    static const char cubin[] = "\177ELF";
    uint16_t header;
    uint64_t entry;
    if (!memcmp(image, cubin, 4)) {
        memcpy(&entry, image + 24, sizeof entry); /* e_entry */
        return image + entry;
    }
    if (!memcmp(image, "\x50\xed\x55\xba", 4)) {
        memcpy(&header, image + 6, sizeof header);
        return image + header;
    }
    if (!memcmp(image, "\xb1\x43\x62\x46", 4)) {
        const char *fat;
        memcpy(&fat, image + 8, sizeof fat);
        return text_of(fat);
    }
    return *image == '/' ? strchr(image, '\n') + 1 : image;
}

static kfit_cu_result parse(struct image *i, const char *text)
{
    static const char magic[] = "kfit-double 1\n";
    text = text_of(text);
    char name[80], what[64], params[PARAMS_MAX + 1];
    int n;
    if (memcmp(text, magic, sizeof magic - 1))
        return INVALID_IMAGE;
    for (text += sizeof magic - 1; strncmp(text, "end\n", 4); text += n) {
        n = 0;
        if (sscanf(text, "arch %15s\n%n", i->arch, &n) == 1 && n)
            continue;
        if (i->set_count < SETS_MAX &&
            sscanf(text, "set %23s %39s\n%n", i->set[i->set_count].name, i->set[i->set_count].value, &n) ==
                2 &&
            n) {
            i->set_count++;
            continue;
        }
        params[0] = '\0';
        if (i->entry_count == ENTRIES_MAX ||
            sscanf(text, "entry %79s %63s %24s\n%n", name, what, params, &n) < 3 || !n)
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

static struct image *free_images;

kfit_cu_result image_load(struct image **out, const void *data)
{
    char arch[16];
    int cc = (int)kfit_double_number("cc", 90);
    struct image *i = free_images ? free_images : calloc(1, sizeof *i);
    kfit_cu_result r = KFIT_CU_OUT_OF_MEMORY;
    if (i) {
        free_images = i->free;
        memset(i, 0, sizeof *i);
        r = parse(i, data);
    }
    snprintf(arch, sizeof arch, "sm_%d", cc);
    if (!r && strncmp(i->arch, arch, strlen(arch)))
        r = KFIT_CU_NO_BINARY_FOR_GPU;
    if (r)
        image_unload(i);
    else
        *out = i;
    return r;
}

void image_unload(struct image *i)
{
    if (i) {
        i->free = free_images;
        free_images = i;
    }
}

kfit_cu_result cuLibraryLoadData(kfit_cu_library *out, const void *data, int *jit_options, void **jit_values,
                                 unsigned jit_count, int *options, void **values, unsigned count)
{
    struct image *i;
    (void)jit_options, (void)jit_values, (void)jit_count, (void)options, (void)values, (void)count;
    ENTER;
    kfit_cu_result r = image_load(&i, data);
    if (!r) {
        i->library = true;
        *out = (kfit_cu_library)(void *)i;
    }
    return r;
}

kfit_cu_result cuLibraryUnload(kfit_cu_library l)
{
    ENTER_UNCAPTURED;
    image_unload((struct image *)(void *)l);
    return 0;
}

kfit_cu_result cuLibraryGetKernel(kfit_cu_kernel *out, kfit_cu_library l, const char *name)
{
    struct image *i = (struct image *)(void *)l;
    ENTER;
    for (unsigned e = 0; e < i->entry_count; e++)
        if (!strcmp(i->entry[e].name, name))
            return *out = (kfit_cu_kernel)(void *)((char *)&i->entry[e] + 1), 0;
    return NOT_FOUND;
}

kfit_cu_result cuKernelGetFunction(kfit_cu_function *out, kfit_cu_kernel k)
{
    ENTER;
    *out = function_of(k);
    (*out)->context = current;
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
        strcpy(f->params, "qqqqiiiiiiiiiiiiqqq");
    }
    return f;
}

/* ---- launches ---- */

static double cost(const struct call *c)
{
    const struct image *i = c->f->image;
    if (c->f->kernel->cost)
        return c->f->kernel->cost(c);
    double ns = image_number(i, "ns", 1000);
    ns = c->in_graph ? ns : image_number(i, "plain", ns);
    return i && i->again ? image_number(i, "again", ns) : ns;
}

static unsigned launches;

unsigned kfit_double_launches(void)
{
    return launches;
}

static void (*observer)(const char *, double, double);

void kfit_double_observe(void (*seen)(const char *, double, double))
{
    observer = seen;
}

/* What a profiler is told: the truth, or what the image or the settings say instead. */
static void tell(const struct call *c, double start_ns, double ns)
{
    const struct image *i = c->f->image;
    if (!i && kfit_double_number("generic_hidden", 0))
        return;
    if (!i)
        observer("cublas", start_ns, start_ns + kfit_double_number("generic_kernel_ns", ns));
    else if (!image_number(i, "hidden", 0) && !(i->again && image_number(i, "hiddenagain", 0)))
        for (double n = 0; n <= image_number(i, "twice", 0); n++)
            observer(image_get(i, "alias", c->f->name), start_ns, start_ns + image_number(i, "kernel", ns));
}

/* Another user: in some of all 200 us everything takes longer, up to `load` per cent. */
static double beside_others(void)
{
    const double load = kfit_double_number("load", 0);
    if (load <= 0)
        return 1;
    uint64_t z = (uint64_t)(gpu.now_ns / 2e5) * 0x9e3779b97f4a7c15u + (uint64_t)getpid();
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return 1 + load / 100 * (double)(z >> 40) * 0x1p-24;
}

void run_call(const void *arg)
{
    const struct call *c = arg;
    double start_ns = gpu.now_ns, ns = cost(c) * beside_others();
    gpu.now_ns += ns;
    launches++;
    if (observer)
        tell(c, start_ns, ns);
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

static struct kfit_double_launch last;

const struct kfit_double_launch *kfit_double_last_launch(void)
{
    return &last;
}

enum { PROGRAMMATIC = 6 }; /* a launch attribute: may start before the kernel before it ends */

/* handle: of a function or a kernel; stream 0 is the thread's own if `own`. */
static kfit_cu_result launch(const char *symbol, const struct kfit_cu_launch_config *config,
                             const void *handle, void **params, void **extra, bool own)
{
    if (!config)
        return INVALID_VALUE;
    struct CUfunc_st *f = function_of(handle);
    kfit_cu_stream handle_of_stream = !config->stream && own ? (kfit_cu_stream)2 : config->stream;
    const struct CUstream_st *stream = stream_of(handle_of_stream);
    last = (struct kfit_double_launch){symbol,  config, (kfit_cu_function)(uintptr_t)handle,
                                       *config, params, extra};
    ENTER;
    struct call c = {.f = f, .config = *config, .cluster = 1};
    for (unsigned i = 0; i < config->attr_count; i++) {
        const struct kfit_cu_launch_attribute *a = &config->attrs[i];
        if (a->id == KFIT_CU_LAUNCH_CLUSTER)
            c.cluster = a->value.cluster.x * a->value.cluster.y * a->value.cluster.z;
        else if (a->id == KFIT_CU_LAUNCH_COOPERATIVE)
            c.cooperative = a->value.cooperative;
        else if (a->id != PROGRAMMATIC)
            return INVALID_VALUE;
    }
    if ((!is_kernel(handle) && f->context && f->context != current) || (stream && stream->context != current))
        return INVALID_HANDLE;
    kfit_cu_result r = c.cluster ? refuse(&c) : CLUSTER_SIZE;
    if (r)
        return r;
    c.config.attrs = NULL; /* the caller's, like the parameters, only for the call */
    for (unsigned i = 0; f->params[i]; i++)
        memcpy(&c.param[i], params[i], f->params[i] == 'i' ? 4 : 8); /* of a map, its address */
    struct capture *capture = capturing(stream);
    if (capture) {
        struct CUgraphNode_st *made = NULL;
        c.in_graph = true;
        r = capture->broken ? CAPTURE_BROKEN : graph_append(capture->graph, &c, &made);
        capture->last = made;
        return r;
    }
    guarded(run_call, &c); /* an error is the next call's, as on the real thing */
    return 0;
}

kfit_cu_result cuLaunchKernelEx(const struct kfit_cu_launch_config *config, kfit_cu_function f, void **params,
                                void **extra)
{
    return launch("cuLaunchKernelEx", config, f, params, extra, false);
}

kfit_cu_result cuLaunchKernelEx_ptsz(const struct kfit_cu_launch_config *config, kfit_cu_function f,
                                     void **params, void **extra)
{
    return launch("cuLaunchKernelEx_ptsz", config, f, params, extra, true);
}

#define SHAPE (&(struct kfit_cu_launch_config){{gx, gy, gz}, {bx, by, bz}, smem, stream, NULL, 0})

kfit_cu_result cuLaunchKernel(KFIT_LAUNCH_SHAPE, void **params, void **extra)
{
    return launch("cuLaunchKernel", SHAPE, f, params, extra, false);
}

kfit_cu_result cuLaunchKernel_ptsz(KFIT_LAUNCH_SHAPE, void **params, void **extra)
{
    return launch("cuLaunchKernel_ptsz", SHAPE, f, params, extra, true);
}

#define COOPERATIVE                                                                                          \
    (&(struct kfit_cu_launch_config){                                                                        \
        {gx, gy, gz},                                                                                        \
        {bx, by, bz},                                                                                        \
        smem,                                                                                                \
        stream,                                                                                              \
        &(struct kfit_cu_launch_attribute){.id = KFIT_CU_LAUNCH_COOPERATIVE, .value.cooperative = 1},        \
        1})

kfit_cu_result cuLaunchCooperativeKernel(KFIT_LAUNCH_SHAPE, void **params)
{
    return launch("cuLaunchCooperativeKernel", COOPERATIVE, f, params, NULL, false);
}

kfit_cu_result cuLaunchCooperativeKernel_ptsz(KFIT_LAUNCH_SHAPE, void **params)
{
    return launch("cuLaunchCooperativeKernel_ptsz", COOPERATIVE, f, params, NULL, true);
}
