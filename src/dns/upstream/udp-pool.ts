import type { Pump } from '#sockets/pump.js';
import type { UpstreamQuery } from './pending-query.js';
import { random16 } from './random.js';
import { type OnAnswer, type Server, UdpSocket, type Waiting } from './udp-socket.js';

const SOCKETS = 16;
/**
 * A socket is replaced by one with another port after this many queries, so that an attacker cannot find the
 * ports in use (RFC 5452).
 */
const USES = 128;

/** The sockets that query one resolver. The queries of one pump turn share a socket. */
export class UdpPool {
  readonly #sockets: (UdpSocket | null)[] = [];
  #place = 0;
  #turn = -1;

  constructor(
    private readonly pump: Pump,
    private readonly to: Server,
    private readonly mark: number,
    private readonly onStray: (reason: string) => void,
    /** Renews the pool if its source address is no longer the right one; returns whether it did. */
    private readonly mayRenew: () => boolean,
  ) {}

  /** Throws a `KernelFailure` if no socket can be opened. */
  open(): void {
    while (this.#sockets.length < SOCKETS) this.#sockets.push(this.#another());
  }

  /** Returns a function that forgets the query. Calls back at most once, and never before the return. */
  send(asked: UpstreamQuery, onAnswer: OnAnswer, onError: () => void): () => void {
    const waiting: Waiting = { asked, onAnswer, onError, by: null, id: 0 };
    this.#send(waiting);
    return () => waiting.by?.forget(waiting.id);
  }

  /** Replaces all sockets, and sends open queries again over the new ones. */
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
      // Out of descriptors or ports, or without a route: keep the old socket, and try again after the same
      // number of queries.
      if (worn !== null) worn.uses = 0;
      return null;
    }
  }
}
