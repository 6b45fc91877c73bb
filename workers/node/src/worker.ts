/** The worker as a whole: options, handlers, signals, and the thread of the handlers' side of thread.ts. */

import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import { Worker as Thread } from 'node:worker_threads';

import { fromBinary } from '@bufbuild/protobuf';

import { Counters, LeaseCell, type Stats } from './cells.js';
import { type Classify, classify } from './classify.js';
import { Clock } from './clock.js';
import { codecOf, type MessageInitOf, type MessageOf, type MessageType } from './codec.js';
import { TaskSchema } from './gen/saga/v1/worker_pb.js';
import { type Log, type Logger, stderrLogger } from './log.js';
import type { StartOptions, TlsOptions, ToHandlers, ToStreams } from './messages.js';
import { type Registered, runHandler } from './run.js';
import { Task } from './task.js';

export const OUTPUT_BYTES_MAX = 256 * 1024;
export const MESSAGE_BYTES_MAX = 8 * 1024 * 1024;
const ADDRESSES_MAX = 16;
const CONCURRENCY_MAX = 10_000;
const HANDLERS_MAX = 256;
const IN_FLIGHT_MAX = 10_000;
const DRAIN_MS_MAX = 24 * 3600 * 1000;
const SIGNALS = ['SIGTERM', 'SIGINT'] as const;

export interface WorkerOptions {
  /** "host:port" or "unix:/path", 1 to 16: one, or all nodes of a database, each by an address of its own
   *  (behind a load balancer the balancer's address alone). */
  readonly addresses: readonly string[];
  /** Stable name, 1-128 bytes, shown to operators. */
  readonly id: string;
  /** Handlers that are in flight at a time, over all names; default 16. */
  readonly concurrency?: number;
  /** How long a drain waits for acknowledgements once the last handler has returned; default 30 s. */
  readonly drainMs?: number;
  /** SIGTERM and SIGINT drain while the worker runs; a second one ends the process. Default false. */
  readonly signals?: boolean;
  /** TLS to all addresses; true: with the usual authorities. Default: none. */
  readonly tls?: TlsOptions | boolean;
  /** Says of an error of a handler what is to be reported instead of UNKNOWN; default `classify`. */
  readonly classify?: Classify;
  /** Raise it together with the server's limit; default 256 KiB. */
  readonly maxOutputBytes?: number;
  /** Of a gRPC message; default 8 MiB. */
  readonly maxMessageBytes?: number;
  /** `console` will do; default: warnings and errors on stderr. */
  readonly logger?: Logger;
  /** For tests. */
  readonly clock?: Clock;
}

export interface HandlerOptions<
  Request extends MessageType | undefined = undefined,
  Output extends MessageType | undefined = undefined,
> {
  /** In flight at a time; default: the worker's concurrency. */
  readonly max?: number;
  /** Type of the request, which the handler then gets as its second argument. */
  readonly request?: Request;
  /** Type of what the handler returns; without it bytes, or nothing. */
  readonly output?: Output;
}

/** What a handler may return. */
export type HandlerOutput<Output> =
  Uint8Array | undefined | void | (Output extends MessageType ? MessageInitOf<Output> : never);

/** Does one operation of one step; what it returns is the output of DONE, see outcome.ts for the rest. */
export type HandlerFunction<Request = undefined, Output = undefined> = (
  task: Task,
  ...request: Request extends MessageType ? [request: MessageOf<Request>] : []
) => HandlerOutput<Output> | Promise<HandlerOutput<Output>>;

export class Worker {
  /** For sagad/fake. */
  readonly handlers = new Map<string, Registered>();
  readonly classify: Classify;
  readonly maxOutputBytes: number;
  readonly log: Log;
  readonly #options: WorkerOptions;
  readonly #concurrency: number;
  readonly #clock: Clock;
  readonly #counters = new Counters();
  readonly #running = new Map<string, Task>();
  #thread: Thread | undefined;
  #hasRun = false;
  #drainIsAsked = false;

  /** TypeError or RangeError: what is wrong with an option. */
  constructor(options: WorkerOptions) {
    const logger = options.logger ?? stderrLogger;
    checkAddresses(options.addresses);
    checkId(options.id);
    this.#concurrency = inRange('concurrency', options.concurrency ?? 16, 1, CONCURRENCY_MAX);
    inRange('drainMs', options.drainMs ?? 0, 0, DRAIN_MS_MAX);
    inRange('maxMessageBytes', options.maxMessageBytes ?? 1, 1, 0x7fffffff);
    this.maxOutputBytes = inRange('maxOutputBytes', options.maxOutputBytes ?? OUTPUT_BYTES_MAX, 0, 0x7fffffff);
    this.classify = options.classify ?? classify;
    this.log = (level, text, fields = {}) => logger[level](text, fields);
    this.#clock = options.clock ?? new Clock();
    this.#options = options;
  }

  /** Serves a handler, before run. Its name is 1-128 of [A-Za-z0-9._/-]. */
  handle(name: string, handler: HandlerFunction): this;
  handle<Request extends MessageType | undefined = undefined, Output extends MessageType | undefined = undefined>(
    name: string,
    options: HandlerOptions<Request, Output>,
    handler: HandlerFunction<Request, Output>,
  ): this;
  handle(
    name: string,
    given: HandlerOptions<MessageType | undefined, MessageType | undefined> | Registered['handler'],
    handler?: Registered['handler'],
  ): this {
    const [options, handle] = typeof given === 'function' ? [{}, given] : [given, handler];
    const { max = this.#concurrency, request, output } = options;
    if (this.#hasRun) {
      throw new Error('handlers are given before run');
    }
    if (typeof handle !== 'function') {
      throw new TypeError(`handler ${name}: there is no function`);
    }
    if (typeof name !== 'string' || !/^[A-Za-z0-9._/-]{1,128}$/.test(name)) {
      throw new TypeError(`a handler's name is 1 to 128 of [A-Za-z0-9._/-], not ${JSON.stringify(name)}`);
    }
    if (this.handlers.has(name)) {
      throw new Error(`handler ${name} is there already`);
    }
    if (this.handlers.size === HANDLERS_MAX) {
      throw new RangeError(`more than ${HANDLERS_MAX} handlers`);
    }
    inRange(`handler ${name}: max`, max, 1, IN_FLIGHT_MAX);
    [request, output].forEach((type) => type && codecOf(type)); // throws now, and not at the first task
    this.handlers.set(name, { name, max, request, output, handler: handle });
    return this;
  }

  /** Serves until it is drained; resolves then, also when acknowledgements were still missing after drainMs
   *  (the orchestrator finds out by itself). Reconnects for ever. Waits for handlers to return, however long
   *  they take. Once for each worker. */
  async run(): Promise<void> {
    if (this.#hasRun) {
      throw new Error('a worker runs once: make a new one');
    }
    if (this.handlers.size === 0) {
      throw new Error('no handler was given');
    }
    this.#hasRun = true;
    const onSignal = (): void => {
      SIGNALS.forEach((signal) => process.off(signal, onSignal)); // the second one ends the process
      this.drain();
    };
    if (this.#options.signals) {
      SIGNALS.forEach((signal) => process.on(signal, onSignal));
    }
    try {
      await this.#serve();
    } finally {
      SIGNALS.forEach((signal) => process.off(signal, onSignal));
    }
  }

  /** Take no more tasks, give back those that were not started, finish and report the others, end. */
  drain(): void {
    if (!this.#drainIsAsked) {
      this.#drainIsAsked = true;
      this.#say({ type: 'drain' });
    }
  }

  /** The counters. */
  get stats(): Stats {
    return this.#counters.read();
  }

  #serve(): Promise<void> {
    return new Promise((resolve, reject) => {
      const thread = new Thread(join(__dirname, 'thread.js'), {
        workerData: this.#startOptions(),
        execArgv: [], // what was given to load the user's program does not concern it
      });
      thread.on('message', (message: ToHandlers) => this.#hear(message));
      thread.on('error', (error) => {
        // Nobody extends the leases any more.
        this.#running.forEach((task) => task.tellStop('lost'));
        reject(error);
      });
      thread.on('exit', (code) => {
        this.#thread = undefined;
        if (code === 0) {
          resolve();
        } else {
          reject(new Error(`the thread of the streams ended with ${code}`));
        }
      });
      this.#thread = thread;
      if (this.#drainIsAsked) {
        this.#say({ type: 'drain' });
      }
    });
  }

  #startOptions(): StartOptions {
    const { addresses, id, drainMs = 30_000, maxMessageBytes = MESSAGE_BYTES_MAX, tls } = this.#options;
    return {
      addresses,
      workerId: id,
      instance: randomBytes(16).toString('hex'),
      concurrency: this.#concurrency,
      drainMs,
      handlers: Array.from(this.handlers.values(), ({ name, max }) => ({ name, max })),
      tls: tls === true ? {} : tls || undefined,
      maxMessageBytes,
      clock: this.#clock.shared,
      counters: this.#counters.shared,
    };
  }

  #say(message: ToStreams): void {
    this.#thread?.postMessage(message);
  }

  #hear(message: ToHandlers): void {
    switch (message.type) {
      case 'run':
        return this.#start(message);
      case 'stop':
        return this.#running.get(message.key)?.tellStop(message.stop);
      case 'log':
        return this.log(message.level, message.text, message.fields);
      case 'ended': // its thread does, too
    }
  }

  #start({ key, handler, task: bytes, cell }: Extract<ToHandlers, { type: 'run' }>): void {
    const lease = new LeaseCell(this.#clock, cell);
    const registered = this.handlers.get(handler);
    if (!registered || lease.stop()) {
      // It has waited for the event loop, and now nobody wants it, or it is not ours any more.
      return this.#say({ type: 'notStarted', key });
    }
    const task = new Task(fromBinary(TaskSchema, bytes), lease, registered.output);
    this.#running.set(key, task);
    void runHandler(registered, task, this).then((outcome) => {
      this.#running.delete(key);
      // A copy of its own: what is sent is the whole buffer that the bytes are in, and others may have it, too.
      this.#say({ type: 'finished', key, outcome: { ...outcome, output: new Uint8Array(outcome.output) } });
    });
  }
}

function inRange(what: string, value: number, least: number, most: number): number {
  if (!Number.isInteger(value) || value < least || value > most) {
    throw new RangeError(`${what} is ${least} to ${most}, not ${value}`);
  }
  return value;
}

function checkAddresses(addresses: readonly string[]): void {
  if (!Array.isArray(addresses) || addresses.some((one) => typeof one !== 'string' || !one)) {
    throw new TypeError('addresses is a list: one address, or one for each node, none of them empty');
  }
  inRange('the number of addresses', addresses.length, 1, ADDRESSES_MAX);
  if (new Set(addresses).size < addresses.length) {
    throw new TypeError('an address is there twice: each node has one of its own');
  }
}

function checkId(id: string): void {
  const isText = typeof id === 'string' && !/\p{C}/u.test(id);
  if (!isText || id === '' || Buffer.byteLength(id) > 128) {
    throw new TypeError('id is 1 to 128 bytes of text');
  }
}
