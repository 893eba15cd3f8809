/* The cuda device: the same cases on the double of a GPU ($KFIT_TEST_DOUBLE) and on a real one. */
#include "double/use_double.h"

#include "compile_cuda.h"
#include "kfit/cuda.h"
#include "kfit/device.h"

static const struct kfit_device *const dev = &kfit_device_cuda;
static struct kfit_error err;
static struct kfit_device_info info;

static bool doubled(void)
{
    return getenv("KFIT_TEST_DOUBLE") != NULL;
}

static void double_only(void)
{
    if (!doubled())
        SKIP("only the double can be made to fail so");
}

static void setup_with(const char *settings)
{
    if (doubled()) {
        use_double(settings, DOUBLE "/libcuda.so.1");
        load_double(DOUBLE "/libcuda.so.1");
    }
    enum kfit_status s = dev->probe(&err);
    if (!doubled() && s == KFIT_E_UNSUPPORTED)
        SKIP("%s", err.text);
    CHECK_OK(s, err);
    CHECK_OK(dev->describe(&info, &err), err);
}

static void setup(void)
{
    setup_with("");
}

/* Two launches, one after the other's work; the second says how it was launched. */
static const char two[] =
    "typedef unsigned u32;\n"
    "extern \"C\" __global__ void adds(const u32 *a, const u32 *b, u32 *c, u32 *ws)\n"
    "{ u32 i = blockIdx.x * blockDim.x + threadIdx.x; ws[i] = a[i] + b[i]; }\n"
    "extern \"C\" __global__ void tells(const u32 *a, const u32 *b, u32 *c, u32 *ws)\n"
    "{ u32 i = blockIdx.x * blockDim.x + threadIdx.x, n = gridDim.x * blockDim.x, x = 1, y = 1, z = 1, smem, grid1, grid2;\n"
    "  c[i] = 2 * ws[i];\n"
    "#if __CUDA_ARCH__ >= 900\n"
    "  asm(\"mov.u32 %0, %%cluster_nctaid.x;\" : \"=r\"(x)); asm(\"mov.u32 %0, %%cluster_nctaid.y;\" : \"=r\"(y));\n"
    "  asm(\"mov.u32 %0, %%cluster_nctaid.z;\" : \"=r\"(z));\n"
    "#endif\n"
    "  asm(\"mov.u32 %0, %%dynamic_smem_size;\" : \"=r\"(smem));\n"
    "  asm(\"mov.u32 %0, %%envreg1;\" : \"=r\"(grid1)); asm(\"mov.u32 %0, %%envreg2;\" : \"=r\"(grid2));\n"
    "  if (i == 0) { c[n] = x * y * z; c[n + 1] = (grid1 | grid2) != 0; c[n + 2] = gridDim.x; c[n + 3] = blockDim.x; c[n + 4] = smem; } }\n";

static void *compile(const char *arch, size_t *bytes)
{
    struct kfit_built built = {0};
    char option[64], *cubin;
    const struct kfit_compile_params how = {.allow_no_isolation = true}; /* our own source */
    snprintf(option, sizeof option, "--gpu-architecture=%s", arch);
    enum kfit_status s = kfit_nvrtc_run(&how, (const char *[]){"-std=c++17", "-default-device", option}, 3, two, strlen(two), &cubin,
                                        bytes, NULL, NULL, &built, &err);
    if (!doubled() && s == KFIT_E_NOTFOUND)
        SKIP("%s", err.text);
    CHECK_MSG(s == KFIT_OK, "%s %s", err.text, built.detail);
    return cubin;
}

enum { BLOCKS = 8, THREADS = 32, N = BLOCKS * THREADS, FACTS = 5 };

static struct kfit_plan plan_of(unsigned cluster, bool cooperative, uint32_t smem)
{
    const struct kfit_launch one = {.entry = "adds", .grid = {BLOCKS, 1, 1}, .block = {THREADS, 1, 1}, .cluster = {1, 1, 1}};
    struct kfit_plan p = {.workspace_bytes = 4 * N, .launch_count = 2, .launches = {one, one}};
    strcpy(p.launches[1].entry, "tells");
    p.launches[1].cluster[0] = cluster;
    p.launches[1].cooperative = cooperative;
    p.launches[1].smem_bytes = smem;
    return p;
}

static void *device_memory(size_t bytes)
{
    void *p;
    CHECK_OK(dev->alloc(bytes, &p, &err), err);
    return p;
}

static void it_is_described(void)
{
    setup();
    CHECK(info.model[0] && info.units && info.l2_bytes && info.l1_bytes >= 49152 && info.memory_bytes > 1 << 20);
    CHECK_MSG(!strncmp(info.arch, "sm_", 3), "%s", info.arch);
    CHECK(info.timer_step_ns > 0);
    if (doubled())
        CHECK_STR(info.arch, "sm_90a");
}

static void memory_comes_and_goes(void)
{
    char text[64] = "from the host", back[64] = "";
    setup();
    void *a = device_memory(64), *b = device_memory(64);
    CHECK_STATUS(dev->copy(a, text, 64), KFIT_OK);
    CHECK_STATUS(dev->copy(b, a, 64), KFIT_OK);
    CHECK_STATUS(dev->copy(back, b, 64), KFIT_OK);
    CHECK_STR(back, text);
    dev->flush();
    dev->free(a, 64);
    dev->free(b, 64);
    dev->free(NULL, 0);
}

/* Many of the largest block there is: an error that says so, and nothing lost. */
static void memory_runs_out(void)
{
    void *p;
    setup_with("memory 100000000\n");
    CHECK_STATUS(dev->alloc(info.memory_bytes + (1 << 20), &p, &err), KFIT_E_NOMEM);
    CHECK(!p);
    CHECK_MSG(strstr(err.text, "cuMemAlloc") && strstr(err.text, "out of memory"), "%s", err.text);
    p = device_memory(1 << 20);
    dev->free(p, 1 << 20);
}

/* What `kfit off` looks for in /proc/PID/maps. */
static bool marked(void)
{
    char *maps = kfit_test_read("/proc/self/maps", NULL);
    const bool found = strstr(maps, "/memfd:kfit-images");
    free(maps);
    return found;
}

/* Runs a plan and gives what the second launch said. */
static void run(const struct kfit_plan *plan, uint32_t facts[FACTS])
{
    uint32_t host[2][N], out[N + FACTS];
    size_t bytes;
    void *cubin = compile(info.arch, &bytes);
    struct kfit_modules *m;
    struct kfit_kernel k;
    CHECK_OK(dev->load(&(struct kfit_image){cubin, bytes, plan}, 1, 3, &m, &k, &err), err);
    free(cubin); /* the set does not need it any more */
    CHECK(marked());
    CHECK_INT(k.workspace_bytes, 4 * N);
    CHECK_INT(k.nargs, 3);
    void *a = device_memory(4 * N), *b = device_memory(4 * N), *c = device_memory(4 * (N + FACTS)), *ws = device_memory(4 * N);
    for (unsigned i = 0; i < N; i++) {
        host[0][i] = i;
        host[1][i] = 1000 * i;
    }
    CHECK_STATUS(dev->copy(a, host[0], 4 * N), KFIT_OK);
    CHECK_STATUS(dev->copy(b, host[1], 4 * N), KFIT_OK);
    CHECK_STATUS(dev->launch(&k, (void *[]){a, b, c}, ws, NULL), KFIT_OK);
    CHECK_STATUS(dev->copy(out, c, sizeof out), KFIT_OK);
    for (unsigned i = 0; i < N; i++)
        CHECK_INT(out[i], 2002 * i);
    memcpy(facts, out + N, FACTS * sizeof *facts);
    dev->unload(m);
    CHECK(!marked());
}

static void launches_follow_each_other(void)
{
    uint32_t f[FACTS];
    setup();
    const struct kfit_plan plan = plan_of(1, false, 0);
    run(&plan, f);
    CHECK_INT(f[0], 1);
    CHECK_INT(f[1], 0);
    CHECK_INT(f[2], BLOCKS);
    CHECK_INT(f[3], THREADS);
    CHECK_INT(f[4], 0);
}

static void attributes_arrive(void)
{
    static const struct {
        unsigned cluster;
        bool cooperative;
    } row[] = {{2, false}, {8, false}, {1, true}, {4, true}};
    uint32_t f[FACTS];
    setup();
    if (strcmp(info.arch, "sm_90") < 0)
        SKIP("%s has no clusters", info.arch);
    for (unsigned i = 0; i < sizeof row / sizeof *row; i++) {
        const struct kfit_plan plan = plan_of(row[i].cluster, row[i].cooperative, 0);
        run(&plan, f);
        CHECK_INT(f[0], row[i].cluster);
        CHECK_INT(f[1], row[i].cooperative);
    }
}

/* More than 48 KB must be asked for, and is. */
static void much_shared_memory(void)
{
    uint32_t f[FACTS];
    setup();
    const struct kfit_plan plan = plan_of(1, false, (uint32_t)info.l1_bytes);
    run(&plan, f);
    CHECK_INT(f[4], info.l1_bytes);
}

static enum kfit_status load_status(const char *arch, const struct kfit_plan *plan)
{
    size_t bytes;
    void *cubin = compile(arch, &bytes);
    struct kfit_modules *m;
    struct kfit_kernel k;
    enum kfit_status s = dev->load(&(struct kfit_image){cubin, bytes, plan}, 1, 3, &m, &k, &err);
    CHECK(s == KFIT_OK || !m);
    dev->unload(m);
    free(cubin);
    return s;
}

static void too_much_shared_memory_is_said_when_loaded(void)
{
    setup();
    const struct kfit_plan plan = plan_of(1, false, (uint32_t)info.l1_bytes + 16);
    CHECK(load_status(info.arch, &plan) != KFIT_OK);
    CHECK_MSG(strstr(err.text, "cuFuncSetAttribute"), "%s", err.text);
}

static void an_image_for_another_gpu_is_said(void)
{
    setup();
    const struct kfit_plan plan = plan_of(1, false, 0);
    CHECK_STATUS(load_status(strcmp(info.arch, "sm_80") ? "sm_80" : "sm_90a", &plan), KFIT_E_ENV);
    CHECK_MSG(strstr(err.text, "NO_BINARY_FOR_GPU"), "%s", err.text);
}

static void a_missing_entry_is_said(void)
{
    setup();
    struct kfit_plan plan = plan_of(1, false, 0);
    strcpy(plan.launches[1].entry, "absent");
    CHECK(load_status(info.arch, &plan) != KFIT_OK);
    CHECK_MSG(strstr(err.text, "cuLibraryGetKernel"), "%s", err.text);
}

/* One set, image by image; a bad one leaves it as it was. */
static void images_one_by_one(void)
{
    size_t bytes;
    struct kfit_modules *m;
    struct kfit_kernel k[70];
    setup();
    struct kfit_plan good = plan_of(1, false, 0), bad = good;
    strcpy(bad.launches[0].entry, "absent");
    void *cubin = compile(info.arch, &bytes);
    CHECK_OK(dev->open(&m, &err), err);
    for (unsigned i = 0; i < 70; i++) {
        CHECK(dev->add(m, &(struct kfit_image){cubin, bytes, &bad}, 3, &err) != KFIT_OK);
        CHECK_OK(dev->add(m, &(struct kfit_image){cubin, bytes, &good}, 3, &err), err);
    }
    CHECK_OK(dev->seal(m, k, &err), err);
    for (unsigned i = 1; i < 70; i++)
        CHECK(k[i].entry && k[i].entry != k[i - 1].entry);
    dev->unload(m);
    dev->unload(NULL);
    free(cubin);
}

/* A launch that asks for the impossible fails, and the next is as good as ever. */
static void a_refused_launch_harms_nothing(void)
{
    size_t bytes;
    struct kfit_modules *m;
    struct kfit_kernel k;
    uint32_t f[FACTS];
    setup();
    struct kfit_plan plan = plan_of(1, false, 0);
    plan.launches[0].block[0] = 4096;
    void *cubin = compile(info.arch, &bytes);
    CHECK_OK(dev->load(&(struct kfit_image){cubin, bytes, &plan}, 1, 3, &m, &k, &err), err);
    CHECK(dev->launch(&k, (void *[]){NULL, NULL, NULL}, NULL, NULL) != KFIT_OK);
    dev->unload(m);
    free(cubin);
    plan = plan_of(1, false, 0);
    run(&plan, f);
}

/* ---- as a guest in a server ---- */

static void a_guest_finds_the_current_context(void)
{
    const struct kfit_cuda *cu;
    struct kfit_device_info here;
    kfit_cu_context primary, found, after;
    kfit_cu_device ordinal = -1;
    setup();
    CHECK_OK(kfit_cuda_load(&cu, &err), err);
    CHECK_INT(cu->context_current(&primary), 0);
    CHECK_OK(kfit_cuda_attach(&found, &ordinal, &here, &err), err);
    CHECK(found == primary && ordinal == 0);
    CHECK(!memcmp(&here, &info, sizeof here));
    CHECK(!cu->context_current(&after) && after == primary);
    CHECK(!cu->context_set(NULL));
    CHECK_STATUS(kfit_cuda_attach(&found, &ordinal, &here, &err), KFIT_E_UNSUPPORTED);
    CHECK(!cu->context_current(&after) && !after);
}

/* All that a first call does, while a stream captures in each mode: nothing of it may break the capture. */
static void a_guest_starts_while_a_stream_captures(void)
{
    const struct kfit_cuda *cu;
    const struct kfit_plan plan = plan_of(1, false, 0), large = plan_of(1, false, 65536);
    struct kfit_plan bad = plan;
    kfit_cu_stream stream;
    size_t bytes;
    setup();
    CHECK_OK(kfit_cuda_load(&cu, &err), err);
    strcpy(bad.launches[1].entry, "absent");
    void *cubin = compile(info.arch, &bytes), *m[4];
    for (unsigned i = 0; i < 4; i++)
        m[i] = device_memory(4 * (N + FACTS));
    CHECK_INT(cu->stream_create(&stream, KFIT_CU_STREAM_NON_BLOCKING), 0);
    for (int mode = 0; mode <= KFIT_CU_CAPTURE_RELAXED; mode++) {
        struct kfit_modules *set;
        struct kfit_kernel k[2];
        struct kfit_device_info here;
        kfit_cu_context context;
        kfit_cu_device ordinal;
        kfit_cu_graph graph;
        CHECK_INT(cu->capture_begin(stream, mode), 0);
        CHECK_OK(kfit_cuda_attach(&context, &ordinal, &here, &err), err);
        CHECK_OK(dev->open(&set, &err), err);
        CHECK_OK(dev->add(set, &(struct kfit_image){cubin, bytes, &plan}, 3, &err), err);
        CHECK(dev->add(set, &(struct kfit_image){cubin, bytes, &bad}, 3, &err) != KFIT_OK);
        CHECK_OK(dev->add(set, &(struct kfit_image){cubin, bytes, &large}, 3, &err), err);
        CHECK_OK(dev->seal(set, k, &err), err);
        for (unsigned i = 0; i < 2; i++)
            CHECK_STATUS(dev->launch(&k[i], (void *[]){m[0], m[1], m[2]}, m[3], stream), KFIT_OK);
        CHECK_INT(cu->capture_end(stream, &graph), 0);
        CHECK_INT(cu->graph_destroy(graph), 0);
    }
    free(cubin);
}

/* ---- what is not there ---- */

static void no_driver_is_said(void)
{
    double_only();
    if (getenv("LD_LIBRARY_PATH")) { /* it may lead to the double: once more without */
        char *said;
        int rc = kfit_test_run((const char *[]){"/proc/self/exe", "no_driver_is_said", NULL}, (const char *[]){"LD_LIBRARY_PATH", NULL},
                               &said, NULL);
        if (rc == 77)
            SKIP("%s", said);
        CHECK_MSG(rc == 0, "%s", said);
        return;
    }
    if (dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL))
        SKIP("this machine has a driver");
    CHECK_STATUS(dev->probe(&err), KFIT_E_UNSUPPORTED);
    CHECK_MSG(strstr(err.text, "no NVIDIA driver") && strstr(err.text, "libcuda.so.1"), "%s", err.text);
}

static void an_old_driver_is_said(void)
{
    double_only();
    use_double("", DOUBLE "/libcuda_old.so");
    load_double(DOUBLE "/libcuda_old.so");
    CHECK_STATUS(dev->probe(&err), KFIT_E_UNSUPPORTED);
    CHECK_MSG(strstr(err.text, "cuGraphUpload") && strstr(err.text, "560"), "%s", err.text);
}

static void no_gpu_is_said(void)
{
    double_only();
    use_double("gpus 0\n", DOUBLE "/libcuda.so.1");
    load_double(DOUBLE "/libcuda.so.1");
    CHECK_STATUS(dev->probe(&err), KFIT_E_UNSUPPORTED);
    CHECK_MSG(strstr(err.text, "no GPU") && strstr(err.text, "CUDA_VISIBLE_DEVICES"), "%s", err.text);
}

static const struct kfit_test tests[] = {
    TEST(it_is_described),
    TEST(memory_comes_and_goes),
    TEST(memory_runs_out),
    TEST(launches_follow_each_other),
    TEST(attributes_arrive),
    TEST(much_shared_memory),
    TEST(too_much_shared_memory_is_said_when_loaded),
    TEST(an_image_for_another_gpu_is_said),
    TEST(a_missing_entry_is_said),
    TEST(images_one_by_one),
    TEST(a_refused_launch_harms_nothing),
    TEST(a_guest_finds_the_current_context),
    TEST(a_guest_starts_while_a_stream_captures),
    TEST(no_driver_is_said),
    TEST(an_old_driver_is_said),
    TEST(no_gpu_is_said),
};
TEST_MAIN(tests)
