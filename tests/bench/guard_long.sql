\set id random(1, 1000)
\set order random(1, 9000000000000000)
BEGIN;
SELECT answer, output FROM saga_guard.enter('default', 'settle', 'order-' || :order::bigint, 1, 'debit', 'ACTION', 1, now());
UPDATE account SET balance = balance - 100 WHERE id = :id;
SELECT saga_guard.done('default', 'settle', 'order-' || :order::bigint, 1, 'debit', 'ACTION', 'receipt');
COMMIT;
