/** The worker on a real stream. What the conformance suite (tests/conformance) shows of every SDK is not shown
 *  again here: this is what is Node's own, an event loop that handlers may block and a thread beside it. */
'use strict';

const assert = require('node:assert/strict');
const { execFileSync } = require('node:child_process');
const { mkdtempSync, readFileSync, rmSync } = require('node:fs');
const { tmpdir } = require('node:os');
const { join } = require('node:path');
const { test } = require('node:test');
const { setTimeout: sleep } = require('node:timers/promises');

const grpc = require('@grpc/grpc-js');
const { fromBinary, toBinary, create } = require('@bufbuild/protobuf');
const { StringValueSchema } = require('@bufbuild/protobuf/wkt');
const { Outcome } = require('../dist/gen/saga/v1/saga_pb.js');
const { AlreadyDone, LeaseLost, Rejected, Worker } = require('../dist/index.js');
const { taskMessage } = require('./messages.js');
const { Orchestrator } = require('./orchestrator.js');

const quiet = { debug() {}, info() {}, warn() {}, error() {} };

/** Runs a worker with these handlers (name: function, or [options, function]) against `body`, and drains it. */
async function withWorker(handlers, body, options = {}) {
  const orchestrator = await new Orchestrator().start();
  const worker = new Worker({ addresses: [orchestrator.address], id: 'test-1', logger: quiet, ...options });
  for (const [name, handler] of Object.entries(handlers)) {
    worker.handle(name, ...[handler].flat());
  }
  const running = worker.run();
  try {
    await body(await orchestrator.stream(), worker);
  } finally {
    worker.drain();
    await running;
    orchestrator.stop();
  }
}

const burn = (ms) => {
  for (const until = performance.now() + ms; performance.now() < until;);
};
const kindOf = (report) => Outcome[report.outcome];
const text = (bytes) => Buffer.from(bytes).toString();

test('a task is run, reported and acknowledged, and counted', () =>
  withWorker({ debit: [{ max: 5 }, async (task) => Buffer.from(`fence ${task.fence}`)] }, async (stream, worker) => {
    const [{ handler, maxInFlight }] = stream.hello.handlers;
    assert.deepEqual([handler, maxInFlight], ['debit', 5]);
    stream.tasks(taskMessage(7));
    const report = await stream.report();
    assert.deepEqual([kindOf(report), text(report.output), report.fence], ['DONE', 'fence 7', 7n]);
    while (worker.stats.reportsAccepted === 0) {
      await sleep(10); // until the ack was read
    }
    const none = { reportsDuplicate: 0, reportsStale: 0, leasesLost: 0 };
    assert.deepEqual(worker.stats, { tasksStarted: 1, reportsAccepted: 1, connects: 1, ...none });
  }));

test('a handler that blocks the event loop sees at once that its lease is over', () =>
  withWorker(
    {
      debit: (task) => {
        const before = task.stillMine();
        burn(1300); // 80 % of the lease; nobody extends it, and no message can be read meanwhile
        return Buffer.from(JSON.stringify([before, task.stillMine(), task.stopReason, task.leaseLeftMs]));
      },
    },
    async (stream) => {
      stream.tasks(taskMessage(1, { leaseMs: 1500 }));
      const report = await stream.report();
      assert.deepEqual(JSON.parse(text(report.output)), [true, false, 'lost', 0]);
    },
  ));

test('what waited for the event loop for longer than its lease is given back, and never started', async () => {
  const started = [];
  const handler = (task) => {
    started.push(task.fence);
    burn(1300);
  };
  await withWorker({ debit: handler }, async (stream) => {
    stream.tasks(taskMessage(1, { leaseMs: 30_000 }), taskMessage(2, { leaseMs: 1500 }));
    await stream.report();
    const release = await stream.expect('release');
    assert.deepEqual(
      release.leases.map((lease) => lease.fence),
      [2n],
    );
    assert.deepEqual(started, [1n]);
  });
});

test('a lost lease aborts the signal, a cancel hint and a drain do not', async () => {
  const reasons = [];
  const handler = async (task) => {
    const { signal } = task;
    reasons.push(await task.stopped(), signal.aborted);
    await new Promise((resolve) => signal.addEventListener('abort', resolve, { once: true }));
    reasons.push(signal.reason instanceof LeaseLost, task.stopReason, await task.stopped());
    signal.throwIfAborted();
  };
  await withWorker({ debit: handler }, async (stream) => {
    stream.tasks(taskMessage(1));
    await sleep(100);
    const lease = { sagaUid: taskMessage(1).sagaUid, fence: 1n };
    stream.send('cancelHint', lease);
    await sleep(300);
    stream.send('extended', { leases: [lease] });
    const report = await stream.report();
    assert.deepEqual([kindOf(report), report.errorCode], ['UNKNOWN', 'LeaseLost']);
    assert.deepEqual(reasons, ['cancelled', false, true, 'lost', 'cancelled']);
  });
});

test('a typed handler', async () => {
  const types = { request: StringValueSchema, output: StringValueSchema };
  const greet = async (task, { value }) => {
    if (value === 'again') {
      throw new AlreadyDone({ value: 'before' }, { ours: true });
    }
    return { value: `hello, ${value}` };
  };
  const request = (value) => toBinary(StringValueSchema, create(StringValueSchema, { value }));
  const name = StringValueSchema.typeName;
  await withWorker({ debit: [types, greet] }, async (stream) => {
    for (const [change, ...wanted] of [
      [{ request: request('you'), requestType: name, outputType: name }, 'DONE', 'hello, you'],
      [{ input: request('you') }, 'DONE', 'hello, you'],
      [{ input: request('again') }, 'ALREADY_DONE', 'before'],
      [{ request: request('you'), requestType: 'bank.v1.Payment' }, 'RETRY', 'WRONG_TYPE'],
      [{ request: request('you'), requestType: name, outputType: 'bank.v1.Receipt' }, 'RETRY', 'WRONG_TYPE'],
      [{ request: Uint8Array.of(0x0a, 0xff), requestType: name }, 'REJECTED', 'BAD_REQUEST'],
    ]) {
      stream.tasks(taskMessage(1, change));
      const report = await stream.report();
      const said = report.errorCode || fromBinary(StringValueSchema, report.output).value;
      assert.deepEqual([kindOf(report), said], wanted);
    }
  });
});

test('what else a handler may do', async () => {
  const pooled = Buffer.from('small'); // shares its buffer with others
  let turn = 0;
  const turns = [
    [() => undefined, 'DONE', ''],
    [() => null, 'DONE', ''],
    [() => pooled, 'DONE', 'small'],
    [() => 'text', 'UNKNOWN', 'BAD_OUTPUT'],
    [() => ({ debitId: 7 }), 'UNKNOWN', 'BAD_OUTPUT'],
    [() => Promise.reject(new Rejected('NO_FUNDS')), 'REJECTED', 'NO_FUNDS'],
    [() => Promise.reject(undefined), 'UNKNOWN', 'undefined'],
    [() => new Uint8Array(2000), 'UNKNOWN', 'OUTPUT_TOO_LARGE'],
    [() => { throw new RangeError('x'); }, 'UNKNOWN', 'RangeError'],
    [() => { throw Object.assign(new Error('x'), { code: 'ECONNRESET' }); }, 'UNKNOWN', 'ECONNRESET'],
  ]; // prettier-ignore
  const options = {
    maxOutputBytes: 1024,
    classify: () => {
      throw new Error('classify is wrong, too');
    },
  };
  await withWorker(
    { debit: () => turns[turn][0]() },
    async (stream) => {
      for (; turn < turns.length; turn++) {
        stream.tasks(taskMessage(turn + 1));
        const report = await stream.report();
        assert.deepEqual([kindOf(report), report.errorCode || text(report.output)], turns[turn].slice(1));
      }
    },
    options,
  );
});

test('a drain before run, and one while nobody answers, end', async () => {
  const nobody = { addresses: ['127.0.0.1:1', '127.0.0.1:2'], id: 'test-1', logger: quiet };
  const early = new Worker(nobody).handle('debit', () => undefined);
  early.drain();
  await early.run();
  const late = new Worker(nobody).handle('debit', () => undefined);
  const running = late.run();
  setTimeout(() => late.drain(), 300);
  await running;
});

test('TLS', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'sagad-tls-'));
  try {
    const [key, cert] = [join(folder, 'key'), join(folder, 'cert')];
    execFileSync('openssl', ['req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-keyout', key, '-out', cert, '-days', '2',
      '-subj', '/CN=orchestrator', '-addext', 'subjectAltName=DNS:orchestrator.test'], { stdio: 'ignore' }); // prettier-ignore
    const pair = { private_key: readFileSync(key), cert_chain: readFileSync(cert) };
    const orchestrator = await new Orchestrator().start(grpc.ServerCredentials.createSsl(null, [pair]));
    const tls = { ca: readFileSync(cert), serverName: 'orchestrator.test' };
    const worker = new Worker({ addresses: [orchestrator.address], id: 'test-1', logger: quiet, tls });
    const running = worker.handle('debit', () => undefined).run();
    await orchestrator.stream();
    worker.drain();
    await running;
    orchestrator.stop();
  } finally {
    rmSync(folder, { recursive: true });
  }
});

test('an end of the thread of the streams ends run', async () => {
  const tls = { ca: 'no certificate', cert: 'x', key: 'y' };
  const worker = new Worker({ addresses: ['127.0.0.1:1'], id: 'test-1', logger: quiet, tls });
  await assert.rejects(worker.handle('debit', () => undefined).run());
});

test('wrong options and handlers are refused', async () => {
  const right = { addresses: ['127.0.0.1:1'], id: 'test-1' };
  for (const wrong of [
    { addresses: '127.0.0.1:1' },
    { addresses: [] },
    { addresses: [''] },
    { addresses: ['a:1', 'a:1'] },
    { addresses: Array.from({ length: 17 }, (_, i) => `a:${i}`) },
    { id: '' },
    { id: 'x'.repeat(129) },
    { id: 'a\nb' },
    { concurrency: 0 },
    { concurrency: 1.5 },
    { drainMs: -1 },
    { maxOutputBytes: -1 },
    { maxMessageBytes: 0 },
  ]) {
    assert.throws(() => new Worker({ ...right, ...wrong }), JSON.stringify(wrong));
  }
  const worker = new Worker(right);
  const none = () => undefined;
  for (const wrong of [
    ['', none],
    ['a b', none],
    ['x'.repeat(129), none],
    ['a', undefined],
    ['a', { max: 0 }, none],
    ['a', { max: 10_001 }, none],
    ['a', { request: {} }, none],
  ]) {
    assert.throws(() => worker.handle(...wrong), JSON.stringify(wrong));
  }
  await assert.rejects(worker.run(), /no handler/);
  worker.handle('a', none);
  assert.throws(() => worker.handle('a', none), /there already/);
  for (let i = 1; i < 256; i++) {
    worker.handle(`h${i}`, none);
  }
  assert.throws(() => worker.handle('one-more', none), /more than 256/);
});
