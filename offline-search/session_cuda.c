#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kfit/cuda.h"
#include "session_cuda.h"

extern char **environ;

#define REPLY_SLACK_MS 20000 /* context creation, allocation and copies that are not the candidate's */

/* What CUDA and its libraries read; everything else stays behind. */
static const char *const kept[] = {"PATH", "HOME", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER",
                                   "CUBLAS_WORKSPACE_CONFIG", "NVIDIA_TF32_OVERRIDE", "KFIT_CUPTI"};
enum { KEPT = sizeof kept / sizeof *kept };

enum kfit_status session_cuda_open(struct session_cuda *s, const char *program, size_t arena_bytes,
                                   struct kfit_error *err)
{
    int pair[2] = {-1, -1};
    char text[KEPT][4096], *env[KEPT + 1] = {0};
    unsigned n = 0;
    s->socket = s->arena_fd = -1;
    s->arena_bytes = (arena_bytes + 4095) & ~(size_t)4095;
    s->arena_fd = memfd_create("kfit-arena", MFD_CLOEXEC);
    if (s->arena_fd < 0 || ftruncate(s->arena_fd, (off_t)s->arena_bytes) ||
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
        return kfit_fail(err, KFIT_E_IO, "judge: cannot make the worker's memory and socket: %s", strerror(errno));
    s->socket = pair[0];
    s->arena = mmap(NULL, s->arena_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, s->arena_fd, 0);
    if (s->arena == MAP_FAILED) {
        s->arena = NULL;
        close(pair[1]);
        return kfit_fail(err, KFIT_E_NOMEM, "judge: no memory for %zu bytes of arena", s->arena_bytes);
    }
    for (unsigned i = 0; i < KEPT; i++) {
        const char *v = getenv(kept[i]);
        if (v && (size_t)snprintf(text[n], sizeof text[n], "%s=%s", kept[i], v) < sizeof text[n]) {
            env[n] = text[n];
            n++;
        }
    }
    char *const argv[] = {(char *)(uintptr_t)program, NULL};
    s->pid = fork();
    if (s->pid == 0) { /* only what is safe after fork */
        int null = open("/dev/null", O_WRONLY);
        /* by way of high numbers: dup2 of a descriptor to itself would leave it close-on-exec */
        int socket = fcntl(pair[1], F_DUPFD, 16), arena = fcntl(s->arena_fd, F_DUPFD, 16);
        if (dup2(socket, 0) < 0 || dup2(null, 1) < 0 || dup2(arena, 3) < 0)
            _exit(126);
        close_range(4, ~0u, 0);
        execve(program, argv, env);
        _exit(127);
    }
    close(pair[1]);
    if (s->pid < 0) {
        s->pid = 0;
        return kfit_fail(err, KFIT_E_IO, "judge: cannot start a worker: %s", strerror(errno));
    }
    s->started++;
    return KFIT_OK;
}

void session_cuda_close(struct session_cuda *s)
{
    unsigned started = s->started;
    if (s->pid > 0) {
        kill(s->pid, SIGKILL);
        while (waitpid(s->pid, NULL, 0) < 0 && errno == EINTR)
            ;
    }
    if (s->arena)
        munmap(s->arena, s->arena_bytes);
    if (s->pid > 0 || s->arena) {
        close(s->socket);
        close(s->arena_fd);
    }
    struct kfit_cu_reply reply = s->reply;
    *s = (struct session_cuda){.socket = -1, .arena_fd = -1, .started = started, .reply = reply};
}

static bool send_all(int fd, const void *p, size_t n)
{
    for (size_t done = 0; done < n;) {
        ssize_t k = send(fd, (const char *)p + done, n - done, MSG_NOSIGNAL);
        if (k < 0 && errno != EINTR)
            return false;
        done += k > 0 ? (size_t)k : 0;
    }
    return true;
}

enum kfit_status session_cuda_do(struct session_cuda *s, const struct kfit_cu_command *c, struct kfit_error *err)
{
    memset(&s->reply, 0, sizeof s->reply);
    bool sent = send_all(s->socket, c, sizeof *c);
    size_t got = 0;
    int limit = (int)c->limit_ms + REPLY_SLACK_MS;
    while (sent && got < sizeof s->reply) {
        struct pollfd p = {.fd = s->socket, .events = POLLIN};
        int ready = poll(&p, 1, limit);
        if (ready < 0 && errno == EINTR)
            continue;
        if (ready == 0) {
            s->reply.error = KFIT_CU_HANG;
            session_cuda_close(s);
            return kfit_fail(err, KFIT_E_TIMEOUT, "the worker did not answer within %d ms", limit);
        }
        ssize_t k = recv(s->socket, (char *)&s->reply + got, sizeof s->reply - got, 0);
        if (k <= 0)
            break;
        got += (size_t)k;
    }
    if (got < sizeof s->reply) {
        memset(&s->reply, 0, sizeof s->reply);
        session_cuda_close(s);
        return kfit_fail(err, KFIT_E_CRASH, "the worker ended without an answer; is kfit-runner-cuda whole?");
    }
    if (!s->reply.error)
        return KFIT_OK;
    enum kfit_status st = s->reply.error == KFIT_CU_HANG            ? KFIT_E_TIMEOUT
                          : s->reply.error == KFIT_CU_OUT_OF_MEMORY ? KFIT_E_NOMEM
                          : s->reply.error == KFIT_CU_NO_DEVICE     ? KFIT_E_UNSUPPORTED
                                                                    : KFIT_E_CRASH;
    session_cuda_close(s);
    return kfit_fail(err, st, "%s", s->reply.message);
}
