-- The participant's guard for MySQL 8 and MariaDB 10.11: makes an effect in this database happen at
-- most once for each saga, step and operation, and never after its compensation. Two tables; what a
-- worker runs is plain SQL (below), no stored routine. For MySQL 8.0.16 and MariaDB 10.11 or newer.
--
-- Run this file once in the database that holds the business tables (it may be run again at any
-- time), then give the user of your workers:
--   GRANT SELECT, INSERT, UPDATE ON saga_guard TO ...; GRANT SELECT, UPDATE ON saga_guard_floor TO ...
-- (a locking read needs UPDATE in MySQL).
--
-- The statements, with named parameters. README.md says what to do with each answer.
--
-- 1. In the business transaction, before anything else: is there one? Error 1305 (SAVEPOINT does not
--    exist): there is not, autocommit is on. Stop. (Not needed where the driver tells.)
--      SAVEPOINT saga_guard;
--      RELEASE SAVEPOINT saga_guard;
--
-- 2. Only for a compensation: claim the row of its action, which waits for an action whose
--    transaction is still open, and take it back or block it for ever.
--      INSERT INTO saga_guard (namespace, definition, saga_id, run, step, operation, fence, state,
--                              saga_started_us)
--          VALUES (:namespace, :definition, :saga_id, :run, :step, 'ACTION', :fence, 'BLOCKED',
--                  :saga_started_us)
--          ON DUPLICATE KEY UPDATE state = CASE state WHEN 'DONE' THEN 'UNDONE'
--                                                     WHEN 'SEEN' THEN 'BLOCKED' ELSE state END;
--
-- 3. Claim the operation's own row. :operation is ACTION or COMPENSATION.
--      INSERT INTO saga_guard (namespace, definition, saga_id, run, step, operation, fence, state,
--                              saga_started_us)
--          VALUES (:namespace, :definition, :saga_id, :run, :step, :operation, :fence, 'ENTERED',
--                  :saga_started_us)
--          ON DUPLICATE KEY UPDATE
--              state = CASE WHEN state = 'ENTERED' THEN 'LEFT_OPEN'
--                           WHEN state = 'SEEN' AND fence <= :fence THEN 'ENTERED'
--                           ELSE state END,
--              fence = GREATEST(fence, :fence);
--
-- 4. The answer; always one row. (The row counts of 2 and 3 mean nothing.) Of an action:
--      SELECT CASE WHEN own.state IN ('UNDONE', 'BLOCKED') THEN 'REFUSED'
--                  WHEN own.state = 'DONE' THEN 'DUPLICATE'
--                  WHEN own.state = 'LEFT_OPEN' THEN 'LEFT_OPEN'
--                  WHEN own.fence > :fence OR own.saga_started_us <
--                       (SELECT floor_us FROM saga_guard_floor WHERE only_row = 1 LOCK IN SHARE MODE) THEN 'STALE'
--                  ELSE 'PROCEED' END AS answer, own.output
--          FROM saga_guard own
--          WHERE own.namespace = :namespace AND own.definition = :definition
--            AND own.saga_id = :saga_id AND own.run = :run AND own.step = :step
--            AND own.operation = 'ACTION' FOR UPDATE;
--    Of a compensation (:even_without_action is 0, or 1: see README.md):
--      SELECT CASE WHEN own.state = 'DONE' THEN 'DUPLICATE'
--                  WHEN own.state = 'LEFT_OPEN' OR action.state IN ('ENTERED', 'LEFT_OPEN')
--                      THEN 'LEFT_OPEN'
--                  WHEN GREATEST(own.fence, action.fence) > :fence OR own.saga_started_us <
--                       (SELECT floor_us FROM saga_guard_floor WHERE only_row = 1 LOCK IN SHARE MODE) THEN 'STALE'
--                  WHEN action.state = 'BLOCKED' AND NOT :even_without_action THEN 'EMPTY'
--                  ELSE 'PROCEED' END AS answer, own.output
--          FROM saga_guard action JOIN saga_guard own
--            ON own.namespace = action.namespace AND own.definition = action.definition
--           AND own.saga_id = action.saga_id AND own.run = action.run AND own.step = action.step
--           AND own.operation = 'COMPENSATION'
--          WHERE action.namespace = :namespace AND action.definition = :definition
--            AND action.saga_id = :saga_id AND action.run = :run AND action.step = :step
--            AND action.operation = 'ACTION' FOR UPDATE;
--
-- 5. After PROCEED (the effect, then this) and after EMPTY (this alone), then COMMIT. It must change
--    one row; if it does not, ROLLBACK: 2 to 4 were not run in this transaction.
--      UPDATE saga_guard SET state = 'DONE', output = :output
--          WHERE namespace = :namespace AND definition = :definition AND saga_id = :saga_id
--            AND run = :run AND step = :step AND operation = :operation AND state = 'ENTERED';
--
-- 6. A business no after PROCEED: ROLLBACK, and in a transaction of its own 2 to 4 again; when that
--    says PROCEED, this, then COMMIT. It remembers the fence, so that an older holder that wakes up
--    later is STALE. Any other answer: somebody was faster, and that answer counts.
--      UPDATE saga_guard SET state = 'SEEN'
--          WHERE namespace = :namespace AND definition = :definition AND saga_id = :saga_id
--            AND run = :run AND step = :step AND operation = :operation AND state = 'ENTERED';
--    and for a compensation also:
--      UPDATE saga_guard SET state = 'DONE'
--          WHERE namespace = :namespace AND definition = :definition AND saga_id = :saga_id
--            AND run = :run AND step = :step AND operation = 'ACTION' AND state = 'UNDONE';
--
-- 7. The short way, for an action whose output is known before: this in place of 3 to 5, then the
--    effect, then COMMIT. If it fails with error 1062 (it was here, or its compensation was), 3819 or
--    4025 (MySQL's and MariaDB's: below the floor): ROLLBACK, and 1 to 5 tell.
--      INSERT INTO saga_guard (namespace, definition, saga_id, run, step, operation, fence, state,
--                              output, saga_started_us)
--          VALUES (:namespace, :definition, :saga_id, :run, :step, 'ACTION', :fence, 'DONE', :output,
--                  :saga_started_us);
--
-- Every read is a locking read and finds its rows by the whole primary key: at REPEATABLE READ it
-- sees what was committed after the snapshot, and it locks no gap in which a neighbour inserts.

-- One row for each operation that was here. The row of an action is also the lock under which its
-- compensation decides: whoever wants to decide about a step locks that row first.
CREATE TABLE IF NOT EXISTS saga_guard (
    namespace       varchar(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    definition      varchar(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    -- Bytes of UTF-8, not a text: every utf8mb4 collation that both databases know takes 'a' and
    -- 'a ' for the same.
    saga_id         varbinary(256) NOT NULL,
    run             int          NOT NULL,
    step            varchar(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    operation       varchar(12)  CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    fence           bigint       NOT NULL, -- the highest that was here
    -- ENTERED    between 3 and 5, committed only by a worker that left out 5
    -- DONE       the effect is in this database; or a compensation that found nothing to undo
    -- UNDONE     an action that its compensation has taken back
    -- BLOCKED    an action that never ran and never will: its compensation was here
    -- SEEN       no effect; only the fence is remembered
    -- LEFT_OPEN  was found ENTERED: a worker left out 5, or entered twice in one transaction
    state           varchar(9)   CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    output          mediumblob,
    saga_started_us bigint       NOT NULL, -- Unix epoch microseconds
    changed_at      timestamp(6) NOT NULL DEFAULT current_timestamp(6)
                                 ON UPDATE current_timestamp(6),
    -- The floor when the row was made. For the short way it stands here as the column's default, and
    -- not in a table that would have to be read, which takes as long as the insertion.
    floor_us        bigint       NOT NULL DEFAULT -9223372036854775808,
    PRIMARY KEY (namespace, definition, saga_id, run, step, operation),
    KEY saga_guard_started (saga_started_us), -- for the purge
    CONSTRAINT saga_guard_operation CHECK (operation IN ('ACTION', 'COMPENSATION')),
    CONSTRAINT saga_guard_state CHECK
        (state IN ('ENTERED', 'DONE', 'UNDONE', 'BLOCKED', 'SEEN', 'LEFT_OPEN')),
    CONSTRAINT saga_guard_above_floor CHECK (state <> 'DONE' OR saga_started_us >= floor_us)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Sagas that started before the floor are STALE; their rows may be purged.
CREATE TABLE IF NOT EXISTS saga_guard_floor (
    only_row tinyint NOT NULL PRIMARY KEY DEFAULT 1,
    floor_us bigint  NOT NULL, -- Unix epoch microseconds
    CONSTRAINT saga_guard_floor_only_row CHECK (only_row = 1)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
INSERT INTO saga_guard_floor (only_row, floor_us) VALUES (1, -9223372036854775808)
    ON DUPLICATE KEY UPDATE floor_us = floor_us;

-- Purging, by the owner, on a connection without a transaction, at READ COMMITTED so that it locks
-- the rows that it deletes and nothing between them:
--
--      SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED;
--      SET SESSION innodb_lock_wait_timeout = 1, SESSION lock_wait_timeout = 1;
--
-- The floor goes up, never down. Choose it so that no saga that started before it is still open:
-- the README says how to ask for that time. This waits for the guarded transactions that are open,
-- and later ones wait behind it: on error 1205 nothing was changed, and it is tried again later.
--      UPDATE saga_guard_floor SET floor_us = GREATEST(floor_us, :new_floor_us);
-- The same for the short way. It changes no row, and waits as the one before.
--      SET @saga_guard = CONCAT('ALTER TABLE saga_guard ALTER COLUMN floor_us SET DEFAULT ',
--                               (SELECT floor_us FROM saga_guard_floor));
--      PREPARE saga_guard FROM @saga_guard;
--      EXECUTE saga_guard;
--
-- Then, until it deletes no row; it deletes none before both floors are raised. It looks at the first row above the floor, too, and in a table of
-- few rows at all of them: on error 1205 or 1213 nothing was deleted, and it is tried again.
--      DELETE FROM saga_guard
--          WHERE saga_started_us < (SELECT floor_us FROM saga_guard_floor)
--            AND saga_started_us < DEFAULT(floor_us)
--          ORDER BY saga_started_us LIMIT 1000;
