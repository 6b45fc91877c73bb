/** What the orchestrator refused, or that it could not be asked. */

import { fromBinary } from '@bufbuild/protobuf';
import { type Any, anyUnpack, durationMs } from '@bufbuild/protobuf/wkt';
import { type Metadata, type ServiceError, status } from '@grpc/grpc-js';

import { BadRequestSchema, ErrorInfoSchema, RetryInfoSchema } from './gen/google/rpc/error_details_pb.js';
import { StatusSchema } from './gen/google/rpc/status_pb.js';

const DETAILS = 'grpc-status-details-bin';
const MAY_PASS: readonly status[] = [
  status.UNAVAILABLE,
  status.RESOURCE_EXHAUSTED,
  status.ABORTED,
  status.DEADLINE_EXCEEDED,
];

interface Details {
  reason: string;
  metadata: Record<string, string>;
  fields: Record<string, string>;
  retryAfterMs: number | undefined;
}

export class SagaError extends Error {
  /** Of gRPC, as `status` of @grpc/grpc-js has it: NOT_FOUND is 5. */
  readonly code: status;
  /** Its name: 'NOT_FOUND'. */
  readonly codeName: string;
  /** What went wrong, for people. */
  readonly detail: string;
  /** Stable, for programs: 'INPUT_MISMATCH'; '' where there is none. */
  readonly reason: string;
  /** Of the reason. */
  readonly metadata: Readonly<Record<string, string>>;
  /** What is wrong with which field of the request, by its path. */
  readonly fields: Readonly<Record<string, string>>;
  /** When to ask again; undefined: not said. */
  readonly retryAfterMs: number | undefined;

  constructor(code: status, detail: string, metadata?: Metadata, options?: ErrorOptions) {
    const { reason, ...more } = detailsOf(metadata);
    const codeName = status[code] ?? String(code);
    super(`${codeName}: ${detail}${reason && ` [${reason}]`}`, options);
    this.name = 'SagaError';
    this.code = code;
    this.codeName = codeName;
    this.detail = detail;
    this.reason = reason;
    this.metadata = more.metadata;
    this.fields = more.fields;
    this.retryAfterMs = more.retryAfterMs;
  }

  static of(error: ServiceError): SagaError {
    return new SagaError(error.code, error.details, error.metadata, { cause: error });
  }

  /** The same call may succeed later. */
  get isRetryable(): boolean {
    return this.retryAfterMs !== undefined || MAY_PASS.includes(this.code);
  }
}

function detailsOf(metadata: Metadata | undefined): Details {
  const found: Details = { reason: '', metadata: {}, fields: {}, retryAfterMs: undefined };
  for (const value of metadata?.get(DETAILS) ?? []) {
    try {
      fromBinary(StatusSchema, Buffer.from(value as Buffer)).details.forEach((detail) => read(detail, found));
    } catch {
      // details of somebody else's: code and message say it all the same
    }
  }
  return found;
}

function read(detail: Any, found: Details): void {
  const info = anyUnpack(detail, ErrorInfoSchema);
  if (info) {
    found.reason = info.reason;
    found.metadata = info.metadata;
  }
  for (const violation of anyUnpack(detail, BadRequestSchema)?.fieldViolations ?? []) {
    found.fields[violation.field] = violation.description;
  }
  const delay = anyUnpack(detail, RetryInfoSchema)?.retryDelay;
  if (delay) {
    found.retryAfterMs = durationMs(delay);
  }
}
