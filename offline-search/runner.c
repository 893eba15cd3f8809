/* kfit-runner: the process that holds a candidate. Started by the judge only; see runner.h.
 *
 * It opens the generic, starts its threads, maps everything, gives up all system calls but a few, and then
 * does what the command bytes say. What it reports is believed only where the parent can check it.
 */
#include <asm/prctl.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <xmmintrin.h>

#include "clock.h"
#include "runner.h"
#include "runner_generic.h"

#define PAGE          4096ul
#define MXCSR_CONTROL 0xffc0u /* masks, rounding, flush and denormals bits; below are sticky flags */
#define RFLAGS_DF     0x400u

static struct kfit_runner_control *control;
static struct kfit_generic_calls generic;
static kfit_enter_fn *enter;
static const void *entry[2];
static uint8_t *region[KFIT_RUNNER_ARGS], *restore_bytes, *snapshots;
static uint8_t *private_bytes; /* for timing: sets x set_bytes, the first set's arguments at private_args */
static void *private_args[KFIT_RUNNER_ARGS];
static unsigned sets;
static uint64_t set_bytes;
static unsigned mxcsr;
static uint16_t x87_control;

static void reply(uint8_t what)
{
    while (write(1, &what, 1) < 0 && errno == EINTR)
        ;
}

__attribute__((noreturn, format(printf, 1, 2))) static void give_up(const char *fmt, ...)
{
    if (control) {
        va_list ap;
        va_start(ap, fmt);
        vsnprintf(control->message, sizeof control->message, fmt, ap);
        va_end(ap);
    }
    reply(KFIT_RUNNER_FAILED);
    _exit(2);
}

/* ---- mapping ---- */

/* Reserves bytes of address space at a random place, inaccessible, with a guard before and after. */
static uint8_t *reserve(size_t bytes)
{
    size_t all = bytes + 2 * KFIT_RUNNER_GUARD;
    for (int tries = 0; tries < 64; tries++) {
        uint64_t random;
        if (getrandom(&random, sizeof random, 0) != sizeof random)
            break;
        uint64_t at = (0x200000000000u + random % 0x5e0000000000u) & ~(PAGE - 1);
        void *p = mmap((void *)at, all, PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
        if (p == (void *)at)
            return (uint8_t *)p + KFIT_RUNNER_GUARD;
        if (p != MAP_FAILED)
            munmap(p, all);
    }
    give_up("no address space for %zu bytes: %s", bytes, strerror(errno));
}

static uint8_t *map_arena(uint64_t offset, uint64_t bytes)
{
    uint8_t *p = reserve(bytes);
    if (mmap(p, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_POPULATE, KFIT_RUNNER_ARENA_FD,
             (off_t)offset) != p)
        give_up("cannot map %llu bytes of the arena: %s", (unsigned long long)bytes, strerror(errno));
    return p;
}

static uint8_t *map_region(struct kfit_runner_region *r)
{
    uint8_t *p = map_arena(r->offset, r->bytes);
    r->address = (uint64_t)(uintptr_t)p;
    return p;
}

static uint8_t *map_private(size_t bytes)
{
    uint8_t *p = reserve(bytes);
    if (mprotect(p, bytes, PROT_READ | PROT_WRITE))
        give_up("cannot get %zu bytes: %s", bytes, strerror(errno));
    return p;
}

/* A private read-and-execute copy of code. */
static const uint8_t *map_code(const void *code, size_t bytes)
{
    size_t whole = (bytes + PAGE - 1) & ~(PAGE - 1);
    uint8_t *p = map_private(whole);
    memcpy(p, code, bytes);
    if (mprotect(p, whole, PROT_READ | PROT_EXEC))
        give_up("cannot make code executable: %s; is this system hardened against it?", strerror(errno));
    return p;
}

static void map_control(void)
{
    struct stat st;
    if (fstat(KFIT_RUNNER_ARENA_FD, &st) || (size_t)st.st_size < sizeof *control)
        give_up("started without an arena");
    control = (struct kfit_runner_control *)map_arena(0, (sizeof *control + PAGE - 1) & ~(PAGE - 1));
    if (control->version != KFIT_RUNNER_VERSION || control->nargs + 2 > KFIT_RUNNER_ARGS || !control->nargs ||
        kfit_key_check(&control->key, NULL) != KFIT_OK)
        give_up("the judge speaks another version");
}

static void map_all(void)
{
    for (unsigned i = 0; i < KFIT_RUNNER_ARGS; i++)
        if (control->region[i].bytes)
            region[i] = map_region(&control->region[i]);
    restore_bytes = map_region(&control->restore);
    snapshots = map_region(&control->snapshots);
    map_region(&control->stack);
    private_bytes = map_private(control->private_bytes);
    madvise(private_bytes, control->private_bytes, MADV_HUGEPAGE); /* as numpy does for large arrays */
    for (unsigned i = 0; i < 2; i++) {
        const struct kfit_runner_image *image = &control->image[i];
        if (!image->bytes)
            continue;
        uint8_t *bytes = map_arena(image->offset, (image->bytes + PAGE - 1) & ~(PAGE - 1));
        entry[i] = map_code(bytes, image->bytes) + image->entry;
        munmap(bytes, (image->bytes + PAGE - 1) & ~(PAGE - 1));
    }
}

/* ---- entering candidate code ---- */

static void on_fault(int signal, siginfo_t *info, void *context)
{
    const ucontext_t *u = context;
    control->fault_signal = signal;
    control->fault_address = (uint64_t)(uintptr_t)info->si_addr;
    control->fault_ip = (uint64_t)u->uc_mcontext.gregs[REG_RIP];
    _exit(3);
}

static void catch_faults(void)
{
    static const int signals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP};
    size_t bytes = 16 * PAGE;
    stack_t alt = {.ss_sp = map_private(bytes), .ss_size = bytes};
    struct sigaction sa = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESETHAND};
    if (sigaltstack(&alt, NULL))
        give_up("sigaltstack: %s", strerror(errno));
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        sigaction(signals[i], &sa, NULL);
}

static void measure_enter(void)
{
    static const uint8_t ret = 0xc3;
    const void *nothing = map_code(&ret, 1);
    void *args[KFIT_RUNNER_ARGS] = {0};
    double best = 1e9;
    for (int round = 0; round < 20; round++) {
        double start = kfit_now_ns();
        for (int i = 0; i < 256; i++)
            enter(nothing, args);
        double ns = (kfit_now_ns() - start) / 256;
        best = ns < best ? ns : best;
    }
    control->enter_ns = best;
}

static void prepare_enter(void)
{
    struct kfit_enter_state *state = (struct kfit_enter_state *)map_private(PAGE);
    state->stack_top = control->stack.address + KFIT_RUNNER_STACK;
    state->clear_vectors = __builtin_cpu_supports("avx") != 0;
    if (syscall(SYS_arch_prctl, ARCH_SET_GS, state))
        give_up("arch_prctl(ARCH_SET_GS): %s", strerror(errno));
    enter =
        (kfit_enter_fn *)(uintptr_t)map_code(kfit_enter_begin, (size_t)(kfit_enter_end - kfit_enter_begin));
    mxcsr = _mm_getcsr();
    __asm__("fnstcw %0" : "=m"(x87_control));
    measure_enter();
}

static void check_fp_state(uint64_t flags)
{
    uint16_t x87;
    __asm__ volatile("fnstcw %0" : "=m"(x87));
    if ((flags & RFLAGS_DF) || ((_mm_getcsr() ^ mxcsr) & MXCSR_CONTROL) || x87 != x87_control) {
        control->fp_state_changed = 1;
        __asm__ volatile("fninit; fldcw %0" ::"m"(x87_control));
    }
    _mm_setcsr(mxcsr);
}

static bool can_run(unsigned who)
{
    return kfit_who_is_image(who) ? entry[who] != NULL
           : who == KFIT_RUN_GEMV ? generic.gemv != NULL
                                  : who == KFIT_RUN_GEMM;
}

/* reps calls, one after another, each with the next set of arguments when there are several. */
static double batch(unsigned who, unsigned reps, void *const base[], unsigned rotate, unsigned *at)
{
    void *from[KFIT_RUNNER_ARGS] = {0}, *args[KFIT_RUNNER_ARGS];
    uint64_t flags = 0;
    bool image = kfit_who_is_image(who);
    unsigned workspace = control->nargs;
    memcpy(from, base, workspace * sizeof *from);
    from[workspace] = image ? base[workspace + who] : NULL;
    memcpy(args, from, sizeof args);
    *(volatile uint32_t *)&control->running = image ? 1 + who : 0;
    double start = kfit_now_ns();
    for (unsigned r = 0; r < reps; r++) {
        if (rotate > 1) {
            *at = (*at + 1) % rotate;
            for (unsigned i = 0; i <= workspace; i++)
                args[i] = from[i] ? (uint8_t *)from[i] + *at * set_bytes : NULL;
        }
        if (image)
            flags |= enter(entry[who], args);
        else
            kfit_generic_call(&generic, (enum kfit_who)who, args);
    }
    double ns = kfit_now_ns() - start;
    *(volatile uint32_t *)&control->running = 0;
    if (image)
        check_fp_state(flags);
    return ns;
}

/* ---- commands ---- */

static void pointers(const uint64_t at[KFIT_RUNNER_ARGS], void *args[KFIT_RUNNER_ARGS])
{
    for (unsigned i = 0; i < KFIT_RUNNER_ARGS; i++)
        args[i] = region[i] ? region[i] + at[i] : NULL;
}

static void restore(void *args[])
{
    memcpy(args[control->out_arg], restore_bytes, control->out_bytes);
}

static void run_launch(void)
{
    const struct kfit_runner_launch l = control->launch;
    void *args[KFIT_RUNNER_ARGS];
    unsigned at = 0;
    if (!can_run(l.who))
        give_up("asked to run what is not there: %u", l.who);
    pointers(l.at, args);
    if (!l.restore_each)
        batch(l.who, l.count, args, 1, &at);
    for (unsigned i = 0; l.restore_each && i < l.count; i++) {
        restore(args);
        batch(l.who, 1, args, 1, &at);
    }
}

static void run_fill(void)
{
    const struct kfit_runner_fill f = control->fill;
    uint64_t used = 0;
    set_bytes = 0;
    for (unsigned i = 0; i < KFIT_RUNNER_ARGS; i++)
        set_bytes += kfit_runner_slot_bytes(f.bytes[i]);
    if (!f.sets || f.sets > control->private_bytes / (set_bytes ? set_bytes : 1))
        give_up("asked for %u copies of %llu bytes", f.sets, (unsigned long long)set_bytes);
    sets = f.sets;
    for (unsigned i = 0; i < KFIT_RUNNER_ARGS; i++) {
        private_args[i] = f.bytes[i] ? private_bytes + used + 16 : NULL;
        for (unsigned s = 0; f.bytes[i] && s < sets; s++)
            memcpy((uint8_t *)private_args[i] + s * set_bytes, region[i] + f.at[i], f.bytes[i]);
        used += kfit_runner_slot_bytes(f.bytes[i]);
    }
}

static void run_pairs(void)
{
    /* A private copy: what is being timed must not be able to see or change what comes next. */
    const struct kfit_runner_pairs p = control->pairs;
    unsigned at = 0, kept = 0;
    size_t stride = (control->out_bytes + 63) & ~63ul;
    if (!can_run(p.who[0]) || !can_run(p.who[1]) || p.n > KFIT_PAIRS_MAX || !sets)
        give_up("asked to time what is not there: %u, %u", p.who[0], p.who[1]);
    for (unsigned i = 0; i < p.n; i++) {
        for (unsigned turn = 0; turn < 2; turn++) {
            unsigned side = (p.first[i] & 1) ^ turn;
            if (sets == 1)
                restore(private_args);
            control->pairs.ns[side][i] = batch(p.who[side], p.reps[side], private_args, sets, &at);
            if (side == 1 && kept < KFIT_RUNNER_SNAPSHOTS && p.snapshot[kept] == i && sets == 1)
                memcpy(snapshots + kept++ * stride, private_args[control->out_arg], control->out_bytes);
        }
    }
}

static const struct {
    uint8_t byte;
    void (*run)(void);
} commands[] = {
    {KFIT_RUNNER_LAUNCH, run_launch},
    {KFIT_RUNNER_FILL, run_fill},
    {KFIT_RUNNER_PAIRS, run_pairs},
};

/* Whether every other thread has made its first system calls: it is seen waiting for work, asleep or
 * spinning. */
static bool threads_started(void)
{
    DIR *tasks = opendir("/proc/self/task");
    bool all = true;
    for (struct dirent *e; tasks && all && (e = readdir(tasks));) {
        char path[300], text[16] = "";
        if (e->d_name[0] == '.' || atoi(e->d_name) == gettid())
            continue;
        snprintf(path, sizeof path, "/proc/self/task/%s/syscall", e->d_name);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0)
            continue; /* not told here */
        all =
            read(fd, text, sizeof text - 1) > 0 && (atoi(text) == SYS_futex || atoi(text) == SYS_sched_yield);
        close(fd);
    }
    if (tasks)
        closedir(tasks);
    return all;
}

/* A BLAS thread that the scheduler starts only after the filter is in place would die of its own first steps.
 */
static void await_threads(void)
{
    const struct timespec pause = {0, 200000};
    for (int i = 0; i < 5000 && !threads_started(); i++)
        nanosleep(&pause, NULL);
}

int main(void)
{
    map_control();
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() != control->parent)
        give_up("the judge is gone");
    if (!kfit_generic_open(&generic, &control->generic, &control->key, control->message)) {
        reply(KFIT_RUNNER_FAILED);
        return 2;
    }
    map_all();
    void *args[KFIT_RUNNER_ARGS];
    pointers(control->launch.at, args);
    for (int i = 0; i < 3; i++) { /* BLAS threads and buffers come now or never */
        kfit_generic_call(&generic, KFIT_RUN_GEMM, args);
        if (generic.gemv)
            kfit_generic_call(&generic, KFIT_RUN_GEMV, args);
    }
    await_threads();
    catch_faults();
    prepare_enter();
    close(KFIT_RUNNER_ARENA_FD);
    const char *problem = kfit_isolate();
    if (problem)
        give_up("cannot isolate the runner (%s): %s", problem, strerror(errno));
    control->has_gemv = generic.gemv != NULL;
    reply(KFIT_RUNNER_READY);

    for (uint8_t command; read(0, &command, 1) == 1;) {
        unsigned i = 0;
        while (i < sizeof commands / sizeof *commands && commands[i].byte != command)
            i++;
        if (i == sizeof commands / sizeof *commands)
            give_up("unknown command %u", command);
        commands[i].run();
        control->done++;
        reply(KFIT_RUNNER_DONE);
    }
    _exit(0);
}
