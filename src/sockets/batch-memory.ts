import { KernelFailure } from '#libc/kernel-failure.js';
import { errno, libc } from '#libc/libc.js';
import { memoryAt } from '#libc/library.js';

/** Datagrams of one system call. */
export const BATCH = 64;
/** Of one datagram. */
export const SLOT_BYTES = 4_096;

const PROT_READ_WRITE = 3;
const MAP_PRIVATE_ANONYMOUS = 0x22;
const MAP_FAILED = 0xffff_ffff_ffff_ffffn;

/** Bytes of struct mmsghdr, of sockaddr_in, of iovec and of control messages, on machines of 64 bits. */
const HEADER = 64;
const NAME = 16;
const VECTOR = 16;
const CONTROL = 64;
/** Words of struct mmsghdr. */
const NAME_LENGTH = 2;
const CONTROL_LENGTH = 10;
const FLAGS = 12;
const LENGTH = 14;
const MSG_TRUNC = 0x20;
/** Of the control messages: a length, a level and a type, and then IP_ORIGDSTADDR's sockaddr_in or IP_PKTINFO's in_pktinfo. */
const CONTROL_HEADER = 16;
const IP_ORIGDSTADDR = 20;
const IP_PKTINFO = 8;
const PKTINFO = 12;
const PKTINFO_SPACE = 32;
const AF_INET = 2;

/**
 * Room for the datagrams of one `recvmmsg` or `sendmmsg`. Outside of V8's heap, because the kernel is given the addresses
 * once and for all.
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
    if (this.headers === MAP_FAILED) throw new KernelFailure('get memory for datagrams', errno());
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

  /** The first `count` slots take datagrams of any size, from anybody. */
  readyToReceive(count: number): void {
    for (let slot = 0; slot < count; slot++) {
      this.#words[(slot * HEADER) / 4 + NAME_LENGTH] = NAME;
      this.#words[(slot * HEADER) / 4 + CONTROL_LENGTH] = CONTROL;
      this.#vectors[(slot * VECTOR) / 4 + 2] = SLOT_BYTES;
    }
  }

  /** What came, as long as the slot is not used again; null where it was longer than a slot. */
  received(slot: number): Uint8Array | null {
    const header = (slot * HEADER) / 4;
    if (((this.#words[header + FLAGS] ?? 0) & MSG_TRUNC) !== 0) return null;
    const start = slot * SLOT_BYTES;
    return this.#data.subarray(start, start + (this.#words[header + LENGTH] ?? 0));
  }

  /** Who sent it, in host byte order. */
  address(slot: number): number {
    return this.#names.getUint32(slot * NAME + 4);
  }

  port(slot: number): number {
    return this.#names.getUint16(slot * NAME + 2);
  }

  /** Whom it was for; 0 where the socket does not ask for that. */
  destination(slot: number): number {
    const at = slot * CONTROL;
    const length = this.#words[(slot * HEADER) / 4 + CONTROL_LENGTH] ?? 0;
    if (length < CONTROL_HEADER + NAME || this.#controls.getInt32(at + 12, true) !== IP_ORIGDSTADDR) return 0;
    return this.#controls.getUint32(at + CONTROL_HEADER + 4);
  }

  /** Port 0: to whom the socket is connected. `from` 0: from the socket's own address. */
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

  /** Nobody may use it any more. */
  free(): void {
    libc.munmap(this.headers, this.#bytes);
  }
}
