/** Handlers as users write them: only compiled, by ../test.sh. What is marked must not compile. */

import { StringValueSchema, TimestampSchema } from '@bufbuild/protobuf/wkt';
import { StringValue } from 'google-protobuf/google/protobuf/wrappers_pb';
import { AlreadyDone, type Codec, Retry, type Task, Worker } from 'sagad';

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
  .handle('guarded', { max: 4, request: StringValueSchema, output: TimestampSchema }, (_task, _name) => new Uint8Array())
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
