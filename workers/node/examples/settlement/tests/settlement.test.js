/**
 * The settlement worker's handlers. Goal: the bank's books and the outcomes agree, whatever risk says. Method: a
 * real PostgreSQL with the demo's bank, a risk desk that answers as it is told to, sagas played by sagad/fake.
 */

import assert from 'node:assert/strict';
import fs from 'node:fs';
import { after, before, test } from 'node:test';

import { create, fromBinary, toBinary } from '@bufbuild/protobuf';
import * as grpc from '@grpc/grpc-js';
import pg from 'pg';
import { Worker } from 'sagad';
import * as fake from 'sagad/fake';

import { startPostgresql } from '../../../tests/databases.js';
import { Bank } from '../dist/bank.js';
import { poolConfigOf } from '../dist/conninfo.js';
import { Behaviour, NotifyReply_Verdict as Verdict, RiskService } from '../dist/gen/risk_pb.js';
import { LedgerEntrySchema, ReceiptSchema } from '../dist/gen/settlement_pb.js';
import { addHandlers } from '../dist/handlers.js';
import { Risk } from '../dist/risk.js';

const DEMO = new URL('../../../../demo/', import.meta.url);
const SERVICE = 'bank.v1.Settlement.';
const quiet = { debug() {}, info() {}, warn() {}, error() {} };

let server, pool, desk;

/** The demo's bank: psql reads bank.sql, as the demo does, but for the guard, which is there already. */
before(async () => {
  server = await startPostgresql();
  pool = new pg.Pool({ ...server.options, max: 16 });
  const [tables, guard] = fs.readFileSync(new URL('bank.sql', DEMO), 'utf8').split('\\ir ');
  assert.ok(guard, 'bank.sql includes the guard no more');
  await pool.query(tables);
  desk = await startDesk();
});

after(async () => {
  desk.stop();
  await pool.end();
  await server.stop();
});

/** A risk service that answers with its `verdict`. */
async function startDesk() {
  const made = { verdict: Verdict.ACCEPTED };
  const definition = {};
  for (const method of RiskService.methods) {
    definition[method.localName] = {
      path: `/${RiskService.typeName}/${method.name}`,
      requestStream: false,
      responseStream: false,
      requestDeserialize: (bytes) => fromBinary(method.input, bytes),
      responseSerialize: (message) => Buffer.from(toBinary(method.output, create(method.output, message))),
    };
  }
  const server = new grpc.Server();
  server.addService(definition, {
    notify: ({ request: { idempotencyKey } }, callback) =>
      made.verdict === undefined
        ? callback({ code: grpc.status.INVALID_ARGUMENT, details: 'settlement_id: is missing' })
        : callback(null, { verdict: made.verdict, idempotencyKey, reference: 'risk-1' }),
    withdraw: (call, callback) => callback(null, {}),
  });
  const port = await new Promise((resolve, reject) => {
    server.bindAsync('127.0.0.1:0', grpc.ServerCredentials.createInsecure(), (error, port) =>
      error ? reject(error) : resolve(port),
    );
  });
  return Object.assign(made, { address: `127.0.0.1:${port}`, stop: () => server.forceShutdown() });
}

function workerWith(risk, only) {
  const worker = new Worker({ addresses: ['nowhere:1'], id: 'test-1', logger: quiet });
  addHandlers(worker, new Bank(pool), risk, only);
  return worker;
}

/** A saga of settlement.proto, with its requests. */
function sagaOf(worker, input) {
  const saga = new fake.Saga(worker, input, { sagaId: input.paymentId });
  const receipt = ({ debit_account: output }) => fromBinary(ReceiptSchema, output);
  saga.step('debit_account', `${SERVICE}DebitAccount`, {
    compensation: `${SERVICE}RefundAccount`,
    request: (operation, outputs) => (operation === 'ACTION' ? input : { input, debitAccount: receipt(outputs) }),
  });
  saga.step('write_ledger', `${SERVICE}WriteLedger`, {
    compensation: `${SERVICE}ReverseLedger`,
    request: (operation, outputs) =>
      operation === 'ACTION'
        ? { input, debitAccount: receipt(outputs) }
        : { input, writeLedger: fromBinary(LedgerEntrySchema, outputs.write_ledger) },
  });
  saga.step('notify_risk', `${SERVICE}NotifyRisk`, { compensation: `${SERVICE}WithdrawNotice` });
  return saga;
}

const BOOKS = `SELECT concat_ws(' ', debits, refunds, ledger_entries, ledger_reversals, debited_cents - refunded_cents)
               AS books FROM settlement_books WHERE settlement_id = $1`;

test('settlements', async () => {
  const risk = new Risk(desk.address);
  const worker = workerWith(risk);
  for (const [paymentId, cents, verdict, end, books] of [
    ['settled', 1250n, Verdict.ACCEPTED, 'SUCCEEDED', '1 0 1 0 1250'],
    ['there already', 10n, Verdict.ALREADY_EXISTS, 'SUCCEEDED', '1 0 1 0 10'],
    ['refused', 99n, Verdict.REFUSED, 'COMPENSATED', '1 1 1 1 0'],
    ['not understood', 98n, undefined, 'COMPENSATED', '1 1 1 1 0'],
    ['try later', 97n, Verdict.TRY_LATER, 'PARKED', '1 0 1 0 97'],
    ['no funds', 5_000_000n, Verdict.ACCEPTED, 'COMPENSATED', undefined],
    ['no money', 0n, Verdict.ACCEPTED, 'COMPENSATED', undefined],
  ]) {
    desk.verdict = verdict;
    const saga = sagaOf(worker, { paymentId, account: 17, amountCents: cents, risk: Behaviour.NORMAL });
    assert.equal(await saga.play(), end, `${paymentId}: ${saga.trace}`);
    assert.equal((await pool.query(BOOKS, [paymentId])).rows[0]?.books, books, paymentId);
  }
  assert.deepEqual((await pool.query('SELECT * FROM wrong_links')).rows, []);
  risk.close();
});

test('a risk service that is away', async () => {
  const risk = new Risk('127.0.0.1:1');
  const payment = { paymentId: 'p', account: 1, amountCents: 1n, risk: Behaviour.NORMAL };
  const { kind, code } = await fake.run(workerWith(risk), `${SERVICE}NotifyRisk`, payment);
  assert.deepEqual([kind, code], ['RETRY', 'NOT_SENT']);
  const late = await fake.run(workerWith(risk), `${SERVICE}NotifyRisk`, payment, { stop: 'lost' });
  assert.deepEqual([late.kind, late.code], ['RETRY', 'TOO_LATE']);
  risk.close();
});

test('some of the handlers', () => {
  const worker = workerWith(undefined, ['RefundAccount', 'WithdrawNotice']);
  assert.deepEqual([...worker.handlers.keys()], [`${SERVICE}RefundAccount`, `${SERVICE}WithdrawNotice`]);
  assert.throws(() => workerWith(undefined, ['Nothing']), /--only: there is no handler Nothing/);
});

test('a conninfo', () => {
  assert.deepEqual(poolConfigOf('host=/run/x user=postgres dbname=bank connect_timeout=5'), {
    host: '/run/x',
    user: 'postgres',
    database: 'bank',
    connectionTimeoutMillis: 5000,
  });
  assert.throws(() => poolConfigOf('sslrootcert=x'), /none of host/);
});
