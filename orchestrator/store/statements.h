/* Every SQL statement that runs on tables of sagas: prepared once per connection, and nowhere else
 * is a column named. A test prepares each row, compares the parameters with what the server says,
 * and explains it on an empty and on a filled database. */
#ifndef STORE_STATEMENTS_H
#define STORE_STATEMENTS_H

#include <libpq-fe.h>
#include <stddef.h>
#include <stdint.h>

enum { /* types of parameters (pg_type) */
       OID_BOOL = 16,
       OID_BYTEA = 17,
       OID_INT8 = 20,
       OID_INT2 = 21,
       OID_INT4 = 23,
       OID_TEXT = 25,
       OID_TIMESTAMPTZ = 1184,
       OID_UUID = 2950,
       OID_BOOL_ARRAY = 1000,
       OID_BYTEA_ARRAY = 1001,
       OID_INT2_ARRAY = 1005,
       OID_INT4_ARRAY = 1007,
       OID_TEXT_ARRAY = 1009,
       OID_INT8_ARRAY = 1016,
       OID_UUID_ARRAY = 2951,
};
enum { STMT_PARAMS_MAX = 46 };

struct stmt {
    const char *name;
    uint8_t nparams;
    Oid types[STMT_PARAMS_MAX];
    const char *sql;
};

/* The engine's connection. The writing ones, in the order in which a transaction runs them, return
 * (saga_uid, seq, now()) of each row that took effect as a whole; what is missing was refused.
 * (ADOPT: uids; HEARTBEAT: what it found; HANDLER: its version; HANDLERS: rows.) */
enum stmt_id {
    STMT_TAKE,
    STMT_EXTEND,
    STMT_START,
    STMT_START_SUSPECT,
    STMT_GRANT,
    STMT_GRANT_HELD,
    STMT_FINISH,
    STMT_FINISH_GRANT,
    STMT_PHASE,
    STMT_FINISH_END,
    STMT_LATE,
    STMT_LET_GO,
    STMT_ADOPT,
    STMT_HEARTBEAT,
    STMT_HANDLER,
    STMT_HANDLERS,
    STMT_WRITE_COUNT,
    STMT_EVENTS =
        STMT_WRITE_COUNT, /* returns nothing: behind what it looks at, in one transaction */
    STMT_LOAD_ROWS,
    STMT_LOAD_ENTRIES,
    STMT_LOAD_KEYS,
    STMT_LOAD_KEY_ROWS,
    STMT_LOAD_KEY_ENTRIES,
    STMT_OWN,
    STMT_LOAD_DEFINITION,
    STMT_COUNT
};
extern const struct stmt stmts[STMT_COUNT];

/* A part of a statement that inserts sagas: their start events, FROM what has their shard and
 * saga_uid; `which` is a condition: their definition publishes TRANSITIONS. */
#define OUTBOX_STARTED(from, which)                                                                \
    "INSERT INTO outbox (shard, saga_uid, seq, part, created_at)"                                  \
    " SELECT " from ".shard, " from ".saga_uid, 0, 0, now() FROM " from " WHERE " which

/* A part of a statement that inserts sagas: what leads from their labels to them, of rows of `from`
 * (shard, uid, labels) that `is_started` is true of. */
#define LABELS_STARTED(from, namespace, is_started)                                                \
    "INSERT INTO saga_label (shard, saga_uid, key, value, namespace, started_at)"                  \
    " SELECT " from ".shard, " from                                                                \
    ".uid, l.key, l.value, " namespace ", now() FROM " from                                        \
                                       " CROSS JOIN LATERAL jsonb_each_text(" from                 \
                                       ".labels::jsonb) l"                                         \
                                       " WHERE " from ".labels IS NOT NULL AND " is_started

/* What stands around them. Times of waiting for a lock: LOCK_TIMEOUT_MS of the session for a whole
 * batch, SPLIT_LOCK_TIMEOUT_MS while the one that fails is looked for. */
enum { LOCK_TIMEOUT_MS = 200, SPLIT_LOCK_TIMEOUT_MS = 25 };
enum control_id {
    CONTROL_BEGIN,
    CONTROL_BEGIN_READ, /* one snapshot for all loads of a batch */
    CONTROL_HURRY,
    CONTROL_COMMIT,
    CONTROL_ROLLBACK,
    CONTROL_COUNT
};
extern const struct stmt control_stmts[CONTROL_COUNT];

/* The reader's connection. */
enum read_stmt_id {
    READ_RESOLVE,
    READ_ROW,
    READ_ENTRIES,
    READ_CONTENT,
    READ_VERSIONS,
    READ_PARKED,
    READ_GUARD_FLOOR,
    READ_LET_GO,
    READ_NODES,
    READ_SERVING,
    READ_RETENTION_NODES,
    READ_RETENTION_TOPICS,
    READ_RETENTION_COUNTS,
    READ_DEFINITION,
    READ_DEFINITIONS,
    READ_REVISIONS,
    READ_REGISTER_NAME,
    READ_DEFINITION_LOCK,
    READ_REGISTER_NEXT,
    READ_REGISTER_FIND,
    READ_REGISTER_ADD,
    READ_PROMOTE,
    READ_PAUSE,
    READ_RESUME,
    READ_REVISION_USED,
    READ_REVISION_LOCK,
    READ_REVISION_DELETE,
    READ_COUNT
};
extern const struct stmt read_stmts[READ_COUNT];

/* What people look for, on the reader's connection (statements_find.c). Pages of sagas: each way to
 * them, newest first, then oldest first. */
enum find_stmt_id {
    FIND_BY_TIME,
    FIND_BY_ID = FIND_BY_TIME + 2,
    FIND_BY_DOUBT = FIND_BY_ID + 2,
    FIND_BY_REASON = FIND_BY_DOUBT + 2,
    FIND_BY_LABEL = FIND_BY_REASON + 2,
    FIND_EFFECTS = FIND_BY_LABEL + 2, /* of the sagas of each way, newest first */
    FIND_STATES = FIND_EFFECTS + 5,
    FIND_REASONS,
    FIND_TABLES,
    FIND_DATABASE,
    FIND_COUNT
};
extern const struct stmt find_stmts[FIND_COUNT];

/* The relay's connection (statements_outbox.c). */
enum outbox_stmt_id {
    OUTBOX_CLAIM,
    OUTBOX_LEAVE,
    OUTBOX_PAGE,
    OUTBOX_PUBLISHED,
    OUTBOX_REFUSED,
    OUTBOX_COUNT
};
extern const struct stmt outbox_stmts[OUTBOX_COUNT];

/* The connection of a Kafka rule's ingest (statements_ingest.c). It prepares control_stmts,
 * STMT_LOAD_KEYS and STMT_LOAD_DEFINITION, too. */
enum ingest_stmt_id {
    INGEST_LAZY,
    INGEST_SAVE,
    INGEST_RETURN,
    INGEST_RULE,
    INGEST_WANTED,
    INGEST_RUNNING,
    INGEST_HELD,
    INGEST_CURSORS,
    INGEST_CREATE,
    INGEST_STOP,
    INGEST_SEEN,
    INGEST_REVISION,
    INGEST_MOVE,
    INGEST_BEGIN_SAGAS,
    INGEST_DEAD_LETTERS,
    INGEST_COUNT_RECORDS,
    INGEST_REPLAYS,
    INGEST_REPLAY_LOCK,
    INGEST_REPLAY_END,
    INGEST_TAKE,
    INGEST_PROGRESS,
    INGEST_FINISH,
    INGEST_TAKEOVER_RULE,
    INGEST_TAKEOVER_CURSORS,
    INGEST_STMT_COUNT
};
extern const struct stmt ingest_stmts[INGEST_STMT_COUNT];

/* Kafka for people, on the reader's connection (statements_kafka.c). */
enum kafka_stmt_id {
    KAFKA_RULES,
    KAFKA_RULE_CURSORS,
    KAFKA_RULE_LOCK,
    KAFKA_CURSOR_LOCK,
    KAFKA_RESUME,
    KAFKA_WANT,
    KAFKA_AUDIT,
    KAFKA_POST,
    KAFKA_REQUEST,
    KAFKA_REQUESTS,
    KAFKA_REQUESTS_OF_RULE,
    KAFKA_LETTERS,
    KAFKA_LETTER,
    KAFKA_LETTERS_PICK,
    KAFKA_LETTERS_LOCK,
    KAFKA_LETTERS_DECIDE,
    KAFKA_DEFINITIONS,
    KAFKA_KEYS,
    KAFKA_KEY_LETTERS,
    KAFKA_OUTBOX_RELAYS,
    KAFKA_OUTBOX_REFUSED,
    KAFKA_OUTBOX_WAITS,
    KAFKA_OUTBOX_DECIDE,
    KAFKA_STMT_COUNT
};
extern const struct stmt kafka_stmts[KAFKA_STMT_COUNT];

/* Handlers for people, on the reader's connection (statements_handlers.c). */
enum handler_stmt_id {
    HANDLER_ROW,
    HANDLER_CHANGE,
    HANDLER_LIST,
    HANDLER_TIMES,
    HANDLER_LET_GO_ABOUT,
    HANDLER_STMT_COUNT
};
extern const struct stmt handler_stmts[HANDLER_STMT_COUNT];
/* The audit, on the reader's connection (statements_people.c). Whoever changes what neither a
 * journal nor kafka_request tells writes his line within his own transaction: PEOPLE_AUDIT_ADD, or
 * as a part of his own statement. */
enum people_stmt_id {
    PEOPLE_AUDIT_ADD,
    PEOPLE_AUDIT_LIST,
    PEOPLE_AUDIT_OF_SAGA,
    PEOPLE_RELATED,
    PEOPLE_ATTEMPTS,
    PEOPLE_RERUN, /* the last: it writes sagas, and is prepared when it is needed */
    PEOPLE_STMT_COUNT
};
extern const struct stmt people_stmts[PEOPLE_STMT_COUNT];
enum { AUDIT_SCAN_MAX = 5000, ATTEMPTS_SCAN_MAX = 5000 }; /* that a page looks at */
/* What an entry `j` of the journal is as a line of the audit. */
#define AUDIT_VERB                                                                                 \
    "CASE j.kind WHEN 'COMPENSATE' THEN 'cancel' WHEN 'PENDING' THEN 'cancel'"                     \
    " WHEN 'PARK' THEN 'suspend' WHEN 'OPTIONS' THEN 'set-options' ELSE lower(j.kind) END"
#define AUDIT_OPERATION "CASE WHEN j.kind IN ('RETRY', 'RESOLVE', 'SKIP') THEN j.operation END"
#define AUDIT_DETAIL                                                                               \
    "CASE j.kind WHEN 'OPTIONS' THEN convert_from(j.output, 'UTF8') WHEN 'RESOLVE'"                \
    " THEN j.outcome WHEN 'SIGNAL' THEN j.signal_id END"

/* The connection of retention (statements_retention.c). */
enum purge_stmt_id {
    PURGE_PICK,
    PURGE_LINES,
    PURGE_DELETE,
    PURGE_FORGET,
    PURGE_AUDIT,
    PURGE_SAY,
    PURGE_COUNT
};
extern const struct stmt purge_stmts[PURGE_COUNT];

#endif
