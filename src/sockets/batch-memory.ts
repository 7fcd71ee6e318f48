import { KernelFailure } from '#libc/kernel-failure.js';
import { errno, libc } from '#libc/libc.js';
import { memoryAt } from '#libc/library.js';

/** The limit of datagrams of one system call. */
export const BATCH = 64;
/** The limit of bytes of one datagram. */
export const SLOT_BYTES = 4_096;

const PROT_READ_WRITE = 3;
const MAP_PRIVATE_ANONYMOUS = 0x22;
const MAP_FAILED = 0xffff_ffff_ffff_ffffn;

/** Sizes of struct mmsghdr, sockaddr_in, iovec and the control messages on 64-bit machines. */
const HEADER = 64;
const NAME = 16;
const VECTOR = 16;
const CONTROL = 64;
/** Indices of 32-bit words in struct mmsghdr. */
const NAME_LENGTH = 2;
const CONTROL_LENGTH = 10;
const FLAGS = 12;
const LENGTH = 14;
const MSG_TRUNC = 0x20;
/**
 * Control messages: a length, a level and a type, then the sockaddr_in of IP_ORIGDSTADDR or the in_pktinfo of
 * IP_PKTINFO.
 */
const CONTROL_HEADER = 16;
const IP_ORIGDSTADDR = 20;
const IP_PKTINFO = 8;
const PKTINFO = 12;
const PKTINFO_SPACE = 32;
const AF_INET = 2;

/**
 * Buffers for the datagrams of one `recvmmsg` or `sendmmsg`. They are outside of V8's heap, because the
 * kernel is given their addresses once, and V8 may move objects.
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

  /** Prepares the first `count` slots to receive datagrams of any size and sender. */
  readyToReceive(count: number): void {
    for (let slot = 0; slot < count; slot++) {
      this.#words[(slot * HEADER) / 4 + NAME_LENGTH] = NAME;
      this.#words[(slot * HEADER) / 4 + CONTROL_LENGTH] = CONTROL;
      this.#vectors[(slot * VECTOR) / 4 + 2] = SLOT_BYTES;
    }
  }

  /** The received bytes, valid until the slot is used again; null if the datagram was longer than a slot. */
  received(slot: number): Uint8Array | null {
    const header = (slot * HEADER) / 4;
    if (((this.#words[header + FLAGS] ?? 0) & MSG_TRUNC) !== 0) return null;
    const start = slot * SLOT_BYTES;
    return this.#data.subarray(start, start + (this.#words[header + LENGTH] ?? 0));
  }

  /** The sender's address, in host byte order. */
  address(slot: number): number {
    return this.#names.getUint32(slot * NAME + 4);
  }

  port(slot: number): number {
    return this.#names.getUint16(slot * NAME + 2);
  }

  /** The destination of the datagram; 0 if the socket does not receive destinations. */
  destination(slot: number): number {
    const at = slot * CONTROL;
    const length = this.#words[(slot * HEADER) / 4 + CONTROL_LENGTH] ?? 0;
    if (length < CONTROL_HEADER + NAME || this.#controls.getInt32(at + 12, true) !== IP_ORIGDSTADDR) return 0;
    return this.#controls.getUint32(at + CONTROL_HEADER + 4);
  }

  /** Fills a slot. Port 0: send to the connected peer. `from` 0: send from the socket's own address. */
  toSend(slot: number, bytes: Uint8Array, address: number, port: number, from: number): void {
    this.#data.set(bytes, slot * SLOT_BYTES);
    this.#vectors[(slot * VECTOR) / 4 + 2] = bytes.length;
    this.#words[(slot * HEADER) / 4 + NAME_LENGTH] = port === 0 ? 0 : NAME;
    this.#names.setUint16(slot * NAME, AF_INET, true);
    this.#names.setUint16(slot * NAME + 2, port);
    this.#names.setUint32(slot * NAME + 4, address);
    this.#words[(slot * HEADER) / 4 + CONTROL_LENGTH] = from === 0 ? 0 : PKTINFO_SPACE;
    if (from !== 0) this.#sendFrom(slot * CONTROL, from);
  }

  #sendFrom(at: number, from: number): void {
    this.#controls.setBigUint64(at, BigInt(CONTROL_HEADER + PKTINFO), true);
    this.#controls.setInt32(at + 8, 0, true);
    this.#controls.setInt32(at + 12, IP_PKTINFO, true);
    this.#controls.setInt32(at + CONTROL_HEADER, 0, true);
    this.#controls.setUint32(at + CONTROL_HEADER + 4, from);
    this.#controls.setUint32(at + CONTROL_HEADER + 8, 0);
  }

  /** Unmaps the buffers; nothing may use them afterwards. */
  free(): void {
    libc.munmap(this.headers, this.#bytes);
  }
}
