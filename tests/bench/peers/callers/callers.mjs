// Callers in a closed loop: each starts a workflow, waits for its end, and starts the next one. What ends
// between the warm-up and the end of the time is counted; each of those gives its time from start to end.
// Any error ends it: a figure with errors in it means nothing.
import { performance } from 'node:perf_hooks';

export async function measure(callers, warmUpSeconds, seconds, runOne) {
    const from = performance.now() + warmUpSeconds * 1000;
    const until = from + seconds * 1000;
    const times = [];
    async function caller() {
        for (let begin = performance.now(); begin < until; ) {
            await runOne();
            const end = performance.now();
            if (end >= from && end < until) {
                times.push(end - begin);
            }
            begin = end;
        }
    }
    await Promise.all(Array.from({ length: callers }, caller));
    if (times.length === 0) {
        throw new Error('no workflow ended in the time');
    }
    times.sort((a, b) => a - b);
    const quantile = (q) => times[Math.min(times.length - 1, Math.floor(times.length * q))];
    console.log(
        JSON.stringify({
            callers,
            workflows: times.length,
            workflows_per_s: Math.round(times.length / seconds),
            p50_ms: Number(quantile(0.5).toFixed(1)),
            p99_ms: Number(quantile(0.99).toFixed(1)),
        }),
    );
}

export function numbers(argv) {
    const values = argv.map(Number);
    if (values.length === 0 || !values.every((value) => Number.isInteger(value) && value > 0)) {
        throw new Error(`not numbers: ${argv.join(' ')}`);
    }
    return values;
}
