// Calls the saga and waits for its result; a key with each call, so that a repeated one would not run again,
// as with the other peers.
//   node call.mjs INGRESS_PORT CALLERS WARM_UP SECONDS
import { randomUUID } from 'node:crypto';
import http from 'node:http';

import { measure, numbers } from './callers.mjs';

const LIMIT_MS = 60000;

const [port, callers, warmUp, seconds] = numbers(process.argv.slice(2));
const agent = new http.Agent({ keepAlive: true, maxSockets: callers });
const body = JSON.stringify('x'.repeat(100));

function call() {
    return new Promise((resolve, reject) => {
        const request = http.request({
            agent,
            host: '127.0.0.1',
            port,
            path: '/saga/run',
            method: 'POST',
            headers: {
                'content-type': 'application/json',
                'content-length': body.length,
                'idempotency-key': randomUUID(),
            },
        });
        request.on('error', reject);
        request.setTimeout(LIMIT_MS, () => request.destroy(new Error('no answer')));
        request.on('response', (response) => {
            response.on('error', reject);
            response.on('end', () =>
                response.statusCode === 200 ? resolve() : reject(new Error(`HTTP ${response.statusCode}`)),
            );
            response.resume();
        });
        request.end(body);
    });
}

await measure(callers, warmUp, seconds, call);
agent.destroy();
