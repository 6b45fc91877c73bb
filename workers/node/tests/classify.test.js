/**
 * What proves that nothing was sent. Goal: RETRY only where that is so. Method: handlers that really call, by
 * the usual clients, ports where nobody listens, that cut the connection, redirect, or answer in the words of
 * the client's own library.
 */
'use strict';

const assert = require('node:assert/strict');
const http = require('node:http');
const http2 = require('node:http2');
const net = require('node:net');
const { after, before, describe, test } = require('node:test');

const grpc = require('@grpc/grpc-js');
const axios = require('axios');
const mysqlCallback = require('mysql2');
const mysql = require('mysql2/promise');
const pg = require('pg');
const undici = require('undici');

const { classify, proveSends, Task } = require('../dist/index.js');
const { runHandler } = require('../dist/run.js');
const { taskMessage } = require('./messages.js');

const TIMEOUT_MS = 5000;

/** What is reported of a handler that does this. */
async function outcomeOf(handler) {
  const options = { classify, maxOutputBytes: 1024, log: () => undefined };
  return runHandler({ name: 'debit', max: 1, handler }, new Task(taskMessage(1)), options);
}

async function isNotSent(handler) {
  const { kind, code, message } = await outcomeOf(handler);
  assert.deepEqual([kind, code], ['RETRY', 'NOT_SENT'], message);
}

async function mayBeSent(handler) {
  const { kind, code, message } = await outcomeOf(handler);
  assert.equal(kind, 'UNKNOWN', `${code}: ${message}`);
}

const closing = [];
after(() => closing.forEach((close) => close()));

async function listen(server) {
  closing.push(() => server.close());
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  return server.address().port;
}

let closed; // a port where nobody listens
let cutting; // one that reads something and cuts
let redirecting; // a server that has done what it was asked, and sends on to `closed`
let fine;

before(async () => {
  const unused = net.createServer();
  closed = await listen(unused);
  await new Promise((resolve) => unused.close(resolve));
  cutting = await listen(
    net.createServer((socket) => socket.on('error', () => 0).once('data', () => socket.destroy())),
  );
  const answer = (status, headers) =>
    http.createServer((request, response) => {
      request.resume();
      request.on('end', () => response.writeHead(status, headers).end());
    });
  redirecting = await listen(answer(303, { location: `http://localhost:${closed}/` }));
  fine = await listen(answer(204, {}));
  closing.push(() => http.globalAgent.destroy());
});

const post = { method: 'POST', body: 'body' };
const url = (port, host = '127.0.0.1') => `http://${host}:${port}/`;

function request(port, agent) {
  return new Promise((resolve, reject) => {
    http
      .request({ port, host: '127.0.0.1', method: 'POST', agent }, (response) => {
        response.resume();
        response.on('end', resolve);
      })
      .on('error', reject)
      .end('body');
  });
}

describe('HTTP', () => {
  for (const [name, call] of [
    ['fetch', (port, host) => fetch(url(port, host), post)],
    ['undici', (port, host) => undici.fetch(url(port, host), post)],
    ['axios', (port, host) => axios.post(url(port, host), 'body', { proxy: false })],
  ]) {
    test(`${name}: refused, and no such name`, async () => {
      await isNotSent(() => call(closed));
      await isNotSent(() => call(closed, 'localhost'));
      await isNotSent(() => call(80, 'name.invalid'));
    });
    test(`${name}: cut`, () => mayBeSent(() => call(cutting)));
    test(`${name}: redirected to where nobody listens, on a new connection and on an old one`, async () => {
      await mayBeSent(() => call(redirecting));
      await mayBeSent(() => call(redirecting));
    });
    test(`${name}: refused after a call that was not`, () =>
      mayBeSent(async () => {
        await call(fine);
        await call(closed);
      }));
    test(`${name}: other handlers at the same time do not count`, async () => {
      const others = Promise.all(Array.from({ length: 5 }, () => outcomeOf(() => call(fine))));
      await isNotSent(() => call(closed));
      await others;
    });
  }

  test('node:http', async () => {
    await isNotSent(() => request(closed));
    await mayBeSent(() => request(cutting));
    const agent = new http.Agent({ keepAlive: true });
    closing.push(() => agent.destroy());
    for (let i = 0; i < 2; i++) {
      await mayBeSent(async () => {
        await request(fine, agent); // the second time on a connection that is there
        await request(closed, agent);
      });
    }
  });
});

function grpcCall(address, options, { deadline = Date.now() + TIMEOUT_MS, ...metadataOptions } = {}) {
  const client = new grpc.Client(address, grpc.credentials.createInsecure(), {
    'grpc.enable_http_proxy': 0,
    ...options,
  });
  return new Promise((resolve, reject) => {
    const asIs = (bytes) => bytes;
    client.makeUnaryRequest(
      '/a.B/C',
      asIs,
      asIs,
      Buffer.from('x'),
      new grpc.Metadata(metadataOptions),
      { deadline },
      (error, answer) => (error ? reject(error) : resolve(answer)),
    );
  }).finally(() => client.close());
}

/** Repeats a failed call once, as applications do. */
function repeat(options, nextCall) {
  return new grpc.InterceptingCall(nextCall(options), {
    start(metadata, listener, next) {
      next(metadata, {
        onReceiveStatus(status, nextStatus) {
          const again = nextCall({ ...options, host: undefined });
          again.start(metadata, { onReceiveStatus: nextStatus, onReceiveMessage() {}, onReceiveMetadata() {} });
          again.sendMessage(Buffer.from('x'));
          again.halfClose();
        },
      });
    },
  });
}

describe('gRPC', () => {
  const words = {
    code: grpc.status.UNAVAILABLE,
    details: 'No connection established. Last error: connect ECONNREFUSED 127.0.0.1:1',
  };
  let server;
  let port;

  before(async () => {
    server = new grpc.Server();
    const asIs = (bytes) => bytes;
    const method = { path: '/a.B/C', requestStream: false, responseStream: false };
    const codec = {
      requestSerialize: asIs,
      requestDeserialize: asIs,
      responseSerialize: asIs,
      responseDeserialize: asIs,
    };
    server.addService({ C: { ...method, ...codec } }, { C: (call, answer) => answer(words) });
    port = await new Promise((resolve, reject) =>
      server.bindAsync('127.0.0.1:0', grpc.ServerCredentials.createInsecure(), (error, bound) =>
        error ? reject(error) : resolve(bound),
      ),
    );
    closing.push(() => server.forceShutdown());
  });

  test('without proveSends nothing is proved', () => mayBeSent(() => grpcCall(`127.0.0.1:${closed}`)));

  for (const address of ['127.0.0.1', 'localhost', 'dns:///127.0.0.1']) {
    test(`refused: ${address}`, () => isNotSent(() => grpcCall(`${address}:${closed}`, proveSends)));
  }

  test('no such name', () => isNotSent(() => grpcCall('name.invalid:1', proveSends)));

  test('a deadline while it waits for a connection', () => {
    const deadline = Date.now() + 200;
    return isNotSent(() => grpcCall(`127.0.0.1:${closed}`, proveSends, { deadline, waitForReady: true }));
  });

  test('cut', async () => {
    const cuts = http2.createServer().on('stream', (stream) => stream.session.destroy());
    const at = await listen(cuts);
    await mayBeSent(() => grpcCall(`127.0.0.1:${at}`, proveSends));
  });

  test('a server that answers in the words of the library', () =>
    mayBeSent(() => grpcCall(`127.0.0.1:${port}`, proveSends)));

  test('refused after a call that was not', () =>
    mayBeSent(async () => {
      await grpcCall(`127.0.0.1:${port}`, proveSends).catch(() => undefined);
      await grpcCall(`127.0.0.1:${closed}`, proveSends);
    }));

  test('an interceptor that repeats', async () => {
    const interceptors = [repeat, ...proveSends.interceptors];
    await mayBeSent(() => grpcCall(`127.0.0.1:${port}`, { ...proveSends, interceptors }));
    await isNotSent(() => grpcCall(`127.0.0.1:${closed}`, { ...proveSends, interceptors }));
  });
});

describe('databases', () => {
  const at = (port) => ({ host: '127.0.0.1', port, user: 'nobody', database: 'none' });

  test('pg: a client and a pool', async () => {
    await isNotSent(() => new pg.Client(at(closed)).connect());
    const pool = new pg.Pool(at(closed));
    await isNotSent(() => pool.query('SELECT 1'));
    await pool.end();
    await mayBeSent(() => new pg.Client(at(cutting)).connect());
  });

  test('mysql2: promises and callbacks, a connection and a pool', async () => {
    await isNotSent(() => mysql.createConnection(at(closed)));
    const pool = mysql.createPool(at(closed));
    await isNotSent(() => pool.query('SELECT 1'));
    await pool.end();
    await isNotSent(
      () =>
        new Promise((resolve, reject) => {
          mysqlCallback.createConnection(at(closed)).connect((error) => (error ? reject(error) : resolve()));
        }),
    );
  });
});

describe('errors by themselves', () => {
  const refused = () => Object.assign(new Error('connect ECONNREFUSED'), { code: 'ECONNREFUSED', syscall: 'connect' });
  const reset = () => Object.assign(new Error('read ECONNRESET'), { code: 'ECONNRESET', syscall: 'read' });
  const loop = new Error('its own cause');
  loop.cause = loop;
  for (const [name, error, isProof] of [
    ['a refused connection', refused(), true],
    ['wrapped by the user', new Error('no ledger', { cause: refused() }), true],
    ['each address of a name', new AggregateError([refused(), refused()]), true],
    ['one address of two', new AggregateError([refused(), reset()]), false],
    ['none of several', new AggregateError([]), false],
    ['a reset', reset(), false],
    ['a refusal after a reset', Object.assign(refused(), { cause: reset() }), false],
    ['an ordinary error', new Error('ECONNREFUSED'), false],
    ['a time-out', Object.assign(new Error('x'), { code: 'ETIMEDOUT' }), false],
    ['its own cause', loop, false],
    ['no error', { code: 'ECONNREFUSED', syscall: 'connect' }, false],
    ['a text', 'ECONNREFUSED', false],
    ['nothing', undefined, false],
  ]) {
    test(name, () => {
      const verdict = classify(error);
      assert.equal(verdict?.kind, isProof ? 'RETRY' : undefined);
    });
  }
});
