/* After this the process can compute, wait, and talk to its parent; any other system call kills it. */
#include <errno.h>
#include <seccomp.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include "runner.h"

static const struct {
    int syscall;
    int fd; /* the only descriptor it may be used with; -1: any use */
} allowed[] = {
    {SCMP_SYS(read), 0},
    {SCMP_SYS(write), 1},
    {SCMP_SYS(futex), -1},       /* BLAS threads wait and wake */
    {SCMP_SYS(sched_yield), -1}, /* ... and spin */
    {SCMP_SYS(clock_gettime), -1},
    {SCMP_SYS(clock_nanosleep), -1},
    {SCMP_SYS(madvise), -1},
    {SCMP_SYS(munmap), -1},
    {SCMP_SYS(brk), -1},
    {SCMP_SYS(mbind), -1}, /* ... and bind new buffers to a node */
    {SCMP_SYS(restart_syscall), -1},
    {SCMP_SYS(exit), -1},
    {SCMP_SYS(exit_group), -1},
};

const char *kfit_isolate(void)
{
    struct rlimit none = {0, 0}, cpu = {600, 600}; /* seconds; the parent's patience ends long before */
    if (setrlimit(RLIMIT_CORE, &none) || setrlimit(RLIMIT_CPU, &cpu))
        return "setrlimit";
    if (prctl(PR_SET_DUMPABLE, 0))
        return "prctl(PR_SET_DUMPABLE)";
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_KILL_PROCESS);
    if (!filter)
        return "seccomp_init";
    const char *problem = NULL;
    if (seccomp_attr_set(filter, SCMP_FLTATR_CTL_TSYNC, 1))
        problem = "seccomp: all threads at once";
    for (size_t i = 0; !problem && i < sizeof allowed / sizeof *allowed; i++) {
        bool any = allowed[i].fd < 0;
        if (seccomp_rule_add(filter, SCMP_ACT_ALLOW, allowed[i].syscall, any ? 0 : 1,
                             SCMP_A0(SCMP_CMP_EQ, any ? 0 : (scmp_datum_t)allowed[i].fd, 0)))
            problem = "seccomp_rule_add";
    }
    /* one more BLAS buffer when two threads meet: anonymous memory, never executable */
    if (!problem &&
        seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(mmap), 3,
                         SCMP_A2(SCMP_CMP_EQ, PROT_READ | PROT_WRITE, 0),
                         SCMP_A3(SCMP_CMP_MASKED_EQ, MAP_SHARED | MAP_FIXED | MAP_ANONYMOUS, MAP_ANONYMOUS),
                         SCMP_A4(SCMP_CMP_MASKED_EQ, UINT32_MAX, UINT32_MAX)))
        problem = "seccomp_rule_add";
    if (!problem && seccomp_load(filter))
        problem = "seccomp_load";
    seccomp_release(filter);
    return problem;
}
