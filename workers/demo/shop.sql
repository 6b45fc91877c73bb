-- The shop of the demo: a database of its own in MariaDB, which knows nothing of sagad but the guard.
-- Run sql/guard/mysql.sql first, then this, both in the empty database "shop", as its owner:
--   mariadb shop < sql/guard/mysql.sql && mariadb shop < workers/demo/shop.sql
--
-- On purpose nothing here refuses a second confirmation or cancelling of an order: what keeps them
-- single is the guard, and the audit counts what is really there.

CREATE TABLE orders (
    order_id   varchar(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
    -- WITHDRAWN: the customer was faster, nothing is to be done
    state      enum ('PENDING', 'CONFIRMED', 'CANCELLED', 'WITHDRAWN') NOT NULL,
    confirmed  int NOT NULL DEFAULT 0, -- how often it was
    cancelled  int NOT NULL DEFAULT 0
) ENGINE = InnoDB;

-- The orders that wait to be fulfilled, ord-000001 to ord-005000; one in a hundred is withdrawn
-- (fulfilment.c knows which).
INSERT INTO orders (order_id, state)
    SELECT concat('ord-', lpad(seq, 6, '0')), if(seq % 100 = 90, 'WITHDRAWN', 'PENDING')
      FROM seq_1_to_5000;

-- The workers' own user, with no more than they need.
CREATE USER IF NOT EXISTS worker@localhost;
GRANT SELECT, UPDATE ON orders TO worker@localhost;
GRANT SELECT, INSERT, UPDATE ON saga_guard TO worker@localhost;
GRANT SELECT, UPDATE ON saga_guard_floor TO worker@localhost;
