import type { MessagePort } from 'node:worker_threads';
import type { FlowState } from './datapath-numbers.js';
import type { EventSource } from './event-source.js';
import type { Arrival } from './explain-facts.js';
import type { Prefix, Range } from './policy-model.js';
import type { PolicyRecord } from './policy-record.js';
import type { Program } from './program.js';
import type { Proof, ProofMismatch, ProofSample } from './proof-types.js';
import type { Decider } from './rule-names.js';
import type { SpliceOffload } from './splice-offload.js';

/**
 * The operations that the dataplane part needs of the kernel. They are implemented in a worker thread of
 * `src/dataplane`.
 */
export type Datapath = {
  /** Features that this kernel or this user lacks; empty if none is missing. Attaches nothing. */
  probe(): Promise<readonly Missing[]>;
  /** Loads the programs. Adopts pinned maps and links of the same layout if they exist (D20). */
  open(): Promise<Adoption>;
  /** Attaches to every interface that matches the configuration, and creates the guard (D20a). Idempotent. */
  attach(): Promise<readonly Attachment[]>;
  /** Faults that prevent policing as configured, and warnings. A change is reported as `review_changed`. */
  review(): Promise<Review>;
  /** Fills the idle slot. Throws `CapacityExceeded` before anything changed. */
  stage(program: Program, generation: number): Promise<Staged>;
  /**
   * Classifies the packets of a sample by the staged slot. Throws `ProofFailed` if a verdict differs from the
   * expected one; then nothing is staged any more.
   */
  prove(sample: ProofSample): Promise<Proof>;
  /**
   * Puts the staged slot in force by one store. Resolves after the store; the grace period continues in the
   * background.
   */
  flip(): Promise<{ readonly epoch: number }>;
  /** Discards the staged slot. */
  unstage(): Promise<void>;
  /**
   * Grants addresses for patterns (D12). The grants are in force when this resolves, in a staged program too.
   * Returns the number of addresses that were refused because the table was full. Skips a pattern that no
   * program has.
   */
  grant(grants: readonly Grant[]): Promise<{ readonly refused: number }>;
  revoke(grants: readonly Pick<Grant, 'pattern' | 'addresses'>[]): Promise<void>;
  /**
   * A port by which another thread requests and looks up grants (`#contracts/grant-messages.js`), without a
   * detour through this thread. It closes when the datapath does.
   */
  grantPort(): Promise<MessagePort>;
  /**
   * The maps in which the service plane leaves connections that it has decided. They are valid while the
   * datapath is open.
   */
  spliceOffload(): Promise<SpliceOffload>;
  /**
   * The grants now. After a restart the text of a pattern is known only if a program with that pattern was
   * staged since.
   */
  learned(): Promise<readonly Learned[]>;
  /** The interfaces where packets of a source arrive, by the routes of the node. */
  arrival(source: number): Promise<Arrival>;
  stats(): Promise<DatapathStats>;
  /**
   * Hits of the policy in force until now, in the order of its rules; null before this process put a policy
   * in force.
   */
  hits(query: HitQuery): Promise<HitReport | null>;
  /** Live flows in the order of their keys. Flows that open or end do not change this order. */
  flows(query: FlowQuery): Promise<FlowPage>;
  /**
   * Ends flows, so that their next packets are classified like the first packet of a flow. Returns the number
   * of flows ended.
   */
  cutFlows(filter: FlowFilter): Promise<number>;
  /**
   * Calls the listener on every change: an interface appeared or vanished, a link or the guard was lost, or
   * the way of forwarding changed.
   */
  watch(listener: (change: DatapathChange) => void): () => void;
  /**
   * Gives the event source of the open datapath, and of each one opened later, to the last caller, which may
   * send the source to another thread. While no thread reads the events, the ring fills up and the kernel
   * counts the lost ones.
   */
  takeEvents(taker: (source: EventSource) => void): void;
  /**
   * Selects the events that the kernel sends (D34); none at first. The selection survives a datapath that
   * dies and is opened again. Resolves when the kernel has the setting, or at once if no datapath is open.
   */
  setEventsWanted(wanted: EventsWanted): Promise<void>;
  /** Closes all descriptors. Pinned programs continue to enforce. */
  close(): Promise<void>;
};

/**
 * `packets`: events of single packets, and of flows that pass under audit. `flows`: the opening and the end
 * of each flow.
 */
export type EventsWanted = { readonly packets: boolean; readonly flows: boolean };
export const ALL_EVENTS: EventsWanted = { packets: true, flows: true };
export const NO_EVENTS: EventsWanted = { packets: false, flows: false };

/** A missing feature, and the sentence that the operator reads. */
export type Missing = { readonly what: string; readonly sentence: string };

export type Adoption = {
  readonly adopted: boolean;
  /**
   * Generation and SHA-256 (hex) of the image in force; null if nothing was adopted or the adopted datapath
   * was never activated.
   */
  readonly inForce: { readonly generation: number; readonly imageSha256: string } | null;
};
export type Attachment = {
  readonly interface: string;
  readonly ifindex: number;
  readonly by: 'tcx' | 'clsact';
};
/** Sentences, each with the name of an interface or a chain. */
export type Review = {
  /** Reasons why traffic of a policed interface is not policed as D17 demands. */
  readonly faults: readonly string[];
  readonly warnings: readonly string[];
};
export type Staged = { readonly lines: number; readonly capacityLines: number };

/** A grant extends an earlier grant of the same address and never shortens it. */
export type Grant = {
  /** The text of a `HostnamePattern`. */
  readonly pattern: string;
  readonly addresses: readonly number[];
  /** On the monotonic clock of `process.hrtime.bigint()`; rounded down to an eighth of a second. */
  readonly expiresAtNs: bigint;
};
export type Learned = {
  readonly pattern: string;
  readonly addresses: Uint32Array;
  /** The expiry of each address. */
  readonly expiresAtNs: BigUint64Array;
};

export type DatapathChange =
  | { readonly type: 'interface_appeared' | 'interface_vanished' | 'link_lost'; readonly interface: string }
  /**
   * Interfaces are policed by name: if no pattern matches the new name, the interface is not policed any
   * more.
   */
  | {
      readonly type: 'interface_renamed';
      readonly interface: string;
      readonly to: string;
      /** Whether the new name matches the configuration. */
      readonly policed: boolean;
    }
  | { readonly type: 'guard_lost' }
  /**
   * Pins of maps or programs were removed or replaced. Without them the next process does not find the policy
   * in force.
   */
  | { readonly type: 'pins_lost'; readonly pins: readonly string[] }
  /** The result of `review` changed. */
  | { readonly type: 'review_changed' }
  /** Diverted lookups reach no listener until the program is attached again. */
  | { readonly type: 'diversion_lost' }
  /**
   * No descriptor is free: interfaces, guard and third-party hooks are not checked until the fault is null
   * again.
   */
  | { readonly type: 'look_changed'; readonly fault: string | null }
  /**
   * The reasons why the flow table refuses new flows; empty if it refuses none. Nothing is attached again.
   */
  | { readonly type: 'refusals_changed'; readonly refusing: readonly FlowRefusal[] }
  /** For information only: no reaction is necessary. */
  | ({ readonly type: 'forwarding_changed' } & ForwardingNow)
  | { readonly type: 'worker_died'; readonly reason: string };

/** The drop reasons of flows that were refused for lack of room. */
export const FLOW_REFUSALS = ['flow_table_full', 'flow_share'] as const;
export type FlowRefusal = (typeof FLOW_REFUSALS)[number];

/** How allowed packets are forwarded now, and why. */
export type ForwardingNow = { readonly way: 'stack' | 'direct'; readonly reason: string };

export type Counter = { readonly packets: bigint; readonly bytes: bigint };
export type DatapathStats = {
  readonly generation: number;
  readonly activeFlows: number;
  /** Other flows, whose first packet has no reply yet. */
  readonly halfOpenFlows: number;
  /** The last sweep of the flow tables. */
  readonly sweep: { readonly agoMs: number; readonly tookMs: number };
  readonly verdicts: { readonly allow: Counter; readonly deny: Counter; readonly audit: Counter };
  /**
   * Packets of inspected connections: handed to the service plane, and forwarded after the service plane
   * released the connection.
   */
  readonly inspected: { readonly handed: Counter; readonly joined: Counter };
  /** Keyed by the name of the drop reason (`drop_reason` in `bpf/weir.h`). */
  readonly drops: Readonly<Record<string, Counter>>;
  /**
   * Packets passed by `dataplane.non_ipv4`: forwarded IPv6, and frames that are neither IP nor ARP. No policy
   * classifies them.
   */
  readonly nonIpv4Passed: Counter;
  readonly flowsOpened: bigint;
  readonly flowsClosed: bigint;
  /** The reasons why flows were refused in the last seconds. */
  readonly refusing: readonly FlowRefusal[];
  readonly forwarding: ForwardingNow;
  /** Whether packets that open a flow use a copy of the routes instead of the route lookup of the kernel. */
  readonly routesCopied: boolean;
  /** Addresses that were not granted for lack of room since this process started. */
  readonly grantsRefused: number;
  /**
   * `lost`: events not sent because the ring was full. `suppressed`: events not sent because the source had
   * used its share.
   */
  readonly events: { readonly sent: bigint; readonly lost: bigint; readonly suppressed: bigint };
  readonly maps: Readonly<Record<string, { readonly entries: number; readonly capacity: number }>>;
};

export type HitQuery = {
  /** Ids; empty for any. */
  readonly groups: readonly string[];
  readonly rules: readonly string[];
  readonly unused: boolean | undefined;
  /** The position where an earlier report stopped, else 0. */
  readonly from: number;
  readonly limit: number;
};
export type HitReport = {
  readonly policy: Pick<PolicyRecord, 'id' | 'revision'> | null;
  readonly generation: number;
  /** When this node began to count. */
  readonly sinceMs: number;
  readonly items: readonly Hit[];
  readonly next: number | null;
};
/** Times are in milliseconds since 1970. */
export type Hit = {
  readonly decider: Decider;
  readonly packets: bigint;
  readonly bytes: bigint;
  /** Null if it was never hit. */
  readonly lastMs: number | null;
  /** The time since which it has had no hit; null if it was hit. */
  readonly unusedSinceMs: number | null;
};

/** A flow must match one element of every list. An empty list matches every flow. */
export type FlowFilter = {
  readonly sources: readonly Prefix[];
  readonly destinations: readonly Prefix[];
  /** Ports of either side. */
  readonly ports: readonly Range[];
  readonly sourcePorts: readonly Range[];
  readonly destinationPorts: readonly Range[];
  readonly protocols: readonly number[];
  readonly groups: readonly string[];
  readonly rules: readonly string[];
  readonly verdicts: readonly FlowVerdict[];
  readonly states: readonly FlowState[];
  readonly foreign: boolean | undefined;
  readonly current: boolean | undefined;
  /** The sum of both directions. */
  readonly minBytes: number;
};
export type FlowVerdict = 'allow' | 'audit' | 'redirect';
export type FlowQuery = {
  readonly filter: FlowFilter;
  /** The key after which to continue, from an earlier page. */
  readonly after: Uint8Array | null;
  readonly limit: number;
};
export type FlowPage = {
  /** The number of matching flows on all pages. */
  readonly matched: number;
  readonly items: readonly LiveFlow[];
  readonly next: Uint8Array | null;
};
/**
 * The source is the side that opened the flow, and is the first element of pairs. Addresses are in host
 * order, times in milliseconds since 1970.
 */
export type LiveFlow = {
  readonly source: number;
  readonly destination: number;
  readonly protocol: number;
  /** Null if the protocol has no ports. */
  readonly ports: readonly [number, number] | null;
  readonly icmpId: number | null;
  readonly state: FlowState;
  /** Null for a foreign flow, which no policy decided. */
  readonly verdict: FlowVerdict | null;
  /**
   * The rule or default that decided the flow; null if none did, or if the names of that policy are no longer
   * known.
   */
  readonly decider: Decider | null;
  readonly foreign: boolean;
  /** The generation of the policy that decided the flow; null if an earlier process put it in force. */
  readonly generation: number | null;
  /** Whether that policy is in force. */
  readonly current: boolean;
  readonly packets: readonly [bigint, bigint];
  readonly bytes: readonly [bigint, bigint];
  readonly openedMs: number;
  readonly lastSeenMs: number;
  readonly expiresInMs: number;
  /**
   * The interfaces where packets of each side arrive; null before the first packet, or if the interface is
   * not policed.
   */
  readonly interfaces: readonly [string | null, string | null];
};

/** A limit of the dataplane would be exceeded (D7). */
export class CapacityExceeded extends Error {
  readonly code = 'capacity_exceeded';
  constructor(
    readonly table: string,
    readonly need: number,
    readonly limit: number,
  ) {
    super(`the policy needs ${need} entries of ${table}, and the limit is ${limit}`);
  }
}

/** The staged program decides a packet differently from the policy (B5). */
export class ProofFailed extends Error {
  readonly code = 'proof_failed';
  constructor(readonly mismatch: ProofMismatch) {
    super('the compiled tables do not judge a packet as the policy says');
  }
}
