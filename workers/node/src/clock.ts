/** Monotonic milliseconds, the same in every thread of the process. Tests may move it forward. */
export class Clock {
  /** What threads share of it. */
  readonly shared: SharedArrayBuffer;
  readonly #offset: BigInt64Array;

  constructor(shared: SharedArrayBuffer = new SharedArrayBuffer(8)) {
    this.shared = shared;
    this.#offset = new BigInt64Array(shared);
  }

  nowMs(): number {
    const [seconds, nanos] = process.hrtime();
    return seconds * 1000 + Math.floor(nanos / 1e6) + Number(Atomics.load(this.#offset, 0));
  }

  advance(ms: number): void {
    Atomics.add(this.#offset, 0, BigInt(ms));
  }
}
