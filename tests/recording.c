#include "recording.h"

struct kfit_error err;

union kfit_key key_of(int m, int n, int k)
{
    char text[KFIT_KEY_TEXT_MAX];
    union kfit_key key;
    snprintf(text, sizeof text,
             "gemm/f32,f32,f32/acc=f32/m=%d,n=%d,k=%d/nn/lda=%d,ldb=%d,ldc=%d/alpha=1,beta=0/align=16", m, n,
             k, k, n, n);
    CHECK_OK(kfit_key_parse(text, &key, &err), err);
    return key;
}

struct kfit_recorder *recorder(const char *dir, uint32_t slots)
{
    struct kfit_recorder *r;
    struct kfit_recorder_params p = {
        .dir = dir, .label = "unit\n", .slot_count = slots, .mode = KFIT_MODE_RECORD};
    CHECK_OK(kfit_recorder_create(&r, &p, &err), err);
    return r;
}

bool record(struct kfit_recorder *r, int m, unsigned reason)
{
    union kfit_key key = key_of(m, 8, 8);
    struct kfit_trace_slot *s = kfit_recorder_slot(r, &key, kfit_key_hash(&key));
    if (s)
        kfit_slot_count(s, reason);
    return s != NULL;
}

uint64_t calls_in(const struct kfit_trace *t)
{
    uint64_t n = 0;
    for (size_t i = 0; i < kfit_trace_count(t); i++)
        n += kfit_slot_calls(kfit_trace_at(t, i));
    return n;
}
