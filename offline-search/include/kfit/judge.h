/* kfit/judge.h - is this image right, and is it faster? The judge believes nothing a candidate says.
 *
 * The parent (this library) makes inputs, computes float64 references, compares outputs after the runner has
 * stopped, reads a second clock, and decides. The runner (a child, `kfit-runner`) holds candidate, generic
 * and inputs, nothing else: empty environment, no other descriptors, seccomp, limits on time and memory.
 * Gates and bounds: see offline-search/README.md.
 *
 * One judge at a time per device (lock across processes; KFIT_E_BUSY names the holder).
 */
#ifndef KFIT_JUDGE_H
#define KFIT_JUDGE_H

#include "kfit/compile.h"
#include "kfit/device.h"
#include "kfit/receipt.h"
#include "kfit/trace.h"

#ifdef __cplusplus
extern "C" {
#endif

struct kfit_judge; /* device lock, ceilings, cached references */

struct kfit_judge_params {
    const char *runner; /* path of kfit-runner; NULL: beside the running program, or where a build or an
                           installation puts it seen from there */
    const struct kfit_generic *generic; /* the library the program uses; copied */
    const struct kfit_env *env;         /* copied; its threads are given to the generic */
    uint64_t seed;                      /* of the fixed inputs; 0: from the OS; printed in receipts */
    double call_ns; /* cost of a dispatched call, added to the candidate's time; 0: default */
    const char
        *lock_dir; /* where the device's lock is; NULL: the system's place, see device_lock.h. Another place
                             is for tests that measure nothing */
    const char *device_id; /* as kfit_judge_device_id says it; NULL: asked for */
    struct kfit_log log;
};

/* Which device of that name ("host", "cuda") a judge would measure on: its lock's name. A GPU's is "GPU-" and its UUID,
 * asked of a worker that makes no context there. KFIT_E_UNSUPPORTED: no driver, no GPU. */
enum kfit_status kfit_judge_device_id(const char *device, const char *runner, char id[48], struct kfit_error *err);

enum kfit_status kfit_judge_create(const struct kfit_judge_params *params, struct kfit_judge **out,
                                   struct kfit_error *err);
void kfit_judge_destroy(struct kfit_judge *j);

/* The environment of the GPU that a judge for `generic` (a libcublas) would use: asked of a worker process,
 * since the parent holds no CUDA. runner: kfit-runner-cuda; NULL: found. KFIT_E_UNSUPPORTED: no driver, no
 * GPU, no NVRTC. info may be NULL. */
enum kfit_status kfit_judge_cuda_env(const char *runner, const struct kfit_generic *generic,
                                     struct kfit_env *env, struct kfit_device_info *info,
                                     struct kfit_error *err);

/* Where the judge may keep what it measured of the device (kfit/ceilings.h), and finds it again: once per device instead
 * of once per judge. The store is borrowed until the judge is destroyed; NULL: nowhere. kfit_tune and kfit_eval do
 * it with theirs. */
struct kfit_store;
void kfit_judge_keep(struct kfit_judge *j, struct kfit_store *store);

/* Would kernel times by CUPTI be had, judging against `generic`? Asked of a worker, as the judge does after timing; writes
 * "CUPTI 130001" into text. KFIT_E_UNSUPPORTED: there is none, or it is refused, and why; the judge then goes without
 * and says so in each receipt. $KFIT_CUPTI names the library; else it is sought beside the generic's and in CUDA's folders. */
enum kfit_status kfit_judge_cuda_profiler(const char *runner, const struct kfit_generic *generic, char *text,
                                          size_t size, struct kfit_error *err);

struct kfit_judge_job {
    const union kfit_key *key;
    const void *image; /* as kfit_compile made it */
    size_t image_bytes;
    const struct kfit_plan *plan;
    /* The present winner for this key, if any: the incumbent is the faster of it and the generic. */
    const void *incumbent_image;
    size_t incumbent_bytes;
    const struct kfit_plan *incumbent_plan;
    /* Stop after gate 1 and a short timing, to rank a population cheaply; never promotes. */
    bool screen;
    bool cold; /* with screen: time it with cold caches too, where the device can (host) */
};

/* Is this a key that the judge's device can judge? KFIT_E_UNSUPPORTED says why not. All of the below ask it first;
 * asking before a candidate is compiled saves the compile. */
enum kfit_status kfit_judge_takes(const struct kfit_judge *j, const union kfit_key *key,
                                  struct kfit_error *err);

/* Runs the gates in order of cost, stopping at the first failure, and fills the receipt's gates, timing,
 * noise, bound, verdict and code. KFIT_OK also when the candidate is refused: the verdict says so. Errors are
 * ours: KFIT_E_IO, KFIT_E_NOTFOUND (runner or generic), KFIT_E_NOMEM, KFIT_E_INTERRUPTED. */
enum kfit_status kfit_judge_run(struct kfit_judge *j, const struct kfit_judge_job *job,
                                struct kfit_receipt *receipt, struct kfit_error *err);

/* Times the generic alone, as the decision does: median ns per call. */
enum kfit_status kfit_judge_time_generic(struct kfit_judge *j, const union kfit_key *key, double *ns,
                                         struct kfit_error *err);

/* Measured lower bound for any correct kernel of this key on this device, ns. */
enum kfit_status kfit_judge_bound(struct kfit_judge *j, const union kfit_key *key, double *ns,
                                  struct kfit_error *err);

#ifdef __cplusplus
}
#endif
#endif
