-- The shop of the demo: a database of its own in MariaDB, which knows nothing of sagad but the guard.
-- Run sql/guard/mysql.sql first, then this, both in the empty database "shop", as its owner:
--   mariadb shop < sql/guard/mysql.sql && mariadb shop < workers/demo/shop.sql
--
-- On purpose nothing here refuses a second confirmation, cancelling or hand-over of an order: what keeps them
-- single is the guard, and the audit counts what is really there.

CREATE TABLE orders (
    order_id   varchar(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
    -- WITHDRAWN: the customer was faster, nothing is to be done
    state      enum ('PENDING', 'CONFIRMED', 'HANDED_OVER', 'CANCELLED', 'WITHDRAWN') NOT NULL,
    recalled   boolean NOT NULL DEFAULT false, -- the customer does not want it any more: no hand-over
    confirmed   int NOT NULL DEFAULT 0, -- how often it was
    cancelled   int NOT NULL DEFAULT 0,
    handed_over int NOT NULL DEFAULT 0,
    waybill    varchar(64), -- what was handed over, and by which waybill
    parcels    int
) ENGINE = InnoDB;

-- The orders that wait to be fulfilled, ord-000001 to ord-005000; one in a hundred is withdrawn,
-- and four are recalled while they are under way (fulfilment.c knows which).
INSERT INTO orders (order_id, state, recalled)
    SELECT concat('ord-', lpad(seq, 6, '0')), if(seq % 100 = 90, 'WITHDRAWN', 'PENDING'), seq % 25 = 12
      FROM seq_1_to_5000;

-- The workers' own user, with no more than they need.
CREATE USER IF NOT EXISTS worker@localhost;
GRANT SELECT, UPDATE ON orders TO worker@localhost;
GRANT SELECT, INSERT, UPDATE ON saga_guard TO worker@localhost;
GRANT SELECT, UPDATE ON saga_guard_floor TO worker@localhost;
