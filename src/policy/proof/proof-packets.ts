import { IPPROTO, type Packet } from '#contracts/policy-model.js';
import { PACKET_CELLS, packetAt } from '#contracts/proof-types.js';
import { GrowingWords } from '#policy/model/growing-words.js';
import { hasPorts } from './proof-axes.js';
import type { ReferenceWalk } from './proof-walk.js';
import type { SourceRanges } from './source-ranges.js';

type Fields = { -readonly [K in keyof Packet]: Packet[K] };

/** So much looking is enough for one sample, however the policy is made: some 100 ms. */
const MAX_STEPS = 1 << 24;

/** Packets that were judged, in runs one after the other. */
export type JudgedPackets = {
  readonly packets: Uint32Array;
  readonly expected: Uint32Array;
  /** What it took to judge each. */
  readonly steps: Uint32Array;
  /** Run → its first packet; behind the last, how many packets there are. */
  readonly runs: Uint32Array;
};

/**
 * What packets of another policy are judged by in this one: those from `sources` must be judged again, of the others
 * words from `behind` on are greater by `by`.
 */
export type Renewal = { readonly sources: SourceRanges; readonly behind: number; readonly by: number };

/** Collects packets and judges each by the reference. */
export class ProofPackets {
  readonly #packets: GrowingWords;
  readonly #expected: GrowingWords;
  readonly #steps: GrowingWords;
  readonly #runs = new GrowingWords();
  #total = 0;
  readonly #packet: Fields = {
    source: 0,
    destination: 0,
    protocol: 0,
    sourcePort: 0,
    destinationPort: 0,
    icmpType: 0,
    icmpCode: 0,
  };

  /** With room for `expected` packets; there may be more. */
  constructor(
    readonly walk: ReferenceWalk,
    expected = 1 << 12,
  ) {
    this.#packets = new GrowingWords(expected * PACKET_CELLS);
    this.#expected = new GrowingWords(expected);
    this.#steps = new GrowingWords(expected);
  }

  get count(): number {
    return this.#expected.length;
  }

  /** Whether the policy takes so long to judge by that what was collected must do. */
  get exhausted(): boolean {
    return this.#total > MAX_STEPS;
  }

  beginRun(): void {
    this.#runs.push(this.count);
  }

  /** `major` and `minor` are destination and source port, or ICMP type and code; nothing where the protocol has neither. */
  add(source: number, destination: number, protocol: number, major: number, minor: number): void {
    const packet = this.#packet;
    const ports = hasPorts(protocol);
    const icmp = protocol === IPPROTO.icmp;
    packet.source = source;
    packet.destination = destination;
    packet.protocol = protocol;
    packet.destinationPort = ports ? major : 0;
    packet.sourcePort = ports ? minor : 0;
    packet.icmpType = icmp ? major & 255 : 0;
    packet.icmpCode = icmp ? minor & 255 : 0;
    this.#packets.push(source);
    this.#packets.push(destination);
    this.#packets.push(packet.sourcePort * 0x1_0000 + packet.destinationPort);
    this.#packets.push((protocol << 16) | (packet.icmpType << 8) | packet.icmpCode);
    const place = this.count;
    this.#expected.push(0);
    this.#steps.push(0);
    this.#judge(packet, place);
  }

  /** Adds the runs `from` … `to` of other packets, the end excluded. */
  keepRuns(kept: JudgedPackets, from: number, to: number, renewal: Renewal): void {
    const by = this.count - (kept.runs[from] ?? 0);
    for (let run = from; run < to; run++) this.#runs.push((kept.runs[run] ?? 0) + by);
    this.keep(kept, kept.runs[from] ?? 0, kept.runs[to] ?? 0, renewal);
  }

  /** Adds other packets from `from` to `to`, the end excluded. */
  keep(kept: JudgedPackets, from: number, to: number, renewal: Renewal): void {
    const { packets, expected, steps } = kept;
    const { behind, by, sources } = renewal;
    const moved = this.count - from;
    this.#packets.append(packets, from * PACKET_CELLS, to * PACKET_CELLS);
    this.#expected.append(expected, from, to);
    this.#steps.append(steps, from, to);
    const words = this.#expected.array;
    for (let index = from; index < to; index++) {
      if (sources.holds(packets[index * PACKET_CELLS] as number)) {
        if (this.exhausted) return;
        this.#judge(packetAt(kept, index), moved + index);
        continue;
      }
      const word = expected[index] as number;
      if (word >= behind) words[moved + index] = word + by;
      this.#total += steps[index] as number;
    }
  }

  judged(): JudgedPackets {
    this.beginRun();
    return {
      packets: this.#packets.trimmed(),
      expected: this.#expected.trimmed(),
      steps: this.#steps.trimmed(),
      runs: this.#runs.trimmed(),
    };
  }

  #judge(packet: Packet, place: number): void {
    const before = this.walk.steps;
    this.#expected.array[place] = this.walk.wordOf(packet);
    const steps = this.walk.steps - before;
    this.#steps.array[place] = steps;
    this.#total += steps;
  }
}
