-- What waits for a person's word although its saga goes on, or has ended.

-- Few are: so they are found without reading all that ended well. The same order as in saga_list.
CREATE INDEX saga_doubt ON saga (namespace, definition, state, started_at, saga_uid) WHERE doubt;

COMMENT ON COLUMN saga.doubt IS 'A person has yet to look: an unconfirmed step, a compensation that was skipped, or a late report that speaks against what is recorded.';
COMMENT ON COLUMN journal.about IS 'LATE_REPORT: seq of the lease. RESOLVE: of the probe that found out. RESUME: of the PARK that a person ended.';
