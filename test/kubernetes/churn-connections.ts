import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { connect, createServer, type Server } from 'node:tls';
import { ADDRESSES } from '#cli/tour/topology.js';
import { enterNamespace } from '#test/kernel/namespace.js';
import { makeCertificates } from '#test/service-plane/certificates.js';

/** A connection without a handshake in this time (ms) was denied: the node resets it, or drops its SYN. */
const CONNECT_MS = 1_000;

/** A TLS server, and TLS clients with the addresses of pods. */
export class ChurnConnections {
  readonly #client: string;
  readonly #server: Server;

  private constructor(client: string, server: Server) {
    this.#client = client;
    this.#server = server;
  }

  static async open(namespaces: { readonly client: string; readonly server: string }): Promise<ChurnConnections> {
    const { certPem: cert, keyPem: key } = makeCertificates().good;
    const server = createServer({ cert, key }, (socket) => socket.on('error', () => {}));
    const back = enterNamespace(namespaces.server);
    try {
      await once(server.listen(0, ADDRESSES.server), 'listening');
    } finally {
      back();
    }
    return new ChurnConnections(namespaces.client, server);
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  /** Opens connections with these sources and server names. Returns those whose handshake completes. */
  async completed<C extends { readonly from: string; readonly name: string }>(tried: readonly C[]): Promise<C[]> {
    const back = enterNamespace(this.#client);
    const ends = tried.map(({ from, name: servername }) => {
      const options = { host: ADDRESSES.server, port: this.port, localAddress: from, servername };
      const socket = connect({ ...options, rejectUnauthorized: false });
      return new Promise<boolean>((resolve) => {
        const end = (isComplete: boolean): void => {
          resolve(isComplete);
          socket.destroy();
        };
        socket.once('secureConnect', () => end(true)).on('error', () => end(false));
        setTimeout(() => end(false), CONNECT_MS);
      });
    });
    // Node makes the socket in the next tick, and nothing else may run in this namespace.
    await new Promise<void>((resolve) => process.nextTick(resolve));
    back();
    const complete = await Promise.all(ends);
    return tried.filter((_, index) => complete[index]);
  }

  close(): void {
    this.#server.close();
  }
}
