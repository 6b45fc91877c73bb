/** Where the worker says what went wrong. */

export type Level = 'debug' | 'info' | 'warn' | 'error';
export type Fields = Readonly<Record<string, unknown>>;
export type Log = (level: Level, text: string, fields?: Fields) => void;

/** As most loggers are; `console` is one. */
export type Logger = Readonly<Record<Level, (text: string, fields?: Fields) => void>>;

/** Warnings and errors on stderr, one line each. */
export const stderrLogger: Logger = {
  debug: () => undefined,
  info: () => undefined,
  warn: (text, fields) => writeLine('warning', text, fields),
  error: (text, fields) => writeLine('error', text, fields),
};

function writeLine(level: string, text: string, fields: Fields = {}): void {
  const pairs = Object.entries(fields).map(([name, value]) => ` ${name}=${shown(value)}`);
  process.stderr.write(`sagad: ${level}: ${text}${pairs.join('')}\n`);
}

function shown(value: unknown): string {
  const text = value instanceof Error ? (value.stack ?? String(value)) : String(value);
  return /^[\w.:/-]+$/.test(text) ? text : JSON.stringify(text);
}
