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
 * The kernel operations that the dataplane part calls. A worker thread of `src/dataplane` implements them.
 */
export type Datapath = {
  /**
   * Returns the features that this kernel or the user of this process lacks; an empty list if all features
   * are present. Attaches no BPF program.
   */
  probe(): Promise<readonly Missing[]>;
  /** Loads the BPF programs. Adopts pinned maps and links of the same layout if they exist (D20). */
  open(): Promise<Adoption>;
  /**
   * Attaches the BPF programs to every interface that matches the configuration, and creates the guard
   * (D20a). A repeated call has no further effect.
   */
  attach(): Promise<readonly Attachment[]>;
  /**
   * Returns the faults that prevent the configured policing, and warnings. The change `review_changed`
   * reports a different result.
   */
  review(): Promise<Review>;
  /**
   * Writes a compiled policy to the idle slot. Throws `CapacityExceeded` before any byte is written if the
   * policy is too large.
   */
  stage(program: Program, generation: number): Promise<Staged>;
  /**
   * Classifies the packets of a sample with the program in the staged slot. If a verdict differs from the
   * expected verdict, discards the staged slot and throws `ProofFailed`.
   */
  prove(sample: ProofSample): Promise<Proof>;
  /**
   * Puts the staged slot in force by one store to the `active` map. Resolves after the store; the RCU grace
   * period continues in the background.
   */
  flip(): Promise<{ readonly epoch: number }>;
  /** Discards the program in the staged slot. */
  unstage(): Promise<void>;
  /**
   * Grants addresses for patterns (D12). When the promise resolves, the grants are in force, also for a
   * staged program. Returns the number of addresses that were refused because the grant table was full.
   * Ignores a pattern that no program contains.
   */
  grant(grants: readonly Grant[]): Promise<{ readonly refused: number }>;
  revoke(grants: readonly Pick<Grant, 'pattern' | 'addresses'>[]): Promise<void>;
  /**
   * Returns a port by which another thread requests and looks up grants directly in the datapath thread.
   * `#contracts/grant-messages.js` defines the messages. The port closes when the datapath closes.
   */
  grantPort(): Promise<MessagePort>;
  /**
   * Returns the BPF maps in which the service plane registers connections for the splicing offload. The maps
   * are valid while the datapath is open.
   */
  spliceOffload(): Promise<SpliceOffload>;
  /**
   * Returns the present grants. After a restart, a grant is omitted until a program that contains its pattern
   * is staged, because the kernel does not store the pattern text.
   */
  learned(): Promise<readonly Learned[]>;
  /** Returns the interfaces on which packets from `source` arrive, according to the routes of the node. */
  arrival(source: number): Promise<Arrival>;
  stats(): Promise<DatapathStats>;
  /**
   * Returns the hits of the policy in force, in the order of its rules. Returns null until this process has
   * put a policy in force.
   */
  hits(query: HitQuery): Promise<HitReport | null>;
  /**
   * Returns live flows in the order of their keys. A flow that opens or ends during the query does not change
   * this order.
   */
  flows(query: FlowQuery): Promise<FlowPage>;
  /**
   * Ends flows. The datapath then classifies the next packet of an ended flow like the first packet of a new
   * flow. Returns the number of ended flows.
   */
  cutFlows(filter: FlowFilter): Promise<number>;
  /**
   * Calls the listener on every change: an interface appeared or vanished, a link or the guard was lost, or
   * the forwarding mode changed.
   */
  watch(listener: (change: DatapathChange) => void): () => void;
  /**
   * Passes the event source of each opened datapath to the callback of the latest call. The callback may send
   * the source to another thread. While no thread reads the events, the ring buffer fills up and the kernel
   * counts the lost events.
   */
  takeEvents(taker: (source: EventSource) => void): void;
  /**
   * Selects the events that the kernel sends; initially the kernel sends no event (D34). The selection also
   * applies to a datapath that is opened later. Resolves when the kernel has the selection, or immediately if
   * no datapath is open.
   */
  setEventsWanted(wanted: EventsWanted): Promise<void>;
  /** Closes all file descriptors of the datapath. Pinned BPF programs continue to enforce the policy. */
  close(): Promise<void>;
};

/**
 * `packets`: the kernel reports single packets, and flows that pass under audit. `flows`: the kernel reports
 * the opening and the end of each flow.
 */
export type EventsWanted = { readonly packets: boolean; readonly flows: boolean };
export const NO_EVENTS: EventsWanted = { packets: false, flows: false };

/**
 * A feature that the kernel or the user of this process lacks, and a sentence about the feature for the
 * operator.
 */
export type Missing = { readonly what: string; readonly sentence: string };

export type Adoption = {
  readonly adopted: boolean;
  /**
   * Generation and SHA-256 (hex) of the program in force. Null if no datapath was adopted, or if the adopted
   * datapath never had a program in force.
   */
  readonly inForce: { readonly generation: number; readonly imageSha256: string } | null;
};
export type Attachment = {
  readonly interface: string;
  readonly ifindex: number;
  readonly by: 'tcx' | 'clsact';
};
/**
 * Faults and warnings are sentences for the operator. Each sentence names an interface or an nftables chain.
 */
export type Review = {
  /** Reasons why Weir does not police all traffic of an interface that it should police (D17). */
  readonly faults: readonly string[];
  readonly warnings: readonly string[];
};
export type Staged = { readonly lines: number; readonly capacityLines: number };

/** Addresses to grant for a pattern. If an address already has a grant, the later expiry applies. */
export type Grant = {
  /** The text of a `HostnamePattern`, such as `*.example.com`. */
  readonly pattern: string;
  readonly addresses: readonly number[];
  /**
   * The expiry in nanoseconds on the monotonic clock of `process.hrtime.bigint()`. The datapath rounds the
   * expiry down to an eighth of a second.
   */
  readonly expiresAtNs: bigint;
};
export type Learned = {
  readonly pattern: string;
  readonly addresses: Uint32Array;
  /** For each address, the expiry of its grant in nanoseconds on the monotonic clock. */
  readonly expiresAtNs: BigUint64Array;
};

export type DatapathChange =
  | { readonly type: 'interface_appeared' | 'interface_vanished' | 'link_lost'; readonly interface: string }
  /**
   * Weir polices interfaces by name. If no configured name matches the new name, Weir no longer polices the
   * interface.
   */
  | {
      readonly type: 'interface_renamed';
      readonly interface: string;
      readonly to: string;
      /** Whether the new name of the interface matches a name in the configuration. */
      readonly policed: boolean;
    }
  | { readonly type: 'guard_lost' }
  /**
   * Pins of maps or programs were removed or replaced. Without the pins, the next process cannot adopt the
   * policy in force.
   */
  | { readonly type: 'pins_lost'; readonly pins: readonly string[] }
  /** `Datapath.review` returns a new result. */
  | { readonly type: 'review_changed' }
  /** Redirected DNS lookups do not reach the DNS proxy until the BPF program is attached again. */
  | { readonly type: 'diversion_lost' }
  /**
   * While the process has no free file descriptor, the datapath thread cannot check interfaces, the guard and
   * third-party hooks. `fault` describes the failure; null: the checks work again.
   */
  | { readonly type: 'watch_fault_changed'; readonly fault: string | null }
  /**
   * The reasons why the flow table refuses new flows; an empty list if the table accepts new flows. This
   * change requires no new attachment of BPF programs.
   */
  | { readonly type: 'refusals_changed'; readonly refusing: readonly FlowRefusal[] }
  /** The forwarding mode changed. This change is information for the operator; no part reacts to it. */
  | ({ readonly type: 'forwarding_changed' } & ForwardingNow)
  | { readonly type: 'worker_died'; readonly reason: string };

/** The drop reasons of a packet that needs a new flow when the flow table has no room for the flow. */
export const FLOW_REFUSALS = ['flow_table_full', 'flow_share'] as const;
export type FlowRefusal = (typeof FLOW_REFUSALS)[number];

/** How the datapath forwards allowed packets now, and a sentence with the reason. */
export type ForwardingNow = { readonly way: 'stack' | 'direct'; readonly reason: string };

export type Counter = { readonly packets: bigint; readonly bytes: bigint };
export type DatapathStats = {
  readonly generation: number;
  readonly activeFlows: number;
  /** Number of flows that no reply has confirmed. `activeFlows` does not include these flows. */
  readonly halfOpenFlows: number;
  /** Start (milliseconds ago) and duration of the last sweep of the flow tables. */
  readonly sweep: { readonly agoMs: number; readonly tookMs: number };
  readonly verdicts: { readonly allow: Counter; readonly deny: Counter; readonly audit: Counter };
  /**
   * Packets of inspected connections. `handed`: packets redirected to the service plane. `joined`: packets
   * that the datapath forwarded itself after the service plane had released the connection.
   */
  readonly inspected: { readonly handed: Counter; readonly joined: Counter };
  /** Counters of dropped packets. The key is the name of the drop reason (`drop_reason` in `bpf/weir.h`). */
  readonly drops: Readonly<Record<string, Counter>>;
  /**
   * Packets that pass without a policy because of `dataplane.non_ipv4`: forwarded IPv6 packets, and frames
   * that are neither IP nor ARP.
   */
  readonly nonIpv4Passed: Counter;
  readonly flowsOpened: bigint;
  readonly flowsClosed: bigint;
  /** The reasons why the flow table refused new flows in the last seconds. */
  readonly refusing: readonly FlowRefusal[];
  readonly forwarding: ForwardingNow;
  /**
   * Whether the datapath looks up routes for new flows in its own copy of the routing table, and not in the
   * kernel.
   */
  readonly routesCopied: boolean;
  /**
   * Number of addresses since the start of this process that were not granted because the grant table was
   * full.
   */
  readonly grantsRefused: number;
  /**
   * `lost`: events that were not sent because the ring buffer was full. `suppressed`: events that were not
   * sent because their source exceeded its limit of events.
   */
  readonly events: { readonly sent: bigint; readonly lost: bigint; readonly suppressed: bigint };
  readonly maps: Readonly<Record<string, { readonly entries: number; readonly capacity: number }>>;
};

export type HitQuery = {
  /** Ids of source groups; an empty list selects all groups. */
  readonly groups: readonly string[];
  readonly rules: readonly string[];
  readonly unused: boolean | undefined;
  /** The rank from which the report starts: `next` of the previous report, or 0. */
  readonly from: number;
  readonly limit: number;
};
export type HitReport = {
  readonly policy: Pick<PolicyRecord, 'id' | 'revision'> | null;
  readonly generation: number;
  /** The time when this node began to count hits, in milliseconds since 1970. */
  readonly sinceMs: number;
  readonly items: readonly Hit[];
  readonly next: number | null;
};
/** The hits of one rule or default. Times are in milliseconds since 1970. */
export type Hit = {
  readonly decider: Decider;
  readonly packets: bigint;
  readonly bytes: bigint;
  /** The time of the last hit; null if the rule or default was never hit. */
  readonly lastMs: number | null;
  /** The start of the period without any hit; null if the rule or default was hit. */
  readonly unusedSinceMs: number | null;
};

/** A flow matches the filter if it matches an element of every list. An empty list matches every flow. */
export type FlowFilter = {
  readonly sources: readonly Prefix[];
  readonly destinations: readonly Prefix[];
  /** Port ranges. A flow matches if its source port or its destination port is in a range. */
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
  /** The minimum number of bytes of a flow, both directions added. */
  readonly minBytes: number;
};
export type FlowVerdict = 'allow' | 'audit' | 'redirect';
export type FlowQuery = {
  readonly filter: FlowFilter;
  /** `next` of the previous page; this page continues after this flow key. Null for the first page. */
  readonly after: Uint8Array | null;
  readonly limit: number;
};
export type FlowPage = {
  /** The number of matching flows on all pages together. */
  readonly matched: number;
  readonly items: readonly LiveFlow[];
  readonly next: Uint8Array | null;
};
/**
 * A live flow. The source is the endpoint that opened the flow, and the first element of each pair belongs to
 * the source. Addresses are in host byte order, times in milliseconds since 1970.
 */
export type LiveFlow = {
  readonly source: number;
  readonly destination: number;
  readonly protocol: number;
  /** Source port and destination port; null if the protocol has no ports. */
  readonly ports: readonly [number, number] | null;
  readonly icmpId: number | null;
  readonly state: FlowState;
  /**
   * The verdict for the flow. Null if no policy decided the flow, because the flow was opened from an
   * interface that is not policed (`foreign`).
   */
  readonly verdict: FlowVerdict | null;
  /**
   * The rule or default that decided the flow. Null if no policy decided the flow, or if the rule names of
   * that policy were discarded.
   */
  readonly decider: Decider | null;
  readonly foreign: boolean;
  /** The generation of the policy that decided the flow; null if an earlier process activated that policy. */
  readonly generation: number | null;
  /** Whether the policy that decided the flow is still in force. */
  readonly current: boolean;
  readonly packets: readonly [bigint, bigint];
  readonly bytes: readonly [bigint, bigint];
  readonly openedMs: number;
  readonly lastSeenMs: number;
  readonly expiresInMs: number;
  /**
   * The interfaces on which packets of the source and of the destination arrive. An element is null before
   * the first packet from that endpoint, or if the interface is not policed.
   */
  readonly interfaces: readonly [string | null, string | null];
};

/** The policy exceeds a limit of the dataplane (D7). */
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

/** The staged program decides a packet differently from the reference evaluator (B5). */
export class ProofFailed extends Error {
  readonly code = 'proof_failed';
  constructor(readonly mismatch: ProofMismatch) {
    super('the compiled tables do not judge a packet as the policy says');
  }
}
