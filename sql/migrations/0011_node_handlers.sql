-- Which handlers the workers of each orchestrator take tasks of: so that each can say of a handler that
-- nobody serves it, at no orchestrator.

ALTER TABLE node ADD COLUMN handlers text[] COLLATE "C" NOT NULL DEFAULT '{}';
COMMENT ON COLUMN node.handlers IS 'What its workers serve, as of its last heartbeat. For people: nothing is decided by it.';
