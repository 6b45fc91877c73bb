/** What the thread of the handlers and the thread of the streams say to each other. */

import type { Level } from './log.js';
import type { Outcome } from './outcome.js';
import type { PoolOptions } from './pool.js';
import type { Stop } from './task.js';

/** For TLS, as node:tls has it. By value, since streams live in a thread of their own. */
export interface TlsOptions {
  /** PEM of who may sign the server's certificate; without it the usual authorities. */
  readonly ca?: string | Uint8Array;
  /** PEM of the worker's own certificate and key, where the server asks for them. */
  readonly cert?: string | Uint8Array;
  readonly key?: string | Uint8Array;
  /** The name in the server's certificate, where it is not that of the address. */
  readonly serverName?: string;
}

/** What the thread of the streams begins with. */
export interface StartOptions extends PoolOptions {
  readonly addresses: readonly string[];
  readonly tls: TlsOptions | undefined;
  readonly maxMessageBytes: number;
  readonly clock: SharedArrayBuffer;
  readonly counters: SharedArrayBuffer;
}

/** To the thread of the streams. Tasks go by their key, "uid:fence". */
export type ToStreams =
  | { readonly type: 'finished'; readonly key: string; readonly outcome: Outcome }
  | { readonly type: 'notStarted'; readonly key: string } // no handler has seen it, and none will
  | { readonly type: 'drain' };

/** To the thread of the handlers. */
export type ToHandlers =
  | {
      readonly type: 'run';
      readonly key: string;
      readonly handler: string;
      readonly task: Uint8Array; // a Task message
      readonly cell: SharedArrayBuffer; // of a LeaseCell
    }
  | { readonly type: 'stop'; readonly key: string; readonly stop: Stop }
  | { readonly type: 'log'; readonly level: Level; readonly text: string; readonly fields: Record<string, unknown> }
  | { readonly type: 'ended' };
