/** Which rpc of settlement.proto is done by what. */

import type { DescMessage, DescMethodUnary } from '@bufbuild/protobuf';
import type { HandlerFunction, Worker } from 'sagad';

import type { Bank } from './bank.js';
import { Settlement } from './gen/settlement_pb.js';
import type { Risk } from './risk.js';

const BANK_IN_FLIGHT = 8; // of each handler
const RISK_IN_FLIGHT = 12;

/** Adds the handlers. `only`: these rpcs alone; Error: one of them is not there. */
export function addHandlers(worker: Worker, bank: Bank, risk: Risk, only?: readonly string[]): void {
  const all = new Map<string, () => void>();
  const rpc = <I extends DescMessage, O extends DescMessage>(
    method: DescMethodUnary<I, O>,
    max: number,
    handler: HandlerFunction<I, O>,
  ): void => {
    const types = { request: method.input, output: method.output };
    all.set(method.name, () => worker.handle(`${method.parent.typeName}.${method.name}`, { max, ...types }, handler));
  };
  const { method } = Settlement;
  rpc(method.debitAccount, BANK_IN_FLIGHT, (task, payment) => bank.debit(task, payment));
  rpc(method.refundAccount, BANK_IN_FLIGHT, (task, request) => bank.refund(task, request));
  rpc(method.writeLedger, BANK_IN_FLIGHT, (task, request) => bank.writeLedger(task, request));
  rpc(method.reverseLedger, BANK_IN_FLIGHT, (task, request) => bank.reverseLedger(task, request));
  rpc(method.notifyRisk, RISK_IN_FLIGHT, (task, payment) => risk.notify(task, payment));
  rpc(method.withdrawNotice, RISK_IN_FLIGHT, (task, payment) => risk.withdraw(task, payment));
  for (const name of only ?? all.keys()) {
    const add = all.get(name);
    if (!add) {
      throw new Error(`--only: there is no handler ${name}; there are ${[...all.keys()].join(', ')}`);
    }
    add();
  }
}
