/* Every environment variable that kfit reads: for the manual pages and for doctor, which names the others that begin
 * like ours. tests/test_cli_man.py compares the table with the sources that read them. */
#include "cli.h"

const struct cli_variable cli_variables[] = {
    {"LD_PRELOAD", true, true,
     "Where the path of libkfit_preload.so goes when a program is to run under kfit without `kfit run`, "
     "which puts it "
     "before what is there already."},
    {"KFIT_MODE", true, false,
     "What kfit does in the program: off, record, dispatch, or both. Unset: it records if KFIT_TRACE is set "
     "and "
     "dispatches if KFIT_CACHE is; with neither it is off."},
    {"KFIT_TRACE", true, true,
     "The directory that traces are written to, and where commands that are given no trace look first. "
     "Default: kfit "
     "in $XDG_RUNTIME_DIR, else /dev/shm/kfit-UID."},
    {"KFIT_CACHE", true, true,
     "The directory of the tuner's store and of the published generations. Default for commands: kfit in "
     "$XDG_CACHE_HOME, else ~/.cache/kfit; a program under the shim has no default."},
    {"KFIT_GENERATION", true, false,
     "Number or digest of the generation to load instead of the current one."},
    {"KFIT_TRUST", true, true,
     "Public keys (ed25519:..., separated by spaces) or the path of a file of them. Only a generation that "
     "one of "
     "them signed is loaded, and commands publish nothing else. Set but empty: none is. Unset: signed or "
     "not."},
    {"KFIT_LABEL", true, false, "Name of the deployment, kept in the traces."},
    {"KFIT_BAN", true, true, "Keys that must not run, separated by spaces."},
    {"KFIT_ALLOW", true, true,
     "Origins of kernels that may run, separated by commas or spaces, such as seed:*,person:alice; a * ends "
     "a "
     "pattern. A list that cannot be read allows none. Unset: all."},
    {"KFIT_STRICT", true, true,
     "1: kernels tuned with another BLAS, compiler or driver do not run. 0 or unset: they run and count as "
     "stale."},
    {"KFIT_STATE", true, true,
     "The directory of what this host remembers: bans (a file, one key a line) and processes that ended "
     "uncleanly; two such ends of a program with a generation in ten minutes, and its next start only "
     "records, until `kfit on`. Default: kfit in $XDG_STATE_HOME, else ~/.local/state/kfit; /dev/null: "
     "nothing is remembered."},
    {"KFIT_FOLLOW", true, false,
     "1: a running process takes over newly approved generations. Never for one of several ranks, which must "
     "all hold one table: then, and with KFIT_GENERATION, it is ignored."},
    {"KFIT_PINNED", true, false,
     "1: kernels run on a GPU also where CUBLAS_WORKSPACE_CONFIG or VLLM_BATCH_INVARIANT asks for the same "
     "bits "
     "every time. 0 or unset: there the original runs."},
    {"KFIT_GPU_MEMORY", true, true,
     "How many MiB of each GPU's memory kernels' workspaces may take, once, before the first kernel runs; a kernel that "
     "needs more than half of it does not run. What is no whole number is 0. Nothing is taken if no kernel needs any. "
     "Default: 64."},
    {"CUBLAS_WORKSPACE_CONFIG", true, false,
     "Pins cuBLAS's workspace, for results that repeat: calls of cuBLAS then stay with the original, unless "
     "KFIT_PINNED is 1."},
    {"VLLM_BATCH_INVARIANT", true, false, "1: as CUBLAS_WORKSPACE_CONFIG."},
    {"KFIT_LOG", true, false,
     "none, error, warn, info or debug, to stderr. Unset: at most one line per process, a warning or an "
     "error."},
    {"RANK", true, false,
     "The process's rank, as torchrun sets it, kept in its trace; OMPI_COMM_WORLD_RANK, PMI_RANK and "
     "SLURM_PROCID are "
     "looked at as well."},
    {"WORLD_SIZE", true, false,
     "How many ranks there are, as torchrun sets it, for KFIT_FOLLOW; OMPI_COMM_WORLD_SIZE, PMI_SIZE and "
     "SLURM_NTASKS are looked at as well."},
    {"KFIT_CC", false, true, "The compiler of host candidates. Default: cc."},
    {"KFIT_NVRTC", false, true,
     "The path of libnvrtc, which compiles cuda candidates. Default: the loader's, else that of "
     "/usr/local/cuda."},
    {"KFIT_CUPTI", false, true,
     "The path of libcupti, NVIDIA's profiling library, by which the cuda judge checks kernel times. "
     "Default: beside the "
     "libcublas at hand, the loader's, else that of /usr/local/cuda."},
    {"OPENBLAS_CORETYPE", false, true, "Passed on to the library that the judge times candidates against."},
    {"XDG_RUNTIME_DIR", true, true,
     "Traces that nobody gave a place go into kfit there, and so do the locks of devices."},
    {"XDG_CACHE_HOME", false, true, "The cache is kfit there when KFIT_CACHE is unset."},
    {"XDG_STATE_HOME", true, true, "What the host remembers is in kfit there when KFIT_STATE is unset."},
    {"HOME", true, true,
     "The cache is .cache/kfit there when KFIT_CACHE and XDG_CACHE_HOME are unset, and what the host "
     "remembers "
     "is in .local/state/kfit when KFIT_STATE and XDG_STATE_HOME are."},
    {"TERM", false, true, "Unset or dumb: kfit top prints one frame, as without a terminal."},
    {0},
};
