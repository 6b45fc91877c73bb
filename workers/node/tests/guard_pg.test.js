/** The guard on pg; see guard_cases.js. */
'use strict';

const assert = require('node:assert/strict');
const { test } = require('node:test');

const pg = require('pg');
const { Retry, Unknown } = require('sagad');
const guard = require('sagad/guard/pg');
const { startPostgresql } = require('./databases.js');
const { alreadyDone, bytes, cases, says } = require('./guard_cases.js');

let server;

const driver = {
  guard,
  noTable: 'GUARD_SQLSTATE_42P01',
  swallowed: 'GUARD_SQLSTATE_25P02',

  async start() {
    server = await startPostgresql();
    const conn = await this.connect();
    await conn.query('CREATE TABLE effect (saga_id text NOT NULL)');
    await conn.end();
  },

  stop: () => server.stop(),

  async connect() {
    const client = new pg.Client(server.options);
    client.on('error', () => undefined); // of those that are cut
    await client.connect();
    return client;
  },

  close: (client) => client.end(),

  pool(max) {
    const pool = new pg.Pool({ ...server.options, max });
    pool.on('error', () => undefined);
    return pool;
  },

  async isOpen(client) {
    const isThere = await client.query('SELECT 1').catch(() => undefined);
    return isThere !== undefined && client.getTransactionStatus() !== 'I';
  },

  query: async (client, sql) => (await client.query(sql)).rows,

  async cut(client) {
    const other = await this.connect();
    await other.query('SELECT pg_terminate_backend($1, 10000)', [client.processID]);
    await other.end();
  },

  /** A deferred trigger runs in the COMMIT itself. */
  cutAtCommit: () => atCommit('PERFORM pg_terminate_backend(pg_backend_pid())'),
};

async function atCommit(statement) {
  const other = await driver.connect();
  await other.query(
    `CREATE FUNCTION act() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN ${statement}; RETURN NEW; END$$`,
  );
  await other.query(
    'CREATE CONSTRAINT TRIGGER act AFTER INSERT ON effect DEFERRABLE INITIALLY DEFERRED' +
      ' FOR EACH ROW EXECUTE FUNCTION act()',
  );
  return async () => {
    await other.query('DROP TRIGGER act ON effect; DROP FUNCTION act');
    await other.end();
  };
}

const one = cases(driver);

test('a commit with a warning', async () => {
  const mend = await atCommit("RAISE WARNING 'committed locally'");
  try {
    await assert.rejects(one.run(one.task(), one.effect()), says(Unknown, 'GUARD_COMMIT_LOCAL'));
  } finally {
    await mend();
  }
});

test('a commit with a notice', async () => {
  const mend = await atCommit("RAISE NOTICE 'by the way'");
  try {
    await one.run(one.task(), one.effect());
  } finally {
    await mend();
  }
});

test('a commit that is refused', async () => {
  const mend = await atCommit("RAISE 'no' USING ERRCODE = '23505'");
  try {
    await assert.rejects(one.run(one.task(), one.effect()), says(Retry, 'GUARD_SQLSTATE_23505'));
    assert.equal(await one.effects(), 0);
  } finally {
    await mend();
  }
});

test('an entry without done cannot be committed', async () => {
  await one.conn.query('BEGIN');
  await guard.enter(one.task(), one.conn);
  await assert.rejects(one.conn.query('COMMIT'), /done/);
});

test('in pieces without a transaction', async () => {
  await assert.rejects(guard.enter(one.task(), one.conn), says(Retry, 'GUARD_NO_TRANSACTION'));
  await assert.rejects(guard.noEffect(one.task(), one.conn), says(Retry, 'GUARD_NO_TRANSACTION'));
});

test('a client that is closed, or was never connected', async () => {
  await one.conn.end();
  await assert.rejects(one.run(one.task(), one.never), says(Retry, 'GUARD_CONNECTION'));
  await assert.rejects(
    guard.run(one.task(), new pg.Client(server.options), one.never),
    says(Retry, 'GUARD_CONNECTION'),
  );
});

test('types that are read otherwise', async () => {
  const BYTEA = 17;
  const TEXT = 25;
  const parsers = [BYTEA, TEXT].map((oid) => [oid, pg.types.getTypeParser(oid)]);
  for (const [oid] of parsers) {
    pg.types.setTypeParser(oid, () => 'something else');
  }
  try {
    await one.run(one.task(), one.effect(bytes('x')));
    await assert.rejects(one.run(one.task(), one.never), alreadyDone('x'));
  } finally {
    parsers.forEach(([oid, parser]) => pg.types.setTypeParser(oid, parser));
  }
});

test('a client that is cut outlives it, though nobody listens', async () => {
  const client = new pg.Client(server.options);
  await client.connect();
  const cut = (on) => Promise.all([on.query('SELECT pg_sleep(60)'), driver.cut(on)]);
  await assert.rejects(guard.run(one.task(), client, cut), says(Retry, 'GUARD_CONNECTION'));
  await new Promise((resolve) => setTimeout(resolve, 100)); // until the end of the connection has come, too
});
