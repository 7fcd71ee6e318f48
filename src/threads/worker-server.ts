import { type MessagePort, parentPort, type Transferable } from 'node:worker_threads';
import { terminationPoint } from '#libc/termination-guard.js';
import type {
  ReplyMessage,
  RequestMessage,
  RequestParameters,
  RequestResult,
  SentFailure,
  ThreadRequests,
} from './thread-messages.js';

type Handlers<A extends ThreadRequests<A>> = {
  readonly [Kind in keyof A]: (
    ...asked: RequestParameters<A, Kind>
  ) => RequestResult<A, Kind> | Promise<RequestResult<A, Kind>>;
};

type ServeOptions<A> = {
  /** Converts an error to the value that is sent to the parent. By default, the value is a `SentFailure`. */
  readonly failureOf?: (failure: unknown) => unknown;
  /** Called after the reply to a request was sent, with the name of the request. */
  readonly replied?: (what: keyof A) => void;
  /** Returns the objects in a result that are transferred to the parent instead of copied. */
  readonly transferredWith?: (value: unknown) => readonly Transferable[];
};

/** Runs in a worker thread, and serves the requests that the parent sends with its `WorkerClient`. */
export class WorkerServer<A extends ThreadRequests<A>, Received = never, Sent = never> {
  readonly #port: MessagePort;

  /**
   * Create one server in each worker thread, after its modules are loaded. The constructor releases the
   * termination guard: from then on, the parent can terminate the thread.
   */
  constructor(name: string) {
    if (parentPort === null) throw new Error(`${name} runs in a worker thread`);
    this.#port = parentPort;
    terminationPoint();
  }

  send(message: Sent, transferred: readonly Transferable[] = []): void {
    this.#port.postMessage(message, transferred);
  }

  /**
   * Starts to serve requests: for each request, calls the function in `handlers` with the name of the
   * request, and sends its result as the reply. Passes all other messages to `received`, in the order of
   * their arrival.
   */
  serve(handlers: Handlers<A>, received: (message: Received) => void = () => {}, options: ServeOptions<A> = {}): void {
    this.#port.on('message', (message: RequestMessage | Received) => {
      if (isRequest(message)) void this.#reply(message, handlers, options);
      else received(message);
    });
  }

  async #reply(
    { id, name: what, parameters: asked }: RequestMessage,
    handlers: Handlers<A>,
    options: ServeOptions<A>,
  ): Promise<void> {
    const asks = what as keyof A;
    let message: ReplyMessage;
    try {
      message = { kind: 'answer', id, value: await handlers[asks](...(asked as RequestParameters<A, typeof asks>)) };
    } catch (failure) {
      message = { kind: 'failure', id, failure: (options.failureOf ?? sentFailure)(failure) };
    }
    const transferred = message.kind === 'answer' ? options.transferredWith?.(message.value) : undefined;
    this.#port.postMessage(message, transferred ?? []);
    options.replied?.(asks);
  }
}

function isRequest(message: unknown): message is RequestMessage {
  return (message as RequestMessage).kind === 'ask';
}

function sentFailure(failure: unknown): SentFailure {
  if (!(failure instanceof Error)) return { message: String(failure), code: undefined };
  const { message, code } = failure as NodeJS.ErrnoException;
  return { message, code: typeof code === 'string' ? code : undefined };
}
