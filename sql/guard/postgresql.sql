-- The participant's guard for PostgreSQL: makes an effect in this database happen at most once for
-- each saga, step and operation, and never after its compensation. Needs PostgreSQL 14 or newer.
--
-- Run this file once in the database that holds the business tables, as their owner (it may be run
-- again at any time), then: GRANT USAGE ON SCHEMA saga_guard TO the role of your workers.
--
-- The short way, for an action whose output is known before, in one statement with its effect:
--   BEGIN;
--   UPDATE ... WHERE ... AND (SELECT saga_guard.once(namespace, definition, saga_id, run, step, fence,
--                                                    saga_started_at, output));
--   one row changed: COMMIT, DONE. None, or error 23505 or 55000: ROLLBACK, and the long way tells why.
--
-- The long way, in the business transaction itself:   BEGIN;
--   SELECT answer, output FROM saga_guard.enter(namespace, definition, saga_id, run, step,
--                                               operation, fence, saga_started_at
--                                               [, even_without_action]);
--   PROCEED    do the work, then SELECT saga_guard.done(..., output), then COMMIT
--   DUPLICATE  the effect is there, `output` is what it answered: COMMIT, ALREADY_DONE (ours)
--   EMPTY      a compensation whose action never ran, and now never will: COMMIT, DONE
--   STALE      a newer holder was here, or the saga is below the floor: ROLLBACK, no success
--   REFUSED    an action after its compensation: ROLLBACK, REJECTED, no success
-- With even_without_action (default false) a compensation whose action left no row here is PROCEED and
-- not EMPTY: for an action with an effect outside of this database, which no ROLLBACK takes back.
-- Where several apply, the answer is the first of REFUSED, DUPLICATE, STALE, EMPTY, PROCEED.
-- An error of class 40 (serialization, deadlock) says nothing about the effect: ROLLBACK, RETRY.
BEGIN;
SET LOCAL client_min_messages = warning;

CREATE SCHEMA IF NOT EXISTS saga_guard;

-- One row for each operation that was here. The row of an action is also the lock under which its
-- compensation decides: whoever wants to decide about a step locks that row first, so there is one
-- order and no deadlock between the two.
--
-- COLLATE "C": names are bytes, not words. An index in the database's own collation would no longer find
-- its rows after an upgrade of the system's locales, and an effect would happen twice.
CREATE TABLE IF NOT EXISTS saga_guard.guard (
    namespace       text COLLATE "C" NOT NULL,
    definition      text COLLATE "C" NOT NULL,
    saga_id         text COLLATE "C" NOT NULL,
    run             integer     NOT NULL,
    step            text COLLATE "C" NOT NULL,
    operation       text COLLATE "C" NOT NULL, -- ACTION, COMPENSATION
    fence           bigint      NOT NULL, -- the highest that was here
    -- ENTERED  between enter and done, never committed
    -- DONE     the effect is in this database
    -- UNDONE   an action that its compensation has taken back
    -- BLOCKED  an action that never ran and never will: its compensation was here
    -- EMPTY    a compensation that found nothing to undo
    -- SEEN     no effect; only the fence is remembered
    state           text COLLATE "C" NOT NULL,
    output          bytea,
    saga_started_at timestamptz NOT NULL,
    changed_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (namespace, definition, saga_id, run, step, operation)
) WITH (fillfactor = 85);

-- As it was before. Only the functions below write here, and a CHECK is made ready anew for each
-- statement, which takes as long as the insertion.
ALTER TABLE saga_guard.guard DROP CONSTRAINT IF EXISTS guard_operation_check,
    DROP CONSTRAINT IF EXISTS guard_state_check;

-- As it was before: in the database's collation. (The trigger is made anew below.)
DO $$ BEGIN
    IF EXISTS (SELECT FROM pg_attribute a JOIN pg_collation c ON c.oid = a.attcollation
                   WHERE a.attrelid = 'saga_guard.guard'::regclass AND c.collname <> 'C') THEN
        DROP TRIGGER IF EXISTS guard_refuse_open_commit ON saga_guard.guard;
        ALTER TABLE saga_guard.guard
            ALTER namespace TYPE text COLLATE "C", ALTER definition TYPE text COLLATE "C",
            ALTER saga_id TYPE text COLLATE "C", ALTER step TYPE text COLLATE "C",
            ALTER operation TYPE text COLLATE "C", ALTER state TYPE text COLLATE "C";
    END IF;
END $$;

-- As it was before. Every index costs each action as much as its row; the purge looks at the pages.
DROP INDEX IF EXISTS saga_guard.guard_saga_started_at;

-- Sagas that started before the floor are STALE; their rows may be purged.
CREATE TABLE IF NOT EXISTS saga_guard.guard_floor (
    only_row boolean     PRIMARY KEY DEFAULT true CHECK (only_row),
    floor    timestamptz NOT NULL
);
INSERT INTO saga_guard.guard_floor (floor) VALUES ('-infinity') ON CONFLICT DO NOTHING;

-- Where the purge goes on.
CREATE TABLE IF NOT EXISTS saga_guard.guard_sweep (
    only_row   boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    next_block bigint  NOT NULL
);
INSERT INTO saga_guard.guard_sweep (next_block) VALUES (0) ON CONFLICT DO NOTHING;

-- Whoever enters and commits without done has left open whether the effect is there. That commit
-- is refused: a guard that had to guess would be worse than none.
CREATE OR REPLACE FUNCTION saga_guard.refuse_open_commit() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM 1 FROM saga_guard.guard g
        WHERE g.namespace = NEW.namespace AND g.definition = NEW.definition
          AND g.saga_id = NEW.saga_id AND g.run = NEW.run AND g.step = NEW.step
          AND g.operation = NEW.operation AND g.state = 'ENTERED';
    IF FOUND THEN
        RAISE EXCEPTION 'saga_guard: commit after enter without done (step %, %)',
            NEW.step, NEW.operation USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    RETURN NULL;
END $$;

DROP TRIGGER IF EXISTS guard_refuse_open_commit ON saga_guard.guard;
CREATE CONSTRAINT TRIGGER guard_refuse_open_commit
    AFTER INSERT OR UPDATE ON saga_guard.guard DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW WHEN (NEW.state = 'ENTERED') EXECUTE FUNCTION saga_guard.refuse_open_commit();

-- As they were before; a second one of the name would be ambiguous, or of no use.
DROP FUNCTION IF EXISTS saga_guard.enter(text, text, text, integer, text, text, bigint, timestamptz),
    saga_guard.no_effect(text, text, text, integer, text, text, bigint, timestamptz),
    saga_guard.enter_compensation(text, text, text, integer, text, bigint, timestamptz),
    saga_guard.enter_action(text, text, text, integer, text, bigint, timestamptz),
    saga_guard.claim_action(text, text, text, integer, text, bigint, timestamptz, text);

-- This function and the next four run with the search_path of their callers, enter and no_effect: to
-- set it at each call takes longer than what they do.
--
-- The row of an action that was here before, locked. A statement of its own after the insertion that
-- found it, because that one waits for a transaction that holds the row and still has the snapshot
-- from before the wait. (REPEATABLE READ and SERIALIZABLE keep that snapshot: there the wait ends in
-- a serialization error.)
CREATE OR REPLACE FUNCTION saga_guard.lock_action(
        namespace text, definition text, saga_id text, run integer, step text,
        OUT state text, OUT highest_fence bigint, OUT output bytea)
    LANGUAGE plpgsql AS $$
BEGIN
    SELECT g.state, g.fence, g.output INTO state, highest_fence, output
        FROM saga_guard.guard g
        WHERE g.namespace = lock_action.namespace AND g.definition = lock_action.definition
          AND g.saga_id = lock_action.saga_id AND g.run = lock_action.run
          AND g.step = lock_action.step AND g.operation = 'ACTION'
        FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'saga_guard: the row was purged meanwhile'
            USING ERRCODE = 'serialization_failure';
    END IF;
END $$;

-- The row of an action, locked; created if there was none, and then the action is blocked.
CREATE OR REPLACE FUNCTION saga_guard.claim_action(
        namespace text, definition text, saga_id text, run integer, step text, fence bigint,
        saga_started_at timestamptz,
        OUT created boolean, OUT state text, OUT highest_fence bigint)
    LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO saga_guard.guard AS g
        (namespace, definition, saga_id, run, step, operation, fence, state, saga_started_at)
        VALUES (claim_action.namespace, claim_action.definition, claim_action.saga_id,
                claim_action.run, claim_action.step, 'ACTION', claim_action.fence, 'BLOCKED',
                claim_action.saga_started_at)
        ON CONFLICT DO NOTHING;
    created := FOUND;
    IF created THEN
        state := 'BLOCKED';
        highest_fence := fence;
    ELSE
        SELECT l.state, l.highest_fence INTO state, highest_fence
            FROM saga_guard.lock_action(namespace, definition, saga_id, run, step) l;
    END IF;
END $$;

-- Read after the row was claimed, so that a purge between the two is seen here. A transaction that
-- keeps its snapshot must lock the floor to be told that it moved.
CREATE OR REPLACE FUNCTION saga_guard.is_below_floor(saga_started_at timestamptz) RETURNS boolean
    LANGUAGE plpgsql AS $$
DECLARE
    horizon timestamptz;
BEGIN
    IF current_setting('transaction_isolation') IN ('repeatable read', 'serializable') THEN
        SELECT f.floor INTO STRICT horizon FROM saga_guard.guard_floor f FOR SHARE;
    ELSE
        SELECT f.floor INTO STRICT horizon FROM saga_guard.guard_floor f;
    END IF;
    RETURN is_below_floor.saga_started_at < horizon;
END $$;

-- An action that was here before.
CREATE OR REPLACE FUNCTION saga_guard.enter_action(
        namespace text, definition text, saga_id text, run integer, step text, fence bigint,
        saga_started_at timestamptz, OUT answer text, OUT output bytea)
    LANGUAGE plpgsql AS $$
DECLARE
    action record;
BEGIN
    action := saga_guard.lock_action(namespace, definition, saga_id, run, step);
    IF action.state = 'ENTERED' THEN
        RAISE EXCEPTION 'saga_guard: step % was entered already in this transaction', step
            USING ERRCODE = 'object_not_in_prerequisite_state';
    ELSIF action.state IN ('UNDONE', 'BLOCKED') THEN
        answer := 'REFUSED';
    ELSIF action.state = 'DONE' THEN
        answer := 'DUPLICATE';
        output := action.output;
    ELSIF action.highest_fence > enter_action.fence
          OR saga_guard.is_below_floor(saga_started_at) THEN
        answer := 'STALE';
    ELSE
        answer := 'PROCEED';
    END IF;

    IF answer = 'PROCEED' OR action.highest_fence < enter_action.fence THEN
        UPDATE saga_guard.guard g
            SET fence = greatest(g.fence, enter_action.fence), changed_at = now(),
                state = CASE WHEN answer = 'PROCEED' THEN 'ENTERED' ELSE g.state END
            WHERE g.namespace = enter_action.namespace
              AND g.definition = enter_action.definition AND g.saga_id = enter_action.saga_id
              AND g.run = enter_action.run AND g.step = enter_action.step
              AND g.operation = 'ACTION';
    END IF;
END $$;

CREATE OR REPLACE FUNCTION saga_guard.enter_compensation(
        namespace text, definition text, saga_id text, run integer, step text, fence bigint,
        saga_started_at timestamptz, even_without_action boolean,
        OUT answer text, OUT output bytea)
    LANGUAGE plpgsql AS $$
DECLARE
    action record;
    own    saga_guard.guard; -- under the lock of the action's row, like everything below
BEGIN
    action := saga_guard.claim_action(namespace, definition, saga_id, run, step, fence,
                                      saga_started_at);
    SELECT g.* INTO own FROM saga_guard.guard g
        WHERE g.namespace = enter_compensation.namespace
          AND g.definition = enter_compensation.definition
          AND g.saga_id = enter_compensation.saga_id AND g.run = enter_compensation.run
          AND g.step = enter_compensation.step AND g.operation = 'COMPENSATION'
        FOR UPDATE;
    IF own.state = 'ENTERED' OR action.state = 'ENTERED' THEN
        RAISE EXCEPTION 'saga_guard: step % was entered already in this transaction', step
            USING ERRCODE = 'object_not_in_prerequisite_state';
    ELSIF own.state IN ('DONE', 'EMPTY') THEN
        answer := 'DUPLICATE';
        output := own.output;
    ELSIF greatest(action.highest_fence, own.fence) > enter_compensation.fence
          OR saga_guard.is_below_floor(saga_started_at) THEN
        answer := 'STALE';
    ELSIF action.state IN ('BLOCKED', 'SEEN') THEN
        answer := CASE WHEN even_without_action THEN 'PROCEED' ELSE 'EMPTY' END;
    ELSIF action.state = 'DONE' THEN
        answer := 'PROCEED';
    ELSE
        RAISE EXCEPTION 'saga_guard: step % is undone, but by nobody', step
            USING ERRCODE = 'data_corrupted';
    END IF;

    IF answer IN ('DUPLICATE', 'STALE') THEN
        IF action.created THEN -- it says nothing that is not true without it
            DELETE FROM saga_guard.guard g
                WHERE g.namespace = enter_compensation.namespace
                  AND g.definition = enter_compensation.definition
                  AND g.saga_id = enter_compensation.saga_id AND g.run = enter_compensation.run
                  AND g.step = enter_compensation.step AND g.operation = 'ACTION';
        END IF;
        IF own.fence < enter_compensation.fence THEN
            UPDATE saga_guard.guard g SET fence = enter_compensation.fence, changed_at = now()
                WHERE g.namespace = enter_compensation.namespace
                  AND g.definition = enter_compensation.definition
                  AND g.saga_id = enter_compensation.saga_id AND g.run = enter_compensation.run
                  AND g.step = enter_compensation.step AND g.operation = 'COMPENSATION';
        END IF;
        RETURN;
    END IF;
    UPDATE saga_guard.guard g
        SET state = CASE action.state WHEN 'DONE' THEN 'UNDONE' ELSE 'BLOCKED' END,
            changed_at = now()
        WHERE g.namespace = enter_compensation.namespace
          AND g.definition = enter_compensation.definition
          AND g.saga_id = enter_compensation.saga_id AND g.run = enter_compensation.run
          AND g.step = enter_compensation.step AND g.operation = 'ACTION';
    INSERT INTO saga_guard.guard AS g
        (namespace, definition, saga_id, run, step, operation, fence, state, saga_started_at)
        VALUES (enter_compensation.namespace, enter_compensation.definition,
                enter_compensation.saga_id, enter_compensation.run, enter_compensation.step,
                'COMPENSATION', enter_compensation.fence,
                CASE answer WHEN 'EMPTY' THEN 'EMPTY' ELSE 'ENTERED' END,
                enter_compensation.saga_started_at)
        ON CONFLICT ON CONSTRAINT guard_pkey DO UPDATE
            SET fence = excluded.fence, state = excluded.state, changed_at = now();
END $$;

-- The short way: true, and the action is DONE with its output if the transaction commits; or an error:
-- unique_violation (it was here, or its compensation was), and 55000 below the floor. ROLLBACK, and
-- enter tells. (ON CONFLICT would answer false, and take a fifth of the whole.)
--
-- It is called once for the statement that it stands in, and before that looks at any row. What an
-- action may have to wait for here changes nothing that its effect reads: a double or a compensation
-- that has committed makes it fail. So the statement may have the snapshot from before the wait. (A
-- compensation may not: it waits for the effect that it is to undo.)
--
-- The floor is read by the statement that claims the row, since a second one takes as long as the claim.
-- Its snapshot is younger than its lock on the table, for which raise_floor waits: what it reads stays so
-- until the commit. A transaction that keeps an older snapshot locks the floor first, and is told if it
-- moved.
--
-- It sets no search_path, which would take as long as the rest: nothing in it is looked up by one.
CREATE OR REPLACE FUNCTION saga_guard.once(
        namespace text, definition text, saga_id text, run integer, step text, fence bigint,
        saga_started_at timestamptz, output bytea) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    IF pg_catalog.current_setting('transaction_isolation') OPERATOR(pg_catalog.<>) 'read committed' THEN
        PERFORM 1 FROM saga_guard.guard_floor f FOR SHARE;
    END IF;
    INSERT INTO saga_guard.guard
        (namespace, definition, saga_id, run, step, operation, fence, state, output, saga_started_at)
        SELECT once.namespace, once.definition, once.saga_id, once.run, once.step, 'ACTION',
               once.fence, 'DONE', coalesce(once.output, ''), once.saga_started_at
            FROM saga_guard.guard_floor f
            WHERE once.saga_started_at OPERATOR(pg_catalog.>=) f.floor;
    IF FOUND THEN
        RETURN true;
    END IF;
    RAISE EXCEPTION 'saga_guard: the saga is below the floor'
        USING ERRCODE = 'object_not_in_prerequisite_state';
END $$;

-- The first thing of the business transaction. `operation` is ACTION or COMPENSATION.
CREATE OR REPLACE FUNCTION saga_guard.enter(
        namespace text, definition text, saga_id text, run integer, step text, operation text,
        fence bigint, saga_started_at timestamptz, even_without_action boolean DEFAULT false,
        OUT answer text, OUT output bytea)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF num_nulls(namespace, definition, saga_id, run, step, operation, fence,
                 saga_started_at, even_without_action) > 0 THEN
        RAISE EXCEPTION 'saga_guard: enter takes no NULL' USING ERRCODE = 'null_value_not_allowed';
    ELSIF operation = 'ACTION' THEN
        INSERT INTO saga_guard.guard
            (namespace, definition, saga_id, run, step, operation, fence, state, saga_started_at)
            VALUES (enter.namespace, enter.definition, enter.saga_id, enter.run, enter.step,
                    'ACTION', enter.fence, 'ENTERED', enter.saga_started_at)
            ON CONFLICT DO NOTHING;
        IF NOT FOUND THEN
            SELECT e.answer, e.output INTO answer, output
                FROM saga_guard.enter_action(namespace, definition, saga_id, run, step, fence,
                                             saga_started_at) e;
        ELSIF saga_guard.is_below_floor(saga_started_at) THEN
            DELETE FROM saga_guard.guard g
                WHERE g.namespace = enter.namespace AND g.definition = enter.definition
                  AND g.saga_id = enter.saga_id AND g.run = enter.run AND g.step = enter.step
                  AND g.operation = 'ACTION';
            answer := 'STALE';
        ELSE
            answer := 'PROCEED';
        END IF;
    ELSIF operation = 'COMPENSATION' THEN
        SELECT e.answer, e.output INTO answer, output
            FROM saga_guard.enter_compensation(namespace, definition, saga_id, run, step, fence,
                                               saga_started_at, even_without_action) e;
    ELSE
        RAISE EXCEPTION 'saga_guard: operation % is neither ACTION nor COMPENSATION', operation
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
END $$;

-- The last thing of the business transaction after PROCEED. The output is what a repeat is told.
CREATE OR REPLACE FUNCTION saga_guard.done(
        namespace text, definition text, saga_id text, run integer, step text, operation text,
        output bytea) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE saga_guard.guard g
        SET state = 'DONE', output = coalesce(done.output, ''::bytea), changed_at = now()
        WHERE g.namespace = done.namespace AND g.definition = done.definition
          AND g.saga_id = done.saga_id AND g.run = done.run AND g.step = done.step
          AND g.operation = done.operation AND g.state = 'ENTERED';
    IF NOT FOUND THEN
        RAISE EXCEPTION 'saga_guard: done without enter in this transaction (step %, %)',
            step, operation USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
END $$;

-- In a transaction of its own, after the business transaction was rolled back for a business
-- reason: remembers the fence, so that an older holder that wakes up later is STALE. RECORDED: it
-- stands that there is no effect. Any other answer is that of enter: somebody was faster.
CREATE OR REPLACE FUNCTION saga_guard.no_effect(
        namespace text, definition text, saga_id text, run integer, step text, operation text,
        fence bigint, saga_started_at timestamptz, even_without_action boolean DEFAULT false,
        OUT answer text, OUT output bytea)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    SELECT e.answer, e.output INTO answer, output
        FROM saga_guard.enter(namespace, definition, saga_id, run, step, operation, fence,
                              saga_started_at, even_without_action) e;
    IF answer <> 'PROCEED' THEN
        RETURN;
    END IF;
    answer := 'RECORDED';
    UPDATE saga_guard.guard g
        SET state = CASE WHEN g.operation = no_effect.operation THEN 'SEEN' ELSE 'DONE' END
        WHERE g.namespace = no_effect.namespace AND g.definition = no_effect.definition
          AND g.saga_id = no_effect.saga_id AND g.run = no_effect.run
          AND g.step = no_effect.step AND g.state IN ('ENTERED', 'UNDONE');
END $$;

-- Moves the floor up, never down; answers where it is now. Commit before the first purge. It waits two
-- seconds for the guarded transactions that are open, and later ones wait behind it; then it fails with
-- 55P03, nothing was changed, and it is tried again.
CREATE OR REPLACE FUNCTION saga_guard.raise_floor(new_floor timestamptz) RETURNS timestamptz
    LANGUAGE sql SET search_path = pg_catalog, pg_temp SET lock_timeout = '2s' AS $$
    LOCK TABLE saga_guard.guard IN SHARE MODE;
    UPDATE saga_guard.guard_floor f SET floor = greatest(f.floor, raise_floor.new_floor)
        RETURNING f.floor;
$$;

-- Deletes up to `batch` rows below the floor; answers how many. Repeat until it answers 0: then it went
-- through the whole table and found none. It goes on at the page where the last call stopped. Rows that
-- are locked stay for the next time. One call at a time.
CREATE OR REPLACE FUNCTION saga_guard.purge(batch integer DEFAULT 10000) RETURNS bigint
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    pages   CONSTANT bigint := 64; -- looked at by one statement
    blocks  CONSTANT bigint := pg_relation_size('saga_guard.guard')
                               / current_setting('block_size')::bigint;
    at      bigint;
    left_   bigint := blocks + pages; -- once around, and the rest of where it began
    gone    bigint := 0;
    deleted bigint;
    horizon timestamptz;
BEGIN
    SELECT s.next_block INTO STRICT at FROM saga_guard.guard_sweep s FOR UPDATE;
    SELECT f.floor INTO STRICT horizon FROM saga_guard.guard_floor f;
    WHILE left_ > 0 AND gone < batch LOOP
        IF at >= blocks THEN
            at := 0;
        END IF;
        DELETE FROM saga_guard.guard g WHERE g.ctid = ANY (ARRAY(
            SELECT o.ctid FROM saga_guard.guard o
                WHERE o.ctid >= format('(%s,0)', at)::tid
                  AND o.ctid < format('(%s,0)', at + pages)::tid
                  AND o.saga_started_at < horizon
                LIMIT batch - gone FOR UPDATE SKIP LOCKED));
        GET DIAGNOSTICS deleted = ROW_COUNT;
        gone := gone + deleted;
        IF gone < batch THEN -- else there may be more on these pages
            at := at + pages;
            left_ := left_ - pages;
        END IF;
    END LOOP;
    UPDATE saga_guard.guard_sweep SET next_block = at;
    RETURN gone;
END $$;

-- Workers need once, enter, done and no_effect; the rest is for the owner.
REVOKE ALL ON FUNCTION saga_guard.lock_action, saga_guard.claim_action,
    saga_guard.is_below_floor, saga_guard.enter_action, saga_guard.enter_compensation, saga_guard.raise_floor,
    saga_guard.purge, saga_guard.refuse_open_commit FROM PUBLIC;

COMMIT;
