#include "kfit/op.h"

#include "ops.h"

static const struct kfit_op *const ops[KFIT_OP_COUNT] = {
    [KFIT_OP_GEMM] = &kfit_op_gemm,
};

const struct kfit_op *kfit_op_by_id(unsigned id)
{
    return id < KFIT_OP_COUNT ? ops[id] : NULL;
}

const struct kfit_op *kfit_op_by_name(const char *name, size_t len)
{
    for (unsigned i = 0; i < KFIT_OP_COUNT; i++)
        if (ops[i] && strlen(ops[i]->name) == len && !memcmp(ops[i]->name, name, len))
            return ops[i];
    return NULL;
}

size_t kfit_tensor_bytes(const struct kfit_tensor *t)
{
    int64_t last = (t->batch - 1) * t->batch_stride + (t->rows - 1) * t->ld + t->cols;
    return (size_t)last * kfit_dtype_bytes(t->type);
}
