import { constants } from 'node:os';
import { dirname, join } from 'node:path';
import type { Packet } from '#contracts/policy/policy-model.js';
import { closeFd } from '#dataplane/loader/bpf-fd.js';
import { builtObject } from '#dataplane/loader/bpf-object.js';
import { libbpf } from '#libc/bpf/libbpf.js';
import { TestRun } from '#libc/bpf/test-run.js';
import { check } from '#libc/libc.js';
import { addressOf } from '#libc/library.js';
import { MappedMemory } from '#libc/mapped-memory.js';
import { PASSED, SKB } from '#test/dataplane/loaded.js';

const objectPath = join(dirname(builtObject), 'frames.bpf.o');
const FRAME_BYTES = 60;
const IPV6_FRAME_BYTES = 62;
const TUPLE_WORDS = 4;
const PLAN_BYTES = 64;
/** Offsets of fields in `struct plan`, in 32-bit words. */
const PLAN = {
  nodeMac: 0,
  ownMac: 2,
  tuples: 4,
  next: 5,
  round: 6,
  newPorts: 7,
  reversed: 8,
  protocol: 9,
  made: 10,
  received: 12,
};
const ATTACH = { xdp: 37, tcx_ingress: 46 } as const;
const LIVE_FRAMES = 1 << 1;
// Size of struct bpf_test_run_opts and offsets of its fields, in bytes.
const RUN = {
  size: 80,
  dataIn: 8,
  dataSizeIn: 24,
  contextIn: 32,
  contextSizeIn: 48,
  repeat: 60,
  duration: 64,
  flags: 68,
  batch: 76,
};
// Size of struct xdp_md and offsets of its fields, in bytes.
const CONTEXT = { size: 24, dataEnd: 4, ingressIfindex: 12 };

export type FramesProgram =
  | 'inject'
  | 'stop'
  | 'sink_server'
  | 'sink_client'
  | 'empty'
  | 'one_line'
  | 'replay'
  | 'mark';

/** Addresses and ports of a flow. The source is the side that opens the flow. */
export type FiveTuple = Pick<Packet<number>, 'source' | 'destination' | 'sourcePort' | 'destinationPort'>;

export type Stream = {
  readonly fromMac: string;
  readonly toMac: string;
  /** The index of the interface that sends the frames, in the network namespace of the calling thread. */
  readonly ifindex: number;
  readonly protocol: number;
  readonly tcpFlags?: number;
  readonly reversed?: boolean;
  /** If true, the frames are UDP packets of IPv6, with the addresses of `ipv6Prefix`. */
  readonly ipv6?: boolean;
  /**
   * If true, each round over the five-tuples uses a source port that no earlier round used, so that each
   * frame opens a new flow.
   */
  readonly newPorts?: boolean;
};

const BATCH = 64;
const { EINTR } = constants.errno;

/** The BPF programs that generate frames in the kernel and count the frames at their destination. */
export class Frames {
  readonly #object: bigint;
  readonly #tuples: MappedMemory;
  readonly #plan: MappedMemory;
  readonly #capacity: number;

  constructor(capacity: number) {
    const object = libbpf().bpf_object__open_file(objectPath, new Uint8Array(new BigUint64Array([8n]).buffer));
    if (object === null) throw new Error(`${objectPath} cannot be opened`);
    this.#object = object;
    this.#capacity = capacity;
    check('size tuples', libbpf().bpf_map__set_max_entries(this.#map('tuples'), capacity));
    check('load frames', libbpf().bpf_object__load(object));
    this.#tuples = new MappedMemory('tuples', libbpf().bpf_map__fd(this.#map('tuples')), capacity * TUPLE_WORDS * 4);
    this.#plan = new MappedMemory('plans', libbpf().bpf_map__fd(this.#map('plans')), PLAN_BYTES);
  }

  use(flows: readonly FiveTuple[]): void {
    if (flows.length > this.#capacity)
      throw new RangeError(`${flows.length} flows do not fit into a map of ${this.#capacity} entries`);
    const view = new DataView(this.#tuples.words.buffer);
    for (const [index, flow] of flows.entries()) {
      const at = index * TUPLE_WORDS * 4;
      view.setUint32(at, flow.source);
      view.setUint32(at + 4, flow.destination);
      view.setUint16(at + 8, flow.sourcePort);
      view.setUint16(at + 10, flow.destinationPort);
    }
    const { words } = this.#plan;
    words[PLAN.tuples] = flows.length;
    this.rewind();
  }

  rewind(): void {
    const { words } = this.#plan;
    words[PLAN.next] = 0;
    words[PLAN.round] = 0;
  }

  /** Generates `count` frames, which the interface of `stream` sends. Returns nanoseconds per frame. */
  send(stream: Stream, count: number): number {
    const { words } = this.#plan;
    const bytes = new Uint8Array(words.buffer);
    bytes.set(macBytes(stream.toMac), PLAN.nodeMac * 4);
    bytes.set(macBytes(stream.fromMac), PLAN.ownMac * 4);
    words[PLAN.newPorts] = stream.newPorts === true ? 1 : 0;
    words[PLAN.reversed] = stream.reversed === true ? 1 : 0;
    words[PLAN.protocol] = stream.protocol | ((stream.tcpFlags ?? 0) << 8) | (stream.ipv6 === true ? 1 << 16 : 0);

    const frame = new Uint8Array(stream.ipv6 === true ? IPV6_FRAME_BYTES : FRAME_BYTES);
    const context = new Uint8Array(CONTEXT.size);
    const contextView = new DataView(context.buffer);
    contextView.setUint32(CONTEXT.dataEnd, frame.length, true);
    contextView.setUint32(CONTEXT.ingressIfindex, stream.ifindex, true);
    const options = new Uint8Array(RUN.size);
    const view = new DataView(options.buffer);
    view.setBigUint64(0, BigInt(RUN.size), true);
    view.setBigUint64(RUN.dataIn, addressOf(frame), true);
    view.setUint32(RUN.dataSizeIn, frame.length, true);
    view.setBigUint64(RUN.contextIn, addressOf(context), true);
    view.setUint32(RUN.contextSizeIn, CONTEXT.size, true);
    view.setUint32(RUN.flags, LIVE_FRAMES, true);
    view.setUint32(RUN.batch, BATCH, true);
    const program = this.programFd('inject');
    words[PLAN.made] = 0;
    while (count > (words[PLAN.made] ?? 0)) {
      view.setUint32(RUN.repeat, count - (words[PLAN.made] ?? 0), true);
      const result = libbpf().bpf_prog_test_run_opts(program, options);
      // Continue after EINTR: a signal ends a run between two batches of frames.
      if (result !== -EINTR) check('send frames', result);
    }
    return view.getUint32(RUN.duration, true);
  }

  /**
   * Runs the BPF program `programFd` on `count` UDP packets without a pause between the packets. For the
   * program, the packets arrive at interface `ifindex` of the calling thread's network namespace. Returns
   * nanoseconds per packet. Throws if the last packet does not pass.
   */
  replay(programFd: number, ifindex: number, count: number): number {
    const slot = libbpf().bpf_map__fd(this.#map('replayed'));
    const fd = new Uint8Array(Uint32Array.of(programFd).buffer);
    check('name what is replayed', libbpf().bpf_map_update_elem(slot, new Uint8Array(4), fd, 0));
    const frame = new Uint8Array(FRAME_BYTES);
    const frameView = new DataView(frame.buffer);
    frameView.setUint16(12, 0x0800);
    frameView.setUint32(14, 0x4500_0000 + FRAME_BYTES - 14);
    frameView.setUint16(22, (64 << 8) | 17);
    frameView.setUint16(38, FRAME_BYTES - 34);
    const context = new Uint8Array(SKB.size);
    new DataView(context.buffer).setUint32(SKB.ifindex, ifindex, true);
    const run = new TestRun(this.programFd('replay'), frame, context, undefined);
    if (run.run(FRAME_BYTES, count) !== PASSED) throw new Error('the BPF program dropped the last packet of a replay');
    return run.durationNs;
  }

  /** Returns the number of frames that reached a sink since the last call of `resetReceived`. */
  received(sink: 'server' | 'client'): number {
    const words = this.#plan.words;
    const at = PLAN.received + (sink === 'server' ? 0 : 2);
    return (words[at] ?? 0) + (words[at + 1] ?? 0) * 2 ** 32;
  }

  resetReceived(): void {
    this.#plan.words.fill(0, PLAN.received, PLAN.received + 4);
  }

  /**
   * Attaches a BPF program to an interface in the network namespace of the calling thread. Returns a function
   * that detaches the program.
   */
  attach(name: FramesProgram, hook: keyof typeof ATTACH, ifindex: number): () => void {
    const made = libbpf().bpf_link_create(this.programFd(name), ifindex, ATTACH[hook], null);
    const link = check(`attach ${name} to interface ${ifindex}`, made);
    return () => {
      check(`detach ${name}`, libbpf().bpf_link_detach(link));
      closeFd(link);
    };
  }

  programFd(name: FramesProgram): number {
    const program = libbpf().bpf_object__find_program_by_name(this.#object, name);
    if (program === null) throw new Error(`${objectPath} has no program ${name}`);
    return libbpf().bpf_program__fd(program);
  }

  close(): void {
    this.#tuples.unmap();
    this.#plan.unmap();
    libbpf().bpf_object__close(this.#object);
  }

  #map(name: string): bigint {
    const map = libbpf().bpf_object__find_map_by_name(this.#object, name);
    if (map === null) throw new Error(`${objectPath} has no map ${name}`);
    return map;
  }
}

function macBytes(mac: string): number[] {
  return mac.split(':').map((byte) => Number.parseInt(byte, 16));
}
