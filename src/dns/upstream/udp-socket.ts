import type { Pump } from '#sockets/pump.js';
import { UdpPort } from '#sockets/udp-port.js';
import { TransientMap } from '../transient-map.js';
import { isResponseTo, type Message, readMessage } from '../wire/message.js';
import { writeQuery } from '../wire/query.js';
import type { Asked } from './asked.js';
import { random16 } from './random.js';

/** Bytes of an answer that is not fragmented on any usual way (DNS flag day 2020). */
export const UDP_PAYLOAD = 1_232;
const BUFFER_BYTES = 1 << 20;

export type Server = { readonly address: number; readonly port: number };
export type OnAnswer = (message: Message) => void;
type Sent = Pick<Asked, 'name' | 'type' | 'class'> & {
  readonly id: number;
  readonly onAnswer: OnAnswer;
  readonly onError: () => void;
};

/** One port towards one resolver: connected, so that the kernel lets nobody else's datagrams in. */
export class UdpSocket {
  uses = 0;
  readonly #port: UdpPort;
  readonly #sent = new TransientMap<number, Sent>();
  #isRetired = false;

  constructor(
    pump: Pump,
    connect: Server,
    mark: number,
    /** Called with why a datagram was passed over. */
    private readonly onStray: (reason: string) => void,
  ) {
    const options = { mark, connect, bufferBytes: BUFFER_BYTES };
    this.#port = new UdpPort(pump, options, {
      onDatagram: (bytes) => this.#take(bytes),
      onError: (code) => {
        if (code === 'EMSGSIZE') this.onStray('too_long');
        else this.#fail();
      },
    });
  }

  /** Sends under an id that is not waited for here; answers the id, to `forget` it by. */
  send(asked: Asked, onAnswer: OnAnswer, onError: () => void): number {
    let id = random16();
    while (this.#sent.has(id)) id = random16();
    this.uses++;
    const { name, type, class: of, recursionDesired, checkingDisabled, dnssecOk, options } = asked;
    this.#sent.set(id, { id, name, type, class: of, onAnswer, onError });
    const edns = { payload: UDP_PAYLOAD, version: 0, dnssecOk, options };
    this.#port.send(
      writeQuery({ id, name, type, class: of, recursionDesired, checkingDisabled, authenticData: true, edns }),
    );
    return id;
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
    this.#sent.clear();
    this.retire();
  }

  /** What is not the answer does not end the wait for it (N1). */
  #take(datagram: Uint8Array): void {
    const sent = datagram.length < 2 ? undefined : this.#sent.get(((datagram[0] ?? 0) << 8) | (datagram[1] ?? 0));
    if (sent === undefined) {
      this.onStray('unasked');
      return;
    }
    const message = readMessage(datagram);
    if ('fault' in message) this.onStray(message.fault);
    else if (!isResponseTo(message, sent)) this.onStray('other_question');
    else {
      this.forget(sent.id);
      sent.onAnswer(message);
    }
  }

  /** The resolver's machine says that nobody listens there. */
  #fail(): void {
    for (const { id, onError } of this.#sent.values()) {
      this.forget(id);
      onError();
    }
  }
}
