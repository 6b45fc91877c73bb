-- Definitions with types, revisions that come and go, definitions that pause.

ALTER TABLE definition_revision ADD COLUMN descriptors bytea NOT NULL DEFAULT '';
COMMENT ON TABLE definition_revision IS 'Immutable; content is a packed saga.v1.SagaDefinition.';
COMMENT ON COLUMN definition_revision.descriptors IS 'A packed google.protobuf.FileDescriptorSet of the types that content names, and of nothing else; empty: it names none.';
COMMENT ON COLUMN definition_revision.digest IS 'SHA-256 of content; with descriptors, of the two SHA-256 of content and descriptors.';

-- A number is never given twice, also not once its revision, or all of the definition, was deleted:
-- nodes keep revisions in memory by their number.
ALTER TABLE definition
    ADD COLUMN last_revision integer NOT NULL DEFAULT 0,
    ADD COLUMN paused_at     timestamptz,
    ADD COLUMN paused_by     text COLLATE "C",
    ADD COLUMN pause_reason  text COLLATE "C";
UPDATE definition d SET last_revision = (SELECT coalesce(max(r.revision), 0)
  FROM definition_revision r WHERE r.namespace = d.namespace AND r.name = d.name);
COMMENT ON COLUMN definition.current_revision IS '0: deleted; what is left is last_revision.';
COMMENT ON COLUMN definition.last_revision IS 'The highest number that was given.';
COMMENT ON COLUMN definition.paused_at IS 'Since then it starts no new sagas; NULL: it does.';
