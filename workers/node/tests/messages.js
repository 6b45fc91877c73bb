/** Messages of the orchestrator, for tests. */
'use strict';

const { create, toBinary } = require('@bufbuild/protobuf');
const { OperationKind } = require('../dist/gen/saga/v1/saga_pb.js');
const { ServerMessageSchema, TaskSchema } = require('../dist/gen/saga/v1/worker_pb.js');

const UID = Uint8Array.from({ length: 16 }, (_, i) => i);

function duration(ms) {
  return { seconds: BigInt(Math.floor(ms / 1000)), nanos: (ms % 1000) * 1e6 };
}

function taskMessage(fence, { handler = 'debit', leaseMs = 30_000, attemptMs = 60_000, ...more } = {}) {
  return create(TaskSchema, {
    sagaUid: UID,
    namespace: 'default',
    definition: 'settlement',
    revision: 3,
    sagaId: 'order-17',
    run: 1,
    sagaStartTime: { seconds: 1_700_000_000n },
    step: 'debit',
    operation: OperationKind.ACTION,
    handler,
    try: 1,
    fence: BigInt(fence),
    lease: duration(leaseMs),
    attemptRemaining: duration(attemptMs),
    ...more,
  });
}

/** A ServerMessage as bytes. */
function serverMessage(name, value) {
  return toBinary(ServerMessageSchema, create(ServerMessageSchema, { command: { case: name, value } }));
}

module.exports = { UID, duration, serverMessage, taskMessage };
