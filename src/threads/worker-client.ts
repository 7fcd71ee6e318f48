import { type Transferable, Worker, type WorkerOptions } from 'node:worker_threads';
import { TerminationGuard } from '#libc/termination-guard.js';
import { built } from './built-file.js';
import type { Answer, AnswerMessage, Asked, AskMessage, Asks, SentFailure } from './thread-messages.js';

export type WorkerClientOptions = Pick<WorkerOptions, 'workerData' | 'transferList' | 'resourceLimits'> & {
  /** The path of the thread's entry file, relative to the build folder. */
  readonly entry: string;
  /** The name of the thread in error messages. */
  readonly name: string;
  /** Whether the thread keeps the process alive while no request is pending. The default is true. */
  readonly holdsProcess?: boolean;
};

export type ThreadListener<Said> = {
  /** Called with each message from the thread that is not a reply. */
  said?(message: Said): void;
  /** Called when the thread ended without a call of `end`. The pending requests have already failed. */
  died(reason: string): void;
  /** Called when the thread no longer runs, whether it died or `end` terminated it. */
  gone?(): void;
  /**
   * Converts a failure that the thread sent to an error. By default, the error has the message and code of
   * the failure.
   */
  failureOf?(sent: unknown): Error;
  /** Creates the error for requests that were pending when the thread ended. */
  endOf?(reason: string): Error;
};

type Waiting = { readonly resolve: (value: never) => void; readonly reject: (failure: Error) => void };

/**
 * Starts a worker thread, sends messages and requests to the thread, and receives its replies. The thread
 * must run a `WorkerServer`.
 */
export class WorkerClient<A extends Asks<A>, Told = never, Said = never> {
  readonly #hold = new TerminationGuard();
  readonly #worker: Worker;
  #waiting = new Map<number, Waiting>();
  #lastId = 0;
  #isOver = false;
  #isGone = false;

  constructor(
    private readonly given: WorkerClientOptions,
    private readonly listener: ThreadListener<Said>,
  ) {
    const { entry, name, holdsProcess: _, ...options } = given;
    // Clear `execArgv`: built code needs none of the Node.js options with which the parent may run TypeScript
    // sources.
    this.#worker = this.#hold.begin(() => new Worker(built(entry), { ...options, execArgv: [] }));
    let reason: string | null = null;
    this.#worker.on('message', (message: AnswerMessage | Said) => this.#hear(message));
    this.#worker.on('error', (failure) => {
      reason = `${name} died: ${failure.message}`;
    });
    this.#worker.on('exit', (code) => {
      this.#isGone = true;
      this.listener.gone?.();
      this.#died(reason ?? `${name} ended with ${code}`);
    });
  }

  /** Whether the thread has ended, or `end` was called. */
  get isOver(): boolean {
    return this.#isOver;
  }

  /** Sends a message without a reply. Has no effect if the thread has ended. */
  tell(message: Told, transferred: readonly Transferable[] = []): void {
    if (!this.#isOver) this.#worker.postMessage(message, transferred);
  }

  ask<What extends keyof A>(
    what: What,
    asked: Asked<A, What>,
    transferred: readonly Transferable[] = [],
  ): Promise<Answer<A, What>> {
    if (this.#isOver) return Promise.reject(this.#endOf(`${this.given.name} has ended`));
    const id = ++this.#lastId;
    return new Promise<Answer<A, What>>((resolve, reject) => {
      this.#worker.postMessage({ kind: 'ask', id, what, asked } satisfies AskMessage, transferred);
      this.#waiting.set(id, { resolve, reject });
      if (this.given.holdsProcess === false) this.#worker.ref();
    });
  }

  /** Terminates the thread. Pending requests reject with an error that contains `reason`. */
  async end(reason: string): Promise<void> {
    this.#over(reason);
    await this.#hold.ended(() => this.#isGone);
    await this.#worker.terminate();
  }

  #hear(message: AnswerMessage | Said): void {
    if (!isAnswer(message)) {
      this.listener.said?.(message);
      return;
    }
    const waiting = this.#waiting.get(message.id);
    this.#waiting.delete(message.id);
    if (message.kind === 'answer') waiting?.resolve(message.value as never);
    else waiting?.reject(this.listener.failureOf?.(message.failure) ?? errorOf(message.failure));
    if (this.given.holdsProcess === false && this.#waiting.size === 0) this.#worker.unref();
  }

  #died(reason: string): void {
    if (this.#isOver) return;
    this.#over(reason);
    this.listener.died(reason);
  }

  #over(reason: string): void {
    this.#isOver = true;
    const waiting = this.#waiting;
    this.#waiting = new Map();
    for (const { reject } of waiting.values()) reject(this.#endOf(reason));
  }

  #endOf(reason: string): Error {
    return this.listener.endOf?.(reason) ?? new Error(reason);
  }
}

function errorOf(sent: unknown): Error {
  const { message, code } = sent as SentFailure;
  return Object.assign(new Error(message), code === undefined ? {} : { code });
}

function isAnswer(message: unknown): message is AnswerMessage {
  const { kind } = message as AnswerMessage;
  return kind === 'answer' || kind === 'failure';
}
