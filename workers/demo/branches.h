/* What the history of an order shows of its two branches, create_waybill and pick_goods, which both
 * come after confirm_order and before hand_over. Pure; any thread. */
#ifndef DEMO_BRANCHES_H
#define DEMO_BRANCHES_H

#include <saga/v1/saga.pb-c.h>
#include <stdbool.h>

struct branches {
    bool together; /* a lease of the one overlaps a lease of the other */
    bool undone;   /* both had been done (hand_over was tried), and both were taken back */
    /* NULL: whatever was taken back, it was when nothing was under way any more, and what comes
     * later was before what it depends on. Else what was wrong; static. */
    const char *wrong;
};

/* Of a whole journal. */
void branches_read(Saga__V1__JournalEntry *const *entries, size_t count, struct branches *ret);

#endif
