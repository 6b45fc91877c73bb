/** What a session says: one message at a time, the most urgent first. */

import { create, type MessageInitShape } from '@bufbuild/protobuf';

import { Outcome as OutcomeNumber } from './gen/saga/v1/saga_pb.js';
import {
  type Credit_PerHandlerSchema,
  type HeldLeaseSchema,
  type HelloSchema,
  type TaskReportSchema,
  type WorkerMessage,
  WorkerMessageSchema,
} from './gen/saga/v1/worker_pb.js';
import { type Held, NEVER_MS, STARTED_MAX, State, WAS_STARTED } from './pool.js';
import { type Credits, IDLE_MS, type Session } from './session.js';
import { VERSION } from './version.js';

const UNACKED_MAX = 4096; // no new credit beyond it
const REPORTS_MAX = 512; // in one Report
const REPORT_BYTES = 3 << 20; // of outputs in one Report
const LEASES_MAX = STARTED_MAX; // in one Hello, Extend or Release
const EXTEND_MIN_MS = 500; // not more often, however short what is left of a lease

type Command = MessageInitShape<typeof WorkerMessageSchema>['command'];
type HeldLeaseInit = MessageInitShape<typeof HeldLeaseSchema>;
type CreditInit = MessageInitShape<typeof Credit_PerHandlerSchema>;
type ReportInit = MessageInitShape<typeof TaskReportSchema>;

/** The next message, and taken as sent; undefined: none now. */
export function next(session: Session, nowMs: number): WorkerMessage | undefined {
  const command = nextCommand(session, nowMs);
  return command && create(WorkerMessageSchema, { command });
}

function nextCommand(session: Session, nowMs: number): Command | undefined {
  if (!session.helloSent) {
    session.helloSent = true;
    return { case: 'hello', value: hello(session) };
  }
  if (session.pool.draining && !session.drainSent) {
    session.drainSent = true;
    session.drainSentMs = nowMs;
    return { case: 'drain', value: {} };
  }
  const leases = nowMs >= session.extendCheckMs ? extend(session, nowMs) : [];
  if (leases.length > 0) {
    return { case: 'extend', value: { leases } };
  }
  if (session.count(State.FINISHED) > 0) {
    return { case: 'report', value: { reports: reports(session) } };
  }
  if (session.count(State.RELEASED) > 0) {
    return { case: 'release', value: { leases: release(session) } };
  }
  const repeat = nowMs - session.sentMs >= IDLE_MS;
  const handlers = session.creditDue || repeat ? credit(session, nowMs, repeat) : [];
  return handlers.length > 0 ? { case: 'credit', value: { handlers } } : undefined;
}

function hello({ pool }: Session): MessageInitShape<typeof HelloSchema> {
  const held: HeldLeaseInit[] = [];
  for (const state of WAS_STARTED) {
    for (const session of pool.sessions) {
      for (const one of session.list(state).values()) {
        held.push(lease(one)); // never more than fit: Pool.take
      }
    }
  }
  // What waits on other streams is held, too; what is too much is given back there.
  for (const session of pool.sessions) {
    for (const one of session.list(State.QUEUED).values()) {
      if (held.length < LEASES_MAX) {
        held.push(lease(one));
      } else {
        session.release(one);
      }
    }
  }
  return {
    workerId: pool.options.workerId,
    instance: pool.options.instance,
    handlers: Array.from(pool.handlers.values(), ({ name, max }) => ({ handler: name, maxInFlight: max })),
    held,
    sdk: `sagad-node/${VERSION}`,
    onlyStream: pool.sessions.length === 1,
  };
}

function reports(session: Session): ReportInit[] {
  const some: ReportInit[] = [];
  let size = 0;
  for (const held of session.list(State.FINISHED).values()) {
    size += held.outcome?.output.length ?? 0;
    if (some.length === REPORTS_MAX || (some.length > 0 && size > REPORT_BYTES)) {
      break;
    }
    some.push(report(held));
    session.pool.move(held, session, State.REPORTED);
  }
  return some;
}

function release(session: Session): HeldLeaseInit[] {
  const some = [...session.list(State.RELEASED).values()].slice(0, LEASES_MAX);
  some.forEach((held) => session.pool.forget(held));
  return some.map(lease);
}

/** The leases whose third is over; notes when the next one is. */
function extend(session: Session, nowMs: number): HeldLeaseInit[] {
  const due: HeldLeaseInit[] = [];
  session.extendCheckMs = NEVER_MS;
  for (const state of [State.RUNNING, State.QUEUED]) {
    for (const held of session.list(state).values()) {
      if (held.lost || nowMs >= held.attemptUntilMs) {
        continue;
      }
      if (held.extendAtMs <= nowMs && due.length < LEASES_MAX) {
        due.push(lease(held));
        held.extendAtMs = nowMs + Math.max(Math.floor(held.leaseMs / 3), EXTEND_MIN_MS);
        held.extendSentMs ||= nowMs;
      }
      session.extendCheckMs = Math.min(session.extendCheckMs, held.extendAtMs);
    }
  }
  return due;
}

function credit(session: Session, nowMs: number, repeat: boolean): CreditInit[] {
  const { pool } = session;
  const tooMany = session.count(State.REPORTED) >= UNACKED_MAX;
  const paused = pool.draining || session.serverDrains || tooMany;
  const said: CreditInit[] = [];
  for (const handler of pool.handlers.values()) {
    const credits = session.creditOf(handler);
    if (!paused) {
      credits.offered += pool.offer(session, handler, nowMs);
    }
    if (!repeat && (paused || !isWorthSaying(credits, handler.max))) {
      continue;
    }
    if (!paused) {
      credits.granted = credits.offered;
    }
    said.push({ handler: handler.name, total: BigInt(credits.granted) });
  }
  session.creditDue = tooMany;
  return said;
}

/** A quarter of the slots is said at once, and so is anything while the server has less than that left: each
 *  task of a busy worker would otherwise cost a message of its own. */
function isWorthSaying({ received, offered, granted }: Credits, max: number): boolean {
  const quarter = Math.floor(max / 4);
  return offered > granted && (offered - granted >= quarter || granted - received < quarter);
}

function lease({ uid, fence }: Held): HeldLeaseInit {
  return { sagaUid: uid, fence };
}

function report({ uid, fence, outcome }: Held): ReportInit {
  if (!outcome) {
    throw new Error('a finished task has an outcome');
  }
  const { kind, output, ours, code, message, retryAfterMs } = outcome;
  const init: ReportInit = {
    sagaUid: uid,
    fence,
    outcome: OutcomeNumber[kind],
    output,
    ours,
    errorCode: code,
    errorMessage: message,
  };
  if (kind === 'RETRY' && retryAfterMs > 0) {
    const seconds = Math.floor(retryAfterMs / 1000);
    init.retryAfter = { seconds: BigInt(seconds), nanos: (retryAfterMs % 1000) * 1e6 };
  }
  return init;
}
