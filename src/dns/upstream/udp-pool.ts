import type { Pump } from '#sockets/udp/pump.js';
import type { UpstreamQuery } from './pending-query.js';
import { random16 } from './random.js';
import { type OnAnswer, type PendingQuery, type Server, UdpSocket } from './udp-socket.js';

const SOCKETS = 16;
/**
 * After this many queries, the pool replaces a socket by a socket with another UDP port. An attacker must not
 * have time to find the ports in use (RFC 5452).
 */
const USES = 128;

/**
 * The UDP sockets that query one upstream. All queries of one iteration of the pump (the loop that receives
 * and sends) use the same socket, so that one system call sends them.
 */
export class UdpPool {
  readonly #sockets: (UdpSocket | null)[] = [];
  #place = 0;
  #iteration = -1;

  constructor(
    private readonly pump: Pump,
    private readonly to: Server,
    private readonly mark: number,
    private readonly onStray: (reason: string) => void,
    /**
     * Replaces the sockets of the pool if the source address towards the upstream changed. Returns whether
     * the sockets were replaced.
     */
    private readonly mayRenew: () => boolean,
  ) {}

  /** Opens all sockets. Throws a `KernelFailure` if a socket cannot be opened. */
  open(): void {
    while (this.#sockets.length < SOCKETS) this.#sockets.push(this.#another());
  }

  /**
   * Sends a query. Calls `onAnswer` or `onError` at most once, and never before `send` returns. The returned
   * function drops the query; neither callback is then called.
   */
  send(asked: UpstreamQuery, onAnswer: OnAnswer, onError: () => void): () => void {
    const waiting: PendingQuery = { query: asked, onAnswer, onError, by: null, id: 0 };
    this.#send(waiting);
    return () => waiting.by?.forget(waiting.id);
  }

  /** Replaces all sockets, and sends the unanswered queries again over the new sockets. */
  renew(): void {
    const worn = this.#sockets.splice(0);
    for (const socket of worn) for (const waiting of socket?.abandon() ?? []) this.#send(waiting);
  }

  close(): void {
    for (const socket of this.#sockets) socket?.close();
  }

  #send(waiting: PendingQuery): void {
    if (this.#iteration !== this.pump.iterations) {
      this.#iteration = this.pump.iterations;
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
      // No descriptor or port is free, or the kernel has no route. Keep the old socket, and try the
      // replacement again after `USES` more queries.
      if (worn !== null) worn.uses = 0;
      return null;
    }
  }
}
