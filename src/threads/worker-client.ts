import { type Transferable, Worker, type WorkerOptions } from 'node:worker_threads';
import { TerminationGuard } from '#libc/termination-guard.js';
import { built } from './built-file.js';
import type { Answer, AnswerMessage, Asked, AskMessage, Asks, SentFailure } from './thread-messages.js';

export type WorkerClientOptions = Pick<WorkerOptions, 'workerData' | 'transferList' | 'resourceLimits'> & {
  /** Its file in the build. */
  readonly entry: string;
  /** As in sentences. */
  readonly name: string;
  /** Whether the process goes on because of it while it is asked nothing; true by default. */
  readonly holdsProcess?: boolean;
};

export type ThreadListener<Said> = {
  /** What it says unasked. */
  said?(message: Said): void;
  /** It ended, and nobody here had ended it. What it was asked has failed. */
  died(reason: string): void;
  /** It does not run any more, whoever ended it. */
  gone?(): void;
  /** The error of this thread for a failure that the other sent; by default one with its message and code. */
  failureOf?(sent: unknown): Error;
  /** Of what it was asked when it ended. */
  endOf?(reason: string): Error;
};

type Waiting = { readonly resolve: (value: never) => void; readonly reject: (failure: Error) => void };

/** A worker thread that is told things, and asked what it answers (`ParentThread` is the other side of it). */
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
    // Built code needs none of the conditions and loaders that the sources are run with.
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

  /** Whether it has ended, or is about to. */
  get isOver(): boolean {
    return this.#isOver;
  }

  /** One that has ended is told nothing. */
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

  /** What it was asked fails with this. */
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
