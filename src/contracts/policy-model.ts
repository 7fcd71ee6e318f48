import type { TlsMatchConfig } from './policy-document.js';

/**
 * The policy as it is judged: defaults filled in, words lower-cased, addresses as numbers, groups and rules in
 * the order of their walk (D3). Addresses are unsigned 32-bit numbers in host order: 10.0.0.1 is 0x0a000001.
 */
export type Action = 'allow' | 'deny';
export type Mode = 'audit' | 'enforce';

/** What was decided for a packet. `audit` is a deny that passes and is recorded (D4). */
export type Verdict = 'allow' | 'deny' | 'audit' | 'redirect';

export type Prefix = { readonly address: number; readonly length: number };
/** Both ends are included. */
export type Range = { readonly low: number; readonly high: number };

export type HostnamePattern =
  | { readonly kind: 'exact'; readonly labels: readonly string[]; readonly text: string }
  /** `*.example.com`: one or more labels before `labels`. */
  | { readonly kind: 'suffix'; readonly labels: readonly string[]; readonly text: string }
  | { readonly kind: 'any'; readonly text: '*' }
  | { readonly kind: 'regex'; readonly text: string };

export type Rule = {
  readonly id: string;
  /** JSON pointer of the rule in its group, so that a rule is the same wherever its group stands. */
  readonly pointer: string;
  readonly action: Action;
  /** The effective mode: its own, else its group's. */
  readonly mode: Mode;
  /** Union of `dst_cidrs` and `dst_ips`; empty means any destination. */
  readonly destinations: readonly Prefix[];
  readonly hostname: HostnamePattern | undefined;
  readonly protocol: number | 'any';
  /** Empty means any; a rule with ports matches only protocols that have ports (D2). */
  readonly sourcePorts: readonly Range[];
  readonly destinationPorts: readonly Range[];
  /** After the injection of D14; empty means any. Tested each on its own. */
  readonly icmpTypes: readonly number[];
  readonly icmpCodes: readonly number[];
  /** A TLS rule matches TCP only and is judged by the service plane (D22). */
  readonly tls: TlsMatchConfig | undefined;
};

export type Group = {
  readonly id: string;
  /** JSON pointer of the group in the document. */
  readonly pointer: string;
  readonly mode: Mode;
  /** Static sources. */
  readonly sources: readonly Prefix[];
  /** Whether it has selectors. None was ever resolved: for other sources its denies match and its allows do not (D19a). */
  readonly dynamic: boolean;
  /** In the order of their walk. */
  readonly rules: readonly Rule[];
  readonly defaultAction: Action | undefined;
};

export type Policy = {
  /** In the order of their walk. */
  readonly groups: readonly Group[];
  readonly default: {
    readonly action: Action;
    readonly mode: Mode;
    readonly from: 'default_policy' | 'fallback';
  };
};

/** Ports are 0 where the protocol has none; type and code are 0 unless the protocol is ICMP. */
export type Packet = {
  readonly source: number;
  readonly destination: number;
  readonly protocol: number;
  readonly sourcePort: number;
  readonly destinationPort: number;
  readonly icmpType: number;
  readonly icmpCode: number;
};

/** Addresses that were learned for a hostname pattern (D12). The key of a pattern is its `text`. */
export type Grants = { has(pattern: HostnamePattern, address: number): boolean };
export const noGrants: Grants = { has: () => false };

export const IPPROTO = { icmp: 1, tcp: 6, udp: 17, dccp: 33, sctp: 132, udplite: 136 } as const;

/** Protocols whose header begins with two ports (D2). */
export const PORT_PROTOCOLS: readonly number[] = [
  IPPROTO.tcp,
  IPPROTO.udp,
  IPPROTO.dccp,
  IPPROTO.sctp,
  IPPROTO.udplite,
];
