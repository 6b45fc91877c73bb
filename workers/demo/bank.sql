-- The bank of the demo: a database of its own, which knows nothing of sagad but the guard.
-- psql -v ON_ERROR_STOP=1 -f bank.sql bank      (on an empty database, as its owner)
--
-- On purpose no constraint forbids a second debit, refund or entry for a settlement: what keeps them
-- single is the guard, and the audit counts what is really there.
BEGIN;

CREATE TABLE accounts (
    id            integer PRIMARY KEY,
    opening_cents bigint NOT NULL,
    balance_cents bigint NOT NULL CHECK (balance_cents >= 0)
);

-- One row for each debit that was really made.
CREATE TABLE debits (
    debit_id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    settlement_id text NOT NULL,
    account       integer NOT NULL REFERENCES accounts,
    amount_cents  bigint NOT NULL CHECK (amount_cents > 0),
    made_at       timestamptz NOT NULL DEFAULT now()
);

-- One row for each debit that was given back.
CREATE TABLE refunds (
    refund_id     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    settlement_id text NOT NULL,
    debit_id      bigint, -- what it gives back; NULL: the debit's answer was lost
    account       integer NOT NULL REFERENCES accounts,
    amount_cents  bigint NOT NULL CHECK (amount_cents > 0),
    made_at       timestamptz NOT NULL DEFAULT now()
);

-- Append-only, as ledgers are: a reversal is an entry of its own with the negative amount.
CREATE TABLE ledger (
    entry_id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    settlement_id text NOT NULL,
    kind          text NOT NULL CHECK (kind IN ('SETTLEMENT', 'REVERSAL')),
    about_id      bigint, -- the debit's; of a reversal, the entry's: NULL where its answer was lost
    account       integer NOT NULL REFERENCES accounts,
    amount_cents  bigint NOT NULL CHECK ((kind = 'SETTLEMENT') = (amount_cents > 0)),
    written_at    timestamptz NOT NULL DEFAULT now()
);

INSERT INTO accounts (id, opening_cents, balance_cents)
    SELECT id, 1000000, 1000000 FROM generate_series(1, 50) AS id;

-- For people: what happened to each settlement's money.
CREATE VIEW settlement_books AS
SELECT settlement_id,
       sum(debits) AS debits, sum(refunds) AS refunds, sum(entries) AS ledger_entries,
       sum(reversals) AS ledger_reversals,
       sum(debited_cents) AS debited_cents, sum(refunded_cents) AS refunded_cents,
       sum(ledger_cents) AS ledger_cents
  FROM (SELECT settlement_id, 1 AS debits, 0 AS refunds, 0 AS entries, 0 AS reversals,
               amount_cents AS debited_cents, 0 AS refunded_cents, 0 AS ledger_cents
          FROM debits
        UNION ALL
        SELECT settlement_id, 0, 1, 0, 0, 0, amount_cents, 0 FROM refunds
        UNION ALL
        SELECT settlement_id, 0, 0, (kind = 'SETTLEMENT')::integer, (kind = 'REVERSAL')::integer,
               0, 0, amount_cents
          FROM ledger) AS moves
 GROUP BY settlement_id;

-- Of rows that say which row they are about: those for which that is another settlement's, or none.
CREATE VIEW wrong_links AS
SELECT r.settlement_id FROM refunds AS r LEFT JOIN debits AS d USING (debit_id)
 WHERE r.debit_id IS NOT NULL AND d.settlement_id IS DISTINCT FROM r.settlement_id
UNION ALL
SELECT l.settlement_id FROM ledger AS l LEFT JOIN debits AS d ON d.debit_id = l.about_id
 WHERE l.kind = 'SETTLEMENT' AND d.settlement_id IS DISTINCT FROM l.settlement_id
UNION ALL
SELECT l.settlement_id FROM ledger AS l LEFT JOIN ledger AS e
    ON e.entry_id = l.about_id AND e.kind = 'SETTLEMENT'
 WHERE l.kind = 'REVERSAL' AND l.about_id IS NOT NULL
   AND e.settlement_id IS DISTINCT FROM l.settlement_id;

COMMIT;

\ir ../../sql/guard/postgresql.sql
