/* A small server that links kfit: two layers of a network, batches of 1 to 8 rows, several threads.
 *
 *     cc example.c $(pkg-config --cflags --libs kfit openblas) -lpthread
 *     KFIT_TRACE=/dev/shm/kfit-example ./a.out            # records
 *     KFIT_CACHE=$HOME/.cache/kfit ./a.out                # runs what was tuned and approved
 */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include <cblas.h>
#include <kfit/kfit.h>

enum { INPUT = 96, HIDDEN = 128, OUTPUT = 10, BATCH_MAX = 8, REQUESTS = 200, THREADS = 2 };

static struct kfit *kfit;
static float w1[INPUT * HIDDEN], w2[HIDDEN * OUTPUT];
static unsigned by_kfit, by_blas;

/* y[rows, out] = x[rows, in] * w[in, out] */
static void product(int rows, int in, int out, const float *x, const float *w, float *y)
{
    if (kfit_try_sgemm(kfit, CblasRowMajor, CblasNoTrans, CblasNoTrans, rows, out, in, 1, x, in, w, out, 0, y,
                       out)) {
        __atomic_fetch_add(&by_kfit, 1, __ATOMIC_RELAXED);
        return;
    }
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, rows, out, in, 1, x, in, w, out, 0, y, out);
    __atomic_fetch_add(&by_blas, 1, __ATOMIC_RELAXED);
}

static void answer(int rows, const float *x, float *y)
{
    _Alignas(64) float hidden[BATCH_MAX * HIDDEN];
    product(rows, INPUT, HIDDEN, x, w1, hidden);
    for (int i = 0; i < rows * HIDDEN; i++)
        hidden[i] = hidden[i] > 0 ? hidden[i] : 0;
    product(rows, HIDDEN, OUTPUT, hidden, w2, y);
}

/* Serves requests of every batch size; returns whether all answers to the same question were the same. */
static void *serve(void *arg)
{
    _Alignas(64) float x[BATCH_MAX * INPUT], y[BATCH_MAX * OUTPUT], first[OUTPUT];
    for (int i = 0; i < BATCH_MAX * INPUT; i++)
        x[i] = (float)(i % INPUT) / INPUT - 0.5f; /* each row asks the same */
    for (int request = 0; request < REQUESTS; request++) {
        int rows = 1 + request % BATCH_MAX;
        answer(rows, x, y);
        for (int i = 0; i < rows * OUTPUT; i++) {
            if (request == 0)
                first[i] = y[i];
            if (fabsf(y[i] - first[i % OUTPUT]) > 1e-3f)
                return NULL;
        }
    }
    return arg;
}

int main(void)
{
    char text[1024];
    struct kfit_open_params params = kfit_params_from_environment();
    params.blas = (const void *)cblas_sgemm;
    if (kfit_open(&kfit, &params, text, sizeof text) != 0)
        fprintf(stderr, "%s; serving without\n", text);
    for (int i = 0; i < INPUT * HIDDEN; i++)
        w1[i] = (float)(i * 7 % 23 - 11) / 23;
    for (int i = 0; i < HIDDEN * OUTPUT; i++)
        w2[i] = (float)(i * 5 % 19 - 9) / 19;

    pthread_t threads[THREADS];
    int right = 1;
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, serve, &params))
            return 1;
    for (int i = 0; i < THREADS; i++) {
        void *ok;
        pthread_join(threads[i], &ok);
        right &= ok != NULL;
    }
    kfit_state(kfit, text, sizeof text);
    printf("%u products by kfit, %u by the BLAS, answers %s\n%s\n", by_kfit, by_blas,
           right ? "right" : "WRONG", text);
    kfit_close(kfit);
    return !right;
}
