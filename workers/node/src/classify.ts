/**
 * Can be proved, of an error, that nothing was sent? Then the task may be tried again: RETRY.
 *
 * What is proved: a connection could not be made (refused, no route, time-out, name not found) by whatever
 * stands on node:net (fetch, undici, axios, got, node:http, pg, mysql2), or a call of @grpc/grpc-js whose
 * client was made with `proveSends` never got one. All that an error was caused by must be of that kind, and
 * no HTTP request or such call of the same handler may have had a connection before (sends.ts). A handler
 * that makes other calls, too, must say itself what an error of a later one means.
 */

import { nameOfError, type Reported, Retry, textOfError } from './outcome.js';
import { isOfCallNotSent, wasSomethingSent } from './sends.js';

/** Says what an error of a handler means; undefined: it counts as UNKNOWN. */
export type Classify = (error: unknown) => Reported | undefined;

const CONNECTING_CODES = new Set(['ECONNREFUSED', 'ENOTFOUND', 'EAI_AGAIN', 'UND_ERR_CONNECT_TIMEOUT']);
const CONNECTING_CALLS = new Set(['connect', 'getaddrinfo']);
const DEPTH_MAX = 32;

/** Retry if nothing was sent, for certain; undefined otherwise. To be called in the handler. */
export function classify(error: unknown): Reported | undefined {
  if (wasSomethingSent() || !nothingWasSent(error, 0)) {
    return undefined;
  }
  const root = rootOf(error);
  return new Retry('NOT_SENT', `${nameOfError(root)}: ${textOfError(root)}`, { cause: error });
}

/** Unsure is false. */
function nothingWasSent(error: unknown, depth: number): boolean {
  if (!(error instanceof Error) || depth > DEPTH_MAX) {
    return false;
  }
  const inner = innerOf(error);
  const isProved = isOfConnecting(error) || isOfCallNotSent(error);
  return (isProved || inner.length > 0) && inner.every((one) => nothingWasSent(one, depth + 1));
}

function isOfConnecting(error: Error): boolean {
  const { code, syscall } = error as { code?: unknown; syscall?: unknown };
  return CONNECTING_CODES.has(code as string) || CONNECTING_CALLS.has(syscall as string);
}

/** What it was caused by, or is of (AggregateError: each address of a name that was tried). */
function innerOf(error: Error): unknown[] {
  const { errors } = error as { errors?: unknown };
  return [...(Array.isArray(errors) ? errors : []), ...(error.cause === undefined ? [] : [error.cause])];
}

function rootOf(error: unknown): unknown {
  let root = error;
  for (let depth = 0; depth < DEPTH_MAX && root instanceof Error; depth++) {
    const [first] = innerOf(root);
    if (first === undefined) {
      break;
    }
    root = first;
  }
  return root;
}
