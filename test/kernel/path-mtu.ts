import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { formatAddress } from '#addresses/ip-address.js';
import { check, libc } from '#libc/libc.js';
import { AF_INET, IPPROTO_RAW, SOCK_CLOEXEC, SOCK_RAW } from '#libc/socket-numbers.js';
import { sockaddr } from '#sockets/socket-options.js';

const IP_BYTES = 20;
const ICMP = { echoReply: 0, unreachable: 3, fragmentationNeeded: 4, bytes: 8, protocol: 1 } as const;
const DONT_FRAGMENT = 0x4000;
const MTU = 1_300;

/**
 * Makes the kernel learn a path MTU of 1,300 bytes for each destination, by ICMP errors from `router`. Works
 * in the network namespace of this thread, which must have the address `own`. Addresses are in host byte
 * order.
 */
export async function findOutMtu(own: number, router: number, destinations: readonly number[]): Promise<void> {
  const fd = check('open a raw socket', libc.socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_RAW));
  const to = sockaddr(own, 0);
  for (const destination of destinations) {
    const bytes = tooLong(own, router, destination);
    check('send', libc.sendto(fd, bytes, bytes.length, 0, to, to.length));
  }
  libc.close(fd);
  for (const destination of destinations) {
    const socket = createSocket('udp4');
    socket.connect(9, formatAddress(destination));
    await once(socket, 'connect');
    socket.close();
  }
}

/** Returns an ICMP error "fragmentation needed" that quotes an echo reply from `own` to `destination`. */
function tooLong(own: number, router: number, destination: number): Uint8Array {
  const view = new DataView(new ArrayBuffer(2 * (IP_BYTES + ICMP.bytes)));
  const header = (at: number, source: number, target: number): void => {
    view.setUint8(at, 0x45);
    view.setUint16(at + 2, view.byteLength - at);
    view.setUint16(at + 6, DONT_FRAGMENT);
    view.setUint8(at + 8, 64);
    view.setUint8(at + 9, ICMP.protocol);
    view.setUint32(at + 12, source);
    view.setUint32(at + 16, target);
  };
  header(0, router, own);
  view.setUint8(IP_BYTES, ICMP.unreachable);
  view.setUint8(IP_BYTES + 1, ICMP.fragmentationNeeded);
  view.setUint16(IP_BYTES + 6, MTU);
  const quoted = IP_BYTES + ICMP.bytes;
  header(quoted, own, destination);
  view.setUint8(quoted + IP_BYTES, ICMP.echoReply);
  let sum = 0;
  for (let at = IP_BYTES; at < view.byteLength; at += 2) sum += view.getUint16(at);
  sum = (sum & 0xffff) + (sum >>> 16);
  view.setUint16(IP_BYTES + 2, ~(sum + (sum >>> 16)) & 0xffff);
  return new Uint8Array(view.buffer);
}
