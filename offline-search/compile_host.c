/* C to a flat image: preprocess, scan, compile, place, disassemble, scan. Three tools, each in its own
 * isolated child; everything passes through memfds. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kfit/env.h"

#include "compile_host.h"
#include "gate0.h"
#include "isolate_compile.h"

#define TIMEOUT_MS 20000u
#define ARGS_MAX   (64 + KFIT_NAMES_MAX)

static const struct {
    const char *isa;
    unsigned vector_bytes, registers;
} isas[] = {{"x86-64-v2", 16, 16}, {"x86-64-v3", 32, 16}, {"x86-64-v4", 64, 32}};

/* Contraction is wanted; everything that would change NaN, Inf or signed zeros is not. */
/* clang-format off */
static const char *const flags[] = {
    "-std=gnu17", "-w", "-O3", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math",
    "-ffreestanding", "-fno-builtin", "-fPIC", "-fno-plt", "-fno-jump-tables", "-fno-stack-protector",
    "-fno-stack-clash-protection", "-fcf-protection=none", "-fno-asynchronous-unwind-tables",
    "-fno-unwind-tables", "-fvisibility=hidden", "-fno-common", "-fno-ident", "-nostdinc",
    "-mprefer-vector-width=512",
};
/* clang-format on */
static const char gcc_flag[] =
    "-fno-tree-loop-distribute-patterns"; /* no calls of memset; unknown to clang */

struct args {
    const char *v[ARGS_MAX];
    unsigned n;
};

static void arg(struct args *a, const char *s)
{
    if (a->n + 1 < ARGS_MAX)
        a->v[a->n++] = s;
}

/* ---- finding the tools ---- */

/* The absolute path of name, links resolved in the end so that isolation knows where it lives. */
static bool find_tool(const char *name, char out[256])
{
    static const char *const dirs[] = {"", "/usr/bin/", "/usr/local/bin/", "/bin/"};
    char path[256];
    for (size_t i = *name == '/' ? 0 : 1; i < (*name == '/' ? 1 : sizeof dirs / sizeof *dirs); i++) {
        int n = snprintf(path, sizeof path, "%s%s", dirs[i], name);
        char *real =
            n > 0 && (size_t)n < sizeof path && access(path, X_OK) == 0 ? realpath(path, NULL) : NULL;
        bool ok = real && strlen(real) < 256;
        if (ok)
            memcpy(out, real, strlen(real) + 1);
        free(real);
        if (ok)
            return true;
    }
    return false;
}

static enum kfit_status find_compiler(const char *cc, char out[256], struct kfit_error *err)
{
    const char *name = cc ? cc : secure_getenv("KFIT_CC");
    name = name && *name ? name : "cc";
    if (find_tool(name, out))
        return KFIT_OK;
    return kfit_fail(err, KFIT_E_NOTFOUND,
                     "compile: no compiler \"%.200s\"; install gcc or clang, or set KFIT_CC to the path "
                     "of one",
                     name);
}

enum kfit_status kfit_compiler_version(const char *cc, char *buf, size_t size, struct kfit_error *err)
{
    char path[256];
    struct kfit_isolation iso;
    int out = kfit_memfd();
    size_t bytes = 0;
    char *text = NULL;
    if (size)
        buf[0] = '\0';
    enum kfit_status s = find_compiler(cc, path, err);
    if (s == KFIT_OK && (s = kfit_isolation_init(&iso, path, NULL, true, err)) == KFIT_OK) {
        struct kfit_tool tool = {
            .argv = (const char *const[]){path, "-nostdinc", "-dM", "-E", "-x", "c", "-", NULL},
            .input = -1,
            .output = out,
            .object = -1,
            .timeout_ms = TIMEOUT_MS};
        s = kfit_tool_run(&iso, &tool, err);
        kfit_isolation_finish(&iso);
        text = kfit_memfd_read(out, &bytes);
        const char *clang = text ? strstr(text, "#define __clang_version__ \"") : NULL;
        const char *gcc = text ? strstr(text, "#define __VERSION__ \"") : NULL, *v = clang ? clang : gcc;
        if (s == KFIT_OK && !v)
            s = kfit_fail(err, KFIT_E_UNSUPPORTED, "compile: %s is neither gcc nor clang", path);
        if (s == KFIT_OK) {
            v = strchr(v, '"') + 1;
            snprintf(buf, size, "%s %.*s", clang ? "clang" : "gcc", (int)strcspn(v, " \""), v);
        }
    }
    free(text);
    if (out >= 0)
        close(out);
    return s;
}

/* ---- limits ---- */

static long cache_bytes(int name, long otherwise)
{
    long v = sysconf(name);
    return v > 0 ? v : otherwise;
}

static unsigned isa_row(const char *isa)
{
    unsigned n = sizeof isas / sizeof *isas;
    for (unsigned i = 0; i < n; i++)
        if (!strcmp(isas[i].isa, isa ? isa : kfit_host_isa()))
            return i;
    return n;
}

void kfit_host_limits(const char *isa, struct kfit_limits *limits)
{
    unsigned row = isa_row(isa);
    row = row < sizeof isas / sizeof *isas ? row : 0;
    const struct kfit_dim all[] = {
        {"VL_BYTES", isas[row].vector_bytes},
        {"VL32", isas[row].vector_bytes / 4},
        {"VL64", isas[row].vector_bytes / 8},
        {"VREGS", isas[row].registers},
        {"L1", cache_bytes(_SC_LEVEL1_DCACHE_SIZE, 32 << 10)},
        {"L2", cache_bytes(_SC_LEVEL2_CACHE_SIZE, 256 << 10)},
    };
    memset(limits, 0, sizeof *limits);
    memcpy(limits->entry, all, sizeof all);
    limits->count = sizeof all / sizeof *all;
}

/* ---- one candidate ---- */

struct job {
    const struct kfit_compile_params *params;
    struct kfit_built *b;
    struct kfit_isolation iso;
    char cc[256], objdump[256];
    unsigned timeout_ms;
    struct kfit_error *err;
};

/* All arguments must be of one type, float or double: a host kernel is written for one. */
static const char *element_type(const union kfit_key *key)
{
    const struct kfit_op *op = kfit_op_of(key);
    struct kfit_tensor t;
    op->tensor(key, 0, &t);
    enum kfit_dtype type = t.type;
    for (unsigned i = 1; i < op->nargs(key); i++) {
        op->tensor(key, i, &t);
        if (t.type != type)
            return NULL;
    }
    return type == KFIT_F32 ? "float" : type == KFIT_F64 ? "double" : NULL;
}

/* The first lines with "error", which is what a proposer can use. */
static void first_errors(const char *messages, char *out, size_t size)
{
    size_t used = 0;
    out[0] = '\0';
    for (const char *p = messages, *next; *p && used + 1 < size; p = next) {
        size_t n = strcspn(p, "\n");
        next = p + n + (p[n] == '\n');
        if (!memmem(p, n, "error", 5) && !memmem(p, n, "fatal", 5))
            continue;
        n = n + 1 < size - used ? n + 1 : size - used - 1; /* with its newline, or a NUL in its place */
        memcpy(out + used, p, n);
        used += n;
        out[used] = '\0';
    }
    if (!used)
        snprintf(out, size, "%.*s", (int)size - 1, messages);
}

/* Runs a tool on input; its output (on stdout, or to descriptor 3) is in *out, malloc'ed. */
static enum kfit_status run(struct job *job, const char *what, struct args *a, const void *input,
                            size_t bytes, bool to_object, char **out, size_t *out_bytes)
{
    int in = kfit_memfd(), fd = kfit_memfd();
    enum kfit_status s;
    char errors[900];
    *out = NULL;
    a->v[a->n] = NULL;
    struct kfit_tool tool = {.argv = a->v,
                             .input = in,
                             .output = to_object ? -1 : fd,
                             .object = to_object ? fd : -1,
                             .timeout_ms = job->timeout_ms};
    if (in < 0 || fd < 0 || !kfit_memfd_fill(in, input, bytes)) {
        s = kfit_fail(job->err, KFIT_E_IO, "compile: cannot pass the source on");
        goto done;
    }
    if ((s = kfit_tool_run(&job->iso, &tool, job->err)) != KFIT_OK)
        goto done;
    struct stat st;
    bool full = fstat(fd, &st) == 0 && st.st_size >= (off_t)KFIT_TOOL_OUTPUT_BYTES_MAX;
    if (tool.timed_out)
        s = kfit_refuse(job->b, "static:timeout", "%s took more than %u ms", what, job->timeout_ms);
    else if (full || tool.status == 128 + SIGXFSZ || strstr(tool.messages, "File too large") ||
             strstr(tool.messages, "file too big") || strstr(tool.messages, "File size limit"))
        s = kfit_refuse(job->b, "static:size", "%s wrote more than %u bytes", what,
                        KFIT_TOOL_OUTPUT_BYTES_MAX);
    else if (strstr(tool.messages, "out of memory") || strstr(tool.messages, "emory exhausted") ||
             strstr(tool.messages, "annot allocate memory"))
        s = kfit_refuse(job->b, "static:timeout", "%s ran out of memory", what);
    else if (tool.status) {
        first_errors(tool.messages, errors, sizeof errors);
        s = kfit_refuse(job->b, "static:compile", "%s",
                        errors[0] ? errors : "the compiler failed without a message");
    } else if (!(*out = kfit_memfd_read(fd, out_bytes)))
        s = KFIT_E_NOMEM;
done:
    if (in >= 0)
        close(in);
    if (fd >= 0)
        close(fd);
    return s;
}

static enum kfit_status preprocess(struct job *job, const struct kfit_text *in, char **out, size_t *bytes)
{
    const struct kfit_compile_params *p = job->params;
    struct kfit_limits limits;
    struct kfit_dim names[KFIT_NAMES_MAX];
    char defines[KFIT_NAMES_MAX][64], type[32], march[32];
    struct args a = {0};
    kfit_host_limits(p->isa, &limits);
    unsigned n = kfit_candidate_names(p->candidate, p->key, p->choice, &limits, names);
    snprintf(march, sizeof march, "-march=%s", p->isa ? p->isa : kfit_host_isa());
    snprintf(type, sizeof type, "-DKFIT_TYPE=%s", element_type(p->key));
    arg(&a, job->cc);
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        arg(&a, flags[i]);
    arg(&a, march);
    arg(&a, type);
    for (unsigned i = 0; i < n; i++) {
        if (!strcmp(names[i].name, "VL")) /* the header derives it */
            continue;
        snprintf(defines[i], sizeof defines[i], "-DKFIT_%s=%lld", names[i].name, (long long)names[i].value);
        arg(&a, defines[i]);
    }
    static const char *const rest[] = {"-E", "-dD", "-x", "c", "-"};
    for (size_t i = 0; i < sizeof rest / sizeof *rest; i++)
        arg(&a, rest[i]);
    enum kfit_status s = run(job, "the preprocessor", &a, in->data, in->bytes, false, out, bytes);
    if (s == KFIT_E_REFUSED &&
        (strstr(job->b->detail, "No such file") || strstr(job->b->detail, "file not found") ||
         strstr(job->b->detail, "Permission denied")))
        snprintf(job->b->code, sizeof job->b->code, "static:include");
    return s;
}

static enum kfit_status compile(struct job *job, const struct kfit_text *in, bool clang, char **out,
                                size_t *bytes)
{
    static const char *const rest[] = {"-pipe", "-c", "-x", "cpp-output", "-", "-o", "/proc/self/fd/3"};
    char march[32];
    struct args a = {0};
    snprintf(march, sizeof march, "-march=%s", job->params->isa ? job->params->isa : kfit_host_isa());
    arg(&a, job->cc);
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        arg(&a, flags[i]);
    arg(&a, march);
    if (!clang)
        arg(&a, gcc_flag);
    for (size_t i = 0; i < sizeof rest / sizeof *rest; i++)
        arg(&a, rest[i]);
    return run(job, "the compiler", &a, in->data, in->bytes, true, out, bytes);
}

static enum kfit_status disassemble(struct job *job, size_t text_bytes, char **out, size_t *bytes)
{
    static const char *const rest[] = {"-D",     "-w", "-z",          "-b",
                                       "binary", "-m", "i386:x86-64", "/proc/self/fd/0"};
    struct args a = {0};
    arg(&a, job->objdump);
    for (size_t i = 0; i < sizeof rest / sizeof *rest; i++)
        arg(&a, rest[i]);
    return run(job, "the disassembler", &a, job->b->image, text_bytes, false, out, bytes);
}

static enum kfit_status stages(struct job *job)
{
    const struct kfit_compile_params *p = job->params;
    struct kfit_text given = {0}, clean = {0};
    char *expanded = NULL, *object = NULL, *listing = NULL;
    size_t bytes, source_bytes, text_bytes = 0;
    const char *source = kfit_candidate_source(p->candidate, &source_bytes);
    enum kfit_status s = kfit_static_source(source, source_bytes, &given, job->b);
    if (s != KFIT_OK || (s = preprocess(job, &given, &expanded, &bytes)) != KFIT_OK ||
        (s = kfit_static_preprocessed(expanded, bytes, &clean, job->b)) != KFIT_OK ||
        (s = compile(job, &clean, strstr(expanded, "#define __clang__ 1\n"), &object, &bytes)) != KFIT_OK ||
        (s = kfit_link_host((const uint8_t *)object, bytes, kfit_candidate_entry(p->candidate, 0), job->b,
                            &text_bytes)) != KFIT_OK ||
        (s = disassemble(job, text_bytes, &listing, &bytes)) != KFIT_OK)
        goto out;
    s = kfit_static_instructions(listing, bytes, text_bytes, job->b->plan.launches[0].entry_offset, job->b);
    job->b->data_oblivious = s == KFIT_OK && kfit_data_oblivious(listing, bytes);
out:
    free(listing);
    free(object);
    free(expanded);
    free(clean.data);
    free(given.data);
    return s;
}

enum kfit_status kfit_compile_host(const struct kfit_compile_params *p, struct kfit_built *b,
                                   struct kfit_error *err)
{
    struct job job = {
        .params = p, .b = b, .timeout_ms = p->timeout_ms ? p->timeout_ms : TIMEOUT_MS, .err = err};
    struct kfit_limits limits;
    struct kfit_error why = {0};
    enum kfit_status s;
    if (isa_row(p->isa) == sizeof isas / sizeof *isas)
        return kfit_fail(err, KFIT_E_ARG,
                         "compile: unknown instruction set \"%.40s\"; there are x86-64-v2, -v3 and -v4",
                         p->isa);
    kfit_host_limits(p->isa, &limits);
    s = kfit_candidate_resolve(p->candidate, p->key, p->choice, &limits, &b->plan, &why);
    if (s == KFIT_E_ARG)
        return kfit_fail(err, s, "%s", why.text);
    if (s != KFIT_OK)
        return kfit_refuse(b, kfit_candidate_code(s), "%s", why.text);
    if (!element_type(p->key))
        return kfit_refuse(b, "static:require", "host kernels are for f32 or f64 throughout");
    if ((s = find_compiler(p->cc, job.cc, err)) != KFIT_OK)
        return s;
    if (!find_tool("objdump", job.objdump))
        return kfit_fail(err, KFIT_E_NOTFOUND, "compile: no objdump in /usr/bin; install binutils");
    if ((s = kfit_isolation_init(&job.iso, job.cc, NULL, p->allow_no_isolation, err)) != KFIT_OK)
        return s;
    snprintf(b->isolation, sizeof b->isolation, "%s", job.iso.name);
    s = stages(&job);
    kfit_isolation_finish(&job.iso);
    return s;
}
