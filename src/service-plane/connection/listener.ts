import { createServer, type Server, type Socket } from 'node:net';
import { parseIpv4Address } from '#addresses/ip-address.js';
import { IPPROTO, type Packet } from '#contracts/policy/policy-model.js';
import type { ServicePlaneOptions } from '#service-plane/service-plane-options.js';
import { destroyWithReset, listenOnDuplicate } from '#sockets/socket-options.js';

/**
 * Accepts the connections that the datapath redirects. The listeners of several threads share one address.
 * The local address of an accepted socket is the client's original destination.
 */
export class Listener {
  readonly #server: Server;

  constructor(
    private readonly options: ServicePlaneOptions,
    private readonly accept: (client: Socket, flow: Packet<number>) => void,
  ) {
    this.#server = createServer({ allowHalfOpen: true, pauseOnConnect: true }, (socket) =>
      this.#acceptRedirected(socket),
    );
  }

  /** Begins to accept connections on a duplicate of the listening socket `fd`. */
  open(fd: number): Promise<void> {
    return listenOnDuplicate(this.#server, fd);
  }

  close(): Promise<void> {
    return new Promise((resolve) => this.#server.close(() => resolve()));
  }

  #acceptRedirected(socket: Socket): void {
    const source = parseIpv4Address(socket.remoteAddress ?? '');
    const destination = parseIpv4Address(socket.localAddress ?? '');
    const { remotePort: sourcePort, localPort: destinationPort } = socket;
    const isDirect = destination === this.options.listen.address && destinationPort === this.options.listen.port;
    // Reset a connection that a client made directly to the listening address: only connections that the
    // datapath redirected are accepted.
    if (source === undefined || destination === undefined || sourcePort === undefined || isDirect) {
      destroyWithReset(socket);
      return;
    }
    if (destinationPort === undefined) throw new Error('accept a connection: the socket has no destination port');
    const flow = { source, destination, protocol: IPPROTO.tcp, sourcePort, destinationPort, icmpType: 0, icmpCode: 0 };
    this.accept(socket, flow);
  }
}
