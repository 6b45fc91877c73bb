/**
 * What a worker knows and says. Goal: no slot, report or lease is lost or counted twice over drops and
 * reconnects, and wrong messages end the stream and nothing else. Method: pool, session and speech alone, with
 * the time in our hand; a scenario is a row of turns, and says what is to come of each.
 */
'use strict';

const assert = require('node:assert/strict');
const { describe, test } = require('node:test');

const { Counters } = require('../dist/cells.js');
const { OperationKind } = require('../dist/gen/saga/v1/saga_pb.js');
const { Ack_Result } = require('../dist/gen/saga/v1/worker_pb.js');
const { makeOutcome } = require('../dist/outcome.js');
const { Awake, Phase, Pool, State, STATES, SPARE_MS, STARTED_MAX, SURPLUS_MS } = require('../dist/pool.js');
const { BACKOFF_MIN_MS, IDLE_MS, ProtocolError, Session } = require('../dist/session.js');
const { duration, serverMessage, taskMessage, UID } = require('./messages.js');

const LEASE_MS = 30_000;
const WELCOME_MS = 10_000;
const SILENCE_MS = 35_000;
const LINGER_MS = 250;
const STEADY_MS = 5000;
const CREDIT = { debit: 3, ledger: 2 };
const DONE = makeOutcome('DONE', { output: Buffer.from('x') });
const SLOTS = [
  ['debit', 3],
  ['ledger', 2],
];

/** The same numbers for the same seed. */
function randomOf(seed) {
  let state = seed;
  return (below) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
}

/** A pool with streams, and the clock. Turns that end in s check what they answer. */
class World {
  constructor({ streams = 1, handlers = SLOTS, concurrency = 100 } = {}) {
    const random = randomOf(7);
    this.now = 1_000_000;
    this.counters = new Counters();
    this.pool = new Pool(
      {
        workerId: 'test-1',
        instance: '0'.repeat(32),
        concurrency,
        drainMs: 5000,
        handlers: handlers.map(([name, max]) => ({ name, max })),
      },
      this.counters,
      () => random(1000) / 1000,
    );
    this.sessions = Array.from({ length: streams }, () => new Session(this.pool, () => undefined));
    this.taken = new Map();
  }

  wait(ms) {
    this.now += ms;
  }

  open(at = 0) {
    this.sessions[at].opened(this.now);
  }

  /** Opens and is welcome; answers the fences of its Hello. */
  connect(at = 0) {
    this.open(at);
    const { command } = this.sessions[at].next(this.now);
    assert.equal(command.case, 'hello');
    this.receive(serverMessage('welcome', { node: 'n' }), at);
    return command.value.held.map((held) => Number(held.fence));
  }

  connects(held, at) {
    assert.deepEqual(this.connect(at), held);
  }

  lose(at = 0) {
    this.sessions[at].lost(this.now);
  }

  deliver(fences, { at = 0, since = 0, ...more } = {}) {
    this.receive(serverMessage('tasks', { tasks: fences.map((fence) => taskMessage(fence, more)) }), at, since);
  }

  take() {
    const held = this.pool.take(this.now);
    if (held) {
      this.taken.set(Number(held.fence), held);
    }
    return held && Number(held.fence);
  }

  takes(fence) {
    assert.equal(this.take(), fence);
  }

  finish(fence, outcome = DONE) {
    this.pool.finish(this.taken.get(fence), outcome, this.now);
  }

  giveBack(fence) {
    this.pool.giveBack(this.taken.get(fence), this.now);
  }

  ack(fence, result = Ack_Result.ACCEPTED, at = 0) {
    this.receive(serverMessage('acks', { acks: [{ sagaUid: UID, fence: BigInt(fence), result }] }), at);
  }

  extended(fence, ms, at = 0) {
    const leases = [{ sagaUid: UID, fence: BigInt(fence), lease: duration(ms) }];
    this.receive(serverMessage('extended', { leases }), at);
  }

  cancel(fence, at = 0) {
    this.receive(serverMessage('cancelHint', { sagaUid: UID, fence: BigInt(fence) }), at);
  }

  serverDrains(graceMs = 2000, at = 0) {
    this.receive(serverMessage('drainRequested', { grace: duration(graceMs) }), at);
  }

  drain() {
    this.pool.drain(this.now);
  }

  isDrained(is) {
    assert.equal(this.pool.isDrained(this.now), is);
  }

  isOver(is, at = 0) {
    assert.equal(this.sessions[at].isOver(this.now), is);
  }

  hasLeft(fence, ms) {
    assert.equal(this.taken.get(fence).leaseEndMs - this.now, ms);
  }

  stops(fence, stop) {
    assert.equal(this.taken.get(fence).stop(this.now), stop);
  }

  tells(stops) {
    const { told } = this.pool.stops(this.now);
    assert.deepEqual(
      told.map(({ held, stop }) => [Number(held.fence), stop]),
      stops,
    );
  }

  counts(counter, count) {
    assert.equal(this.counters.read()[counter], count);
  }

  /** The next message, in short. */
  say(at = 0) {
    const { case: name, value } = this.sessions[at].next(this.now)?.command ?? {};
    const fences = (list) => list.map((one) => Number(one.fence));
    switch (name) {
      case 'credit':
        return Object.fromEntries(value.handlers.map(({ handler, total }) => [handler, Number(total)]));
      case 'report':
        return { report: fences(value.reports) };
      case 'extend':
      case 'release':
        return { [name]: fences(value.leases) };
      default:
        return name;
    }
  }

  says(message, at) {
    assert.deepEqual(this.say(at), message);
  }

  receive(bytes, at = 0, since = 0) {
    this.sessions[at].receive(bytes, this.now - since, this.now);
  }
}

function scenario(name, ...rest) {
  const turns = rest.pop();
  test(name, () => turns(new World(...rest)));
}

scenario('credit is absolute and grows when a report was sent', (w) => {
  w.connects([]);
  w.says(CREDIT);
  w.says(undefined);
  w.deliver([1, 2, 3]);
  w.takes(1);
  w.says(undefined);
  w.finish(1);
  w.says({ report: [1] });
  w.says({ debit: 4 });
  w.says(undefined);
  w.ack(1);
  w.says(undefined); // the ack frees no second slot
  w.counts('reportsAccepted', 1);
});

scenario('idle: the same totals again', (w) => {
  w.connects([]);
  w.says(CREDIT);
  w.wait(IDLE_MS - 1);
  w.says(undefined);
  w.wait(1);
  w.says(CREDIT);
  w.says(undefined);
});

scenario('a new stream counts credit from the start', (w) => {
  w.connects([]);
  w.says(CREDIT);
  w.deliver([1]);
  w.lose();
  w.connects([]); // what no handler has seen is not in it
  w.says(CREDIT);
  w.takes(undefined);
});

scenario('a task that comes twice runs once', (w) => {
  w.connects([]);
  w.says(CREDIT);
  w.deliver([1, 1]);
  w.takes(1);
  w.takes(undefined);
});

scenario('a lost stream keeps what was started, and says it again', (w) => {
  w.connects([]);
  w.says(CREDIT);
  w.deliver([1, 2, 3]);
  w.takes(1);
  w.takes(2);
  w.finish(1);
  w.says({ report: [1] });
  w.lose();
  w.connects([2, 1]);
  w.says({ extend: [2] });
  w.says({ report: [1] });
  w.ack(1);
  w.lose();
  w.connects([2]);
});

scenario('an ack before the report was said again', (w) => {
  w.connects([]);
  w.says(CREDIT);
  w.deliver([1]);
  w.takes(1);
  w.finish(1);
  w.ack(1);
  w.says({ debit: 4 });
  w.says(undefined);
});

scenario('acks are counted by their result', (w) => {
  w.connects([]);
  w.says(CREDIT);
  w.deliver([1, 2]);
  w.takes(1);
  w.takes(2);
  w.finish(1);
  w.finish(2);
  w.says({ report: [1, 2] });
  w.ack(1, Ack_Result.STALE);
  w.ack(2, Ack_Result.DUPLICATE);
  w.ack(2, Ack_Result.DUPLICATE);
  w.counts('reportsStale', 1);
  w.counts('reportsDuplicate', 1);
});

scenario('a lease is extended every third of it, also of what waits', (w) => {
  w.connects([]);
  w.says(CREDIT);
  w.deliver([1, 2]);
  w.takes(1);
  w.wait(LEASE_MS / 3 - 1);
  w.says(undefined);
  w.wait(1);
  w.says({ extend: [1, 2] });
  w.says(undefined);
  w.wait(LEASE_MS / 3);
  w.says({ extend: [1, 2] });
});

scenario('a lease runs from when its confirmation was asked for', (w) => {
  w.connects([]);
  w.says(CREDIT);
  w.deliver([1]);
  w.takes(1);
  w.wait(LEASE_MS / 3);
  w.says({ extend: [1] });
  w.wait(0.8 * LEASE_MS - LEASE_MS / 3 - 1);
  w.hasLeft(1, 1);
  w.stops(1, undefined);
  w.wait(1);
  w.stops(1, 'lost');
  w.extended(1, LEASE_MS);
  w.hasLeft(1, LEASE_MS / 3);
  w.stops(1, undefined);
  w.extended(1, LEASE_MS); // nobody asked: it confirms nothing
  w.hasLeft(1, LEASE_MS / 3);
  w.extended(1, 0);
  w.stops(1, 'lost');
  w.counts('leasesLost', 1);
});

scenario('an answer counts from the oldest question without one', (w) => {
  w.connects([]);
  w.says(CREDIT);
  w.deliver([1]);
  w.takes(1);
  w.wait(LEASE_MS / 3);
  w.says({ extend: [1] });
  w.wait(LEASE_MS / 3);
  w.says({ extend: [1] });
  w.extended(1, LEASE_MS);
  w.hasLeft(1, 0.8 * LEASE_MS - LEASE_MS / 3);
});

scenario('a short lease is not asked for more often than every half second', (w) => {
  w.connects([]);
  w.says(CREDIT);
  w.deliver([1], { leaseMs: 600 });
  w.takes(1);
  w.wait(200);
  w.says({ extend: [1] });
  w.wait(499);
  w.says(undefined);
  w.wait(1);
  w.says({ extend: [1] });
});

scenario('a message that lay in the socket counts from before', (w) => {
  w.connects([]);
  w.says(CREDIT);
  w.deliver([1], { since: LEASE_MS });
  w.takes(undefined); // never started: given back
  w.says({ release: [1] });
  w.says({ debit: 4 });
});

scenario('the attempt time ends it too', (w) => {
  w.connects([]);
  w.says(CREDIT);
  w.deliver([1], { attemptMs: 5000 });
  w.takes(1);
  w.wait(4999);
  w.stops(1, undefined);
  w.wait(1);
  w.stops(1, 'lost');
  w.wait(LEASE_MS / 3);
  w.says(CREDIT); // idle; such a lease is not extended
  w.says(undefined);
});

scenario('a cancel hint tells the running and gives back the waiting', (w) => {
  w.connects([]);
  w.says(CREDIT);
  w.deliver([1, 2]);
  w.takes(1);
  w.cancel(1);
  w.cancel(2);
  w.cancel(77);
  w.tells([[1, 'cancelled']]);
  w.tells([]);
  w.says({ release: [2] });
  w.wait(LEASE_MS);
  w.tells([[1, 'lost']]);
});

scenario('drain says so, gives back, waits and ends', (w) => {
  w.connects([]);
  w.says(CREDIT);
  w.deliver([1, 2]);
  w.takes(1);
  w.drain();
  w.tells([[1, 'draining']]);
  w.says('drain');
  w.says({ release: [2] });
  w.deliver([3]); // was on its way
  w.says({ release: [3] });
  w.says(undefined);
  w.wait(60000);
  w.isDrained(false);
  w.finish(1);
  w.says({ report: [1] });
  w.isDrained(false);
  w.ack(1);
  w.isDrained(true);
});

scenario('drain waits for acks no longer than its limit', (w) => {
  w.connects([]);
  w.says(CREDIT);
  w.deliver([1]);
  w.takes(1);
  w.drain();
  w.says('drain');
  w.finish(1);
  w.says({ report: [1] });
  w.wait(4999);
  w.isDrained(false);
  w.wait(1);
  w.isDrained(true);
});

scenario('a drain that lasts repeats the same credit, and no more', (w) => {
  w.connects([]);
  w.says(CREDIT);
  w.deliver([1]);
  w.takes(1);
  w.drain();
  w.says('drain');
  w.finish(1);
  w.says({ report: [1] });
  w.wait(IDLE_MS);
  w.says(CREDIT);
});

scenario('drain lingers for what may be on its way', (w) => {
  w.connects([]);
  w.drain();
  w.isDrained(false);
  w.says('drain');
  w.wait(LINGER_MS - 1);
  w.isDrained(false);
  w.wait(1);
  w.isDrained(true);
});

scenario('a server that goes away is left once nothing is unsettled', (w) => {
  w.connects([]);
  w.says(CREDIT);
  w.deliver([1, 2]);
  w.takes(1);
  w.serverDrains();
  w.says({ release: [2] });
  w.says(undefined);
  w.isOver(false);
  w.finish(1);
  w.says({ report: [1] });
  w.isOver(false);
  w.ack(1);
  w.isOver(true);
});

scenario('a server that goes away is left after half its grace, though something runs', (w) => {
  w.connects([]);
  w.says(CREDIT);
  w.deliver([1]);
  w.takes(1);
  w.serverDrains(2000);
  w.wait(999);
  w.isOver(false);
  w.wait(1);
  w.isOver(true);
});

scenario('a silent server is given up', (w) => {
  w.open();
  w.wait(WELCOME_MS - 1);
  w.isOver(false);
  w.wait(1);
  w.isOver(true);
  w.lose();
  w.connects([]);
  w.wait(SILENCE_MS - 1);
  w.isOver(false);
  w.wait(1);
  w.isOver(true);
});

scenario('no more run at a time than concurrency', { concurrency: 2 }, (w) => {
  w.connects([]);
  w.says(CREDIT);
  w.deliver([1, 2, 3]);
  w.takes(1);
  w.takes(2);
  w.takes(undefined);
  w.finish(1);
  w.takes(3);
});

scenario('idle slots are offered to every node, and what is beyond them is given back', { streams: 2 }, (w) => {
  w.connects([]);
  w.says(CREDIT);
  w.wait(SPARE_MS);
  w.connects([], 1);
  w.says(CREDIT, 1);
  w.deliver([1, 2, 3]);
  w.deliver([4, 5, 6], { at: 1 });
  w.takes(1);
  w.takes(4);
  w.takes(2);
  w.takes(undefined);
  w.wait(SURPLUS_MS - 1);
  w.says(undefined);
  w.says(undefined, 1);
  w.wait(SPARE_MS);
  w.says({ release: [3] });
  w.says({ release: [5, 6] }, 1);
  w.says(undefined);
  w.says(undefined, 1);
});

scenario('slots of a busy worker are offered in turn', { streams: 2, handlers: [['debit', 2]] }, (w) => {
  w.connects([]);
  w.says({ debit: 2 });
  w.wait(SPARE_MS);
  w.connects([], 1);
  w.says({ debit: 2 }, 1);
  w.deliver([1, 2]);
  w.deliver([3, 4], { at: 1 });
  w.takes(1);
  w.takes(3);
  w.finish(1);
  w.takes(2);
  w.finish(3);
  w.says({ report: [1] }); // its slot goes to nobody: what waits has taken it
  w.says(undefined);
  w.says({ report: [3] }, 1);
  w.says(undefined, 1);
  w.takes(4);
  w.finish(2);
  w.says({ report: [2] });
  w.says(undefined);
  w.says({ debit: 3 }, 1);
  w.finish(4);
  w.says({ report: [4] }, 1);
  w.says(undefined, 1);
  w.says({ debit: 3 });
});

scenario('nodes that are equally busy get the slots in turn', { streams: 2, handlers: [['debit', 1]] }, (w) => {
  w.connects([]);
  w.says({ debit: 1 });
  w.wait(SPARE_MS);
  w.connects([], 1);
  w.says({ debit: 1 }, 1);
  w.deliver([1]);
  w.deliver([2], { at: 1 });
  w.takes(1);
  w.finish(1);
  w.says({ report: [1] });
  w.takes(2);
  w.finish(2);
  w.says({ report: [2] }, 1);
  w.says(undefined);
  w.says({ debit: 2 }, 1);
  w.deliver([3], { at: 1 });
  w.takes(3);
  w.finish(3);
  w.says({ report: [3] }, 1);
  w.says(undefined, 1);
  w.says({ debit: 2 });
});

scenario('another stream speaks for a dead one', { streams: 2 }, (w) => {
  w.connects([]);
  w.says(CREDIT);
  w.wait(SPARE_MS);
  w.connects([], 1);
  w.says(CREDIT, 1);
  w.deliver([1, 2, 3]);
  w.takes(1);
  w.takes(2);
  w.finish(1);
  w.says({ report: [1] });
  w.lose();
  w.says({ extend: [2] }, 1);
  w.says({ report: [1] }, 1);
  w.says({ release: [3] }, 1);
  w.connects([2, 1]);
});

scenario('with no stream all of it waits for the first that is welcome', { streams: 2 }, (w) => {
  w.connects([]);
  w.says(CREDIT);
  w.deliver([1, 2]);
  w.takes(1);
  w.lose();
  w.connects([1], 1);
  w.says({ extend: [1] }, 1);
  w.says({ release: [2] }, 1);
});

scenario('a drain is said on every stream', { streams: 2 }, (w) => {
  w.connects([]);
  w.connects([], 1);
  w.drain();
  w.says('drain');
  w.wait(LINGER_MS);
  w.isDrained(false);
  w.says('drain', 1);
  w.wait(LINGER_MS);
  w.isDrained(true);
});

scenario('what was to run and no handler has seen is given back', (w) => {
  w.connects([]);
  w.says(CREDIT);
  w.deliver([1, 2]);
  w.takes(1);
  w.takes(2);
  w.drain();
  w.giveBack(1);
  w.says('drain');
  w.says({ release: [1] });
  w.finish(2);
  w.says({ report: [2] });
  w.ack(2);
  w.wait(LINGER_MS);
  w.isDrained(true);
});

describe('what the server must not say ends the stream, and changes nothing', () => {
  const world = () => {
    const w = new World();
    w.connect();
    w.say();
    return w;
  };
  const task = (change) => {
    const message = taskMessage(1);
    Object.assign(message, change);
    return serverMessage('tasks', { tasks: [message] });
  };
  const lease = { seconds: 30n, nanos: -1 };
  for (const [name, bytes, why] of [
    ['bytes that are no message', Uint8Array.of(0xff, 0xff, 0xff), /no message/],
    ['a short uid', task({ sagaUid: Buffer.from('short') }), /malformed task/],
    ['no fence', task({ fence: 0n }), /malformed task/],
    ['no lease', task({ lease: undefined }), /malformed task/],
    ['a lease out of range', task({ lease: { ...taskMessage(1).lease, ...lease } }), /malformed task/],
    ['no attempt time', task({ attemptRemaining: undefined }), /malformed task/],
    ['no operation', task({ operation: OperationKind.UNSPECIFIED }), /malformed task/],
    ['an operation of later', task({ operation: 77 }), /malformed task/],
    ['no time of start', task({ sagaStartTime: undefined }), /malformed task/],
    ['a handler that is not ours', task({ handler: 'nobody' }), /not ours/],
    ['an ack of a short uid', serverMessage('acks', { acks: [{ sagaUid: UID.slice(1), fence: 1n }] }), /malformed ack/],
    ['an extension of a short uid', serverMessage('extended', { leases: [{ fence: 1n }] }), /malformed extension/],
    ['a hint of a short uid', serverMessage('cancelHint', { fence: 1n }), /malformed cancel hint/],
  ]) {
    test(name, () => {
      const w = world();
      assert.throws(
        () => w.receive(bytes),
        (error) => error instanceof ProtocolError && why.test(error.message),
      );
      assert.equal(w.pool.tasks.size, 0);
    });
  }

  test('a time of start after the year 9999', () => {
    const message = taskMessage(1);
    message.sagaStartTime.seconds = 1n << 40n;
    assert.throws(() => world().receive(serverMessage('tasks', { tasks: [message] })), /malformed task/);
  });

  test('more tasks than credit', () => {
    const w = world();
    w.deliver([1, 2, 3]);
    assert.throws(() => w.deliver([4]), /more tasks of debit than credit/);
  });

  test('an ack without a result', () => {
    const w = world();
    w.deliver([1]);
    w.take();
    w.finish(1);
    assert.throws(() => w.ack(1, Ack_Result.UNSPECIFIED), /without a result/);
  });

  test('a word of a newer server is passed over, and is a sign of life', () => {
    const w = world();
    w.wait(SILENCE_MS - 1);
    w.receive(Uint8Array.of(0xfa, 0x01, 0x00));
    w.wait(1);
    w.isOver(false);
  });

  test('damaged bytes end in a ProtocolError, or nothing', () => {
    const random = randomOf(3);
    const whole = serverMessage('tasks', { tasks: [taskMessage(1)] });
    for (let i = 0; i < 500; i++) {
      const bytes = Uint8Array.from(whole);
      for (let damage = random(4); damage >= 0; damage--) {
        bytes[random(bytes.length)] = random(256);
      }
      const w = world();
      try {
        w.receive(bytes);
      } catch (error) {
        assert.ok(error instanceof ProtocolError, error);
        continue;
      }
      w.take();
      w.say();
    }
  });
});

describe('limits', () => {
  const range = (count) => Array.from({ length: count }, (_, i) => i + 1);
  const full = (slots, more = {}) => {
    const w = new World({ handlers: [['debit', slots]], concurrency: slots, ...more });
    w.connect();
    w.say();
    return w;
  };

  test('reports go in batches of 512', () => {
    const w = full(1000);
    w.deliver(range(600));
    range(600).forEach((fence) => {
      w.takes(fence);
      w.finish(fence);
    });
    assert.equal(w.say().report.length, 512);
    assert.equal(w.say().report.length, 88);
  });

  test('a message of reports stays below the limit of its size', () => {
    const w = full(100);
    w.deliver(range(20));
    range(20).forEach((fence) => {
      w.take();
      w.finish(fence, makeOutcome('DONE', { output: new Uint8Array(256 * 1024) }));
    });
    assert.equal(w.say().report.length, 12);
  });

  test('no credit while too many reports wait for their ack', () => {
    const slots = 4096 + 10;
    const w = full(slots);
    w.deliver(range(slots));
    range(slots).forEach((fence) => {
      w.take();
      w.finish(fence);
    });
    let said = 0;
    while (w.sessions[0].count(State.FINISHED) > 0) {
      said += w.say().report.length;
    }
    assert.equal(said, slots);
    w.says(undefined);
    range(11).forEach((fence) => w.ack(fence));
    w.says({ debit: 2 * slots });
  });

  test('all that was started fits into a Hello', () => {
    const w = new World({
      handlers: [
        ['debit', 10_000],
        ['ledger', 10_000],
      ],
      concurrency: 100_000,
    });
    w.connect();
    w.say();
    w.deliver(range(10_000));
    w.deliver([10_001], { handler: 'ledger' });
    for (let i = 0; i < STARTED_MAX; i++) {
      assert.notEqual(w.take(), undefined);
    }
    w.takes(undefined);
  });

  test('credit of many slots travels together', () => {
    const w = new World({ handlers: [['debit', 8]] });
    w.connect();
    w.says({ debit: 8 });
    w.deliver([1, 2]);
    for (const fence of [1, 2]) {
      w.take();
      w.finish(fence);
      w.says({ report: [fence] });
      w.says(fence === 1 ? undefined : { debit: 10 });
    }
  });

  test('the back-off grows with jitter up to two seconds', () => {
    const w = new World();
    const pause = () => w.sessions[0].reconnectMs - w.now;
    for (const limit of [200, 400, 800, 1600, 2000, 2000, 2000, 2000]) {
      w.open();
      w.lose();
      assert.ok(pause() >= BACKOFF_MIN_MS && pause() <= limit, `${pause()} of ${limit}`);
    }
    w.connect();
    w.wait(STEADY_MS);
    w.lose();
    assert.ok(pause() <= 200);
  });
});

describe('what is read after a stop counts from before it, whoever reads first', () => {
  for (const [name, ticks, now, since] of [
    ['quiet', [100, 200], 250, 200],
    ['the reader first', [100], 60_100, 100],
    ['the ticker first', [100, 60_100], 60_101, 100],
    ['a moment later', [100, 60_100, 60_200], 60_340, 100],
    ['as usual again', [100, 60_100, 60_200, 60_300, 60_400], 60_450, 60_400],
    ['two stops', [100, 60_100, 60_800], 60_810, 60_100],
  ]) {
    test(name, () => {
      const awake = new Awake(0);
      ticks.forEach((at) => awake.tick(at));
      assert.equal(awake.sinceMs(now), since);
    });
  }
});

/** Whatever happens on two streams, sums are right, nothing runs twice, no handler runs more often than it may,
 *  and what runs is in each Hello. */
function walk(seed) {
  const random = randomOf(seed);
  const pick = (list) => list[random(list.length)];
  const w = new World({ streams: 2, handlers: [['debit', 3]] });
  const credit = [0, 0];
  const sent = [0, 0];
  const running = new Set();
  const ended = new Set();
  let fence = 0;
  const turns = {
    connect(at, session) {
      if (session.phase === Phase.OFFLINE) {
        const held = new Set(w.connect(at));
        running.forEach((one) => assert.ok(held.has(one)));
        credit[at] = sent[at] = 0;
      }
    },
    lose(at, session) {
      if (session.phase === Phase.ONLINE && random(10) < 3) {
        w.lose(at);
      }
    },
    say(at) {
      const total = w.say(at)?.debit;
      if (total !== undefined) {
        assert.ok(total >= credit[at]);
        credit[at] = total;
      }
    },
    deliver(at, session) {
      if (session.phase === Phase.ONLINE && sent[at] < credit[at]) {
        sent[at]++;
        w.deliver([++fence], { at });
      }
    },
    take() {
      const taken = w.take();
      if (taken !== undefined) {
        assert.ok(!running.has(taken) && !ended.has(taken));
        running.add(taken);
        assert.ok(running.size <= 3);
      }
    },
    end() {
      if (running.size > 0) {
        const one = pick([...running]);
        running.delete(one);
        ended.add(one);
        if (random(5) > 0) {
          w.finish(one);
        } else {
          w.giveBack(one);
        }
      }
    },
    ack(at, session) {
      if (session.phase === Phase.ONLINE) {
        [...session.list(State.REPORTED).values()].forEach((held) => w.ack(held.fence, Ack_Result.ACCEPTED, at));
      }
    },
    wait() {
      w.wait(random(400));
    },
  };
  for (let i = 0; i < 400; i++) {
    const at = random(2);
    turns[pick(Object.keys(turns))](at, w.sessions[at]);
    const [queued, runs, finished, reported, released] = STATES.map((state) =>
      w.sessions.reduce((sum, session) => sum + session.count(state), 0),
    );
    const handler = w.pool.handlers.get('debit');
    assert.equal(runs, running.size);
    assert.equal(handler.running, runs);
    assert.equal(handler.inUse, queued + runs + finished);
    assert.equal(w.pool.tasks.size, queued + runs + finished + reported + released);
  }
}

test('random walks', () => {
  for (let seed = 0; seed < 20; seed++) {
    walk(seed);
  }
});
