/**
 * The thread of the streams: extends leases, reports, connects again, drains, however busy the thread of the
 * handlers is. All that the worker knows of its tasks is in the pool here; the thread of the handlers runs
 * what it is told to, and says what came of it.
 */

import { parentPort, workerData } from 'node:worker_threads';

import { toBinary } from '@bufbuild/protobuf';

import { Counters } from './cells.js';
import { Clock } from './clock.js';
import { TaskSchema } from './gen/saga/v1/worker_pb.js';
import type { StartOptions, ToHandlers, ToStreams } from './messages.js';
import { Awake, type Held, Pool } from './pool.js';
import { Session } from './session.js';
import { Stream } from './stream.js';

class Streams {
  readonly #say: (message: ToHandlers) => void;
  readonly #clock: Clock;
  readonly #pool: Pool;
  readonly #awake: Awake;
  readonly #streams: readonly Stream[];
  #isSettling = false;
  #isEnding = false;

  constructor(options: StartOptions, say: (message: ToHandlers) => void) {
    this.#say = say;
    this.#clock = new Clock(options.clock);
    this.#pool = new Pool(options, new Counters(options.counters));
    this.#awake = new Awake(this.#clock.nowMs());
    const host = {
      now: () => this.#clock.nowMs(),
      since: () => this.#awake.sinceMs(this.#clock.nowMs()),
      changed: () => this.#changed(),
    };
    this.#streams = options.addresses.map((address) => {
      const session = new Session(this.#pool, (level, text, fields = {}) => say({ type: 'log', level, text, fields }));
      return new Stream(host, session, address, options.maxMessageBytes, options.tls);
    });
  }

  hear(message: ToStreams): void {
    const nowMs = this.#clock.nowMs();
    switch (message.type) {
      case 'finished':
        this.#pool.finish(this.#find(message.key), message.outcome, nowMs);
        break;
      case 'notStarted':
        this.#pool.giveBack(this.#find(message.key), nowMs);
        break;
      case 'drain':
        this.#pool.drain(nowMs);
        break;
    }
    this.#changed();
  }

  /** What only time brings. At least every 100 ms of real time, so that a jump of the clock is noticed. */
  tick(): void {
    const nowMs = this.#clock.nowMs();
    this.#awake.tick(nowMs);
    this.#isEnding ||= this.#pool.isDrained(nowMs);
    this.#streams.forEach((stream) => (this.#isEnding ? stream.end() : stream.tend()));
    if (this.#isEnding && !this.#streams.some((stream) => stream.isOpen)) {
      this.#say({ type: 'ended' });
      return;
    }
    const stopMs = this.#tellStops();
    this.#settle();
    const wakeMs = Math.min(stopMs, ...this.#streams.map((stream) => stream.session.wakeMs));
    const waitMs = Math.min(Math.max(wakeMs - this.#clock.nowMs(), 1), Awake.TICK_MS);
    setTimeout(() => this.tick(), waitMs);
  }

  #find(key: string): Held {
    const held = this.#pool.tasks.get(key);
    if (!held) {
      throw new Error(`a task that runs is held: ${key}`);
    }
    return held;
  }

  /** What follows is done once, after all that has come in at the same time. */
  #changed(): void {
    if (!this.#isSettling) {
      this.#isSettling = true;
      setImmediate(() => {
        this.#isSettling = false;
        this.#settle();
      });
    }
  }

  #settle(): void {
    const nowMs = this.#clock.nowMs();
    for (let held = this.#pool.take(nowMs); held; held = this.#pool.take(nowMs)) {
      this.#run(held);
    }
    if (this.#pool.tellDue) {
      this.#tellStops();
    }
    this.#streams.forEach((stream) => stream.speak());
  }

  #run(held: Held): void {
    const { key, handler, message } = held;
    if (!message) {
      throw new Error(`a task runs once: ${key}`);
    }
    held.message = undefined;
    const task = toBinary(TaskSchema, message);
    this.#say({ type: 'run', key, handler: handler.name, task, cell: held.share(this.#clock) });
  }

  /** Returns when to look again. */
  #tellStops(): number {
    this.#pool.tellDue = false;
    const { told, nextMs } = this.#pool.stops(this.#clock.nowMs());
    for (const { held, stop } of told) {
      this.#say({ type: 'stop', key: held.key, stop });
    }
    return nextMs;
  }
}

if (!parentPort) {
  throw new Error('this is the main file of a thread: it is not to be imported');
}
const port = parentPort;
const streams = new Streams(workerData as StartOptions, (message) => {
  port.postMessage(message);
  if (message.type === 'ended') {
    port.close();
  }
});
port.on('message', (message: ToStreams) => streams.hear(message));
streams.tick();
