/** What a handler sees, and what is made of what it says. */
'use strict';

const assert = require('node:assert/strict');
const { describe, test } = require('node:test');

const { StringValueSchema } = require('@bufbuild/protobuf/wkt');
const { StringValue } = require('google-protobuf/google/protobuf/wrappers_pb');
const protobufjs = require('protobufjs');

const sagad = require('../dist/index.js');
const { OperationKind } = require('../dist/gen/saga/v1/saga_pb.js');
const { bytesOf, ofError, ofReturn } = require('../dist/outcome.js');
const { taskMessage } = require('./messages.js');

const { AlreadyDone, codecOf, NotDone, Rejected, Retry, StillUnknown, Task, Unknown } = sagad;
const MESSAGE = Uint8Array.of(0x0a, 0x02, 0x68, 0x69); // StringValue{value: "hi"}

describe('types of messages', () => {
  const reflected = protobufjs.parse('syntax = "proto3"; package a.b; message Text { string value = 1; }').root;
  const generated = {
    decode: (bytes) => reflected.lookupType('a.b.Text').decode(bytes),
    encode: (message) => reflected.lookupType('a.b.Text').encode(message),
  };
  class Text {} // as pbjs generates it
  Object.assign(Text, generated, { getTypeUrl: (prefix = 'type.googleapis.com') => `${prefix}/a.b.Text` });
  const own = {
    name: 'my.Text',
    decode: (bytes) => ({ value: Buffer.from(bytes.subarray(2)).toString() }),
    encode: ({ value }) => Buffer.concat([Uint8Array.of(0x0a, value.length), Buffer.from(value)]),
  };
  const google = new StringValue();
  google.setValue('hi');
  for (const [name, type, fullName, message, valueOf] of [
    ['@bufbuild/protobuf', StringValueSchema, 'google.protobuf.StringValue', { value: 'hi' }, (m) => m.value],
    ['google-protobuf', StringValue, '', google, (m) => m.getValue()],
    ['protobufjs, reflected', reflected.lookupType('a.b.Text'), 'a.b.Text', { value: 'hi' }, (m) => m.value],
    ['protobufjs, generated', Text, 'a.b.Text', { value: 'hi' }, (m) => m.value],
    ['ts-proto', { ...generated, $type: 'a.b.Text' }, 'a.b.Text', { value: 'hi' }, (m) => m.value],
    ['ts-proto without names', generated, '', { value: 'hi' }, (m) => m.value],
    ["the user's own", own, 'my.Text', { value: 'hi' }, (m) => m.value],
  ]) {
    test(name, () => {
      const codec = codecOf(type);
      assert.equal(codec.name, fullName);
      assert.deepEqual(Uint8Array.from(codec.encode(message)), MESSAGE);
      assert.equal(valueOf(codec.decode(MESSAGE)), 'hi');
    });
  }

  test('what is none', () => {
    assert.throws(() => codecOf({}), /a type of messages is/);
    assert.throws(() => codecOf(class {}), /a type of messages is/);
  });
});

test('the identity', () => {
  const time = { seconds: 1_700_000_000n, nanos: 123_456_789 };
  const task = new Task(taskMessage(1n << 60n, { sagaStartTime: time, labels: { tenant: 'a' }, try: 4 }));
  assert.equal(task.uid, '00010203-0405-0607-0809-0a0b0c0d0e0f');
  assert.deepEqual(task.startedAt, new Date(1_700_000_000_123));
  assert.equal(task.startedAtUs, 1_700_000_000_123_456n);
  assert.deepEqual([task.fence, task.try, task.labels.tenant], [1n << 60n, 4, 'a']);
  assert.equal(String(task), `default/settlement/order-17 run 1 debit ACTION try 4 fence ${1n << 60n}`);
});

test('payload, as bytes and as messages', () => {
  const name = StringValueSchema.typeName;
  const asked = new Task(taskMessage(1, { request: MESSAGE, requestType: name }));
  assert.deepEqual([asked.request(), asked.request(StringValueSchema).value], [MESSAGE, 'hi']);
  assert.equal(asked.request(StringValue).getValue(), 'hi'); // whose name is not known
  const plain = new Task(taskMessage(1, { input: MESSAGE, outputs: [{ step: 'b', output: MESSAGE }, { step: 'a' }] }));
  assert.deepEqual([plain.request(), plain.input(), plain.outputOf('b')], [MESSAGE, MESSAGE, MESSAGE]);
  assert.deepEqual([plain.outputOf('a').length, plain.outputOf('c')], [0, undefined]);
  assert.equal(plain.outputOf('c', StringValueSchema), undefined);
  assert.equal(plain.outputOf('b', StringValueSchema).value, 'hi');
  assert.deepEqual([...plain.outputs.keys()], ['b', 'a']);
  const wrong = new Task(taskMessage(1, { input: Uint8Array.of(0xff), requestType: '' }));
  for (const read of [() => wrong.request(StringValueSchema), () => wrong.input(StringValueSchema)]) {
    assert.throws(read, (error) => error instanceof Rejected && error.code === 'BAD_REQUEST');
  }
  const other = new Task(taskMessage(1, { request: MESSAGE, requestType: 'a.b.Text' }));
  assert.throws(
    () => other.request(StringValueSchema),
    (error) => error instanceof Retry && error.code === 'WRONG_TYPE',
  );
});

test('what is known of the action, and what a probe asks about', () => {
  const { ACTION, COMPENSATION, PROBE } = OperationKind;
  const done = { kind: 1, output: MESSAGE };
  for (const [operation, action, outcome, output] of [
    [ACTION, undefined, 'NONE', 0],
    [ACTION, done, 'NONE', 0],
    [COMPENSATION, undefined, 'MAYBE', 0],
    [COMPENSATION, { kind: 2 }, 'MAYBE', 0],
    [COMPENSATION, done, 'DONE', 4],
    [PROBE, undefined, 'NONE', 0],
    [PROBE, done, 'DONE', 4],
  ]) {
    const task = new Task(taskMessage(1, { operation, action }));
    assert.deepEqual([task.actionOutcome, task.actionOutput().length], [outcome, output]);
    assert.equal(task.probed === undefined, operation !== PROBE);
  }
  const attempt = { try: 3, fence: 41n, leaseTime: { seconds: 9n }, endTime: undefined };
  const probe = new Task(taskMessage(1, { operation: PROBE, probed: COMPENSATION, probedAttempt: attempt }));
  const wanted = { operation: 'COMPENSATION', try: 3, fence: 41n, leasedAt: new Date(9000), endedAt: undefined };
  assert.deepEqual(probe.probed, wanted);
  const bare = new Task(taskMessage(1, { operation: PROBE })).probed;
  assert.deepEqual([bare.operation, bare.try, bare.fence], ['ACTION', 0, 0n]);
});

test('a task that was made by hand is ours until it is told otherwise', async () => {
  const task = new Task(taskMessage(1));
  assert.ok(task.stillMine() && task.stopReason === undefined && !task.signal.aborted);
  const stopped = task.stopped();
  task.tellStop('draining');
  assert.equal(await stopped, 'draining');
  assert.ok(!task.signal.aborted);
  task.tellStop('lost');
  assert.ok(task.signal.aborted && task.signal.reason instanceof sagad.LeaseLost);
  const late = new Task(taskMessage(1)); // told before anybody asked
  late.tellStop('lost');
  assert.ok((await late.stopped()) === 'lost' && late.signal.aborted);
});

describe('what is reported', () => {
  const of = (error, verdict) => ofError(error, verdict, bytesOf, 10);
  for (const [name, outcome, kind, more] of [
    ['rejected', of(new Rejected('NO', 'no')), 'REJECTED', { code: 'NO', message: 'no' }],
    ['retry', of(new Retry()), 'RETRY', { code: 'RETRY', retryAfterMs: 0 }],
    ['retry later', of(new Retry('BUSY', '', { afterMs: 1250.7 })), 'RETRY', { retryAfterMs: 1250 }],
    ['unknown', of(new Unknown()), 'UNKNOWN', { code: 'UNKNOWN' }],
    ['not done', of(new NotDone()), 'NOT_DONE', { code: '' }],
    ['still unknown', of(new StillUnknown('AWAY')), 'STILL_UNKNOWN', { code: 'AWAY' }],
    ['already done', of(new AlreadyDone(MESSAGE, { ours: true })), 'ALREADY_DONE', { ours: true, output: MESSAGE }],
    ['too large', of(new AlreadyDone(Buffer.alloc(11), { ours: true })), 'UNKNOWN', { code: 'OUTPUT_TOO_LARGE' }],
    ['no bytes', of(new AlreadyDone('x', { ours: true })), 'UNKNOWN', { code: 'BAD_OUTPUT' }],
    ['a verdict', of(new Error('x'), new Retry('NOT_SENT')), 'RETRY', { code: 'NOT_SENT' }],
    ['no verdict', of(new TypeError('x')), 'UNKNOWN', { code: 'TypeError', message: 'x' }],
    ['what is no error', of({ toString: null }), 'UNKNOWN', { code: 'object' }],
    ['a returned value', ofReturn(MESSAGE, bytesOf, 10), 'DONE', { output: MESSAGE }],
    ['a large one', ofReturn(Buffer.alloc(11), bytesOf, 10), 'UNKNOWN', { code: 'OUTPUT_TOO_LARGE' }],
    ['controls', of(new Rejected('A\nB', 'a\u0000b\u0085c\ud800d')), 'REJECTED', { code: 'A B', message: 'a b c?d' }],
    [
      'long texts',
      of(new Rejected('ä'.repeat(65), 'x' + 'ä'.repeat(600))),
      'REJECTED',
      {
        code: 'ä'.repeat(64),
        message: 'x' + 'ä'.repeat(511),
      },
    ],
  ]) {
    test(name, () => assert.deepEqual({ ...outcome, ...more, kind }, outcome));
  }

  test('wrong arguments are refused at once', () => {
    assert.throws(() => new Rejected(''), TypeError);
    for (const afterMs of [-1, NaN, 24 * 3600 * 1000 + 1]) {
      assert.throws(() => new Retry('X', '', { afterMs }), RangeError);
    }
  });

  test('the cause stays', () => {
    const cause = new Error('x');
    assert.equal(new Rejected('NO', '', { cause }).cause, cause);
    assert.equal(new Rejected('NO', 'none').message, 'NO: none');
    assert.equal(new Rejected('NO').name, 'Rejected');
  });
});
