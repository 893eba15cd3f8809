/* kfit doctor: what this machine offers, one line each, and what to do about what is missing. */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/landlock.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <seccomp.h>

#include "cli.h"
#include "doctor.h"
#include "kfit/compile.h"
#include "kfit/device.h"
#include "kfit/judge.h"

static const char *const level_names[] = {"ok", "warn", "fail"};

void doctor_say(struct line *l, const char *fmt, ...)
{
    va_list ap;
    size_t n = strlen(l->text);
    va_start(ap, fmt);
    vsnprintf(l->text + n, sizeof l->text - n, fmt, ap);
    va_end(ap);
}

enum level doctor_bad(struct line *l, enum level level, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(l->advice, sizeof l->advice, fmt, ap);
    va_end(ap);
    return level;
}

static enum level cpu(const struct doctor *d, struct line *l)
{
    struct kfit_device_info info = {0};
    struct kfit_error err = {0};
    (void)d;
    if (kfit_device_host.describe(&info, &err) != KFIT_OK) {
        doctor_say(l, "%s", err.text);
        return doctor_bad(l, FAIL, "the host device is not usable here");
    }
    doctor_say(l, "%s, %s, %u CPUs, caches %llu/%llu/%llu KiB", info.model, info.arch, info.units,
               (unsigned long long)info.l1_bytes >> 10, (unsigned long long)info.l2_bytes >> 10,
               (unsigned long long)info.llc_bytes >> 10);
    if (!strcmp(info.arch, "x86-64-v2"))
        return doctor_bad(l, WARN, "no AVX2: kernels can be made, with little to gain");
    return FINE;
}

static enum level compiler(const struct doctor *d, struct line *l)
{
    char version[128];
    struct kfit_error err = {0};
    (void)d;
    if (kfit_compiler_version(NULL, version, sizeof version, &err) != KFIT_OK) {
        doctor_say(l, "%s", err.text);
        return doctor_bad(
            l, FAIL,
            "install gcc (apt-get install gcc binutils libc6-dev), or set KFIT_CC; needed by tune and eval");
    }
    doctor_say(l, "%s", version);
    return FINE;
}

/* What the compiler's child really gets is known by compiling something. */
static enum level isolation(const struct doctor *d, struct line *l)
{
    struct kfit_error err = {0};
    struct kfit_candidate *c = NULL;
    struct kfit_choice choice = {0};
    struct kfit_built built = {0};
    union kfit_key key;
    (void)d;
    long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
    doctor_say(l, abi > 0 ? "Landlock ABI %ld" : "no Landlock", abi);
    enum kfit_status s = kfit_key_parse(
        "gemm/f32,f32,f32/acc=f32/m=4,n=64,k=64/nn/lda=64,ldb=64,ldc=64/alpha=1,beta=0/align=16", &key, &err);
    if (s == KFIT_OK)
        s = kfit_candidate_parse(kfit_seeds[0].source, kfit_seeds[0].bytes, &c, &err);
    if (s == KFIT_OK)
        s = kfit_compile(&(struct kfit_compile_params){.candidate = c,
                                                       .key = &key,
                                                       .choice = &choice,
                                                       .allow_no_isolation = true}, /* our own source */
                         &built, &err);
    enum level level = FINE;
    if (s == KFIT_OK || s == KFIT_E_REFUSED) {
        doctor_say(l, "; the compiler runs in: %s", built.isolation);
        if (!strcmp(built.isolation, "none"))
            level = doctor_bad(
                l, WARN,
                "a candidate could read files through the compiler, so eval refuses without --trusted; use "
                "a kernel with Landlock (5.13)");
    } else {
        doctor_say(l, "; a test compilation failed: %s", err.text[0] ? err.text : kfit_status_str(s));
        level = doctor_bad(
            l, FAIL,
            "tune and eval will not work; see the compiler's line, or the container's seccomp profile");
    }
    kfit_built_finish(&built);
    kfit_candidate_destroy(c);
    return level;
}

static enum level seccomp(const struct doctor *d, struct line *l)
{
    const struct scmp_version *v = seccomp_version();
    uint32_t action = SECCOMP_RET_KILL_PROCESS;
    (void)d;
    if (syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action)) {
        doctor_say(l, "not available: %s", strerror(errno));
        return doctor_bad(l, FAIL,
                          "candidates cannot be run safely; the kernel or the container forbids seccomp");
    }
    doctor_say(l, "available, libseccomp %u.%u.%u", v ? v->major : 0, v ? v->minor : 0, v ? v->micro : 0);
    return FINE;
}

/* A generation's kernels are mapped from a memfd; some systems forbid to execute those. */
static enum level memfd(const struct doctor *d, struct line *l)
{
    static const unsigned char code[] = {0xb8, 0x2a, 0, 0, 0, 0xc3}; /* mov eax, 42; ret */
    int fd = memfd_create("kfit-doctor", MFD_CLOEXEC), (*fn)(void), got = 0;
    (void)d;
    void *p = fd >= 0 && write(fd, code, sizeof code) == sizeof code
                  ? mmap(NULL, sizeof code, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0)
                  : MAP_FAILED;
    int e = errno;
    if (p != MAP_FAILED) {
        memcpy(&fn, &p, sizeof fn);
        got = fn();
        munmap(p, sizeof code);
    }
    if (fd >= 0)
        close(fd);
    if (got == 42) {
        doctor_say(l, "code in a memfd can be mapped and run");
        return FINE;
    }
    doctor_say(l, "code in a memfd cannot be run: %s", strerror(e));
    return doctor_bad(
        l, FAIL,
        "nothing can be replaced here; look at sysctl vm.memfd_noexec, SELinux or the container's profile");
}

static enum level lmdb(const struct doctor *d, struct line *l)
{
    char shim[PATH_MAX], beside[PATH_MAX + 32];
    void *handle = NULL;
    (void)d;
    if (cli_find_shim(shim, sizeof shim)) {
        snprintf(beside, sizeof beside, "%.*s/liblmdb.so.0", (int)(strrchr(shim, '/') - shim), shim);
        handle = access(beside, R_OK) ? NULL : dlopen(beside, RTLD_LAZY);
    }
    if (!handle)
        handle = dlopen("liblmdb.so.0", RTLD_LAZY);
    void *version = handle ? dlsym(handle, "mdb_version") : NULL;
    if (!version) {
        doctor_say(l, "not found");
        return doctor_bad(l, FAIL, "apt-get install liblmdb0; without it nothing is dispatched or tuned");
    }
    char *(*get)(int *, int *, int *);
    Dl_info where = {0};
    memcpy(&get, &version, sizeof get);
    dladdr(version, &where);
    doctor_say(l, "%s, %s", get(NULL, NULL, NULL), where.dli_fname ? where.dli_fname : "?");
    return FINE;
}

static enum level blas(const struct doctor *d, struct line *l)
{
    struct kfit_generic g;
    struct kfit_error err = {0};
    char real[PATH_MAX];
    (void)d;
    enum kfit_status s = cli_generic_probe(NULL, &g, &err);
    if (s != KFIT_OK)
        doctor_say(l, "%s", err.text);
    else
        doctor_say(l, "%s, %d threads, %s", g.config, g.threads, g.path);
    if (realpath("/etc/alternatives/libblas.so.3-x86_64-linux-gnu", real)) {
        doctor_say(l, "; libblas.so.3 is %s", real);
        if (strstr(real, "/blas/"))
            return doctor_bad(l, WARN,
                              "that is the slow reference BLAS, which Debian's numpy uses: apt-get install "
                              "libopenblas0-pthread");
    }
    return s == KFIT_OK
               ? FINE
               : doctor_bad(l, WARN, "apt-get install libopenblas0-pthread, or use a Python with its own");
}

/* Which BLAS files numpy brings along or links, asked of the interpreter that is first in PATH. */
static enum level numpy(const struct doctor *d, struct line *l)
{
    static const char script[] = "python3 -c 'import numpy,glob,os;d=os.path.dirname(numpy.__file__);"
                                 "print(numpy.__version__,d,*glob.glob(d+\".libs/*blas*\"),*glob.glob(d+\"/"
                                 ".libs/*blas*\"))' 2>/dev/null";
    char text[512] = "";
    (void)d;
    FILE *f = popen(script, "re");
    if (f) {
        if (!fgets(text, sizeof text, f))
            text[0] = '\0';
        pclose(f);
    }
    text[strcspn(text, "\n")] = '\0';
    doctor_say(l, "%s", text[0] ? text : "python3 here has no numpy (only needed by the demo)");
    return FINE;
}

static enum level shim(const struct doctor *d, struct line *l)
{
    char path[PATH_MAX], list[256];
    (void)d;
    if (!cli_find_shim(path, sizeof path)) {
        doctor_say(l, "libkfit_preload.so not found");
        return doctor_bad(l, FAIL, "build or install kfit completely");
    }
    bool ok = doctor_needs(path, list, sizeof list);
    doctor_say(l, "%s, needs %s", path, ok ? list : "?");
    if (!ok || strcmp(list, "libc.so.6"))
        return doctor_bad(
            l, FAIL,
            "it must need libc.so.6 alone, or programs without its libraries will not start; build it again");
    return FINE;
}

/* What was found, or why it was not, and what to do. */
enum level doctor_found(struct line *l, bool is, const char *what, const char *why_not, enum level level,
                        const char *advice)
{
    doctor_say(l, "%s", is ? what : why_not);
    return is ? FINE : doctor_bad(l, level, "%s", advice);
}

static enum level runner(const struct doctor *d, struct line *l)
{
    char path[PATH_MAX];
    (void)d;
    return doctor_found(l, cli_find_runner(path, sizeof path), path, "kfit-runner not found", FAIL,
                        "build or install kfit completely; needed by tune and eval");
}

static enum level trace_dir(const struct doctor *d, struct line *l)
{
    char dir[PATH_MAX];
    struct kfit_error err = {0};
    struct statvfs fs;
    (void)d;
    for (unsigned i = 0; cli_runtime_dir(i, dir, sizeof dir); i++) {
        if (cli_private_dir(dir, &err) != KFIT_OK || statvfs(dir, &fs))
            continue;
        unsigned long long free_mib = (unsigned long long)fs.f_bavail * fs.f_frsize >> 20;
        doctor_say(l, "%s, %llu MiB free", dir, free_mib);
        if (free_mib < 64)
            return doctor_bad(
                l, WARN,
                "a process needs about 6 MiB; without room calls are counted in memory only, and lost");
        return FINE;
    }
    doctor_say(l, "%s", err.text);
    return doctor_bad(l, WARN,
                      "traces will be written to a disk, which can delay calls; mount a tmpfs on /dev/shm");
}

static enum level cache_dir(const struct doctor *d, struct line *l)
{
    struct stat st;
    uint64_t number;
    struct kfit_error err = {0};
    if (lstat(d->cache, &st)) {
        doctor_say(l, "%s: %s", d->cache, errno == ENOENT ? "not there yet; tune makes it" : strerror(errno));
        return errno == ENOENT ? FINE : doctor_bad(l, FAIL, "name another with --cache or KFIT_CACHE");
    }
    doctor_say(l, "%s, uid %u, mode %04o", d->cache, st.st_uid, st.st_mode & 07777);
    if ((st.st_uid != geteuid() && st.st_uid) || st.st_mode & 022)
        return doctor_bad(l, FAIL,
                          "it must belong to you or root and be closed to other writers: chown, chmod go-w");
    enum kfit_status s = kfit_generation_current(d->cache, &number, (uint8_t[32]){0}, &err);
    if (s == KFIT_OK)
        doctor_say(l, ", generation %llu", (unsigned long long)number);
    else if (s == KFIT_E_NOTFOUND)
        doctor_say(l, ", nothing published");
    else
        return doctor_bad(l, FAIL, "%.200s; see `kfit cache verify`", err.text);
    char off[4200];
    snprintf(off, sizeof off, "%s/off", d->cache);
    if (!access(off, F_OK))
        return doctor_bad(l, WARN, "kfit is switched off there; `kfit on` undoes it");
    return FINE;
}

/* Who measures on a device now, in the places where the judge puts its lock. */
static void lock_of(const char *device, struct line *l)
{
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    char dirs[3][512] = {"/run/lock/kfit"};
    snprintf(dirs[1], sizeof dirs[1], "%s/kfit", runtime ? runtime : "/nonexistent");
    snprintf(dirs[2], sizeof dirs[2], "/tmp/kfit-%u", getuid());
    for (unsigned i = 0; i < 3; i++) {
        char path[PATH_MAX + 16];
        struct flock who = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
        snprintf(path, sizeof path, "%s/%s.lock", dirs[i], device);
        int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
        if (fd < 0)
            continue;
        bool held = !fcntl(fd, F_GETLK, &who) && who.l_type != F_UNLCK;
        close(fd);
        if (held)
            doctor_say(l, "%s is held by process %d: a tune or eval is running", path, who.l_pid);
        else
            doctor_say(l, "%s is free", path);
        return;
    }
    doctor_say(l, "%s: never taken here", device);
}

static enum level device_lock(const struct doctor *d, struct line *l)
{
    char path[PATH_MAX], gpu_id[48];
    (void)d;
    lock_of("host", l);
    if (kfit_judge_device_id("cuda", cli_find_runner_cuda(path, sizeof path) ? path : NULL, gpu_id, NULL) ==
        KFIT_OK) {
        doctor_say(l, "; ");
        lock_of(gpu_id, l);
    }
    return FINE;
}

static const struct {
    const char *name;
    enum level (*fn)(const struct doctor *, struct line *);
} checks[] = {
    {"cpu", cpu},
    {"compiler", compiler},
    {"isolation", isolation},
    {"seccomp", seccomp},
    {"memfd", memfd},
    {"lmdb", lmdb},
    {"blas", blas},
    {"numpy", numpy},
    {"shim", shim},
    {"runner", runner},
    {"traces", trace_dir},
    {"cache", cache_dir},
    {"lock", device_lock},
    {"nvrtc", doctor_nvrtc},
    {"cublas", doctor_cublas},
    {"cudarun", doctor_runner_cuda},
    {"gpu", doctor_gpu},
    {"cupti", doctor_cupti},
    {"ceilings", doctor_ceilings},
    {"memory", doctor_memory},
    {"hooks", doctor_hooks},
    {"preloads", doctor_preloads},
    {"left", doctor_runs},
    {"unfinished", doctor_unfinished},
    {"state", doctor_state},
    {"environ", doctor_environment},
};

enum { CHECKS = sizeof checks / sizeof *checks };

/* Whether the i-th is asked for. */
static bool wanted(const struct cli_list *names, unsigned i)
{
    bool yes = !names->count;
    for (size_t k = 0; k < names->count; k++)
        yes |= !strcmp(names->item[k], checks[i].name);
    return yes;
}

static bool known(const char *name)
{
    unsigned i = 0;
    while (i < CHECKS && strcmp(name, checks[i].name))
        i++;
    return i < CHECKS;
}

int cli_doctor(int argc, char **argv)
{
    const char *cache = NULL;
    bool json = false;
    struct cli_list names = {0};
    struct doctor d;
    const struct cli_option options[] = {CLI_OPTION_CACHE(&cache), CLI_OPTION_JSON(&json), {0}};
    cli_parse(argc, argv,
              &(struct cli_usage){
                  .args = "[CHECK...]",
                  .doc = "Checks what kfit needs here, or only the named of its checks. Exit status 1 if "
                         "anything fails.",
                  .options = options,
                  .max = CLI_ANY},
              &names);
    for (size_t i = 0; i < names.count; i++)
        if (!known(names.item[i]))
            return cli_usage_error(argv, "there is no check \"%s\"; without arguments all are shown",
                                   cli_str(names.item[i]));
    cli_cache_dir(cache, d.cache, sizeof d.cache);
    cJSON *list = json ? cJSON_CreateArray() : NULL;
    int rc = CLI_OK;
    for (unsigned i = 0; i < CHECKS; i++) {
        struct line l = {0};
        if (!wanted(&names, i))
            continue;
        enum level level = checks[i].fn(&d, &l);
        if (level == FAIL)
            rc = CLI_FAILED;
        if (json) {
            cJSON *o = cJSON_CreateObject();
            cJSON_AddStringToObject(o, "check", checks[i].name);
            cJSON_AddStringToObject(o, "level", level_names[level]);
            cJSON_AddStringToObject(o, "text", SAFE(l.text));
            cJSON_AddStringToObject(o, "advice", SAFE(l.advice));
            cJSON_AddItemToArray(list, o);
        } else {
            printf("%-4s %-10s %s\n", level_names[level], checks[i].name, SAFE(l.text));
            if (l.advice[0])
                printf("                %s\n", SAFE(l.advice));
        }
    }
    return json ? cli_json_print(list) | rc : rc;
}
