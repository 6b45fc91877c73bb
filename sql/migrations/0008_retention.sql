-- Sagas that ended long ago leave their rows. Their keys stay, and are forgotten later, if at all.

ALTER TABLE saga_key
    ADD COLUMN purged_at timestamptz,
    ADD COLUMN archive   text COLLATE "C";
COMMENT ON COLUMN saga_key.remembered_until IS 'Set when the rows of its latest run were purged; NULL: for ever.';
COMMENT ON COLUMN saga_key.purged_at IS 'When the rows of its latest run were purged; NULL: they are there.';
COMMENT ON COLUMN saga_key.archive IS 'The file that they are in (its name says the node); NULL: they were purged without one.';

-- Only purged keys are in it: the update at the end of a saga stays HOT.
CREATE INDEX saga_key_forget ON saga_key (remembered_until) WHERE remembered_until IS NOT NULL;

CREATE TABLE retention (
    node           text COLLATE "C" PRIMARY KEY,
    retention_ms   bigint NOT NULL,
    key_memory_ms  bigint NOT NULL,
    archive        text COLLATE "C",
    seen_at        timestamptz NOT NULL,
    round_began_at timestamptz,
    round_ended_at timestamptz,
    round_purged   bigint NOT NULL,
    purged         bigint NOT NULL,
    forgotten      bigint NOT NULL,
    problem        text COLLATE "C"
);
COMMENT ON TABLE retention IS 'What each orchestrator purges, and how far it is.';
COMMENT ON COLUMN retention.retention_ms IS 'Age after its end at which a saga is purged; -1: nothing is.';
COMMENT ON COLUMN retention.key_memory_ms IS 'How long after its end the key of a purged saga is remembered; -1: for ever.';
COMMENT ON COLUMN retention.archive IS 'The folder; NULL: sagas are purged without.';
COMMENT ON COLUMN retention.round_purged IS 'Of the round that runs, or ran last. purged, forgotten: since the process began.';
COMMENT ON COLUMN retention.problem IS 'Why nothing is purged although it should be; NULL: nothing is in the way.';
