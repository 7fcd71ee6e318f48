import type { Pump } from '#sockets/pump.js';
import { UdpPort } from '#sockets/udp-port.js';
import type { Counts } from './dns-counts.js';
import type { ListenAt } from './dns-options.js';
import type { Resolver } from './resolver.js';

const BUFFER_BYTES = 4 << 20;

/**
 * Answers DNS queries on one UDP address. The response to a diverted query has the destination address of the
 * query as its source address.
 */
export class UdpListener {
  #port: UdpPort | null = null;

  constructor(
    private readonly pump: Pump,
    private readonly at: ListenAt,
    private readonly resolver: Resolver,
    private readonly counts: Counts,
  ) {}

  /** Opens the socket. Throws a `KernelFailure` if the socket cannot be opened. */
  open(): void {
    const { isTransparent, mark } = this.at;
    const port = new UdpPort(
      this.pump,
      { bind: this.at, mark, isTransparent, bufferBytes: BUFFER_BYTES },
      {
        onDatagram: (datagram, client, from, to) => {
          if (from === 0) return;
          this.resolver.answer(datagram, client, false, (response) => port.send(response, client, from, to));
        },
        onError: (code) => this.counts.refuse(code === 'EMSGSIZE' ? 'too_long' : 'not_sent'),
      },
    );
    this.#port = port;
  }

  close(): void {
    this.#port?.close();
  }
}
