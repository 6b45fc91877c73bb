/**
 * The client. Goal: requests say what was asked, errors keep their details, what finds no server goes on at
 * another one. Method: servers on loopback ports that answer as the test says. (Against a real one:
 * tests/conformance/quickstart.sh.)
 */
'use strict';

const assert = require('node:assert/strict');
const net = require('node:net');
const { afterEach, beforeEach, test } = require('node:test');

const { toBinary } = require('@bufbuild/protobuf');
const { anyPack, durationFromMs, StringValueSchema } = require('@bufbuild/protobuf/wkt');
const { status } = require('@grpc/grpc-js');
const { Client, SagaError, SagaService, SagaState } = require('sagad/client');
const { BadRequestSchema, ErrorInfoSchema, RetryInfoSchema } = require('sagad/gen/google/rpc/error_details_pb');
const { StatusSchema } = require('sagad/gen/google/rpc/status_pb');
const { SagaView } = require('sagad/gen/saga/v1/saga_pb');
const { create } = require('@bufbuild/protobuf');
const { refusal, Service } = require('./service.js');

let service, client;

beforeEach(async () => {
  service = await Service.start();
  client = new Client({ addresses: [service.address], namespace: 'shop' });
});

afterEach(() => {
  client.close();
  service.stop();
});

const unavailable = refusal(status.UNAVAILABLE, 'the server stops');

test('start, with bytes', async () => {
  service.answers.startSaga = { uid: 'u', existed: true };
  const answer = await client.start('settlement', Buffer.from('in'), {
    sagaId: 'order-17',
    labels: { a: 'b' },
    startAt: new Date('2026-12-01T10:00:00.250Z'),
    relatedSaga: 'r',
    actor: 'me',
  });
  assert.equal(answer.existed, true);
  const [request] = service.requests;
  assert.deepEqual(
    [request.namespace, request.definition, request.sagaId, Buffer.from(request.input).toString()],
    ['shop', 'settlement', 'order-17', 'in'],
  );
  assert.deepEqual([request.startAt.seconds, request.startAt.nanos], [1796119200n, 250000000]);
  assert.deepEqual([{ ...request.labels }, request.relatedSaga, request.actor], [{ a: 'b' }, 'r', 'me']);
});

test('start, with a message', async () => {
  service.answers.startSaga = { uid: 'u' };
  await client.start('hello', StringValueSchema, { value: 'world' }, { sagaId: 'one' });
  await client.start('hello');
  const [first, second] = service.requests;
  assert.deepEqual(first.input, Buffer.from('\n\x05world'));
  assert.equal(first.sagaId, 'one');
  assert.equal(second.input.length, 0);
});

test('get, wait, cancel, and any other call', async () => {
  const saga = { uid: 'u', state: SagaState.SUCCEEDED };
  Object.assign(service.answers, { getSaga: saga, waitSaga: saga, cancelSaga: saga, signalSaga: { duplicate: true } });
  assert.equal((await client.get('d', 's', { run: 2, full: false })).uid, 'u');
  assert.equal((await client.wait('d', 's', { timeoutMs: 1500, orParked: true })).state, SagaState.SUCCEEDED);
  assert.equal((await client.cancel('d', 's', { reason: 'why', actor: 'me' })).uid, 'u');
  const signal = { saga: { definition: 'd', sagaId: 's' }, signal: 'paid', signalId: '1' };
  assert.equal((await client.call(SagaService.method.signalSaga, signal)).duplicate, true);
  const [got, waited, cancelled, signalled] = service.requests;
  assert.deepEqual([got.saga.namespace, got.saga.run, got.view], ['shop', 2, SagaView.BASIC]);
  assert.equal(waited.view, SagaView.FULL);
  assert.equal(waited.timeout.seconds, 1n);
  assert.ok(waited.timeout.nanos <= 500_000_000 && waited.timeout.nanos > 400_000_000);
  assert.equal(waited.orParked, true);
  assert.deepEqual([cancelled.reason, cancelled.actor], ['why', 'me']);
  assert.equal(signalled.signal, 'paid');
});

test('wait answers what is there when its time is over', async () => {
  service.answers.waitSaga = (call, callback) => setTimeout(callback, 50, null, { state: SagaState.RUNNING });
  assert.equal((await client.wait('d', 's', { timeoutMs: 50 })).state, SagaState.RUNNING);
});

test('wait goes on over a stop of the server, and until the saga has ended', async () => {
  const answers = [[unavailable], [null, { state: SagaState.PARKED }], [null, { state: SagaState.COMPENSATED }]];
  service.answers.waitSaga = (call, callback) => callback(...answers.shift());
  assert.equal((await client.wait('d', 's', { timeoutMs: 400_000 })).state, SagaState.COMPENSATED);
  assert.equal(service.requests.length, 3);
});

test('watch tells changes, and goes on where a stream broke', async () => {
  const streams = [
    (call) => {
      call.write({ saga: { state: SagaState.RUNNING }, resumeToken: '1' });
      call.emit('error', unavailable);
    },
    (call) => {
      call.write({ resumeToken: '2', unchanged: true });
      call.write({ saga: { state: SagaState.SUCCEEDED }, resumeToken: '3' });
      call.end();
    },
  ];
  service.answers.watchSaga = (call) => streams.shift()(call);
  const seen = [];
  for await (const saga of client.watch('d', 's')) {
    seen.push(saga.state);
  }
  assert.deepEqual(seen, [SagaState.RUNNING, SagaState.SUCCEEDED]);
  assert.deepEqual(
    service.requests.map((request) => request.resumeToken),
    ['', '1'],
  );
});

test(
  'a watch ends with an error that stays, by a signal, and when nobody iterates on',
  { timeout: 20_000 },
  async () => {
    service.answers.watchSaga = (call) => call.emit('error', refusal(status.NOT_FOUND, 'no such saga'));
    await assert.rejects(client.watch('d', 's').next(), /^SagaError: NOT_FOUND: no such saga$/);

    let cancelled = 0;
    service.answers.watchSaga = (call) => {
      call.on('cancelled', () => cancelled++);
      call.write({ saga: { state: SagaState.RUNNING }, resumeToken: '1' });
    };
    const abort = new AbortController();
    const watch = client.watch('d', 's', { signal: abort.signal });
    await watch.next();
    setTimeout(() => abort.abort(new Error('enough')), 10);
    await assert.rejects(watch.next(), /^Error: enough$/);

    for await (const saga of client.watch('d', 's')) {
      assert.equal(saga.state, SagaState.RUNNING);
      break;
    }
    while (cancelled < 2) {
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
  },
);

test('errors keep their details', async () => {
  const details = [
    anyPack(ErrorInfoSchema, create(ErrorInfoSchema, { reason: 'INPUT_MISMATCH', metadata: { a: 'b' } })),
    anyPack(
      BadRequestSchema,
      create(BadRequestSchema, { fieldViolations: [{ field: 'input', description: 'too large' }] }),
    ),
    anyPack(RetryInfoSchema, create(RetryInfoSchema, { retryDelay: durationFromMs(1500) })),
    { typeUrl: 'type.googleapis.com/google.rpc.Help', value: new Uint8Array() },
  ];
  const told = toBinary(StatusSchema, create(StatusSchema, { code: 6, message: 'known with other input', details }));
  service.answers.startSaga = (call, callback) =>
    callback(refusal(status.ALREADY_EXISTS, 'known with other input', told));
  const error = await client.start('d', undefined, { sagaId: 's' }).catch((error) => error);
  assert.ok(error instanceof SagaError);
  assert.deepEqual(
    [error.code, error.codeName, error.reason],
    [status.ALREADY_EXISTS, 'ALREADY_EXISTS', 'INPUT_MISMATCH'],
  );
  assert.deepEqual([{ ...error.metadata }, error.fields], [{ a: 'b' }, { input: 'too large' }]);
  assert.deepEqual([error.retryAfterMs, error.isRetryable], [1500, true]);
  assert.equal(error.message, 'ALREADY_EXISTS: known with other input [INPUT_MISMATCH]');
});

test('details that are none', async () => {
  service.answers.getSaga = (call, callback) => callback(refusal(status.NOT_FOUND, 'no such saga', [0xff, 0xff]));
  const error = await client.get('d', 's').catch((error) => error);
  assert.deepEqual([error.reason, error.detail, error.isRetryable], ['', 'no such saga', false]);
});

test('a call that finds no server goes on at the next address', async () => {
  const refused = await freeAddress();
  const held = []; // connections that are taken, and to which nothing is said
  const silent = net.createServer((socket) => held.push(socket)).listen(0, '127.0.0.1');
  await new Promise((resolve) => silent.once('listening', resolve));
  const several = new Client({ addresses: [refused, `127.0.0.1:${silent.address().port}`, service.address] });
  service.answers.getSaga = { uid: 'u' };
  assert.equal((await several.get('d', 's')).uid, 'u');
  const before = performance.now();
  assert.equal((await several.get('d', 's')).uid, 'u'); // stays where it was answered
  assert.ok(performance.now() - before < 1000);
  several.close();
  silent.close();
  held.forEach((socket) => socket.destroy());
});

test('a server that comes back within the time of the call is found', async () => {
  const address = await freeAddress();
  const late = new Client({ addresses: [address] });
  const answer = late.get('d', 's');
  await new Promise((resolve) => setTimeout(resolve, 300));
  const back = await Service.start(address);
  back.answers.getSaga = { uid: 'back' };
  assert.equal((await answer).uid, 'back');
  late.close();
  back.stop();
});

test('no server at all: UNAVAILABLE once the time is over; a signal ends it sooner', async () => {
  const nobody = new Client({ addresses: [await freeAddress()], timeoutMs: 300 });
  const error = await nobody.get('d', 's').catch((error) => error);
  assert.equal(error.code, status.UNAVAILABLE);
  assert.match(error.detail, /ECONNREFUSED/);
  const signal = AbortSignal.timeout(50);
  await assert.rejects(nobody.get('d', 's', { timeoutMs: 60_000, signal }), { name: 'TimeoutError' });
  nobody.close();
});

test('a time that is over before the answer comes', async () => {
  service.answers.getSaga = () => undefined;
  const error = await client.get('d', 's', { timeoutMs: 100 }).catch((error) => error);
  assert.equal(error.code, status.DEADLINE_EXCEEDED);
  assert.equal(error.isRetryable, true);
});

test('a client needs an address', () => {
  assert.throws(() => new Client({ addresses: [] }), TypeError);
});

async function freeAddress() {
  const server = net.createServer().listen(0, '127.0.0.1');
  await new Promise((resolve) => server.once('listening', resolve));
  const address = `127.0.0.1:${server.address().port}`;
  await new Promise((resolve) => server.close(resolve));
  return address;
}
