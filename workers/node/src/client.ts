/**
 * Starts sagas, looks at them, waits for them, takes them back. Thin over saga.v1.SagaService.
 *
 *     import { Client, SagaState } from 'sagad/client';
 *
 *     const client = new Client({ addresses: ['127.0.0.1:7233'] });
 *     await client.start('settlement', PaymentSchema, { paymentId: 'order-17', account: 17 });
 *     const saga = await client.wait('settlement', 'order-17');
 *     console.log(saga.state === SagaState.SUCCEEDED);
 *     client.close();
 *
 * Calls reject with SagaError. Each may be repeated: a start whose key and input are known is answered by
 * the saga that is there. So a call that finds no server is made again, at the next address, until its time
 * is over.
 */

import { type DescMessage, type MessageInitShape, type MessageShape } from '@bufbuild/protobuf';
import { durationFromMs, timestampFromDate } from '@bufbuild/protobuf/wkt';
import { status } from '@grpc/grpc-js';
import { setTimeout as sleep } from 'node:timers/promises';

import { codecOf, type MessageInitOf, type MessageType } from './codec.js';
import {
  type Saga,
  type SagaRefSchema,
  SagaService,
  SagaState,
  SagaView,
  type StartSagaResponse,
} from './gen/saga/v1/saga_pb.js';
import type { TlsOptions } from './messages.js';
import { bytesOf } from './outcome.js';
import { SagaError } from './saga_error.js';
import { type Method, PAUSE_MS, PAUSE_MS_MAX, Servers } from './servers.js';
import { channelCredentials, channelOptions } from './stream.js';

export { SagaError, SagaService, SagaState };
export type { Saga, StartSagaResponse };

const MESSAGE_BYTES_MAX = 4 * 1024 * 1024;
const CALL_MS = 10_000;
const WAIT_MS = 30_000;
const WAIT_ONCE_MS_MAX = 300_000; // the server's limit
const SLACK_MS = 5_000; // a wait ends by the server's word, not by ours

/** A stream that another server, or the same, may go on with. */
const STREAM_BROKE: readonly status[] = [status.UNAVAILABLE, status.DEADLINE_EXCEEDED, status.INTERNAL, status.UNKNOWN];

export interface ClientOptions {
  /** "host:port" or "unix:/path": one, or all nodes of a database. The first that answers is used. */
  readonly addresses: readonly string[];
  readonly namespace?: string;
  /** true: the system's certificates. */
  readonly tls?: TlsOptions | boolean;
  /** So long may a call take that does not wait for anything, with its repeats; 10 s. */
  readonly timeoutMs?: number;
  readonly maxMessageBytes?: number;
}

export interface CallOptions {
  readonly timeoutMs?: number;
  /** Ends the call; it then rejects with the signal's reason. */
  readonly signal?: AbortSignal;
}

export interface StartOptions extends CallOptions {
  /** The business key; may be left out where the definition makes it of the input. */
  readonly sagaId?: string;
  readonly labels?: Readonly<Record<string, string>>;
  readonly startAt?: Date;
  /** The uid of the saga that this one corrects or repeats. */
  readonly relatedSaga?: string;
  readonly actor?: string;
}

export interface LookOptions extends CallOptions {
  /** 0, or left out: the latest. */
  readonly run?: number;
  /** false: without input, steps and what it waits for. */
  readonly full?: boolean;
}

export interface WaitOptions extends LookOptions {
  /** Also until the saga waits for a person. */
  readonly orParked?: boolean;
}

export interface CancelOptions extends CallOptions {
  readonly run?: number;
  readonly reason?: string;
  readonly actor?: string;
}

export class Client {
  readonly #servers: Servers;
  readonly #namespace: string;
  readonly #timeoutMs: number;

  constructor(options: ClientOptions) {
    if (options.addresses.length === 0) {
      throw new TypeError('a client needs an address');
    }
    const tls = options.tls === true ? {} : options.tls || undefined;
    const more = channelOptions(options.maxMessageBytes ?? MESSAGE_BYTES_MAX, tls);
    this.#servers = new Servers(options.addresses, channelCredentials(tls), more);
    this.#namespace = options.namespace ?? '';
    this.#timeoutMs = options.timeoutMs ?? CALL_MS;
  }

  /** Ends its connections. */
  close(): void {
    this.#servers.close();
  }

  /** Starts a saga, or answers the one that has this key. Durable when it resolves. `type`: of the input; or the
   *  input is bytes. */
  start(definition: string, input?: Uint8Array, options?: StartOptions): Promise<StartSagaResponse>;
  start<T extends MessageType>(
    definition: string,
    type: T,
    input: MessageInitOf<T>,
    options?: StartOptions,
  ): Promise<StartSagaResponse>;
  start(definition: string, ...rest: unknown[]): Promise<StartSagaResponse> {
    const [input, options] = inputOf(rest);
    return this.call(
      SagaService.method.startSaga,
      {
        namespace: this.#namespace,
        definition,
        sagaId: options.sagaId,
        input,
        labels: options.labels,
        startAt: options.startAt && timestampFromDate(options.startAt),
        relatedSaga: options.relatedSaga,
        actor: options.actor,
      },
      options,
    );
  }

  /** One saga as it is now. */
  get(definition: string, sagaId: string, options: LookOptions = {}): Promise<Saga> {
    const request = { saga: this.#ref(definition, sagaId, options), view: viewOf(options) };
    return this.call(SagaService.method.getSaga, request, options);
  }

  /** Until it has ended (or is parked, if asked), at most `timeoutMs`, 30 s: the saga as it is then. Look at its
   *  state. */
  async wait(definition: string, sagaId: string, options: WaitOptions = {}): Promise<Saga> {
    const request = {
      saga: this.#ref(definition, sagaId, options),
      view: viewOf(options),
      orParked: options.orParked ?? false,
    };
    return this.#repeat(options.timeoutMs ?? WAIT_MS, SLACK_MS, options.signal, async (leftMs) => {
      const onceMs = Math.ceil(Math.min(Math.max(leftMs, 1), WAIT_ONCE_MS_MAX));
      const saga = await this.#servers.unary(
        SagaService.method.waitSaga,
        { ...request, timeout: durationFromMs(onceMs) },
        onceMs + SLACK_MS,
        options.signal,
      );
      return hasEnded(saga, request.orParked) || onceMs >= leftMs ? saga : undefined;
    });
  }

  /** The saga as it is, and again after each change, until it has ended: that is the last one. Changes that come
   *  faster than they are read are told as one. It goes on at whichever server is there when a stream breaks,
   *  so it ends only with the saga, with a SagaError, by `signal`, or when nobody iterates on.
   *
   *      for await (const saga of client.watch('settlement', 'order-17')) { ... } */
  async *watch(
    definition: string,
    sagaId: string,
    options: Omit<LookOptions, 'timeoutMs'> = {},
  ): AsyncGenerator<Saga, void, undefined> {
    const request = { saga: this.#ref(definition, sagaId, options), view: viewOf(options), resumeToken: '' };
    for (let failures = 0; ; failures++) {
      try {
        for await (const answer of this.#servers.stream(SagaService.method.watchSaga, request, options.signal)) {
          failures = 0;
          request.resumeToken = answer.resumeToken;
          if (!answer.unchanged && answer.saga) {
            yield answer.saga;
          }
        }
        return;
      } catch (error) {
        if (!(error instanceof SagaError && STREAM_BROKE.includes(error.code))) {
          throw error;
        }
        await pause(pauseMs(error, failures), options.signal);
      }
    }
  }

  /** Turns a saga back. Resolves when that decision is durable; compensations follow. */
  cancel(definition: string, sagaId: string, options: CancelOptions = {}): Promise<Saga> {
    const request = { saga: this.#ref(definition, sagaId, options), reason: options.reason, actor: options.actor };
    return this.call(SagaService.method.cancelSaga, request, options);
  }

  /** Every other call of SagaService, and every other field:
   *
   *      client.call(SagaService.method.signalSaga, { saga: { definition, sagaId }, signal: 'paid', signalId }) */
  call<I extends DescMessage, O extends DescMessage>(
    method: Method<'unary', I, O>,
    request: MessageInitShape<I>,
    options: CallOptions = {},
  ): Promise<MessageShape<O>> {
    return this.#repeat(options.timeoutMs ?? this.#timeoutMs, 0, options.signal, (leftMs) =>
      this.#servers.unary(method, request, leftMs, options.signal),
    );
  }

  /** Until it answers something; what finds no server is made again, while there is time. */
  async #repeat<T>(
    timeMs: number,
    slackMs: number,
    signal: AbortSignal | undefined,
    attempt: (leftMs: number) => Promise<T | undefined>,
  ): Promise<T> {
    const end = performance.now() + timeMs;
    for (let failures = 0; ;) {
      try {
        const answer = await attempt(end - performance.now());
        if (answer !== undefined) {
          return answer;
        }
        failures = 0;
      } catch (error) {
        if (!(error instanceof SagaError && error.code === status.UNAVAILABLE)) {
          throw error;
        }
        const ms = pauseMs(error, failures++);
        if (performance.now() + ms >= end + slackMs) {
          throw error;
        }
        await pause(ms, signal);
      }
    }
  }

  #ref(definition: string, sagaId: string, { run }: { readonly run?: number }): MessageInitShape<typeof SagaRefSchema> {
    return { namespace: this.#namespace, definition, sagaId, run };
  }
}

function inputOf(rest: unknown[]): [Uint8Array, StartOptions] {
  const [first] = rest;
  if (first === undefined || first === null || first instanceof Uint8Array) {
    return [bytesOf(first), (rest[1] ?? {}) as StartOptions];
  }
  return [codecOf(first as MessageType).encode(rest[1] as never), (rest[2] ?? {}) as StartOptions];
}

function viewOf({ full = true }: LookOptions): SagaView {
  return full ? SagaView.FULL : SagaView.BASIC;
}

function hasEnded({ state }: Saga, orParked: boolean): boolean {
  return state === SagaState.PARKED ? orParked : state !== SagaState.RUNNING && state !== SagaState.COMPENSATING;
}

/** Rejects with the signal's reason. */
async function pause(ms: number, signal: AbortSignal | undefined): Promise<void> {
  try {
    await sleep(ms, undefined, { signal });
  } catch {
    throw signal?.reason; // nothing else ends it early
  }
}

/** As the server says; else longer each time, and not in step with others. */
function pauseMs(error: SagaError, failures: number): number {
  return error.retryAfterMs ?? Math.min(PAUSE_MS * 2 ** failures, PAUSE_MS_MAX) * (0.5 + Math.random() / 2);
}
