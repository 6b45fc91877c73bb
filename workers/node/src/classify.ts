import type { Reported } from './outcome.js';
export type Classify = (error: unknown) => Reported | undefined;
export function classify(_error: unknown): Reported | undefined { return undefined; }
