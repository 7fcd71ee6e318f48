import type { MessagePort } from 'node:worker_threads';
import {
  type Adoption,
  CapacityExceeded,
  type Datapath,
  type DatapathChange,
  type EventsWanted,
  type FlowQuery,
  type MachineCheck,
  ProofFailed,
} from '#contracts/datapath/datapath.js';
import type { DatapathOptions } from '#contracts/datapath/datapath-options.js';
import type { EventSource } from '#contracts/datapath/event-source.js';
import type { ProofMismatch } from '#contracts/policy/proof-types.js';
import type { FlowsCut } from '#dataplane/flows/traffic-statistics.js';

export type WorkerInput = {
  readonly options: DatapathOptions;
  readonly eventsWanted: EventsWanted;
  /**
   * Shared memory of `Descriptors`: the file descriptors that the main thread closes after the end of the
   * thread.
   */
  readonly descriptors: SharedArrayBuffer;
};

/**
 * The requests that the datapath thread serves: most methods of `Datapath`, and four internal requests.
 * `openIfSupported` opens the datapath if the last `probe` found that nothing is missing, and rejects
 * otherwise. `grantBy` makes the thread serve grant requests from a message port. `renewEventSource` makes
 * the thread send a new event source to the main thread. `check`: see `BegunDatapath.check`.
 */
export type DatapathRequests = Omit<Datapath, 'watch' | 'onEventSource' | 'grantPort' | 'cutFlows'> & {
  cutFlows(query: FlowQuery): FlowsCut;
  openIfSupported(): Adoption;
  check(): MachineCheck;
  grantBy(port: MessagePort): void;
  renewEventSource(): void;
};

/**
 * The form of an error in a message between threads. A structured clone would lose the class of the error,
 * so the fields are copied.
 */
export type SentError = {
  readonly name: string;
  readonly message: string;
  readonly stack: string | undefined;
  readonly code: string | undefined;
  readonly capacity: { readonly table: string; readonly need: number; readonly limit: number } | undefined;
  readonly mismatch: ProofMismatch | undefined;
};
export type FromDatapath =
  | { readonly kind: 'change'; readonly change: DatapathChange }
  /** Sent during `open`: the policy that the kernel enforces, see `LocalDatapath.found`. */
  | { readonly kind: 'found'; readonly inForce: Adoption['inForce'] }
  /** Sent when a new kernel-watch thread has started; `source` delivers the events that this thread reads. */
  | { readonly kind: 'events'; readonly source: EventSource };

/**
 * An error that the datapath thread reports. `code` is the name of an errno such as `EPERM`, or an error code
 * of Weir.
 */
export class DatapathFailure extends Error {
  constructor(
    override readonly name: string,
    message: string,
    readonly code: string,
    cause?: unknown,
  ) {
    super(message, cause === undefined ? undefined : { cause });
  }
}

export function serializeError(error: unknown): SentError {
  if (!(error instanceof Error)) {
    return {
      name: 'Error',
      message: String(error),
      stack: undefined,
      code: undefined,
      capacity: undefined,
      mismatch: undefined,
    };
  }
  const code = 'code' in error && typeof error.code === 'string' ? error.code : undefined;
  const capacity =
    error instanceof CapacityExceeded ? { table: error.table, need: error.need, limit: error.limit } : undefined;
  const mismatch = error instanceof ProofFailed ? error.mismatch : undefined;
  return { name: error.name, message: error.message, stack: error.stack, code, capacity, mismatch };
}

export function deserializeError({ name, message, stack, code, capacity, mismatch }: SentError): Error {
  if (capacity !== undefined) return new CapacityExceeded(capacity.table, capacity.need, capacity.limit);
  if (mismatch !== undefined) return new ProofFailed(mismatch);
  return new DatapathFailure(name, message, code ?? 'datapath_failed', stack);
}
