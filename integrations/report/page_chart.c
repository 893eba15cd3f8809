/* The latency chart: before, after and floor of the largest shapes on one logarithmic axis, in per cent of its width. */
#include <math.h>

#include "page.h"

enum { BARS = 24, TICKS = 24 };

#define LEFT  2.0 /* room for half a dot and half a label at both ends */
#define WIDTH 96.0

struct axis {
    double from, to; /* log10 of ns */
};

static double at(const struct axis *a, double ns)
{
    return LEFT + WIDTH * (log10(ns) - a->from) / (a->to - a->from);
}

/* Every decade; where there are few, 2 and 5 times it as well. */
static cJSON *ticks(const struct axis *a)
{
    static const double steps[] = {1, 2, 5};
    unsigned n = a->to - a->from > 2 ? 1 : 3, made = 0;
    cJSON *array = cJSON_CreateArray();
    for (double d = floor(a->from); d <= a->to; d++) {
        for (unsigned i = 0; i < n && made < TICKS; i++) {
            char text[24];
            double ns = steps[i] * pow(10, d);
            if (log10(ns) < a->from || log10(ns) > a->to)
                continue;
            snprintf(text, sizeof text,
                     ns < 1e3   ? "%.0f ns"
                     : ns < 1e6 ? "%.0f us"
                     : ns < 1e9 ? "%.0f ms"
                                : "%.0f s",
                     ns < 1e3   ? ns
                     : ns < 1e6 ? ns / 1e3
                     : ns < 1e9 ? ns / 1e6
                                : ns / 1e9);
            cJSON *o = cJSON_CreateObject();
            cJSON_AddNumberToObject(o, "x", at(a, ns));
            cJSON_AddStringToObject(o, "label", text);
            cJSON_AddItemToArray(array, o);
            made++;
        }
    }
    return array;
}

static cJSON *bar(const struct axis *a, const struct kfit_report_key *k)
{
    char key[KFIT_KEY_TEXT_MAX], text[KFIT_KEY_TEXT_MAX], ns[24];
    cJSON *o = cJSON_CreateObject();
    kfit_key_format(&k->key, key, sizeof key);
    kfit_page_text(o, "key", "%s", key);
    kfit_page_text(o, "dims", "%s", kfit_page_dims(key, text, sizeof text));
    kfit_page_text(o, "before", "%s", kfit_report_ns(k->before_ns, ns));
    cJSON_AddNumberToObject(o, "x_before", at(a, k->before_ns));
    cJSON_AddNumberToObject(o, "x_after", at(a, k->after_ns));
    if (k->after_ns < k->before_ns)
        kfit_page_text(o, "after", "%s", kfit_report_ns(k->after_ns, ns));
    if (k->floor_ns > 0) {
        kfit_page_text(o, "floor", "%s", kfit_report_ns(k->floor_ns, ns));
        cJSON_AddNumberToObject(o, "x_floor", at(a, k->floor_ns));
    }
    return o;
}

cJSON *kfit_page_chart(const struct kfit_report *r)
{
    const struct kfit_report_key *shown[BARS];
    double least = INFINITY, most = 0;
    unsigned n = 0;
    for (size_t i = 0; i < r->count && n < BARS; i++) {
        const struct kfit_report_key *k = &r->keys[i];
        if (!k->measured || !(k->before_ns > 0) || !(k->after_ns > 0))
            continue;
        shown[n++] = k;
        least = fmin(least, fmin(k->after_ns, k->floor_ns > 0 ? k->floor_ns : INFINITY));
        most = fmax(most, fmax(k->before_ns, k->after_ns));
    }
    if (!n)
        return NULL;
    const struct axis a = {log10(least / 1.15), log10(most * 1.15)};
    cJSON *chart = cJSON_CreateObject(), *bars = cJSON_CreateArray();
    cJSON_AddNumberToObject(chart, "count", n);
    cJSON_AddItemToObject(chart, "ticks", ticks(&a));
    cJSON_AddItemToObject(chart, "bars", bars);
    for (unsigned i = 0; i < n; i++)
        cJSON_AddItemToArray(bars, bar(&a, shown[i]));
    return chart;
}
