#include "kfit/reason.h"

static const struct {
    const char *name, *text;
} reasons[] = {
#define KFIT_X(id, name, text) {name, text},
    KFIT_REASON_LIST(KFIT_X)
#undef KFIT_X
};

const char *kfit_reason_name(unsigned reason)
{
    return reason < KFIT_REASON_COUNT ? reasons[reason].name : "?";
}

const char *kfit_reason_text(unsigned reason)
{
    return reason < KFIT_REASON_COUNT ? reasons[reason].text : "?";
}
