import { check, libc } from '#libc/libc.js';
import { MSG_DONTWAIT, SOCK_RAW } from '#libc/socket-numbers.js';
import { enterNamespace } from './namespace.js';

const AF_PACKET = 17;
const ETH_P_ALL = 0x0300; // ETH_P_ALL (3) in network byte order
const SOL_PACKET = 263;
const PACKET_VNET_HDR = 15;
const LONGEST = 70_000;

/** A packet socket on one interface of a network namespace. It sends and receives whole frames. */
export class Wire {
  readonly #fd: number;
  readonly #buffer = new Uint8Array(LONGEST);

  /** If `virtual` is true, each sent and received frame begins with a virtio_net_hdr. */
  constructor(namespace: string, ifindex: number, virtual = false) {
    const back = enterNamespace(namespace);
    try {
      this.#fd = check('make a socket', libc.socket(AF_PACKET, SOCK_RAW, ETH_P_ALL));
      if (virtual)
        check('set PACKET_VNET_HDR', libc.setsockopt(this.#fd, SOL_PACKET, PACKET_VNET_HDR, Uint32Array.of(1), 4));
      // The buffer `address` has the layout of struct sockaddr_ll.
      const address = new DataView(new ArrayBuffer(20));
      address.setUint16(0, AF_PACKET, true);
      address.setUint16(2, ETH_P_ALL, true);
      address.setInt32(4, ifindex, true);
      check('bind the socket', libc.bind(this.#fd, new Uint8Array(address.buffer), 20));
    } finally {
      back();
    }
  }

  send(frame: Uint8Array): void {
    check('send a frame', libc.send(this.#fd, frame, frame.length, 0));
  }

  /** Returns the frames that the interface has sent and received since the last call. */
  seen(): Uint8Array[] {
    const frames: Uint8Array[] = [];
    for (;;) {
      const length = libc.recv(this.#fd, this.#buffer, LONGEST, MSG_DONTWAIT);
      if (length < 0) return frames;
      frames.push(this.#buffer.slice(0, length));
    }
  }

  close(): void {
    libc.close(this.#fd);
  }
}
