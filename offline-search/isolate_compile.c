/* A hostile source can make a compiler read files (#include, .incbin) and take any amount of time and memory;
 * it cannot make it run code. So the file system is taken away and the rest is limited. */
#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "gate0.h"
#include "isolate_compile.h"

#define MEMORY_BYTES_MAX ((rlim_t)3 << 30) /* address space of one tool */

/* What a toolchain needs. Missing ones are fine. */
static const char *const places[] = {
    "/usr/bin", "/usr/lib", "/usr/lib64", "/usr/libexec",      "/usr/local/bin",   "/usr/local/lib",
    "/bin",     "/lib",     "/lib64",     "/etc/alternatives", "/etc/ld.so.cache",
};
enum { PLACES = sizeof places / sizeof *places };

/* Later kernels know more rights; older ones refuse to be told of them. Named here by number, because the
 * system's header may be older than its kernel. */
static const struct {
    uint64_t fs, net, scope;
} landlock_rights[] = {
    {0x1fff, 0, 0}, {0x3fff, 0, 0}, {0x7fff, 0, 0}, {0x7fff, 3, 0}, {0xffff, 3, 0}, {0xffff, 3, 3},
};

struct ruleset { /* struct landlock_ruleset_attr of ABI 6 */
    uint64_t fs, net, scope;
};

static int make_ruleset(const char (*prefix)[256])
{
    long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
    if (abi < 1)
        return -1;
    size_t row = (size_t)abi - 1, last = sizeof landlock_rights / sizeof *landlock_rights - 1;
    row = row < last ? row : last;
    struct ruleset attr = {landlock_rights[row].fs, landlock_rights[row].net, landlock_rights[row].scope};
    size_t size = row < 3 ? 8 : row < 5 ? 16 : 24;
    int fd = (int)syscall(SYS_landlock_create_ruleset, &attr, size, 0);
    for (int i = 0; fd >= 0 && i < PLACES + KFIT_PREFIXES; i++) {
        const char *path = i < PLACES ? places[i] : prefix[i - PLACES];
        int at = *path ? open(path, O_PATH | O_CLOEXEC) : -1;
        struct stat st;
        if (at < 0)
            continue;
        struct landlock_path_beneath_attr rule = {
            .allowed_access = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_EXECUTE, .parent_fd = at};
        if (fstat(at, &st) == 0 && S_ISDIR(st.st_mode))
            rule.allowed_access |= LANDLOCK_ACCESS_FS_READ_DIR;
        if (syscall(SYS_landlock_add_rule, fd, LANDLOCK_RULE_PATH_BENEATH, &rule, 0)) {
            close(fd);
            fd = -1;
        }
        close(at);
    }
    return fd;
}

/* ---- mount namespace, in the child: system calls only ---- */

static const char new_root[] = "/tmp";

static bool write_file(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    bool ok = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    if (fd >= 0)
        close(fd);
    return ok;
}

/* path under the new root, made with its parents; false if it does not fit. */
static bool make_place(const char *path, bool dir, char out[320])
{
    if (strlen(path) + sizeof new_root > 320)
        return false;
    memcpy(out, new_root, sizeof new_root);
    strcat(out, path);
    for (char *p = out + sizeof new_root; *p; p++)
        if (*p == '/') {
            *p = '\0';
            mkdir(out, 0755);
            *p = '/';
        }
    if (dir)
        return mkdir(out, 0755) == 0 || errno == EEXIST;
    int fd = open(out, O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

static bool bind_read_only(const char *path)
{
    char to[320], target[256];
    struct stat st;
    if (lstat(path, &st))
        return true;
    if (S_ISLNK(st.st_mode)) { /* /bin -> usr/bin */
        ssize_t n = readlink(path, target, sizeof target - 1);
        if (n < 0 || strlen(path) + sizeof new_root > sizeof to)
            return false;
        target[n] = '\0';
        memcpy(to, new_root, sizeof new_root);
        strcat(to, path);
        return symlink(target, to) == 0;
    }
    return make_place(path, S_ISDIR(st.st_mode), to) && !mount(path, to, NULL, MS_BIND | MS_REC, NULL) &&
           !mount(NULL, to, NULL, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV, NULL);
}

/* Makes the namespaces and a root of the toolchain and a /proc of nobody else's; returns in the new first
 * process, while the caller waits for it and ends as it does. */
static bool enter_namespace(const struct kfit_isolation *iso)
{
    char proc[320];
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC))
        return false;
    write_file("/proc/self/setgroups", "deny");
    if (!write_file("/proc/self/uid_map", iso->id_map[0]) ||
        !write_file("/proc/self/gid_map", iso->id_map[1]))
        return false;
    pid_t first = fork();
    if (first < 0)
        return false;
    if (first) {
        int st = 0;
        while (waitpid(first, &st, 0) < 0 && errno == EINTR)
            ;
        _exit(WIFEXITED(st) ? WEXITSTATUS(st) : 128 + WTERMSIG(st));
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
        mount("none", new_root, "tmpfs", MS_NOSUID | MS_NODEV, "size=1m,mode=755"))
        return false;
    for (int i = 0; i < PLACES; i++)
        if (!bind_read_only(places[i]))
            return false;
    for (int i = 0; i < KFIT_PREFIXES; i++)
        if (iso->prefix[i][0] && !bind_read_only(iso->prefix[i]))
            return false;
    return make_place("/proc", true, proc) &&
           !mount("proc", proc, "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) &&
           !mount(NULL, new_root, NULL, MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV, "size=1m,mode=755") &&
           !chroot(new_root) && !chdir("/");
}

/* Asked by trying: whether namespaces are allowed depends on too much. */
static bool namespaces_work(const struct kfit_isolation *iso)
{
    pid_t pid = fork();
    if (pid == 0)
        _exit(enter_namespace(iso) ? 0 : 1);
    int st = -1;
    while (pid > 0 && waitpid(pid, &st, 0) < 0 && errno == EINTR)
        ;
    return pid > 0 && WIFEXITED(st) && WEXITSTATUS(st) == 0;
}

/* The folder of a tool or library, if it is not one of the usual places: /opt/gcc-14/bin/gcc-14 needs
 * /opt/gcc-14. */
static void note_prefix(char prefix[256], const char *file)
{
    static const char *const usual[] = {"/usr/bin/", "/usr/lib/", "/usr/local/bin/", "/usr/local/lib/"};
    const char *slash = strrchr(file, '/');
    size_t n = slash ? (size_t)(slash - file) : 0;
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++)
        if (!strncmp(file, usual[i], strlen(usual[i])))
            return;
    if (n > 4 && !memcmp(file + n - 4, "/bin", 4))
        n -= 4;
    if (n > 1 && n < 256) {
        memcpy(prefix, file, n);
        prefix[n] = '\0';
    }
}

enum kfit_status kfit_isolation_init(struct kfit_isolation *iso, const char *tool, const char *library,
                                     bool allow_none, struct kfit_error *err)
{
    memset(iso, 0, sizeof *iso);
    note_prefix(iso->prefix[0], tool);
    if (library)
        note_prefix(iso->prefix[1], library);
    snprintf(iso->id_map[0], sizeof iso->id_map[0], "%u %u 1", geteuid(), geteuid());
    snprintf(iso->id_map[1], sizeof iso->id_map[1], "%u %u 1", getegid(), getegid());
    iso->ruleset = make_ruleset(iso->prefix);
    iso->namespaces = iso->ruleset < 0 && namespaces_work(iso);
    iso->name = iso->ruleset >= 0 ? "landlock" : iso->namespaces ? "namespace" : "none";
    if (iso->ruleset < 0 && !iso->namespaces && !allow_none)
        return kfit_fail(
            err, KFIT_E_UNSUPPORTED,
            "compile: neither Landlock (Linux 5.13) nor user namespaces are to be had here, so a hostile "
            "source could read files; compile on another machine, or allow it for sources you trust");
    return KFIT_OK;
}

void kfit_isolation_finish(struct kfit_isolation *iso)
{
    if (iso->name && iso->ruleset >= 0)
        close(iso->ruleset);
    memset(iso, 0, sizeof *iso);
}

/* ---- memfds ---- */

int kfit_memfd(void)
{
    return memfd_create("kfit", MFD_CLOEXEC);
}

bool kfit_memfd_fill(int fd, const void *data, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t n = write(fd, (const char *)data + done, bytes - done);
        if (n <= 0)
            return false;
        done += (size_t)n;
    }
    return lseek(fd, 0, SEEK_SET) == 0;
}

char *kfit_memfd_read(int fd, size_t *bytes)
{
    struct stat st;
    char *data = fstat(fd, &st) == 0 ? malloc((size_t)st.st_size + 1) : NULL;
    size_t done = 0;
    for (ssize_t n = 1; data && n > 0 && done<(size_t)st.st_size; done += n> 0 ? (size_t)n : 0)
        n = pread(fd, data + done, (size_t)st.st_size - done, (off_t)done);
    if (data)
        data[done] = '\0';
    *bytes = done;
    return data;
}

/* ---- running ---- */

/* The child, from fork to exec: system calls only, the parent may have threads. fds[i] becomes i. */
static _Noreturn void become(const struct kfit_isolation *iso, const struct kfit_tool *tool, const int fds[5])
{
    static const char *const env[] = {"PATH=/usr/bin:/bin", "LC_ALL=C", NULL};
    const struct {
        int what;
        rlim_t limit;
    } limits[] = {
        {RLIMIT_CPU, tool->timeout_ms / 1000 + 1},
        {RLIMIT_AS, MEMORY_BYTES_MAX},
        {RLIMIT_FSIZE, KFIT_TOOL_OUTPUT_BYTES_MAX},
        {RLIMIT_CORE, 0},
    };
    int high[6];
    setpgid(0, 0);
    for (int i = 0; i < 6; i++) {
        int fd = i < 5 ? fds[i] : iso->ruleset;
        high[i] = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 16);
        if (fd >= 0 && high[i] < 0)
            _exit(126);
    }
    for (int i = 0; i < 5; i++)
        if (high[i] < 0)
            close(i);
        else if (dup2(high[i], i) < 0)
            _exit(126);
    if (high[5] >= 0 && dup2(high[5], 5) < 0)
        _exit(126);
    syscall(SYS_close_range, 6u, ~0u, 0u);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
        (high[5] >= 0 && (syscall(SYS_landlock_restrict_self, 5, 0) || close(5))) ||
        (iso->namespaces && !enter_namespace(iso)))
        _exit(126);
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++)
        setrlimit(limits[i].what, &(struct rlimit){limits[i].limit, limits[i].limit});
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGPIPE, SIG_DFL);
    execve(tool->argv[0], (char *const *)(uintptr_t)tool->argv, (char *const *)(uintptr_t)env);
    _exit(127);
}

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

enum kfit_status kfit_tool_run(const struct kfit_isolation *iso, struct kfit_tool *tool,
                               struct kfit_error *err)
{
    int alive[2] = {-1, -1}, messages = kfit_memfd(), null = open("/dev/null", O_RDWR | O_CLOEXEC);
    enum kfit_status s = KFIT_OK;
    pid_t pid = -1;
    /* Everyone below the child holds the pipe's other end, so its end is the end of all of them. */
    if (messages < 0 || null < 0 || pipe2(alive, O_CLOEXEC) || (pid = fork()) < 0) {
        s = kfit_fail(err, KFIT_E_IO, "compile: cannot start %s: %s", tool->argv[0], strerror(errno));
        goto out;
    }
    if (pid == 0)
        become(iso, tool,
               (const int[5]){tool->input < 0 ? null : tool->input, tool->output < 0 ? null : tool->output,
                              messages, tool->object, alive[1]});
    close(alive[1]);
    alive[1] = -1;
    int64_t deadline = now_ms() + tool->timeout_ms;
    struct pollfd p = {.fd = alive[0], .events = POLLIN};
    int st = 0, ready = 0;
    while (ready <= 0 && !tool->timed_out) {
        int64_t left = deadline - now_ms();
        ready = left > 0 ? poll(&p, 1, (int)left) : 0;
        tool->timed_out = ready == 0 || (ready < 0 && errno != EINTR);
    }
    if (tool->timed_out) {
        kill(pid, SIGKILL);
        kill(-pid, SIGKILL);
    }
    while (waitpid(pid, &st, 0) < 0 && errno == EINTR)
        ;
    tool->status = WIFEXITED(st) ? WEXITSTATUS(st) : 128 + WTERMSIG(st);
    tool->timed_out |= tool->status == 128 + SIGXCPU;
    ssize_t n = pread(messages, tool->messages, sizeof tool->messages - 1, 0);
    tool->messages[n > 0 ? n : 0] = '\0';
    if (tool->status == 126 || tool->status == 127)
        s = kfit_fail(err, KFIT_E_IO, "compile: %s could not be %s", tool->argv[0],
                      tool->status == 126 ? "isolated" : "run");
out:
    for (int i = 0; i < 2; i++)
        if (alive[i] >= 0)
            close(alive[i]);
    if (messages >= 0)
        close(messages);
    if (null >= 0)
        close(null);
    return s;
}
