import type { Pump } from '#sockets/pump.js';
import type { Asked } from './pending-query.js';
import { random16 } from './random.js';
import { type OnAnswer, type Server, UdpSocket, type Waiting } from './udp-socket.js';

const SOCKETS = 16;
/** After so many queries another port takes a socket's place, so that nobody finds out which ones are in use (RFC 5452). */
const USES = 128;

/** The ports that one resolver is asked from. What is asked in one turn of the pump goes out by one of them. */
export class UdpPool {
  readonly #sockets: (UdpSocket | null)[] = [];
  #place = 0;
  #turn = -1;

  constructor(
    private readonly pump: Pump,
    private readonly to: Server,
    private readonly mark: number,
    private readonly onStray: (reason: string) => void,
    /** Renews the pool if the address that it sends by is no longer the right one; answers whether it did. */
    private readonly mayRenew: () => boolean,
  ) {}

  /** Throws a `KernelFailure` where there is no socket to be had. */
  open(): void {
    while (this.#sockets.length < SOCKETS) this.#sockets.push(this.#another());
  }

  /** Answers how to forget it. Calls back at most once, and never at once. */
  send(asked: Asked, onAnswer: OnAnswer, onError: () => void): () => void {
    const waiting: Waiting = { asked, onAnswer, onError, by: null, id: 0 };
    this.#send(waiting);
    return () => waiting.by?.forget(waiting.id);
  }

  /** From now on by sockets that are bound anew; what is waited for is asked again by these. */
  renew(): void {
    const worn = this.#sockets.splice(0);
    for (const socket of worn) for (const waiting of socket?.abandon() ?? []) this.#send(waiting);
  }

  close(): void {
    for (const socket of this.#sockets) socket?.close();
  }

  #send(waiting: Waiting): void {
    if (this.#turn !== this.pump.turns) {
      this.#turn = this.pump.turns;
      this.#place = random16() % SOCKETS;
    }
    const socket = this.#sockets[this.#place] ?? this.#replace(null);
    if (socket === null) {
      waiting.by = null;
      queueMicrotask(waiting.onError);
      return;
    }
    socket.send(waiting);
    if (socket.uses >= USES) this.#replace(socket);
  }

  #another(): UdpSocket {
    return new UdpSocket(this.pump, this.to, this.mark, this.onStray, (socket) => {
      if (!this.mayRenew()) socket.fail();
    });
  }

  #replace(worn: UdpSocket | null): UdpSocket | null {
    try {
      const fresh = this.#another();
      this.#sockets[this.#place] = fresh;
      worn?.retire();
      return fresh;
    } catch {
      // Out of descriptors or of ports, or without a route: a worn one goes on, and is worn again after as many queries.
      if (worn !== null) worn.uses = 0;
      return null;
    }
  }
}
