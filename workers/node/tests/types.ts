/** Handlers as users write them: only compiled, by ../test.sh. What is marked must not compile. */

import { StringValueSchema, TimestampSchema } from '@bufbuild/protobuf/wkt';
import { StringValue } from 'google-protobuf/google/protobuf/wrappers_pb';
import * as mysql from 'mysql2/promise';
import * as pg from 'pg';
import { AlreadyDone, type Codec, Retry, type Task, Worker } from 'sagad';
import { Client, SagaError, SagaService, SagaState } from 'sagad/client';
import * as fake from 'sagad/fake';
import * as onMysql from 'sagad/guard/mysql2';
import * as onPg from 'sagad/guard/pg';

interface Payment {
  amount: number;
}
const payments: Codec<Payment> = {
  name: 'bank.v1.Payment',
  decode: (bytes) => ({ amount: bytes.length }),
  encode: ({ amount }) => new Uint8Array(amount),
};

const worker = new Worker({ addresses: ['127.0.0.1:7233'], id: 'types', logger: console });

worker
  .handle('bytes', async (task: Task) => task.request())
  .handle('nothing', () => undefined)
  .handle('fails', async () => {
    throw new Retry('BUSY', '', { afterMs: 5 });
  })
  .handle('schemas', { request: StringValueSchema, output: TimestampSchema }, async (task, name) => {
    const earlier = task.outputOf('first', TimestampSchema);
    return { seconds: BigInt(name.value.length) + (earlier?.seconds ?? 0n) };
  })
  .handle('already', { output: TimestampSchema }, () => {
    throw new AlreadyDone({ seconds: 1n }, { ours: true });
  })
  .handle(
    'guarded',
    { max: 4, request: StringValueSchema, output: TimestampSchema },
    (_task, _name) => new Uint8Array(),
  )
  .handle('google', { request: StringValue, output: StringValue }, (_task, name) => {
    const answer = new StringValue();
    answer.setValue(name.getValue());
    return answer;
  })
  .handle('own', { request: payments, output: payments }, (_task, { amount }) => ({ amount: amount + 1 }));

// @ts-expect-error: without an output's type it is bytes
worker.handle('wrong', () => ({ seconds: 1n }));
// @ts-expect-error: no such field
worker.handle('wrong', { output: TimestampSchema }, () => ({ secs: 1n }));
// @ts-expect-error: without a request's type there is no second argument
worker.handle('wrong', (_task, _request) => undefined);

// The client.

const client = new Client({ addresses: ['127.0.0.1:7233'], tls: { ca: 'pem' } });
void client.start('hello', StringValueSchema, { value: 'world' }, { sagaId: 'one', startAt: new Date() });
void client.start('hello', new Uint8Array(), { labels: { a: 'b' } });
void client.start('hello');
void client.wait('hello', 'world', { orParked: true }).then(({ state, steps }) => state === SagaState.PARKED && steps);
void client.call(SagaService.method.signalSaga, { saga: { sagaId: 'world' }, signal: 'paid' }).then(
  ({ duplicate }) => duplicate,
  (error: unknown) => error instanceof SagaError && error.fields.input,
);
export async function states(): Promise<SagaState[]> {
  const seen: SagaState[] = [];
  for await (const { state } of client.watch('hello', 'world', { signal: AbortSignal.timeout(1000) })) {
    seen.push(state);
  }
  return seen;
}
// @ts-expect-error: no such field
void client.start('hello', StringValueSchema, { text: 'world' });
// @ts-expect-error: what is streamed is watched
void client.call(SagaService.method.watchSaga, {});

// The guard: whatever the effect answers, the guard answers bytes, which every handler may return.

const pool = new pg.Pool();
const shop = mysql.createPool('mysql://127.0.0.1/shop');
worker
  .handle('debit', { output: TimestampSchema }, (task) =>
    onPg.run(task, pool, async (conn) => (await conn.query('SELECT 1')).rowCount),
  )
  .handle('order', (task) => onMysql.run(task, shop, async (conn) => void (await conn.query('SELECT 1'))))
  .handle('pieces', async (task) => {
    const conn = await pool.connect();
    const { answer, output } = await onPg.enter(task, conn, { evenWithoutAction: true });
    await onPg.done(task, conn, output);
    return answer === 'PROCEED' ? undefined : output;
  });
// @ts-expect-error: a pool of another driver
void onPg.run(undefined as unknown as Task, shop, () => undefined);

// The fake.

void fake
  .run(worker, 'schemas', { value: 'x' }, { fence: 2n, stop: 'draining' })
  .then((result) => [result.kind === 'DONE', result.outputAs(TimestampSchema).seconds]);
void new fake.Saga(worker, { value: 'x' }).step('first', 'schemas', { compensation: 'nothing' }).play();
