import { u32At } from '#arrays/read.js';
import type { PassedObject } from '#contracts/datapath/bpf-object-handle.js';
import type { SpliceOffload } from '#contracts/datapath/splice-offload.js';
import type { Ends } from '#contracts/policy/policy-model.js';
import { libbpf } from '#libc/bpf/libbpf.js';
import { takeObject } from '#libc/bpf/object-handle.js';
import { TestRun } from '#libc/bpf/test-run.js';
import type { Descriptors } from '#libc/descriptors.js';
import { check, libc } from '#libc/libc.js';
import { HOLD_RESULT, SPLICE_ENTRY, SPLICE_ENTRY_BYTES, SPLICE_KEY, SPLICE_KEY_BYTES } from './layout.js';
import { segmentBytes, TCP_FLAGS } from './tcp-segment.js';

const ETHERNET_BYTES = 14;
const ETHERNET_IPV4 = 0x0800;
const BPF_NOEXIST = 1;
const BPF_EXIST = 2;

/**
 * The state of one direction of a spliced connection, with the field names of `struct join`. `joiner` is the
 * number of the offloader.
 */
export type Entry = { readonly [K in keyof typeof SPLICE_ENTRY]: number };

/**
 * The datapath's BPF map of spliced connections, and the BPF program `weir_join`. The constructor throws if
 * the datapath has closed its BPF objects.
 */
export class SpliceTable {
  readonly #fds: number[] = [];
  readonly #program: number;
  readonly #connections: number;
  readonly #offloaders: number;

  /**
   * `held` records the opened descriptors, so that another thread can close them if the calling thread ends
   * unexpectedly.
   */
  constructor(
    point: Pick<SpliceOffload, 'program' | 'spliceMap' | 'offloaderMap'>,
    private readonly held?: Descriptors,
  ) {
    try {
      this.#program = this.#take('open the splice program', point.program);
      this.#connections = this.#take('open the map of spliced connections', point.spliceMap);
      this.#offloaders = this.#take('open the map of splice offloaders', point.offloaderMap);
    } catch (failure) {
      this.close();
      throw failure;
    }
  }

  /**
   * Permits the datapath to forward the connections of the offloader with this number until `untilNs`, in
   * nanoseconds of the monotonic clock. After this time the datapath resets these connections.
   */
  renew(offloader: number, untilNs: bigint): void {
    const until = new Uint8Array(BigUint64Array.of(untilNs).buffer);
    const key = new Uint8Array(Uint32Array.of(offloader).buffer);
    check('renew the spliced connections', libbpf().bpf_map_update_elem(this.#offloaders, key, until, BPF_EXIST));
  }

  /**
   * Adds a BPF map entry for the direction `ends`. Returns false if the entry exists already, or if the map
   * is full.
   */
  add(ends: Ends<number>, entry: Pick<Entry, 'state' | 'joiner' | 'id' | 'window_shift'>): boolean {
    const value = new Uint8Array(SPLICE_ENTRY_BYTES);
    const view = new DataView(value.buffer);
    for (const name of ['state', 'joiner', 'id', 'window_shift'] as const)
      view.setInt32(SPLICE_ENTRY[name], entry[name], true);
    return libbpf().bpf_map_update_elem(this.#connections, keyOf(ends), value, BPF_NOEXIST) >= 0;
  }

  /**
   * Returns the BPF map entry of the direction `ends`. Returns null if there is no entry, or if the entry has
   * another offloader or `id`.
   */
  find(ends: Ends<number>, offloader: number, id: number): Entry | null {
    const value = new Uint8Array(SPLICE_ENTRY_BYTES);
    if (libbpf().bpf_map_lookup_elem(this.#connections, keyOf(ends), value) < 0) return null;
    const entry = entryIn(value);
    return entry.joiner === offloader && entry.id === id ? entry : null;
  }

  /**
   * Sets the state of a BPF map entry. Call this only while the datapath lets no packet of the connection
   * pass, because this function writes all fields of the entry. Returns false if there is no entry, or if the
   * kernel has no memory.
   */
  setState(ends: Ends<number>, state: number): boolean {
    const value = new Uint8Array(SPLICE_ENTRY_BYTES);
    if (libbpf().bpf_map_lookup_elem(this.#connections, keyOf(ends), value) < 0) return false;
    new DataView(value.buffer).setUint32(SPLICE_ENTRY.state, state, true);
    return libbpf().bpf_map_update_elem(this.#connections, keyOf(ends), value, BPF_EXIST) >= 0;
  }

  remove(ends: Ends<number>): void {
    libbpf().bpf_map_delete_elem(this.#connections, keyOf(ends));
  }

  /**
   * Removes the BPF map entry of the direction `ends`, and returns its last value; null if there is no entry.
   * After the removal, the datapath forwards no packet by this entry.
   */
  take(ends: Ends<number>): Entry | null {
    const value = new Uint8Array(SPLICE_ENTRY_BYTES);
    return libbpf().bpf_map_lookup_and_delete_elem(this.#connections, keyOf(ends), value) < 0 ? null : entryIn(value);
  }

  /**
   * Returns the key and the value of each BPF map entry whose offloader passes `isTheirs`. A connection has
   * two entries, one for each direction.
   */
  allOf(isTheirs: (offloader: number) => boolean): readonly (readonly [Ends<number>, Entry])[] {
    const key = new Uint8Array(SPLICE_KEY_BYTES);
    const value = new Uint8Array(SPLICE_ENTRY_BYTES);
    const found: (readonly [Ends<number>, Entry])[] = [];
    for (
      let from: Uint8Array | null = null;
      libbpf().bpf_map_get_next_key(this.#connections, from, key) >= 0;
      from = key
    ) {
      if (libbpf().bpf_map_lookup_elem(this.#connections, key, value) < 0) continue;
      const entry = entryIn(value);
      if (isTheirs(entry.joiner)) found.push([endsIn(key), entry]);
    }
    return found;
  }

  /**
   * Runs the BPF program `weir_join`. The program stops the packets of both directions if the two sockets of
   * the node have no data in transit. `ends` are the addresses and ports of packets from the client. Returns
   * a value of `HOLD_RESULT`.
   */
  hold(ends: Ends<number>): number {
    const packet = segmentBytes({ ...ends, sequence: 0, acknowledgment: 0, flags: TCP_FLAGS.ack, window: 0 });
    const frame = new Uint8Array(ETHERNET_BYTES + packet.length);
    new DataView(frame.buffer).setUint16(ETHERNET_BYTES - 2, ETHERNET_IPV4);
    frame.set(packet, ETHERNET_BYTES);
    try {
      return new TestRun(this.#program, frame, undefined, undefined).run();
    } catch {
      // The kernel did not run the BPF program, for example because it had no memory. So the program has
      // stopped no packets.
      return HOLD_RESULT.gone;
    }
  }

  close(): void {
    for (const fd of this.#fds) {
      this.held?.release(fd);
      libc.close(fd);
    }
  }

  #take(doing: string, passed: PassedObject): number {
    const fd = takeObject(doing, passed);
    this.#fds.push(fd);
    this.held?.hold(fd);
    return fd;
  }
}

function keyOf({ source, destination, sourcePort, destinationPort }: Ends<number>): Uint8Array {
  const key = new Uint8Array(SPLICE_KEY_BYTES);
  const view = new DataView(key.buffer);
  view.setUint32(SPLICE_KEY.source, source, true);
  view.setUint32(SPLICE_KEY.destination, destination, true);
  view.setUint16(SPLICE_KEY.source_port, sourcePort, true);
  view.setUint16(SPLICE_KEY.destination_port, destinationPort, true);
  return key;
}

function endsIn(key: Uint8Array): Ends<number> {
  const view = new DataView(key.buffer);
  return {
    source: view.getUint32(SPLICE_KEY.source, true),
    destination: view.getUint32(SPLICE_KEY.destination, true),
    sourcePort: view.getUint16(SPLICE_KEY.source_port, true),
    destinationPort: view.getUint16(SPLICE_KEY.destination_port, true),
  };
}

function entryIn(value: Uint8Array): Entry {
  const words = new Uint32Array(value.buffer);
  const word = (name: keyof typeof SPLICE_ENTRY): number => u32At(words, SPLICE_ENTRY[name] / 4);
  return {
    state: word('state'),
    joiner: word('joiner'),
    id: word('id'),
    sequence: word('sequence'),
    acknowledgment: word('acknowledgment'),
    time: word('time'),
    echo: word('echo'),
    window_shift: word('window_shift'),
    ends: word('ends'),
    ifindex: word('ifindex'),
    hop: word('hop'),
    next: word('next'),
    acknowledged: word('acknowledged'),
    window: word('window'),
    stamp: word('stamp'),
    last_seen: word('last_seen'),
  };
}
