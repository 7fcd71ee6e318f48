import { constants } from 'node:os';
import { append } from '#arrays/append.js';
import { KernelFailure } from './kernel-failure.js';
import { check, errno, libc } from './libc.js';
import { MSG_DONTWAIT, SOCK_CLOEXEC, SOCK_RAW } from './socket-numbers.js';

const AF_NETLINK = 16;
const HEADER_BYTES = 16;
const { EAGAIN, EINTR, EIO, ENOBUFS } = constants.errno;
const NLM_F_DUMP_INTR = 0x10;
const NLMSG_ERROR = 2;
const NLMSG_DONE = 3;
const DATAGRAM_BYTES = 1 << 16;
const DUMP_TRIES = 3;
const NLA_F_NESTED = 0x8000;

const SOL_NETLINK = 270;
const NETLINK_GET_STRICT_CHK = 12;

export const NLM_F_REQUEST = 1;
const NLM_F_ACK = 4;
export const NLM_F_DUMP = 0x300;
export const NETLINK_ROUTE = 0;
export const NETLINK_NETFILTER = 12;

/**
 * A netlink message. The meaning of `type` depends on the netlink family, `flags` has the flags of the
 * netlink header, and `payload` is the data after the header.
 */
export type NetlinkMessage = { readonly type: number; readonly flags: number; readonly payload: DataView };

/**
 * A netlink socket in the network namespace of this thread. `groups` is the bit mask of multicast groups to
 * subscribe to; bit 0 is the first group.
 */
export class NetlinkSocket {
  readonly fd: number;
  readonly #buffer = new Uint8Array(DATAGRAM_BYTES);

  constructor(protocol: number, groups: number) {
    this.fd = check('open netlink socket', libc.socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, protocol));
    // A `struct sockaddr_nl` with port id 0, so that the kernel chooses the port id of the socket.
    const address = new DataView(new ArrayBuffer(12));
    address.setUint16(0, AF_NETLINK, true);
    address.setUint32(8, groups, true);
    try {
      check('bind netlink socket', libc.bind(this.fd, new Uint8Array(address.buffer), 12));
    } catch (error) {
      this.close();
      throw error;
    }
  }

  /**
   * Sets NETLINK_GET_STRICT_CHK. The kernel then checks and applies the filters in dump requests; without
   * this option, the kernel ignores the filters.
   */
  checkStrictly(): void {
    const on = new Uint8Array(Uint32Array.of(1).buffer);
    check('set NETLINK_GET_STRICT_CHK', libc.setsockopt(this.fd, SOL_NETLINK, NETLINK_GET_STRICT_CHK, on, on.length));
  }

  send(type: number, flags: number, payload: Uint8Array): void {
    const message = new Uint8Array(HEADER_BYTES + payload.length);
    const view = new DataView(message.buffer);
    view.setUint32(0, message.length, true);
    view.setUint16(4, type, true);
    view.setUint16(6, flags, true);
    message.set(payload, HEADER_BYTES);
    check('send to netlink', libc.send(this.fd, message, message.length, 0));
  }

  /** Sends a request, and returns the errno with which the kernel refuses it; 0 if the kernel accepts it. */
  request(type: number, payload: Uint8Array): number {
    this.send(type, NLM_F_REQUEST | NLM_F_ACK, payload);
    const replies = this.receive();
    if (replies === 'lost') return ENOBUFS;
    const reply = replies.find((each) => each.type === NLMSG_ERROR);
    return reply === undefined ? EIO : -reply.payload.getInt32(0, true);
  }

  /**
   * Sends a dump request, and returns the payloads of the messages with type `answer`. If the kernel's state
   * changes during the dump, tries up to `DUMP_TRIES` times. Throws `KernelFailure` if the kernel refuses the
   * request, or if the dump is incomplete.
   */
  dump(request: number, answer: number, payload: Uint8Array): DataView[] {
    const doing = `dump by netlink message ${request}`;
    let messages = this.#dumped(request, payload);
    for (let tries = 1; tries < DUMP_TRIES && isInterrupted(messages); tries++)
      messages = this.#dumped(request, payload);
    if (messages === 'lost') throw new KernelFailure(doing, ENOBUFS);
    const refused = messages.find(({ type }) => type === NLMSG_ERROR);
    if (refused !== undefined) throw new KernelFailure(doing, -refused.payload.getInt32(0, true));
    if (isInterrupted(messages)) throw new KernelFailure(doing, EINTR);
    if (messages.at(-1)?.type !== NLMSG_DONE) throw new KernelFailure(doing, EIO);
    return messages.filter(({ type }) => type === answer).map((message) => message.payload);
  }

  /**
   * Sends a dump request, and returns only the messages in the first datagram of the dump. Close the socket
   * afterwards, because the socket still receives the rest of the dump.
   */
  beginDump(request: number, answer: number, payload: Uint8Array): DataView[] {
    this.send(request, NLM_F_REQUEST | NLM_F_DUMP, payload);
    const length = check('receive from netlink', libc.recv(this.fd, this.#buffer, DATAGRAM_BYTES, MSG_DONTWAIT));
    const messages = messagesIn(this.#buffer.slice(0, length));
    return messages.filter(({ type }) => type === answer).map((message) => message.payload);
  }

  #dumped(request: number, payload: Uint8Array): NetlinkMessage[] | 'lost' {
    this.send(request, NLM_F_REQUEST | NLM_F_DUMP, payload);
    return this.receive();
  }

  /**
   * Returns all messages that wait in the socket; 'lost' if the kernel has dropped messages because the
   * socket buffer was full.
   */
  receive(): NetlinkMessage[] | 'lost' {
    const messages: NetlinkMessage[] = [];
    let lost = false;
    for (;;) {
      const length = libc.recv(this.fd, this.#buffer, DATAGRAM_BYTES, MSG_DONTWAIT);
      if (length >= 0) {
        append(messages, messagesIn(this.#buffer.slice(0, length)));
        continue;
      }
      const error = errno();
      if (error === EAGAIN) return lost ? 'lost' : messages;
      if (error !== ENOBUFS) throw new KernelFailure('receive messages of the kernel from a netlink socket', error);
      lost = true;
    }
  }

  close(): void {
    libc.close(this.fd);
  }
}

/** Returns whether the kernel's state changed during the dump, so that the dump may be inconsistent. */
function isInterrupted(messages: readonly NetlinkMessage[] | 'lost'): boolean {
  return messages !== 'lost' && messages.some(({ flags }) => (flags & NLM_F_DUMP_INTR) !== 0);
}

function messagesIn(datagram: Uint8Array): NetlinkMessage[] {
  const view = new DataView(datagram.buffer, datagram.byteOffset, datagram.byteLength);
  const messages: NetlinkMessage[] = [];
  for (let at = 0; at + HEADER_BYTES <= datagram.length; ) {
    const length = view.getUint32(at, true);
    if (length < HEADER_BYTES || at + length > datagram.length) break;
    const payload = new DataView(datagram.buffer, datagram.byteOffset + at + HEADER_BYTES, length - HEADER_BYTES);
    messages.push({ type: view.getUint16(at + 4, true), flags: view.getUint16(at + 6, true), payload });
    at += aligned(length);
  }
  return messages;
}

/** Returns the attributes of a payload from byte `offset` on. The key is the attribute type. */
export function attributesIn(payload: DataView, offset: number): Map<number, Uint8Array> {
  return new Map(attributeList(payload, offset));
}

/** Like `attributesIn`, but in order. The list can contain several attributes of one type. */
export function attributeList(payload: DataView, offset: number): (readonly [type: number, value: Uint8Array])[] {
  const found: [number, Uint8Array][] = [];
  for (let at = offset; at + 4 <= payload.byteLength; ) {
    const length = payload.getUint16(at, true);
    if (length < 4 || at + length > payload.byteLength) break;
    // Clear the two upper bits of the attribute type, because they are flags.
    const type = payload.getUint16(at + 2, true) & 0x3fff;
    found.push([type, new Uint8Array(payload.buffer, payload.byteOffset + at + 4, length - 4)]);
    at += aligned(length);
  }
  return found;
}

/** Encodes a netlink attribute. With several parts, the attribute is nested. */
export function attribute(type: number, ...parts: readonly Uint8Array[]): Buffer {
  const value = Buffer.concat(parts);
  const bytes = Buffer.alloc(4 + aligned(value.length));
  bytes.writeUInt16LE(4 + value.length, 0);
  bytes.writeUInt16LE(parts.length > 1 ? type | NLA_F_NESTED : type, 2);
  bytes.set(value, 4);
  return bytes;
}

export function viewOf({ buffer, byteOffset, byteLength }: Uint8Array): DataView {
  return new DataView(buffer, byteOffset, byteLength);
}

function aligned(length: number): number {
  return (length + 3) & ~3;
}
