import type { Address } from '#contracts/policy/policy-model.js';
import { ExpiringMap } from '#dns/expiring-map.js';
import { isResponseTo, type Message, readMessage } from '#dns/wire/message/dns-message.js';
import { writeQuery } from '#dns/wire/message/dns-query.js';
import { openSender } from '#sockets/socket-options.js';
import type { Pump } from '#sockets/udp/pump.js';
import { UdpPort } from '#sockets/udp/udp-port.js';
import type { UpstreamQuery } from './pending-query.js';
import { random16 } from './random.js';

/**
 * The greatest size in bytes of a UDP message that common network paths do not fragment (DNS flag day 2020).
 */
export const UDP_PAYLOAD = 1_232;
const BUFFER_BYTES = 1 << 20;

export type Server = { readonly address: Address; readonly port: number };
export type OnAnswer = (message: Message) => void;
/**
 * An unanswered query. `by` is the socket that sent the query, and `id` is the query's DNS message id on that
 * socket.
 */
export type PendingQuery = {
  readonly query: UpstreamQuery;
  readonly onAnswer: OnAnswer;
  readonly onError: () => void;
  by: UdpSocket | null;
  id: number;
};

/**
 * One UDP socket for queries to one upstream. The socket is connected, so the kernel drops datagrams from
 * other senders.
 */
export class UdpSocket {
  uses = 0;
  readonly #port: UdpPort;
  readonly #sent = new ExpiringMap<number, PendingQuery>();
  #isRetired = false;

  constructor(
    pump: Pump,
    connect: Server,
    mark: number,
    /** Called for each ignored datagram with the reason. */
    private readonly onStray: (reason: string) => void,
    /**
     * Called if the kernel cannot send a query, or if the kernel reports an ICMP error such as a closed port
     * of the upstream.
     */
    onBroken: (socket: UdpSocket) => void,
  ) {
    this.#port = new UdpPort(pump, openSender(connect, { mark, bufferBytes: BUFFER_BYTES }), {
      onDatagram: (bytes) => this.#receive(bytes),
      onError: (code) => {
        if (code === 'EMSGSIZE') this.onStray('too_long');
        else onBroken(this);
      },
    });
  }

  /** Sends the query with a random id that no other unanswered query of this socket has. */
  send(waiting: PendingQuery): void {
    let id = random16();
    while (this.#sent.has(id)) id = random16();
    this.uses++;
    const { name, type, class: of, recursionDesired, checkingDisabled, dnssecOk, options } = waiting.query;
    this.#sent.set(id, waiting);
    waiting.by = this;
    waiting.id = id;
    const edns = { payload: UDP_PAYLOAD, version: 0, dnssecOk, options };
    this.#port.send(
      writeQuery({ id, name, type, class: of, recursionDesired, checkingDisabled, authenticData: true, edns }),
    );
  }

  /** Drops an unanswered query. Its callbacks are not called. */
  forget(id: number): void {
    this.#sent.delete(id);
    if (this.#isRetired && this.#sent.size === 0) this.#port.close();
  }

  /** Closes the socket as soon as it has no unanswered query. */
  retire(): void {
    this.#isRetired = true;
    if (this.#sent.size === 0) this.#port.close();
  }

  close(): void {
    this.abandon();
  }

  /** Closes the socket immediately. Returns the unanswered queries, whose callbacks are not called. */
  abandon(): readonly PendingQuery[] {
    const left = this.#sent.values();
    this.#sent.clear();
    this.retire();
    return left;
  }

  /** Drops all unanswered queries and calls their `onError`. */
  fail(): void {
    const left = this.#sent.values();
    this.#sent.clear();
    if (this.#isRetired) this.#port.close();
    for (const { onError } of left) onError();
  }

  /**
   * Delivers a datagram that answers an unanswered query. Ignores any other datagram, and the query continues
   * to wait for its answer (N1). Otherwise an attacker could make the query fail with a forged datagram.
   */
  #receive(datagram: Uint8Array): void {
    const id = ((datagram[0] ?? 0) << 8) | (datagram[1] ?? 0);
    const sent = datagram.length < 2 ? undefined : this.#sent.get(id);
    if (sent === undefined) {
      this.onStray('unasked');
      return;
    }
    const { query } = sent;
    const message = readMessage(datagram);
    if ('fault' in message) this.onStray(message.fault);
    else if (!isResponseTo(message, { id, name: query.name, type: query.type, class: query.class }))
      this.onStray('other_question');
    else {
      this.forget(id);
      sent.onAnswer(message);
    }
  }
}
