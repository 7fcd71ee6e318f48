import { isIP, SocketAddress } from 'node:net';
import type { ListenAddress } from './value.js';

/**
 * Returns whether two TCP sockets cannot listen at the same time. Port 0 never conflicts, because the kernel
 * chooses a free port. A socket on `::` also receives IPv4. A host name other than `localhost` is treated as
 * an IPv4 address.
 */
export function cannotBothListen(one: ListenAddress, other: ListenAddress): boolean {
  if (one.port !== other.port || one.port === 0) return false;
  const others = addressesOf(other.host);
  return addressesOf(one.host).some((address) => others.some((another) => overlap(address, another)));
}

/** A server that listens on `localhost` listens on both loopback addresses. */
function addressesOf(host: string): readonly string[] {
  if (host.toLowerCase() === 'localhost') return ['127.0.0.1', '::1'];
  return [isIP(host) === 6 ? canonicalIpv6(host) : host];
}

/**
 * Returns the shortest form of an IPv6 address. An IPv4-mapped address such as `::ffff:192.0.2.1` becomes an
 * IPv4 address.
 */
function canonicalIpv6(text: string): string {
  const [address = '', zone] = text.split('%');
  const plain = new SocketAddress({ family: 'ipv6', address }).address.replace(/^::ffff:(?=.*\.)/, '');
  return zone === undefined ? plain : `${plain}%${zone}`;
}

function overlap(one: string, other: string): boolean {
  const covers = (any: string, address: string): boolean => any === '::' || (any === '0.0.0.0' && isIP(address) !== 6);
  return one === other || covers(one, other) || covers(other, one);
}
