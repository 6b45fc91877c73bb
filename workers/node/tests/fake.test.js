/** The fake orchestrator does with handlers what the worker does. */
'use strict';

const assert = require('node:assert/strict');
const { beforeEach, test } = require('node:test');

const { Int32ValueSchema, StringValueSchema } = require('@bufbuild/protobuf/wkt');
const { AlreadyDone, Rejected, Retry, Worker } = require('sagad');
const fake = require('sagad/fake');

const quiet = { debug() {}, info() {}, warn() {}, error() {} };
let worker, balance;

beforeEach(() => {
  worker = new Worker({ addresses: ['nowhere:1'], id: 'test-1', logger: quiet });
  balance = 10;
  worker.handle('account.debit', { request: Int32ValueSchema, output: StringValueSchema }, (task, { value }) => {
    if (value > balance) {
      throw new Rejected('NO_FUNDS');
    }
    balance -= value;
    return { value: String(balance) };
  });
  worker.handle('account.refund', { request: Int32ValueSchema }, (task, { value }) => {
    assert.equal(task.actionOutput(StringValueSchema).value, '6');
    balance += value;
  });
  worker.handle('risk.check', async (task) => {
    await undefined;
    throw task.try === 1 ? new Retry('BUSY') : new Rejected('FRAUD');
  });
  worker.handle('risk.ask', async (task) => Buffer.from(await task.stopped()));
});

test('one task', async () => {
  let result = await fake.run(worker, 'account.debit', { value: 4 });
  assert.equal(result.kind, 'DONE');
  assert.equal(result.outputAs(StringValueSchema).value, '6');
  result = await fake.run(worker, 'account.debit', { value: 7 });
  assert.deepEqual([result.kind, result.code], ['REJECTED', 'NO_FUNDS']);
  result = await fake.run(worker, 'account.debit', Buffer.from([0xff]));
  assert.deepEqual([result.kind, result.code], ['REJECTED', 'BAD_REQUEST']);
});

test('what a handler throws and what it must not return', async () => {
  worker.handle('there', { output: StringValueSchema }, () => {
    throw new AlreadyDone({ value: 'x' }, { ours: true });
  });
  worker.handle('breaks', () => null.x);
  worker.handle('text', () => 'no bytes');
  const there = await fake.run(worker, 'there');
  assert.deepEqual([there.kind, there.ours, there.outputAs(StringValueSchema).value], ['ALREADY_DONE', true, 'x']);
  const codes = [await fake.run(worker, 'breaks'), await fake.run(worker, 'text')].map(({ kind, code }) => [
    kind,
    code,
  ]);
  assert.deepEqual(codes, [
    ['UNKNOWN', 'TypeError'],
    ['UNKNOWN', 'BAD_OUTPUT'],
  ]);
});

test('a handler that should stop', async () => {
  for (const stop of ['draining', 'cancelled', 'lost']) {
    const result = await fake.run(worker, 'risk.ask', undefined, { stop });
    assert.equal(Buffer.from(result.output).toString(), stop);
  }
  assert.equal(fake.task('h', undefined, { stop: 'lost' }).stillMine(), false);
  assert.equal(fake.task('h', undefined, { stop: 'lost' }).signal.aborted, true);
  const lease = new fake.FakeLease();
  const task = fake.task('h', undefined, { lease });
  assert.deepEqual([task.stillMine(), task.stopReason, task.leaseLeftMs], [true, undefined, 24_000]);
  lease.leftMs = 0;
  assert.deepEqual([task.stillMine(), task.stopReason], [false, 'lost']);
});

test('a saga that is taken back', async () => {
  const saga = new fake.Saga(worker, { value: 4 }).step('debit', 'account.debit', { compensation: 'account.refund' });
  saga.step('check', 'risk.check', { request: (operation, { debit }) => debit });
  assert.equal(await saga.play(), 'COMPENSATED');
  assert.deepEqual(saga.trace, ['debit: DONE', 'check: RETRY', 'check: REJECTED', 'debit compensation: DONE']);
  assert.equal(balance, 10);
});

test('sagas that succeed and park', async () => {
  assert.equal(await new fake.Saga(worker, { value: 4 }).step('debit', 'account.debit').play(), 'SUCCEEDED');
  worker.handle('breaks', () => null.x);
  const saga = new fake.Saga(worker).step('one', 'breaks').step('two', 'breaks');
  assert.equal(await saga.play(), 'PARKED');
  assert.deepEqual(saga.trace, ['one: UNKNOWN']);
});

test('tasks are what they are said to be', () => {
  const refund = fake.task('h', undefined, { operation: 'COMPENSATION', actionOutput: Buffer.from('r'), try: 3 });
  assert.deepEqual([Buffer.from(refund.actionOutput()).toString(), refund.try], ['r', 3]);
  const again = fake.task('h', undefined, { operation: 'COMPENSATION', fence: 9n, more: { traceparent: 't' } });
  assert.deepEqual([again.actionOutcome, again.fence, again.traceparent], ['MAYBE', 9n, 't']);
  assert.equal(refund.idempotencyKey, again.idempotencyKey);
  assert.equal(fake.task('h', undefined, { operation: 'PROBE' }).probed.operation, 'ACTION');
  const typed = fake.task('h', { value: 7 }, {}, { request: Int32ValueSchema });
  assert.deepEqual([typed.requestType, typed.request(Int32ValueSchema).value], ['google.protobuf.Int32Value', 7]);
});

test('a handler that is not there', async () => {
  await assert.rejects(fake.run(worker, 'nobody'), /no handler nobody/);
});
