import { familyOf } from '#addresses/ip-address.js';
import { u32At } from '#arrays/read.js';
import { wordsOf } from '#contracts/policy/address-words.js';
import type { Address } from '#contracts/policy/policy-model.js';
import { KernelFailure } from '#libc/kernel-failure.js';
import { errno, libc } from '#libc/libc.js';
import { memoryAt } from '#libc/library.js';
import { addressInSockaddr, writeSockaddr } from '#sockets/socket-options.js';

/** The maximum number of datagrams in one call of `recvmmsg` or `sendmmsg`. */
export const BATCH = 64;
/** The maximum size of a received or sent datagram, in bytes. */
export const SLOT_BYTES = 4_096;

const PROT_READ_WRITE = 3;
const MAP_PRIVATE_ANONYMOUS = 0x22;
const MAP_FAILED = 0xffff_ffff_ffff_ffffn;

/**
 * The sizes of struct mmsghdr, the buffer for a sockaddr_in or sockaddr_in6, iovec and the buffer for control
 * messages on 64-bit machines, in bytes.
 */
const HEADER = 64;
const NAME = 32;
const VECTOR = 16;
const CONTROL = 64;
/** The positions of four fields of struct mmsghdr, counted in 32-bit words. */
const NAME_LENGTH = 2;
const CONTROL_LENGTH = 10;
const FLAGS = 12;
const LENGTH = 14;
const MSG_TRUNC = 0x20;
/**
 * A control message has a header of 16 bytes (length, level and type), and then data. The data is a
 * sockaddr_in for IP_ORIGDSTADDR, and a sockaddr_in6 for IPV6_ORIGDSTADDR.
 */
const CONTROL_HEADER = 16;
const IP_ORIGDSTADDR = 20;
const IPV6_ORIGDSTADDR = 74;
const SOCKADDR_IN = 16;
/**
 * The control messages IP_PKTINFO and IPV6_PKTINFO: level and type, the size of their data (an in_pktinfo or
 * in6_pktinfo), the offset of the source address there, and the size of the message with its padding.
 */
const PKTINFO = {
  ipv4: { level: 0, type: 8, bytes: 12, addressAt: 4, space: 32 },
  ipv6: { level: 41, type: 50, bytes: 20, addressAt: 0, space: 40 },
} as const;

/**
 * Buffers for the datagrams of one call of `recvmmsg` or `sendmmsg`. The buffers are outside of V8's heap:
 * the structs contain the addresses of the buffers, and V8 may move an object on its heap.
 */
export class BatchMemory {
  readonly headers: bigint;
  readonly #bytes: number;
  readonly #words: Uint32Array;
  readonly #names: DataView;
  readonly #vectors: Uint32Array;
  readonly #controls: DataView;
  readonly #data: Uint8Array;

  constructor() {
    const data = BATCH * (HEADER + NAME + VECTOR + CONTROL);
    this.#bytes = data + BATCH * SLOT_BYTES;
    this.headers = libc.mmap(null, this.#bytes, PROT_READ_WRITE, MAP_PRIVATE_ANONYMOUS, -1, 0);
    if (this.headers === MAP_FAILED) throw new KernelFailure('map memory for datagrams', errno());
    const memory = memoryAt(this.headers, this.#bytes);
    const names = BATCH * HEADER;
    const vectors = names + BATCH * NAME;
    this.#words = new Uint32Array(memory, 0, (BATCH * HEADER) / 4);
    this.#names = new DataView(memory, names, BATCH * NAME);
    this.#vectors = new Uint32Array(memory, vectors, (BATCH * VECTOR) / 4);
    const controls = vectors + BATCH * VECTOR;
    this.#controls = new DataView(memory, controls, BATCH * CONTROL);
    this.#data = new Uint8Array(memory, data);
    const longs = new BigUint64Array(memory, 0, data / 8);
    for (let slot = 0; slot < BATCH; slot++) {
      const header = (slot * HEADER) / 8;
      longs[header] = this.headers + BigInt(names + slot * NAME);
      longs[header + 2] = this.headers + BigInt(vectors + slot * VECTOR);
      longs[header + 3] = 1n;
      longs[header + 4] = this.headers + BigInt(controls + slot * CONTROL);
      longs[(vectors + slot * VECTOR) / 8] = this.headers + BigInt(data + slot * SLOT_BYTES);
    }
    this.readyToReceive(BATCH);
  }

  /** Prepares the first `count` buffers to receive datagrams from any sender, of up to `SLOT_BYTES` each. */
  readyToReceive(count: number): void {
    for (let slot = 0; slot < count; slot++) {
      this.#words[(slot * HEADER) / 4 + NAME_LENGTH] = NAME;
      this.#words[(slot * HEADER) / 4 + CONTROL_LENGTH] = CONTROL;
      this.#vectors[(slot * VECTOR) / 4 + 2] = SLOT_BYTES;
    }
  }

  /**
   * Returns the datagram that the kernel has received into buffer `slot`; null if the datagram was longer
   * than the buffer. The bytes are valid until the next use of the buffer.
   */
  received(slot: number): Uint8Array | null {
    const header = (slot * HEADER) / 4;
    if ((u32At(this.#words, header + FLAGS) & MSG_TRUNC) !== 0) return null;
    const start = slot * SLOT_BYTES;
    return this.#data.subarray(start, start + u32At(this.#words, header + LENGTH));
  }

  /** Returns the address of the sender of the datagram in buffer `slot`, in host byte order. */
  address(slot: number): Address {
    return addressInSockaddr(this.#names, slot * NAME);
  }

  port(slot: number): number {
    return this.#names.getUint16(slot * NAME + 2);
  }

  /**
   * Returns the destination address of the datagram in buffer `slot`, in host byte order. Returns 0 if the
   * socket does not have the option IP_RECVORIGDSTADDR or IPV6_RECVORIGDSTADDR.
   */
  destination(slot: number): Address {
    const at = slot * CONTROL;
    const length = u32At(this.#words, (slot * HEADER) / 4 + CONTROL_LENGTH);
    const type = this.#controls.getInt32(at + 12, true);
    if (length < CONTROL_HEADER + SOCKADDR_IN || (type !== IP_ORIGDSTADDR && type !== IPV6_ORIGDSTADDR)) return 0;
    return addressInSockaddr(this.#controls, at + CONTROL_HEADER);
  }

  /**
   * Writes a datagram to buffer `slot`, to be sent by `sendmmsg`. With `port` 0, the kernel sends the
   * datagram to the connected peer. With `from` 0, the kernel uses the socket's own source address.
   */
  toSend(slot: number, bytes: Uint8Array, address: Address, port: number, from: Address): void {
    this.#data.set(bytes, slot * SLOT_BYTES);
    this.#vectors[(slot * VECTOR) / 4 + 2] = bytes.length;
    const nameBytes = writeSockaddr(this.#names, slot * NAME, address, port);
    this.#words[(slot * HEADER) / 4 + NAME_LENGTH] = port === 0 ? 0 : nameBytes;
    this.#words[(slot * HEADER) / 4 + CONTROL_LENGTH] = from === 0 ? 0 : this.#sendFrom(slot * CONTROL, from);
  }

  /** Writes the control message with a source address at byte `at`, and returns its size. */
  #sendFrom(at: number, from: Address): number {
    const { level, type, bytes, addressAt, space } = PKTINFO[familyOf(from)];
    const data = at + CONTROL_HEADER;
    this.#controls.setBigUint64(at, BigInt(CONTROL_HEADER + bytes), true);
    this.#controls.setInt32(at + 8, level, true);
    this.#controls.setInt32(at + 12, type, true);
    for (let word = 0; word < bytes; word += 4) this.#controls.setUint32(data + word, 0);
    for (const [index, word] of wordsOf(from).entries()) this.#controls.setUint32(data + addressAt + 4 * index, word);
    return space;
  }

  /** Unmaps the buffers. The caller must not use the buffers afterwards. */
  free(): void {
    libc.munmap(this.headers, this.#bytes);
  }
}
