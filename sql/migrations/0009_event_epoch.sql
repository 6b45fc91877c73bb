-- After a failover or a restore to an earlier point a saga may go another way from an entry that was
-- published already: such events must not have the ids of those.

-- Rows of before keep the ids under which they may have been sent.
ALTER TABLE outbox ADD COLUMN epoch integer NOT NULL DEFAULT 0;
ALTER TABLE outbox ALTER COLUMN epoch
    SET DEFAULT ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::int8 - 1;
COMMENT ON COLUMN outbox.epoch IS 'The timeline in which it was written, less 1; a part of the event''s id, as of fences.';
