-- The warehouse of the demo: another database in the shop's MariaDB, with a guard of its own.
-- Run sql/guard/mysql.sql first, then this, both in the empty database "warehouse", as its owner:
--   mariadb warehouse < sql/guard/mysql.sql && mariadb warehouse < workers/demo/warehouse.sql
--
-- On purpose nothing here refuses a second pick of an order: what keeps it single is the guard, and the
-- audit counts what is really there.

-- One row for each time that goods were taken off the shelf, or put back.
CREATE TABLE picks (
    pick_id   bigint NOT NULL AUTO_INCREMENT PRIMARY KEY,
    order_id  varchar(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    kind      enum ('PICKED', 'PUT_BACK') NOT NULL,
    parcels   int NOT NULL,
    KEY (order_id)
) ENGINE = InnoDB;

-- The workers' own user, with no more than they need.
CREATE USER IF NOT EXISTS worker@localhost;
GRANT SELECT, INSERT ON picks TO worker@localhost;
GRANT SELECT, INSERT, UPDATE ON saga_guard TO worker@localhost;
GRANT SELECT, UPDATE ON saga_guard_floor TO worker@localhost;
