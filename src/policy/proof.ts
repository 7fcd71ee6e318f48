import { formatAddress } from './ipv4.js';
import { IPPROTO, type Packet, PORT_PROTOCOLS, type Policy, type Verdict } from './model.js';
import { VERDICT_NUMBER } from './program.js';

/** Packets, each with the word that the reference evaluator decides it by: what a compiled policy is checked with (B5). */
export type ProofSample = {
  /** `PACKET_CELLS` cells a packet; see `packetAt`. */
  readonly packets: Uint32Array;
  /** The word of each packet. */
  readonly expected: Uint32Array;
  /** Equivalence classes of the policy; null where there are too many to count. */
  readonly classes: number | null;
  /** Whether a packet of every class is among them. */
  readonly complete: boolean;
  /** JSON of what ranks are called: per group its id, the ids of its rules in their order, and whether it has a default. */
  readonly names: string;
};

/** What was checked before a program came into force. */
export type Proof = {
  readonly classes: number | null;
  /** Packets that were judged by the datapath, and as the policy says. */
  readonly checked: number;
  readonly complete: boolean;
};

/** A packet that the datapath judges otherwise than the policy says. Both are words of a program. */
export type ProofMismatch = { readonly packet: Packet; readonly expected: number; readonly found: number };

export const PACKET_CELLS = 4;

export function packetAt({ packets }: ProofSample, index: number): Packet {
  const cell = (at: number): number => packets[index * PACKET_CELLS + at] ?? 0;
  const ports = cell(2);
  const kind = cell(3);
  return {
    source: cell(0),
    destination: cell(1),
    sourcePort: ports >>> 16,
    destinationPort: ports & 0xffff,
    protocol: kind >>> 16,
    icmpType: (kind >>> 8) & 255,
    icmpCode: kind & 255,
  };
}

/** The names of a policy's ranks, as `ProofSample.names` holds them. */
export function namesOf({ groups }: Policy): string {
  return JSON.stringify(
    groups.map(({ id, rules, defaultAction }) => [id, rules.map((rule) => rule.id), defaultAction !== undefined]),
  );
}

/** What to tell the operator: the packet, what the policy says about it, and what the datapath does. */
export function mismatchSentence({ packet, expected, found }: ProofMismatch, names: string): string {
  return `${packetText(packet)}: the policy says ${decisionText(expected, names)}, and the compiled tables say ${decisionText(found, names)}`;
}

function packetText({ source, destination, protocol, ...packet }: Packet): string {
  const from = formatAddress(source);
  const to = formatAddress(destination);
  if (protocol === IPPROTO.icmp) {
    return `ICMP type ${packet.icmpType} code ${packet.icmpCode} from ${from} to ${to}`;
  }
  const name = protocol === IPPROTO.tcp ? 'TCP' : protocol === IPPROTO.udp ? 'UDP' : `protocol ${protocol}`;
  if (!PORT_PROTOCOLS.includes(protocol)) return `${name} from ${from} to ${to}`;
  return `${name} from ${from}:${packet.sourcePort} to ${to}:${packet.destinationPort}`;
}

function decisionText(word: number, names: string): string {
  const verdict = (Object.keys(VERDICT_NUMBER) as Verdict[]).find((name) => VERDICT_NUMBER[name] === (word & 7));
  return verdict === undefined ? 'nothing that is a verdict' : `${verdict} by ${placeText(word >>> 4, names)}`;
}

function placeText(rank: number, names: string): string {
  let left = rank;
  for (const [group, rules, hasDefault] of JSON.parse(names) as [string, string[], boolean][]) {
    if (left < rules.length) return `rule ${rules[left]} of group ${group}`;
    if (hasDefault && left === rules.length) return `the default action of group ${group}`;
    left -= rules.length + (hasDefault ? 1 : 0);
  }
  return left === 0 ? 'the default policy' : `a rank that the policy does not have (${rank})`;
}
