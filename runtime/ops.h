/* The definitions behind the registry in op.c: one line per op. */
#ifndef KFIT_OPS_H
#define KFIT_OPS_H

#include "kfit/op.h"

extern const struct kfit_op kfit_op_gemm;

#endif
