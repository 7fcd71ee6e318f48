import { Socket } from 'node:net';
import type { Endpoint } from '#dns/dns-options.js';
import { ExpiringMap } from '#dns/expiring-map.js';
import { isResponseTo, readMessage } from '#dns/wire/dns-message.js';
import { writeQuery } from '#dns/wire/dns-query.js';
import { openSocket } from '#sockets/socket-options.js';
import { FrameReader, framed } from '../wire/framing.js';
import type { UpstreamQuery } from './pending-query.js';
import { random16 } from './random.js';
import type { OnAnswer } from './udp-socket.js';

const IDLE_MS = 10_000;
const MESSAGE_BYTES = 65_535;
/** The limit of open queries: a resolver that closes the connection loses few of them. */
const IN_FLIGHT = 64;

type Sent = Pick<UpstreamQuery, 'name' | 'type' | 'class'> & {
  readonly id: number;
  readonly onAnswer: OnAnswer;
  readonly onError: () => void;
};

/** One connection to a resolver. Throws a `KernelFailure` if no socket can be opened. */
export class TcpConnection {
  hasAnswered = false;
  /** Whether it was closed because the source address towards the resolver changed. */
  isOutdated = false;
  readonly #socket: Socket;
  readonly #frames = new FrameReader(MESSAGE_BYTES);
  readonly #sent = new ExpiringMap<number, Sent>();
  #isClosed = false;
  #isRetired = false;
  /**
   * A query timed out and nothing has arrived since. The connection may be dead, which the kernel would
   * report only after minutes.
   */
  #isSilent = false;

  constructor(
    to: Endpoint,
    mark: number,
    private readonly onStray: (reason: string) => void,
  ) {
    const socket = new Socket({ fd: openSocket('tcp', { mark }) });
    this.#socket = socket;
    socket.connect({ host: to.host, port: to.port }).setNoDelay();
    socket.setTimeout(IDLE_MS, () => socket.destroy());
    socket.on('data', (chunk) => this.#take(chunk));
    socket.on('end', () => this.#leave());
    socket.on('error', () => {});
    socket.on('close', () => this.#leave());
  }

  /** Whether new queries must use another connection. */
  get isTaken(): boolean {
    return this.#isClosed || this.#isSilent || this.#sent.size >= IN_FLIGHT;
  }

  /** Returns a function that forgets the query. */
  send(asked: UpstreamQuery, onAnswer: OnAnswer, onError: () => void): () => void {
    let id = random16();
    while (this.#sent.has(id)) id = random16();
    const { name, type, class: of, recursionDesired, checkingDisabled, dnssecOk, options } = asked;
    this.#sent.set(id, { id, name, type, class: of, onAnswer, onError });
    const edns = { payload: MESSAGE_BYTES, version: 0, dnssecOk, options };
    const query = { id, name, type, class: of, recursionDesired, checkingDisabled, authenticData: true, edns };
    this.#socket.write(framed(writeQuery(query)));
    return () => {
      if (!this.#sent.has(id)) return;
      this.#isSilent = true;
      this.#forget(id);
    };
  }

  /** Closes once no query is open. */
  retire(): void {
    this.#isRetired = true;
    if (this.#sent.size === 0) this.close();
  }

  close(): void {
    this.#socket.destroy();
  }

  #forget(id: number): void {
    this.#sent.delete(id);
    if (this.#isRetired && this.#sent.size === 0) this.close();
  }

  /** The connection has ended: fail the open queries. */
  #leave(): void {
    this.#isClosed = true;
    const left = this.#sent.values();
    this.#sent.clear();
    for (const { onError } of left) onError();
  }

  #take(chunk: Uint8Array): void {
    this.#isSilent = false;
    for (const frame of this.#frames.push(chunk)) {
      const message = readMessage(frame);
      const sent = 'fault' in message ? undefined : this.#sent.get(message.id);
      if ('fault' in message) this.onStray(message.fault);
      else if (sent === undefined) this.onStray('unasked');
      else if (!isResponseTo(message, sent)) this.onStray('other_question');
      else {
        this.hasAnswered = true;
        this.#forget(sent.id);
        sent.onAnswer(message);
      }
    }
  }
}
