// The saga: three steps that do nothing, each recorded before the next one begins.
//   node worker.mjs PORT
import * as restate from '@restatedev/restate-sdk';

import { numbers } from './callers.mjs';

// The SDK needs this, and Node has it from 22 on.
Promise.withResolvers ??= function () {
    const made = {};
    made.promise = new Promise((resolve, reject) => Object.assign(made, { resolve, reject }));
    return made;
};

const [port] = numbers(process.argv.slice(2));
const saga = restate.service({
    name: 'saga',
    handlers: {
        run: async (context, input) => {
            await context.run('one', () => input.slice(0, 10));
            await context.run('two', () => input.slice(0, 10));
            return await context.run('three', () => input.slice(0, 10));
        },
    },
});
await restate.serve({ services: [saga], port });
