/* What /proc says of a process: its start time and namespaces, read without malloc or stdio. */
#ifndef KFIT_PROC_H
#define KFIT_PROC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Reads a small file; returns the length, 0 if it cannot be read. buf is always terminated. */
size_t kfit_proc_read(const char *path, char *buf, size_t size);
/* Field 22 of /proc/<pid>/stat (0: self); 0 if there is no such process. */
uint64_t kfit_proc_start_ticks(pid_t pid);
/* Inode of /proc/self/ns/pid; 0 if unknown. */
uint64_t kfit_proc_pid_namespace(void);
/* 36 characters, or "" if unknown. */
void kfit_proc_boot_id(char buf[40]);
/* Copies text, everything but printable ASCII replaced by '?', cut to size. */
void kfit_copy_printable(char *dst, size_t size, const char *src);
/* Whether a file of this many bytes may be made: beyond RLIMIT_FSIZE the kernel would send SIGXFSZ. */
bool kfit_file_size_allowed(uint64_t bytes);

#endif
