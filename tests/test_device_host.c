#include "kfit_test.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kfit/device.h"

static struct kfit_error err;
static const struct kfit_device *const host = &kfit_device_host;

/* *c = value: mov eax, imm32; mov [rdx], eax; ret */
static const unsigned char store[] = {0xb8, 0, 0, 0, 0, 0x89, 0x02, 0xc3};
/* the same into the workspace: mov [rcx], eax */
static const unsigned char store_ws[] = {0xb8, 7, 0, 0, 0, 0x89, 0x01, 0xc3};

static struct kfit_plan plan_at(uint64_t offset)
{
    return (struct kfit_plan){.launch_count = 1,
                              .launches = {{.entry = "kfit_test",
                                            .entry_offset = offset,
                                            .grid = {1, 1, 1},
                                            .block = {1, 1, 1},
                                            .cluster = {1, 1, 1}}}};
}

static uint32_t run(const struct kfit_kernel *k, void *workspace)
{
    uint32_t c = 0;
    void *args[3] = {NULL, NULL, &c};
    CHECK_STATUS(host->launch(k, args, workspace, NULL), KFIT_OK);
    return c;
}

static void many_images_run_each_their_own(void)
{
    enum { N = 10000, BYTES = 1531 };
    unsigned char *bytes = calloc(N, BYTES);
    struct kfit_image *images = calloc(N, sizeof *images);
    struct kfit_kernel *kernels = calloc(N, sizeof *kernels);
    struct kfit_plan plan = plan_at(64);
    for (uint32_t i = 0; i < N; i++) {
        unsigned char *p = bytes + (size_t)i * BYTES;
        memcpy(p + 64, store, sizeof store);
        memcpy(p + 65, &i, 4);
        images[i] = (struct kfit_image){p, BYTES, &plan};
    }
    struct kfit_modules *m;
    CHECK_OK(host->load(images, N, 3, &m, kernels, &err), err);
    memset(bytes, 0xcc, (size_t)N * BYTES);
    for (uint32_t i = 0; i < N; i++) {
        CHECK_INT(((uintptr_t)kernels[i].entry - 64) % KFIT_HOST_IMAGE_ALIGN, 0);
        CHECK_INT(run(&kernels[i], NULL), i);
    }
    host->unload(m);
    free(bytes);
    free(images);
    free(kernels);
}

static void images_are_neither_writable_nor_resized(void)
{
    struct kfit_plan plan = plan_at(0);
    struct kfit_image image = {store, sizeof store, &plan};
    struct kfit_kernel k;
    struct kfit_modules *m;
    CHECK_OK(host->load(&image, 1, 3, &m, &k, &err), err);
    fflush(stdout);
    pid_t pid = fork();
    if (!pid) {
        close(2); /* a sanitizer would describe the fault at length */
        *(volatile unsigned char *)(uintptr_t)k.entry = 0;
        _exit(0);
    }
    int status;
    waitpid(pid, &status, 0);
    CHECK(!WIFEXITED(status) || WEXITSTATUS(status)); /* a sanitizer turns the signal into an exit */
    CHECK_INT(run(&k, NULL), 0);

    /* nor through the file behind the mapping, which only root can reach */
    char *maps = kfit_test_read("/proc/self/maps", NULL), *line = strstr(maps, "memfd:kfit-images"),
         path[128];
    CHECK(line);
    while (line > maps && line[-1] != '\n')
        line--;
    snprintf(path, sizeof path, "/proc/self/map_files/%.*s", (int)strcspn(line, " "), line);
    free(maps);
    int fd = open(path, O_RDWR);
    if (fd >= 0) {
        CHECK(pwrite(fd, "x", 1, 0) < 0 && errno == EPERM);
        CHECK(ftruncate(fd, 0) < 0 && errno == EPERM);
        close(fd);
    } else {
        CHECK(geteuid() || errno == EPERM || errno == EACCES);
        printf("  the seal is not checked: %s\n", strerror(errno));
    }
    host->unload(m);
}

static void one_at_a_time_and_refusals(void)
{
    struct kfit_plan good = plan_at(0), beyond = plan_at(8), two = plan_at(0);
    struct kfit_image image = {store, sizeof store, &good}, bad = {store, sizeof store, &beyond},
                      wide = {store, sizeof store, &two};
    struct kfit_kernel k[2];
    struct kfit_modules *m;
    two.launch_count = 2;
    CHECK_OK(host->open(&m, &err), err);
    CHECK_OK(host->add(m, &image, 3, &err), err);
    CHECK_STATUS(host->add(m, &bad, 3, &err), KFIT_E_FORMAT);
    CHECK_STATUS(host->add(m, &wide, 3, &err), KFIT_E_FORMAT);
    CHECK_OK(host->add(m, &image, 3, &err), err);
    CHECK_OK(host->seal(m, k, &err), err);
    CHECK_STATUS(host->add(m, &image, 3, &err), KFIT_E_FORMAT);
    CHECK_STATUS(host->seal(m, k, &err), KFIT_E_ARG);
    CHECK_INT(run(&k[0], NULL) + run(&k[1], NULL), 0);
    host->unload(m);
    CHECK_STATUS(host->load(&bad, 1, 3, &m, k, &err), KFIT_E_FORMAT);
    CHECK(!m);
    CHECK_OK(host->open(&m, &err), err);
    CHECK_OK(host->seal(m, k, &err), err); /* empty */
    host->unload(m);
    host->unload(NULL);
}

static void workspace_is_the_last_argument(void)
{
    struct kfit_plan plan = plan_at(0);
    struct kfit_image image = {store_ws, sizeof store_ws, &plan};
    struct kfit_kernel k;
    struct kfit_modules *m;
    uint32_t workspace = 0;
    plan.workspace_bytes = 4;
    CHECK_OK(host->load(&image, 1, 3, &m, &k, &err), err);
    CHECK_INT(k.workspace_bytes, 4);
    run(&k, &workspace);
    CHECK_INT(workspace, 7);
    host->unload(m);
}

static void file_size_limit_is_an_error_not_a_signal(void)
{
    struct rlimit none = {10, 10};
    struct kfit_plan plan = plan_at(0);
    static unsigned char code[4096];
    struct kfit_image image = {code, sizeof code, &plan};
    struct kfit_kernel k;
    struct kfit_modules *m;
    CHECK(!setrlimit(RLIMIT_FSIZE, &none));
    CHECK_STATUS(host->load(&image, 1, 3, &m, &k, &err), KFIT_E_IO);
    setrlimit(RLIMIT_FSIZE, &(struct rlimit){RLIM_INFINITY, RLIM_INFINITY});
}

static void describes_this_machine(void)
{
    struct kfit_device_info info;
    CHECK_OK(host->probe(&err), err);
    CHECK_OK(host->describe(&info, &err), err);
    CHECK(info.model[0] && !strncmp(info.arch, "x86-64-v", 8));
    CHECK(info.units >= 1 && info.memory_bytes > 1 << 20);
    CHECK(info.timer_step_ns > 0 && info.timer_step_ns < 1e7);
    CHECK(kfit_device_by_name("host") == host && !kfit_device_by_name("abacus"));
    void *p;
    CHECK_OK(host->alloc(1 << 16, &p, &err), err);
    CHECK_STATUS(host->copy(p, "abc", 4), KFIT_OK);
    CHECK_STR(p, "abc");
    host->free(p, 1 << 16);
    host->flush();
    CHECK_STATUS(host->alloc((size_t)1 << 60, &p, &err), KFIT_E_NOMEM);
}

static const struct kfit_test tests[] = {
    TEST(many_images_run_each_their_own),
    TEST(images_are_neither_writable_nor_resized),
    TEST(one_at_a_time_and_refusals),
    TEST(workspace_is_the_last_argument),
    TEST(file_size_limit_is_an_error_not_a_signal),
    TEST(describes_this_machine),
};
TEST_MAIN(tests)
