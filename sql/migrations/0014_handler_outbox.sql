-- What becomes of a handler leaves by the outbox, like what becomes of a saga.

ALTER TABLE outbox ADD COLUMN handler text COLLATE "C";
COMMENT ON COLUMN outbox.handler IS 'Part 3: of this handler; what it says is handler_event (handler, seq). shard and saga_uid are made of the name: they stand for no saga, and keep its events in their order.';
COMMENT ON COLUMN outbox.part IS '0: the saga started; 1: a lease ended, or a decision was made; 2: the saga ended. Within a saga parts, then times are the order. 3: a handler changed.';
COMMENT ON COLUMN outbox.seq IS 'Part 0: 0. Part 1: the journal entry that ended or was made. Part 2: the last entry that the end was written with. Part 3: the version of the handler.';

-- That it was published is said by the outbox, which does not have it any more.
ALTER TABLE handler_event DROP COLUMN published_at;
ALTER TABLE handler_event ADD COLUMN waiting bigint;
COMMENT ON COLUMN handler_event.waiting IS 'Operations that waited for it then, as the nodes had said last; NULL: they had not.';
