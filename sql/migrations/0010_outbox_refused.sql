-- What the topic refuses is looked at by people, among whatever else waits there.
CREATE INDEX outbox_refused ON outbox (created_at) WHERE failed_at IS NOT NULL;
COMMENT ON INDEX outbox_refused IS 'Events that were refused: sagactl kafka status.';
