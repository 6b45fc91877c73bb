/* The shop's side of a fulfilment: the guarded effects on an order row and on the warehouse's
 * picks, each in one transaction with its guard, in two databases of one MariaDB. It never decides
 * whether an effect may run (the guard does), and it never commits by itself. thread: each function
 * runs on the task's own thread, with that thread's own connection. */
#ifndef DEMO_SHOP_H
#define DEMO_SHOP_H

#include "base/err.h"

#include <demo/fulfilment.pb-c.h>
#include <sagaworker.h>

struct shop;

/* `socket` is that of MariaDB. One connection to each database for each of `threads`, made when a
 * thread first needs it. */
MUST_USE int shop_create(const char *socket, int threads, struct shop **ret, struct err *err);
struct shop *shop_free(struct shop *shop); /* no task may be running; NULL is fine */

/* Handlers; ctx is the shop. */
void shop_confirm_order(struct saga_task *task, void *ctx);
void shop_cancel_order(struct saga_task *task, void *ctx);
void shop_pick_goods(struct saga_task *task, void *ctx);
void shop_put_back(struct saga_task *task, void *ctx);
void shop_hand_over(struct saga_task *task, void *ctx);

/* Is it an order that can be fulfilled? False: the outcome REJECTED is set. */
bool shop_takes_order(struct saga_task *task, const Shop__V1__Order *order);

#endif
