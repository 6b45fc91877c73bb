/* What the driver prints of a story's books: read them, audit them, say it. One thread. */
#ifndef DEMO_DRIVER_REPORT_H
#define DEMO_DRIVER_REPORT_H

#include "sagas.h"

struct report_sources {          /* where the books of a story are; only its own are looked at */
    const char *bank, *risk_log; /* settlement */
    const char *confirmed;       /* the same: what a person found out; NULL: nothing */
    const char *shop, *logistics_log, *cache; /* fulfilment */
};

enum report_kind {
    REPORT_BOOKS,  /* in figures */
    REPORT_VERDICT /* the faults, then the last line */
};

/* `sagas` were looked at. *ret_faultless is set by the verdict. */
MUST_USE int settlement_report(const struct report_sources *sources, struct client *client,
                               const struct sagas *sagas, enum report_kind kind,
                               bool *ret_faultless, struct err *err);
MUST_USE int fulfilment_report(const struct report_sources *sources, struct client *client,
                               const struct sagas *sagas, enum report_kind kind,
                               bool *ret_faultless, struct err *err);
/* Of the fulfilments: were both branches under way at the same time, was everything taken back in
 * reverse order; and, to be looked at, "together ord-000001" and "undone ord-000012", a line each.
 */
MUST_USE int branches_report(struct client *client, const struct sagas *sagas, bool *ret_faultless,
                             struct err *err);
/* Which key is what: "lost stl-000013", a line each. */
void settlement_print_ids(int count);
void fulfilment_print_ids(int count);

struct report_column {
    int64_t rows, keys, most;
};
void report_column_add(struct report_column *column, int64_t rows);
/* "debits   500 for 500 settlements, at most 1 for one" */
void report_column_print(const char *name, const char *keys, const struct report_column *column);

#endif
