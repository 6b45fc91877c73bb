/** The servers that a client may ask, of which one is asked until it fails. */

import {
  create,
  type DescMessage,
  fromBinary,
  type MessageInitShape,
  type MessageShape,
  toBinary,
} from '@bufbuild/protobuf';
import {
  type ChannelCredentials,
  type ChannelOptions,
  Client,
  type ClientUnaryCall,
  connectivityState,
  type ServiceError,
  status,
} from '@grpc/grpc-js';

import { SagaError } from './saga_error.js';

const CONNECT_MS_MAX = 2_000; // then it is the next one's turn
export const PAUSE_MS = 100; // between attempts, twice as long each time
export const PAUSE_MS_MAX = 2_000;

/** A method of a service, as the generated code describes it. */
export interface Method<K extends string, I extends DescMessage, O extends DescMessage> {
  readonly name: string;
  readonly parent: { readonly typeName: string };
  readonly methodKind: K;
  readonly input: I;
  readonly output: O;
}

export class Servers {
  readonly #clients: Client[];
  #at = 0;

  constructor(addresses: readonly string[], credentials: ChannelCredentials, options: ChannelOptions) {
    this.#clients = addresses.map(
      (address) =>
        new Client(address, credentials, {
          ...options,
          'grpc.initial_reconnect_backoff_ms': PAUSE_MS,
          'grpc.max_reconnect_backoff_ms': PAUSE_MS_MAX,
        }),
    );
  }

  close(): void {
    this.#clients.forEach((client) => client.close());
  }

  /** One call; it has `timeMs`. Rejects with SagaError, or with the signal's reason. */
  async unary<I extends DescMessage, O extends DescMessage>(
    method: Method<'unary', I, O>,
    request: MessageInitShape<I>,
    timeMs: number,
    signal: AbortSignal | undefined,
  ): Promise<MessageShape<O>> {
    const deadline = Date.now() + timeMs;
    const client = await this.#connected(deadline, signal);
    let call: ClientUnaryCall | undefined;
    const answer = new Promise<MessageShape<O>>((resolve, reject) => {
      const done = (error: ServiceError | null, message?: MessageShape<O>): void =>
        error ? reject(this.#failed(client, error)) : resolve(message as MessageShape<O>);
      const [serialize, deserialize] = [serializer(method.input), deserializer(method.output)];
      call = client.makeUnaryRequest(pathOf(method), serialize, deserialize, request, { deadline }, done);
    });
    try {
      return await unlessAborted(answer, signal);
    } finally {
      call?.cancel(); // nothing is left of it, unless it was aborted
    }
  }

  /** One stream of answers, until the server ends it; throws as above. */
  async *stream<I extends DescMessage, O extends DescMessage>(
    method: Method<'server_streaming', I, O>,
    request: MessageInitShape<I>,
    signal: AbortSignal | undefined,
  ): AsyncGenerator<MessageShape<O>, void, undefined> {
    const client = await this.#connected(Infinity, signal);
    const [serialize, deserialize] = [serializer(method.input), deserializer(method.output)];
    const call = client.makeServerStreamRequest(pathOf(method), serialize, deserialize, request);
    const abort = (): void => call.cancel();
    signal?.addEventListener('abort', abort);
    try {
      yield* call as AsyncIterable<MessageShape<O>>;
    } catch (error) {
      throw signal?.aborted ? signal.reason : this.#failed(client, error as ServiceError);
    } finally {
      signal?.removeEventListener('abort', abort);
      call.on('error', () => undefined); // CANCELLED, which nobody waits for
      call.cancel();
    }
  }

  /** The server whose turn it is, once its connection is there or was refused: of that the call tells. An address that
   *  does not answer at all is passed over. */
  async #connected(deadline: number, signal: AbortSignal | undefined): Promise<Client> {
    const client = this.#clients[this.#at] as Client;
    const channel = client.getChannel();
    const until = Math.min(deadline, Date.now() + CONNECT_MS_MAX);
    for (;;) {
      const state = channel.getConnectivityState(true);
      if (state !== connectivityState.IDLE && state !== connectivityState.CONNECTING) {
        return client;
      }
      const changed = new Promise<boolean>((resolve) => {
        channel.watchConnectivityState(state, until, (error) => resolve(error === undefined));
      });
      if (!(await unlessAborted(changed, signal))) {
        this.#next(client);
        throw new SagaError(status.UNAVAILABLE, `no connection to ${channel.getTarget()} yet`);
      }
    }
  }

  #failed(client: Client, error: ServiceError): SagaError {
    const failed = SagaError.of(error);
    if (failed.code === status.UNAVAILABLE || failed.code === status.DEADLINE_EXCEEDED) {
      this.#next(client);
    }
    return failed;
  }

  /** Unless another call has gone on from it already. */
  #next(client: Client): void {
    if (this.#clients[this.#at] === client) {
      this.#at = (this.#at + 1) % this.#clients.length;
    }
  }
}

function pathOf(method: Method<string, DescMessage, DescMessage>): string {
  return `/${method.parent.typeName}/${method.name}`;
}

function serializer<T extends DescMessage>(type: T): (message: MessageInitShape<T>) => Buffer {
  return (message) => Buffer.from(toBinary(type, create(type, message)));
}

function deserializer<T extends DescMessage>(type: T): (bytes: Buffer) => MessageShape<T> {
  return (bytes) => fromBinary(type, bytes);
}

/** The promise, or the signal's reason. */
export async function unlessAborted<T>(promise: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (!signal) {
    return promise;
  }
  signal.throwIfAborted();
  let abort = (): void => undefined;
  const aborted = new Promise<never>((_resolve, reject) => {
    abort = () => reject(signal.reason);
    signal.addEventListener('abort', abort);
  });
  try {
    return await Promise.race([promise, aborted]);
  } finally {
    signal.removeEventListener('abort', abort);
  }
}
