import { type MessagePort, parentPort, type Transferable } from 'node:worker_threads';
import { terminationPoint } from '#libc/termination-guard.js';
import type { Answer, AnswerMessage, Asked, AskMessage, Asks, SentFailure } from './thread-messages.js';

type Answers<A extends Asks<A>> = {
  readonly [What in keyof A]: (...asked: Asked<A, What>) => Answer<A, What> | Promise<Answer<A, What>>;
};

type ServeOptions<A> = {
  /** Converts an error to the value that is sent to the parent. By default, the value is a `SentFailure`. */
  readonly failed?: (failure: unknown) => unknown;
  /** Called after the reply to a request was sent. */
  readonly answered?: (what: keyof A) => void;
  /** Returns the objects in a result that are transferred instead of copied. */
  readonly transferredWith?: (value: unknown) => readonly Transferable[];
};

/** Runs in a worker thread, and serves the requests that the parent sends with its `WorkerClient`. */
export class WorkerServer<A extends Asks<A>, Told = never, Said = never> {
  readonly #port: MessagePort;

  /**
   * Create one server in each thread, after its modules are loaded. The constructor releases the termination
   * guard.
   */
  constructor(name: string) {
    if (parentPort === null) throw new Error(`${name} runs in a worker thread`);
    this.#port = parentPort;
    terminationPoint();
  }

  tell(message: Said, transferred: readonly Transferable[] = []): void {
    this.#port.postMessage(message, transferred);
  }

  /**
   * Starts to serve: calls a function of `answers` for each request and sends its result as the reply. Passes
   * other messages to `heard`, in the order of their arrival.
   */
  serve(answers: Answers<A>, heard: (message: Told) => void = () => {}, options: ServeOptions<A> = {}): void {
    this.#port.on('message', (message: AskMessage | Told) => {
      if (isAsk(message)) void this.#answer(message, answers, options);
      else heard(message);
    });
  }

  async #answer({ id, what, asked }: AskMessage, answers: Answers<A>, options: ServeOptions<A>): Promise<void> {
    const asks = what as keyof A;
    let message: AnswerMessage;
    try {
      message = { kind: 'answer', id, value: await answers[asks](...(asked as Asked<A, typeof asks>)) };
    } catch (failure) {
      message = { kind: 'failure', id, failure: (options.failed ?? sentFailure)(failure) };
    }
    const transferred = message.kind === 'answer' ? options.transferredWith?.(message.value) : undefined;
    this.#port.postMessage(message, transferred ?? []);
    options.answered?.(asks);
  }
}

function isAsk(message: unknown): message is AskMessage {
  return (message as AskMessage).kind === 'ask';
}

function sentFailure(failure: unknown): SentFailure {
  if (!(failure instanceof Error)) return { message: String(failure), code: undefined };
  const { message, code } = failure as NodeJS.ErrnoException;
  return { message, code: typeof code === 'string' ? code : undefined };
}
