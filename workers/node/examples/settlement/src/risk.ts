/** The third party that freezes an account at a second call: what may be claimed of a call to it. */

import {
  create,
  type DescMessage,
  fromBinary,
  type MessageInitShape,
  type MessageShape,
  toBinary,
} from '@bufbuild/protobuf';
import { Client, credentials, Metadata, type ServiceError, status } from '@grpc/grpc-js';
import { AlreadyDone, proveSends, Rejected, Retry, type Task, Unknown } from 'sagad';

import { NotifyReply_Verdict as Verdict, RiskService } from './gen/risk_pb.js';
import type { Payment, RiskCase } from './gen/settlement_pb.js';

const TIMEOUT_MS = 3000; // nearly four times its P99

/** A method as the generated code describes it. */
interface Method<I extends DescMessage, O extends DescMessage> {
  readonly name: string;
  readonly parent: { readonly typeName: string };
  readonly input: I;
  readonly output: O;
}

type RiskCaseInit = Partial<Omit<RiskCase, '$typeName' | '$unknown'>>;

export class Risk {
  readonly #client: Client;

  constructor(address: string) {
    this.#client = new Client(address, credentials.createInsecure(), { ...proveSends, 'grpc.enable_http_proxy': 0 });
  }

  close(): void {
    this.#client.close();
  }

  async notify(task: Task, payment: Payment): Promise<RiskCaseInit> {
    const { verdict, reference, message, idempotencyKey } = await this.#call(task, RiskService.method.notify, {
      idempotencyKey: task.idempotencyKey,
      settlementId: payment.paymentId,
      account: payment.account,
      amountCents: payment.amountCents,
      behaviour: payment.risk,
    });
    switch (verdict) {
      case Verdict.ACCEPTED:
        return { reference };
      case Verdict.ALREADY_EXISTS:
        throw new AlreadyDone({ reference }, { ours: idempotencyKey === task.idempotencyKey });
      case Verdict.REFUSED:
        throw new Rejected('REFUSED', message);
      case Verdict.TRY_LATER:
        throw new Retry('TRY_LATER', message);
      default:
        throw new Unknown('UNKNOWN_VERDICT', `risk answered ${verdict}`);
    }
  }

  async withdraw(task: Task, payment: Payment): Promise<void> {
    const request = { idempotencyKey: task.idempotencyKey, settlementId: payment.paymentId };
    await this.#call(task, RiskService.method.withdraw, request); // an OK is the whole answer
  }

  /** A call is never made when its lease is over. */
  async #call<I extends DescMessage, O extends DescMessage>(
    task: Task,
    method: Method<I, O>,
    request: MessageInitShape<I>,
  ): Promise<MessageShape<O>> {
    const message = create(method.input, request);
    const deadline = Date.now() + Math.min(task.timeLeftMs, TIMEOUT_MS);
    if (!task.stillMine()) {
      throw new Retry('TOO_LATE', 'the lease was over before the call');
    }
    return new Promise((resolve, reject) => {
      this.#client.makeUnaryRequest(
        `/${method.parent.typeName}/${method.name}`,
        (one: MessageShape<I>) => Buffer.from(toBinary(method.input, one)),
        (bytes) => fromBinary(method.output, bytes),
        message,
        new Metadata(),
        { deadline },
        (error, reply) => (error ? reject(meaningOf(error)) : resolve(reply as MessageShape<O>)),
      );
    });
  }
}

/** Any other error goes to the SDK: RETRY if nothing was sent, else UNKNOWN. */
function meaningOf(error: ServiceError): Error {
  return error.code === status.INVALID_ARGUMENT ? new Rejected('INVALID_ARGUMENT', error.details) : error;
}
