/** The bank's steps, in the bank's own database. Each is one guarded transaction. */

import pg from 'pg';
import { Rejected, type Task } from 'sagad';
import * as guard from 'sagad/guard/pg';

import type { LedgerRequest, Payment, RefundRequest, ReverseRequest } from './gen/settlement_pb.js';

const ACCOUNTS = 50;

/** What no caller of ours makes, but a person may. */
function checked(payment: Payment | undefined): Payment {
  if (!payment) {
    throw new Rejected('BAD_REQUEST', 'input: is missing');
  }
  const { account, amountCents } = payment;
  if (account < 1 || account > ACCOUNTS) {
    throw new Rejected('BAD_REQUEST', `account: is ${account}, must be 1 to ${ACCOUNTS}`);
  }
  if (amountCents < 1n) {
    throw new Rejected('BAD_REQUEST', `amount_cents: is ${amountCents}, must be positive`);
  }
  return payment;
}

/** The id of a row that this one is about; NULL: nobody knows it, since its answer was lost. */
const known = (id: bigint | undefined): bigint | null => id || null;

export class Bank {
  readonly #pool: pg.Pool;

  constructor(pool: pg.Pool) {
    this.#pool = pool;
  }

  debit(task: Task, request: Payment): Promise<Uint8Array> {
    const { paymentId, account, amountCents } = checked(request);
    return guard.run(task, this.#pool, async (client) => {
      const { rows } = await client.query(
        `WITH moved AS (UPDATE accounts SET balance_cents = balance_cents - $3
                         WHERE id = $2 AND balance_cents >= $3 RETURNING id, balance_cents),
              made AS (INSERT INTO debits (settlement_id, account, amount_cents)
                       SELECT $1, id, $3 FROM moved RETURNING debit_id)
         SELECT debit_id, balance_cents FROM made, moved`,
        [paymentId, account, amountCents],
      );
      if (rows.length === 0) {
        throw new Rejected('INSUFFICIENT_FUNDS', 'the account does not hold that much');
      }
      return { debitId: BigInt(rows[0].debit_id), balanceCents: BigInt(rows[0].balance_cents) };
    });
  }

  refund(task: Task, { input, debitAccount }: RefundRequest): Promise<Uint8Array> {
    const { paymentId, account, amountCents } = checked(input);
    return guard.run(task, this.#pool, async (client) => {
      const { rowCount } = await client.query(
        `WITH moved AS (UPDATE accounts SET balance_cents = balance_cents + $3 WHERE id = $2 RETURNING id)
         INSERT INTO refunds (settlement_id, debit_id, account, amount_cents) SELECT $1, $4, id, $3 FROM moved`,
        [paymentId, account, amountCents, known(debitAccount?.debitId)],
      );
      if (rowCount !== 1) {
        throw new Error('the account is gone');
      }
    });
  }

  writeLedger(task: Task, { input, debitAccount }: LedgerRequest): Promise<Uint8Array> {
    const payment = checked(input);
    return guard.run(task, this.#pool, async (client) => ({
      entryId: await enter(client, payment, 'SETTLEMENT', payment.amountCents, debitAccount?.debitId),
    }));
  }

  reverseLedger(task: Task, { input, writeLedger }: ReverseRequest): Promise<Uint8Array> {
    const payment = checked(input);
    return guard.run(task, this.#pool, async (client) => {
      await enter(client, payment, 'REVERSAL', -payment.amountCents, writeLedger?.entryId);
    });
  }
}

async function enter(
  client: pg.ClientBase,
  { paymentId, account }: Payment,
  kind: 'SETTLEMENT' | 'REVERSAL',
  cents: bigint,
  about: bigint | undefined,
): Promise<bigint> {
  const { rows } = await client.query(
    `INSERT INTO ledger (settlement_id, kind, account, amount_cents, about_id)
     VALUES ($1, $2, $3, $4, $5) RETURNING entry_id`,
    [paymentId, kind, account, cents, known(about)],
  );
  return BigInt(rows[0].entry_id);
}
