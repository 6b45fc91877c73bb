/** One gRPC stream to one orchestrator, over and over: opens it, sends what its session says, hands in what
 *  comes. Knows nothing of what the messages mean. */

import { toBinary } from '@bufbuild/protobuf';
import {
  type ChannelCredentials,
  type ChannelOptions,
  Client,
  type ClientDuplexStream,
  connectivityState,
  credentials,
  Metadata,
  status as Status,
  type StatusObject,
} from '@grpc/grpc-js';

import { type WorkerMessage, WorkerMessageSchema } from './gen/saga/v1/worker_pb.js';
import type { TlsOptions } from './messages.js';
import { Phase } from './pool.js';
import { BACKOFF_MAX_MS, BACKOFF_MIN_MS, ProtocolError, type Session } from './session.js';

const METHOD = '/saga.v1.WorkerService/Work';
const LINGER_MS = 1000; // for the server to end a stream in order

/** How to connect; for the client, too. */
export function channelOptions(maxMessageBytes: number, tls: TlsOptions | undefined): ChannelOptions {
  return {
    'grpc.enable_http_proxy': 0,
    'grpc.service_config_disable_resolution': 1,
    'grpc.enable_retries': 0,
    'grpc.enable_channelz': 0,
    'grpc.use_local_subchannel_pool': 1,
    'grpc.keepalive_time_ms': 10_000,
    'grpc.keepalive_timeout_ms': 10_000,
    'grpc.max_receive_message_length': maxMessageBytes,
    'grpc.max_send_message_length': maxMessageBytes,
    ...(tls?.serverName && { 'grpc.ssl_target_name_override': tls.serverName }),
  };
}

export function channelCredentials(tls: TlsOptions | undefined): ChannelCredentials {
  return tls ? credentials.createSsl(pem(tls.ca), pem(tls.key), pem(tls.cert)) : credentials.createInsecure();
}

function pem(text: string | Uint8Array | undefined): Buffer | null {
  return text === undefined ? null : Buffer.from(text as string);
}

/** What a stream needs of the thread that it is in. */
export interface Host {
  now(): number;
  /** Since when at the latest what is read now can have lain there. */
  since(): number;
  /** Something has changed: every stream is to speak soon. */
  changed(): void;
}

type Call = ClientDuplexStream<WorkerMessage, Uint8Array>;

function serialize(message: WorkerMessage): Buffer {
  const bytes = toBinary(WorkerMessageSchema, message);
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

export class Stream {
  readonly session: Session;
  readonly #host: Host;
  readonly #address: string;
  readonly #credentials: ChannelCredentials;
  readonly #options: ChannelOptions;
  #client: Client | undefined; // of one stream: the next one gets a connection of its own
  #call: Call | undefined;
  #writing = false;
  #closing = false; // no more messages to send
  #linger: NodeJS.Timeout | undefined;
  #why: string | undefined; // it ends, where that is known here

  constructor(host: Host, session: Session, address: string, maxMessageBytes: number, tls: TlsOptions | undefined) {
    this.session = session;
    this.#host = host;
    this.#address = address;
    this.#credentials = channelCredentials(tls);
    this.#options = {
      ...channelOptions(maxMessageBytes, tls),
      // While nobody answers the library tries again by itself, so long after it began the time before, with
      // 20 % of jitter. Only longer attempts than the first pause follow each other at once.
      'grpc.initial_reconnect_backoff_ms': 4 * BACKOFF_MIN_MS,
      'grpc.max_reconnect_backoff_ms': 0.8 * BACKOFF_MAX_MS,
    };
  }

  get isOpen(): boolean {
    return this.#call !== undefined;
  }

  /** Opens it if it is time, and ends it if that is. */
  tend(): void {
    const nowMs = this.#host.now();
    if (this.isOpen) {
      if (this.session.isOver(nowMs)) {
        this.#halfClose();
      }
    } else if (!this.session.isWanted) {
      this.#disconnect();
    } else if (nowMs >= this.session.reconnectMs && this.#isConnected()) {
      this.#open(nowMs);
    }
  }

  /** For good. */
  end(): void {
    if (this.isOpen) {
      this.#halfClose();
    } else {
      this.#disconnect();
    }
  }

  /** Sends what there is to say: one message at a time, each when the one before was sent, so that it is as
   *  new as it can be. */
  speak(): void {
    const call = this.#call;
    if (!call || this.#writing || this.#closing) {
      return;
    }
    const message = this.session.next(this.#host.now());
    if (message) {
      this.#writing = true;
      call.write(message, () => {
        if (call === this.#call) {
          this.#writing = false;
          this.#host.changed();
        }
      });
    }
  }

  /** Is there a connection? If not, it is being made. */
  #isConnected(): boolean {
    if (!this.#client) {
      this.#client = new Client(this.#address, this.#credentials, this.#options);
      this.#watch(this.#client, connectivityState.IDLE, false);
    }
    return this.#client.getChannel().getConnectivityState(true) === connectivityState.READY;
  }

  #watch(client: Client, before: connectivityState, isFailing: boolean): void {
    const channel = client.getChannel();
    channel.watchConnectivityState(before, Infinity, () => {
      if (client !== this.#client) {
        return;
      }
      const state = channel.getConnectivityState(false);
      const fails = state === connectivityState.TRANSIENT_FAILURE;
      if (fails && !isFailing) {
        this.session.log('warn', 'no connection to the orchestrator: trying again', { address: this.#address });
      }
      this.#watch(client, state, isFailing || fails);
      if (state === connectivityState.READY) {
        this.tend();
      } else if (before === connectivityState.READY && this.session.phase === Phase.OPENING) {
        // Else the library would make another one for it at once, and again.
        this.#why = 'the connection broke';
        this.#call?.cancel();
      }
    });
  }

  #open(nowMs: number): void {
    const client = this.#client as Client;
    this.#closing = this.#writing = false;
    this.#why = undefined;
    this.session.opened(nowMs);
    const call: Call = client.makeBidiStreamRequest(METHOD, serialize, (bytes) => bytes, new Metadata(), {});
    call.on('data', (bytes: Uint8Array) => this.#takeIn(call, bytes));
    call.on('error', () => undefined); // the status says it, and always comes
    call.on('status', (status: StatusObject) => this.#ended(call, status));
    this.#call = call;
    this.#host.changed();
  }

  #takeIn(call: Call, bytes: Uint8Array): void {
    if (call !== this.#call) {
      return;
    }
    try {
      this.session.receive(bytes, this.#host.since(), this.#host.now());
    } catch (error) {
      if (!(error instanceof ProtocolError)) {
        throw error;
      }
      this.#why = error.message;
      this.#closing = true;
      call.cancel();
    }
    this.#host.changed();
  }

  /** Ends the stream that is open now: in order if the server answers soon, else at once. */
  #halfClose(): void {
    const call = this.#call;
    if (call && !this.#closing) {
      this.#closing = true;
      call.end();
      this.#linger = setTimeout(() => call.cancel(), LINGER_MS);
    }
  }

  #ended(call: Call, status: StatusObject): void {
    if (call !== this.#call) {
      return;
    }
    clearTimeout(this.#linger);
    this.#call = undefined;
    this.#disconnect();
    const { session } = this;
    const wasOnline = session.phase === Phase.ONLINE;
    const nowMs = this.#host.now();
    session.lost(nowMs);
    session.log(wasOnline && !session.pool.draining ? 'warn' : 'info', 'a stream to the orchestrator ended', {
      address: this.#address,
      why: this.#why ?? (status.code === Status.OK ? 'the server ended it' : `${status.code}: ${status.details}`),
      retryMs: session.reconnectMs - nowMs,
    });
    this.#host.changed();
  }

  #disconnect(): void {
    const client = this.#client;
    this.#client = undefined;
    client?.close();
  }
}
