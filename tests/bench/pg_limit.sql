-- The yardstick's tables: the columns of the journal's design, primary keys and nothing else. They
-- stand for what PostgreSQL itself can do and never follow the product's schema.
DROP SCHEMA IF EXISTS yardstick CASCADE;
CREATE SCHEMA yardstick;
SET search_path = yardstick;

CREATE TYPE saga_state AS ENUM
    ('RUNNING', 'COMPENSATING', 'PARKED', 'SUCCEEDED', 'COMPENSATED', 'ABANDONED');
CREATE TYPE entry_kind AS ENUM ('LEASE', 'COMPENSATE', 'PARK', 'RETRY', 'LATE_REPORT', 'RESUME');
CREATE TYPE operation AS ENUM ('ACTION', 'COMPENSATION', 'PROBE');
CREATE TYPE outcome AS ENUM
    ('DONE', 'ALREADY_DONE', 'REJECTED', 'RETRY', 'UNKNOWN', 'EXPIRED', 'STREAM_LOST', 'RELEASED');

CREATE TABLE saga_key (
    shard            smallint NOT NULL,
    namespace        text     NOT NULL,
    definition       text     NOT NULL,
    saga_id          text     NOT NULL,
    saga_uid         uuid     NOT NULL,
    run              integer  NOT NULL,
    input_digest     bytea    NOT NULL,
    final_state      saga_state,
    remembered_until timestamptz,
    PRIMARY KEY (shard, namespace, definition, saga_id)
);

CREATE TABLE saga (
    shard           smallint    NOT NULL,
    saga_uid        uuid        NOT NULL,
    namespace       text        NOT NULL,
    definition      text        NOT NULL,
    revision        integer     NOT NULL,
    saga_id         text        NOT NULL,
    run             integer     NOT NULL,
    state           saga_state  NOT NULL,
    phase           saga_state  NOT NULL,
    owner           text,
    input           bytea       NOT NULL,
    labels          jsonb,
    doubt           boolean     NOT NULL,
    park_reason     text,
    park_step       text,
    park_error      text,
    wake_at         timestamptz,
    waiting_handler text,
    started_at      timestamptz NOT NULL,
    updated_at      timestamptz NOT NULL,
    deadline_at     timestamptz,
    ended_at        timestamptz,
    related_saga    uuid,
    PRIMARY KEY (shard, saga_uid)
) WITH (fillfactor = 80);

CREATE TABLE journal (
    shard         smallint    NOT NULL,
    saga_uid      uuid        NOT NULL,
    seq           bigint      NOT NULL,
    fence         bigint      NOT NULL,
    kind          entry_kind  NOT NULL,
    step          text        NOT NULL,
    operation     operation   NOT NULL,
    try           integer     NOT NULL,
    worker        text,
    leased_at     timestamptz,
    attempt_until timestamptz,
    lease_until   timestamptz,
    outcome       outcome,
    finished_at   timestamptz,
    retry_at      timestamptz,
    output        bytea,
    error_code    text,
    error_message text,
    PRIMARY KEY (shard, saga_uid, seq)
) WITH (fillfactor = 80);
