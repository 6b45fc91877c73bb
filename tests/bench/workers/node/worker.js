'use strict';
// A worker on the Node SDK whose handler does nothing but say DONE.
//
//   node worker.js --target ADDRESS --handler NAME --concurrency N

const { parseArgs } = require('node:util');
const { Worker } = require('../../../../workers/node');

const { values } = parseArgs({
  options: { target: { type: 'string' }, handler: { type: 'string' }, concurrency: { type: 'string' } },
});

async function main() {
  const worker = new Worker({
    addresses: [values.target],
    id: 'noop-node',
    concurrency: Number(values.concurrency),
    signals: true,
  });
  worker.handle(values.handler, async () => {});
  await worker.run();
}

main().catch((error) => {
  console.error('noop worker:', error);
  process.exitCode = 1;
});
