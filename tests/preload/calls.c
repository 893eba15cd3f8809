/* A program that calls BLAS, linked to it as any C program is. Prints its results: the same with and without
 * kfit.
 *
 *   calls keys               every form, type, transpose and increment (calls.h)
 *   calls odd                what never becomes a key, and alpha = 2
 *   calls loop COUNT         cblas_sgemm 4x4x4
 *   calls step COUNT         the same, printing one element of each result
 *   calls crash COUNT        the same, then SIGKILL
 *   calls quit COUNT         the same, then _exit
 *   calls exec COUNT         the same, then `calls step COUNT` by exec
 *   calls alpha VALUE        one of them with another alpha
 *   calls lines              one of them for each line of input
 *   calls set-threads COUNT  COUNT of them with the BLAS at one thread, then at two, then at one
 *   calls threads N COUNT    N threads at once, COUNT calls each
 *   calls fork N COUNT DELAY N children, COUNT calls each, forked while another thread calls without pause;
 *                            the first DELAY microseconds after that thread began */
#include <cblas.h>
#include <errno.h>
#include <fcntl.h>
#include <fenv.h>
#include <f77blas.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <xmmintrin.h>

#include "calls.h"

#ifdef __SANITIZE_ADDRESS__
/* Leaks cannot be looked for in a setuid process, and options from the environment do not get there. */
__attribute__((visibility("default"))) const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return getauxval(AT_SECURE) ? "detect_leaks=0" : "";
}
#endif

enum { ROOM = 4096 };
static _Alignas(64) double ad[ROOM], bd[ROOM], cd[ROOM];
static _Alignas(64) float af[ROOM], bf[ROOM], cf[ROOM];

static void fill(void)
{
    for (int i = 0; i < ROOM; i++) {
        af[i] = (float)(ad[i] = (i * 7 % 23 - 11) / 8.0);
        bf[i] = (float)(bd[i] = (i * 5 % 19 - 9) / 16.0);
        cf[i] = (float)(cd[i] = i % 13);
    }
}

/* Results, and what a guest must leave alone. */
static void print(const char *what)
{
    uint64_t h = 1469598103934665603u;
    for (size_t i = 0; i < sizeof cd; i++)
        h = (h ^ ((unsigned char *)cd)[i]) * 1099511628211u;
    for (size_t i = 0; i < sizeof cf; i++)
        h = (h ^ ((unsigned char *)cf)[i]) * 1099511628211u;
    int error = errno, fds = 0;
    for (int fd = 0; fd < 64; fd++)
        fds += fcntl(fd, F_GETFD) >= 0;
    printf("%s %016llx errno %d fp %x %x fds %d\n", what, (unsigned long long)h, error,
           fetestexcept(FE_ALL_EXCEPT), _mm_getcsr(), fds);
    errno = error;
}

static void gemm(enum form form, bool f64, bool ta, bool tb)
{
    bool col = form != ROW_MAJOR;
    blasint m = M, n = N, k = K;
    blasint lda = ((ta != col) ? M : K) + PAD_A, ldb = ((tb != col) ? K : N) + PAD_B,
            ldc = (col ? M : N) + PAD_C;
    enum CBLAS_ORDER order = col ? CblasColMajor : CblasRowMajor;
    enum CBLAS_TRANSPOSE t1 = ta ? CblasTrans : CblasNoTrans, t2 = tb ? CblasTrans : CblasNoTrans;
    char l1 = ta ? 'T' : 'n', l2 = tb ? 'c' : 'N';
    double one = 1, zero = 0;
    float onef = 1, zerof = 0;
    if (form == FORTRAN && f64)
        dgemm_(&l1, &l2, &m, &n, &k, &one, ad, &lda, bd, &ldb, &zero, cd, &ldc);
    else if (form == FORTRAN)
        sgemm_(&l1, &l2, &m, &n, &k, &onef, af, &lda, bf, &ldb, &zerof, cf, &ldc);
    else if (f64)
        cblas_dgemm(order, t1, t2, m, n, k, 1, ad, lda, bd, ldb, 0, cd, ldc);
    else
        cblas_sgemm(order, t1, t2, m, n, k, 1, af, lda, bf, ldb, 0, cf, ldc);
}

static void gemv(enum form form, bool f64, bool t, int ix, int iy, double alpha, double beta)
{
    bool col = form != ROW_MAJOR;
    blasint m = ROWS, n = COLS, lda = (col ? ROWS : COLS) + PAD_V, incx = ix, incy = iy;
    enum CBLAS_ORDER order = col ? CblasColMajor : CblasRowMajor;
    enum CBLAS_TRANSPOSE t1 = t ? CblasTrans : CblasNoTrans;
    char l1 = t ? 't' : 'N';
    float alphaf = (float)alpha, betaf = (float)beta;
    if (form == FORTRAN && f64)
        dgemv_(&l1, &m, &n, &alpha, ad, &lda, bd, &incx, &beta, cd, &incy);
    else if (form == FORTRAN)
        sgemv_(&l1, &m, &n, &alphaf, af, &lda, bf, &incx, &betaf, cf, &incy);
    else if (f64)
        cblas_dgemv(order, t1, m, n, alpha, ad, lda, bd, incx, beta, cd, incy);
    else
        cblas_sgemv(order, t1, m, n, alphaf, af, lda, bf, incx, betaf, cf, incy);
}

static void keys(void)
{
    int call = 0;
    for (int form = 0; form < FORMS; form++)
        for (int f64 = 0; f64 < 2; f64++) {
            for (int t = 0; t < 4; t++, call++) {
                for (int r = repeats(call); r; r--)
                    gemm((enum form)form, f64, t & 1, t & 2);
                print("gemm");
            }
            for (int t = 0; t < 2; t++)
                for (int i = 0; i < 4; i++, call++) {
                    for (int r = repeats(call); r; r--)
                        gemv((enum form)form, f64, t, incs_x[i & 1], incs_y[i >> 1], 1, 0);
                    print("gemv");
                }
        }
}

static void odd(void)
{
    gemv(ROW_MAJOR, false, false, -2, 1, 1, 0);
    gemv(COL_MAJOR, true, true, 1, -1, 1, 1);
    gemv(FORTRAN, true, true, -1, -3, 1, 0.5);
    print("negative");
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, 0, 7, 5, 1, af, 5, bf, 7, 0, cf, 7);
    cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, 3, 7, 0, 1, ad, 5, bd, 7, 0, cd, 7);
    print("empty");
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, 3, 7, 5, 2, af, 5, bf, 7, 1, cf, 7);
    gemv(ROW_MAJOR, true, false, 1, 1, 1, -1);
    print("scaled");
    cblas_sgemm((enum CBLAS_ORDER)5, CblasNoTrans, CblasNoTrans, 3, 7, 5, 1, af, 5, bf, 7, 0, cf, 7);
    cblas_dgemm(CblasRowMajor, CblasNoTrans, (enum CBLAS_TRANSPOSE)5, 3, 7, 5, 1, ad, 5, bd, 7, 0, cd, 7);
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, 3, 7, 5, 1, af, 4, bf, 7, 0, cf, 7);
    print("wrong");
}

static void loop(long count, float *out)
{
    for (long i = 0; i < count; i++)
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, 4, 4, 4, 1, af, 4, bf, 4, 0, out, 4);
}

static void step(long count, float alpha)
{
    for (long i = 0; i < count; i++) {
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, 4, 4, 4, alpha, af, 4, bf, 4, 0, cf, 4);
        printf("%g\n", cf[0]);
        fflush(stdout);
    }
}

static void lines(void)
{
    for (int c; (c = getchar()) != EOF;)
        if (c == '\n')
            step(1, 1);
}

static void set_threads(long count)
{
    static const int phases[] = {1, 2, 1};
    for (int i = 0; i < 3; i++) {
        openblas_set_num_threads(phases[i]);
        step(count, 1);
    }
}

static pthread_barrier_t together;
static atomic_bool stop;

static void *work(void *count)
{
    _Alignas(64) float out[16];
    pthread_barrier_wait(&together);
    loop((long)(intptr_t)count, out);
    return NULL;
}

static void threads(int n, long count)
{
    pthread_t ids[64];
    pthread_barrier_init(&together, NULL, (unsigned)n);
    for (int i = 0; i < n; i++)
        pthread_create(&ids[i], NULL, work, (void *)(intptr_t)count);
    for (int i = 0; i < n; i++)
        pthread_join(ids[i], NULL);
}

static void *busy(void *started)
{
    _Alignas(64) float out[16];
    while (!atomic_load(&stop)) {
        loop(1, out);
        atomic_store((atomic_bool *)started, true);
    }
    return NULL;
}

static void forks(int n, long count, long delay_us)
{
    pthread_t id;
    atomic_bool started = false;
    struct timespec now, then;
    pthread_create(&id, NULL, busy, &started);
    clock_gettime(CLOCK_MONOTONIC, &then);
    do
        clock_gettime(CLOCK_MONOTONIC, &now);
    while ((now.tv_sec - then.tv_sec) * 1000000 + (now.tv_nsec - then.tv_nsec) / 1000 < delay_us);
    for (int i = 0; i < n; i++) {
        pid_t child = fork();
        int st = 0;
        if (!child) {
            loop(count, cf);
            _exit(0);
        }
        if (child < 0 || waitpid(child, &st, 0) != child || st)
            printf("child %d: status %d\n", i, st);
        printf("child %d\n", (int)child);
        while (!atomic_load(&started))
            sched_yield();
    }
    atomic_store(&stop, true);
    pthread_join(id, NULL);
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    fill();
    errno = 1234;
    feclearexcept(FE_ALL_EXCEPT);
    if (!strcmp(what, "keys"))
        keys();
    else if (!strcmp(what, "odd"))
        odd();
    else if (!strcmp(what, "loop") && argc == 3)
        loop(atol(argv[2]), cf), print("loop");
    else if (!strcmp(what, "step") && argc == 3)
        step(atol(argv[2]), 1);
    else if (!strcmp(what, "crash") && argc == 3)
        step(atol(argv[2]), 1), raise(SIGKILL);
    else if (!strcmp(what, "quit") && argc == 3)
        step(atol(argv[2]), 1), _exit(0);
    else if (!strcmp(what, "exec") && argc == 3)
        step(atol(argv[2]), 1), execl(argv[0], argv[0], "step", argv[2], NULL);
    else if (!strcmp(what, "alpha") && argc == 3)
        step(1, (float)atof(argv[2]));
    else if (!strcmp(what, "lines"))
        lines();
    else if (!strcmp(what, "set-threads") && argc == 3)
        set_threads(atol(argv[2]));
    else if (!strcmp(what, "threads") && argc == 4)
        threads(atoi(argv[2]), atol(argv[3]));
    else if (!strcmp(what, "fork") && argc == 5)
        forks(atoi(argv[2]), atol(argv[3]), atol(argv[4]));
    else
        return 2;
    return 0;
}
