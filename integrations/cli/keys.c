/* Lists of keys as text: options, and files of one key a line. */
#include <stdlib.h>
#include <string.h>

#include "cli.h"

enum { FILE_BYTES_MAX = 4 << 20 };

bool cli_keys_add(struct cli_keys *keys, const char *text, struct kfit_error *err)
{
    union kfit_key key;
    if (kfit_key_parse(text, &key, err) != KFIT_OK)
        return false;
    for (size_t i = 0; i < keys->count; i++)
        if (kfit_key_equal(&keys->item[i], &key))
            return true;
    keys->item = cli_alloc(keys->item, (keys->count + 1) * sizeof *keys->item);
    keys->item[keys->count++] = key;
    return true;
}

bool cli_keys_read(struct cli_keys *keys, const char *path)
{
    struct kfit_error err = {0};
    char *file;
    size_t bytes, bad = 0, number = 0, before = keys->count;
    enum kfit_status s = cli_read_file(path, FILE_BYTES_MAX, &file, &bytes, &err);
    if (s != KFIT_OK)
        return !cli_failed(NULL, s, &err);
    for (char *line = file, *end = file + bytes; line < end; number++) {
        char *newline = memchr(line, '\n', (size_t)(end - line)), *next = newline ? newline + 1 : end;
        size_t n = (size_t)((newline ? newline : end) - line);
        line[n] = '\0'; /* the file has a byte of ours behind its end */
        bool cut = strlen(line) != n;
        line[strcspn(line, "#")] = '\0';
        line += strspn(line, " \t\r");
        for (n = strlen(line); n && strchr(" \t\r", line[n - 1]); n--)
            line[n - 1] = '\0';
        if (cut)
            snprintf(err.text, sizeof err.text, "a zero byte; one key a line is expected");
        if (cut || (*line && !cli_keys_add(keys, line, &err))) {
            cli_fail("%s:%zu: %s", cli_str(path), number + 1, SAFE(err.text));
            bad++;
        }
        line = next;
    }
    free(file);
    if (!bad && keys->count == before)
        return !cli_fail("%s: no keys there; one a line is expected, # begins a comment", cli_str(path));
    return !bad;
}
