// The saga and its callers: three steps that do nothing, each recorded before the next one begins.
//   node saga.mjs POSTGRES_PORT CALLERS WARM_UP SECONDS
import { randomUUID } from 'node:crypto';

import { DBOS } from '@dbos-inc/dbos-sdk';

import { measure, numbers } from './callers.mjs';

const CONNECTIONS = 32; // of its 10 by default more than 100 callers take turns

const [port, callers, warmUp, seconds] = numbers(process.argv.slice(2));
const saga = DBOS.registerWorkflow(
    async (input) => {
        await DBOS.runStep(async () => input.slice(0, 10), { name: 'one' });
        await DBOS.runStep(async () => input.slice(0, 10), { name: 'two' });
        return await DBOS.runStep(async () => input.slice(0, 10), { name: 'three' });
    },
    { name: 'saga' },
);
DBOS.setConfig({
    name: 'saga',
    systemDatabaseUrl: `postgresql://postgres@127.0.0.1:${port}/dbos`,
    systemDatabasePoolSize: CONNECTIONS,
    logLevel: 'error',
});
await DBOS.launch();
const input = 'x'.repeat(100);
await measure(callers, warmUp, seconds, () => DBOS.withNextWorkflowID(randomUUID(), () => saga(input)));
await DBOS.shutdown();
