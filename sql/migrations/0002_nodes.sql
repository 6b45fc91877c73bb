-- Several orchestrators on one database: who lives, and which sagas nobody drives.

CREATE TABLE node (
    name         text COLLATE "C" PRIMARY KEY,
    instance     uuid NOT NULL,
    joined_at    timestamptz NOT NULL,
    heartbeat_at timestamptz NOT NULL
);
COMMENT ON TABLE node IS 'Orchestrators; the sagas of one without a heartbeat are adopted by the others.';
COMMENT ON COLUMN node.instance IS 'The process; joining under the same name ends the earlier one.';
COMMENT ON COLUMN node.heartbeat_at IS '-infinity: it has left.';

-- An owner always has a row here, so that its sagas are found when it does not come back.
INSERT INTO node (name, instance, joined_at, heartbeat_at)
SELECT owner, gen_random_uuid(), now(), now() FROM saga
 WHERE state IN ('RUNNING', 'COMPENSATING', 'PARKED') AND owner IS NOT NULL
 GROUP BY owner;

-- What a node has to load, when it joins or adopts.
DROP INDEX saga_open;
CREATE INDEX saga_owner ON saga (owner, shard, saga_uid)
    WHERE state IN ('RUNNING', 'COMPENSATING', 'PARKED') AND owner IS NOT NULL;
-- What was let go: by the time when something is due, and by the handler that it waits for, oldest
-- first.
CREATE INDEX saga_wake ON saga (wake_at)
    WHERE state IN ('RUNNING', 'COMPENSATING', 'PARKED') AND owner IS NULL AND wake_at IS NOT NULL;
CREATE INDEX saga_waiting ON saga (waiting_handler, started_at)
    WHERE state IN ('RUNNING', 'COMPENSATING', 'PARKED') AND owner IS NULL
      AND waiting_handler IS NOT NULL;

COMMENT ON COLUMN saga.owner IS 'The node that drives the timers; NULL: let go. Safety never depends on it.';
COMMENT ON COLUMN saga.wake_at IS 'When owner is NULL: a node must look at it then. A hint; what is due follows from the journal.';
COMMENT ON COLUMN saga.waiting_handler IS 'When owner is NULL: a node with workers for it may have the saga. A hint.';
COMMENT ON COLUMN journal.actor IS 'LEASE: the process that granted it, as node/end of its instance. A decision: who asked for it.';
