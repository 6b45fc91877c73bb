/** The conformance worker in Node: does what its tasks say, see ../README.md. */

import { createInterface } from 'node:readline';

import { StringValueSchema } from '@bufbuild/protobuf/wkt';
import { credentials, Client as GrpcClient, Metadata } from '@grpc/grpc-js';
import mysql from 'mysql2/promise';
import pg from 'pg';
import { AlreadyDone, Clock, NotDone, proveSends, Rejected, Retry, StillUnknown, Unknown, Worker } from 'sagad';

const CONNECT_MS = 5000;
const { env } = process;

function tell(event, more = {}) {
  process.stdout.write(`${JSON.stringify({ event, ...more })}\n`);
}

function tellStillMine(task) {
  tell('still_mine', { fence: String(task.fence), mine: task.stillMine() });
}

// The tasks whose handlers run, and who waits for a `go`, by fence.

const running = new Map();
const gates = new Map();

/** A promise that the command resolves, also before its task comes. */
function gate(fence) {
  if (!gates.has(fence)) {
    const made = {};
    made.opened = new Promise((resolve) => (made.open = resolve));
    gates.set(fence, made);
  }
  return gates.get(fence);
}

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// Calls that fail.

const CALLS = {
  async http(port) {
    const response = await fetch(`http://127.0.0.1:${port}/`, { method: 'POST', body: 'body' });
    await response.text();
  },
  async dns() {
    await fetch('http://name.invalid/');
  },
  async grpc(port) {
    const options = { ...proveSends, 'grpc.enable_http_proxy': 0 };
    const client = new GrpcClient(`127.0.0.1:${port}`, credentials.createInsecure(), options);
    try {
      await new Promise((resolve, reject) => {
        const asIs = (bytes) => bytes;
        const until = { deadline: Date.now() + CONNECT_MS };
        client.makeUnaryRequest(
          '/conformance.Service/Call',
          asIs,
          asIs,
          Buffer.from('small'),
          new Metadata(),
          until,
          (error, answer) => (error ? reject(error) : resolve(answer)),
        );
      });
    } finally {
      client.close();
    }
  },
  async postgresql(port) {
    const client = new pg.Client({ host: '127.0.0.1', port, database: 'none', connectionTimeoutMillis: CONNECT_MS });
    await client.connect();
    await client.end();
  },
  async mysql(port) {
    const connection = await mysql.createConnection({ host: '127.0.0.1', port, connectTimeout: CONNECT_MS });
    await connection.end();
  },
};

// What handlers do.

function describe(task, script) {
  const text = (bytes) => (bytes === undefined ? null : Buffer.from(bytes).toString('base64'));
  const time = (date) => date?.toISOString() ?? null;
  const { probed } = task;
  return {
    namespace: task.namespace,
    definition: task.definition,
    saga_id: task.sagaId,
    run: task.run,
    saga_uid: text(task.uidBytes),
    revision: task.revision,
    saga_start_time: time(task.startedAt),
    step: task.step,
    operation: task.operation,
    handler: task.handler,
    try: task.try,
    fence: String(task.fence),
    idempotency_key: task.idempotencyKey,
    input: text(task.input()),
    request: text(task.request()),
    request_type: task.requestType,
    output_type: task.outputType,
    outputs: Object.fromEntries((script.steps ?? []).map((step) => [step, text(task.outputOf(step))])),
    action: task.actionOutcome,
    action_output: text(task.actionOutput()),
    probed: probed
      ? {
          operation: probed.operation,
          try: probed.try,
          fence: String(probed.fence),
          lease_time: time(probed.leasedAt),
          end_time: time(probed.endedAt),
        }
      : null,
    labels: Object.fromEntries((script.labels ?? []).map((key) => [key, task.labels[key] ?? null])),
    traceparent: task.traceparent,
    guarded: task.guarded,
    send_before: time(task.sendBefore),
    time_left_ms: task.timeLeftMs,
    lease_left_ms: task.leaseLeftMs,
  };
}

/** The end of a script: answers the output, or throws what else came of it. */
function finish(task, request, script) {
  const { do: what, code, message } = script;
  switch (what) {
    case 'done':
      return Buffer.from(script.output ?? '');
    case 'echo':
      return request;
    case 'done_size':
      return Buffer.alloc(script.size, 'x');
    case 'request_size':
      return Buffer.from(String(request.length));
    case 'describe':
      return Buffer.from(JSON.stringify(describe(task, script)));
    case 'already_done':
      throw new AlreadyDone(Buffer.from(script.output ?? ''), { ours: script.ours });
    case 'rejected':
      throw new Rejected(code, message);
    case 'retry':
      throw new Retry(code, message, { afterMs: script.after_ms });
    case 'unknown':
      throw new Unknown(code, message);
    case 'not_done':
      throw new NotDone();
    case 'still_unknown':
      throw new StillUnknown(code, message);
    case 'raise':
      throw new Error(message);
    case 'panic':
      throw message; // no Error at all
    default:
      throw new Error(`no such thing to do: ${what}`);
  }
}

async function obey(task, request, script) {
  for (;;) {
    const { do: what, ms } = script;
    switch (what) {
      case 'refused':
      case 'sent_then_cut':
        await CALLS[script.client](script.port);
        throw new Error('the call did not fail');
      case 'sleep':
        await sleep(ms);
        break;
      case 'wait_stop':
        tell('stop', { fence: String(task.fence), reason: await task.stopped() });
        break;
      case 'wait_go':
        await gate(task.fence).opened;
        break;
      case 'still_mine':
        tellStillMine(task);
        break;
      case 'cpu':
        for (const until = performance.now() + ms; performance.now() < until;);
        break;
      default:
        return finish(task, request, script);
    }
    script = script.then ?? { do: 'done' };
  }
}

/** Says that a handler started and finished. */
async function tracked(task, body) {
  const fence = String(task.fence);
  running.set(task.fence, task);
  tell('started', { handler: task.handler, fence, try: task.try });
  try {
    return await body();
  } finally {
    running.delete(task.fence);
    tell('finished', { fence });
  }
}

const untyped = (task) => tracked(task, () => obey(task, task.request(), JSON.parse(Buffer.from(task.request()))));

async function typed(task, { value }) {
  const output = await tracked(task, () => obey(task, Buffer.from(value), JSON.parse(value)));
  return { value: Buffer.from(output).toString() };
}

function addHandler(worker, text) {
  const [name, max, kind] = text.split(':');
  if (kind === 'typed') {
    worker.handle(name, { max: Number(max), request: StringValueSchema, output: StringValueSchema }, typed);
  } else {
    worker.handle(name, { max: Number(max) }, untyped); // one event loop: blocking is as good as async
  }
}

function listen(worker, clock) {
  const lines = createInterface({ input: process.stdin });
  lines.on('line', (line) => {
    const [command, argument] = line.trim().split(' ');
    switch (command) {
      case 'go':
        return gate(BigInt(argument)).open();
      case 'still_mine': {
        const task = running.get(BigInt(argument));
        return task && tellStillMine(task);
      }
      case 'clock':
        return clock.advance(Number(argument));
      case 'drain':
        return worker.drain();
      case 'stats':
        return tell('stats', worker.stats);
      default:
        throw new Error(`no such command: ${line}`);
    }
  });
  lines.on('close', () => process.exit(0)); // whatever runs
}

const given = (name, option) => (env[name] === undefined ? {} : { [option]: Number(env[name]) });
const clock = new Clock();
const worker = new Worker({
  addresses: env.SAGA_ADDRESSES.split(','),
  id: env.SAGA_WORKER_ID,
  signals: env.SAGA_SIGNALS === '1',
  clock,
  ...given('SAGA_CONCURRENCY', 'concurrency'),
  ...given('SAGA_DRAIN_MS', 'drainMs'),
  ...given('SAGA_MAX_MESSAGE', 'maxMessageBytes'),
  ...given('SAGA_OUTPUT_MAX', 'maxOutputBytes'),
});
env.SAGA_HANDLERS.split(',').forEach((text) => addHandler(worker, text));
listen(worker, clock);
tell('ready', { clients: Object.keys(CALLS).sort() });
let code = 0;
try {
  await worker.run();
} catch (error) {
  console.error(error);
  code = 1;
}
tell('ended', { code });
process.exit(code);
