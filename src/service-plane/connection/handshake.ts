import type { Socket } from 'node:net';
import type { HelloFault } from '#contracts/service-plane/tls-facts.js';
import { AnswerReader } from '#service-plane/tls/answer-reader.js';
import { HelloReader } from '#service-plane/tls/hello/hello-reader.js';
import { mayFollow } from '#service-plane/tls/hello/second-hello.js';

/**
 * If more than this number of client bytes arrive after the ClientHello, the client's socket is paused until
 * the server has responded.
 */
const AHEAD_BYTES = 65_536;
const SERVER_ENDS = ['end', 'error', 'close'] as const;

export type HandshakeFault = Extract<HelloFault, 'hello_changed' | 'server_not_tls'>;

type Ends = { readonly client: Socket; readonly server: Socket };

/**
 * Bytes that Weir read before it created the `Handshake`. `hello`: the body of the ClientHello, which the
 * server has already received. `behind`: client bytes after the ClientHello that are not forwarded yet.
 * `held`: server bytes that are not forwarded yet.
 */
type Begun = { readonly hello: Uint8Array; readonly behind: Uint8Array; readonly held: Uint8Array };

/**
 * The result of a handshake. `fault` is null if the server accepts the first ClientHello or a permitted
 * second ClientHello (`mayFollow`), or if a peer has closed its direction. `rest`: the client bytes that the
 * caller must still send to the server.
 */
type Done = (fault: HandshakeFault | null, rest: Uint8Array) => void;

/**
 * Forwards a connection that has a verdict on its ClientHello, until the server has responded to that
 * ClientHello. After a HelloRetryRequest, the server uses the second ClientHello. `Handshake` forwards the
 * second ClientHello only if it has the same content as the first (D22). Before the response, `Handshake`
 * forwards no client bytes that could be a second ClientHello.
 */
export class Handshake {
  readonly #answers = new AnswerReader();
  /** Reads the client's bytes after the first ClientHello, to find a second ClientHello. */
  readonly #behind = new HelloReader('second');
  #hello: 'none' | 'unreadable' | 'read' = 'none';
  #retry: Uint8Array | null = null;
  #isRetried = false;
  /** The number of client bytes after the first ClientHello that were sent to the server. */
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

  /** Stops forwarding bytes between client and server. Both sockets stay open and are paused. */
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

  /** The client has closed its direction, so no second ClientHello can follow. */
  readonly #clientEnded = (): void => {
    if (this.#hello === 'none' || this.#sentBytes === this.#behind.bytes.length) this.#finish(null);
  };

  /** The server has closed its direction, so it cannot send a HelloRetryRequest. */
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
