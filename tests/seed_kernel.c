#include "seed_kernel.h"

enum kfit_status seed_kernel_build(struct seed_kernel *k, const struct kfit_candidate *candidate,
                                   const union kfit_key *key, const struct kfit_choice *choice,
                                   const char *cc, const char *isa, struct kfit_error *err)
{
    struct kfit_compile_params params = {.candidate = candidate,
                                         .key = key,
                                         .choice = choice,
                                         .cc = cc,
                                         .isa = isa,
                                         .allow_no_isolation = true};
    struct kfit_built built;
    *k = (struct seed_kernel){0};
    enum kfit_status s = kfit_compile(&params, &built, err);
    if (s != KFIT_OK)
        return s;
    k->plan = built.plan;
    k->compile_ns = built.compile_ns;
    k->data_oblivious = built.data_oblivious;
    struct kfit_image image = {built.image, built.image_bytes, &k->plan};
    s = kfit_device_host.load(&image, 1, kfit_op_of(key)->nargs(key), &k->modules, &k->kernel, err);
    kfit_built_finish(&built);
    return s;
}

void seed_kernel_finish(struct seed_kernel *k)
{
    kfit_device_host.unload(k->modules);
    *k = (struct seed_kernel){0};
}

void seed_key(union kfit_key *key, enum kfit_dtype type, int m, int n, int k, bool ta, bool tb, bool beta,
              const int gap[3])
{
    memset(key, 0, sizeof *key);
    key->gemm = (struct kfit_gemm_key){.len = KFIT_GEMM_KEY_BYTES,
                                       .op = KFIT_OP_GEMM,
                                       .ta = ta,
                                       .tb = tb,
                                       .type_a = (uint8_t)type,
                                       .type_b = (uint8_t)type,
                                       .type_c = (uint8_t)type,
                                       .type_acc = (uint8_t)type,
                                       .alpha = KFIT_SCALAR_ONE,
                                       .beta = beta ? KFIT_SCALAR_ONE : KFIT_SCALAR_ZERO,
                                       .align = (uint8_t)kfit_dtype_bytes(type),
                                       .m = m,
                                       .n = n,
                                       .k = k,
                                       .lda = (ta ? m : k) + gap[0],
                                       .ldb = (tb ? k : n) + gap[1],
                                       .ldc = n + gap[2]};
}
