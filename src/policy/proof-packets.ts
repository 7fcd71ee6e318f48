import { Cells } from './cells.js';
import { IPPROTO, type Packet, type Policy } from './model.js';
import { namesOf, type ProofSample } from './proof.js';
import { hasPorts } from './proof-axes.js';
import { ReferenceWalk } from './proof-walk.js';

type Fields = { -readonly [K in keyof Packet]: Packet[K] };

/** So much looking is enough for one sample, however the policy is made: some 100 ms. */
const MAX_STEPS = 1 << 24;

/** Collects packets and judges each by the reference. */
export class ProofPackets {
  readonly walk: ReferenceWalk;
  readonly #packets = new Cells(1 << 14);
  readonly #expected = new Cells(1 << 12);
  readonly #packet: Fields = {
    source: 0,
    destination: 0,
    protocol: 0,
    sourcePort: 0,
    destinationPort: 0,
    icmpType: 0,
    icmpCode: 0,
  };

  constructor(readonly policy: Policy) {
    this.walk = new ReferenceWalk(policy);
  }

  get count(): number {
    return this.#expected.length;
  }

  /** Whether the policy takes so long to judge by that what was collected must do. */
  get exhausted(): boolean {
    return this.walk.steps > MAX_STEPS;
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
    this.#expected.push(this.walk.wordOf(packet));
  }

  sample(classes: number | null): ProofSample {
    return {
      packets: this.#packets.trimmed(),
      expected: this.#expected.trimmed(),
      classes,
      complete: classes !== null && !this.exhausted,
      names: namesOf(this.policy),
    };
  }
}
