/**
 * The worker of the settlement demo (workers/demo/settlement.proto) in Node: the bank's steps under the guard
 * (bank.ts), the risk steps over gRPC (risk.ts). deploy/demo.sh has the database, the risk service and sagad.
 *
 *     settlement_worker --sagad ADDRESS[,ADDRESS...] --bank CONNINFO --risk ADDRESS --id NAME [--only RPC,...]
 */

import { parseArgs } from 'node:util';

import pg from 'pg';
import { Worker } from 'sagad';

import { Bank } from './bank.js';
import { poolConfigOf } from './conninfo.js';
import { addHandlers } from './handlers.js';
import { Risk } from './risk.js';

const USAGE =
  'usage: settlement_worker --sagad ADDRESS[,ADDRESS...] --bank CONNINFO --risk ADDRESS --id NAME [--only RPC,...]';
const CONCURRENCY = 16;
const DRAIN_MS = 5000;

interface Options {
  readonly sagad: string;
  readonly bank: string;
  readonly risk: string;
  readonly id: string;
  readonly only?: string;
}

function readOptions(): Options {
  const string = { type: 'string' } as const;
  const { values } = parseArgs({ options: { sagad: string, bank: string, risk: string, id: string, only: string } });
  const { sagad, bank, risk, id, only } = values;
  if (!sagad || !bank || !risk || !id) {
    throw new Error('an option is missing');
  }
  return { sagad, bank, risk, id, only };
}

async function serve({ sagad, bank, risk: address, id, only }: Options): Promise<void> {
  const pool = new pg.Pool({ ...poolConfigOf(bank), max: CONCURRENCY });
  pool.on('error', () => undefined); // of an idle connection, which the pool then throws away
  const risk = new Risk(address);
  const addresses = sagad.split(',');
  const worker = new Worker({ addresses, id, concurrency: CONCURRENCY, drainMs: DRAIN_MS, signals: true });
  try {
    addHandlers(worker, new Bank(pool), risk, only?.split(','));
    console.log(`settlement_worker: serving as ${id}`);
    await worker.run();
  } finally {
    risk.close();
    await pool.end();
  }
}

function textOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

let options: Options;
try {
  options = readOptions();
} catch (error) {
  console.error(`settlement_worker: ${textOf(error)}\n${USAGE}`);
  process.exit(2);
}
try {
  await serve(options);
} catch (error) {
  console.error(`settlement_worker: ${textOf(error)}`);
  process.exitCode = 1;
}
