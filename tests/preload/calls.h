/* What calls.c does, so that test_calls.c can say what the trace must hold. Prime sizes, every leading
 * dimension padded by its own amount, each call made its own number of times. */
#ifndef CALLS_H
#define CALLS_H

enum { M = 5, N = 7, K = 11, PAD_A = 2, PAD_B = 3, PAD_C = 4 }; /* gemm */
enum { ROWS = 13, COLS = 17, PAD_V = 2 };                       /* gemv: the matrix as the caller sees it */
enum form { ROW_MAJOR, COL_MAJOR, FORTRAN, FORMS };

static const int incs_x[] = {1, 3}, incs_y[] = {1, 2};

static inline int repeats(int call)
{
    return 1 + call % 4;
}

#endif
