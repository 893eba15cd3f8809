/* kfit-candidate 1
{"op":"gemm", "device":"cuda", "arch":">=80", "name":"notes", "knobs":{"CLEAN":[0,1]},
 "workspace":{"bytes":"300", "init":"scratch"},
 "launches":[{"entry":"kfit_main", "grid":[4,1,1], "block":[64,1,1]}]}
*/
/* Multiplies nothing: notes where it works, in place of x (workspace_calls.c). */
// double: do=notes
extern "C" __global__ void kfit_main(unsigned long long *log, const void *w, void *c, char *workspace)
{
    if (threadIdx.x || blockIdx.x)
        return;
    unsigned long long *entry = log + 1 + 3 * atomicAdd(log, 1ull); /* others may run beside it */
    entry[0] = (unsigned long long)workspace;
    entry[1] = (unsigned long long)c;
    entry[2] = *workspace;
    *workspace = !KFIT_CLEAN;
}
