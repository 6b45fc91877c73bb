/**
 * Runs the steps of sagas in a Node program.
 *
 *     import { Rejected, Worker } from 'sagad';
 *
 *     const worker = new Worker({ addresses: ['127.0.0.1:7233'], id: 'settle-1', signals: true });
 *     worker.handle('account.debit', { max: 16, request: PaymentSchema, output: ReceiptSchema },
 *       async (task, payment) => ({ debitId: 7n }));
 *     await worker.run();
 *
 * `sagad/guard/pg` and `sagad/guard/mysql2` make an effect in your own database happen once, `sagad/client`
 * starts sagas, `sagad/fake` runs handlers in unit tests.
 */

export type { Stats } from './cells.js';
export { type Classify, classify } from './classify.js';
export { type Codec, codecOf, type MessageInitOf, type MessageOf, type MessageType } from './codec.js';
export { Clock } from './clock.js';
export type { Fields, Level, Logger } from './log.js';
export type { TlsOptions } from './messages.js';
export {
  AlreadyDone,
  type AlreadyDoneOptions,
  NotDone,
  type Outcome,
  type OutcomeKind,
  Rejected,
  Reported,
  Retry,
  type RetryOptions,
  StillUnknown,
  Unknown,
} from './outcome.js';
export { proveSends } from './sends.js';
export { type ActionOutcome, type Lease, LeaseLost, type Operation, type Probed, type Stop, Task } from './task.js';
export { VERSION } from './version.js';
export { type HandlerFunction, type HandlerOptions, type HandlerOutput, Worker, type WorkerOptions } from './worker.js';
