import { type MessagePort, parentPort, type Transferable } from 'node:worker_threads';
import { terminationPoint } from '#libc/termination-guard.js';
import type { Answer, AnswerMessage, Asked, AskMessage, Asks, SentFailure } from './thread-messages.js';

type Answers<A extends Asks<A>> = {
  readonly [What in keyof A]: (...asked: Asked<A, What>) => Answer<A, What> | Promise<Answer<A, What>>;
};

type ServeOptions<A> = {
  /** What is sent of a failure; a `SentFailure` by default. */
  readonly failed?: (failure: unknown) => unknown;
  /** The answer is on its way. */
  readonly answered?: (what: keyof A) => void;
  /** What goes along with an answer instead of being copied. */
  readonly transferredWith?: (value: unknown) => readonly Transferable[];
};

/** For a worker thread, the one that began it: whoever holds the `AskedThread`. */
export class WorkerServer<A extends Asks<A>, Told = never, Said = never> {
  readonly #port: MessagePort;

  /** Once per thread, when all that it needs is loaded. */
  constructor(name: string) {
    if (parentPort === null) throw new Error(`${name} runs in a worker thread`);
    this.#port = parentPort;
    terminationPoint();
  }

  tell(message: Said, transferred: readonly Transferable[] = []): void {
    this.#port.postMessage(message, transferred);
  }

  /** Answers what is asked, and hears what is told, in the order in which it comes. */
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
