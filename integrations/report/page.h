/* page.h - the parts of the HTML page, which only report/ knows.
 *
 * page.html is a template; its values are a tree of cJSON strings, arrays and objects made here, its raw parts
 * the style sheet, the script and the data the script reads. Text is escaped in one function, where it is
 * written: whatever a trace, a cache or a receipt holds goes into the tree as it is.
 *
 * Thread-safety: as report.h.
 */
#ifndef KFIT_PAGE_H
#define KFIT_PAGE_H

#include "report.h"

/* ---- report_gain.c ---- */

/* Fills gain, gain_lo, gain_hi and program from the keys, wall_s and ab. */
void kfit_report_weigh(struct kfit_report *r);

/* ---- template.c ---- */

enum kfit_escape { KFIT_ESCAPE_HTML, KFIT_ESCAPE_JSON };

/* Writes s so that it is text and nothing else: in HTML also inside a quoted attribute; in JSON a string,
 * quotes included, also inside a script element. What is not printable ASCII becomes \xNN, to be read by
 * people. */
void kfit_write_escaped(FILE *to, const char *s, enum kfit_escape how);

struct kfit_part { /* the list ends with a part without name */
    const char *name, *text;
};

/* Writes text with its markers replaced:
 *   {{name}}                  a string, escaped, or a number; nothing if there is none
 *   {{#name}}...{{/name}}     for each item of an array; once if name is anything but missing, null, false
 *                             or empty
 *   {{^name}}...{{/name}}     once if the section above would be left out
 *   {{.}}, {{#.}}...{{/.}}    the item itself
 *   {{>name}}                 a part as it is, or a piece
 *   {{<name}}...{{/name}}     a piece, written only where it is asked for
 * Names are looked up from the inside out. A section cannot hold one of its own name.
 * KFIT_E_FORMAT: the template is wrong, err says where. */
enum kfit_status kfit_template_write(const char *text, const cJSON *values, const struct kfit_part *parts,
                                     FILE *to, struct kfit_error *err);

/* ---- page_rows.c ---- */

/* What the table shows of a key; and its detail, the tables pairs, went (to the original), gates and timings, which are
 * left out where they are empty. NULL: out of memory. */
cJSON *kfit_page_row(const struct kfit_report_page *p, const struct kfit_report_key *k);
cJSON *kfit_page_detail(const struct kfit_report_page *p, const struct kfit_report_key *k, bool with_receipt);

/* Adds a table {rows: []} to object and returns its rows. */
cJSON *kfit_page_table(cJSON *object, const char *name);
/* Takes the tables without rows out of object. */
void kfit_page_prune(cJSON *object);
/* Appends an array of the texts, which end with NULL, to array. */
void kfit_page_cells(cJSON *array, ...) __attribute__((sentinel));
__attribute__((format(printf, 3, 4))) void kfit_page_text(cJSON *object, const char *name, const char *fmt,
                                                          ...);
/* "12,345"; "2 Jan 2026 ..." in UTC; "4.2 %". Return buf. */
const char *kfit_page_count(uint64_t n, char buf[32]);
const char *kfit_page_when(int64_t unix_s, char buf[32]);
const char *kfit_page_percent(double share, char buf[24]);
/* "m=4, n=768, k=768": the part of a key's text that tells keys apart at a glance. */
const char *kfit_page_dims(const char *key, char *buf, size_t size);

/* ---- page_data.c ---- */

/* The data of every row for the script, as JSON: malloc'ed, the caller's; NULL: out of memory. The format
 * is in README.md. */
char *kfit_page_data(const struct kfit_report_page *p);

/* ---- page_chart.c ---- */

/* Positions for the latency chart of the keys with the largest shares; NULL: nothing to draw. */
cJSON *kfit_page_chart(const struct kfit_report *r);

#endif
