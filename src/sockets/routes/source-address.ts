import { libc } from '#libc/libc.js';
import { openSocket, sockaddr } from '#sockets/socket-options.js';

const SOCKADDR_BYTES = 16;

/**
 * Returns the source address that the kernel would now choose for packets to `to` with this mark, in host
 * byte order. Returns null if there is no route. Throws a `KernelFailure` if no descriptor is available.
 */
export function sourceTowards(to: { readonly address: number; readonly port: number }, mark: number): number | null {
  const fd = openSocket('udp', { mark });
  const own = new Uint8Array(SOCKADDR_BYTES);
  const hasRoute = libc.connect(fd, sockaddr(to.address, to.port), SOCKADDR_BYTES) === 0;
  const isKnown = hasRoute && libc.getsockname(fd, own, Uint32Array.of(SOCKADDR_BYTES)) === 0;
  libc.close(fd);
  return isKnown ? new DataView(own.buffer).getUint32(4) : null;
}
