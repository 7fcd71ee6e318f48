import { Socket } from 'node:net';
import type { Endpoint } from '#dns/dns-options.js';
import { ExpiringMap } from '#dns/expiring-map.js';
import { isResponseTo, readMessage } from '#dns/wire/dns-message.js';
import { writeQuery } from '#dns/wire/dns-query.js';
import { openSocket } from '#sockets/socket-options.js';
import { FrameReader, framed } from '../wire/framing.js';
import type { Asked } from './pending-query.js';
import { random16 } from './random.js';
import type { OnAnswer } from './udp-socket.js';

const IDLE_MS = 10_000;
const MESSAGE_BYTES = 65_535;
/** So that a resolver that closes it loses few. */
const IN_FLIGHT = 64;

type Sent = Pick<Asked, 'name' | 'type' | 'class'> & {
  readonly id: number;
  readonly onAnswer: OnAnswer;
  readonly onError: () => void;
};

/** One connection to a resolver. Throws a `KernelFailure` where there is no socket to be had. */
export class TcpConnection {
  hasAnswered = false;
  /** Whether it was closed since its own address is no longer the right one. */
  isOutdated = false;
  readonly #socket: Socket;
  readonly #frames = new FrameReader(MESSAGE_BYTES);
  readonly #sent = new ExpiringMap<number, Sent>();
  #isClosed = false;
  #isRetired = false;
  /** A question was given up, and nothing has come since: perhaps nothing does any more, and the kernel tells so only after minutes. */
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

  /** Whether another one is to be taken. */
  get isTaken(): boolean {
    return this.#isClosed || this.#isSilent || this.#sent.size >= IN_FLIGHT;
  }

  /** Answers how to forget it. */
  send(asked: Asked, onAnswer: OnAnswer, onError: () => void): () => void {
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

  /** Closes once nothing is waited for. */
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

  /** Nothing comes any more. */
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
