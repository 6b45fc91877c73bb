-- Who, when, what, why. What a person asked of a saga is an entry of its journal, and that entry is its
-- line of the audit; what was decided about Kafka is in kafka_request, about handlers in handler_event.
-- What is neither has a row here, written by the transaction that did it.

-- A time that no update touches, so that it can have an index beside HOT updates (finished_at cannot).
ALTER TABLE journal ADD COLUMN asked_at timestamptz;
COMMENT ON COLUMN journal.asked_at IS 'As finished_at, of a decision that a person asked for; NULL: nobody did.';
UPDATE journal SET asked_at = finished_at
 WHERE kind IN ('RETRY', 'SKIP', 'ABANDON', 'SIGNAL')
    OR (kind IN ('COMPENSATE', 'PENDING') AND reason = 'CANCELLED' AND about IS NULL)
    OR (kind = 'PARK' AND reason = 'SUSPENDED')
    OR (kind = 'RESUME' AND about IS NOT NULL)
    OR (kind = 'RESOLVE' AND about IS NULL);
CREATE INDEX journal_asked ON journal (asked_at, saga_uid, seq) WHERE asked_at IS NOT NULL;
CREATE INDEX handler_event_time ON handler_event (at, (md5(handler)::uuid), version);
CREATE INDEX kafka_request_time ON kafka_request (requested_at, request_id);

CREATE TABLE audit (
    at         timestamptz NOT NULL DEFAULT now(),
    audit_id   uuid NOT NULL DEFAULT gen_random_uuid(),
    seq        bigint NOT NULL DEFAULT 0,
    verb       text COLLATE "C" NOT NULL,
    namespace  text COLLATE "C",
    definition text COLLATE "C",
    saga_id    text COLLATE "C",
    run        integer,
    saga_uid   uuid,
    step       text COLLATE "C",
    operation  text COLLATE "C",
    subject    text COLLATE "C",
    actor      text COLLATE "C",
    reason     text COLLATE "C",
    detail     text COLLATE "C",
    PRIMARY KEY (at, audit_id, seq)
);
COMMENT ON TABLE kafka_request IS 'What people decided about Kafka, and what the nodes are still to do of it. What is done goes with the audit-retention.';
COMMENT ON TABLE audit IS 'What people did that no journal, no kafka_request and no handler_event tells; and of sagas that were purged, what people had asked of them.';
COMMENT ON COLUMN audit.audit_id IS 'Of a saga that was purged: saga_uid; seq is then the entry''s.';
COMMENT ON COLUMN audit.subject IS 'What it is about, where that is no saga: a revision, a handler, a batch.';
COMMENT ON COLUMN audit.detail IS 'What exactly, for people.';
CREATE INDEX audit_saga ON audit (saga_uid, at) WHERE saga_uid IS NOT NULL;

-- Whom a saga corrects or repeats is in its row; who corrects it is found here.
CREATE INDEX saga_related ON saga (related_saga, started_at) WHERE related_saga IS NOT NULL;
