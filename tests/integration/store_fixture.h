/* What the tests of the store share: a migrated database, a store that is driven by hand, copies of
 * sagas with the operation that writes their last transition. thread: the test thread only. */
#ifndef STORE_FIXTURE_H
#define STORE_FIXTURE_H

#include "support/check.h"
#include "support/postgres.h"

#include "core/saga.h"
#include "store/pg.h"
#include "store/reader.h"
#include "store/write.h"

#include <libpq-fe.h>

/* A new database on the cluster, migrated, with the definition "pay" registered. */
void fixture_database(struct test_postgres *postgres, const char *name,
                      char ret_conninfo[POSTGRES_CONNINFO_SIZE]);
/* Three steps, IDEMPOTENT, each with a compensation, guarded; retry from 1 s. Lives until the
 * program ends. */
const struct definition *fixture_definition(void);

/* What it publishes from now on; NONE at the start. */
void fixture_publish(enum publish publish);

/* A store that has connected: as node-1 and fixture_instance, or as another. */
extern const struct uuid fixture_instance;
struct store *fixture_store(const char *conninfo);
struct store *fixture_store_of(const char *conninfo, const char *node, const struct uuid *instance);
/* Drives it until it is usable with a generation other than `before`. */
void fixture_wait_ready(struct store *store, uint64_t before);
/* Drives it until the batch is done; the result is in each operation. */
void fixture_pump(struct store *store);
void fixture_run(struct store *store, struct store_op *batch);

/* Changes the handler, as the engine does, and expects that it is changed. */
void fixture_handler(struct store *store, struct handler *handler,
                     const struct handler_change *change);

struct copy { /* a saga, its last transition, and the operation that writes it */
    struct saga *saga;
    struct transition transition;
    struct store_op op;
};
/* A new saga with this id; started with its first lease if `worker` is given. */
void copy_new(struct copy *copy, const char *saga_id, const char *worker);
void copy_done(struct copy *copy);
/* Each makes the next transition and the operation; nothing is written yet. */
void copy_report(struct copy *copy, enum outcome outcome, const char *output);
void copy_grant(struct copy *copy, const char *worker);
void copy_cancel(struct copy *copy);
void copy_extend(struct copy *copy, int64_t seq);
/* Writes it, expects this result, and on OK tells the copy. */
void copy_write(struct copy *copy, struct store *store, enum store_result expected);
void copy_expect(struct copy *copy, enum store_result expected);
/* Another copy of the same saga, loaded by a store. */
void copy_load(struct copy *copy, struct store *store, const struct uuid *uid);
/* The stored saga, loaded and replayed, equals this copy in every field. */
void copy_assert_stored(const struct copy *copy, struct store *store);

/* One session of a node with the store's own statements, each sent by hand: for races. */
struct session {
    PGconn *conn;
    const char *node; /* borrowed */
    struct params params;
    struct write write;
};
void session_open(struct session *session, const char *conninfo, const char *node);
void session_close(struct session *session);
/* Begins a transaction, if there is none, and sends the operation's statement. */
void session_send(struct session *session, struct store_op *op);
/* Its answer: did it take effect as a whole? The transaction stays open. */
bool session_take(struct session *session);
/* Until it is seen to wait for a lock. */
void session_wait_blocked(const struct session *session, PGconn *watch);

/* A plain connection with the sessions' search_path and, as "store", the statement's name. */
PGconn *fixture_connect(const char *conninfo);
void fixture_exec(PGconn *conn, const char *sql);
int64_t fixture_count(PGconn *conn, const char *sql);

#endif
