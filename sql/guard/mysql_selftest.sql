-- Does the guard answer on this server as it should? For a MySQL 8 or MariaDB of your own:
--
--     mysql shop < mysql.sql
--     mysql --batch --skip-column-names shop < mysql_selftest.sql
--
-- prints a line "ok ..." or "FAILED ..." for each check and how many failed. It runs the statements of
-- mysql.sql on rows of the namespace "guard-selftest", which it deletes at its end, and leaves the
-- floor as it is.
--
-- One session cannot check what takes two: that a compensation waits for an action whose transaction
-- is still open, that a double of an action waits and is then a DUPLICATE, what a deadlock leaves
-- behind; nor an error that is meant to be one (the SAVEPOINT without a transaction, a repeat
-- on the short way, and a saga below the floor there).
-- tests/integration/test_guard_mysql*.c check them on MariaDB.
DELETE FROM saga_guard WHERE namespace = 'guard-selftest';
SET @failed = 0, @checks = 0, @started = 1700000000000000, @even = 0, @answer = NULL;

PREPARE judge FROM
    'SELECT IF(@answer <=> @want, CONCAT(''ok      '', @what), CONCAT(''FAILED  '', @what, '': '', COALESCE(@answer, ''no answer''), '', not '', @want))';
PREPARE block_action FROM
    'INSERT INTO saga_guard (namespace, definition, saga_id, run, step, operation, fence, state, saga_started_us)
         VALUES (''guard-selftest'', ''settle'', ?, 1, ''debit'', ''ACTION'', ?, ''BLOCKED'', ?)
         ON DUPLICATE KEY UPDATE state = CASE state WHEN ''DONE'' THEN ''UNDONE''
                                                    WHEN ''SEEN'' THEN ''BLOCKED'' ELSE state END';
PREPARE claim_action FROM
    'INSERT INTO saga_guard (namespace, definition, saga_id, run, step, operation, fence, state, saga_started_us)
         VALUES (''guard-selftest'', ''settle'', ?, 1, ''debit'', ''ACTION'', ?, ''ENTERED'', ?)
         ON DUPLICATE KEY UPDATE
             state = CASE WHEN state = ''ENTERED'' THEN ''LEFT_OPEN''
                          WHEN state = ''SEEN'' AND fence <= ? THEN ''ENTERED'' ELSE state END,
             fence = GREATEST(fence, ?)';
PREPARE claim_compensation FROM
    'INSERT INTO saga_guard (namespace, definition, saga_id, run, step, operation, fence, state, saga_started_us)
         VALUES (''guard-selftest'', ''settle'', ?, 1, ''debit'', ''COMPENSATION'', ?, ''ENTERED'', ?)
         ON DUPLICATE KEY UPDATE
             state = CASE WHEN state = ''ENTERED'' THEN ''LEFT_OPEN''
                          WHEN state = ''SEEN'' AND fence <= ? THEN ''ENTERED'' ELSE state END,
             fence = GREATEST(fence, ?)';
PREPARE ask_action FROM
    'SELECT CASE WHEN own.state IN (''UNDONE'', ''BLOCKED'') THEN ''REFUSED''
                 WHEN own.state = ''DONE'' THEN ''DUPLICATE''
                 WHEN own.state = ''LEFT_OPEN'' THEN ''LEFT_OPEN''
                 WHEN own.fence > ? OR own.saga_started_us <
                      (SELECT floor_us FROM saga_guard_floor WHERE only_row = 1 LOCK IN SHARE MODE)
                     THEN ''STALE''
                 ELSE ''PROCEED'' END, own.output INTO @answer, @output
         FROM saga_guard own
         WHERE own.namespace = ''guard-selftest'' AND own.definition = ''settle''
           AND own.saga_id = ? AND own.run = 1 AND own.step = ''debit''
           AND own.operation = ''ACTION'' FOR UPDATE';
PREPARE ask_compensation FROM
    'SELECT CASE WHEN own.state = ''DONE'' THEN ''DUPLICATE''
                 WHEN own.state = ''LEFT_OPEN'' OR action.state IN (''ENTERED'', ''LEFT_OPEN'')
                     THEN ''LEFT_OPEN''
                 WHEN GREATEST(own.fence, action.fence) > ? OR own.saga_started_us <
                      (SELECT floor_us FROM saga_guard_floor WHERE only_row = 1 LOCK IN SHARE MODE)
                     THEN ''STALE''
                 WHEN action.state = ''BLOCKED'' AND NOT ? THEN ''EMPTY''
                 ELSE ''PROCEED'' END, own.output INTO @answer, @output
         FROM saga_guard action JOIN saga_guard own
           ON own.namespace = action.namespace AND own.definition = action.definition
          AND own.saga_id = action.saga_id AND own.run = action.run AND own.step = action.step
          AND own.operation = ''COMPENSATION''
         WHERE action.namespace = ''guard-selftest'' AND action.definition = ''settle''
           AND action.saga_id = ? AND action.run = 1 AND action.step = ''debit''
           AND action.operation = ''ACTION'' FOR UPDATE';
PREPARE done_action FROM
    'UPDATE saga_guard SET state = ''DONE'', output = ?
         WHERE namespace = ''guard-selftest'' AND definition = ''settle'' AND saga_id = ?
           AND run = 1 AND step = ''debit'' AND operation = ''ACTION'' AND state = ''ENTERED''';
PREPARE done_compensation FROM
    'UPDATE saga_guard SET state = ''DONE'', output = ?
         WHERE namespace = ''guard-selftest'' AND definition = ''settle'' AND saga_id = ?
           AND run = 1 AND step = ''debit'' AND operation = ''COMPENSATION'' AND state = ''ENTERED''';
PREPARE seen_action FROM
    'UPDATE saga_guard SET state = ''SEEN''
         WHERE namespace = ''guard-selftest'' AND definition = ''settle'' AND saga_id = ?
           AND run = 1 AND step = ''debit'' AND operation = ''ACTION'' AND state = ''ENTERED''';
PREPARE once FROM
    'INSERT INTO saga_guard (namespace, definition, saga_id, run, step, operation, fence, state, output, saga_started_us)
         VALUES (''guard-selftest'', ''settle'', ?, 1, ''debit'', ''ACTION'', ?, ''DONE'', ?, ?)';

SET @what = 'both tables are of InnoDB', @want = '2';
SELECT CAST(COUNT(*) AS CHAR) INTO @answer FROM information_schema.tables
    WHERE table_schema = DATABASE() AND table_name IN ('saga_guard', 'saga_guard_floor')
      AND engine = 'InnoDB';
EXECUTE judge; SET @checks = @checks + 1, @failed = @failed + IF(@answer <=> @want, 0, 1);

-- A step that is done, repeated, undone.
SET @saga = 'done', @what = 'an action that was never here: PROCEED', @want = 'PROCEED', @fence = 2;
START TRANSACTION;
EXECUTE claim_action USING @saga, @fence, @started, @fence, @fence;
EXECUTE ask_action USING @fence, @saga;
EXECUTE judge; SET @checks = @checks + 1, @failed = @failed + IF(@answer <=> @want, 0, 1);
SET @receipt = 'receipt 4711';
EXECUTE done_action USING @receipt, @saga;
COMMIT;
SET @what = 'its repeat with a higher fence: DUPLICATE', @want = 'DUPLICATE', @fence = 9;
START TRANSACTION;
EXECUTE claim_action USING @saga, @fence, @started, @fence, @fence;
EXECUTE ask_action USING @fence, @saga;
EXECUTE judge; SET @checks = @checks + 1, @failed = @failed + IF(@answer <=> @want, 0, 1);
SET @what = 'with the stored output', @answer = IF(HEX(@output) = HEX(@receipt), 'same', 'another'), @want = 'same';
EXECUTE judge; SET @checks = @checks + 1, @failed = @failed + IF(@answer <=> @want, 0, 1);
COMMIT;
SET @what = 'its compensation with a lower fence: STALE', @want = 'STALE', @fence = 8;
START TRANSACTION;
EXECUTE block_action USING @saga, @fence, @started;
EXECUTE claim_compensation USING @saga, @fence, @started, @fence, @fence;
EXECUTE ask_compensation USING @fence, @even, @saga;
EXECUTE judge; SET @checks = @checks + 1, @failed = @failed + IF(@answer <=> @want, 0, 1);
ROLLBACK;
SET @what = 'its compensation: PROCEED', @want = 'PROCEED', @fence = 10;
START TRANSACTION;
EXECUTE block_action USING @saga, @fence, @started;
EXECUTE claim_compensation USING @saga, @fence, @started, @fence, @fence;
EXECUTE ask_compensation USING @fence, @even, @saga;
EXECUTE judge; SET @checks = @checks + 1, @failed = @failed + IF(@answer <=> @want, 0, 1);
EXECUTE done_compensation USING @receipt, @saga;
COMMIT;
SET @what = 'its compensation again: DUPLICATE', @want = 'DUPLICATE', @fence = 11;
START TRANSACTION;
EXECUTE block_action USING @saga, @fence, @started;
EXECUTE claim_compensation USING @saga, @fence, @started, @fence, @fence;
EXECUTE ask_compensation USING @fence, @even, @saga;
EXECUTE judge; SET @checks = @checks + 1, @failed = @failed + IF(@answer <=> @want, 0, 1);
COMMIT;
SET @what = 'the action after its compensation: REFUSED', @want = 'REFUSED', @fence = 12;
START TRANSACTION;
EXECUTE claim_action USING @saga, @fence, @started, @fence, @fence;
EXECUTE ask_action USING @fence, @saga;
EXECUTE judge; SET @checks = @checks + 1, @failed = @failed + IF(@answer <=> @want, 0, 1);
ROLLBACK;

-- A compensation whose action never came, and the action that comes late.
SET @saga = 'empty', @what = 'a compensation without an action: EMPTY', @want = 'EMPTY', @fence = 2;
START TRANSACTION;
EXECUTE block_action USING @saga, @fence, @started;
EXECUTE claim_compensation USING @saga, @fence, @started, @fence, @fence;
EXECUTE ask_compensation USING @fence, @even, @saga;
EXECUTE judge; SET @checks = @checks + 1, @failed = @failed + IF(@answer <=> @want, 0, 1);
EXECUTE done_compensation USING @receipt, @saga;
COMMIT;
SET @what = 'the late action: REFUSED', @want = 'REFUSED', @fence = 1;
START TRANSACTION;
EXECUTE claim_action USING @saga, @fence, @started, @fence, @fence;
EXECUTE ask_action USING @fence, @saga;
EXECUTE judge; SET @checks = @checks + 1, @failed = @failed + IF(@answer <=> @want, 0, 1);
ROLLBACK;
SET @saga = 'even', @even = 1, @what = 'the same, even without an action: PROCEED', @want = 'PROCEED';
START TRANSACTION;
EXECUTE block_action USING @saga, @fence, @started;
EXECUTE claim_compensation USING @saga, @fence, @started, @fence, @fence;
EXECUTE ask_compensation USING @fence, @even, @saga;
EXECUTE judge; SET @checks = @checks + 1, @failed = @failed + IF(@answer <=> @want, 0, 1);
ROLLBACK;
SET @even = 0;

-- The short way.
SET @saga = 'once', @what = 'the short way: one row', @want = '1', @fence = 3;
START TRANSACTION;
EXECUTE once USING @saga, @fence, @receipt, @started;
SET @answer = CAST(ROW_COUNT() AS CHAR);
EXECUTE judge; SET @checks = @checks + 1, @failed = @failed + IF(@answer <=> @want, 0, 1);
COMMIT;
SET @what = 'then the long way: DUPLICATE', @want = 'DUPLICATE', @fence = 4;
START TRANSACTION;
EXECUTE claim_action USING @saga, @fence, @started, @fence, @fence;
EXECUTE ask_action USING @fence, @saga;
EXECUTE judge; SET @checks = @checks + 1, @failed = @failed + IF(@answer <=> @want, 0, 1);
SET @what = 'with the output of the short way', @answer = IF(HEX(@output) = HEX(@receipt), 'same', 'another'), @want = 'same';
EXECUTE judge; SET @checks = @checks + 1, @failed = @failed + IF(@answer <=> @want, 0, 1);
COMMIT;

-- Fences, ids, the floor, and a worker that forgot the last statement.
SET @saga = 'seen', @fence = 5;
START TRANSACTION;
EXECUTE claim_action USING @saga, @fence, @started, @fence, @fence;
EXECUTE ask_action USING @fence, @saga;
EXECUTE seen_action USING @saga;
COMMIT;
SET @what = 'an older holder after a business no: STALE', @want = 'STALE', @fence = 4;
START TRANSACTION;
EXECUTE claim_action USING @saga, @fence, @started, @fence, @fence;
EXECUTE ask_action USING @fence, @saga;
EXECUTE judge; SET @checks = @checks + 1, @failed = @failed + IF(@answer <=> @want, 0, 1);
ROLLBACK;
SET @what = 'a newer one: PROCEED', @want = 'PROCEED', @fence = 6;
START TRANSACTION;
EXECUTE claim_action USING @saga, @fence, @started, @fence, @fence;
EXECUTE ask_action USING @fence, @saga;
EXECUTE judge; SET @checks = @checks + 1, @failed = @failed + IF(@answer <=> @want, 0, 1);
ROLLBACK;
SET @saga = 'done ', @what = 'an id that differs by a space is another: PROCEED', @want = 'PROCEED';
START TRANSACTION;
EXECUTE claim_action USING @saga, @fence, @started, @fence, @fence;
EXECUTE ask_action USING @fence, @saga;
EXECUTE judge; SET @checks = @checks + 1, @failed = @failed + IF(@answer <=> @want, 0, 1);
ROLLBACK;
SET @saga = 'DONE', @what = 'so is one that differs by case: PROCEED', @want = 'PROCEED';
START TRANSACTION;
EXECUTE claim_action USING @saga, @fence, @started, @fence, @fence;
EXECUTE ask_action USING @fence, @saga;
EXECUTE judge; SET @checks = @checks + 1, @failed = @failed + IF(@answer <=> @want, 0, 1);
ROLLBACK;
SET @saga = 'old', @what = 'a saga below the floor: STALE', @want = 'STALE';
START TRANSACTION;
UPDATE saga_guard_floor SET floor_us = GREATEST(floor_us, @started + 1);
EXECUTE claim_action USING @saga, @fence, @started, @fence, @fence;
EXECUTE ask_action USING @fence, @saga;
EXECUTE judge; SET @checks = @checks + 1, @failed = @failed + IF(@answer <=> @want, 0, 1);
ROLLBACK;
SET @saga = 'open', @what = 'an action that was committed without done: LEFT_OPEN', @want = 'LEFT_OPEN';
START TRANSACTION;
EXECUTE claim_action USING @saga, @fence, @started, @fence, @fence;
COMMIT;
START TRANSACTION;
EXECUTE claim_action USING @saga, @fence, @started, @fence, @fence;
EXECUTE ask_action USING @fence, @saga;
EXECUTE judge; SET @checks = @checks + 1, @failed = @failed + IF(@answer <=> @want, 0, 1);
ROLLBACK;

DELETE FROM saga_guard WHERE namespace = 'guard-selftest';
SELECT CONCAT(@failed, ' of ', @checks, ' checks failed');
