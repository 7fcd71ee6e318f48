import type { Socket } from 'node:net';
import type { HelloFault } from '#contracts/tls-facts.js';
import { AnswerReader } from './tls/answer-reader.js';
import { HelloReader } from './tls/hello-reader.js';
import { mayFollow } from './tls/second-hello.js';

/** Bytes that are read behind a hello before the server has answered: the rest waits in the socket. */
const AHEAD_BYTES = 65_536;
const SERVER_ENDS = ['end', 'error', 'close'] as const;

export type HandshakeFault = Extract<HelloFault, 'hello_changed' | 'server_not_tls'>;

type Ends = { readonly client: Socket; readonly server: Socket };

/** Bytes that were read before: the client's hello, the bytes behind it, and those of the server. None of them was forwarded. */
type Begun = { readonly hello: Uint8Array; readonly behind: Uint8Array; readonly held: Uint8Array };

/** `fault` null: the server acts on the hello that was judged. `rest` is the client's, and for the server. */
type Done = (fault: HandshakeFault | null, rest: Uint8Array) => void;

/**
 * Carries a connection from the verdict on its hello until the server has answered that hello. A server that asks for another one
 * acts on the second, which therefore goes on only where it says the same (D22). Until then nothing of the client passes that
 * could be a hello.
 */
export class Handshake {
  readonly #answers = new AnswerReader();
  /** All that the client said behind its first hello. */
  readonly #behind = new HelloReader('second');
  #hello: 'none' | 'unreadable' | 'read' = 'none';
  #retry: Uint8Array | null = null;
  #isRetried = false;
  /** How many bytes behind the first hello the server was told. */
  #told = 0;
  #isOver = false;

  constructor(
    private readonly ends: Ends,
    private readonly begun: Begun,
    private readonly done: Done,
  ) {}

  begin(): void {
    const { client, server } = this.ends;
    const { behind, held } = this.begun;
    client.on('data', this.#hearClient);
    client.once('end', this.#clientEnded);
    server.on('data', this.#hearServer);
    for (const event of SERVER_ENDS) server.once(event, this.#serverEnded);
    if (behind.length > 0) this.#hearClient(behind);
    if (held.length > 0 && !this.#isOver) this.#hearServer(held);
    if (this.#isOver) return;
    client.resume();
    server.resume();
  }

  /** Leaves both sockets as they are. */
  stop(): void {
    const { client, server } = this.ends;
    this.#isOver = true;
    client.off('data', this.#hearClient);
    client.off('end', this.#clientEnded);
    client.pause();
    server.off('data', this.#hearServer);
    for (const event of SERVER_ENDS) server.off(event, this.#serverEnded);
    server.pause();
  }

  readonly #hearClient = (chunk: Uint8Array): void => {
    const facts = this.#behind.push(chunk);
    if (facts !== null) this.#hello = facts.kind === 'hello' ? 'read' : 'unreadable';
    if (this.#hello === 'none') this.#tellServer(this.#behind.end);
    if (this.#behind.bytes.length > AHEAD_BYTES) this.ends.client.pause();
    this.#compare();
  };

  readonly #hearServer = (chunk: Uint8Array): void => {
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

  /** Nothing more comes that could be a hello. */
  readonly #clientEnded = (): void => {
    if (this.#hello === 'none' || this.#told === this.#behind.bytes.length) this.#finish(null);
  };

  /** Nor is one asked for any more. */
  readonly #serverEnded = (): void => this.#finish(null);

  #compare(): void {
    if (this.#retry === null || this.#isRetried || this.#isOver || this.#hello === 'none') return;
    const isSame = this.#hello === 'read' && mayFollow(this.begun.hello, this.#retry, this.#behind.body);
    if (!isSame) {
      this.#finish('hello_changed');
      return;
    }
    this.#isRetried = true;
    this.#tellServer(this.#behind.end);
  }

  #tellServer(end: number): void {
    if (end > this.#told) this.ends.server.write(this.#behind.bytes.slice(this.#told, end));
    this.#told = Math.max(this.#told, end);
  }

  #finish(fault: HandshakeFault | null): void {
    if (this.#isOver) return;
    this.stop();
    this.done(fault, this.#behind.bytes.slice(this.#told));
  }
}
