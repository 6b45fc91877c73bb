#include "sim/hits.h"

struct hit_row {
    const char *name, *text;
    unsigned odds;
};

#define FAULT_ROW(name, text, odds) { #name, text, odds },
#define OUTCOME_ROW(name, text)     { #name, text, 0 },
static const struct hit_row rows[HIT_COUNT] = { FAULTS(FAULT_ROW) OUTCOMES(OUTCOME_ROW) };

const char *hit_name(enum hit hit)
{
    return rows[hit].name;
}

const char *hit_text(enum hit hit)
{
    return rows[hit].text;
}

unsigned fault_odds(enum hit fault)
{
    return rows[fault].odds;
}
