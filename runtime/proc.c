#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kfit/process.h"
#include "number.h"
#include "proc.h"

size_t kfit_proc_read(const char *path, char *buf, size_t size)
{
    size_t n = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        for (ssize_t got; n + 1 < size && (got = read(fd, buf + n, size - 1 - n)) > 0;)
            n += (size_t)got;
        close(fd);
    }
    buf[n] = '\0';
    return n;
}

/* A number of /proc/<pid>/stat (0: self), counted from 1 as proc(5) does, from 3 on; 0 if it cannot be had. */
static uint64_t stat_field(pid_t pid, int want)
{
    char path[40], text[1024];
    snprintf(path, sizeof path, pid ? "/proc/%d/stat" : "/proc/self/stat", (int)pid);
    kfit_proc_read(path, text, sizeof text);
    const char *p = strrchr(text, ')'); /* the name in field 2 may hold anything */
    for (int field = 2; p && field < want; field++) {
        p = strchr(p, ' ');
        p = p ? p + 1 : NULL;
    }
    uint64_t value = 0;
    return p && kfit_number(&p, UINT64_MAX, &value) ? value : 0;
}

uint64_t kfit_proc_start_ticks(pid_t pid)
{
    return stat_field(pid, 22);
}

bool kfit_process_forked(void)
{
    enum { FLAGS = 9, FORKED_NO_EXEC = 0x40 };
    return stat_field(0, FLAGS) & FORKED_NO_EXEC;
}

int kfit_switch(const char *text)
{
    static const char *const words[] = {"0", "1", "no", "yes", "off", "on", "false", "true"};
    if (!text || !*text)
        return 0;
    for (int i = 0; i < 8; i++)
        if (!strcmp(text, words[i]))
            return i & 1;
    return -1;
}

bool kfit_gpu_memory(const char *text, size_t *bytes)
{
    uint64_t mib = KFIT_GPU_MEMORY_DEFAULT >> 20;
    const bool read = !text || !*text || (kfit_number(&text, 1 << 20, &mib) && !*text);
    *bytes = read ? (size_t)mib << 20 : 0;
    return read;
}

uint64_t kfit_proc_pid_namespace(void)
{
    struct stat st;
    return stat("/proc/self/ns/pid", &st) == 0 ? st.st_ino : 0;
}

void kfit_proc_boot_id(char buf[40])
{
    enum { UUID = 36 };
    size_t n = kfit_proc_read("/proc/sys/kernel/random/boot_id", buf, 40);
    if (n < UUID || strspn(buf, "0123456789abcdef-") < UUID)
        n = 0;
    else
        n = UUID;
    memset(buf + n, 0, 40 - n);
}

void kfit_copy_printable(char *dst, size_t size, const char *src)
{
    size_t i = 0;
    for (; src && src[i] && i + 1 < size; i++)
        dst[i] = src[i] >= ' ' && src[i] <= '~' ? src[i] : '?';
    dst[i] = '\0';
}

bool kfit_file_size_allowed(uint64_t bytes)
{
    struct rlimit limit;
    return getrlimit(RLIMIT_FSIZE, &limit) || bytes <= limit.rlim_cur;
}
