-- Signals from outside, and sagas that begin later than they were asked for.

ALTER TABLE journal ADD COLUMN signal_id text COLLATE "C";
ALTER TABLE saga ADD COLUMN start_at timestamptz;

COMMENT ON COLUMN journal.signal_id IS 'SIGNAL: the sender''s; step is the one that waits for it, output the payload.';
COMMENT ON COLUMN journal.about IS 'LATE_REPORT: seq of the lease. RESOLVE: of the probe that found out. RESUME: of the PARK that a person ended. RECEIVE: of the SIGNAL.';
COMMENT ON COLUMN saga.start_at IS 'No step begins before; NULL: at once. The deadline counts from then.';
