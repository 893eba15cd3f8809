/* The table's data for the script: every row, compact enough for thousands of them. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "page.h"

enum {
    RECEIPT_BYTES = 512 << 10,  /* then only figures: the page of 10,000 keys stays below 3 MB */
    INLINE_BYTES = 5,           /* a shorter text is no longer than its number in the list of strings */
    DIGITS_MAX = 15             /* of a number that a script can hold exactly */
};

/* Each text once; a cell is its number. */
struct strings {
    char **item;
    size_t count, room, slots, bytes;
    uint32_t *slot; /* number + 1; 0: free */
    bool failed;
};

static bool grow(struct strings *s)
{
    size_t room = s->room ? 2 * s->room : 256;
    char **item = realloc(s->item, room * sizeof *item);
    uint32_t *slot = calloc(4 * room, sizeof *slot);
    if (item)
        s->item = item;
    if (!item || !slot) {
        free(slot);
        return false;
    }
    free(s->slot);
    s->slot = slot;
    s->slots = 4 * room;
    s->room = room;
    for (size_t i = 0; i < s->count; i++) {
        size_t at = (size_t)kfit_text_hash(item[i]) & (s->slots - 1);
        while (slot[at])
            at = (at + 1) & (s->slots - 1);
        slot[at] = (uint32_t)i + 1;
    }
    return true;
}

static size_t number_of(struct strings *s, const char *text)
{
    if (s->count == s->room && !grow(s)) {
        s->failed = true;
        return 0;
    }
    size_t at = (size_t)kfit_text_hash(text) & (s->slots - 1);
    while (s->slot[at] && strcmp(s->item[s->slot[at] - 1], text))
        at = (at + 1) & (s->slots - 1);
    if (!s->slot[at]) {
        if (!(s->item[s->count] = strdup(text))) {
            s->failed = true;
            return 0;
        }
        s->bytes += strlen(text) + 3;
        s->slot[at] = (uint32_t)++s->count;
    }
    return s->slot[at] - 1;
}

static void finish(struct strings *s)
{
    for (size_t i = 0; i < s->count; i++)
        free(s->item[i]);
    free(s->item);
    free(s->slot);
}

static void write_text(struct strings *s, const char *text, FILE *to)
{
    if (strlen(text) < INLINE_BYTES)
        kfit_write_escaped(to, text, KFIT_ESCAPE_JSON);
    else
        fprintf(to, "%zu", number_of(s, text));
}

/* An array of arrays of texts. */
static void write_cells(struct strings *s, const cJSON *rows, FILE *to)
{
    const cJSON *row, *cell;
    fputc('[', to);
    cJSON_ArrayForEach(row, rows)
    {
        fputs(row == rows->child ? "[" : ",[", to);
        cJSON_ArrayForEach(cell, row)
        {
            if (cell != row->child)
                fputc(',', to);
            write_text(s, cell->valuestring, to);
        }
        fputc(']', to);
    }
    fputc(']', to);
}

/* A key as a pattern, in which # stands for a number after "=", and those numbers: the patterns are few. */
static void write_key(struct strings *s, const union kfit_key *key, FILE *to)
{
    char text[KFIT_KEY_TEXT_MAX], pattern[KFIT_KEY_TEXT_MAX], numbers[KFIT_KEY_TEXT_MAX];
    size_t p = 0, n = 0;
    kfit_key_format(key, text, sizeof text);
    for (const char *c = text; *c;) {
        size_t digits = c > text && c[-1] == '=' ? strspn(c, "0123456789") : 0;
        if (!digits || digits > DIGITS_MAX || (*c == '0' && digits > 1)) {
            pattern[p++] = *c++;
            continue;
        }
        if (n)
            numbers[n++] = ',';
        memcpy(numbers + n, c, digits);
        n += digits;
        pattern[p++] = '#';
        c += digits;
    }
    pattern[p] = numbers[n] = '\0';
    fprintf(to, "%zu,[%s]", number_of(s, pattern), numbers);
}

/* What is not finite is not known, as 0 is: JSON has no word for it. */
static void write_figure(double v, FILE *to)
{
    fprintf(to, ",%.6g", isfinite(v) ? v : 0);
}

static void write_row(struct strings *s, const struct kfit_report_page *p, const struct kfit_report_key *k,
                      bool with_receipt, FILE *to)
{
    static const char *const parts[] = {"pairs", "went", "gates", "timings"};
    const double figures[] = {k->share, k->before_ns, k->after_ns, k->floor_ns, k->ratio, k->lo, k->hi};
    cJSON *detail = kfit_page_detail(p, k, with_receipt);
    fputc('[', to);
    write_key(s, &k->key, to);
    fprintf(to, ",%llu,%llu", (unsigned long long)k->calls, (unsigned long long)k->count[KFIT_REASON_NONE]);
    for (unsigned i = 0; i < sizeof figures / sizeof *figures; i++)
        write_figure(figures[i], to);
    fputc(',', to);
    write_text(s, k->judged ? kfit_verdict_str(k->verdict) : "untuned", to);
    fprintf(to, ",%d,[", k->measured);
    for (unsigned i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (i)
            fputc(',', to);
        const cJSON *table = cJSON_GetObjectItemCaseSensitive(detail, parts[i]);
        write_cells(s, cJSON_GetObjectItemCaseSensitive(table, "rows"), to);
    }
    fputs("]]", to);
    cJSON_Delete(detail);
}

char *kfit_page_data(const struct kfit_report_page *p)
{
    const struct kfit_report *r = p->report;
    struct strings s = {0};
    char *out = NULL;
    size_t bytes = 0;
    FILE *to = open_memstream(&out, &bytes);
    if (!to)
        return NULL;
    bool with_receipt = true;
    size_t receipts = 0;
    fputs("{\"rows\":[", to);
    for (size_t i = 0; i < r->count && !s.failed; i++) {
        long before = ftell(to);
        size_t strings = s.bytes;
        if (i)
            fputs(",\n", to);
        write_row(&s, p, &r->keys[i], with_receipt, to);
        receipts += (size_t)(ftell(to) - before) + s.bytes - strings;
        with_receipt = receipts < RECEIPT_BYTES;
    }
    fputs("],\n\"strings\":[", to);
    for (size_t i = 0; i < s.count; i++) {
        if (i)
            fputc(',', to);
        kfit_write_escaped(to, s.item[i], KFIT_ESCAPE_JSON);
    }
    fputs("]}", to);
    bool failed = ferror(to) || s.failed;
    failed |= fclose(to) != 0;
    finish(&s);
    if (failed) {
        free(out);
        return NULL;
    }
    return out;
}
