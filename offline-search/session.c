#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "session.h"

#define PAGE            4096ul
#define START_LIMIT_NS  10e9
#define WORKSPACE_ALIGN 64u

double kfit_session_cpu_ns(const struct kfit_session *s)
{
    char text[96];
    usleep(50); /* it has answered: let it fall asleep, which brings its account up to date */
    ssize_t n = s->schedstat >= 0 ? pread(s->schedstat, text, sizeof text - 1, 0) : -1;
    if (n <= 0)
        return -1;
    text[n] = '\0';
    return strtod(text, NULL);
}

double kfit_session_waited_ns(const struct kfit_session *s)
{
    char path[300], text[96], *end;
    double sum = 0;
    snprintf(path, sizeof path, "/proc/%d/task", (int)s->pid);
    DIR *tasks = opendir(path);
    for (struct dirent *e; tasks && (e = readdir(tasks));) {
        snprintf(path, sizeof path, "/proc/%d/task/%s/schedstat", (int)s->pid, e->d_name);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
        if (fd >= 0)
            close(fd);
        text[n > 0 ? n : 0] = '\0';
        strtod(text, &end);       /* on a processor */
        sum += strtod(end, NULL); /* waiting for one */
    }
    if (tasks)
        closedir(tasks);
    return sum;
}

static size_t pages(size_t bytes)
{
    return (bytes + PAGE - 1) & ~(PAGE - 1);
}

/* ---- bands ---- */

void kfit_band_fill(uint8_t *region, size_t from, size_t to)
{
    const uint64_t word = KFIT_BAND;
    for (size_t i = from; i < to; i++)
        region[i] = ((const uint8_t *)&word)[i % 8];
}

size_t kfit_band_check(const uint8_t *region, size_t from, size_t to)
{
    const uint64_t word = KFIT_BAND;
    size_t i = from;
    while (i < to && region[i] == ((const uint8_t *)&word)[i % 8])
        i++;
    return i;
}

/* ---- layout ---- */

static struct kfit_runner_region take(size_t *used, size_t bytes)
{
    struct kfit_runner_region r = {.offset = *used, .bytes = pages(bytes)};
    *used += r.bytes;
    return r;
}

static size_t lay_out(struct kfit_session *s, const struct kfit_session_params *p,
                      struct kfit_runner_control *c)
{
    size_t used = pages(sizeof *c), set = 0;
    s->op = kfit_op_of(p->key);
    s->nargs = s->op->nargs(p->key);
    s->key = *p->key;
    for (unsigned i = 0; i < s->nargs; i++) {
        s->op->tensor(p->key, i, &s->tensor[i]);
        s->bytes[i] = kfit_tensor_bytes(&s->tensor[i]);
    }
    for (unsigned i = 0; i < 2; i++)
        if (p->image[i])
            s->bytes[s->nargs + i] = p->plan[i]->workspace_bytes;
    for (unsigned i = 0; i < s->nargs + 2; i++) {
        set += kfit_runner_slot_bytes(s->bytes[i]);
        if (s->bytes[i])
            c->region[i] = take(&used, s->bytes[i] + 3 * PAGE);
    }
    c->nargs = s->nargs;
    c->workspace_init = p->image[0] ? p->plan[0]->workspace_init : KFIT_WS_SCRATCH;
    c->out_arg = s->op->out_arg;
    c->out_bytes = s->bytes[c->out_arg];
    c->private_bytes = pages(set > p->cold_bytes ? set : p->cold_bytes);
    c->restore = take(&used, c->out_bytes);
    c->snapshots = take(&used, KFIT_RUNNER_SNAPSHOTS * (c->out_bytes + 64));
    c->stack = take(&used, KFIT_RUNNER_STACK + KFIT_RUNNER_CANARY);
    for (unsigned i = 0; i < 2; i++) {
        if (!p->image[i])
            continue;
        struct kfit_runner_region r = take(&used, p->image_bytes[i]);
        c->image[i] =
            (struct kfit_runner_image){r.offset, p->image_bytes[i], p->plan[i]->launches[0].entry_offset};
    }
    return used;
}

void kfit_session_place(struct kfit_session *s, enum kfit_placement where)
{
    for (unsigned i = 0; i < s->nargs + 2; i++) {
        size_t align = i >= s->nargs ? WORKSPACE_ALIGN : s->key.gemm.align;
        size_t end = (s->control->region[i].bytes - s->bytes[i]) & ~(align - 1);
        if (s->bytes[i])
            s->at[i] = where == KFIT_PLACE_END ? end : where == KFIT_PLACE_START ? 0 : PAGE + align;
    }
}

uint8_t *kfit_session_arg(const struct kfit_session *s, unsigned i)
{
    return s->bytes[i] ? s->arena + s->control->region[i].offset + s->at[i] : NULL;
}

uint8_t *kfit_session_snapshot(const struct kfit_session *s, unsigned i)
{
    return s->arena + s->control->snapshots.offset + i * ((s->control->out_bytes + 63) & ~63ul);
}

uint8_t *kfit_session_restore(const struct kfit_session *s)
{
    return s->arena + s->control->restore.offset;
}

static uint8_t *canary(const struct kfit_session *s)
{
    return s->arena + s->control->stack.offset + KFIT_RUNNER_STACK;
}

/* ---- start and end ---- */

/* A descriptor well above those that the child's own numbers occupy. */
static int lift(int fd)
{
    int high = fcntl(fd, F_DUPFD_CLOEXEC, 16);
    close(fd);
    return high;
}

static enum kfit_status spawn(struct kfit_session *s, const struct kfit_session_params *p, int child_socket,
                              struct kfit_error *err)
{
    static const char *const thread_variables[] = {"OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS",
                                                   "MKL_NUM_THREADS"};
    char text[4][96], *env[5] = {NULL}, *argv[] = {"kfit-runner", NULL};
    unsigned n = 0;
    for (unsigned i = 0; p->threads > 0 && i < 3; i++, n++)
        snprintf(env[n] = text[n], sizeof text[n], "%s=%d", thread_variables[i], p->threads);
    const char *core = getenv("OPENBLAS_CORETYPE"); /* the program had it, so its generic was that */
    if (core)
        snprintf(env[n] = text[n], sizeof text[n], "OPENBLAS_CORETYPE=%s", core);

    posix_spawn_file_actions_t files;
    posix_spawnattr_t attr;
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&attr);
    posix_spawn_file_actions_adddup2(&files, child_socket, 0);
    posix_spawn_file_actions_adddup2(&files, child_socket, 1);
    posix_spawn_file_actions_addopen(&files, 2, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_adddup2(&files, s->arena_fd, KFIT_RUNNER_ARENA_FD);
    posix_spawn_file_actions_addclosefrom_np(&files, KFIT_RUNNER_ARENA_FD + 1);
    posix_spawnattr_setsigmask(&attr, &none);
    posix_spawnattr_setsigdefault(&attr, &all);
    posix_spawnattr_setpgroup(&attr, 0); /* Ctrl-C is for the judge */
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
    int rc = posix_spawn(&s->pid, p->runner, &files, &attr, argv, env);
    posix_spawnattr_destroy(&attr);
    posix_spawn_file_actions_destroy(&files);
    if (rc) {
        s->pid = 0;
        return kfit_fail(err, rc == ENOENT ? KFIT_E_NOTFOUND : KFIT_E_IO, "judge: cannot start %s: %s",
                         p->runner, strerror(rc));
    }
    return KFIT_OK;
}

enum kfit_status kfit_session_start(struct kfit_session *s, const struct kfit_session_params *p,
                                    struct kfit_error *err)
{
    struct kfit_runner_control *c = calloc(1, sizeof *c);
    int pair[2] = {-1, -1};
    enum kfit_code code;
    char at[64], path[64];
    memset(s, 0, sizeof *s);
    s->socket = s->arena_fd = s->schedstat = -1;
    if (!c)
        return kfit_fail(err, KFIT_E_NOMEM, "judge: out of memory");
    s->arena_bytes = lay_out(s, p, c);
    enum kfit_status st = KFIT_E_IO;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) || (pair[1] = lift(pair[1])) < 0 ||
        (s->arena_fd = memfd_create("kfit-arena", MFD_CLOEXEC)) < 0 ||
        (s->arena_fd = lift(s->arena_fd)) < 0 || posix_fallocate(s->arena_fd, 0, (off_t)s->arena_bytes)) {
        kfit_fail(err, st, "judge: cannot make an arena of %zu bytes: %s", s->arena_bytes, strerror(errno));
        goto out;
    }
    s->socket = pair[0];
    s->arena = mmap(NULL, s->arena_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, s->arena_fd, 0);
    if (s->arena == MAP_FAILED) {
        s->arena = NULL;
        st = kfit_fail(err, KFIT_E_NOMEM, "judge: cannot map an arena of %zu bytes: %s", s->arena_bytes,
                       strerror(errno));
        goto out;
    }
    s->control = (struct kfit_runner_control *)s->arena;
    c->version = KFIT_RUNNER_VERSION;
    c->parent = getpid();
    c->threads = (uint32_t)p->threads;
    c->key = *p->key;
    c->generic = *p->generic;
    *s->control = *c;
    for (unsigned i = 0; i < 2; i++)
        if (p->image[i])
            memcpy(s->arena + c->image[i].offset, p->image[i], p->image_bytes[i]);
    kfit_band_fill(canary(s), 0, KFIT_RUNNER_CANARY);
    kfit_session_place(s, KFIT_PLACE_MIDDLE);
    memcpy(s->control->launch.at, s->at, sizeof s->at);
    st = spawn(s, p, pair[1], err);
    close(pair[1]);
    pair[1] = -1;
    if (st == KFIT_OK)
        st = kfit_session_command(s, (enum kfit_runner_command)0, START_LIMIT_NS, NULL, &code, at, err);
    if (st == KFIT_OK) {
        snprintf(path, sizeof path, "/proc/%d/task/%d/schedstat", (int)s->pid, (int)s->pid);
        s->schedstat = open(path, O_RDONLY | O_CLOEXEC);
    }
out:
    if (pair[1] >= 0)
        close(pair[1]);
    if (s->socket < 0 && pair[0] >= 0)
        close(pair[0]);
    free(c);
    return st;
}

static int reap(struct kfit_session *s, bool kill_it)
{
    int status = 0;
    if (!s->pid)
        return 0;
    if (kill_it)
        kill(s->pid, SIGKILL);
    while (waitpid(s->pid, &status, 0) < 0 && errno == EINTR)
        ;
    s->pid = 0;
    return status;
}

void kfit_session_finish(struct kfit_session *s)
{
    reap(s, true);
    if (s->arena)
        munmap(s->arena, s->arena_bytes);
    if (s->arena_fd > 0)
        close(s->arena_fd);
    if (s->socket > 0)
        close(s->socket);
    if (s->schedstat > 0)
        close(s->schedstat);
    memset(s, 0, sizeof *s);
}

/* ---- commands ---- */

static bool in_guards(const struct kfit_runner_region *r, uint64_t address)
{
    return r->address &&
           ((address < r->address && address >= r->address - KFIT_RUNNER_GUARD) ||
            (address >= r->address + r->bytes && address < r->address + r->bytes + KFIT_RUNNER_GUARD));
}

/* Who is to blame for a runner that died. */
static enum kfit_status blame(struct kfit_session *s, int status, enum kfit_code *code, char at[64],
                              struct kfit_error *err)
{
    const struct kfit_runner_control *c = s->control;
    int sig = c->fault_signal ? c->fault_signal : WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    if (!c->running || sig == SIGKILL || sig == SIGTERM || (!sig && !c->running))
        return kfit_fail(err, sig == SIGKILL || sig == SIGTERM ? KFIT_E_INTERRUPTED : KFIT_E_CRASH,
                         "judge: the runner ended on its own (status %#x, signal %d%s%s)%s", (unsigned)status,
                         sig, c->message[0] ? ": " : "", c->message,
                         sig == SIGSYS ? "; a BLAS thread needs a system call"
                                         " that offline-search/isolate.c does not allow"
                                       : "");
    snprintf(at, 64, "signal %d at %#llx", sig, (unsigned long long)c->fault_address);
    *code = KFIT_CODE_WRONG_CRASH;
    if (sig == SIGSYS)
        *code = KFIT_CODE_WRONG_SYSCALL;
    else if (sig == SIGSEGV || sig == SIGBUS) {
        if (in_guards(&c->stack, c->fault_address))
            *code = KFIT_CODE_WRONG_STACK;
        for (unsigned i = 0; i < c->nargs + 2; i++) {
            if (!in_guards(&c->region[i], c->fault_address))
                continue;
            bool before = c->fault_address < c->region[i].address;
            *code = KFIT_CODE_WRONG_BOUNDS;
            snprintf(at, 64, "%s: %lld bytes %s", i < s->nargs ? s->op->arg_names[i] : "workspace",
                     (long long)(before ? c->region[i].address - c->fault_address
                                        : c->fault_address - c->region[i].address - c->region[i].bytes),
                     before ? "before the start" : "past the end");
        }
    }
    return KFIT_OK;
}

enum kfit_status kfit_session_command(struct kfit_session *s, enum kfit_runner_command command,
                                      double limit_ns, double *outer_ns, enum kfit_code *code, char at[64],
                                      struct kfit_error *err)
{
    uint8_t byte = (uint8_t)command, answer = 0;
    struct pollfd p = {.fd = s->socket, .events = POLLIN};
    enum kfit_status st = KFIT_OK;
    *code = KFIT_CODE_NONE;
    at[0] = '\0';
    double start = kfit_now_ns(), left = limit_ns;
    if (command && send(s->socket, &byte, 1, MSG_NOSIGNAL) != 1)
        p.revents = POLLHUP; /* dead already */
    for (; !p.revents && left > 0; left = start + limit_ns - kfit_now_ns()) {
        int n = poll(&p, 1, (int)(left / 1e6) + 1);
        if (n > 0 || (n < 0 && errno != EINTR))
            break;
    }
    bool answered = p.revents && recv(s->socket, &answer, 1, MSG_DONTWAIT) == 1;
    if (outer_ns)
        *outer_ns = kfit_now_ns() - start;
    if (answered && answer == KFIT_RUNNER_FAILED) {
        reap(s, true);
        return kfit_fail(err, command ? KFIT_E_CRASH : KFIT_E_NOTFOUND, "judge: runner: %.*s",
                         (int)sizeof s->control->message, s->control->message);
    }
    if (!answered && !p.revents && left <= 0) {
        bool image = s->control->running;
        reap(s, true);
        if (!image)
            return kfit_fail(err, KFIT_E_TIMEOUT, "judge: the runner did not answer within %.1f s",
                             limit_ns / 1e9);
        *code = KFIT_CODE_WRONG_HANG;
        snprintf(at, 64, "no answer within %.2f s", limit_ns / 1e9);
    } else if (!answered)
        st = blame(s, reap(s, false), code, at, err);
    if (st != KFIT_OK)
        return st;
    size_t changed = kfit_band_check(canary(s), 0, KFIT_RUNNER_CANARY);
    if (changed < KFIT_RUNNER_CANARY) {
        *code = KFIT_CODE_WRONG_STACK;
        snprintf(at, 64, "%zu bytes above the entry frame", changed);
    } else if (*code == KFIT_CODE_NONE && s->control->fp_state_changed) {
        *code = KFIT_CODE_WRONG_FP_STATE;
        snprintf(at, 64, "rounding, masks or direction flag not restored");
    }
    return KFIT_OK;
}

enum kfit_status kfit_session_launch(struct kfit_session *s, enum kfit_who who, unsigned count,
                                     bool restore_each, double *outer_ns, enum kfit_code *code, char at[64],
                                     struct kfit_error *err)
{
    struct kfit_runner_launch *l = &s->control->launch;
    *l = (struct kfit_runner_launch){.who = who, .count = count, .restore_each = restore_each};
    memcpy(l->at, s->at, sizeof s->at);
    double known = s->call_ns > 0 ? s->call_ns : 1e9; /* unknown: the generic's own first run */
    return kfit_session_command(s, KFIT_RUNNER_LAUNCH, 1e9 + 200 * known * (s->call_ns > 0 ? count : 1),
                                outer_ns, code, at, err);
}
