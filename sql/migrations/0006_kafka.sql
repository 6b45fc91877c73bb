-- Kafka in: rules, how far each partition is, records that could not start, what people decided.

CREATE TABLE kafka_rule (
    rule               text COLLATE "C" PRIMARY KEY,
    topic              text COLLATE "C" NOT NULL,
    group_id           text COLLATE "C" NOT NULL,
    namespace          text COLLATE "C" NOT NULL,
    definition         text COLLATE "C" NOT NULL,
    wanted             text COLLATE "C" NOT NULL,
    stopped_by         text COLLATE "C",
    stop_reason        text COLLATE "C",
    stopped_at         timestamptz,
    topic_retention_ms bigint,
    topic_compacted    boolean,
    key_memory_ms      bigint,
    problem            text COLLATE "C",
    node               text COLLATE "C" NOT NULL,
    seen_at            timestamptz NOT NULL
) WITH (fillfactor = 50);
COMMENT ON TABLE kafka_rule IS 'What a topic starts; written by the nodes that have the rule in their configuration.';
COMMENT ON COLUMN kafka_rule.wanted IS 'RUN or STOP: a person''s word; stopped_by, stop_reason and stopped_at belong to STOP.';
COMMENT ON COLUMN kafka_rule.topic_retention_ms IS 'As the broker says; -1: for ever. NULL: not known yet.';
COMMENT ON COLUMN kafka_rule.key_memory_ms IS 'How long the node that wrote this remembers a key after its saga; -1: for ever.';
COMMENT ON COLUMN kafka_rule.problem IS 'Why the rule cannot run at all; NULL: it can.';

-- Every batch moves its partitions twice (offset, then counters), and what a node sees of them is
-- written every second: most of each page is free for that.
CREATE TABLE kafka_cursor (
    rule           text COLLATE "C" NOT NULL,
    topic          text COLLATE "C" NOT NULL,
    partition      integer NOT NULL,
    next_offset    bigint NOT NULL,
    before_offset  bigint,
    before_time_ms bigint,
    before_crc     bigint,
    suspect_until  bigint NOT NULL DEFAULT 0,
    state          text COLLATE "C" NOT NULL DEFAULT 'RUN',
    stop_reason    text COLLATE "C",
    stop_message   text COLLATE "C",
    stop_from      bigint,
    stop_to        bigint,
    stopped_at     timestamptz,
    records        bigint NOT NULL DEFAULT 0,
    started        bigint NOT NULL DEFAULT 0,
    duplicates     bigint NOT NULL DEFAULT 0,
    mismatches     bigint NOT NULL DEFAULT 0,
    dead_letters   bigint NOT NULL DEFAULT 0,
    filtered       bigint NOT NULL DEFAULT 0,
    tombstones     bigint NOT NULL DEFAULT 0,
    low_offset     bigint,
    end_offset     bigint,
    node           text COLLATE "C",
    paused_why     text COLLATE "C",
    rate_per_s     double precision,
    seen_at        timestamptz,
    PRIMARY KEY (rule, topic, partition)
) WITH (fillfactor = 25);
COMMENT ON TABLE kafka_cursor IS 'How far a partition is: the truth, which the group''s offset only follows. Moved in the transaction that starts the sagas, by equality of next_offset.';
COMMENT ON COLUMN kafka_cursor.before_offset IS 'The last record that was handled, with its timestamp and the CRC-32 of its key and value, so that a topic that was made anew is noticed; NULL: none.';
COMMENT ON COLUMN kafka_cursor.suspect_until IS 'Records before it start SUSPECT: another consumer may have half processed them.';
COMMENT ON COLUMN kafka_cursor.state IS 'RUN or STOPPED; stop_* and stopped_at belong to STOPPED.';
COMMENT ON COLUMN kafka_cursor.records IS 'Every record that was handled: started + duplicates + mismatches + filtered + tombstones + dead_letters that are no mismatch.';
COMMENT ON COLUMN kafka_cursor.duplicates IS 'A key that is known, with the same input; or a record that is a dead letter already.';
COMMENT ON COLUMN kafka_cursor.dead_letters IS 'Mismatches among them, where the rule wants them as dead letters.';
COMMENT ON COLUMN kafka_cursor.low_offset IS 'This and what follows: seen by the node that has the partition.';

CREATE TABLE dead_letter (
    dead_letter_id  uuid PRIMARY KEY,
    rule            text COLLATE "C" NOT NULL,
    topic           text COLLATE "C" NOT NULL,
    partition       integer NOT NULL,
    record_offset   bigint NOT NULL,
    record_time_ms  bigint NOT NULL,
    record_crc      bigint NOT NULL,
    key             bytea,
    value           bytea,
    headers         bytea NOT NULL,
    saga_id         text COLLATE "C",
    reason          text COLLATE "C" NOT NULL,
    message         text COLLATE "C" NOT NULL,
    received_at     timestamptz NOT NULL,
    state           text COLLATE "C" NOT NULL DEFAULT 'OPEN',
    decided_by      text COLLATE "C",
    decided_at      timestamptz,
    decision_reason text COLLATE "C",
    saga_uid        uuid,
    replay_error    text COLLATE "C"
);
COMMENT ON TABLE dead_letter IS 'Records that started nothing and hold up nothing; the id is a UUID v7, so it is the order of time.';
COMMENT ON COLUMN dead_letter.key IS 'NULL: null, as in value; empty is something else.';
COMMENT ON COLUMN dead_letter.headers IS 'A packed saga.v1.KafkaHeaders.';
COMMENT ON COLUMN dead_letter.saga_id IS 'The business key, where it could be read; NULL: it could not.';
COMMENT ON COLUMN dead_letter.state IS 'OPEN, REPLAY (asked for), REPLAYED, DISCARDED; decided_by, decided_at and decision_reason belong to the last three.';
COMMENT ON COLUMN dead_letter.saga_uid IS 'REPLAYED: the saga that it started, or that its key had already.';
COMMENT ON COLUMN dead_letter.replay_error IS 'OPEN: why its last replay started nothing.';
-- The same record read again is no second letter; a topic that was made anew has other records.
CREATE UNIQUE INDEX dead_letter_record
    ON dead_letter (rule, topic, partition, record_offset, record_time_ms, record_crc);
CREATE INDEX dead_letter_list ON dead_letter (rule, state, dead_letter_id);
CREATE INDEX dead_letter_saga ON dead_letter (saga_id) WHERE saga_id IS NOT NULL;
-- A key may be longer than what a B-tree takes.
CREATE INDEX dead_letter_key ON dead_letter USING hash (key);

CREATE TABLE kafka_request (
    request_id   uuid PRIMARY KEY,
    rule         text COLLATE "C" NOT NULL,
    kind         text COLLATE "C" NOT NULL,
    arguments    text COLLATE "C" NOT NULL,
    actor        text COLLATE "C" NOT NULL,
    reason       text COLLATE "C" NOT NULL,
    requested_at timestamptz NOT NULL,
    state        text COLLATE "C" NOT NULL,
    node         text COLLATE "C",
    taken_until  timestamptz,
    finished_at  timestamptz,
    progress     bigint NOT NULL DEFAULT 0,
    total        bigint NOT NULL DEFAULT 0,
    result       text COLLATE "C",
    error        text COLLATE "C"
);
COMMENT ON TABLE kafka_request IS 'What people decided about Kafka, and what the nodes are still to do of it. Never deleted by sagad.';
COMMENT ON COLUMN kafka_request.request_id IS 'A UUID v7: the order of time.';
COMMENT ON COLUMN kafka_request.kind IS 'CHECK and TAKEOVER are done by a node that serves the rule; RESUME, STOP, START, DISCARD and REPLAY were done when they were written.';
COMMENT ON COLUMN kafka_request.arguments IS 'JSON, as are results.';
COMMENT ON COLUMN kafka_request.state IS 'OPEN, TAKEN (by node, until taken_until), DONE, FAILED.';
CREATE INDEX kafka_request_open ON kafka_request (rule, request_id) WHERE state IN ('OPEN', 'TAKEN');
CREATE INDEX kafka_request_rule ON kafka_request (rule, request_id);
