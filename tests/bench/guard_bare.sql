\set id random(1, 1000)
BEGIN;
UPDATE account SET balance = balance - 100 WHERE id = :id;
COMMIT;
