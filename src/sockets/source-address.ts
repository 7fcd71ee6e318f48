import { libc } from '#libc/libc.js';
import { openSocket, sockaddr } from './socket-options.js';

const SOCKADDR_BYTES = 16;

/**
 * The address that the kernel would send from now, by this mark; null without a route. In host byte order. Throws a
 * `KernelFailure` where there is no descriptor to ask with.
 */
export function sourceTowards(to: { readonly address: number; readonly port: number }, mark: number): number | null {
  const fd = openSocket('udp', { mark });
  const own = new Uint8Array(SOCKADDR_BYTES);
  const hasRoute = libc.connect(fd, sockaddr(to.address, to.port), SOCKADDR_BYTES) === 0;
  const isKnown = hasRoute && libc.getsockname(fd, own, Uint32Array.of(SOCKADDR_BYTES)) === 0;
  libc.close(fd);
  return isKnown ? new DataView(own.buffer).getUint32(4) : null;
}
