/* cuBLAS as cuda_calls.c has it when compiled with TAKEN: by dlsym, from one of several libraries. */
#ifndef KFIT_TEST_CUDA_TAKEN_H
#define KFIT_TEST_CUDA_TAKEN_H

#include <stdbool.h>

/* "take": opens the library if it is not open, takes all of its functions, and calls them from now on; elsewhere: another
 * object does the asking. "use": calls them again as they were taken. "close": closes it. "whose": prints the files that
 * cublasGemmEx and cublasLtMatmul lie in. False: it is none of these. */
bool taken_command(const char *command, unsigned library, bool elsewhere);

#endif
