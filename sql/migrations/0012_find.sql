-- Ways to find sagas: by label, by why they are parked; and how often an effect may have happened.

-- A saga's labels once more, each a row that leads to it. The truth is saga.labels; written with the
-- saga, never changed, purged with it.
CREATE TABLE saga_label (
    shard      smallint NOT NULL,
    saga_uid   uuid NOT NULL,
    key        text COLLATE "C" NOT NULL,
    value      text COLLATE "C" NOT NULL,
    namespace  text COLLATE "C" NOT NULL,
    started_at timestamptz NOT NULL,
    PRIMARY KEY (shard, saga_uid, key)
);
COMMENT ON TABLE saga_label IS 'Leads from a label to its sagas; saga.labels is the truth.';
CREATE INDEX saga_label_find ON saga_label (namespace, key, value, started_at, saga_uid);
INSERT INTO saga_label (shard, saga_uid, key, value, namespace, started_at)
SELECT s.shard, s.saga_uid, l.key, l.value, s.namespace, s.started_at
  FROM saga s CROSS JOIN LATERAL jsonb_each_text(s.labels) l WHERE s.labels IS NOT NULL;

-- The parked ones by their reason, in the order of lists.
CREATE INDEX saga_parked ON saga (namespace, definition, park_reason, started_at, saga_uid)
    WHERE state = 'PARKED';

-- How often an operation of a step may have taken effect, as far as the journal tells.
CREATE VIEW saga_effect AS
SELECT s.shard, s.saga_uid, s.namespace, s.definition, s.revision, s.saga_id, s.run, s.state, s.doubt,
       s.started_at, s.ended_at,
       e.step, e.step_index, e.operation, e.dispatched, e.sure,
       greatest(e.sure, e.possible) AS possible, e.first_at, e.last_at
  FROM saga s
 CROSS JOIN LATERAL (
       SELECT j.step, j.step_index, j.operation,
              count(*) FILTER (WHERE w.word <> 'RELEASED') AS dispatched,
              greatest(count(*) FILTER (WHERE w.word = 'DONE'),
                       max((w.word = 'ALREADY_DONE' OR (j.kind = 'RESOLVE' AND j.outcome = 'DONE'))::int))
                  AS sure,
              count(*) FILTER (WHERE w.word = 'DONE'
                  OR (w.word IN ('UNKNOWN', 'EXPIRED', 'STREAM_LOST', 'OPEN')
                      AND NOT EXISTS (SELECT FROM journal r
                           WHERE r.shard = j.shard AND r.saga_uid = j.saga_uid AND r.seq > j.seq
                             AND r.kind = 'RESOLVE' AND r.outcome = 'NOT_DONE'
                             AND r.step_index = j.step_index AND r.operation = j.operation)))
                  + CASE WHEN j.operation = 'ACTION'
                          AND NOT bool_or(j.kind = 'RESOLVE' AND j.outcome = 'NOT_DONE')
                         THEN (SELECT count(*) FROM journal p WHERE p.shard = s.shard
                                  AND p.saga_uid = s.saga_uid AND p.seq = 1 AND p.kind = 'SUSPECT')
                         ELSE 0 END AS possible,
              min(j.leased_at) FILTER (WHERE w.word <> 'RELEASED') AS first_at,
              max(j.leased_at) FILTER (WHERE w.word <> 'RELEASED') AS last_at
         FROM journal j
        CROSS JOIN LATERAL (
              SELECT CASE WHEN j.kind <> 'LEASE' THEN NULL
                          WHEN j.outcome IN ('DONE', 'ALREADY_DONE', 'REJECTED', 'RETRY') THEN j.outcome
                          ELSE coalesce(
                               (SELECT r.outcome FROM journal r
                                 WHERE r.shard = j.shard AND r.saga_uid = j.saga_uid AND r.seq > j.seq
                                   AND r.kind = 'LATE_REPORT' AND r.about = j.seq
                                 ORDER BY r.seq DESC LIMIT 1),
                               (SELECT l.outcome FROM late_report l
                                 WHERE l.shard = j.shard AND l.saga_uid = j.saga_uid AND l.fence = j.fence
                                 ORDER BY l.effect DESC LIMIT 1),
                               j.outcome, 'OPEN') END AS word) w
        WHERE j.shard = s.shard AND j.saga_uid = s.saga_uid AND j.step_index IS NOT NULL
          AND j.kind IN ('LEASE', 'RESOLVE', 'PARK') AND j.operation IN ('ACTION', 'COMPENSATION')
        GROUP BY j.step, j.step_index, j.operation) e;
COMMENT ON VIEW saga_effect IS 'For each saga, step and operation: leases that a handler may have begun (dispatched), effects that are known to be there (sure) and that there may be (possible), dispatch times. Counts what was sent: another side that knows its idempotency keys makes one effect of them.';
