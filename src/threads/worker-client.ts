import { type Transferable, Worker, type WorkerOptions } from 'node:worker_threads';
import { TerminationGuard } from '#libc/termination-guard.js';
import { built } from './built-file.js';
import type {
  ReplyMessage,
  RequestMessage,
  RequestParameters,
  RequestResult,
  SentFailure,
  ThreadRequests,
} from './thread-messages.js';

export type WorkerClientOptions = Pick<WorkerOptions, 'workerData' | 'transferList' | 'resourceLimits'> & {
  /** The path of the entry file of the thread, relative to the build folder `dist`. */
  readonly entry: string;
  /** The name of the thread in error messages. */
  readonly name: string;
  /**
   * Whether the running thread keeps the process alive, even while no request is pending. The default is
   * true.
   */
  readonly holdsProcess?: boolean;
};

export type ThreadListener<Received> = {
  /** Called with each message from the thread that is not a reply. */
  received?(message: Received): void;
  /**
   * Called when the thread has ended without a call of `end`. The promises of the pending requests were
   * rejected before.
   */
  failed(reason: string): void;
  /** Called when the thread no longer runs, because of an error or because `end` terminated it. */
  exited?(): void;
  /**
   * Converts the failure in a reply of the thread to an error. By default, the error has the message and the
   * code of the failure.
   */
  requestError?(sent: unknown): Error;
  /**
   * Creates the error with which requests reject that are pending when the thread ends, or sent afterwards.
   */
  terminationError?(reason: string): Error;
};

type PendingRequest = { readonly resolve: (value: never) => void; readonly reject: (failure: Error) => void };

/**
 * Starts a worker thread, sends messages and requests to it, and receives its replies. The code in the
 * thread must create a `WorkerServer`.
 */
export class WorkerClient<A extends ThreadRequests<A>, Sent = never, Received = never> {
  readonly #terminationGuard = new TerminationGuard();
  readonly #worker: Worker;
  #pending = new Map<number, PendingRequest>();
  #lastId = 0;
  #isOver = false;
  #isGone = false;

  constructor(
    private readonly clientOptions: WorkerClientOptions,
    private readonly listener: ThreadListener<Received>,
  ) {
    const { entry, name, holdsProcess: _, ...options } = clientOptions;
    // Pass no Node.js options to the thread: it runs built code, and needs none of the options with which
    // the parent may run TypeScript sources.
    this.#worker = this.#terminationGuard.begin(() => new Worker(built(entry), { ...options, execArgv: [] }));
    let reason: string | null = null;
    this.#worker.on('message', (message: ReplyMessage | Received) => this.#receive(message));
    this.#worker.on('error', (failure) => {
      reason = `${name} died: ${failure.message}`;
    });
    this.#worker.on('exit', (code) => {
      this.#isGone = true;
      this.listener.exited?.();
      this.#fail(reason ?? `${name} ended with exit code ${code}`);
    });
  }

  /** True after the thread has ended or `end` was called. */
  get isOver(): boolean {
    return this.#isOver;
  }

  /** Sends a message to which the thread sends no reply. Does nothing if the thread has ended. */
  send(message: Sent, transferred: readonly Transferable[] = []): void {
    if (!this.#isOver) this.#worker.postMessage(message, transferred);
  }

  request<Kind extends keyof A>(
    what: Kind,
    parameters: RequestParameters<A, Kind>,
    transferred: readonly Transferable[] = [],
  ): Promise<RequestResult<A, Kind>> {
    if (this.#isOver) return Promise.reject(this.#terminationError(`${this.clientOptions.name} has ended`));
    const id = ++this.#lastId;
    return new Promise<RequestResult<A, Kind>>((resolve, reject) => {
      this.#worker.postMessage({ kind: 'ask', id, name: what, parameters } satisfies RequestMessage, transferred);
      this.#pending.set(id, { resolve, reject });
      if (this.clientOptions.holdsProcess === false) this.#worker.ref();
    });
  }

  /** Terminates the thread. Pending requests reject with an error whose message is `reason`. */
  async end(reason: string): Promise<void> {
    this.#rejectPending(reason);
    await this.#terminationGuard.ended(() => this.#isGone);
    await this.#worker.terminate();
  }

  #receive(message: ReplyMessage | Received): void {
    if (!isAnswer(message)) {
      this.listener.received?.(message);
      return;
    }
    const waiting = this.#pending.get(message.id);
    this.#pending.delete(message.id);
    if (message.kind === 'answer') waiting?.resolve(message.value as never);
    else waiting?.reject(this.listener.requestError?.(message.failure) ?? errorOf(message.failure));
    if (this.clientOptions.holdsProcess === false && this.#pending.size === 0) this.#worker.unref();
  }

  #fail(reason: string): void {
    if (this.#isOver) return;
    this.#rejectPending(reason);
    this.listener.failed(reason);
  }

  #rejectPending(reason: string): void {
    this.#isOver = true;
    const waiting = this.#pending;
    this.#pending = new Map();
    for (const { reject } of waiting.values()) reject(this.#terminationError(reason));
  }

  #terminationError(reason: string): Error {
    return this.listener.terminationError?.(reason) ?? new Error(reason);
  }
}

function errorOf(sent: unknown): Error {
  const { message, code } = sent as SentFailure;
  return Object.assign(new Error(message), code === undefined ? {} : { code });
}

function isAnswer(message: unknown): message is ReplyMessage {
  const { kind } = message as ReplyMessage;
  return kind === 'answer' || kind === 'failure';
}
