import type { Pump } from '#sockets/pump.js';
import type { Asked } from './asked.js';
import { random16 } from './random.js';
import { type OnAnswer, type Server, UdpSocket } from './udp-socket.js';

const SOCKETS = 16;
/** After so many queries another port takes a socket's place, so that nobody finds out which ones are in use (RFC 5452). */
const USES = 128;

/** The ports that one resolver is asked from. What is asked in one turn of the pump goes out by one of them. */
export class UdpPool {
  readonly #sockets: UdpSocket[] = [];
  #place = 0;
  #turn = -1;

  constructor(
    private readonly pump: Pump,
    private readonly to: Server,
    private readonly mark: number,
    private readonly onStray: (reason: string) => void,
  ) {}

  /** Throws a `KernelFailure` where there is no socket to be had. */
  open(): void {
    while (this.#sockets.length < SOCKETS) this.#sockets.push(this.#another());
  }

  /** Answers how to forget it. */
  send(asked: Asked, onAnswer: OnAnswer, onError: () => void): () => void {
    if (this.#turn !== this.pump.turns) {
      this.#turn = this.pump.turns;
      this.#place = random16() % SOCKETS;
    }
    const socket = this.#sockets[this.#place];
    if (socket === undefined) throw new RangeError('the pool is not open');
    const id = socket.send(asked, onAnswer, onError);
    if (socket.uses >= USES) this.#replace(socket);
    return () => socket.forget(id);
  }

  close(): void {
    for (const socket of this.#sockets) socket.close();
  }

  #another(): UdpSocket {
    return new UdpSocket(this.pump, this.to, this.mark, this.onStray);
  }

  #replace(worn: UdpSocket): void {
    try {
      this.#sockets[this.#place] = this.#another();
      worn.retire();
    } catch {
      // Out of descriptors or of ports: this one goes on, and is worn again after as many queries.
      worn.uses = 0;
    }
  }
}
