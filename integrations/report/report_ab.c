/* What `kfit ab --out` wrote. */
#include <math.h>
#include <string.h>

#include "report.h"

enum { VERSION = 1, PAIRS_LEAST = 6 /* fewer give no 95 % interval of a median */ };

static bool number(const cJSON *o, const char *name, double *out)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(o, name);
    if (!cJSON_IsNumber(item) || !isfinite(item->valuedouble))
        return false;
    *out = item->valuedouble;
    return true;
}

/* Words joined by spaces; what does not fit ends in "...". */
static bool command(const cJSON *words, char *buf, size_t size)
{
    const cJSON *word;
    size_t used = 0;
    buf[0] = '\0';
    cJSON_ArrayForEach(word, words)
    {
        const char *text = cJSON_GetStringValue(word);
        if (!text)
            return false;
        int n = snprintf(buf + used, size - used, "%s%s", used ? " " : "", text);
        used += (size_t)n;
        if (used >= size) {
            strcpy(buf + size - 4, "...");
            break;
        }
    }
    return cJSON_IsArray(words) && used;
}

enum kfit_status kfit_report_ab_parse(const char *json, size_t bytes, struct kfit_report_ab *out,
                                      struct kfit_error *err)
{
    cJSON *o = cJSON_ParseWithLength(json, bytes);
    double version, pairs, generation = 0;
    enum kfit_status s = KFIT_E_FORMAT;
    *out = (struct kfit_report_ab){.spread = -1};
    const char *mode = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(o, "mode"));
    if (!number(o, "version", &version)) {
        kfit_fail(err, s, "not what `kfit ab --out FILE` writes: no JSON object with a version");
    } else if (version != VERSION) {
        s = kfit_fail(err, KFIT_E_VERSION, "version %g; this kfit reads %d", version, VERSION);
    } else if (!mode || (strcmp(mode, "runs") && strcmp(mode, "phases"))) {
        kfit_fail(err, s,
                  "mode is neither \"runs\" nor \"phases\" (with --aa it measures noise, not a gain)");
    } else if (!number(o, "pairs", &pairs) || pairs < 1 || pairs > 1e6 || pairs != floor(pairs)) {
        kfit_fail(err, s, "pairs is not a whole number from 1 to 1000000");
    } else if (pairs < PAIRS_LEAST) {
        kfit_fail(err, s, "%.0f pairs conclude nothing: `kfit ab` needs %d or more", pairs, PAIRS_LEAST);
    } else if (!number(o, "ratio", &out->ratio) || !number(o, "lo", &out->lo) || !number(o, "hi", &out->hi) ||
               !(out->lo > 0) || !(out->lo <= out->ratio) || !(out->ratio <= out->hi)) {
        kfit_fail(err, s, "ratio, lo and hi are not three numbers with 0 < lo <= ratio <= hi");
    } else if (!command(cJSON_GetObjectItemCaseSensitive(o, "command"), out->command, sizeof out->command)) {
        kfit_fail(err, s, "command is not a list of words");
    } else {
        s = KFIT_OK;
        snprintf(out->mode, sizeof out->mode, "%s", mode);
        /* with several metrics the ratio is the first one's */
        const cJSON *first = cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(o, "metrics"), 0);
        const char *metric = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(first, "regex"));
        snprintf(out->metric, sizeof out->metric, "%s", metric ? metric : "");
        out->pairs = (unsigned)pairs;
        number(o, "off_s", &out->off_s);
        number(o, "on_s", &out->on_s);
        number(o, "predicted", &out->predicted);
        number(o, "spread", &out->spread);
        if (number(o, "generation", &generation) && generation > 0 && generation <= 0x1p53)
            out->generation = (uint64_t)generation;
    }
    cJSON_Delete(o);
    return s;
}
