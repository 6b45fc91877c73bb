/**
 * What the thread of the streams writes and the thread of the handlers reads at any time, without a message:
 * a handler that blocks its event loop for a minute still sees what is true now.
 */

import type { Clock } from './clock.js';
import type { Lease, Stop } from './task.js';

const LEASE_END = 0; // monotonic milliseconds; 0: lost
const ATTEMPT_END = 1;
const WISH = 2;
const WISHES: readonly (Stop | undefined)[] = [undefined, 'draining', 'cancelled'];
const CELL_BYTES = 3 * 8;

/** The lease of a task that runs. */
export class LeaseCell implements Lease {
  readonly shared: SharedArrayBuffer;
  readonly #clock: Clock;
  readonly #words: BigInt64Array;

  constructor(clock: Clock, shared: SharedArrayBuffer = new SharedArrayBuffer(CELL_BYTES)) {
    this.shared = shared;
    this.#clock = clock;
    this.#words = new BigInt64Array(shared);
  }

  write(leaseEndMs: number, attemptEndMs: number, wish: Exclude<Stop, 'lost'> | undefined): void {
    Atomics.store(this.#words, ATTEMPT_END, BigInt(attemptEndMs));
    Atomics.store(this.#words, WISH, BigInt(WISHES.indexOf(wish)));
    Atomics.store(this.#words, LEASE_END, BigInt(leaseEndMs));
  }

  leaseLeftMs(): number {
    return Math.max(0, Number(Atomics.load(this.#words, LEASE_END)) - this.#clock.nowMs());
  }

  timeLeftMs(): number {
    return Math.max(0, Number(Atomics.load(this.#words, ATTEMPT_END)) - this.#clock.nowMs());
  }

  stop(): Stop | undefined {
    return this.leaseLeftMs() === 0 ? 'lost' : WISHES[Number(Atomics.load(this.#words, WISH))];
  }
}

/** Counters since the start. */
export interface Stats {
  readonly tasksStarted: number;
  readonly reportsAccepted: number;
  readonly reportsDuplicate: number;
  readonly reportsStale: number;
  readonly leasesLost: number;
  readonly connects: number;
}

const COUNTERS = [
  'tasksStarted',
  'reportsAccepted',
  'reportsDuplicate',
  'reportsStale',
  'leasesLost',
  'connects',
] as const satisfies readonly (keyof Stats)[];

export class Counters {
  readonly shared: SharedArrayBuffer;
  readonly #words: BigInt64Array;

  constructor(shared: SharedArrayBuffer = new SharedArrayBuffer(COUNTERS.length * 8)) {
    this.shared = shared;
    this.#words = new BigInt64Array(shared);
  }

  count(counter: keyof Stats): void {
    Atomics.add(this.#words, COUNTERS.indexOf(counter), 1n);
  }

  read(): Stats {
    const counts = COUNTERS.map((name, i) => [name, Number(Atomics.load(this.#words, i))] as const);
    return Object.fromEntries(counts) as unknown as Stats;
  }
}
