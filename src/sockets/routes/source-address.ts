import type { Address } from '#contracts/policy/policy-model.js';
import { libc } from '#libc/libc.js';
import { addressInSockaddr, openSocket, SOCKADDR_IN6_BYTES, sockaddr } from '#sockets/socket-options.js';

/**
 * Returns the source address that the kernel would now choose for packets to `to` with this mark, in host
 * byte order. Returns null if there is no route. Throws a `KernelFailure` if no descriptor is available.
 */
export function sourceTowards(to: { readonly address: Address; readonly port: number }, mark: number): Address | null {
  const fd = openSocket('udp', { mark }, typeof to.address === 'number' ? 'ipv4' : 'ipv6');
  const name = sockaddr(to.address, to.port);
  const own = new Uint8Array(SOCKADDR_IN6_BYTES);
  const hasRoute = libc.connect(fd, name, name.length) === 0;
  const isKnown = hasRoute && libc.getsockname(fd, own, Uint32Array.of(own.length)) === 0;
  libc.close(fd);
  return isKnown ? addressInSockaddr(new DataView(own.buffer)) : null;
}
