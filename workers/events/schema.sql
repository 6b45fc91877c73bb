-- What the consumer of events keeps: which it has handled, and what it made of them.

CREATE TABLE IF NOT EXISTS handled_event (
    event_id   text PRIMARY KEY,
    handled_at timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE IF NOT EXISTS ended (
    definition text NOT NULL,
    state      text NOT NULL,
    sagas      bigint NOT NULL,
    PRIMARY KEY (definition, state)
);
CREATE TABLE IF NOT EXISTS handler_changed (
    handler text NOT NULL,
    change  text NOT NULL,
    times   bigint NOT NULL,
    PRIMARY KEY (handler, change)
);
