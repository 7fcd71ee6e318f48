import { GrowingUint32Array } from '#arrays/growing-uint32-array.js';
import { u32At } from '#arrays/read.js';

import { wordsOf } from '#contracts/policy/address-words.js';
import { type Address, type Family, ICMP, type Packet } from '#contracts/policy/policy-model.js';
import { NO_OWNER_CELL, OWNER_CELL, PACKET_CELLS, packetAt, sourceAt } from '#contracts/policy/proof-types.js';
import { hasPorts } from './proof-axes.js';
import type { ProofOwners } from './proof-owners.js';
import type { ReferenceWalk } from './proof-walk.js';
import type { SourceRanges } from './source-ranges.js';

type Fields = { -readonly [K in keyof Packet]: Packet[K] };

/** The work limit of one proof sample in steps of `ReferenceWalk`. This work takes about 100 ms. */
const MAX_STEPS = 1 << 24;

/**
 * Proof packets, and in `expected` the verdict word of the reference evaluator for each packet. A run is a
 * sequence of packets that belong to one group.
 */
export type DecidedPackets = {
  readonly packets: Uint32Array;
  readonly expected: Uint32Array;
  /**
   * For each packet, the number of rules that the reference evaluator (`ReferenceWalk`) examined for its
   * decision.
   */
  readonly steps: Uint32Array;
  /**
   * Maps a run (the packets of one group) to the index of its first packet. The last element is the number of
   * packets.
   */
  readonly runs: Uint32Array;
};

/**
 * How to reuse the decisions of packets from an earlier policy. Packets from `sources` must be decided again.
 * For all other packets, the position of the deciding rule changes: a verdict word that is at least `behind`
 * increases by `by`.
 */
export type Renewal = { readonly sources: SourceRanges; readonly behind: number; readonly by: number };

/**
 * Collects packets that check a compiled policy (proof), and decides each packet by the reference evaluator.
 */
export class ProofPackets {
  readonly #packets: GrowingUint32Array;
  readonly #expected: GrowingUint32Array;
  readonly #steps: GrowingUint32Array;
  readonly #runs = new GrowingUint32Array();
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

  /** `expected` is the number of packets to reserve memory for. The sample may contain more packets. */
  constructor(
    readonly walk: ReferenceWalk,
    expected = 1 << 12,
    private readonly owners?: ProofOwners,
    readonly family: Family = 'ipv4',
  ) {
    this.#packets = new GrowingUint32Array(expected * PACKET_CELLS[family]);
    this.#expected = new GrowingUint32Array(expected);
    this.#steps = new GrowingUint32Array(expected);
  }

  get count(): number {
    return this.#expected.length;
  }

  /**
   * Whether the decisions of the packets have exceeded the work limit. Then the caller must add no more
   * packets.
   */
  get exhausted(): boolean {
    return this.#total > MAX_STEPS;
  }

  beginRun(): void {
    this.#runs.push(this.count);
  }

  /**
   * Adds a packet and decides it. `major` and `minor` are destination and source port, or ICMP type and code.
   * They have no effect for other protocols. `owner`: the number that stands for the owner (Kubernetes
   * object) of the source.
   */
  add(
    source: Address,
    destination: Address,
    protocol: number,
    major: number,
    minor: number,
    owner = NO_OWNER_CELL,
  ): void {
    const packet = this.#packet;
    const ports = hasPorts(protocol);
    const icmp = protocol === ICMP[this.family];
    packet.source = source;
    packet.destination = destination;
    packet.protocol = protocol;
    packet.destinationPort = ports ? major : 0;
    packet.sourcePort = ports ? minor : 0;
    packet.icmpType = icmp ? major & 255 : 0;
    packet.icmpCode = icmp ? minor & 255 : 0;
    this.#pushAddress(source);
    this.#pushAddress(destination);
    this.#packets.push(packet.sourcePort * 0x1_0000 + packet.destinationPort);
    this.#packets.push((protocol << 16) | (packet.icmpType << 8) | packet.icmpCode);
    this.#packets.push(owner);
    const place = this.count;
    this.#expected.push(0);
    this.#steps.push(0);
    this.#evaluate(packet, place, owner);
  }

  /**
   * Copies the runs with indexes `from` … `to` - 1 from an earlier sample. A run contains the packets of one
   * group.
   */
  keepRuns(kept: DecidedPackets, from: number, to: number, renewal: Renewal): void {
    const by = this.count - u32At(kept.runs, from);
    for (let run = from; run < to; run++) this.#runs.push(u32At(kept.runs, run) + by);
    this.keep(kept, u32At(kept.runs, from), u32At(kept.runs, to), renewal);
  }

  /**
   * Copies the packets with indexes `from` … `to` - 1 from an earlier sample. Decides the packets from
   * `renewal.sources` again, and corrects the ranks (positions in the policy) in the decisions of all other
   * packets.
   */
  keep(kept: DecidedPackets, from: number, to: number, renewal: Renewal): void {
    const { packets, expected, steps } = kept;
    const { behind, by, sources } = renewal;
    const moved = this.count - from;
    const cells = PACKET_CELLS[this.family];
    this.#packets.append(packets, from * cells, to * cells);
    this.#expected.append(expected, from, to);
    this.#steps.append(steps, from, to);
    const words = this.#expected.array;
    for (let index = from; index < to; index++) {
      const sample = { family: this.family, packets };
      if (sources.holds(sourceAt(sample, index))) {
        if (this.exhausted) return;
        const owner = u32At(packets, index * cells + OWNER_CELL[this.family]);
        this.#evaluate(packetAt(sample, index), moved + index, owner);
        continue;
      }
      const word = u32At(expected, index);
      if (word >= behind) words[moved + index] = word + by;
      this.#total += u32At(steps, index);
    }
  }

  decided(): DecidedPackets {
    this.beginRun();
    return {
      packets: this.#packets.trimmed(),
      expected: this.#expected.trimmed(),
      steps: this.#steps.trimmed(),
      runs: this.#runs.trimmed(),
    };
  }

  #pushAddress(address: Address): void {
    if (typeof address === 'number') this.#packets.push(address);
    else for (const word of wordsOf(address)) this.#packets.push(word);
  }

  #evaluate(packet: Packet, place: number, owner: number): void {
    const before = this.walk.steps;
    this.#expected.array[place] = this.walk.wordOf(packet, this.owners?.ownerOf(owner));
    const steps = this.walk.steps - before;
    this.#steps.array[place] = steps;
    this.#total += steps;
  }
}
