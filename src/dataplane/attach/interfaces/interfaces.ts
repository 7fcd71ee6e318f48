import koffi from 'koffi';
import { KernelFailure } from '#libc/kernel-failure.js';
import { check, errno, libc } from '#libc/libc.js';
import { AF_INET, SOCK_DGRAM } from '#libc/socket-numbers.js';

export type Interface = { readonly name: string; readonly ifindex: number };

const SIOCGIFHWADDR = 0x8927;
const ARPHRD_ETHER = 1;
const NAME_BYTES = 16;

/**
 * Returns the interfaces of this network namespace. Does not read `/sys/class/net`, because that folder shows
 * the namespace in which `/sys` was mounted.
 */
export function listInterfaces(): Interface[] {
  const list = libc.if_nameindex();
  if (!list) throw new KernelFailure('list interfaces', errno());
  const found: Interface[] = [];
  // The C struct is `{ unsigned index; char *name; }`. An element with index 0 ends the list.
  for (let entry = list; ; entry += 16n) {
    const ifindex = koffi.decode.uint32(entry);
    if (ifindex === 0) break;
    const name = koffi.decode(entry + 8n, 'char *') as string;
    found.push({ name, ifindex });
  }
  libc.if_freenameindex(list);
  return found;
}

/**
 * Returns whether frames of the interface have an Ethernet header. The datapath cannot parse other frames.
 */
export function isEthernet(name: string): boolean {
  const request = new Uint8Array(40);
  new TextEncoder().encodeInto(name, request.subarray(0, NAME_BYTES - 1));
  const socket = check('open socket', libc.socket(AF_INET, SOCK_DGRAM, 0));
  try {
    check(`read hardware type of ${name}`, libc.ioctl(socket, SIOCGIFHWADDR, request));
  } finally {
    libc.close(socket);
  }
  return new DataView(request.buffer).getUint16(NAME_BYTES, true) === ARPHRD_ETHER;
}
