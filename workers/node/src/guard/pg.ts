/**
 * The guard of a participant's own PostgreSQL, with `pg` (node-postgres): makes an effect there happen
 * once, and never after its compensation. See sql/guard/README.md for the tables and the answers.
 *
 *     import * as guard from 'sagad/guard/pg';
 *
 *     guard.run(task, pool, async (client) => {
 *       await client.query('UPDATE account SET ...');
 *       return toBinary(ReceiptSchema, receipt);
 *     });
 *
 * `run` does it all in one transaction. `enter`, `done` and `noEffect` are the same in pieces, for a
 * transaction that the caller begins and ends.
 */

import type { Client, ClientBase, Pool } from 'pg';

import { Retry, textOfError, Unknown } from '../outcome.js';
import type { Task } from '../task.js';
import {
  type Driver,
  type Entry,
  type GuardOptions,
  type Guarded,
  causesOf,
  guardedOf,
  hexOf,
  identityOf,
  refuseProbe,
  runGuarded,
} from './run.js';

export type { Answer, GuardOptions, Guarded } from './run.js';

const TASK =
  '$1::text, $2::text, $3::text, $4::integer, $5::text, $6::text, $7::bigint,' +
  " timestamptz 'epoch' + $8::bigint * interval '1 microsecond', $9::boolean";
const ENTER = `SELECT answer, encode(output, 'hex') FROM saga_guard.enter(${TASK})`;
const NO_EFFECT = `SELECT answer, encode(output, 'hex') FROM saga_guard.no_effect(${TASK})`;
const DONE = "SELECT saga_guard.done($1::text, $2::text, $3::text, $4::integer, $5::text, $6::text, decode($7, 'hex'))";

const IDLE = 'I';
const STATEMENT_COMPLETION_UNKNOWN = '40003';
/** The session is ended: by an administrator, a crash, with its database, after being idle. */
const SHUTDOWN = /^57P0[1-5]$/;
/** SQLSTATEs of class 00 are those of notices and lesser ones; their severity is in the server's language. */
const LESS_THAN_A_WARNING = /^00/;

/** Texts as they come, whatever parsers the program has set. */
const AS_TEXT = { getTypeParser: () => (value: unknown) => value };

class PgDriver implements Driver {
  readonly #client: ClientBase;
  readonly #identity: string[];
  readonly #enter: string[];
  #isOpen = false; // a transaction that was begun here
  #isLost = false;

  constructor(client: ClientBase, task: Task, evenWithoutAction: boolean) {
    this.#client = client;
    const id = identityOf(task);
    this.#identity = [id.namespace, id.definition, id.sagaId, id.run, id.step, id.operation];
    this.#enter = [...this.#identity, id.fence, id.startedUs, String(evenWithoutAction)];
  }

  // The connection.

  get isLost(): boolean {
    return this.#isLost;
  }

  readonly #onLost = (): void => {
    this.#isLost = true;
  };

  watch(): void {
    this.#client.on('error', this.#onLost);
  }

  /** Its end may come later than the error that tells of it: then it is listened to for good. */
  unwatch(): void {
    if (!this.#isLost) {
      this.#client.off('error', this.#onLost);
    }
  }

  #isIdle(): boolean {
    return this.#client.getTransactionStatus() === IDLE;
  }

  async #query(text: string, values?: string[]): Promise<{ command: string; row: readonly unknown[] }> {
    const result = await this.#client.query({ text, values, rowMode: 'array', types: AS_TEXT });
    return { command: result.command, row: (result.rows[0] as unknown[] | undefined) ?? [] };
  }

  async begin(): Promise<void> {
    const status = this.#client.getTransactionStatus();
    if (status === null) {
      throw new Retry('GUARD_CONNECTION', 'the client is not connected'); // and would queue what it is asked
    }
    if (status !== IDLE && !this.#isLost) {
      throw new Retry('GUARD_CONNECTION_IN_USE', 'the connection is inside a transaction');
    }
    try {
      await this.#query('BEGIN');
      this.#isOpen = true;
    } catch (error) {
      throw this.retryOf(error, 'GUARD_CONNECTION');
    }
  }

  async requireTransaction(): Promise<void> {
    if (this.#isIdle()) {
      throw new Retry('GUARD_NO_TRANSACTION', 'the connection is outside of a transaction');
    }
  }

  async requireNotEnded(): Promise<void> {
    if (!this.#isLost && this.#isIdle()) {
      throw new Unknown('GUARD_BODY_COMMITTED', "the effect ended the guard's transaction");
    }
  }

  async rollBack(): Promise<void> {
    if (!this.#isOpen || this.#isLost) {
      return;
    }
    this.#isOpen = false;
    try {
      await this.#query('ROLLBACK');
    } catch {
      this.#cut();
    }
  }

  #cut(): void {
    this.#isLost = true;
    const client = this.#client as ClientBase & Partial<Pick<Client, 'end'>>;
    client.end?.().catch(() => undefined); // gone already, as it is to be
  }

  async commit(): Promise<void> {
    let isWarned = false;
    const onNotice = (notice: { code?: string | undefined }): void => {
      isWarned ||= !LESS_THAN_A_WARNING.test(notice.code ?? '');
    };
    this.#client.on('notice', onNotice);
    try {
      await this.#commit();
    } finally {
      this.#client.off('notice', onNotice);
    }
    if (isWarned) {
      // 'committed locally' when a synchronous standby did not answer is not a yes
      throw new Unknown('GUARD_COMMIT_LOCAL', 'the commit was confirmed with a warning');
    }
  }

  async #commit(): Promise<void> {
    let command: string;
    try {
      ({ command } = await this.#query('COMMIT'));
      this.#isOpen = false;
    } catch (error) {
      // After a mere no the session goes on; an error that ends the session says nothing about the COMMIT.
      await this.rollBack();
      const sqlstate = sqlstateOf(error);
      if (sqlstate !== '' && sqlstate !== STATEMENT_COMPLETION_UNKNOWN && !this.#isLost) {
        throw this.retryOf(error, '');
      }
      throw new Unknown('GUARD_COMMIT_UNKNOWN', textOfError(error));
    }
    if (command !== 'COMMIT') {
      throw new Retry('GUARD_ROLLED_BACK', 'the transaction had failed before its commit');
    }
  }

  // The statements.

  async enter(): Promise<Entry> {
    const { row } = await this.#query(ENTER, this.#enter);
    return [row[0], row[1]];
  }

  enterNew(): Promise<Entry> {
    return this.enter();
  }

  async noEffect(): Promise<Entry> {
    const { row } = await this.#query(NO_EFFECT, this.#enter);
    return [row[0], row[1]];
  }

  async done(output: Uint8Array): Promise<void> {
    await this.#query(DONE, [...this.#identity, hexOf(output)]);
  }

  /** The compensation is on record already. */
  async doneOfEmpty(): Promise<void> {}

  retryOf(error: unknown, code: string): Retry {
    const sqlstate = sqlstateOf(error);
    this.#isLost ||= SHUTDOWN.test(sqlstate); // the end of the connection follows
    if (this.#isLost) {
      code = 'GUARD_CONNECTION';
    } else if (sqlstate !== '') {
      code = `GUARD_SQLSTATE_${sqlstate}`;
    }
    return new Retry(code, textOfError(error));
  }
}

/** The SQLSTATE of a server's error, or of what it wraps; '': it is none of a server's. */
function sqlstateOf(error: unknown): string {
  for (const cause of causesOf(error)) {
    const { code, severity } = cause as { code?: unknown; severity?: unknown };
    if (typeof code === 'string' && severity !== undefined) {
      return code;
    }
  }
  return '';
}

function driverOf(task: Task, client: ClientBase, options: GuardOptions): PgDriver {
  refuseProbe(task);
  if (typeof (client as Partial<ClientBase> | null)?.getTransactionStatus !== 'function') {
    throw new TypeError('the guard takes a client of pg 8.21 or newer (not of pg-native)');
  }
  return new PgDriver(client, task, options.evenWithoutAction ?? false);
}

/**
 * One guarded transaction: begins it, enters, calls `effect(client)` if the guard says PROCEED, done,
 * COMMIT. Answers the output of DONE, or throws what is to be reported:
 *
 * - DUPLICATE: AlreadyDone (ours, with the stored output); EMPTY: answers no bytes
 * - REFUSED: Rejected GUARD_REFUSED; STALE: Retry GUARD_STALE
 * - an error or a lost connection before COMMIT: Retry GUARD_SQLSTATE_..., GUARD_CONNECTION,
 *   GUARD_BODY_FAILED
 * - a COMMIT without an answer: Unknown GUARD_COMMIT_UNKNOWN
 *
 * `effect` works on `client` and must not end the transaction. What it throws rolls it back; Rejected is
 * remembered by the guard first. `on` is a pool, which gives a client for as long as it takes, or a
 * client that is outside of a transaction and used by nobody else meanwhile. No transaction stays open.
 */
export async function run(
  task: Task,
  on: Pool | ClientBase,
  effect: (client: ClientBase) => unknown,
  options: GuardOptions = {},
): Promise<Uint8Array> {
  if (!isPool(on)) {
    return runGuarded(task, driverOf(task, on, options), () => effect(on), options);
  }
  refuseProbe(task);
  let client;
  try {
    client = await on.connect();
  } catch (error) {
    throw new Retry('GUARD_CONNECTION', textOfError(error));
  }
  let driver: PgDriver | undefined;
  try {
    driver = driverOf(task, client, options);
    return await runGuarded(task, driver, () => effect(client), options);
  } finally {
    client.release(driver?.isLost);
  }
}

function isPool(on: Pool | ClientBase): on is Pool {
  return typeof (on as Partial<Pool>).totalCount === 'number';
}

/** The first thing of the caller's transaction. Errors of the driver come as they are. */
export async function enter(task: Task, client: ClientBase, options: GuardOptions = {}): Promise<Guarded> {
  const driver = driverOf(task, client, options);
  await driver.requireTransaction();
  return guardedOf(await driver.enter());
}

/** The last thing of the caller's transaction, after PROCEED. */
export async function done(task: Task, client: ClientBase, output?: unknown): Promise<void> {
  await driverOf(task, client, {}).done(task.outputBytes(output));
}

/**
 * In a transaction of its own after a business no was rolled back: remembers the fence. RECORDED, or the
 * answer of enter: somebody was faster, and that counts.
 */
export async function noEffect(task: Task, client: ClientBase, options: GuardOptions = {}): Promise<Guarded> {
  const driver = driverOf(task, client, options);
  await driver.requireTransaction();
  return guardedOf(await driver.noEffect());
}
