/**
 * What was sent while a handler ran. An error alone cannot tell: clients go on by themselves. fetch and axios
 * follow a redirect of a POST that was carried out, and then say that its second address refused.
 *
 * So requests of node:http (axios, got, node-fetch) and of undici (fetch) are watched, for the handler that
 * made them: each that got a connection may have been sent. Calls of gRPC are watched where their client was
 * made with `proveSends`.
 */

import { AsyncLocalStorage } from 'node:async_hooks';
import { subscribe } from 'node:diagnostics_channel';
import type { ClientRequest } from 'node:http';
import type { Socket } from 'node:net';

import { InterceptingCall, type Interceptor, type Metadata, status as Status } from '@grpc/grpc-js';

/** Of one run of a handler. */
interface Sends {
  some: boolean; // a request had a connection
}

const current = new AsyncLocalStorage<Sends>();
let isWatching = false;

/** Runs a handler: what is sent below it is known. */
export function watchSends<T>(body: () => T): T {
  if (!isWatching) {
    isWatching = true;
    watchHttp();
    watchUndici();
  }
  return current.run({ some: false }, body);
}

/** Has a request of this handler had a connection? */
export function wasSomethingSent(): boolean {
  return current.getStore()?.some ?? false;
}

function watchHttp(): void {
  subscribe('http.client.request.start', (message) => {
    const sends = current.getStore();
    if (!sends) {
      return;
    }
    const onSocket = (socket: Socket): void => {
      const onConnect = (): void => {
        sends.some = true;
      };
      if (socket.connecting) {
        socket.once('connect', onConnect);
      } else {
        onConnect();
      }
    };
    const { request } = message as { request: ClientRequest };
    if (request.socket) {
      onSocket(request.socket);
    } else {
      request.once('socket', onSocket);
    }
  });
}

function watchUndici(): void {
  const sendsOf = new WeakMap<object, Sends>(); // a request is sent in its connection's context, not in ours
  subscribe('undici:request:create', (message) => {
    const sends = current.getStore();
    if (sends) {
      sendsOf.set((message as { request: object }).request, sends);
    }
  });
  subscribe('undici:client:sendHeaders', (message) => {
    const sends = sendsOf.get((message as { request: object }).request);
    if (sends) {
      sends.some = true;
    }
  });
}

const ofCallsNotSent = new WeakSet<Metadata>();

/** A call's peer is its channel's target until it was given to a connection. */
const sendWatcher: Interceptor = (options, nextCall) => {
  const call = nextCall(options);
  const target = call.getPeer();
  const sends = current.getStore();
  return new InterceptingCall(call, {
    start(metadata, _listener, next) {
      next(metadata, {
        onReceiveStatus(status, nextStatus) {
          if (call.getPeer() !== target) {
            if (sends) {
              sends.some = true;
            }
          } else if (status.code !== Status.OK) {
            ofCallsNotSent.add(status.metadata);
          }
          nextStatus(status);
        },
        onReceiveMetadata: (received, nextMetadata) => nextMetadata(received),
        onReceiveMessage: (received, nextMessage) => nextMessage(received),
      });
    },
  });
};

/** Options for your own clients of @grpc/grpc-js: with them a call that never left, since no connection could
 *  be made, is reported as RETRY. Without them every failed call is UNKNOWN: the code UNAVAILABLE says nothing
 *  of what was sent. The library's own retries are off, since a call may have been sent before the last one.
 *
 *      const ledger = new LedgerClient(address, credentials, { ...proveSends });
 */
export const proveSends: { interceptors: Interceptor[]; 'grpc.enable_retries': 0 } = {
  interceptors: [sendWatcher],
  'grpc.enable_retries': 0,
};

/** Is it the error of a gRPC call that proveSends saw fail before it was sent? */
export function isOfCallNotSent(error: object): boolean {
  const { metadata } = error as { metadata?: unknown };
  return typeof metadata === 'object' && metadata !== null && ofCallsNotSent.has(metadata as Metadata);
}
