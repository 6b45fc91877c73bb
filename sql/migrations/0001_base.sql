-- The schema of sagad. sagad runs these files at start, each once, in one transaction, with
-- search_path = sagad. A file is never edited after its release; a change is a new file.
--
-- Rules that hold for every table about sagas:
--   * shard (the last byte of saga_uid, a fixed hash of namespace, definition and saga_id) leads
--     every unique key, no foreign key crosses it, no sequence orders anything;
--   * every time is the database's now();
--   * states, outcomes and reasons are the words of the documentation, readable as they stand. sagad
--     writes them from its tables and refuses any other when it loads; as CHECK constraints they
--     would be parsed anew in every statement, a third of what a small batch costs.

CREATE TABLE definition (
    namespace        text COLLATE "C" NOT NULL,
    name             text COLLATE "C" NOT NULL,
    current_revision integer NOT NULL,
    created_at       timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (namespace, name)
);
COMMENT ON TABLE definition IS 'What can be run; new sagas take current_revision.';

CREATE TABLE definition_revision (
    namespace  text COLLATE "C" NOT NULL,
    name       text COLLATE "C" NOT NULL,
    revision   integer NOT NULL CHECK (revision > 0),
    digest     bytea NOT NULL CHECK (octet_length(digest) = 32),
    content    bytea NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (namespace, name, revision),
    UNIQUE (namespace, name, digest)
);
COMMENT ON TABLE definition_revision IS 'Immutable; content is a packed saga.v1.SagaDefinition, digest its SHA-256.';

-- One row for each business key; outlives the saga's own row. Rows that were inserted by one
-- transaction are updated by one transaction, too: only with half of the page free do all of its
-- rows find room for their new version beside the old one (HOT). The same holds for journal.
CREATE TABLE saga_key (
    shard            smallint NOT NULL,
    namespace        text COLLATE "C" NOT NULL,
    definition       text COLLATE "C" NOT NULL,
    saga_id          text COLLATE "C" NOT NULL,
    saga_uid         uuid NOT NULL,
    run              integer NOT NULL,
    input_digest     bytea NOT NULL,
    final_state      text COLLATE "C",
    remembered_until timestamptz,
    PRIMARY KEY (shard, namespace, definition, saga_id)
) WITH (fillfactor = 50);
COMMENT ON TABLE saga_key IS 'A business key starts at most one saga; saga_uid and run are those of its latest run.';

CREATE TABLE saga (
    shard           smallint NOT NULL,
    saga_uid        uuid NOT NULL,
    namespace       text COLLATE "C" NOT NULL,
    definition      text COLLATE "C" NOT NULL,
    revision        integer NOT NULL,
    saga_id         text COLLATE "C" NOT NULL,
    run             integer NOT NULL,
    state           text COLLATE "C" NOT NULL,
    phase           text COLLATE "C" NOT NULL,
    owner           text COLLATE "C",
    input           bytea,
    labels          jsonb,
    doubt           boolean NOT NULL,
    park_reason     text COLLATE "C",
    park_step       text COLLATE "C",
    park_step_index smallint,
    park_code       text COLLATE "C",
    park_message    text COLLATE "C",
    wake_at         timestamptz,
    waiting_handler text COLLATE "C",
    started_at      timestamptz NOT NULL,
    updated_at      timestamptz NOT NULL,
    deadline_at     timestamptz,
    ended_at        timestamptz,
    related_saga    uuid,
    PRIMARY KEY (shard, saga_uid)
) WITH (fillfactor = 90);
COMMENT ON COLUMN saga.owner IS 'Who drives the timers; safety never depends on it.';
COMMENT ON COLUMN saga.wake_at IS 'A hint; what is due follows from the journal.';
COMMENT ON COLUMN saga.doubt IS 'Something is known that speaks against the recorded end or step.';

-- What is left to do, for the load at start.
CREATE INDEX saga_open ON saga (shard, saga_uid)
    WHERE state IN ('RUNNING', 'COMPENSATING', 'PARKED');
-- Lists: any choice of namespace, definition and state, each newest or oldest first.
CREATE INDEX saga_list ON saga (namespace, definition, state, started_at, saga_uid);
-- A key over all definitions and runs, and key prefixes.
CREATE INDEX saga_by_id ON saga (namespace, saga_id);

-- No index beside the primary key: an entry is updated once, and only without one that touches the
-- updated columns is that update cheap (HOT).
CREATE TABLE journal (
    shard         smallint NOT NULL,
    saga_uid      uuid NOT NULL,
    seq           bigint NOT NULL,
    fence         bigint NOT NULL,
    kind          text COLLATE "C" NOT NULL,
    step          text COLLATE "C",
    step_index    smallint,
    operation     text COLLATE "C",
    try           integer NOT NULL,
    worker        text COLLATE "C",
    leased_at     timestamptz,
    attempt_until timestamptz,
    lease_until   timestamptz,
    outcome       text COLLATE "C",
    finished_at   timestamptz,
    retry_at      timestamptz,
    output        bytea,
    error_code    text COLLATE "C",
    error_message text COLLATE "C",
    reason        text COLLATE "C",
    about         bigint,
    actor         text COLLATE "C",
    PRIMARY KEY (shard, saga_uid, seq)
) WITH (fillfactor = 45);
COMMENT ON TABLE journal IS 'The truth about a saga: leases and decisions in one sequence without gaps.';
COMMENT ON COLUMN journal.step_index IS 'Position of step in the saga''s revision.';
COMMENT ON COLUMN journal.outcome IS 'LEASE: how it ended, NULL while it is open; LATE_REPORT: what was reported.';
COMMENT ON COLUMN journal.about IS 'LATE_REPORT: seq of the lease.';

-- Reports that came after the end of their saga.
CREATE TABLE late_report (
    shard         smallint NOT NULL,
    saga_uid      uuid NOT NULL,
    fence         bigint NOT NULL,
    outcome       text COLLATE "C" NOT NULL,
    effect        boolean NOT NULL,
    output        bytea,
    error_code    text COLLATE "C",
    error_message text COLLATE "C",
    received_at   timestamptz NOT NULL,
    PRIMARY KEY (shard, saga_uid, fence, outcome)
);
COMMENT ON COLUMN late_report.effect IS 'It reports an effect; then the saga is in doubt.';

-- For people: one line for each step that was ever tried, with its last entry.
CREATE VIEW saga_status AS
SELECT s.namespace, s.definition, s.revision, s.saga_id, s.run, s.saga_uid, s.state, s.phase, s.doubt,
       s.park_reason, s.park_step, s.park_code, s.park_message, s.owner,
       s.started_at, s.updated_at, s.deadline_at, s.ended_at,
       l.step, l.operation, l.try, l.worker, l.fence, l.outcome, l.leased_at, l.lease_until,
       l.finished_at, l.retry_at, l.error_code, l.error_message
  FROM saga s
  LEFT JOIN LATERAL (
       SELECT DISTINCT ON (j.step_index) j.*
         FROM journal j
        WHERE j.shard = s.shard AND j.saga_uid = s.saga_uid AND j.step_index IS NOT NULL
        ORDER BY j.step_index, j.seq DESC) l ON true;
COMMENT ON VIEW saga_status IS 'The saga and the last journal entry of each step.';
