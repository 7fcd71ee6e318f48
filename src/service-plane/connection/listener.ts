import { createServer, type Server, type Socket } from 'node:net';
import { familyOf, parseAddress } from '#addresses/ip-address.js';
import { IPPROTO, type Packet } from '#contracts/policy/policy-model.js';
import { planeAddress } from '#contracts/service-plane/plane-address.js';
import type { ServicePlaneOptions } from '#service-plane/service-plane-options.js';
import { destroyWithReset, listenOnDuplicate } from '#sockets/socket-options.js';

/**
 * Accepts the connections that the datapath redirects. The listeners of several threads share one address for
 * each IP family. The local address of an accepted socket is the client's original destination.
 */
export class Listener {
  readonly #servers: Server[] = [];

  constructor(
    private readonly options: ServicePlaneOptions,
    private readonly accept: (client: Socket, flow: Packet) => void,
  ) {}

  /** Begins to accept connections on duplicates of the listening sockets `fds`. */
  async open(fds: readonly number[]): Promise<void> {
    await Promise.all(fds.map((fd) => listenOnDuplicate(this.#server(), fd)));
  }

  async close(): Promise<void> {
    await Promise.all(this.#servers.map((server) => new Promise<void>((resolve) => server.close(() => resolve()))));
  }

  #server(): Server {
    const server = createServer({ allowHalfOpen: true, pauseOnConnect: true }, (socket) =>
      this.#acceptRedirected(socket),
    );
    this.#servers.push(server);
    return server;
  }

  #acceptRedirected(socket: Socket): void {
    // A link-local address has a zone here, so its connection is reset: the datapath redirects none.
    const source = parseAddress(socket.remoteAddress ?? '');
    const destination = parseAddress(socket.localAddress ?? '');
    const { remotePort: sourcePort, localPort: destinationPort } = socket;
    const { listen } = this.options;
    // Reset a connection that a client made directly to the listening address: only connections that the
    // datapath redirected are accepted.
    const isDirect =
      destination === undefined ||
      (destination === planeAddress(listen, familyOf(destination)) && destinationPort === listen.port);
    if (source === undefined || sourcePort === undefined || isDirect) {
      destroyWithReset(socket);
      return;
    }
    if (destinationPort === undefined) throw new Error('accept a connection: the socket has no destination port');
    const flow = { source, destination, protocol: IPPROTO.tcp, sourcePort, destinationPort, icmpType: 0, icmpCode: 0 };
    this.accept(socket, flow);
  }
}
