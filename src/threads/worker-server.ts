import { type MessagePort, parentPort, receiveMessageOnPort, type Transferable } from 'node:worker_threads';
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

/** For each kind of message that is not a request, the function that receives it. */
type Receivers<Received extends { readonly kind: string }> = {
  readonly [Kind in Received['kind']]: (message: Extract<Received, { readonly kind: Kind }>) => void;
};

type UrgentHandlers<A extends ThreadRequests<A>, Urgent extends keyof A> = {
  readonly [Kind in Urgent]: (...asked: RequestParameters<A, Kind>) => RequestResult<A, Kind>;
};

type ServeOptions<A extends ThreadRequests<A>, Urgent extends keyof A> = {
  /** Synchronous handlers of the urgent requests, which `serveUrgent` serves before all other requests. */
  readonly urgent?: UrgentHandlers<A, Urgent>;
  /** Converts an error to the value that is sent to the parent. By default, the value is a `SentFailure`. */
  readonly failureOf?: (failure: unknown) => unknown;
  /** Called after the reply to a request was sent, with the name of the request. */
  readonly replied?: (what: keyof A) => void;
  /** Returns the objects in a result that are transferred to the parent instead of copied. */
  readonly transferredWith?: (value: unknown) => readonly Transferable[];
};

/** Runs in a worker thread, and serves the requests that the parent sends with its `WorkerClient`. */
export class WorkerServer<
  A extends ThreadRequests<A>,
  Received extends { readonly kind: string } = never,
  Sent = never,
> {
  readonly #port: MessagePort;
  #handle: (message: RequestMessage | Received) => void = () => {};
  #isUrgent: (message: RequestMessage | Received) => boolean = () => false;
  /** Messages that `serveUrgent` took from the port and did not serve. */
  readonly #deferred: (RequestMessage | Received)[] = [];

  /**
   * Create one server in each worker thread, after the modules of the thread are loaded. Until then, the
   * parent cannot terminate the thread, because the thread holds its termination guard; the constructor
   * releases this guard.
   */
  constructor(name: string) {
    if (parentPort === null) throw new Error(`${name} must run in a worker thread`);
    this.#port = parentPort;
    terminationPoint();
  }

  send(message: Sent, transferred: readonly Transferable[] = []): void {
    this.#port.postMessage(message, transferred);
  }

  /**
   * Starts to serve requests: for each request, calls the function in `handlers` with the name of the
   * request, and sends its result as the reply. Passes each other message to the function in `receivers`
   * with the kind of the message, in the order of their arrival.
   */
  serve<Urgent extends keyof A = never>(
    handlers: Omit<Handlers<A>, Urgent>,
    receivers: Receivers<Received> = {} as Receivers<Received>,
    options: ServeOptions<A, Urgent> = {},
  ): void {
    this.#handle = (message) => {
      if (!isRequest(message)) receivers[message.kind as Received['kind']](message as never);
      else if (isUrgent(message, options)) this.#replyUrgently(message, options);
      else void this.#reply(message, handlers as Handlers<A>, options);
    };
    this.#isUrgent = (message) => isRequest(message) && isUrgent(message, options);
    this.#port.on('message', (message: RequestMessage | Received) => {
      if (this.#deferred.length === 0 || this.#isUrgent(message)) this.#handle(message);
      else this.#deferred.push(message);
    });
  }

  /**
   * Serves the urgent requests that wait. Work that keeps the event loop from running calls this method
   * between its steps. All other messages are served after the work, in the order of their arrival.
   */
  serveUrgent(): void {
    for (let next = receiveMessageOnPort(this.#port); next !== undefined; next = receiveMessageOnPort(this.#port)) {
      const { message } = next as { readonly message: RequestMessage | Received };
      if (this.#isUrgent(message)) this.#handle(message);
      else if (this.#deferred.push(message) === 1) setImmediate(() => this.#serveDeferred());
    }
  }

  #serveDeferred(): void {
    // A message stays first in the queue while it is served, so that no later message overtakes it.
    for (let next = this.#deferred[0]; next !== undefined; next = this.#deferred[0]) {
      this.#handle(next);
      this.#deferred.shift();
    }
  }

  #replyUrgently<Urgent extends keyof A>(
    { id, name: what, parameters: asked }: RequestMessage,
    { urgent, failureOf = sentFailure }: ServeOptions<A, Urgent>,
  ): void {
    const handler = urgent?.[what as Urgent];
    if (handler === undefined) return;
    let message: ReplyMessage;
    try {
      message = { kind: 'answer', id, value: handler(...(asked as RequestParameters<A, Urgent>)) };
    } catch (failure) {
      message = { kind: 'failure', id, failure: failureOf(failure) };
    }
    this.#port.postMessage(message);
  }

  async #reply<Urgent extends keyof A>(
    { id, name: what, parameters: asked }: RequestMessage,
    handlers: Handlers<A>,
    options: ServeOptions<A, Urgent>,
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

function isUrgent<A extends ThreadRequests<A>, Urgent extends keyof A>(
  { name }: RequestMessage,
  { urgent }: ServeOptions<A, Urgent>,
): boolean {
  return urgent !== undefined && Object.hasOwn(urgent, name);
}

function isRequest(message: unknown): message is RequestMessage {
  return (message as RequestMessage).kind === 'ask';
}

function sentFailure(failure: unknown): SentFailure {
  if (!(failure instanceof Error)) return { message: String(failure), code: undefined };
  const { message, code } = failure as NodeJS.ErrnoException;
  return { message, code: typeof code === 'string' ? code : undefined };
}
