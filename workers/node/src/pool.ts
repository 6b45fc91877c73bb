/**
 * What the streams of a worker share: handlers and their slots, the tasks that the process holds, reports
 * without an ack, the wish to drain.
 *
 * Never does I/O, never starts a timer, reads no clock: time comes from the caller, in whole milliseconds of
 * a monotonic clock. All of it belongs to the thread of the streams. Users of the package need nothing of
 * this module.
 *
 * Slots. While a handler has had a free slot for SPARE_MS, every stream is offered all that are free, so that
 * whichever node has work can send it at once. When all are taken, each slot that becomes free is offered to
 * one stream, the one with the fewest unused offers, in turn. So several nodes may use their offers for the
 * same slot: what came beyond the slots waits for SURPLUS_MS and is then given back. With one stream none of
 * this happens.
 */

import { type Counters, LeaseCell } from './cells.js';
import type { Clock } from './clock.js';
import type { Task as TaskMessage } from './gen/saga/v1/worker_pb.js';
import type { Outcome } from './outcome.js';
import type { Session } from './session.js';
import type { Stop } from './task.js';

export const STARTED_MAX = 10_000; // tasks that were started and have no ack: all of them must fit into a Hello
export const SPARE_MS = 100;
export const SURPLUS_MS = 1000;
export const NEVER_MS = Number.MAX_SAFE_INTEGER;
const LEASE_MARGIN = 80; // percent of a lease after which its handler has to stop
const LINGER_MS = 250; // drained, but a task may be on its way to us

/** Where a task stands. */
export enum State {
  QUEUED, // received, no handler has seen it
  RUNNING, // a handler runs, or is about to
  FINISHED, // has an outcome that was not sent on this stream
  REPORTED, // sent, not acknowledged
  RELEASED, // to be given back: no handler saw it
}
export const STATES = [State.QUEUED, State.RUNNING, State.FINISHED, State.REPORTED, State.RELEASED] as const;
export const WAS_STARTED = [State.RUNNING, State.FINISHED, State.REPORTED] as const;

const takesSlot = (state: State): boolean => state <= State.FINISHED;
const wasStarted = (state: State): boolean => state >= State.RUNNING && state <= State.REPORTED;

/** Where a stream stands. */
export enum Phase {
  OFFLINE,
  OPENING, // Hello is to be sent, or Welcome has not come
  ONLINE,
}

const STRENGTH: Readonly<Record<Stop, number>> = { draining: 1, cancelled: 2, lost: 3 };

/** A handler's name and slots. */
export class Handler {
  inUse = 0; // tasks that take a slot: queued, running, not yet reported
  running = 0; // of those
  turn = 0; // the stream that was offered a slot last
  spareSinceMs = NEVER_MS; // a slot has been free since

  constructor(
    readonly name: string,
    readonly max: number,
    readonly index: number,
  ) {}

  get slotsFree(): number {
    return Math.max(0, this.max - this.inUse);
  }
}

/** A task from its arrival until its report is acknowledged. */
export class Held {
  lost = false;
  cancelled = false;
  draining = false;
  state = State.QUEUED;
  outcome: Outcome | undefined;
  extendAtMs: number; // when to ask next
  extendSentMs = 0; // the oldest question without an answer; 0: none
  #told = 0; // strength of what its handler was told
  #cell: LeaseCell | undefined;

  constructor(
    readonly key: string,
    readonly uid: Uint8Array,
    readonly fence: bigint,
    readonly handler: Handler,
    public session: Session,
    public message: TaskMessage | undefined, // until it was handed to the handler's thread
    readonly cameMs: number,
    public confirmedMs: number, // when the lease was certainly granted or extended
    public leaseMs: number,
    readonly attemptUntilMs: number,
  ) {
    this.extendAtMs = confirmedMs + Math.floor(leaseMs / 3);
  }

  /** When the handler has to have ended: 80 % of the confirmed lease, or the attempt's end. */
  get leaseEndMs(): number {
    return Math.min(this.confirmedMs + Math.floor((this.leaseMs * LEASE_MARGIN) / 100), this.attemptUntilMs);
  }

  /** Why its handler should stop. */
  stop(nowMs: number): Stop | undefined {
    if (this.lost || nowMs >= this.leaseEndMs) {
      return 'lost';
    }
    return this.#wish;
  }

  /** The reason to stop if it is a new and stronger one: told from now on. */
  tell(nowMs: number): Stop | undefined {
    const stop = this.stop(nowMs);
    if (stop === undefined || STRENGTH[stop] <= this.#told) {
      return undefined;
    }
    this.#told = STRENGTH[stop];
    return stop;
  }

  /** What its handler reads, made when it is started. */
  share(clock: Clock): SharedArrayBuffer {
    this.#cell = new LeaseCell(clock);
    this.publish();
    return this.#cell.shared;
  }

  /** After any change that its handler can see. */
  publish(): void {
    this.#cell?.write(this.lost ? 0 : this.leaseEndMs, this.attemptUntilMs, this.#wish);
  }

  get #wish(): Exclude<Stop, 'lost'> | undefined {
    return this.cancelled ? 'cancelled' : this.draining ? 'draining' : undefined;
  }
}

export interface PoolOptions {
  readonly workerId: string;
  readonly instance: string;
  readonly concurrency: number;
  readonly drainMs: number;
  readonly handlers: readonly { readonly name: string; readonly max: number }[];
}

export class Pool {
  readonly handlers: ReadonlyMap<string, Handler>;
  readonly tasks = new Map<string, Held>();
  readonly sessions: Session[] = [];
  draining = false;
  tellDue = false; // running tasks got a reason to stop; whoever tells them resets this
  #drainUntilMs = 0;
  #started = 0; // tasks that run or ran and have no ack
  #running = 0;
  #takeNext = 0;

  constructor(
    readonly options: PoolOptions,
    readonly counters: Counters,
    readonly random: () => number = Math.random,
  ) {
    this.handlers = new Map(options.handlers.map(({ name, max }, i) => [name, new Handler(name, max, i)]));
  }

  // Handlers' side.

  /** The next task to run, RUNNING from now on; undefined: there is none, or no room for it. */
  take(nowMs: number): Held | undefined {
    const count = this.sessions.length;
    for (let i = 0; i < count; i++) {
      if (this.#running >= this.options.concurrency || this.#started >= STARTED_MAX) {
        return undefined;
      }
      const session = this.#after(this.#takeNext, i);
      const held = session.firstToRun(nowMs);
      if (held) {
        this.#takeNext = session.number + 1;
        this.move(held, session, State.RUNNING);
        this.counters.count('tasksStarted');
        return held;
      }
    }
    return undefined;
  }

  /** Its handler returned. */
  finish(held: Held, outcome: Outcome, nowMs: number): void {
    held.outcome = outcome;
    this.#isOver(held, State.FINISHED, nowMs);
  }

  /** It was to run, but no handler has seen it: given back. */
  giveBack(held: Held, nowMs: number): void {
    this.#isOver(held, State.RELEASED, nowMs);
  }

  #isOver(held: Held, state: State, nowMs: number): void {
    if (this.draining) {
      this.#drainUntilMs = nowMs + this.options.drainMs;
    }
    this.move(held, held.session, state);
  }

  /** Running tasks whose handler is to be told something new, and when to look again. */
  stops(nowMs: number): { told: { held: Held; stop: Stop }[]; nextMs: number } {
    const told = [];
    let nextMs = NEVER_MS;
    for (const session of this.sessions) {
      for (const held of session.list(State.RUNNING).values()) {
        const stop = held.tell(nowMs);
        if (stop) {
          told.push({ held, stop });
        }
        if (!held.lost && nowMs < held.leaseEndMs) {
          nextMs = Math.min(nextMs, held.leaseEndMs);
        }
      }
    }
    return { told, nextMs };
  }

  /** No more tasks: give back what was not started, finish and report the rest. */
  drain(nowMs: number): void {
    if (this.draining) {
      return;
    }
    this.draining = true;
    this.tellDue = true;
    this.#drainUntilMs = nowMs + this.options.drainMs;
    for (const session of this.sessions) {
      for (const held of session.list(State.RUNNING).values()) {
        held.draining = true;
        held.publish();
      }
      session.releaseQueue();
    }
  }

  /** Nothing runs, and every report is acknowledged or was waited for long enough. */
  isDrained(nowMs: number): boolean {
    if (!this.draining || this.sessions.some((one) => one.count(State.QUEUED, State.RUNNING) > 0)) {
      return false;
    }
    const isDone = this.sessions.every(
      (one) =>
        one.count(State.FINISHED, State.REPORTED, State.RELEASED) === 0 &&
        (one.phase === Phase.OFFLINE || (one.drainSent && nowMs - one.drainSentMs >= LINGER_MS)),
    );
    return isDone || nowMs >= this.#drainUntilMs;
  }

  // For sessions: a task is in the list of its state at its session, and in `tasks`.

  add(held: Held, session: Session, state: State): void {
    this.tasks.set(held.key, held);
    this.#listAdd(held, session, state);
  }

  move(held: Held, session: Session, state: State): void {
    const freed = takesSlot(held.state) && !takesSlot(state);
    this.#listRemove(held);
    this.#listAdd(held, session, state);
    if (freed) {
      session.creditDue = true;
      this.#slotFreed(held.handler);
    }
  }

  forget(held: Held): void {
    this.tasks.delete(held.key);
    this.#listRemove(held);
    if (takesSlot(held.state)) {
      held.session.creditDue = true;
      this.#slotFreed(held.handler);
    }
  }

  /** The one that does for another that has no stream; undefined: none has. */
  deputy(session: Session): Session | undefined {
    for (let i = 1; i < this.sessions.length; i++) {
      const other = this.#after(session.number, i);
      if (other.takesWork) {
        return other;
      }
    }
    return undefined;
  }

  /** How many tasks of this handler the session may be offered beyond what it was. */
  offer(session: Session, handler: Handler, nowMs: number): number {
    const unused = session.creditOf(handler).unused;
    const more = handler.slotsFree;
    if (more > 0 && handler.spareSinceMs === NEVER_MS) {
      handler.spareSinceMs = nowMs;
    }
    const spare = more > 0 && nowMs - handler.spareSinceMs >= SPARE_MS;
    const alone = !this.sessions.some((other) => other !== session && other.takesWork);
    return more > unused && (spare || alone) ? more - unused : 0;
  }

  #after(number: number, i: number): Session {
    return this.sessions[(number + i) % this.sessions.length] as Session;
  }

  #listAdd(held: Held, session: Session, state: State): void {
    held.session = session;
    held.state = state;
    session.list(state).set(held.key, held);
    this.#count(held, 1);
    if (held.handler.slotsFree === 0) {
      held.handler.spareSinceMs = NEVER_MS;
    }
  }

  #listRemove(held: Held): void {
    held.session.list(held.state).delete(held.key);
    this.#count(held, -1);
  }

  #count({ state, handler }: Held, by: 1 | -1): void {
    if (wasStarted(state)) {
      this.#started += by;
    }
    if (state === State.RUNNING) {
      this.#running += by;
      handler.running += by;
    }
    if (takesSlot(state)) {
      handler.inUse += by;
    }
  }

  /** The next in turn of those with the fewest unused offers may have it. */
  #slotFreed(handler: Handler): void {
    if (handler.slotsFree === 0) {
      return; // of what came beyond the slots
    }
    let best: Session | undefined;
    let least = NEVER_MS;
    for (let i = 1; i <= this.sessions.length; i++) {
      const session = this.#after(handler.turn, i);
      const unused = session.creditOf(handler).unused;
      if (session.takesWork && unused < least) {
        best = session;
        least = unused;
      }
    }
    if (best) {
      best.creditOf(handler).offered++;
      handler.turn = best.number;
      best.creditDue = true;
    }
  }
}

/**
 * Since when at the latest a message can have lain there unread, when it is read now.
 *
 * `tick` is called every TICK_MS. A gap between two ticks means that the process was stopped; what is read
 * just after it may be as old as the gap, so for a moment it counts from before.
 */
export class Awake {
  static readonly TICK_MS = 100;
  static readonly #GAP_MS = 500;
  static readonly #HOLD_MS = 250;
  #lastMs: number;
  #beforeMs: number;
  #holdUntilMs: number;

  constructor(nowMs: number) {
    this.#lastMs = this.#beforeMs = this.#holdUntilMs = nowMs;
  }

  tick(nowMs: number): void {
    if (nowMs - this.#lastMs > Awake.#GAP_MS) {
      this.#beforeMs = this.#lastMs;
      this.#holdUntilMs = nowMs + Awake.#HOLD_MS;
    }
    this.#lastMs = nowMs;
  }

  sinceMs(nowMs: number): number {
    return nowMs < this.#holdUntilMs ? this.#beforeMs : Math.min(this.#lastMs, nowMs);
  }
}
