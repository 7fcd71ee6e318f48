import type { TLSSocket } from 'node:tls';
import type { ServerLink } from './server-link.js';

/**
 * The interval of TCP keepalive in milliseconds. A tunnel has no idle timeout, so only keepalive detects a
 * dead peer.
 */
const KEEP_ALIVE_MS = 60_000;
/** The idle time that a client has to close its side after the server is gone, in milliseconds. */
const HALF_CLOSED_MS = 60_000;

/**
 * Forwards bytes between a client and a server after a response with status 101. The service plane does not
 * inspect these bytes, because the rule allowed the upgrade.
 */
export class Tunnel {
  #isOver = false;

  constructor(
    private readonly client: TLSSocket,
    private readonly link: ServerLink,
  ) {
    const server = link.socket;
    for (const end of [client, server]) end.setKeepAlive(true, KEEP_ALIVE_MS);
    client.on('data', (chunk: Buffer) => {
      // After the server has ended the connection, client bytes are dropped.
      if (!this.#isOver && !server.write(chunk)) client.pause();
    });
    client.on('drain', () => server.resume());
    client.once('end', () => server.end());
    link.listen({
      onData: (chunk) => {
        if (!client.write(chunk)) server.pause();
      },
      drained: () => client.resume(),
      gone: () => this.#serverGone(),
    });
    client.resume();
  }

  close(): void {
    this.#isOver = true;
    this.link.socket.destroy();
  }

  #serverGone(): void {
    if (this.#isOver) return;
    this.client.end();
    // Keepalive does not end the connection to a client that never closes its side.
    this.client.setTimeout(HALF_CLOSED_MS, () => this.client.destroy());
    this.close();
  }
}
