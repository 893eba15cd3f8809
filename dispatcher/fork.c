/* Loading libraries, and fork() in another thread.
 *
 * A child forked while a thread is at loading has the dynamic linker's tables as they were then, and a library that is half
 * there: what it loads next crashes, a generation of its own first of all. So fork() waits until nobody loads, some
 * milliseconds once per process, and loading until nobody is within fork(). Not for ever: who forks may hold what the
 * other waits for, and a child that came by clone() has the counts of threads that it does not have. */
#include <pthread.h>
#include <time.h>

#include "internal.h"

static uint32_t loading, forking; /* threads */
static int32_t patience_ms = 1000; /* in all */
static __thread uint32_t loads __attribute__((tls_model("initial-exec")));

static bool wait_ms(void)
{
    const struct timespec ms = {0, 1000000};
    const bool more = __atomic_load_n(&patience_ms, __ATOMIC_RELAXED) > 0;
    if (more) {
        __atomic_fetch_sub(&patience_ms, 1, __ATOMIC_RELAXED);
        nanosleep(&ms, NULL);
    }
    return more;
}

static void before_fork(void)
{
    struct kfit_visit v = kfit_visit_begin();
    __atomic_fetch_add(&forking, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&loading, __ATOMIC_SEQ_CST) != loads) {
        __atomic_fetch_sub(&forking, 1, __ATOMIC_SEQ_CST);
        const bool more = wait_ms();
        __atomic_fetch_add(&forking, 1, __ATOMIC_SEQ_CST);
        if (!more)
            break;
    }
    kfit_visit_end(v);
}

static void after_fork(void)
{
    __atomic_fetch_sub(&forking, 1, __ATOMIC_SEQ_CST);
}

static void in_child(void)
{
    forking = 0;
    loading = loads;
}

void kfit_load_begin(void)
{
    static uint32_t asked;
    if (!__atomic_exchange_n(&asked, 1, __ATOMIC_RELAXED))
        pthread_atfork(before_fork, after_fork, in_child);
    loads++;
    __atomic_fetch_add(&loading, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&forking, __ATOMIC_SEQ_CST) && wait_ms())
        ;
}

void kfit_load_end(void)
{
    loads--;
    __atomic_fetch_sub(&loading, 1, __ATOMIC_SEQ_CST);
}
