import type { TLSSocket } from 'node:tls';
import { IdleTimeout } from '#service-plane/intercept/idle-timeout.js';
import type { ServerLink } from '#service-plane/intercept/server-link.js';
import type { TlsEnd } from '#service-plane/intercept/stream-end.js';
import { descriptorOf } from '#sockets/listening/descriptor-reserve.js';
import { isBroken } from '#sockets/listening/tcp-endpoint.js';
import { destroyWithReset } from '#sockets/socket-options.js';

/**
 * The time, in milliseconds, after which the server of a closed tunnel is reset if it accepts no more of the
 * client's last data.
 */
const LAST_DATA_MS = 60_000;

export type TunnelPorts = {
  readonly client: TLSSocket;
  /** Returns how the client has ended its direction; null before the end. */
  readonly clientEnd: () => TlsEnd | null;
  readonly link: ServerLink;
  readonly clock: { readonly tick: number };
};

/**
 * Forwards bytes between a client and a server after a response with status 101. The service plane does not
 * inspect these bytes, because the rule allowed the upgrade. If one side ends its direction by close_notify,
 * the other direction continues. Any other end of one side resets the other side.
 */
export class Tunnel {
  readonly #idleTimeout: IdleTimeout;
  #clientEnded = false;
  #serverEnded = false;
  #isOver = false;

  constructor(private readonly ports: TunnelPorts) {
    const { client, clientEnd, link, clock } = ports;
    const server = link.socket;
    this.#idleTimeout = new IdleTimeout(clock);
    client.on('data', (chunk: Buffer) => {
      this.#idleTimeout.moved();
      // After the end of the tunnel, client bytes are dropped.
      if (!this.#isOver && !server.write(chunk)) client.pause();
    });
    client.on('drain', () => server.resume());
    client.once('end', () => this.#onClientEnd(clientEnd() ?? 'cut'));
    link.listen({
      onData: (chunk) => {
        this.#idleTimeout.moved();
        if (!client.write(chunk)) server.pause();
      },
      drained: () => client.resume(),
      gone: (how) => this.#onServerGone(how),
    });
    client.resume();
  }

  /** Ends the tunnel. Resets the connection to the server, unless both sides have ended by close_notify. */
  close(): void {
    const { client, link } = this.ports;
    this.#isOver = true;
    if (this.#clientEnded && client.writableFinished) {
      link.socket.setTimeout(LAST_DATA_MS, () => destroyWithReset(link.socket));
    } else {
      destroyWithReset(link.socket);
    }
  }

  /**
   * Resets both sides in two cases: one connection has broken while Node neither read nor wrote, or one side
   * has ended and the tunnel was idle for too long. The session calls this method at every tick. Otherwise a
   * tunnel has no idle timeout; keepalive detects a dead peer.
   */
  checkTimeouts(): void {
    const { client, link } = this.ports;
    const isHalfClosed = this.#clientEnded || this.#serverEnded;
    const isLate = isHalfClosed && this.#idleTimeout.over({ isHalfClosed }) !== null;
    if (isLate || [client, link.socket].some((socket) => isBroken(descriptorOf(socket)))) this.#reset();
  }

  #onClientEnd(how: TlsEnd): void {
    if (this.#isOver) return;
    if (how === 'cut') {
      this.#reset();
      return;
    }
    this.#clientEnded = true;
    this.ports.link.socket.end();
  }

  #onServerGone(how: TlsEnd): void {
    if (this.#isOver) return;
    if (how === 'closed') {
      this.#serverEnded = true;
      this.ports.client.end();
    } else if (this.#serverEnded) {
      // Do not reset the client, which may still have to read the last data of the server.
      this.close();
    } else {
      this.#reset();
    }
  }

  #reset(): void {
    this.close();
    destroyWithReset(this.ports.client);
  }
}
