/**
 * One stream of a worker to one address: what was said on it, and what a message of the server means; what to
 * say next is in speech.ts. Without I/O, timers and clock, as pool.ts.
 *
 * A task belongs to the session that speaks for it: the one that it came on, or another one once that has
 * lost its stream. Tasks of a stream that died and that no handler has seen are never started: they are
 * missing in the next Hello to that address, and are given back on another stream, if there is one. What runs
 * or is finished goes to another stream at once.
 */

import { fromBinary } from '@bufbuild/protobuf';
import type { Duration } from '@bufbuild/protobuf/wkt';

import { OperationKind } from './gen/saga/v1/saga_pb.js';
import {
  type Ack,
  Ack_Result,
  type CancelHint,
  type DrainRequested,
  type Extended_Lease,
  type ServerMessage,
  ServerMessageSchema,
  type Task as TaskMessage,
  type WorkerMessage,
} from './gen/saga/v1/worker_pb.js';
import type { Log } from './log.js';
import { type Handler, Held, NEVER_MS, Phase, type Pool, SPARE_MS, State, STATES, SURPLUS_MS } from './pool.js';
import * as speech from './speech.js';

export const IDLE_MS = 10_000; // Credit is repeated when nothing else was sent
const SILENCE_MS = 35_000; // without anything from the server the stream is dead
const WELCOME_MS = 10_000; // the same before Welcome
export const BACKOFF_MIN_MS = 100;
export const BACKOFF_MAX_MS = 2000; // the shortest lease, 5 s, is not to run out by it
const STEADY_MS = 5000; // a stream that lived so long ends a row of failures
const TIME_MAX_S = 253_402_300_799n; // the end of year 9999
const YEAR_S = 366n * 24n * 3600n;

/** The server said something that it must not: the stream is not to be trusted any more. */
export class ProtocolError extends Error {}

/** Of a handler, on one stream: totals that only grow. */
export class Credits {
  received = 0; // tasks
  offered = 0; // that the pool lets it have
  granted = 0; // that were announced

  get unused(): number {
    return this.offered - this.received;
  }
}

export class Session {
  readonly number: number;
  phase = Phase.OFFLINE;
  helloSent = false;
  creditDue = false;
  drainSent = false;
  serverDrains = false; // it asked us to go elsewhere
  sentMs = 0;
  drainSentMs = 0;
  extendCheckMs = 0; // no lease needs extending before
  shareCheckMs = 0; // slots and surplus are not looked at before
  reconnectMs = 0; // OFFLINE: when to try again
  #credits: Credits[] = [];
  readonly #lists: readonly Map<string, Held>[] = STATES.map(() => new Map<string, Held>());
  #openedMs = 0;
  #welcomedMs = 0;
  #heardMs = 0;
  #serverDrainUntilMs = 0;
  #failures = 0; // in a row

  constructor(
    readonly pool: Pool,
    readonly log: Log,
  ) {
    this.number = pool.sessions.length;
    pool.sessions.push(this);
    this.#forgetCredits();
  }

  list(state: State): Map<string, Held> {
    return this.#lists[state] as Map<string, Held>;
  }

  count(...states: State[]): number {
    return states.reduce((sum, state) => sum + this.list(state).size, 0);
  }

  creditOf(handler: Handler): Credits {
    return this.#credits[handler.index] as Credits;
  }

  get takesWork(): boolean {
    return this.phase === Phase.ONLINE && !this.serverDrains;
  }

  firstToRun(nowMs: number): Held | undefined {
    for (const held of this.list(State.QUEUED).values()) {
      if (nowMs >= held.leaseEndMs) {
        this.release(held); // waited for too long: certainly not started
      } else if (held.handler.running < held.handler.max) {
        return held;
      }
    }
    return undefined;
  }

  /** No handler has seen it: it is to be given back. */
  release(held: Held): void {
    this.pool.move(held, this, State.RELEASED);
  }

  releaseQueue(): void {
    this.#moveAll(State.QUEUED, this, State.RELEASED);
  }

  /** What came beyond the slots and has waited for long enough is given back; offers are looked at. */
  share(nowMs: number): void {
    if (nowMs < this.shareCheckMs || this.pool.sessions.length === 1) {
      return;
    }
    for (const held of this.list(State.QUEUED).values()) {
      if (nowMs - held.cameMs < SURPLUS_MS) {
        break;
      }
      if (held.handler.inUse > held.handler.max) {
        this.release(held);
      }
    }
    this.creditDue = true;
    this.shareCheckMs = nowMs + SPARE_MS;
  }

  /** The next message to send, and taken as sent; undefined: none now. */
  next(nowMs: number): WorkerMessage | undefined {
    if (this.phase === Phase.OFFLINE) {
      return undefined;
    }
    this.share(nowMs);
    const message = speech.next(this, nowMs);
    if (message) {
      this.sentMs = nowMs;
    }
    return message;
  }

  // The life of a stream.

  /** A stream was opened: Hello is next. */
  opened(nowMs: number): void {
    this.phase = Phase.OPENING;
    this.helloSent = this.drainSent = this.serverDrains = false;
    this.#openedMs = this.#heardMs = this.sentMs = nowMs;
    this.creditDue = true;
    this.#forgetCredits();
    this.#extendAll(nowMs);
  }

  /** It ended, or could not be opened: says in reconnectMs when to try again. */
  lost(nowMs: number): void {
    const steady = this.phase === Phase.ONLINE && nowMs - this.#welcomedMs >= STEADY_MS;
    this.phase = Phase.OFFLINE;
    this.releaseQueue();
    this.#moveAll(State.REPORTED, this, State.FINISHED);
    const deputy = this.pool.deputy(this);
    if (deputy) {
      this.#handOver(deputy, nowMs);
    }
    if (this.pool.sessions.length === 1) {
      for (const held of this.list(State.RELEASED).values()) {
        this.pool.forget(held); // its next Hello tells
      }
    }
    this.#backOff(steady, nowMs);
  }

  /** Should this stream be ended: silent for too long, or the server goes away and nothing holds us? */
  isOver(nowMs: number): boolean {
    if (this.phase === Phase.OFFLINE) {
      return false;
    }
    if (nowMs >= this.#silentMs) {
      return true;
    }
    // What still runs is reported to another server, or to the next one here.
    return (
      this.serverDrains &&
      this.count(State.FINISHED, State.REPORTED, State.RELEASED) === 0 &&
      (this.count(State.RUNNING) === 0 || nowMs >= this.#serverDrainUntilMs)
    );
  }

  /** OFFLINE: is a new stream of any use? Not for a drain that another one can carry out. */
  get isWanted(): boolean {
    return !this.pool.draining || this.pool.deputy(this) === undefined;
  }

  /** When there is something to do although nothing happened. */
  get wakeMs(): number {
    if (this.phase === Phase.OFFLINE) {
      return this.reconnectMs;
    }
    const shareMs = this.pool.sessions.length > 1 ? this.shareCheckMs : NEVER_MS;
    return Math.min(this.sentMs + IDLE_MS, this.#silentMs, this.extendCheckMs, shareMs);
  }

  /** When it will have been silent for too long. */
  get #silentMs(): number {
    const silent = this.#heardMs + SILENCE_MS;
    return this.phase === Phase.OPENING ? Math.min(silent, this.#openedMs + WELCOME_MS) : silent;
  }

  #forgetCredits(): void {
    this.#credits = Array.from(this.pool.handlers, () => new Credits());
  }

  #moveAll(state: State, to: Session, toState: State): void {
    for (const held of [...this.list(state).values()]) {
      this.pool.move(held, to, toState);
    }
  }

  /** Nobody knows what became of what was asked on another stream. */
  #extendAll(nowMs: number): void {
    for (const held of this.list(State.RUNNING).values()) {
      held.extendAtMs = nowMs;
      held.extendSentMs = 0;
    }
    this.extendCheckMs = nowMs;
  }

  /** This one has no stream; that one speaks for its tasks from now on. */
  #handOver(to: Session, nowMs: number): void {
    if (this.count(State.RUNNING) > 0) {
      to.extendCheckMs = nowMs;
    }
    this.#extendAll(nowMs);
    for (const state of [State.RUNNING, State.FINISHED, State.RELEASED]) {
      this.#moveAll(state, to, state);
    }
  }

  #backOff(wasSteady: boolean, nowMs: number): void {
    if (wasSteady) {
      this.#failures = 0;
    }
    const longest = Math.min(2 * BACKOFF_MIN_MS * 2 ** Math.min(this.#failures, 6), BACKOFF_MAX_MS);
    this.#failures++;
    this.reconnectMs = nowMs + BACKOFF_MIN_MS + Math.floor(this.pool.random() * (longest - BACKOFF_MIN_MS + 1));
  }

  // What the server says.

  /** A message came in at or after `sinceMs`. ProtocolError: end the stream. */
  receive(bytes: Uint8Array, sinceMs: number, nowMs: number): void {
    let message: ServerMessage;
    try {
      message = fromBinary(ServerMessageSchema, bytes);
    } catch {
      throw new ProtocolError('the server sent something that is no message');
    }
    this.#heardMs = nowMs;
    const { command } = message;
    switch (command.case) {
      case 'welcome':
        return this.#receiveWelcome(nowMs);
      case 'tasks':
        return command.value.tasks.forEach((task) => this.#receiveTask(task, sinceMs, nowMs));
      case 'acks':
        return command.value.acks.forEach((ack) => this.#receiveAck(ack));
      case 'extended':
        return command.value.leases.forEach((lease) => this.#receiveExtended(lease));
      case 'cancelHint':
        return this.#receiveCancel(command.value);
      case 'drainRequested':
        return this.#receiveDrain(command.value, nowMs);
      default: // Tick, or a word of a newer server: that it speaks is what counts.
    }
  }

  /** It speaks for what those without a stream left behind. */
  #receiveWelcome(nowMs: number): void {
    if (this.phase !== Phase.OPENING) {
      return;
    }
    this.phase = Phase.ONLINE;
    this.#welcomedMs = nowMs;
    this.pool.counters.count('connects');
    for (const other of this.pool.sessions) {
      if (other.phase !== Phase.ONLINE) {
        other.#handOver(this, nowMs);
      }
    }
  }

  #receiveTask(task: TaskMessage, sinceMs: number, nowMs: number): void {
    const leaseMs = milliseconds(task.lease);
    const attemptMs = milliseconds(task.attemptRemaining);
    if (!isWellFormed(task) || leaseMs <= 0 || attemptMs < 0) {
      throw new ProtocolError('the server sent a malformed task');
    }
    const handler = this.pool.handlers.get(task.handler);
    if (!handler) {
      throw new ProtocolError('the server sent a task of a handler that is not ours');
    }
    const credit = this.creditOf(handler);
    if (credit.received >= credit.granted) {
      throw new ProtocolError(`the server sent more tasks of ${handler.name} than credit`);
    }
    credit.received++;
    this.creditDue = true; // what was kept back may be worth saying now
    const key = keyOf(task.sagaUid, task.fence, 'task');
    if (this.pool.tasks.has(key)) {
      return; // we have it: nothing to do twice
    }
    const held = new Held(
      key,
      new Uint8Array(task.sagaUid), // a copy, so that it does not keep the message that it came in
      task.fence,
      handler,
      this,
      task,
      nowMs,
      sinceMs,
      leaseMs,
      sinceMs + attemptMs,
    );
    this.extendCheckMs = Math.min(this.extendCheckMs, held.extendAtMs);
    const leaving = this.pool.draining || this.serverDrains;
    this.pool.add(held, this, leaving ? State.RELEASED : State.QUEUED);
  }

  #receiveAck(ack: Ack): void {
    const held = this.pool.tasks.get(keyOf(ack.sagaUid, ack.fence, 'ack'));
    if (!held || (held.state !== State.REPORTED && held.state !== State.FINISHED)) {
      return; // acknowledged before
    }
    if (ack.problem) {
      this.log('warn', 'the outcome counts as UNKNOWN: its output is not of the declared type', {
        task: held.key,
        handler: held.handler.name,
        problem: ack.problem,
      });
    }
    const counter = COUNTER_OF[ack.result];
    if (counter === undefined) {
      throw new ProtocolError('the server sent an ack without a result');
    }
    this.pool.counters.count(counter);
    this.pool.forget(held);
  }

  #receiveExtended(extended: Extended_Lease): void {
    const leaseMs = extended.lease ? milliseconds(extended.lease) : 0;
    const key = keyOf(extended.sagaUid, extended.fence, 'extension');
    if (leaseMs < 0) {
      throw new ProtocolError('the server sent a malformed extension');
    }
    const held = this.pool.tasks.get(key);
    if (!held || (held.state !== State.QUEUED && held.state !== State.RUNNING)) {
      return;
    }
    if (leaseMs === 0) {
      this.pool.counters.count('leasesLost');
      held.lost = this.pool.tellDue = true;
      held.publish();
      if (held.state === State.QUEUED) {
        this.pool.forget(held);
      }
    } else if (held.extendSentMs !== 0) {
      // Counted from when we asked: the server cannot have read it before.
      held.confirmedMs = held.extendSentMs;
      held.leaseMs = leaseMs;
      held.extendSentMs = 0;
      held.publish();
    }
  }

  #receiveCancel(hint: CancelHint): void {
    const held = this.pool.tasks.get(keyOf(hint.sagaUid, hint.fence, 'cancel hint'));
    if (!held) {
      return;
    }
    held.cancelled = this.pool.tellDue = true;
    held.publish();
    if (held.state === State.QUEUED) {
      held.session.release(held);
    }
  }

  #receiveDrain(drain: DrainRequested, nowMs: number): void {
    if (this.serverDrains) {
      return;
    }
    this.serverDrains = true;
    this.#serverDrainUntilMs = nowMs + Math.floor(Math.max(0, milliseconds(drain.grace)) / 2);
    this.releaseQueue();
  }
}

const COUNTER_OF = {
  [Ack_Result.UNSPECIFIED]: undefined,
  [Ack_Result.ACCEPTED]: 'reportsAccepted',
  [Ack_Result.DUPLICATE]: 'reportsDuplicate',
  [Ack_Result.STALE]: 'reportsStale',
} as const;

/** "uid:fence", by which a task is known. */
export function keyOf(uid: Uint8Array, fence: bigint, what: string): string {
  if (uid.length !== 16) {
    throw new ProtocolError(`the server sent a malformed ${what}`);
  }
  return `${Buffer.from(uid.buffer, uid.byteOffset, uid.length).toString('hex')}:${fence}`;
}

function isWellFormed(task: TaskMessage): boolean {
  const seconds = task.sagaStartTime?.seconds;
  return (
    task.sagaUid.length === 16 &&
    task.fence > 0n &&
    [OperationKind.ACTION, OperationKind.COMPENSATION, OperationKind.PROBE].includes(task.operation) &&
    seconds !== undefined &&
    seconds <= TIME_MAX_S &&
    seconds >= -TIME_MAX_S
  );
}

/** -1: absent, negative or out of range. Longer than a year counts as a year. */
function milliseconds(duration: Duration | undefined): number {
  if (!duration || duration.seconds < 0n || duration.nanos < 0 || duration.nanos > 999_999_999) {
    return -1;
  }
  const seconds = Number(duration.seconds < YEAR_S ? duration.seconds : YEAR_S);
  return seconds * 1000 + Math.floor(duration.nanos / 1e6);
}
