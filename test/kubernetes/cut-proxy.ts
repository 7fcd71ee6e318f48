import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net';

/** Forwards TCP connections to a port of loopback, and breaks or delays them. TLS passes unchanged. */
export class CutProxy {
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  readonly #to: number;
  /** New connections break after so many bytes of the server; null for no limit. */
  cutAfter: number | null = null;
  /** The number of bytes that were forwarded to all clients. */
  forwarded = 0;

  private constructor(to: number) {
    this.#to = to;
    this.#server = createServer((client) => this.#forward(client));
  }

  static async start(to: number): Promise<CutProxy> {
    const proxy = new CutProxy(to);
    proxy.#server.listen(0, '127.0.0.1');
    await once(proxy.#server, 'listening');
    return proxy;
  }

  get url(): string {
    return `https://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  /** Breaks all connections. */
  cut(): void {
    for (const socket of this.#sockets) socket.resetAndDestroy();
  }

  async close(): Promise<void> {
    this.cut();
    this.#server.close();
    await once(this.#server, 'close');
  }

  #forward(client: Socket): void {
    const server = connect(this.#to, '127.0.0.1');
    const left = { bytes: this.cutAfter ?? Number.POSITIVE_INFINITY };
    for (const [socket, other] of [
      [client, server],
      [server, client],
    ] as const) {
      this.#sockets.add(socket);
      // Send at once: a reset would discard bytes that wait for an acknowledgement of earlier bytes.
      socket.setNoDelay(true);
      socket.on('error', () => {});
      socket.on('close', () => {
        this.#sockets.delete(socket);
        other.destroy();
      });
    }
    client.on('data', (bytes) => server.write(bytes));
    server.on('data', (bytes) => {
      const sent = bytes.subarray(0, left.bytes);
      left.bytes -= sent.length;
      if (left.bytes > 0) client.write(sent);
      else client.end(sent, () => client.destroy());
      this.forwarded += sent.length;
    });
  }
}
