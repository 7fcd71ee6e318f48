import type { Socket } from 'node:net';
import type { HelloFault } from '#contracts/tls-facts.js';
import { AnswerReader } from './tls/answer-reader.js';
import { HelloReader } from './tls/hello-reader.js';
import { mayFollow } from './tls/second-hello.js';

/** The limit of bytes read after a hello before the server has answered: the rest waits in the socket. */
const AHEAD_BYTES = 65_536;
const SERVER_ENDS = ['end', 'error', 'close'] as const;

export type HandshakeFault = Extract<HelloFault, 'hello_changed' | 'server_not_tls'>;

type Ends = { readonly client: Socket; readonly server: Socket };

/** Bytes read earlier and not forwarded: the client's hello, the bytes after it, and those of the server. */
type Begun = { readonly hello: Uint8Array; readonly behind: Uint8Array; readonly held: Uint8Array };

/**
 * `fault` null: the server acts on the hello that was evaluated. `rest`: client bytes that still must go to
 * the server.
 */
type Done = (fault: HandshakeFault | null, rest: Uint8Array) => void;

/**
 * Forwards a connection from the verdict on its hello until the server has answered that hello. A server that
 * sends a HelloRetryRequest acts on the second hello; it is forwarded only if it has the same content (D22).
 * Until then, no client bytes pass that could be a hello.
 */
export class Handshake {
  readonly #answers = new AnswerReader();
  /** All client bytes after the first hello. */
  readonly #behind = new HelloReader('second');
  #hello: 'none' | 'unreadable' | 'read' = 'none';
  #retry: Uint8Array | null = null;
  #isRetried = false;
  /** How many bytes after the first hello were sent to the server. */
  #sentBytes = 0;
  #isOver = false;

  constructor(
    private readonly ends: Ends,
    private readonly begun: Begun,
    private readonly done: Done,
  ) {}

  begin(): void {
    const { client, server } = this.ends;
    const { behind, held } = this.begun;
    client.on('data', this.#onClientData);
    client.once('end', this.#clientEnded);
    server.on('data', this.#onServerData);
    for (const event of SERVER_ENDS) server.once(event, this.#serverEnded);
    if (behind.length > 0) this.#onClientData(behind);
    if (held.length > 0 && !this.#isOver) this.#onServerData(held);
    if (this.#isOver) return;
    client.resume();
    server.resume();
  }

  /** Stops without closing the sockets. */
  stop(): void {
    const { client, server } = this.ends;
    this.#isOver = true;
    client.off('data', this.#onClientData);
    client.off('end', this.#clientEnded);
    client.pause();
    server.off('data', this.#onServerData);
    for (const event of SERVER_ENDS) server.off(event, this.#serverEnded);
    server.pause();
  }

  readonly #onClientData = (chunk: Uint8Array): void => {
    const facts = this.#behind.push(chunk);
    if (facts !== null) this.#hello = facts.kind === 'hello' ? 'read' : 'unreadable';
    if (this.#hello === 'none') this.#sendToServer(this.#behind.end);
    if (this.#behind.bytes.length > AHEAD_BYTES) this.ends.client.pause();
    this.#compare();
  };

  readonly #onServerData = (chunk: Uint8Array): void => {
    this.ends.client.write(chunk);
    this.#answers.push(chunk);
    for (let answer = this.#answers.next(); answer !== null && !this.#isOver; answer = this.#answers.next()) {
      if (answer.kind === 'hello') this.#finish(null);
      else if (answer.kind === 'not_tls') this.#finish('server_not_tls');
      else if (this.#retry !== null) this.#finish('hello_changed');
      else {
        this.#retry = answer.body;
        this.#compare();
      }
    }
  };

  /** The client sends no second hello any more. */
  readonly #clientEnded = (): void => {
    if (this.#hello === 'none' || this.#sentBytes === this.#behind.bytes.length) this.#finish(null);
  };

  /** The server cannot request a second hello any more. */
  readonly #serverEnded = (): void => this.#finish(null);

  #compare(): void {
    if (this.#retry === null || this.#isRetried || this.#isOver || this.#hello === 'none') return;
    const isSame = this.#hello === 'read' && mayFollow(this.begun.hello, this.#retry, this.#behind.body);
    if (!isSame) {
      this.#finish('hello_changed');
      return;
    }
    this.#isRetried = true;
    this.#sendToServer(this.#behind.end);
  }

  #sendToServer(end: number): void {
    if (end > this.#sentBytes) this.ends.server.write(this.#behind.bytes.slice(this.#sentBytes, end));
    this.#sentBytes = Math.max(this.#sentBytes, end);
  }

  #finish(fault: HandshakeFault | null): void {
    if (this.#isOver) return;
    this.stop();
    this.done(fault, this.#behind.bytes.slice(this.#sentBytes));
  }
}
