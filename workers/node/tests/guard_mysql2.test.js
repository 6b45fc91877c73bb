/** The guard on mysql2, with autocommit on and off; see guard_cases.js. */
'use strict';

const assert = require('node:assert/strict');
const { describe, test } = require('node:test');

const mysql = require('mysql2');
const { createConnection, createPool } = require('mysql2/promise');
const { Retry, Unknown } = require('sagad');
const guard = require('sagad/guard/mysql2');
const { startMariadb } = require('./databases.js');
const { alreadyDone, bytes, cases, says } = require('./guard_cases.js');

const IN_TRANSACTION = 1;

function driverOf(autocommit) {
  let server;
  return {
    guard,
    noTable: 'GUARD_MYSQL_1146',
    swallowed: '',

    async start() {
      server = await startMariadb();
      const conn = await this.connect();
      await conn.query('CREATE TABLE effect (saga_id varchar(256) CHARACTER SET ascii NOT NULL) ENGINE = InnoDB');
      await conn.end();
    },

    stop: () => server.stop(),
    options: () => server.options,

    async connect(options) {
      const conn = await createConnection({ ...server.options, ...options });
      conn.on('error', () => undefined); // of those that are cut
      await conn.query(`SET autocommit = ${autocommit ? 1 : 0}`);
      return conn;
    },

    async close(conn) {
      if (conn.state === 'authenticated') {
        await conn.end();
      } else {
        conn.destroy();
      }
    },

    pool: (max) => createPool({ ...server.options, connectionLimit: max }),

    async isOpen(conn) {
      const answer = await conn.query('DO 0').catch(() => undefined);
      return answer !== undefined && (answer[0].serverStatus & IN_TRANSACTION) !== 0;
    },

    query: async (conn, sql) => (await conn.query(sql))[0],

    async cut(conn) {
      const other = await this.connect();
      await other.query(`KILL ${conn.threadId}`);
      for (let rows = [0]; rows.length > 0;) {
        [rows] = await other.query(`SELECT 1 FROM information_schema.processlist WHERE id = ${conn.threadId}`);
      }
      await other.end();
    },

    /** The guard's COMMIT finds that the server has gone. */
    async cutAtCommit(conn) {
      const { query } = conn;
      conn.query = async (sql, ...values) => {
        if (String(sql).startsWith('COMMIT')) {
          await this.cut(conn);
        }
        return query.call(conn, sql, ...values);
      };
      return async () => undefined;
    },
  };
}

for (const autocommit of [true, false]) {
  describe(`autocommit ${autocommit ? 'on' : 'off'}`, () => {
    const driver = driverOf(autocommit);
    const one = cases(driver);

    test('a worker that committed without done', async () => {
      await driver.query(one.conn, 'BEGIN');
      await guard.enter(one.task(), one.conn);
      await driver.query(one.conn, 'COMMIT');
      await assert.rejects(one.run(one.task('ACTION', 2), one.never), says(Unknown, 'GUARD_LEFT_OPEN'));
    });

    test('in pieces without a transaction', async () => {
      if (autocommit) {
        await assert.rejects(guard.enter(one.task(), one.conn), says(Retry, 'GUARD_NO_TRANSACTION'));
      } else {
        assert.equal((await guard.enter(one.task(), one.conn)).answer, 'PROCEED');
        await driver.query(one.conn, 'ROLLBACK');
      }
    });

    test('a deadlock, which ends the transaction', async () => {
      await driver.query(one.conn, 'CREATE TABLE IF NOT EXISTS pair (id int PRIMARY KEY, n int) ENGINE = InnoDB');
      await driver.query(one.conn, 'REPLACE INTO pair VALUES (1, 0), (2, 0)');
      await driver.query(one.conn, 'COMMIT');
      const other = await driver.connect();
      const update = (conn, id) => driver.query(conn, `UPDATE pair SET n = n + 1 WHERE id = ${id}`);
      const meets = async (conn) => {
        await update(conn, 1);
        await driver.query(other, 'BEGIN');
        await driver.query(other, 'INSERT INTO pair SELECT 100 + seq, 0 FROM seq_1_to_50'); // is the heavier one
        await update(other, 2);
        const waits = update(other, 1);
        await update(conn, 2);
        await waits;
      };
      await assert.rejects(one.run(one.task(), meets), says(Retry, 'GUARD_MYSQL_1213'));
      await driver.query(other, 'ROLLBACK');
      await driver.close(other);
      await one.run(one.task(), one.effect());
    });

    test('a connection with other ways to read and write', async () => {
      const odd = await driver.connect({
        rowsAsArray: true,
        namedPlaceholders: true,
        typeCast: () => 'odd',
        charset: 'latin1',
      });
      await driver.query(odd, "SET sql_mode = CONCAT(@@sql_mode, ',NO_BACKSLASH_ESCAPES,ANSI_QUOTES')");
      const output = bytes('\\\'\x00"');
      assert.deepEqual(bytes(await guard.run(one.task(), odd, one.effect(output))), output);
      await assert.rejects(guard.run(one.task(), odd, one.never), alreadyDone(output));
      await driver.close(odd);
    });

    test('a connection of callbacks is refused', async () => {
      const conn = mysql.createConnection(driver.options());
      await assert.rejects(guard.run(one.task(), conn, one.never), /mysql2\/promise/);
      await new Promise((resolve) => conn.end(resolve));
    });
  });
}
