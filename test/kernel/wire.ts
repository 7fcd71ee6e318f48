import koffi from 'koffi';
import { enterNamespace } from './namespace.js';

const AF_PACKET = 17;
const SOCK_RAW = 3;
const ETH_P_ALL = 0x0300; // in network byte order
const SOL_PACKET = 263;
const PACKET_VNET_HDR = 15;
const MSG_DONTWAIT = 0x40;
const LONGEST = 70_000;

const library = koffi.load(null);
const socket = library.func('int socket(int domain, int type, int protocol)');
const bind = library.func('int bind(int fd, const void *address, uint32_t length)');
const setsockopt = library.func('int setsockopt(int fd, int level, int name, const void *value, uint32_t length)');
const send = library.func('long send(int fd, const void *bytes, size_t length, int flags)');
const recv = library.func('long recv(int fd, _Out_ void *bytes, size_t length, int flags)');
const close = library.func('int close(int fd)');

/** An interface of a namespace, on which whole frames are sent and seen. */
export class Wire {
  readonly #fd: number;
  readonly #buffer = new Uint8Array(LONGEST);

  /** With `virtual`, frames begin with a virtio_net_hdr. */
  constructor(namespace: string, ifindex: number, virtual = false) {
    const back = enterNamespace(namespace);
    try {
      this.#fd = check(socket(AF_PACKET, SOCK_RAW, ETH_P_ALL) as number);
      if (virtual) check(setsockopt(this.#fd, SOL_PACKET, PACKET_VNET_HDR, Uint32Array.of(1), 4) as number);
      // struct sockaddr_ll
      const address = new DataView(new ArrayBuffer(20));
      address.setUint16(0, AF_PACKET, true);
      address.setUint16(2, ETH_P_ALL, true);
      address.setInt32(4, ifindex, true);
      check(bind(this.#fd, new Uint8Array(address.buffer), 20) as number);
    } finally {
      back();
    }
  }

  send(frame: Uint8Array): void {
    check(send(this.#fd, frame, frame.length, 0) as number);
  }

  /** The frames that were seen since the last call, both ways. */
  seen(): Uint8Array[] {
    const frames: Uint8Array[] = [];
    for (;;) {
      const length = recv(this.#fd, this.#buffer, LONGEST, MSG_DONTWAIT) as number;
      if (length < 0) return frames;
      frames.push(this.#buffer.slice(0, length));
    }
  }

  close(): void {
    close(this.#fd);
  }
}

function check(result: number): number {
  if (result < 0) throw new Error(`errno ${koffi.errno()}`);
  return result;
}
