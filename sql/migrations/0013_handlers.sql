-- Handlers: held, released gradually, limited; and what that cost those who waited. Nothing here is
-- about a single saga but journal.held_ms: to hold a handler, or to release it, writes no saga.

-- Changed by one statement, where version is what the change was made from.
CREATE TABLE handler (
    name              text COLLATE "C" PRIMARY KEY,
    version           bigint NOT NULL,
    hold              text COLLATE "C",
    held_at           timestamptz,
    braked_at         timestamptz,
    release_rate      bigint,
    rate              bigint,
    cap               integer,
    breaker_failures  integer,
    breaker_trial_ms  bigint NOT NULL,
    breaker_successes integer NOT NULL,
    trial_at          timestamptz,
    trial_successes   integer NOT NULL,
    actor             text COLLATE "C" NOT NULL,
    reason            text COLLATE "C" NOT NULL,
    changed_at        timestamptz NOT NULL
) WITH (fillfactor = 50);
COMMENT ON TABLE handler IS 'Handlers of which something was said: held, released gradually, limits. Every node reads them once a second.';
COMMENT ON COLUMN handler.hold IS 'PERSON or BREAKER; NULL: it is not held.';
COMMENT ON COLUMN handler.braked_at IS 'Since when it is held or released gradually: that time counts for nothing that waits for it.';
COMMENT ON COLUMN handler.release_rate IS 'Released gradually, until what waited is through: thousandths of a task a second.';
COMMENT ON COLUMN handler.rate IS 'A lasting limit, of all nodes together: thousandths of a task a second.';
COMMENT ON COLUMN handler.cap IS 'Leases at a time, of all nodes together.';
COMMENT ON COLUMN handler.breaker_failures IS 'In a row that hold it; 0: it has no breaker; NULL: as the server''s option says.';
COMMENT ON COLUMN handler.trial_at IS 'Held by its breaker: who moves this on may grant one.';

CREATE TABLE handler_hold (
    handler  text COLLATE "C" NOT NULL,
    from_at  timestamptz NOT NULL,
    until_at timestamptz,
    PRIMARY KEY (handler, from_at)
);
COMMENT ON TABLE handler_hold IS 'When handlers were braked; what was granted has kept its part in journal.held_ms.';

-- What a person or a breaker did.
CREATE TABLE handler_event (
    handler      text COLLATE "C" NOT NULL,
    version      bigint NOT NULL,
    kind         text COLLATE "C" NOT NULL,
    at           timestamptz NOT NULL,
    actor        text COLLATE "C" NOT NULL,
    reason       text COLLATE "C" NOT NULL,
    hold         text COLLATE "C",
    release_rate bigint,
    rate         bigint,
    cap          integer,
    published_at timestamptz,
    PRIMARY KEY (handler, version)
);
CREATE INDEX handler_event_open ON handler_event (at) WHERE published_at IS NULL;
COMMENT ON TABLE handler_event IS 'HELD, RELEASED, LIMITED, DRAINED: who, when, why, and how the handler was left.';

-- What each node has of those that are braked or limited.
CREATE TABLE handler_node (
    handler   text COLLATE "C" NOT NULL,
    node      text COLLATE "C" NOT NULL,
    waiting   bigint NOT NULL,
    leased    bigint NOT NULL,
    served    boolean NOT NULL,
    oldest_at timestamptz,
    seen_at   timestamptz NOT NULL,
    PRIMARY KEY (handler, node)
) WITH (fillfactor = 50);
COMMENT ON TABLE handler_node IS 'Said once a second by each node; a row that was not said for some seconds says nothing.';

ALTER TABLE journal ADD COLUMN held_ms bigint;
COMMENT ON COLUMN journal.held_ms IS 'LEASE: so much of the wait for it its handler was held or released gradually; counts for no budget and no deadline.';
