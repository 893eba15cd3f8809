/* Dispatchers in tests: generations of hand-made images for 1x1x1 products that differ in ldb, and calls. */
#ifndef KFIT_TESTS_DISPATCHING_H
#define KFIT_TESTS_DISPATCHING_H

#include "kfit_test.h"

#include "kfit/dispatch.h"
#include "kfit/generation.h"

enum { MULTIPLIES_BYTES = 13, USES_WORKSPACE_BYTES = 21, ADDS_WORKSPACE_BYTES = 17, ADDS_BYTES = 13 };
extern const unsigned char multiplies[MULTIPLIES_BYTES], uses_workspace[USES_WORKSPACE_BYTES],
    adds_workspace[ADDS_WORKSPACE_BYTES], adds[ADDS_BYTES];

extern struct kfit_error err;
extern struct kfit_env env; /* of setup; a test may change it */
extern char cache[160], traces[160];
extern char state[200]; /* of serve */

/* Environment, an empty cache, operands 3 and 5. */
void setup(void);
struct kfit_gemm_call call_of(int ldb, float *c);
union kfit_key key_of(int ldb);
/* image NULL: a negative one. */
struct kfit_record record(int ldb, const void *image, size_t bytes, uint64_t workspace, unsigned init);
void publish(const struct kfit_record *r, size_t n);
/* 4: multiplies; 8: negative; 12: multiplies with a workspace; 16: wants too much workspace; 20:
 * a zeroed one */
void publish_usual(void);

struct kfit_dispatcher *dispatcher(enum kfit_mode mode, const char *bans);
/* With a state directory, and mode both unless given; environment and directories are the case's. */
struct kfit_dispatcher *serve(struct kfit_dispatcher_params p);
#define SERVE(...) serve((struct kfit_dispatcher_params){__VA_ARGS__})
struct kfit_trace_header *header(struct kfit_dispatcher *d);
/* One call; *result is -1 if nothing was computed, 15 by the usual images, 8 by `adds`. Any thread. */
enum kfit_reason gemm(struct kfit_dispatcher *d, int ldb, int threads, float *result);
void check_gemm(struct kfit_dispatcher *d, int ldb, int threads, enum kfit_reason want);
#define CHECK_SAYS(d, words)                                                                                 \
    CHECK_MSG(strstr(header(d)->state_text, words), "\"%s\" does not say \"%s\"", header(d)->state_text,     \
              words)
/* In the state directory, which is made if need be. */
void host_file(const char *name, const char *text);
/* For struct kfit_log: the last line said, after its level. */
extern char line[600];
void keep_line(void *ctx, enum kfit_log_level level, const char *text);

#endif
