/**
 * One guarded transaction, whatever the driver: begins it, enters, runs the effect if the guard says
 * PROCEED, done, COMMIT; and what each end of it means for the task. Users import `sagad/guard/pg` or
 * `sagad/guard/mysql2`.
 */

import { AlreadyDone, Rejected, Reported, Retry, Unknown } from '../outcome.js';
import type { Task } from '../task.js';

/** What the guard says of an operation. Where several apply, the first counts.
 *
 *  REFUSED    an action after its compensation: roll back, Rejected
 *  DUPLICATE  the effect is there: commit, AlreadyDone with the stored output, ours
 *  STALE      a newer holder was here, or it is below the floor: roll back, Retry
 *  EMPTY      a compensation of an action that never ran: (MySQL: done,) commit, DONE
 *  PROCEED    the effect, done, commit, DONE
 *  RECORDED   of noEffect: it stands that there is none: commit, Rejected
 *  LEFT_OPEN  MySQL: a worker committed without done: roll back, Unknown */
export type Answer = (typeof ANSWERS)[number];

const ANSWERS = ['REFUSED', 'DUPLICATE', 'STALE', 'EMPTY', 'PROCEED', 'RECORDED', 'LEFT_OPEN'] as const;

/** The guard's answer; `output` is what the effect answered, of a DUPLICATE. */
export interface Guarded {
  readonly answer: Answer;
  readonly output: Uint8Array;
}

export interface GuardOptions {
  /**
   * A compensation whose action left no trace is run and not passed over: for an action that also has
   * an effect outside of the database. What the effect throws then goes on as it is, since no ROLLBACK
   * takes that back.
   */
  evenWithoutAction?: boolean;
}

/** What a driver does for one task on one connection. */
export interface Driver {
  /** A connection that breaks tells so by an event, which would end the program if nobody heard it. */
  watch(): void;
  unwatch(): void;
  begin(): Promise<void>;
  /** For a transaction of the caller's: Retry where there is none. */
  requireTransaction(): Promise<void>;
  /**
   * Unknown where the effect has ended the transaction. `error`: what the effect threw. On a lost
   * connection nothing can have been done after the transaction.
   */
  requireNotEnded(error?: unknown): Promise<void>;
  /** Leaves no transaction open: what cannot be rolled back is cut off. */
  rollBack(): Promise<void>;
  /** Unknown where it is not certain that it stands; Retry where it certainly does not. */
  commit(): Promise<void>;
  /** In the caller's transaction. */
  enter(): Promise<Entry>;
  /** In a transaction that was begun for it. */
  enterNew(): Promise<Entry>;
  noEffect(): Promise<Entry>;
  done(output: Uint8Array): Promise<void>;
  /** What EMPTY needs before its commit. */
  doneOfEmpty(): Promise<void>;
  /** What an error before COMMIT means; `code`: where the driver knows none. */
  retryOf(error: unknown, code: string): Retry;
}

/** The guard's word, and the stored output as hexadecimal digits. */
export type Entry = readonly [answer: unknown, outputHex: unknown];

const EMPTY = new Uint8Array();

/** Which row of the guard it is about. Texts and digits: what every driver sends as it is. */
export function identityOf(task: Task) {
  return {
    namespace: task.namespace,
    definition: task.definition,
    sagaId: task.sagaId,
    run: String(task.run),
    step: task.step,
    operation: task.operation,
    fence: String(task.fence),
    startedUs: String(task.startedAtUs),
  };
}

export function hexOf(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('hex');
}

const CAUSES_MAX = 16;

/** The error, and what it wraps. */
export function causesOf(error: unknown): object[] {
  const found: object[] = [];
  while (typeof error === 'object' && error !== null && found.length < CAUSES_MAX) {
    found.push(error);
    error = (error as { cause?: unknown }).cause;
  }
  return found;
}

export function refuseProbe(task: Task): void {
  if (task.operation === 'PROBE') {
    throw new Unknown('GUARD_PROBE', 'the guard is for actions and compensations');
  }
}

export function guardedOf([word, outputHex]: Entry): Guarded {
  const answer = ANSWERS.find((one) => one === word);
  if (answer === undefined) {
    throw new Retry('GUARD_VERSION', `the guard gave an answer that this worker does not know: ${String(word)}`);
  }
  return { answer, output: Buffer.from(typeof outputHex === 'string' ? outputHex : '', 'hex') };
}

/** Runs the whole of it; see `run` of the drivers. */
export async function runGuarded(
  task: Task,
  driver: Driver,
  effect: () => unknown,
  options: GuardOptions,
): Promise<Uint8Array> {
  driver.watch();
  try {
    await driver.begin();
    const guarded = guardedOf(await attempt(driver, () => driver.enterNew()));
    if (guarded.answer === 'PROCEED') {
      return await proceed(task, driver, effect, options.evenWithoutAction ?? false);
    }
    return await settle(driver, guarded);
  } finally {
    await driver.rollBack();
    driver.unwatch();
  }
}

/** Before COMMIT: whatever the reason, nothing took effect. */
async function attempt<T>(driver: Driver, call: () => Promise<T>): Promise<T> {
  try {
    return await call();
  } catch (error) {
    throw error instanceof Reported ? error : driver.retryOf(error, 'GUARD_CONNECTION');
  }
}

/** An answer after which there is no effect to run. */
async function settle(driver: Driver, guarded: Guarded): Promise<Uint8Array> {
  switch (guarded.answer) {
    case 'DUPLICATE':
      await driver.commit();
      throw new AlreadyDone(guarded.output, { ours: true });
    case 'EMPTY':
      await attempt(driver, () => driver.doneOfEmpty());
      await driver.commit();
      return EMPTY;
    case 'STALE':
      throw new Retry('GUARD_STALE', 'a newer holder was here, or the saga is below the floor');
    case 'REFUSED':
      throw new Rejected('GUARD_REFUSED', 'the action came after its compensation');
    default:
      throw new Unknown('GUARD_LEFT_OPEN', 'a worker entered the guard and committed without done');
  }
}

async function proceed(
  task: Task,
  driver: Driver,
  effect: () => unknown,
  evenWithoutAction: boolean,
): Promise<Uint8Array> {
  let output: Uint8Array;
  try {
    output = task.outputBytes(await effect());
  } catch (error) {
    await driver.requireNotEnded(error);
    await driver.rollBack();
    if (error instanceof Rejected) {
      return recordNoEffect(driver, error);
    }
    if (error instanceof Retry || error instanceof Unknown || evenWithoutAction) {
      throw error;
    }
    if (error instanceof Reported) {
      // AlreadyDone and the probe's: nothing of it stands
      throw new Retry('GUARD_BODY_FAILED', `the effect said ${error.message}`);
    }
    throw driver.retryOf(error, 'GUARD_BODY_FAILED');
  }
  await driver.requireNotEnded();
  await attempt(driver, () => driver.done(output));
  await driver.commit();
  return output;
}

/**
 * The fence is remembered before REJECTED is reported, so that an older holder that wakes up later is
 * stale; if that fails the whole is a RETRY, which is as true.
 */
async function recordNoEffect(driver: Driver, rejected: Rejected): Promise<Uint8Array> {
  await driver.begin();
  const guarded = guardedOf(await attempt(driver, () => driver.noEffect()));
  if (guarded.answer !== 'RECORDED') {
    return settle(driver, guarded);
  }
  try {
    await driver.commit();
  } catch (error) {
    // Whether or not it is remembered: nothing took effect.
    throw error instanceof Unknown ? new Retry(error.code, error.detail) : error;
  }
  throw rejected;
}
