import { isLinkLocal } from '#addresses/ip-address.js';
import type { Counts } from '#dns/dns-counts.js';
import type { Resolver } from '#dns/resolver/resolver.js';
import { duplicateSocket } from '#sockets/socket-options.js';
import type { Pump } from '#sockets/udp/pump.js';
import { UdpPort } from '#sockets/udp/udp-port.js';

/** Objects that the listeners of the proxy share. `unanswered`: the number of queries without an answer. */
export type ListenerParts = {
  readonly resolver: Resolver;
  readonly counts: Counts;
  readonly unanswered: { count: number };
};

/**
 * Answers DNS queries on one UDP address. The response to a diverted query has the destination address of the
 * query as its source address.
 */
export class UdpListener {
  #port: UdpPort | null = null;

  constructor(
    private readonly pump: Pump,
    private readonly parts: ListenerParts,
  ) {}

  /** Begins to receive on a duplicate of the bound socket `fd`. */
  open(fd: number): void {
    const { resolver, counts, unanswered } = this.parts;
    const port = new UdpPort(this.pump, duplicateSocket(fd), {
      onDatagram: (datagram, client, from, to) => {
        if (from === 0) return;
        // An answer to a link-local address needs a zone, and no packet from such an address is forwarded.
        if (typeof client === 'bigint' && isLinkLocal(client)) {
          counts.refuse('link_local');
          return;
        }
        unanswered.count++;
        const isAnswered = resolver.answer(datagram, client, false, (response) => {
          unanswered.count--;
          port.send(response, client, from, to);
        });
        if (!isAnswered) unanswered.count--;
      },
      onError: (code) => counts.refuse(code === 'EMSGSIZE' ? 'too_long' : 'not_sent'),
    });
    this.#port = port;
  }

  /** Stops receiving queries. Answers can still be sent. */
  pause(): void {
    this.#port?.pause();
  }

  close(): void {
    this.#port?.close();
  }
}
