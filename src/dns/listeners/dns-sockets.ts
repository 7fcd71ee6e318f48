import { formatAddress, parseAddress } from '#addresses/ip-address.js';
import type { Family } from '#contracts/policy/policy-model.js';
import type { DnsOptions, Endpoint } from '#dns/dns-options.js';
import { descriptorIn, type ListeningSocket, type SocketDescriptors } from '#sockets/listening/listening-sockets.js';
import type { SocketAddress } from '#sockets/socket-options.js';

const BUFFER_BYTES = 4 << 20;

/**
 * The addresses and port of the sockets that receive diverted DNS queries. The BPF programs use the same
 * addresses (`DIVERT_ADDRESS` of `bpf/ipv4/address.h` and `bpf/ipv6/address.h`).
 */
const DIVERTED: Readonly<Record<Family, Endpoint>> = {
  ipv4: { host: '127.83.0.53', port: 53 },
  ipv6: { host: '100::53', port: 53 },
};

/**
 * An address and port on which the proxy listens. `isTransparent`: the datapath diverts queries for other DNS
 * servers to this address.
 */
export type ListenAt = SocketAddress & { readonly isTransparent: boolean };

export function listensAt({
  listen,
  transparent,
  grantsIpv6 = false,
}: Pick<DnsOptions, 'listen' | 'transparent' | 'grantsIpv6'>): readonly ListenAt[] {
  const diverted = grantsIpv6 ? [DIVERTED.ipv4, DIVERTED.ipv6] : [DIVERTED.ipv4];
  const all = [
    ...listen.map((at) => ({ ...at, isTransparent: false })),
    ...(transparent ? diverted.map((at) => ({ ...at, isTransparent: true })) : []),
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
