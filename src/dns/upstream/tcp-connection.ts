import { isIPv6, Socket } from 'node:net';
import type { Endpoint } from '#dns/dns-options.js';
import { ExpiringMap } from '#dns/expiring-map.js';
import { isResponseTo, readMessage } from '#dns/wire/message/dns-message.js';
import { writeQuery } from '#dns/wire/message/dns-query.js';
import { FrameReader, framed } from '#dns/wire/message/framing.js';
import { openSocket } from '#sockets/socket-options.js';
import type { UpstreamQuery } from './pending-query.js';
import { random16 } from './random.js';
import type { OnAnswer } from './udp-socket.js';

const IDLE_MS = 10_000;
const MESSAGE_BYTES = 65_535;
/**
 * The limit of unanswered queries on one connection; at the limit, new queries use another connection. If the
 * upstream closes the connection, at most this many queries must be repeated.
 */
const IN_FLIGHT = 64;

type Sent = Pick<UpstreamQuery, 'name' | 'type' | 'class'> & {
  readonly id: number;
  readonly onAnswer: OnAnswer;
  readonly onError: () => void;
};

/** One TCP connection to an upstream. The constructor throws a `KernelFailure` if no socket can be opened. */
export class TcpConnection {
  hasAnswered = false;
  /** Whether `TcpExchange` closed this connection because the source address towards the upstream changed. */
  isOutdated = false;
  readonly #socket: Socket;
  readonly #frames = new FrameReader(MESSAGE_BYTES);
  readonly #sent = new ExpiringMap<number, Sent>();
  #isClosed = false;
  #isRetired = false;
  /**
   * True if an unanswered query was dropped and the connection has received no data after that. The
   * connection may be dead, and the kernel would report the failure only minutes later.
   */
  #isSilent = false;

  constructor(
    to: Endpoint,
    mark: number,
    private readonly onStray: (reason: string) => void,
  ) {
    const socket = new Socket({ fd: openSocket('tcp', { mark }, isIPv6(to.host) ? 'ipv6' : 'ipv4') });
    this.#socket = socket;
    socket.connect({ host: to.host, port: to.port }).setNoDelay();
    socket.setTimeout(IDLE_MS, () => socket.destroy());
    socket.on('data', (chunk) => this.#receive(chunk));
    socket.on('end', () => this.#leave());
    socket.on('error', () => {});
    socket.on('close', () => this.#leave());
  }

  /** Whether new queries must use another connection. */
  get isUnavailable(): boolean {
    return this.#isClosed || this.#isSilent || this.#sent.size >= IN_FLIGHT;
  }

  /** The returned function drops the query; its callbacks are then not called. */
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

  /** Closes the connection as soon as it has no unanswered query. */
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

  /** Handles the end of the connection: fails all unanswered queries. */
  #leave(): void {
    this.#isClosed = true;
    const left = this.#sent.values();
    this.#sent.clear();
    for (const { onError } of left) onError();
  }

  #receive(chunk: Uint8Array): void {
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
