/**
 * The guard. Goal: each answer and each failure is mapped as sql/guard/README.md says, and no transaction
 * stays open. Method: a real database; the commit is cut off by the server's end of the connection. Against
 * a driver, which guard_*.test.js name.
 */
'use strict';

const assert = require('node:assert/strict');
const { after, afterEach, before, beforeEach, test } = require('node:test');

const { StringValueSchema } = require('@bufbuild/protobuf/wkt');
const { toBinary, create } = require('@bufbuild/protobuf');
const { AlreadyDone, Rejected, Reported, Retry, Unknown } = require('sagad');
const fake = require('sagad/fake');

const bytes = (text) => Buffer.from(text, 'latin1');
let sagas = 0;

/**
 * A driver:
 *   guard                 the module
 *   start()               its database, with a table `effect`
 *   connect(), close(conn), pool(), isOpen(conn), query(conn, sql): rows
 *   cut(conn)             ends the connection, from the server's side
 *   cutAtCommit(conn)     the next COMMIT finds that it has gone; gives a function that mends it
 *   noTable, swallowed    codes: of a statement about no table; of an effect that swallows that ('': none)
 */
class Case {
  async begin(driver) {
    this.driver = driver;
    this.sagaId = `order-${++sagas} \\' ü\u20ac`;
    this.conn = await driver.connect();
    this.others = [];
  }

  async end() {
    await this.driver.close(this.conn);
  }

  task(operation = 'ACTION', fence = 1, output = undefined) {
    const options = { operation, fence: BigInt(fence), sagaId: this.sagaId, step: 'debit' };
    return fake.task('account.debit', undefined, options, { output });
  }

  effect(output, error) {
    return async (conn) => {
      await this.driver.query(conn, `INSERT INTO effect VALUES ('${Buffer.from(this.sagaId).toString('hex')}')`);
      if (error) {
        throw error;
      }
      return output;
    };
  }

  never() {
    assert.fail('the effect was asked for');
  }

  async effects() {
    const id = Buffer.from(this.sagaId).toString('hex');
    const conn = await this.driver.connect();
    const rows = await this.driver.query(conn, `SELECT saga_id FROM effect WHERE saga_id = '${id}'`);
    await this.driver.close(conn);
    return rows.length;
  }

  async run(task, effect, options) {
    try {
      return await this.driver.guard.run(task, this.conn, effect, options);
    } finally {
      assert.equal(await this.driver.isOpen(this.conn), false, 'a transaction is open');
    }
  }
}

/** The error is of that kind and code. */
function says(kind, code) {
  return (error) => {
    assert.ok(error instanceof kind, `${error.stack} is no ${kind.name}`);
    assert.equal(error.code, code);
    return true;
  };
}

function alreadyDone(output) {
  return (error) => {
    assert.ok(error instanceof AlreadyDone, error.stack);
    assert.deepEqual([bytes(error.output), error.ours], [bytes(output), true]);
    return true;
  };
}

function cases(driver) {
  const one = new Case();
  const { guard } = driver;
  before(() => driver.start());
  after(() => driver.stop());
  beforeEach(() => one.begin(driver));
  afterEach(() => one.end());

  test('once, and its repeat', async () => {
    const output = bytes("\x00'\\\xff receipt");
    assert.deepEqual(bytes(await one.run(one.task(), one.effect(output))), output);
    assert.equal(await one.effects(), 1);
    for (const fence of [1, 2]) {
      await assert.rejects(one.run(one.task('ACTION', fence), one.never), alreadyDone(output));
    }
    assert.equal(await one.effects(), 1);
  });

  test('a message is an output, where the handler has one', async () => {
    const stored = toBinary(StringValueSchema, create(StringValueSchema, { value: 'x' }));
    assert.deepEqual(await one.run(one.task('ACTION', 1, StringValueSchema), one.effect({ value: 'x' })), stored);
    await assert.rejects(one.run(one.task('ACTION', 2, StringValueSchema), one.never), alreadyDone(stored));
  });

  test('an output of 256 KiB', async () => {
    const output = Buffer.alloc(256 * 1024, "a'\\\0");
    await one.run(one.task(), one.effect(output));
    await assert.rejects(one.run(one.task(), one.never), alreadyDone(output));
  });

  test('a compensation takes it back once and refuses the action', async () => {
    await one.run(one.task(), one.effect());
    const refund = one.task('COMPENSATION', 2);
    assert.deepEqual(bytes(await one.run(refund, one.effect(bytes('refunded')))), bytes('refunded'));
    await assert.rejects(one.run(refund, one.never), alreadyDone('refunded'));
    await assert.rejects(one.run(one.task('ACTION', 3), one.never), says(Rejected, 'GUARD_REFUSED'));
    assert.equal(await one.effects(), 2);
  });

  test('a compensation without its action', async () => {
    assert.equal((await one.run(one.task('COMPENSATION', 2), one.never)).length, 0);
    await assert.rejects(one.run(one.task(), one.never), says(Rejected, 'GUARD_REFUSED'));
    await assert.rejects(one.run(one.task('COMPENSATION', 3), one.never), alreadyDone(''));
  });

  test('even without its action', async () => {
    const task = one.task('COMPENSATION', 2);
    const even = { evenWithoutAction: true };
    assert.deepEqual(bytes(await one.run(task, one.effect(bytes('undone')), even)), bytes('undone'));
    await assert.rejects(one.run(task, one.never, even), alreadyDone('undone'));
  });

  test('a business no is remembered', async () => {
    const no = new Rejected('NO_FUNDS', 'the account is empty');
    await assert.rejects(one.run(one.task('ACTION', 5), one.effect(undefined, no)), no);
    assert.equal(await one.effects(), 0);
    await assert.rejects(one.run(one.task('ACTION', 4), one.never), says(Retry, 'GUARD_STALE'));
    await one.run(one.task('ACTION', 6), one.effect());
    assert.equal(await one.effects(), 1);
  });

  test('a business no of a compensation', async () => {
    await one.run(one.task(), one.effect());
    const no = one.effect(undefined, new Rejected('CLOSED'));
    await assert.rejects(one.run(one.task('COMPENSATION', 2), no), says(Rejected, 'CLOSED'));
    await one.run(one.task('COMPENSATION', 3), one.effect());
    assert.equal(await one.effects(), 2);
  });

  test('what the effect throws', async () => {
    for (const [error, kind, code] of [
      [new Retry('LATER'), Retry, 'LATER'],
      [new Unknown('NOBODY_KNOWS'), Unknown, 'NOBODY_KNOWS'],
      [new AlreadyDone(undefined, { ours: true }), Retry, 'GUARD_BODY_FAILED'],
      [new TypeError('a mistake'), Retry, 'GUARD_BODY_FAILED'],
    ]) {
      await assert.rejects(one.run(one.task(), one.effect(undefined, error)), says(kind, code));
    }
    await assert.rejects(one.run(one.task(), one.effect('no bytes')), says(Retry, 'GUARD_BODY_FAILED'));
    const mistake = new TypeError('a mistake');
    const even = { evenWithoutAction: true };
    await assert.rejects(one.run(one.task(), one.effect(undefined, mistake), even), mistake);
    assert.equal(await one.effects(), 0);
    await one.run(one.task(), one.effect());
  });

  test('a statement that fails', async () => {
    const fails = (conn) => driver.query(conn, 'SELECT nothing FROM nowhere');
    await assert.rejects(one.run(one.task(), fails), says(Retry, driver.noTable));
    const wraps = (conn) =>
      fails(conn).catch((cause) => {
        throw new Error('of an ORM', { cause });
      });
    await assert.rejects(one.run(one.task(), wraps), says(Retry, driver.noTable));
    await one.run(one.task(), one.effect());
  });

  test('an effect that swallows its error', async () => {
    const swallows = async (conn) => {
      await one.effect()(conn);
      await driver.query(conn, 'SELECT nothing FROM nowhere').catch(() => undefined);
    };
    if (driver.swallowed) {
      await assert.rejects(one.run(one.task(), swallows), says(Retry, driver.swallowed));
      assert.equal(await one.effects(), 0);
    } else {
      // there a statement that failed does not end the transaction
      await one.run(one.task(), swallows);
      assert.equal(await one.effects(), 1);
    }
  });

  test('an effect that ends the transaction', async () => {
    const ends = async (conn) => {
      await one.effect()(conn);
      await driver.query(conn, 'ROLLBACK');
    };
    await assert.rejects(one.run(one.task(), ends), says(Unknown, 'GUARD_BODY_COMMITTED'));
  });

  test('a connection in use, whose transaction stays as it is', async () => {
    await driver.query(one.conn, 'BEGIN');
    await one.effect()(one.conn);
    await assert.rejects(guard.run(one.task(), one.conn, one.never), says(Retry, 'GUARD_CONNECTION_IN_USE'));
    await driver.query(one.conn, 'COMMIT');
    assert.equal(await one.effects(), 1);
  });

  test('a connection that is cut in the effect', async () => {
    const cut = async (conn) => {
      await one.effect()(conn);
      await driver.cut(conn);
      await driver.query(conn, 'SELECT 1');
    };
    await assert.rejects(one.run(one.task(), cut), says(Retry, 'GUARD_CONNECTION'));
    assert.equal(await one.effects(), 0);
  });

  test('a connection that is cut in the effect, which does not notice', async () => {
    const cut = async (conn) => {
      await one.effect()(conn);
      await driver.cut(conn);
    };
    await assert.rejects(one.run(one.task(), cut), says(Retry, 'GUARD_CONNECTION'));
    assert.equal(await one.effects(), 0);
  });

  test('a connection that was lost before', async () => {
    await driver.cut(one.conn);
    await assert.rejects(guard.run(one.task(), one.conn, one.never), says(Retry, 'GUARD_CONNECTION'));
  });

  test('a commit without an answer', async () => {
    const mend = await driver.cutAtCommit(one.conn);
    try {
      await assert.rejects(one.run(one.task(), one.effect()), says(Unknown, 'GUARD_COMMIT_UNKNOWN'));
    } finally {
      await mend();
    }
  });

  test('a pool gives a connection, takes it back, and throws a broken one away', async () => {
    const pool = driver.pool(1);
    assert.deepEqual(bytes(await guard.run(one.task(), pool, one.effect(bytes('a')))), bytes('a'));
    await assert.rejects(guard.run(one.task(), pool, one.never), alreadyDone('a'));
    one.sagaId += ' again';
    const cut = (conn) => driver.cut(conn).then(() => driver.query(conn, 'SELECT 1'));
    await assert.rejects(guard.run(one.task(), pool, cut), says(Retry, 'GUARD_CONNECTION'));
    assert.deepEqual(bytes(await guard.run(one.task(), pool, one.effect(bytes('b')))), bytes('b'));
    await pool.end();
    await assert.rejects(guard.run(one.task(), pool, one.never), says(Retry, 'GUARD_CONNECTION'));
  });

  test('two at once: one has the effect, the other one its answer', async () => {
    const pool = driver.pool(8);
    const runs = Array.from({ length: 8 }, () => guard.run(one.task(), pool, one.effect(bytes('once'))));
    const ends = await Promise.allSettled(runs);
    assert.equal(await one.effects(), 1);
    for (const { reason } of ends) {
      assert.ok(reason === undefined || reason instanceof AlreadyDone || reason instanceof Retry, reason);
    }
    assert.equal(ends.filter(({ status }) => status === 'fulfilled').length, 1);
    await pool.end();
  });

  test('a probe is not for the guard', async () => {
    await assert.rejects(one.run(one.task('PROBE'), one.never), says(Unknown, 'GUARD_PROBE'));
    await assert.rejects(guard.enter(one.task('PROBE'), one.conn), says(Unknown, 'GUARD_PROBE'));
  });

  test('in pieces', async () => {
    await driver.query(one.conn, 'BEGIN');
    assert.equal((await guard.enter(one.task(), one.conn)).answer, 'PROCEED');
    await one.effect()(one.conn);
    await guard.done(one.task(), one.conn, bytes('receipt'));
    await driver.query(one.conn, 'COMMIT');
    await driver.query(one.conn, 'BEGIN');
    const { answer, output } = await guard.enter(one.task('ACTION', 2), one.conn);
    assert.deepEqual([answer, bytes(output)], ['DUPLICATE', bytes('receipt')]);
    await driver.query(one.conn, 'COMMIT');
  });

  test('no effect, in pieces', async () => {
    await driver.query(one.conn, 'BEGIN');
    assert.equal((await guard.noEffect(one.task('ACTION', 3), one.conn)).answer, 'RECORDED');
    await driver.query(one.conn, 'COMMIT');
    await driver.query(one.conn, 'BEGIN');
    assert.equal((await guard.enter(one.task('ACTION', 2), one.conn)).answer, 'STALE');
    await driver.query(one.conn, 'ROLLBACK');
  });

  test('another thing is refused', async () => {
    for (const thing of [{}, undefined, null]) {
      await assert.rejects(guard.run(one.task(), thing, one.never), TypeError);
    }
  });

  return one;
}

module.exports = { alreadyDone, bytes, cases, says };
