/* The books of a run of fulfilments: what sagad says about each order, what the shop's table holds,
 * what the logistics service's own log says and what is in the cache, side by side; and the audit
 * that compares them with what was meant to happen. The audit is pure: it counts what is there and
 * forgives nothing. One thread. */
#ifndef DEMO_ORDER_BOOKS_H
#define DEMO_ORDER_BOOKS_H

#include "faults.h"
#include "sagas.h"

enum order_state {
    ORDER_MISSING,
    ORDER_PENDING,
    ORDER_CONFIRMED,
    ORDER_HANDED_OVER,
    ORDER_CANCELLED,
    ORDER_WITHDRAWN
};

struct order_record { /* of one order */
    struct saga_seen saga;
    enum order_state state;
    int64_t confirmed, cancelled, handed_over; /* how often, by the shop's row */
    int64_t picked, put_back;                  /* rows in the warehouse */
    int64_t parcels;                           /* that were handed over */
    bool has_waybill;                          /* they were, by one */
    int64_t waybills_made, waybills_cancelled; /* lines in the logistics service's log */
    bool cached;
    bool cache_left_out; /* the saga went on without the cache, or without knowing about it */
};

struct order_books {
    int count;                    /* of orders; at least 1 */
    struct order_record *records; /* owned; [1] to [count] */
    int64_t strangers;            /* sagas, rows and lines of orders that nobody started */
};

struct order_audit {
    int fulfilled, cancelled;
    int parked_window, parked_foreign, parked_late;
    int left_out;       /* fulfilled without a cache */
    int first_left_out; /* number of the first of them; 0: none */
    int doubled, lost;
    struct faults
        faults; /* everything that is not as it should be, the doubled and lost included */
};

/* Zeroed records for `count` orders. */
MUST_USE int order_books_create(int count, struct order_books *ret, struct err *err);
void order_books_done(struct order_books *books);

/* What sagad says; `sagas` are of the same count. */
void order_books_take_sagas(struct order_books *books, const struct sagas *sagas);
/* `socket`: that of the MariaDB with shop and warehouse. */
MUST_USE int order_books_read_shop(struct order_books *books, const char *socket, struct err *err);
MUST_USE int order_books_read_log(struct order_books *books, const char *path, struct err *err);
/* `socket`: Redis's. Asks sagad about the fulfilled ones that are not in the cache. */
MUST_USE int order_books_read_cache(struct order_books *books, const char *socket,
                                    struct client *client, const struct sagas *sagas,
                                    struct err *err);

void order_books_audit(const struct order_books *books, struct order_audit *ret);
static inline void order_audit_done(struct order_audit *audit)
{
    faults_done(&audit->faults);
}

#endif
