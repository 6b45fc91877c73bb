/** One run of a handler, from its task to its outcome. */

import type { Classify } from './classify.js';
import type { MessageType } from './codec.js';
import type { Log } from './log.js';
import { nameOfError, ofError, ofReturn, type Outcome, Reported } from './outcome.js';
import { watchSends } from './sends.js';
import type { Task } from './task.js';

/** A handler as the user gave it. */
export interface Registered {
  readonly name: string;
  readonly max: number;
  readonly request: MessageType | undefined; // of its second argument; undefined: it has none
  readonly output: MessageType | undefined; // of what it returns; undefined: bytes
  readonly handler: (task: Task, ...request: never) => unknown;
}

export interface RunOptions {
  readonly classify: Classify;
  readonly maxOutputBytes: number;
  readonly log: Log;
}

/** Never rejects. */
export function runHandler(registered: Registered, task: Task, options: RunOptions): Promise<Outcome> {
  return watchSends(() => run(registered, task, options));
}

async function run(registered: Registered, task: Task, options: RunOptions): Promise<Outcome> {
  const encode = (output: unknown): Uint8Array => task.outputBytes(output);
  const { request, handler } = registered;
  try {
    task.checkOutputType();
    const output: unknown = await handler(task, ...((request ? [task.request(request)] : []) as never));
    return ofReturn(output, encode, options.maxOutputBytes);
  } catch (error) {
    const outcome = ofError(error, verdictOn(error, options), encode, options.maxOutputBytes);
    if (!(error instanceof Reported)) {
      const fields = { task: String(task), handler: registered.name, outcome: outcome.kind, error };
      options.log('warn', 'a handler failed', fields);
    }
    return outcome;
  }
}

function verdictOn(error: unknown, { classify, log }: RunOptions): Reported | undefined {
  if (error instanceof Reported) {
    return undefined; // it says itself what it means
  }
  try {
    return classify(error);
  } catch (problem) {
    log('error', 'what an error means could not be found out', { of: nameOfError(error), error: problem });
    return undefined;
  }
}
