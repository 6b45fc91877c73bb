/** What a handler sees of its task: identity, payload, time, and the wish that it stops. */

import type { Timestamp } from '@bufbuild/protobuf/wkt';

import { type Codec, codecOf, type MessageOf, type MessageType } from './codec.js';
import { OperationKind } from './gen/saga/v1/saga_pb.js';
import { ActionOutcome_Kind, type Task as TaskMessage } from './gen/saga/v1/worker_pb.js';
import { bytesOf, Rejected, Retry, textOfError } from './outcome.js';

/** What a task is asked to do for its step. */
export type Operation = 'ACTION' | 'COMPENSATION' | 'PROBE';

/** What is known of the action that a compensation is to take back. NONE: the task is no compensation,
 *  and no probe of one. DONE: it took effect, `actionOutput` is what it answered. MAYBE: it may have. */
export type ActionOutcome = 'NONE' | 'DONE' | 'MAYBE';

/** Why a handler should stop, each reason stronger than the one before.
 *
 *  draining    the worker ends soon: finish if it does not take long
 *  cancelled   the saga turned back or was stopped: an early end saves work
 *  lost        the lease is not certainly ours any more: `task.signal` is aborted, too */
export type Stop = 'draining' | 'cancelled' | 'lost';

/** What a probe asks about. `try` and `fence` are 0 where the attempt was none of this saga's. */
export interface Probed {
  readonly operation: Operation;
  readonly try: number;
  readonly fence: bigint;
  readonly leasedAt: Date | undefined;
  readonly endedAt: Date | undefined;
}

/** The reason of `task.signal`: 80 % of the last confirmed lease have passed, the lease was reported lost,
 *  or the attempt time is over. */
export class LeaseLost extends Error {
  constructor() {
    super('the lease of this task is over');
    this.name = 'LeaseLost';
  }
}

/** How long a task is ours, now. */
export interface Lease {
  /** Milliseconds until 80 % of the last confirmed lease have passed; 0: over. */
  leaseLeftMs(): number;
  /** Milliseconds until the attempt time is over; 0: over. */
  timeLeftMs(): number;
  stop(): Stop | undefined;
}

/** Of a task that was made by hand: ours for ever. */
const FOR_EVER: Lease = {
  leaseLeftMs: () => Infinity,
  timeLeftMs: () => Infinity,
  stop: () => undefined,
};

const EMPTY = new Uint8Array(0);
const OPERATIONS: Readonly<Record<OperationKind, Operation>> = {
  [OperationKind.UNSPECIFIED]: 'ACTION', // of what a probe asks about, where it does not say
  [OperationKind.ACTION]: 'ACTION',
  [OperationKind.COMPENSATION]: 'COMPENSATION',
  [OperationKind.PROBE]: 'PROBE',
};

/** To the millisecond, which is what a Date holds. */
function dateOf(time: Timestamp | undefined): Date | undefined {
  return time && new Date(Number(time.seconds) * 1000 + Math.floor(time.nanos / 1e6));
}

/** A message of that type; Rejected BAD_REQUEST where the bytes are none. */
function read<T extends MessageType>(bytes: Uint8Array, type: T, what: string): MessageOf<T> {
  const codec = codecOf(type);
  try {
    return codec.decode(bytes);
  } catch (error) {
    const name = codec.name || 'message of its type';
    throw new Rejected('BAD_REQUEST', `the ${what} is no ${name}: ${textOfError(error)}`, { cause: error });
  }
}

/** Retry where the definition names another type: another version of the worker may have it. */
function checkType(declared: string, codec: Codec<unknown, never>, what: string): void {
  if (declared && codec.name && declared !== codec.name) {
    throw new Retry('WRONG_TYPE', `the ${what} is ${declared}, this worker has ${codec.name}`);
  }
}

/** One task. What it says of the lease is right at once, also when the event loop has been blocked, and
 *  after the handler has returned. */
export class Task {
  /** As it came. Do not change it. */
  readonly message: TaskMessage;
  readonly #lease: Lease;
  readonly #output: Codec<unknown, never> | undefined;
  #abort: AbortController | undefined;
  #stopped: Promise<Stop> | undefined;
  #resolve: ((stop: Stop) => void) | undefined;
  #told: Stop | undefined;

  /** For the worker and for sagad/fake. `output`: the type that the handler returns. */
  constructor(message: TaskMessage, lease: Lease = FOR_EVER, output?: MessageType) {
    this.message = message;
    this.#lease = lease;
    this.#output = output && codecOf(output);
  }

  toString(): string {
    const { namespace, definition, sagaId, run, step, try: number, fence } = this.message;
    return `${namespace}/${definition}/${sagaId} run ${run} ${step} ${this.operation} try ${number} fence ${fence}`;
  }

  // The identity. The saga id is the business key.

  get namespace(): string {
    return this.message.namespace;
  }

  get definition(): string {
    return this.message.definition;
  }

  get sagaId(): string {
    return this.message.sagaId;
  }

  get run(): number {
    return this.message.run;
  }

  /** The saga's own id, as a UUID is written. */
  get uid(): string {
    const hex = Buffer.from(this.message.sagaUid).toString('hex');
    return hex.replace(/^(.{8})(.{4})(.{4})(.{4})/, '$1-$2-$3-$4-');
  }

  /** The same, 16 bytes. */
  get uidBytes(): Uint8Array {
    return this.message.sagaUid;
  }

  get revision(): number {
    return this.message.revision;
  }

  /** When the saga started, by the database's clock. */
  get startedAt(): Date {
    return dateOf(this.message.sagaStartTime) ?? new Date(0);
  }

  /** The same in microseconds since 1970, as the guard wants it. */
  get startedAtUs(): bigint {
    const time = this.message.sagaStartTime;
    return time ? time.seconds * 1_000_000n + BigInt(Math.floor(time.nanos / 1000)) : 0n;
  }

  get step(): string {
    return this.message.step;
  }

  get operation(): Operation {
    return OPERATIONS[this.message.operation];
  }

  get handler(): string {
    return this.message.handler;
  }

  /** Counts from 1. */
  get try(): number {
    return this.message.try;
  }

  get guarded(): boolean {
    return this.message.guarded;
  }

  /** For your own database: a newer one wins. */
  get fence(): bigint {
    return this.message.fence;
  }

  /** For the third party: the same on every try. A probe's: that of the attempts it asks about. */
  get idempotencyKey(): string {
    return this.message.idempotencyKey;
  }

  get labels(): Readonly<Record<string, string>> {
    return this.message.labels;
  }

  /** W3C trace context; '': none. */
  get traceparent(): string {
    return this.message.traceparent;
  }

  // Payload: bytes, or a message of the type that is given (Rejected BAD_REQUEST if it is none).

  /** What the operation is asked: a message of `requestType`, as the definition puts it together. Where it
   *  does not, the saga's input. Retry WRONG_TYPE if the definition names another type. */
  request(): Uint8Array;
  request<T extends MessageType>(type: T): MessageOf<T>;
  request(type?: MessageType): unknown {
    const bytes = this.requestType ? this.message.request : this.message.input;
    if (type === undefined) {
      return bytes;
    }
    checkType(this.requestType, codecOf(type), 'request');
    return read(bytes, type, 'request');
  }

  /** Full name of the request's type; '': the definition says none. */
  get requestType(): string {
    return this.message.requestType;
  }

  /** Full name of the message that the output must be; '': bytes. */
  get outputType(): string {
    return this.message.outputType;
  }

  /** The saga's input; empty where there is a request. */
  input(): Uint8Array;
  input<T extends MessageType>(type: T): MessageOf<T>;
  input(type?: MessageType): unknown {
    return type === undefined ? this.message.input : read(this.message.input, type, 'input');
  }

  /** What an earlier step answered; undefined: it has no output (yet, or ever), or there is a request. */
  outputOf(step: string): Uint8Array | undefined;
  outputOf<T extends MessageType>(step: string, type: T): MessageOf<T> | undefined;
  outputOf(step: string, type?: MessageType): unknown {
    const found = this.message.outputs.find((one) => one.step === step);
    return found && type ? read(found.output, type, `output of ${step}`) : found?.output;
  }

  /** Of all earlier steps that have one, in the order of the definition. */
  get outputs(): ReadonlyMap<string, Uint8Array> {
    return new Map(this.message.outputs.map((one) => [one.step, one.output]));
  }

  /** What is known of the action that this compensation is to take back. */
  get actionOutcome(): ActionOutcome {
    const { operation, action } = this.message;
    if (operation !== OperationKind.COMPENSATION && !(operation === OperationKind.PROBE && action)) {
      return 'NONE';
    }
    return action?.kind === ActionOutcome_Kind.DONE ? 'DONE' : 'MAYBE';
  }

  /** What the action answered; empty unless `actionOutcome` is DONE. */
  actionOutput(): Uint8Array;
  actionOutput<T extends MessageType>(type: T): MessageOf<T>;
  actionOutput(type?: MessageType): unknown {
    const bytes = (this.actionOutcome === 'DONE' && this.message.action?.output) || EMPTY;
    return type === undefined ? bytes : read(bytes, type, "action's output");
  }

  /** What a probe asks about; undefined: the task is no probe. */
  get probed(): Probed | undefined {
    const { operation, probed, probedAttempt: attempt } = this.message;
    if (operation !== OperationKind.PROBE) {
      return undefined;
    }
    return {
      operation: OPERATIONS[probed],
      try: attempt?.try ?? 0,
      fence: attempt?.fence ?? 0n,
      leasedAt: dateOf(attempt?.leaseTime),
      endedAt: dateOf(attempt?.endTime),
    };
  }

  /** What a handler returns, as bytes: a message of its output's type is encoded, bytes are taken as they
   *  are, and undefined is empty. TypeError for anything else. */
  outputBytes(output: unknown): Uint8Array {
    if (!this.#output || output === undefined || output === null || output instanceof Uint8Array) {
      return bytesOf(output);
    }
    return this.#output.encode(output as never);
  }

  /** Retry WRONG_TYPE if the definition names another type of output than the handler returns. */
  checkOutputType(): void {
    if (this.#output) {
      checkType(this.outputType, this.#output, 'output');
    }
  }

  // How long it may take.

  /** Milliseconds until 80 % of the last confirmed lease have passed; 0: over. */
  get leaseLeftMs(): number {
    return this.#lease.leaseLeftMs();
  }

  /** Milliseconds until the attempt time is over; 0: over. It ends before `sendBefore`. */
  get timeLeftMs(): number {
    return this.#lease.timeLeftMs();
  }

  /** Nothing may be sent to the third party from then on (by the database's clock), since it could arrive
   *  when the idempotency key is forgotten; undefined: no such time. */
  get sendBefore(): Date | undefined {
    return dateOf(this.message.sendBefore);
  }

  /** The last look before a call that cannot be taken back. False once 80 % of the last confirmed lease
   *  have passed, the lease was reported lost, or the attempt time is over: then do not make the call; throw
   *  Retry if nothing was sent before, Unknown otherwise. */
  stillMine(): boolean {
    return this.#lease.leaseLeftMs() > 0;
  }

  // The wish that it stops. The report counts in any case.

  /** Why the handler should stop now; undefined: it should not. */
  get stopReason(): Stop | undefined {
    return this.#lease.stop();
  }

  /** Resolves when the handler should stop, whichever the first reason is. */
  stopped(): Promise<Stop> {
    this.#stopped ??= this.#told
      ? Promise.resolve(this.#told)
      : new Promise((resolve) => {
          this.#resolve = resolve;
        });
    return this.#stopped;
  }

  /** Aborted with LeaseLost when the task is not ours any more, and only then: a drain or a cancelled saga
   *  is no reason to break off a call whose outcome would be unknown. For fetch and its like. */
  get signal(): AbortSignal {
    this.#abort ??= new AbortController();
    if (this.#told === 'lost' || this.#lease.stop() === 'lost') {
      this.#abort.abort(new LeaseLost()); // the first time counts
    }
    return this.#abort.signal;
  }

  /** For the worker and for sagad/fake: a reason to stop, each at most once. */
  tellStop(stop: Stop): void {
    this.#told = stop;
    this.#resolve?.(stop);
    if (stop === 'lost') {
      this.#abort?.abort(new LeaseLost());
    }
  }
}
