/* driver_calls WAY SCENE [ARG]...: calls the driver as programs do, and checks what each call gives; what was counted is
 * the trace's to say. WAY is how the functions are found:
 *   linked   by the dynamic linker (driver_linked: compiled with LINKED, and linked with libcuda)
 *   dlsym    from libcuda's handle         proc11, proc12   from cuGetProcAddress, itself asked for its newest form
 *   own      as dlsym, and stream 0 is the thread's own (the _ptsz forms) */
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "driver_calls.h"

struct functions cu;
void *libcuda;
kfit_cu_stream stream, second;

/* ---- finding ---- */

static void *must(void *p, const char *name)
{
    if (!p) {
        fprintf(stderr, "no %s: %s\n", name, dlerror());
        exit(1);
    }
    return p;
}

#ifdef LINKED
#define X(symbol, flags, asked, since, params, args, before, after) kfit_cu_result symbol params;
KFIT_DRIVER_LIST(X)
#undef X

static void find(const char *way)
{
    (void)way;
#define X(symbol, flags, asked, since, params, args, before, after) cu.symbol = symbol;
    KFIT_DRIVER_LIST(X)
#undef X
}
#else
static void find(const char *way)
{
    kfit_cu_result (*ask4)(const char *, void **, int, uint64_t) = NULL;
    kfit_cu_result (*ask5)(const char *, void **, int, uint64_t, int *) = NULL;
    int found;
    if (!strcmp(way, "proc12")) {
        *(void **)&ask5 = must(dlsym(libcuda, "cuGetProcAddress_v2"), "cuGetProcAddress_v2");
        OK(ask5("cuGetProcAddress", (void **)&ask5, 12000, 0, &found));
    } else if (!strcmp(way, "proc11")) {
        *(void **)&ask4 = must(dlsym(libcuda, "cuGetProcAddress"), "cuGetProcAddress");
        OK(ask4("cuGetProcAddress", (void **)&ask4, 11030, 0));
    }
#define X(symbol, flags, asked, since, params, args, before, after)                                          \
    if (ask5)                                                                                                \
        OK(ask5(#asked, (void **)&cu.symbol, since, flags, &found));                                         \
    else if (ask4)                                                                                           \
        OK(ask4(#asked, (void **)&cu.symbol, since, flags));                                                 \
    else                                                                                                     \
        *(void **)&cu.symbol = must(dlsym(libcuda, #symbol), #symbol);
    KFIT_DRIVER_LIST(X)
#undef X
    if (!strcmp(way, "own")) {
        cu.cuLaunchKernel = cu.cuLaunchKernel_ptsz;
        cu.cuLaunchKernelEx = cu.cuLaunchKernelEx_ptsz;
        cu.cuLaunchCooperativeKernel = cu.cuLaunchCooperativeKernel_ptsz;
        cu.cuStreamBeginCapture = cu.cuStreamBeginCapture_ptsz;
        cu.cuStreamBeginCapture_v2 = cu.cuStreamBeginCapture_v2_ptsz;
        cu.cuStreamBeginCaptureToGraph = cu.cuStreamBeginCaptureToGraph_ptsz;
        cu.cuStreamEndCapture = cu.cuStreamEndCapture_ptsz;
        cu.cuGraphInstantiateWithParams = cu.cuGraphInstantiateWithParams_ptsz;
        cu.cuGraphLaunch = cu.cuGraphLaunch_ptsz;
    }
}
#endif

static void find_all(const char *way)
{
    libcuda = must(dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL), "libcuda.so.1");
#define X(type, symbol, params) *(void **)&cu.symbol = must(dlsym(libcuda, #symbol), #symbol);
    PLAIN_LIST(X)
#undef X
#define X(type, symbol, params) *(void **)&cu.symbol = dlsym(libcuda, #symbol);
    DOUBLE_LIST(X)
#undef X
    find(way);
}

void start_gpu(void)
{
    kfit_cu_context context;
    OK(cu.cuInit(0));
    OK(cu.cuDevicePrimaryCtxRetain(&context, 0));
    OK(cu.cuCtxSetCurrent(context));
    OK(cu.cuStreamCreate(&stream, 1)); /* not waiting for stream 0, nor it for them */
    OK(cu.cuStreamCreate(&second, 1));
}

const char *image_of(const char *kernel)
{
    static char text[512];
    snprintf(text, sizeof text,
             "/*\nkfit-double 1\narch sm_90\nentry %s nothing i\nend\n*/\n.version 7.0\n.target sm_80\n"
             ".address_size 64\n.visible .entry %s(.param .u32 p)\n{\n ret;\n}\n",
             kernel, kernel);
    return text;
}

kfit_cu_function function(const char *kernel)
{
    kfit_cu_function f;
    void *module;
    OK(cu.cuModuleLoadData(&module, image_of(kernel)));
    OK(cu.cuModuleGetFunction(&f, module, kernel));
    return f;
}

static int argument = 17;
static void *params[] = {&argument};

void launch_on(kfit_cu_stream s, kfit_cu_function f, int times)
{
    while (times--)
        OK(cu.cuLaunchKernel(f, 1, 1, 1, 32, 1, 1, 0, s, params, NULL));
}

/* ---- launches ---- */

/* Each function launches its own kernel, with arguments that the driver must get as they are. */
static void play_launches(int argc, char **argv)
{
    void *none[] = {NULL, NULL}, **extra = ON_DOUBLE ? none : NULL; /* a GPU takes one of the two */
    (void)argc, (void)argv;
    start_gpu();
    for (int own = 0; own < 2; own++) {
        kfit_cu_function f = function(own ? "plain_own" : "plain");
        const struct kfit_double_launch *last = ON_DOUBLE ? cu.kfit_double_last_launch() : NULL;
        for (int i = 0; i < 3 + own; i++)
            OK((own ? cu.cuLaunchKernel_ptsz : cu.cuLaunchKernel)(f, 2, 3, 4, 5, 6, 7, 8, stream, params,
                                                                  extra));
        SEEN(strcmp(last->symbol, own ? "cuLaunchKernel_ptsz" : "cuLaunchKernel"), 0);
        for (unsigned i = 0; i < 3; i++) {
            SEEN(last->config.grid[i], 2 + i);
            SEEN(last->config.block[i], 5 + i);
        }
        SEEN(last->config.smem_bytes, 8);
        SEEN(last->config.stream == stream && last->f == f && last->params == params && last->extra == extra,
             1);

        /* may start before the kernel before it ends; one block per cluster */
        struct kfit_cu_launch_attribute attrs[] = {
            {.id = 6, .value.bytes = {1}},
            {.id = KFIT_CU_LAUNCH_CLUSTER, .value.cluster = {1, 1, 1}},
        };
        const struct kfit_cu_launch_config config = {{9, 1, 1}, {32, 1, 1}, 16, second, attrs, 2},
                                           before = config;
        f = function(own ? "extended_own" : "extended");
        for (int i = 0; i < 5 + own; i++)
            OK((own ? cu.cuLaunchKernelEx_ptsz : cu.cuLaunchKernelEx)(&config, f, params, extra));
        SEEN(strcmp(last->symbol, own ? "cuLaunchKernelEx_ptsz" : "cuLaunchKernelEx"), 0);
        SEEN(last->config_at == &config && last->f == f && last->params == params && last->extra == extra, 1);
        IS(memcmp(&config, &before, sizeof config), 0);
        IS(attrs[0].id == 6 && attrs[0].value.bytes[0] == 1, 1);

        f = function(own ? "together_own" : "together");
        for (int i = 0; i < 7 + own; i++)
            OK((own ? cu.cuLaunchCooperativeKernel_ptsz : cu.cuLaunchCooperativeKernel)(f, 2, 1, 1, 64, 1, 1,
                                                                                        24, stream, params));
        SEEN(last->config.grid[0] == 2 && last->config.block[0] == 64 && last->config.smem_bytes == 24, 1);
        SEEN(last->f == f && last->params == params, 1);

        /* refused by the driver, and no launch; one to stream 0, which is not asked for a capture */
        IS(cu.cuLaunchKernel(f, 0, 0, 0, 0, 0, 0, 0, stream, params, NULL), 1);
        launch_on(NULL, f, 1);
    }
}

/* A library's kernel, launched by its own handle and as a function; a module's function. */
static void play_handles(int argc, char **argv)
{
    kfit_cu_library library;
    kfit_cu_kernel kernel;
    kfit_cu_function f;
    (void)argc, (void)argv;
    start_gpu();
    OK(cu.cuLibraryLoadData(&library, image_of("of_library"), NULL, NULL, 0, NULL, NULL, 0));
    OK(cu.cuLibraryGetKernel(&kernel, library, "of_library"));
    launch_on(stream, (kfit_cu_function)(void *)kernel, 3);
    OK(cu.cuKernelGetFunction(&f, kernel));
    launch_on(stream, f, 4);
}

/* One CUkernel on two GPUs in turn. */
static void play_gpus(int argc, char **argv)
{
    const int first = argc ? atoi(argv[0]) : 0;
    kfit_cu_library library;
    kfit_cu_kernel kernel;
    OK(cu.cuInit(0));
    for (int turn = 0; turn < 5; turn++) {
        const int gpu = (first + turn) % 2;
        kfit_cu_context context;
        kfit_cu_stream s;
        OK(cu.cuDevicePrimaryCtxRetain(&context, gpu));
        OK(cu.cuCtxSetCurrent(context));
        OK(cu.cuStreamCreate(&s, 1));
        if (!turn) {
            OK(cu.cuLibraryLoadData(&library, image_of("anywhere"), NULL, NULL, 0, NULL, NULL, 0));
            OK(cu.cuLibraryGetKernel(&kernel, library, "anywhere"));
        }
        launch_on(s, (kfit_cu_function)(void *)kernel, gpu ? 100 : 1);
    }
    OK(cu.cuCtxSetCurrent(NULL));
}

/* The driver gives a freed handle to the next one that asks. */
static void play_reuse(int argc, char **argv)
{
    kfit_cu_library library, next_library;
    kfit_cu_kernel kernel;
    kfit_cu_function f, before;
    void *module, *next;
    (void)argc, (void)argv;
    start_gpu();
    OK(cu.cuModuleLoadData(&module, image_of("first")));
    OK(cu.cuModuleGetFunction(&before, module, "first"));
    launch_on(stream, before, 2);
    OK(cu.cuModuleUnload(module));
    OK(cu.cuModuleLoadData(&next, image_of("next")));
    OK(cu.cuModuleGetFunction(&f, next, "next"));
    SEEN(f == before && next == module, 1);
    launch_on(stream, f, 5);
    OK(cu.cuModuleUnload(next));
    OK(cu.cuLibraryLoadData(&library, image_of("third"), NULL, NULL, 0, NULL, NULL, 0));
    OK(cu.cuLibraryGetKernel(&kernel, library, "third"));
    launch_on(stream, (kfit_cu_function)(void *)kernel, 6);
    OK(cu.cuKernelGetFunction(&f, kernel));
    launch_on(stream, f, 1);
    OK(cu.cuLibraryUnload(library));
    OK(cu.cuLibraryLoadData(&next_library, image_of("fourth"), NULL, NULL, 0, NULL, NULL, 0));
    SEEN(next_library == library, 1);
    OK(cu.cuLibraryGetKernel(&kernel, next_library, "fourth"));
    launch_on(stream, (kfit_cu_function)(void *)kernel, 7);
    OK(cu.cuKernelGetFunction(&f, kernel));
    launch_on(stream, f, 2);
    OK(cu.cuDevicePrimaryCtxReset_v2(0));
}

/* ---- images ---- */

/* bytes at the very end of a mapping: what reads on dies. */
static char *at_the_end(const void *bytes, size_t n)
{
    const size_t room = (n + 4095) / 4096 * 4096;
    char *p = mmap(NULL, room + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    IS(p == MAP_FAILED || mprotect(p + room, 4096, PROT_NONE), 0);
    return memcpy(p + room - n, bytes, n);
}

static void write_file(const char *path, const void *bytes, size_t n)
{
    int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0600);
    IS(write(fd, bytes, n), n);
    close(fd);
}

/* images DIR: an image in each form, of a kernel of the form's name; DIR/NAME has the same bytes for the test to hash. */
static void play_images(int argc, char **argv)
{
    char path[512];
    IS(argc, 1);
    start_gpu();
    for (unsigned form = 0; form < 8; form++) {
        static const char *const names[] = {"cubin", "sections_first", "fat",     "wrapped",
                                            "ptx",   "file",           "library", "large"};
        static char bytes[6 << 20];
        const char *name = names[form], *ptx = image_of(name), *text = strchr(ptx, '\n') + 1;
        size_t n = strlen(text) + 1;
        void *module, *image;
        kfit_cu_function f;
        kfit_cu_kernel kernel;
        memset(bytes, 0, sizeof bytes);
        if (form < 2 || form > 4) { /* a header, the text, and sections before or after it */
            Elf64_Ehdr e = {.e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS64},
                            .e_shentsize = sizeof(Elf64_Shdr),
                            .e_shnum = 3};
            Elf64_Shdr s[3] = {{.sh_type = SHT_NULL}, {.sh_type = SHT_PROGBITS}, {.sh_type = SHT_NOBITS}};
            const size_t body = form == 7 ? sizeof bytes - 4096 : n;
            e.e_shoff = form == 1 ? sizeof e : sizeof e + body;
            e.e_entry = form == 1 ? sizeof e + sizeof s : sizeof e;
            s[1].sh_offset = e.e_entry;
            s[1].sh_size = body;
            s[2].sh_size = s[0].sh_size = 1 << 30; /* takes no place in the file */
            memcpy(bytes, &e, sizeof e);
            memcpy(bytes + e.e_shoff, s, sizeof s);
            memcpy(bytes + e.e_entry, text, n);
            n = sizeof e + sizeof s + body;
        } else if (form < 4) {
            const uint32_t magic = 0xba55ed50;
            const uint16_t version = 1, header = 16;
            const uint64_t size = n;
            memcpy(bytes, &magic, 4), memcpy(bytes + 4, &version, 2), memcpy(bytes + 6, &header, 2);
            memcpy(bytes + 8, &size, 8), memcpy(bytes + 16, text, n);
            n += header;
        } else
            memcpy(bytes, ptx, n = strlen(ptx) + 1);
        snprintf(path, sizeof path, "%s/%s", argv[0], name);
        write_file(path, bytes, form == 4 ? n - 1 : n);
        image = at_the_end(bytes, n);
        if (form == 3) {
            const struct {
                uint32_t magic, version;
                const void *data, *names;
            } wrapper = {0x466243b1, 1, image, NULL};
            image = at_the_end(&wrapper, sizeof wrapper);
        }
        if (!strcmp(name, "library")) {
            kfit_cu_library library;
            OK(cu.cuLibraryLoadFromFile(&library, path, NULL, NULL, 0, NULL, NULL, 0));
            OK(cu.cuLibraryGetKernel(&kernel, library, name));
            OK(cu.cuKernelGetFunction(&f, kernel));
        } else {
            if (!strcmp(name, "file"))
                OK(cu.cuModuleLoad(&module, path));
            else if (form == 2)
                OK(cu.cuModuleLoadFatBinary(&module, image));
            else
                OK(cu.cuModuleLoadDataEx(&module, image, 0, NULL, NULL));
            OK(cu.cuModuleGetFunction(&f, module, name));
        }
        launch_on(stream, f, 1);
    }
}

/* ---- pointers ---- */

static const char *symbol_at(void *p, bool *in_shim)
{
    Dl_info info;
    IS(dladdr(p, &info) && info.dli_fname, 1);
    *in_shim = strstr(info.dli_fname, "libkfit_preload") != NULL;
    return info.dli_sname && info.dli_saddr == p ? info.dli_sname : "";
}

/* Every name the driver knows, at versions and flags: the driver's own answer, or our wrapper of that very symbol. */
static void play_pointers(int argc, char **argv)
{
    static const int versions[] = {2000,  4000,  7000,  9000,  10000, 10010, 10020, 11000,
                                   11030, 11040, 11060, 12000, 12020, 12030, 13000, 13010};
    unsigned asked = 0, wrapped = 0;
    const char *symbol;
    (void)argc, (void)argv;
    for (unsigned i = 0; (symbol = cu.kfit_double_name(i)); i++)
        for (unsigned v = 0; v < sizeof versions / sizeof *versions; v++)
            for (uint64_t flags = 0; flags < 3; flags++) {
                void *real = cu.kfit_double_pointer(symbol, versions[v], flags), *got = NULL;
                bool in_shim, real_in_shim;
                int status = -1, r = cu.cuGetProcAddress_v2(symbol, &got, versions[v], flags, &status);
                IS(r, 0);
                IS(status, real ? 0 : 1);
                asked++;
                if (got == real)
                    continue;
                const char *ours = symbol_at(got, &in_shim), *theirs = symbol_at(real, &real_in_shim);
                wrapped++;
                IS(in_shim && !real_in_shim, 1);
                if (strcmp(ours, theirs) && strcmp(symbol, "cuGraphInstantiate")) {
                    fprintf(stderr, "%s at %d, %d: %s for %s\n", symbol, versions[v], (int)flags, ours,
                            theirs);
                    exit(1);
                }
                if (!*theirs)
                    IS(strcmp(ours, "cuGraphInstantiateWithFlags"), 0);
            }
    printf("%u asked, %u wrapped\n", asked, wrapped);
#define X(symbol, flags, asked, since, params, args, before, after)                                          \
    {                                                                                                        \
        bool in_shim;                                                                                        \
        IS(strcmp(symbol_at(dlsym(libcuda, #symbol), &in_shim), #symbol), 0);                                \
        printf(in_shim ? "" : "missed %s\n", #symbol);                                                       \
    }
    KFIT_DRIVER_LIST(X)
#undef X
    bool in_shim;
    IS(strcmp(symbol_at(dlsym(libcuda, "cuGetExportTable"), &in_shim), "cuGetExportTable") || in_shim, 0);
    IS(dlsym(libcuda, "cuLaunchKernelX") != NULL,
       0); /* an error of the program's own, which it may ask for */
    IS(strstr(dlerror(), "cuLaunchKernelX") != NULL, 1);
}

/* ---- threads and processes ---- */

static void *busy(void *ctx)
{
    volatile bool *stop = ctx;
    kfit_cu_context context;
    char name[32];
    if (!ON_DOUBLE) /* a driver may refuse to load while anyone captures, unless the thread says that it knows */
        OK(cu.cuThreadExchangeStreamCaptureMode(&(int){2}));
    OK(cu.cuDevicePrimaryCtxRetain(&context, 0));
    OK(cu.cuCtxSetCurrent(context));
    for (int i = 0; !*stop || i < 50; i++) {
        snprintf(name, sizeof name, "busy%d", i % 50);
        launch_on(NULL, function(name), 1);
        if (i > 2000)
            break;
    }
    return NULL;
}

/* Two threads launch what they know, while contexts that are not theirs go. */
static volatile bool gone;

static void *launching(void *f)
{
    kfit_cu_context context;
    uintptr_t times = 0;
    OK(cu.cuDevicePrimaryCtxRetain(&context, 0));
    OK(cu.cuCtxSetCurrent(context));
    for (; !gone; times++)
        launch_on(NULL, f, 1);
    return (void *)times;
}

static void play_contexts(int argc, char **argv)
{
    kfit_cu_function f[2] = {NULL};
    pthread_t thread[2];
    (void)argc, (void)argv;
    start_gpu();
    for (int i = 0; i < 2; i++) {
        f[i] = function(i ? "b" : "a");
        launch_on(NULL, f[i], 1);
        OK(pthread_create(&thread[i], NULL, launching, f[i]));
    }
    for (int i = ON_DOUBLE ? 50000 : 5; i > 0; i--) {
        kfit_cu_context context;
        OK(cu.cuCtxCreate_v2(&context, 0, 0));
        OK(cu.cuCtxDestroy_v2(context));
    }
    gone = true;
    for (int i = 0; i < 2; i++) {
        void *times;
        pthread_join(thread[i], &times);
        printf("%zu ", (size_t)(uintptr_t)times + 1);
    }
}

/* One thread captures, the other one meets new kernels all the while: neither hinders the other, in no mode. */
static void play_threads(int argc, char **argv)
{
    static volatile bool stop;
    pthread_t other;
    (void)argc, (void)argv;
    start_gpu();
    kfit_cu_function f = function("captured");
    launch_on(stream, f,
              1); /* while one thread starts the recorder, another one's launches are not counted */
    for (int mode = 0; mode < 3; mode++) {
        kfit_cu_graph graph;
        kfit_cu_exec exec;
        stop = false;
        OK(cu.cuStreamBeginCapture_v2(stream, mode));
        OK(pthread_create(&other, NULL, busy, (void *)&stop));
        launch_on(stream, f, 10);
        usleep(20000);
        stop = true;
        pthread_join(other, NULL);
        OK(cu.cuStreamEndCapture(stream, &graph));
        OK(cu.cuGraphInstantiateWithFlags(&exec, graph, 0));
        OK(cu.cuGraphLaunch(exec, stream));
    }
}

/* end HOW TIMES: works, and ends so. */
static void play_end(int argc, char **argv)
{
    IS(argc, 2);
    start_gpu();
    launch_on(stream, function("works"), atoi(argv[1]));
    if (!strcmp(argv[0], "exit"))
        exit(0);
    raise(!strcmp(argv[0], "term") ? SIGTERM : SIGKILL);
}

/* Calls cuBLAS, which is not there, with what is no handle. */
static void play_no_cublas(int argc, char **argv)
{
    static char handle[4096], *matrix = handle;
    const float one = 1, zero = 0;
    int (*gemm)(void *, int, int, int, int, int, const void *, const void *, int, int, const void *, int, int, const void *, void *,
                int, int, int, int);
    (void)argc, (void)argv;
    start_gpu();
    *(void **)&gemm = dlsym(RTLD_DEFAULT, "cublasGemmEx");
    IS(gemm != NULL, 1);
    IS(gemm(handle, 0, 0, 8, 8, 8, &one, matrix, 0, 8, matrix, 0, 8, &zero, matrix, 0, 8, 68, 99), 1); /* not initialized */
}

/* fork HOW TIMES: a child does, before its parent has touched the GPU; then the parent, and then a child that cannot. */
static void play_fork(int argc, char **argv)
{
    int status;
    pid_t child = fork();
    if (!child)
        play_end(argc, argv);
    IS(waitpid(child, &status, 0), child);
    start_gpu();
    launch_on(stream, function("works"), 2);
    child = fork();
    if (!child) {
        kfit_cu_function f = NULL;
        FAILS(cu.cuLaunchKernel(f, 1, 1, 1, 32, 1, 1, 0, stream, params, NULL));
        _exit(0);
    }
    IS(waitpid(child, &status, 0), child);
    IS(status, 0);
    launch_on(stream, function("works"), 1);
}

static const struct scene scenes[] = {
    {"launches", play_launches}, {"handles", play_handles},   {"reuse", play_reuse},
    {"images", play_images},     {"pointers", play_pointers}, {"threads", play_threads},
    {"gpus", play_gpus},         {"end", play_end},           {"fork", play_fork},         {"contexts", play_contexts},
    {"no_cublas", play_no_cublas},
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    IS(argc >= 3, 1);
    find_all(argv[1]);
    for (int list = 0; list < 2; list++)
        for (const struct scene *s = list ? graph_scenes : scenes; s->name; s++)
            if (!strcmp(s->name, argv[2]))
                return s->play(argc - 3, argv + 3), 0;
    fprintf(stderr, "no scene %s\n", argv[2]);
    return 1;
}
