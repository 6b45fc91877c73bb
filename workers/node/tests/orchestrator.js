/** A small orchestrator on a loopback port, for tests of the worker with a real stream. */
'use strict';

const grpc = require('@grpc/grpc-js');
const { fromBinary } = require('@bufbuild/protobuf');
const { Ack_Result, WorkerMessageSchema } = require('../dist/gen/saga/v1/worker_pb.js');
const { serverMessage } = require('./messages.js');

const LIMIT_MS = 10_000;

/** What comes, to be waited for in order. */
class Inbox {
  #items = [];
  #waiters = [];

  put(item) {
    const waiter = this.#waiters.shift();
    if (waiter) {
      waiter(item);
    } else {
      this.#items.push(item);
    }
  }

  async get(what) {
    if (this.#items.length > 0) {
      return this.#items.shift();
    }
    let timer;
    const late = new Promise((_, reject) => {
      timer = setTimeout(() => reject(new Error(`did not come in time: ${what}`)), LIMIT_MS);
    });
    const item = new Promise((resolve) => this.#waiters.push(resolve));
    return Promise.race([item, late]).finally(() => clearTimeout(timer));
  }
}

/** One stream of the worker: what it said, and what is said to it. */
class Stream {
  #call;
  #inbox = new Inbox();

  constructor(call) {
    this.#call = call;
    call.on('data', (message) => this.#inbox.put(message.command));
    call.on('end', () => call.end());
    call.on('error', () => undefined); // the worker went away
  }

  send(name, value) {
    this.#call.write(serverMessage(name, value));
  }

  tasks(...tasks) {
    this.send('tasks', { tasks });
  }

  ack({ sagaUid, fence }) {
    this.send('acks', { acks: [{ sagaUid, fence, result: Ack_Result.ACCEPTED }] });
  }

  end() {
    this.#call.end();
  }

  /** The next message of that kind; others are passed over. */
  async expect(name) {
    for (;;) {
      const { case: said, value } = await this.#inbox.get(name);
      if (said === name) {
        return value;
      }
    }
  }

  /** The next report, acknowledged. */
  async report() {
    const [report] = (await this.expect('report')).reports;
    this.ack(report);
    return report;
  }

  async welcome() {
    const hello = await this.expect('hello');
    this.send('welcome', { node: 'test', session: 1n });
    await this.expect('credit');
    return hello;
  }
}

class Orchestrator {
  #server = new grpc.Server();
  #streams = new Inbox();

  async start(credentials = grpc.ServerCredentials.createInsecure()) {
    const work = {
      path: '/saga.v1.WorkerService/Work',
      requestStream: true,
      responseStream: true,
      requestDeserialize: (bytes) => fromBinary(WorkerMessageSchema, bytes),
      requestSerialize: () => undefined,
      responseSerialize: (bytes) => Buffer.from(bytes),
      responseDeserialize: () => undefined,
    };
    this.#server.addService({ work }, { work: (call) => this.#streams.put(new Stream(call)) });
    const port = await new Promise((resolve, reject) => {
      this.#server.bindAsync('127.0.0.1:0', credentials, (error, bound) => (error ? reject(error) : resolve(bound)));
    });
    this.address = `127.0.0.1:${port}`;
    return this;
  }

  /** The next stream that the worker opens, welcome. */
  async stream() {
    const stream = await this.#streams.get('a stream');
    stream.hello = await stream.welcome();
    return stream;
  }

  stop() {
    this.#server.forceShutdown();
  }
}

module.exports = { Orchestrator };
