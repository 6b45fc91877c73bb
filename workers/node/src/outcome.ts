/**
 * What came of a task: the outcome that is reported, and the errors by which a handler says it.
 *
 * A handler that returns says DONE with what it returned. Everything else is thrown:
 *
 *     Rejected       a business no; this attempt had no effect
 *     Retry          this attempt certainly had no effect: nothing was sent, or so it was said
 *     AlreadyDone    the other side says that it exists; `ours` if it confirmed our key
 *     Unknown        it may have happened: a time-out after sending, a broken connection
 *     NotDone        a probe: the other side knows nothing of it
 *     StillUnknown   a probe: it could not be found out now
 *
 * Any other error counts as UNKNOWN, unless `classify` can tell that nothing was sent.
 */

export const CODE_BYTES_MAX = 128;
export const MESSAGE_BYTES_MAX = 1024;
export const RETRY_AFTER_MS_MAX = 24 * 3600 * 1000;

export type OutcomeKind = 'DONE' | 'ALREADY_DONE' | 'REJECTED' | 'RETRY' | 'UNKNOWN' | 'NOT_DONE' | 'STILL_UNKNOWN';

/** An outcome as it is reported: its texts are fit to be sent. */
export interface Outcome {
  readonly kind: OutcomeKind;
  readonly output: Uint8Array;
  readonly ours: boolean;
  readonly code: string;
  readonly message: string;
  readonly retryAfterMs: number;
}

const NOTHING = new Uint8Array(0);

export function makeOutcome(kind: OutcomeKind, more: Partial<Outcome> = {}): Outcome {
  return { output: NOTHING, ours: false, code: '', message: '', retryAfterMs: 0, ...more, kind };
}

/** Without what the orchestrator refuses in a text: controls, and halves of surrogate pairs. */
function plain(text: string): string {
  // eslint-disable-next-line no-control-regex
  return text.replace(/[\u0000-\u001f\u007f-\u009f]/g, ' ').replace(/\p{Cs}/gu, '?');
}

/** Cut at a character, so that it is at most `bytesMax` of UTF-8. */
function cut(text: string, bytesMax: number): string {
  if (Buffer.byteLength(text) <= bytesMax) {
    return text;
  }
  const bytes = Buffer.from(text);
  let end = bytesMax;
  while (end > 0 && ((bytes[end] ?? 0) & 0xc0) === 0x80) {
    end--;
  }
  return bytes.toString('utf8', 0, end);
}

/** A code that the orchestrator will take. */
export function codeText(code: string): string {
  return cut(plain(code), CODE_BYTES_MAX) || 'UNSPECIFIED';
}

/** A message that the orchestrator will take. */
export function messageText(message: string): string {
  return cut(plain(message), MESSAGE_BYTES_MAX);
}

/** The base of the errors by which a handler says what came of its task. */
export abstract class Reported extends Error {
  abstract readonly kind: OutcomeKind;
  /** Stable and for programs, at most 128 bytes; '' where there is none. */
  readonly code: string;
  /** What is reported beside the code, for people, cut after 1,024 bytes. */
  readonly detail: string;

  protected constructor(code: string, detail: string, text: string, options?: ErrorOptions) {
    super(text, options);
    this.name = new.target.name;
    this.code = code;
    this.detail = detail;
  }

  /** What is reported. `encode` makes bytes of what a handler gave as its output. */
  outcome(_encode: (output: unknown) => Uint8Array = bytesOf): Outcome {
    return makeOutcome(this.kind, {
      code: codeText(this.code),
      message: messageText(this.detail),
    });
  }
}

abstract class WithCode extends Reported {
  protected constructor(code: string, message: string, options?: ErrorOptions) {
    if (!code) {
      throw new TypeError('a code is not empty: say what went wrong in a word');
    }
    super(code, message, message ? `${code}: ${message}` : code, options);
  }
}

/** A business no: this attempt had no effect, and another one would not help. */
export class Rejected extends WithCode {
  readonly kind = 'REJECTED';

  constructor(code: string, message = '', options?: ErrorOptions) {
    super(code, message, options);
  }
}

/** It may have happened. Of a probe: as StillUnknown. */
export class Unknown extends WithCode {
  readonly kind = 'UNKNOWN';

  constructor(code = 'UNKNOWN', message = '', options?: ErrorOptions) {
    super(code, message, options);
  }
}

export interface RetryOptions extends ErrorOptions {
  /** Not before so many milliseconds, at most 24 hours; 0: as the definition says. */
  afterMs?: number;
}

/** This attempt certainly had no effect, since nothing was sent, or the other side said so. */
export class Retry extends WithCode {
  readonly kind = 'RETRY';
  readonly afterMs: number;

  constructor(code = 'RETRY', message = '', options: RetryOptions = {}) {
    super(code, message, options);
    this.afterMs = options.afterMs ?? 0;
    if (!(this.afterMs >= 0 && this.afterMs <= RETRY_AFTER_MS_MAX)) {
      throw new RangeError(`retry after 0 to 24 hours, not ${this.afterMs} ms`);
    }
  }

  override outcome(): Outcome {
    return { ...super.outcome(), retryAfterMs: Math.floor(this.afterMs) };
  }
}

export interface AlreadyDoneOptions extends ErrorOptions {
  /** The other side confirmed that it is our key. */
  ours: boolean;
}

/** The other side says that it exists already. The output is what a handler would have returned. */
export class AlreadyDone extends Reported {
  readonly kind = 'ALREADY_DONE';
  readonly output: unknown;
  readonly ours: boolean;

  constructor(output: unknown, options: AlreadyDoneOptions) {
    super('', '', options.ours ? 'already done, ours' : 'already done', options);
    this.output = output;
    this.ours = options.ours;
  }

  override outcome(encode: (output: unknown) => Uint8Array = bytesOf): Outcome {
    return makeOutcome(this.kind, { output: encode(this.output), ours: this.ours });
  }
}

/** A probe: the other side knows nothing of it. */
export class NotDone extends Reported {
  readonly kind = 'NOT_DONE';

  constructor(options?: ErrorOptions) {
    super('', '', 'not done', options);
  }

  override outcome(): Outcome {
    return makeOutcome(this.kind);
  }
}

/** A probe: it could not be found out now. */
export class StillUnknown extends WithCode {
  readonly kind = 'STILL_UNKNOWN';

  constructor(code = 'STILL_UNKNOWN', message = '', options?: ErrorOptions) {
    super(code, message, options);
  }
}

/** An output that no codec was given for: bytes, or nothing. TypeError for anything else. */
export function bytesOf(output: unknown): Uint8Array {
  if (output === undefined || output === null) {
    return NOTHING;
  }
  if (output instanceof Uint8Array) {
    return output;
  }
  const what = typeof output === 'object' ? `a ${output.constructor?.name ?? 'object'}` : `a ${typeof output}`;
  throw new TypeError(`an output is a Uint8Array or nothing, not ${what}: give the handler's output type`);
}

/** DONE with what a handler returned; UNKNOWN where that cannot be reported. */
export function ofReturn(output: unknown, encode: (output: unknown) => Uint8Array, bytesMax: number): Outcome {
  try {
    return within(makeOutcome('DONE', { output: encode(output) }), bytesMax);
  } catch (error) {
    return badOutput(error);
  }
}

/** What an error of a handler says; `verdict` is what classify says of it. */
export function ofError(
  error: unknown,
  verdict: Reported | undefined,
  encode: (output: unknown) => Uint8Array,
  bytesMax: number,
): Outcome {
  const said = error instanceof Reported ? error : verdict;
  if (said === undefined) {
    return makeOutcome('UNKNOWN', { code: codeText(nameOfError(error)), message: messageText(textOfError(error)) });
  }
  try {
    return within(said.outcome(encode), bytesMax);
  } catch (problem) {
    return badOutput(problem);
  }
}

function badOutput(error: unknown): Outcome {
  return makeOutcome('UNKNOWN', { code: 'BAD_OUTPUT', message: messageText(textOfError(error)) });
}

function within(outcome: Outcome, bytesMax: number): Outcome {
  const size = outcome.output.length;
  if (size <= bytesMax) {
    return outcome;
  }
  return makeOutcome('UNKNOWN', {
    code: 'OUTPUT_TOO_LARGE',
    message: `the output is ${size} bytes, at most ${bytesMax} can be reported`,
  });
}

/** A word for an error: its class; the code of a plain Error that has one; its type if it is none. */
export function nameOfError(error: unknown): string {
  if (!(error instanceof Error)) {
    return error === null ? 'null' : typeof error;
  }
  const { code, name, constructor } = error as Error & { code?: unknown };
  const className = constructor?.name || 'Error';
  if (className !== 'Error') {
    return className;
  }
  return [code, name].find((word): word is string => typeof word === 'string' && word !== '') ?? className;
}

/** What an error says; never throws. */
export function textOfError(error: unknown): string {
  try {
    return error instanceof Error ? String(error.message) : String(error);
  } catch {
    return 'what was thrown cannot be shown';
  }
}
