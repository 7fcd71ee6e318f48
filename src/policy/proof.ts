import { formatAddress } from './ipv4.js';
import { IPPROTO, type Packet, PORT_PROTOCOLS, type Verdict } from './model.js';
import { VERDICT_NUMBER } from './program.js';
import { deciderAt, type Roster } from './roster.js';

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
};

/** A sample, or what becomes one while its program is staged. */
export type Sampling = ProofSample | Promise<ProofSample>;

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

export function packetAt({ packets }: Pick<ProofSample, 'packets'>, index: number): Packet {
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

/** What to tell the operator: the packet, what the policy says about it, and what the datapath does. */
export function mismatchSentence({ packet, expected, found }: ProofMismatch, roster: Roster): string {
  return `${packetText(packet)}: the policy says ${decisionText(expected, roster)}, and the compiled tables say ${decisionText(found, roster)}`;
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

function decisionText(word: number, roster: Roster): string {
  const verdict = (Object.keys(VERDICT_NUMBER) as Verdict[]).find((name) => VERDICT_NUMBER[name] === (word & 7));
  return verdict === undefined ? 'nothing that is a verdict' : `${verdict} by ${placeText(word >>> 4, roster)}`;
}

function placeText(rank: number, roster: Roster): string {
  if (rank >= roster.groups.length) return `a rank that the policy does not have (${rank})`;
  const decider = deciderAt(roster, rank);
  switch (decider.kind) {
    case 'rule':
      return `rule ${decider.rule} of group ${decider.group}`;
    case 'group_default':
      return `the default action of group ${decider.group}`;
    case 'policy_default':
      return 'the default policy';
  }
}
