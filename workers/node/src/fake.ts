/**
 * A fake orchestrator for your unit tests: no network, no threads, no clock.
 *
 *     import * as fake from 'sagad/fake';
 *
 *     const result = await fake.run(worker, 'account.debit', { account: 7, amount: 100 }); // one task
 *     assert.equal(result.kind, 'DONE');
 *     assert.equal(result.outputAs(ReceiptSchema).balance, 900);
 *
 *     const saga = new fake.Saga(worker, { account: 7, amount: 100 }); // a sequence
 *     saga.step('debit', 'account.debit', { compensation: 'account.refund' });
 *     saga.step('notify', 'risk.check');
 *     assert.equal(await saga.play(), 'COMPENSATED');
 *     assert.deepEqual(saga.trace, ['debit: DONE', 'notify: REJECTED', 'debit compensation: DONE']);
 *
 * Handlers are run as the worker runs them: typed requests, outcomes, classify, limits.
 */

import { createHash } from 'node:crypto';

import { create, type MessageInitShape } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';

import { codecOf, type MessageOf, type MessageType } from './codec.js';
import { OperationKind } from './gen/saga/v1/saga_pb.js';
import { ActionOutcome_Kind, TaskSchema } from './gen/saga/v1/worker_pb.js';
import { bytesOf, type Outcome, type OutcomeKind } from './outcome.js';
import { type Registered, runHandler } from './run.js';
import { type Lease, type Operation, type Stop, Task } from './task.js';
import type { Worker } from './worker.js';

const TRIES_MAX = 10;
const STARTED_MS = 1_700_000_000_000;

/** A lease that the test moves. */
export class FakeLease implements Lease {
  leftMs = 24_000;
  attemptLeftMs = 60_000;
  reason: Stop | undefined;

  leaseLeftMs(): number {
    return this.reason === 'lost' ? 0 : Math.min(this.leftMs, this.attemptLeftMs);
  }

  timeLeftMs(): number {
    return this.attemptLeftMs;
  }

  stop(): Stop | undefined {
    return this.leaseLeftMs() > 0 ? this.reason : 'lost';
  }
}

/** What a task says; what is left out gets a value. */
export interface TaskOptions {
  readonly operation?: Operation;
  readonly step?: string;
  readonly sagaId?: string;
  readonly definition?: string;
  readonly fence?: bigint;
  readonly try?: number;
  readonly labels?: Readonly<Record<string, string>>;
  /** Of earlier steps. */
  readonly outputs?: Readonly<Record<string, Uint8Array>>;
  /** Of a compensation: what the action answered; left out: it may have happened. */
  readonly actionOutput?: Uint8Array;
  /** The handler should stop, from the beginning. */
  readonly stop?: Stop;
  readonly lease?: FakeLease;
  /** Other fields of saga.v1.Task. */
  readonly more?: Omit<MessageInitShape<typeof TaskSchema>, '$typeName' | '$unknown'>;
}

/** A task as a handler gets it, for tests of a function of yours. `request`: bytes; or a message of the type
 *  `types.request`, as with `Worker.handle`. */
export function task(
  handler: string,
  request?: unknown,
  options: TaskOptions = {},
  types: { readonly request?: MessageType; readonly output?: MessageType } = {},
): Task {
  const { operation = 'ACTION', step = 'step', sagaId = 'saga-1', definition = 'test' } = options;
  const message = create(TaskSchema, {
    sagaUid: digest(definition, sagaId).subarray(0, 16),
    namespace: 'default',
    definition,
    revision: 1,
    sagaId,
    run: 1,
    step,
    operation: OperationKind[operation],
    handler,
    fence: options.fence ?? 1n,
    try: options.try ?? 1,
    // Stable as the orchestrator's, though not the same.
    idempotencyKey: digest(definition, sagaId, step, operation).toString('hex', 0, 16),
    labels: options.labels ?? {},
    sagaStartTime: timestampFromMs(STARTED_MS),
    outputs: Object.entries(options.outputs ?? {}).map(([name, output]) => ({ step: name, output })),
    ...requestOf(request, types.request),
    ...aboutOf(operation, options.actionOutput),
    ...options.more,
  });
  const lease = options.lease ?? new FakeLease();
  lease.reason = options.stop ?? lease.reason;
  const made = new Task(message, lease, types.output);
  const stop = lease.stop();
  if (stop) {
    made.tellStop(stop);
  }
  return made;
}

function digest(...parts: string[]): Buffer {
  return createHash('sha256').update(parts.join('\0')).digest();
}

function requestOf(request: unknown, type: MessageType | undefined) {
  if (request === undefined || request instanceof Uint8Array || !type) {
    return { input: bytesOf(request) };
  }
  const codec = codecOf(type);
  const bytes = codec.encode(request as never);
  return codec.name ? { request: bytes, requestType: codec.name } : { input: bytes };
}

/** What a compensation or a probe is about. */
function aboutOf(operation: Operation, actionOutput: Uint8Array | undefined) {
  switch (operation) {
    case 'COMPENSATION':
      return {
        action: actionOutput
          ? { kind: ActionOutcome_Kind.DONE, output: actionOutput }
          : { kind: ActionOutcome_Kind.MAYBE },
      };
    case 'PROBE':
      return { probed: OperationKind.ACTION };
    case 'ACTION':
      return {};
  }
}

/** The outcome that would be reported. */
export class Result implements Outcome {
  readonly kind!: OutcomeKind;
  readonly output!: Uint8Array;
  readonly ours!: boolean;
  readonly code!: string;
  readonly message!: string;
  readonly retryAfterMs!: number;

  constructor(outcome: Outcome) {
    Object.assign(this, outcome);
  }

  outputAs<T extends MessageType>(type: T): MessageOf<T> {
    return codecOf(type).decode(this.output);
  }
}

/** Runs the worker's handler with one task; what would be reported. `request`: bytes, or a message of the
 *  handler's request type. */
export async function run(
  worker: Worker,
  handler: string,
  request?: unknown,
  options: TaskOptions = {},
): Promise<Result> {
  const registered = registeredOf(worker, handler);
  return new Result(await runHandler(registered, task(handler, request, options, registered), worker));
}

function registeredOf(worker: Worker, handler: string): Registered {
  const registered = worker.handlers.get(handler);
  if (!registered) {
    throw new ReferenceError(`the worker has no handler ${handler}`);
  }
  return registered;
}

export interface StepOptions {
  /** The handler that takes it back. */
  readonly compensation?: string;
  /** What the action, or the compensation, is asked; left out: the saga's input. */
  readonly request?: (operation: Operation, outputs: Readonly<Record<string, Uint8Array>>) => unknown;
}

interface Step extends StepOptions {
  readonly name: string;
  readonly action: string;
}

/** A small saga: steps one after the other, and back again. A RETRY is tried again at once; what the
 *  definition decides about an UNKNOWN is not played: it parks. */
export class Saga {
  /** Of the steps that are done. */
  readonly outputs: Record<string, Uint8Array> = {};
  /** What was done, and what came of it. */
  readonly trace: string[] = [];
  readonly #worker: Worker;
  readonly #input: unknown;
  readonly #sagaId: string;
  readonly #steps: Step[] = [];
  #fence = 0n;

  constructor(worker: Worker, input?: unknown, { sagaId = 'saga-1' }: { readonly sagaId?: string } = {}) {
    this.#worker = worker;
    this.#input = input;
    this.#sagaId = sagaId;
  }

  step(name: string, action: string, options: StepOptions = {}): this {
    this.#steps.push({ ...options, name, action });
    return this;
  }

  async play(): Promise<'SUCCEEDED' | 'COMPENSATED' | 'PARKED'> {
    for (const step of this.#steps) {
      const { kind, output } = await this.#run(step, 'ACTION', step.action);
      if (kind === 'REJECTED') {
        return this.#turnBack();
      }
      if (!isDone(kind)) {
        return 'PARKED';
      }
      this.outputs[step.name] = output;
    }
    return 'SUCCEEDED';
  }

  async #turnBack(): Promise<'COMPENSATED' | 'PARKED'> {
    for (const step of this.#steps.slice().reverse()) {
      if (step.name in this.outputs && step.compensation) {
        const { kind } = await this.#run(step, 'COMPENSATION', step.compensation);
        if (!isDone(kind)) {
          return 'PARKED';
        }
      }
    }
    return 'COMPENSATED';
  }

  async #run(step: Step, operation: Operation, handler: string): Promise<Result> {
    const what = operation === 'ACTION' ? step.name : `${step.name} compensation`;
    for (let tries = 1; ; tries++) {
      const result = await run(
        this.#worker,
        handler,
        step.request ? step.request(operation, this.outputs) : this.#input,
        {
          operation,
          step: step.name,
          sagaId: this.#sagaId,
          fence: ++this.#fence,
          try: tries,
          outputs: this.outputs,
          actionOutput: operation === 'COMPENSATION' ? this.outputs[step.name] : undefined,
        },
      );
      this.trace.push(`${what}: ${result.kind}`);
      if (result.kind !== 'RETRY' || tries === TRIES_MAX) {
        return result;
      }
    }
  }
}

function isDone(kind: OutcomeKind): boolean {
  return kind === 'DONE' || kind === 'ALREADY_DONE';
}
