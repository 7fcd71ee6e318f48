import { formatAddress, parseAddress } from '#addresses/ip-address.js';
import type { DnsOptions, Endpoint } from '#dns/dns-options.js';
import { descriptorIn, type ListeningSocket, type SocketDescriptors } from '#sockets/listening/listening-sockets.js';
import type { SocketAddress } from '#sockets/socket-options.js';

const BUFFER_BYTES = 4 << 20;

/**
 * The address and port of the sockets that receive diverted DNS queries. The BPF program uses the same
 * address (`bpf/inspect/divert_dns.h`).
 */
const DIVERTED: Endpoint = { host: '127.83.0.53', port: 53 };

/**
 * An address and port on which the proxy listens. `isTransparent`: the datapath diverts queries for other DNS
 * servers to this address.
 */
export type ListenAt = SocketAddress & { readonly isTransparent: boolean };

export function listensAt({ listen, transparent }: Pick<DnsOptions, 'listen' | 'transparent'>): readonly ListenAt[] {
  const all = [
    ...listen.map((at) => ({ ...at, isTransparent: false })),
    ...(transparent ? [{ ...DIVERTED, isTransparent: true }] : []),
  ];
  return all.map(({ host, port, isTransparent }) => {
    const address = parseAddress(host);
    if (address === undefined) throw new Error(`listen for DNS queries: ${host} is not an address`);
    return { address, port, isTransparent };
  });
}

const udpAt = (at: ListenAt, mark: number): ListeningSocket => ({
  ...at,
  kind: 'udp',
  mark,
  bufferBytes: BUFFER_BYTES,
});
const tcpAt = (at: ListenAt, mark: number): ListeningSocket => ({ ...at, kind: 'tcp', mark });

export function socketsOf(options: DnsOptions): readonly ListeningSocket[] {
  return listensAt(options).flatMap((at) => [udpAt(at, options.mark), tcpAt(at, options.mark)]);
}

/** Returns the descriptors of the UDP and the TCP socket that listen at an address. */
export function descriptorsAt(
  at: ListenAt,
  descriptors: SocketDescriptors,
): { readonly udp: number; readonly tcp: number } {
  return {
    udp: descriptorIn(descriptors, 'dns', udpAt(at, 0)),
    tcp: descriptorIn(descriptors, 'dns', tcpAt(at, 0)),
  };
}

export function keyOf({ address, port, isTransparent }: ListenAt): string {
  return `${formatAddress(address)} ${port} ${isTransparent}`;
}
