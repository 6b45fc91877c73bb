/* What the files of the ingest's store share: its connection, and how statements are sent over it.
 * Not for others. */
#ifndef STORE_INGEST_INTERNAL_H
#define STORE_INGEST_INTERNAL_H

#include "store/decode.h"
#include "store/ingest.h"
#include "store/params.h"
#include "store/sqlstate.h"

enum { INGEST_FLIGHT_MAX = 8 }; /* statements of one exchange */

struct store_ingest {
    char *conninfo, *node, *rule, *topic;
    char *actor; /* "kafka/RULE" */
    const struct clock *clock;
    int wake_fd;
    struct rng rng;
    int64_t letter_ms;     /* of the last dead letter's id */
    unsigned letter_count; /* and which of that millisecond it is */

    PGconn *conn;        /* NULL: not connected */
    int64_t deadline_ms; /* monotonic; of the call */
    struct params params;

    /* The exchange: what was sent and not answered yet, then the answers. */
    const char *names[INGEST_FLIGHT_MAX];
    PGresult *results[INGEST_FLIGHT_MAX];
    size_t sent, answered;
    bool commit_sent; /* COMMIT is the last of them */
    bool doubtful;    /* a warning at COMMIT: durable here, perhaps not elsewhere */
    enum fault fault; /* of the statement that failed */
};

/* A call begins: its time runs, and there is a connection. */
MUST_USE int ingest_open(struct store_ingest *ingest, struct err *err);
/* A call ends: after a failure the transaction is rolled back, or the connection closed. Returns
 * rc. */
int ingest_close(struct store_ingest *ingest, int rc, struct err *err);

/* The statement's parameters, to be filled, then sent (by ingest_send). */
struct params *ingest_start(struct store_ingest *ingest, const struct stmt *stmt);
/* With rule and topic as the first two. */
struct params *ingest_start_rule(struct store_ingest *ingest, enum ingest_stmt_id id);
MUST_USE int ingest_send(struct store_ingest *ingest, struct err *err);
MUST_USE int ingest_control(struct store_ingest *ingest, const struct stmt *stmt, struct err *err);
/* Waits until all that was sent is answered, each without an error. */
MUST_USE int ingest_exchange(struct store_ingest *ingest, struct err *err);
/* The answer to the n-th that was sent; until the next exchange. */
const PGresult *ingest_result(const struct store_ingest *ingest, size_t index);
/* Sends COMMIT behind what was sent, and waits: anything but a sure answer is COMMIT_IN_DOUBT. */
MUST_USE int ingest_commit(struct store_ingest *ingest, struct err *err);

/* For a statement that is a call of its own: sends what was filled and waits. */
MUST_USE int ingest_run(struct store_ingest *ingest, struct err *err);

#endif
