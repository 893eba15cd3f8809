/* libFuzzer: any bytes as a key's text, as a key, and as a plan. Text and key are one to one; of an accepted
 * key all the op computes stays within 64 bits; an accepted plan keeps its bounds.
 *     CC=clang meson setup build-fuzz -Db_sanitize=address,undefined -Db_lundef=false
 *     build-fuzz/tests/fuzz/fuzz_key -max_total_time=60 CORPUS */
#include <stdlib.h>

#include "kfit/op.h"
#include "kfit/plan.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int ok)
{
    if (!ok)
        abort();
}

static void text(const char *s)
{
    union kfit_key key;
    char back[KFIT_KEY_TEXT_MAX];
    if (kfit_key_parse(s, &key, NULL) == KFIT_OK)
        check(kfit_key_check(&key, NULL) == KFIT_OK && kfit_key_format(&key, back, sizeof back) &&
              !strcmp(back, s));
}

static void key_bytes(const uint8_t *data, size_t size)
{
    union kfit_key key = {{0}}, back;
    struct kfit_tensor t;
    char s[KFIT_KEY_TEXT_MAX];
    memcpy(&key, data, size < sizeof key ? size : sizeof key);
    if (kfit_key_check(&key, NULL) != KFIT_OK)
        return;
    check(kfit_key_format(&key, s, sizeof s) && kfit_key_parse(s, &back, NULL) == KFIT_OK &&
          kfit_key_equal(&key, &back));
    const struct kfit_op *op = kfit_op_of(&key);
    for (unsigned i = 0; i < op->nargs(&key); i++) {
        op->tensor(&key, i, &t);
        check(t.rows > 0 && t.cols > 0 && t.ld >= t.cols);
    }
    check(op->flops(&key) > 0 && op->bytes(&key) > 0);
}

static void plan(const uint8_t *data, size_t size)
{
    struct kfit_plan p = {0};
    memcpy(&p, data, size < sizeof p ? size : sizeof p);
    if (kfit_plan_check(&p, 4096, NULL) != KFIT_OK)
        return;
    check(p.launch_count <= KFIT_LAUNCHES_MAX && p.workspace_bytes <= 1u << 30);
    for (unsigned i = 0; i < p.launch_count; i++)
        check(p.launches[i].entry_offset < 4096 && strlen(p.launches[i].entry) < sizeof p.launches[i].entry);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *s = malloc(size + 1);
    if (size)
        memcpy(s, data, size);
    s[size] = '\0';
    text(s);
    free(s);
    key_bytes(data, size);
    plan(data, size);
    return 0;
}
