/* kfit-nvrtc LIBNVRTC OPTION...: CUDA C++ on stdin, PTX on stdout, the cubin to descriptor 3, the
 * log to stderr.
 *
 * A process of its own, so that the compiler of a hostile source can be isolated like any other
 * (isolate_compile.h). Exit status: 0 compiled, 1 not compiled, 2 no usable NVRTC. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

extern const char kfit_cuda_header[]; /* made from harness/kfit_cuda.h: all that a candidate can include */

typedef struct _nvrtcProgram *program;

/* X(member, symbol, arguments): https://docs.nvidia.com/cuda/nvrtc/, CUDA 12.0 and newer */
#define NVRTC_LIST(X)                                                                                        \
    X(create, nvrtcCreateProgram,                                                                            \
      (program *, const char *source, const char *name, int headers, const char *const *,                    \
       const char *const *))                                                                                 \
    X(compile, nvrtcCompileProgram, (program, int options, const char *const *))                             \
    X(log_size, nvrtcGetProgramLogSize, (program, size_t *))                                                 \
    X(log, nvrtcGetProgramLog, (program, char *))                                                            \
    X(ptx_size, nvrtcGetPTXSize, (program, size_t *))                                                        \
    X(ptx, nvrtcGetPTX, (program, char *))                                                                   \
    X(cubin_size, nvrtcGetCUBINSize, (program, size_t *))                                                    \
    X(cubin, nvrtcGetCUBIN, (program, char *))

static struct {
#define KFIT_X(member, symbol, args) int(*member) args;
    NVRTC_LIST(KFIT_X)
#undef KFIT_X
} nvrtc;

static int load(const char *path)
{
    void *lib = dlopen(path, RTLD_NOW);
    if (!lib)
        return fprintf(stderr, "kfit-nvrtc: %s\n", dlerror()), 0;
#define KFIT_X(member, symbol, args)                                                                         \
    if (!(*(void **)&nvrtc.member = dlsym(lib, #symbol)))                                                    \
        return fprintf(stderr, "kfit-nvrtc: %s lacks %s\n", path, #symbol), 0;
    NVRTC_LIST(KFIT_X)
#undef KFIT_X
    return 1;
}

static char *read_all(FILE *in)
{
    size_t room = 1 << 16, n = 0, got;
    char *text = malloc(room);
    while (text && (got = fread(text + n, 1, room - n - 1, in)) > 0)
        if ((n += got) + 1 == room)
            text = realloc(text, room *= 2);
    if (text)
        text[n] = '\0';
    return text;
}

static int put(int fd, int (*size)(program, size_t *), int (*get)(program, char *), program p, int text)
{
    size_t bytes = 0;
    if (size(p, &bytes) || !bytes)
        return 0;
    char *data = malloc(bytes);
    int ok = data && !get(p, data);
    bytes -= (size_t)text; /* without the NUL */
    for (size_t done = 0; ok && done < bytes;) {
        ssize_t n = write(fd, data + done, bytes - done);
        ok = n > 0;
        done += n > 0 ? (size_t)n : 0;
    }
    free(data);
    return ok;
}

int main(int argc, char **argv)
{
    if (argc < 2 || !load(argv[1]))
        return 2;
    char *source = read_all(stdin);
    program p;
    if (!source || nvrtc.create(&p, source, "candidate.cu", 1, (const char *const[]){kfit_cuda_header},
                                (const char *const[]){"kfit_cuda.h"}))
        return fprintf(stderr, "kfit-nvrtc: cannot take the source\n"), 2;
    int failed = nvrtc.compile(p, argc - 2, (const char *const *)(argv + 2));
    put(2, nvrtc.log_size, nvrtc.log, p, 1);
    if (failed)
        return 1;
    return put(1, nvrtc.ptx_size, nvrtc.ptx, p, 1) && put(3, nvrtc.cubin_size, nvrtc.cubin, p, 0) ? 0 : 1;
}
