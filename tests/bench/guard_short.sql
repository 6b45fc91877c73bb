\set id random(1, 1000)
\set order random(1, 9000000000000000)
BEGIN;
UPDATE account SET balance = balance - 100 WHERE id = :id AND (SELECT saga_guard.once('default', 'settle', 'order-' || :order::bigint, 1, 'debit', 1, now(), 'receipt'));
COMMIT;
