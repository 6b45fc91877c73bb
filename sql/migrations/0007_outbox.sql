-- Events of sagas, on their way to a topic.

-- A row says that there is an event; what the event says is made of saga and journal when it leaves,
-- of facts that do not change any more. So a saga with rows here must not be purged.
CREATE TABLE outbox (
    shard      smallint NOT NULL,
    saga_uid   uuid NOT NULL,
    seq        bigint NOT NULL,
    part       smallint NOT NULL,
    created_at timestamptz NOT NULL,
    failed_at  timestamptz,
    failures   integer NOT NULL DEFAULT 0,
    error      text COLLATE "C",
    PRIMARY KEY (shard, saga_uid, seq, part)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
        autovacuum_vacuum_cost_delay = 0);
COMMENT ON TABLE outbox IS 'Events that wait to be published: written in the transition''s own commit, gone once the topic has them.';
COMMENT ON COLUMN outbox.seq IS 'Part 0: 0. Part 1: the journal entry that ended or was made. Part 2: the last entry that the end was written with.';
COMMENT ON COLUMN outbox.part IS '0: the saga started; 1: a lease ended, or a decision was made; 2: the saga ended. Within a saga parts, then times are the order.';
COMMENT ON COLUMN outbox.failed_at IS 'When it was refused last; it is tried again, and the later events of its saga wait for it.';

-- Each relay publishes the events of its slices: slice n is the shards 16 n to 16 n + 15.
CREATE TABLE outbox_slice (
    slice    smallint PRIMARY KEY,
    node     text COLLATE "C",
    instance uuid,
    until    timestamptz NOT NULL
);
INSERT INTO outbox_slice (slice, until) SELECT n, '-infinity' FROM generate_series(0, 15) n;
COMMENT ON COLUMN outbox_slice.until IS 'Whose it is until then; after that whoever takes it first. Events may leave twice only around a relay that stood still for so long.';

CREATE TABLE outbox_relay (
    instance  uuid PRIMARY KEY,
    node      text COLLATE "C" NOT NULL,
    until     timestamptz NOT NULL,
    published bigint NOT NULL DEFAULT 0,
    refused   bigint NOT NULL DEFAULT 0,
    problem   text COLLATE "C"
);
COMMENT ON TABLE outbox_relay IS 'Those that live share the slices.';
COMMENT ON COLUMN outbox_relay.published IS 'Events that the topic has, since this process began; refused: attempts that were answered with an error of the event''s own.';
COMMENT ON COLUMN outbox_relay.problem IS 'Why it publishes nothing; NULL: it does.';
