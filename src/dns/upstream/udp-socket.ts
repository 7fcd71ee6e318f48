import { ExpiringMap } from '#dns/expiring-map.js';
import { isResponseTo, type Message, readMessage } from '#dns/wire/dns-message.js';
import { writeQuery } from '#dns/wire/dns-query.js';
import type { Pump } from '#sockets/pump.js';
import { UdpPort } from '#sockets/udp-port.js';
import type { Asked } from './pending-query.js';
import { random16 } from './random.js';

/** Bytes of an answer that is not fragmented on any usual way (DNS flag day 2020). */
export const UDP_PAYLOAD = 1_232;
const BUFFER_BYTES = 1 << 20;

export type Server = { readonly address: number; readonly port: number };
export type OnAnswer = (message: Message) => void;
/** A question whose answer is waited for, by which socket and under which id. */
export type Waiting = {
  readonly asked: Asked;
  readonly onAnswer: OnAnswer;
  readonly onError: () => void;
  by: UdpSocket | null;
  id: number;
};

/** One port towards one resolver: connected, so that the kernel lets nobody else's datagrams in. */
export class UdpSocket {
  uses = 0;
  readonly #port: UdpPort;
  readonly #sent = new ExpiringMap<number, Waiting>();
  #isRetired = false;

  constructor(
    pump: Pump,
    connect: Server,
    mark: number,
    /** Called with why a datagram was passed over. */
    private readonly onStray: (reason: string) => void,
    /** Called where nothing can be sent, or the resolver's machine says that nothing listens there. */
    onBroken: (socket: UdpSocket) => void,
  ) {
    const options = { mark, connect, bufferBytes: BUFFER_BYTES };
    this.#port = new UdpPort(pump, options, {
      onDatagram: (bytes) => this.#take(bytes),
      onError: (code) => {
        if (code === 'EMSGSIZE') this.onStray('too_long');
        else onBroken(this);
      },
    });
  }

  /** Sends under an id that is not waited for here. */
  send(waiting: Waiting): void {
    let id = random16();
    while (this.#sent.has(id)) id = random16();
    this.uses++;
    const { name, type, class: of, recursionDesired, checkingDisabled, dnssecOk, options } = waiting.asked;
    this.#sent.set(id, waiting);
    waiting.by = this;
    waiting.id = id;
    const edns = { payload: UDP_PAYLOAD, version: 0, dnssecOk, options };
    this.#port.send(
      writeQuery({ id, name, type, class: of, recursionDesired, checkingDisabled, authenticData: true, edns }),
    );
  }

  /** Nobody waits for this answer any more. */
  forget(id: number): void {
    this.#sent.delete(id);
    if (this.#isRetired && this.#sent.size === 0) this.#port.close();
  }

  /** Closes once nothing is waited for. */
  retire(): void {
    this.#isRetired = true;
    if (this.#sent.size === 0) this.#port.close();
  }

  close(): void {
    this.abandon();
  }

  /** Closes at once; returns what was waited for. */
  abandon(): readonly Waiting[] {
    const left = this.#sent.values();
    this.#sent.clear();
    this.retire();
    return left;
  }

  /** Nothing that was asked will be answered. */
  fail(): void {
    const left = this.#sent.values();
    this.#sent.clear();
    if (this.#isRetired) this.#port.close();
    for (const { onError } of left) onError();
  }

  /** What is not the answer does not end the wait for it (N1). */
  #take(datagram: Uint8Array): void {
    const id = ((datagram[0] ?? 0) << 8) | (datagram[1] ?? 0);
    const sent = datagram.length < 2 ? undefined : this.#sent.get(id);
    if (sent === undefined) {
      this.onStray('unasked');
      return;
    }
    const { asked } = sent;
    const message = readMessage(datagram);
    if ('fault' in message) this.onStray(message.fault);
    else if (!isResponseTo(message, { id, name: asked.name, type: asked.type, class: asked.class }))
      this.onStray('other_question');
    else {
      this.forget(id);
      sent.onAnswer(message);
    }
  }
}
