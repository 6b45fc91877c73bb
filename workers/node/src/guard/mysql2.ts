/**
 * The guard of a participant's own MySQL or MariaDB, with `mysql2/promise`: makes an effect there happen
 * once, and never after its compensation. See sql/guard/README.md for the tables and the answers.
 *
 *     import * as guard from 'sagad/guard/mysql2';
 *
 *     guard.run(task, pool, async (conn) => {
 *       await conn.execute('UPDATE account SET ...');
 *       return toBinary(ReceiptSchema, receipt);
 *     });
 *
 * `run` does it all in one transaction. `enter`, `done` and `noEffect` are the same in pieces, for a
 * transaction that the caller begins and ends.
 */

import type { Connection, Pool, PoolConnection, ResultSetHeader, RowDataPacket, TypeCastField } from 'mysql2/promise';

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

/** Flags of what the server says with each OK. */
const IN_TRANSACTION = 1;
const AUTOCOMMIT = 2;

const DUPLICATE_KEY = 1062;
/** COMMIT was refused: a deadlock, or rolled back by group replication. */
const COMMIT_ROLLED_BACK: readonly number[] = [1213, 3101];
/** The server has rolled back the whole transaction, or may have: deadlock, lock time-out, snapshot too old. */
const ROLLED_BACK: readonly number[] = [1213, 1205, 1020, 3101];

const COLUMNS = '(namespace, definition, saga_id, run, step, operation, fence, state, saga_started_us)';
const FLOOR = '(SELECT floor_us FROM saga_guard_floor WHERE only_row = 1 LOCK IN SHARE MODE)';

/** Rows as they come, whatever the connection makes of them. */
const AS_TEXT = { rowsAsArray: true, typeCast: (field: TypeCastField) => field.string() };

/**
 * The statements of sql/guard/mysql.sql, which says why they are as they are; and, in place of 3 and 4 for
 * an action that comes for the first time, one that says what those two would say then.
 *
 * Texts and bytes go as hexadecimal digits: no SQL mode and no character set changes those.
 */
function statementsOf(task: Task, evenWithoutAction: boolean) {
  const id = identityOf(task);
  const text = (value: string): string => `_ascii X'${Buffer.from(value).toString('hex')}'`;
  const [namespace, definition, step] = [text(id.namespace), text(id.definition), text(id.step)];
  const sagaId = `X'${Buffer.from(id.sagaId).toString('hex')}'`;
  const values = `${namespace}, ${definition}, ${sagaId}, ${id.run}, ${step}`;
  const isStep =
    `namespace = ${namespace} AND definition = ${definition} AND saga_id = ${sagaId}` +
    ` AND run = ${id.run} AND step = ${step}`;
  const ownEntered = ` WHERE ${isStep} AND operation = '${id.operation}' AND state = 'ENTERED'`;
  return {
    enterFirst:
      `INSERT INTO saga_guard ${COLUMNS} SELECT ${values}, 'ACTION', ${id.fence}, 'ENTERED', ${id.startedUs}` +
      ` FROM saga_guard_floor WHERE only_row = 1 AND floor_us <= ${id.startedUs} LOCK IN SHARE MODE`,
    blockAction:
      `INSERT INTO saga_guard ${COLUMNS} VALUES (${values}, 'ACTION', ${id.fence}, 'BLOCKED', ${id.startedUs})` +
      " ON DUPLICATE KEY UPDATE state = CASE state WHEN 'DONE' THEN 'UNDONE' WHEN 'SEEN' THEN 'BLOCKED'" +
      ' ELSE state END',
    claim:
      `INSERT INTO saga_guard ${COLUMNS}` +
      ` VALUES (${values}, '${id.operation}', ${id.fence}, 'ENTERED', ${id.startedUs})` +
      " ON DUPLICATE KEY UPDATE state = CASE WHEN state = 'ENTERED' THEN 'LEFT_OPEN'" +
      ` WHEN state = 'SEEN' AND fence <= ${id.fence} THEN 'ENTERED' ELSE state END,` +
      ` fence = GREATEST(fence, ${id.fence})`,
    askAction:
      "SELECT CASE WHEN state IN ('UNDONE', 'BLOCKED') THEN 'REFUSED' WHEN state = 'DONE' THEN 'DUPLICATE'" +
      ` WHEN state = 'LEFT_OPEN' THEN 'LEFT_OPEN' WHEN fence > ${id.fence} OR saga_started_us < ${FLOOR}` +
      " THEN 'STALE' ELSE 'PROCEED' END, HEX(output)" +
      ` FROM saga_guard WHERE ${isStep} AND operation = 'ACTION' FOR UPDATE`,
    askCompensation:
      "SELECT CASE WHEN own.state = 'DONE' THEN 'DUPLICATE'" +
      " WHEN own.state = 'LEFT_OPEN' OR action.state IN ('ENTERED', 'LEFT_OPEN') THEN 'LEFT_OPEN'" +
      ` WHEN GREATEST(own.fence, action.fence) > ${id.fence} OR own.saga_started_us < ${FLOOR} THEN 'STALE'` +
      ` WHEN action.state = 'BLOCKED' AND NOT ${evenWithoutAction ? 1 : 0} THEN 'EMPTY'` +
      " ELSE 'PROCEED' END, HEX(own.output)" +
      ' FROM saga_guard action JOIN saga_guard own USING (namespace, definition, saga_id, run, step)' +
      ` WHERE ${isStep} AND action.operation = 'ACTION' AND own.operation = 'COMPENSATION' FOR UPDATE`,
    done: (output: Uint8Array) => `UPDATE saga_guard SET state = 'DONE', output = X'${hexOf(output)}'${ownEntered}`,
    noEffect: `UPDATE saga_guard SET state = 'SEEN'${ownEntered}`,
    unblock: `UPDATE saga_guard SET state = 'DONE' WHERE ${isStep} AND operation = 'ACTION' AND state = 'UNDONE'`,
    compensates: id.operation === 'COMPENSATION',
  };
}

class Mysql2Driver implements Driver {
  readonly #conn: Connection;
  readonly #sql: ReturnType<typeof statementsOf>;
  #isOpen = false; // a transaction that was begun here
  #isLost = false;

  constructor(conn: Connection, task: Task, evenWithoutAction: boolean) {
    this.#conn = conn;
    this.#sql = statementsOf(task, evenWithoutAction);
  }

  // The connection.

  get isLost(): boolean {
    return this.#isLost;
  }

  readonly #onLost = (): void => {
    this.#isLost = true;
  };

  watch(): void {
    this.#conn.on('error', this.#onLost);
  }

  unwatch(): void {
    if (!this.#isLost) {
      this.#conn.off('error', this.#onLost);
    }
  }

  async #execute(sql: string): Promise<ResultSetHeader> {
    const [result] = await this.#conn.query<ResultSetHeader>(sql);
    return result;
  }

  async #ask(sql: string): Promise<Entry> {
    const [rows] = await this.#conn.query<RowDataPacket[][]>({ sql, ...AS_TEXT });
    const [answer, outputHex] = rows[0] ?? [];
    return [answer, outputHex];
  }

  /** What the server says now: of a transaction that a deadlock has ended nobody was told. */
  async #status(): Promise<number> {
    const { serverStatus } = (await this.#execute('DO 0')) as ResultSetHeader & { serverStatus: number };
    return serverStatus;
  }

  async begin(): Promise<void> {
    try {
      if ((await this.#status()) & IN_TRANSACTION) {
        throw new Retry('GUARD_CONNECTION_IN_USE', 'the connection is inside a transaction');
      }
      await this.#execute('START TRANSACTION');
      this.#isOpen = true;
    } catch (error) {
      throw error instanceof Retry ? error : this.retryOf(error, 'GUARD_CONNECTION');
    }
  }

  /** Without one each statement would commit by itself. */
  async requireTransaction(): Promise<void> {
    if (((await this.#status()) & (IN_TRANSACTION | AUTOCOMMIT)) === AUTOCOMMIT) {
      throw new Retry('GUARD_NO_TRANSACTION', 'the connection is outside of a transaction');
    }
  }

  async requireNotEnded(error?: unknown): Promise<void> {
    if (ROLLED_BACK.includes(numberOf(error))) {
      return; // it has ended, and nothing of it stands
    }
    let status: number;
    try {
      status = await this.#status();
    } catch (lost) {
      this.#see(lost);
      if (error !== undefined) {
        return; // what the effect said first tells more
      }
      throw this.retryOf(lost, 'GUARD_CONNECTION');
    }
    if ((status & IN_TRANSACTION) === 0) {
      throw new Unknown('GUARD_BODY_COMMITTED', "the effect ended the guard's transaction");
    }
  }

  async rollBack(): Promise<void> {
    if (!this.#isOpen) {
      return;
    }
    this.#isOpen = false;
    try {
      await this.#execute('ROLLBACK AND NO CHAIN NO RELEASE');
    } catch {
      this.#isLost = true;
      this.#conn.destroy();
    }
  }

  async commit(): Promise<void> {
    try {
      await this.#execute('COMMIT AND NO CHAIN NO RELEASE');
      this.#isOpen = false;
    } catch (error) {
      if (COMMIT_ROLLED_BACK.includes(numberOf(error))) {
        throw this.retryOf(error, 'GUARD_CONNECTION');
      }
      throw new Unknown('GUARD_COMMIT_UNKNOWN', textOfError(error));
    }
  }

  // The statements.

  async enter(): Promise<Entry> {
    if (this.#sql.compensates) {
      await this.#execute(this.#sql.blockAction);
    }
    await this.#execute(this.#sql.claim);
    return this.#ask(this.#sql.compensates ? this.#sql.askCompensation : this.#sql.askAction);
  }

  async enterNew(): Promise<Entry> {
    if (this.#sql.compensates) {
      return this.enter();
    }
    try {
      if ((await this.#execute(this.#sql.enterFirst)).affectedRows === 1) {
        return ['PROCEED', ''];
      }
    } catch (error) {
      if (numberOf(error) !== DUPLICATE_KEY) {
        throw error;
      }
    }
    // It was here before, or is below the floor. In a new transaction: the row is locked, but shared, and
    // two that then want it for themselves are a deadlock.
    await this.rollBack();
    await this.begin();
    return this.enter();
  }

  async noEffect(): Promise<Entry> {
    const entry = await this.enter();
    if (entry[0] !== 'PROCEED') {
      return entry;
    }
    await this.#onEntered(this.#sql.noEffect);
    if (this.#sql.compensates) {
      await this.#execute(this.#sql.unblock);
    }
    return ['RECORDED', ''];
  }

  async done(output: Uint8Array): Promise<void> {
    await this.#onEntered(this.#sql.done(output));
  }

  async doneOfEmpty(): Promise<void> {
    await this.done(new Uint8Array());
  }

  /** Statements that belong to an enter: without its row they do nothing. */
  async #onEntered(sql: string): Promise<void> {
    if ((await this.#execute(sql)).affectedRows !== 1) {
      throw new Retry('GUARD_NOT_ENTERED', "the row of this transaction's enter is gone");
    }
  }

  #see(error: unknown): void {
    this.#isLost ||= causesOf(error).some((cause) => (cause as { fatal?: unknown }).fatal === true);
  }

  retryOf(error: unknown, code: string): Retry {
    this.#see(error);
    const number = numberOf(error);
    if (number !== 0) {
      code = `GUARD_MYSQL_${number}`;
    } else if (this.#isLost) {
      code = 'GUARD_CONNECTION';
    }
    return new Retry(code, textOfError(error));
  }
}

/** The number of a server's error, or of what it wraps; 0: it is of the client, or of nobody's. */
function numberOf(error: unknown): number {
  for (const cause of causesOf(error)) {
    const { errno, sqlState } = cause as { errno?: unknown; sqlState?: unknown };
    if (typeof errno === 'number' && typeof sqlState === 'string' && !(errno >= 2000 && errno < 3000)) {
      return errno;
    }
  }
  return 0;
}

function driverOf(task: Task, conn: Connection, options: GuardOptions): Mysql2Driver {
  refuseProbe(task);
  const { query, destroy, promise } = (conn ?? {}) as Partial<Connection> & { promise?: unknown };
  if (typeof query !== 'function' || typeof destroy !== 'function' || promise !== undefined) {
    throw new TypeError('the guard takes a connection of mysql2/promise');
  }
  return new Mysql2Driver(conn, task, options.evenWithoutAction ?? false);
}

/**
 * One guarded transaction: begins it, enters, calls `effect(conn)` if the guard says PROCEED, done,
 * COMMIT. Answers the output of DONE, or throws what is to be reported:
 *
 * - DUPLICATE: AlreadyDone (ours, with the stored output); EMPTY: answers no bytes
 * - REFUSED: Rejected GUARD_REFUSED; STALE: Retry GUARD_STALE
 * - an error or a lost connection before COMMIT: Retry GUARD_MYSQL_..., GUARD_CONNECTION,
 *   GUARD_BODY_FAILED
 * - a COMMIT without an answer: Unknown GUARD_COMMIT_UNKNOWN
 *
 * `effect` works on `conn` and must not end the transaction. What it throws rolls it back; Rejected is
 * remembered by the guard first. `on` is a pool, which gives a connection for as long as it takes, or a
 * connection that is outside of a transaction and used by nobody else meanwhile. No transaction stays
 * open.
 */
export async function run(
  task: Task,
  on: Pool | Connection,
  effect: (conn: Connection) => unknown,
  options: GuardOptions = {},
): Promise<Uint8Array> {
  if (!isPool(on)) {
    return runGuarded(task, driverOf(task, on, options), () => effect(on), options);
  }
  refuseProbe(task);
  let conn: PoolConnection;
  try {
    conn = await on.getConnection();
  } catch (error) {
    throw new Retry('GUARD_CONNECTION', textOfError(error));
  }
  try {
    return await runGuarded(task, driverOf(task, conn, options), () => effect(conn), options);
  } finally {
    conn.release(); // does nothing where it was lost
  }
}

function isPool(on: Pool | Connection): on is Pool {
  return typeof (on as Partial<Pool>).getConnection === 'function';
}

/** The first thing of the caller's transaction. Errors of the driver come as they are. */
export async function enter(task: Task, conn: Connection, options: GuardOptions = {}): Promise<Guarded> {
  const driver = driverOf(task, conn, options);
  await driver.requireTransaction();
  return guardedOf(await driver.enter());
}

/** The last thing of the caller's transaction, after PROCEED and after EMPTY. */
export async function done(task: Task, conn: Connection, output?: unknown): Promise<void> {
  await driverOf(task, conn, {}).done(task.outputBytes(output));
}

/**
 * In a transaction of its own after a business no was rolled back: remembers the fence. RECORDED, or the
 * answer of enter: somebody was faster, and that counts.
 */
export async function noEffect(task: Task, conn: Connection, options: GuardOptions = {}): Promise<Guarded> {
  const driver = driverOf(task, conn, options);
  await driver.requireTransaction();
  return guardedOf(await driver.noEffect());
}
