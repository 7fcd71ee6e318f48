import type { MessagePort } from 'node:worker_threads';
import type { FlowState } from './datapath-numbers.js';
import type { EventSource } from './event-source.js';
import type { Arrival } from './explain-facts.js';
import type { GrantDoor } from './grant-access.js';
import type { Prefix, Range } from './policy-model.js';
import type { PolicyRecord } from './policy-record.js';
import type { Program } from './program.js';
import type { Proof, ProofMismatch, ProofSample } from './proof-types.js';
import type { Decider } from './rule-names.js';
import type { SpliceOffload } from './splice-offload.js';

/** What the dataplane part asks of the kernel. `kernel/` implements it in a worker thread; nothing else does. */
export type Datapath = {
  /** What this kernel or this user lacks; empty when all is there. Attaches nothing. */
  probe(): Promise<readonly Missing[]>;
  /** Loads the programs, adopting pinned maps and links of the same layout where they exist (D20). */
  open(): Promise<Adoption>;
  /** Attaches to every interface that matches the configuration, and makes the guard (D20a). Idempotent. */
  attach(): Promise<readonly Attachment[]>;
  /** Faults that prevent policing as configured, and warnings. A change is reported as `review_changed`. */
  review(): Promise<Review>;
  /** Fills the idle slot. Throws `CapacityExceeded` before anything changed. */
  stage(program: Program, generation: number): Promise<Staged>;
  /**
   * Judges the packets of a sample by the staged slot. Throws `ProofFailed` where one is not judged as expected; then
   * nothing is staged any more.
   */
  prove(sample: ProofSample): Promise<Proof>;
  /** Makes the staged slot the one in force: one store. Resolves once done; the grace period goes on behind it. */
  flip(): Promise<{ readonly epoch: number }>;
  /** Throws away what is staged. */
  unstage(): Promise<void>;
  /**
   * Learns addresses for patterns (D12): in force when this resolves, also in a program that is staged. Answers how many
   * were not learned because the table was full. A pattern that no program has is left out.
   */
  grant(grants: readonly Grant[]): Promise<{ readonly refused: number }>;
  revoke(grants: readonly Pick<Grant, 'pattern' | 'addresses'>[]): Promise<void>;
  /**
   * For another thread to grant by, one at a time. It is told how to write grants itself whenever the datapath is opened, and asks
   * for what it cannot by the port (`#contracts/grant-messages.js`), which closes when the datapath does.
   */
  grantDoor(): Promise<GrantDoor>;
  /** A port for another thread to ask what is granted by, without a way through this one; it closes when the datapath does. */
  grantedPort(): Promise<MessagePort>;
  /** Where the service plane leaves connections that it has decided. It is good for as long as this is open. */
  spliceOffload(): Promise<SpliceOffload>;
  /** What is granted now. After a restart only patterns of programs that were staged since have their text. */
  learned(): Promise<readonly Learned[]>;
  /** Where packets of a source come in, by the routes of the node. */
  arrival(source: number): Promise<Arrival>;
  stats(): Promise<DatapathStats>;
  /** What the policy in force was hit by until now, in its own order; null before this process put one in force. */
  hits(query: HitQuery): Promise<HitReport | null>;
  /** Live flows in the order of their keys, which others that come and go do not change. */
  flows(query: FlowQuery): Promise<FlowPage>;
  /** Ends flows, so that their next packets are judged like those of new ones. Answers how many were ended. */
  cutFlows(filter: FlowFilter): Promise<number>;
  /** Calls back on every change seen: an interface that appeared or vanished, a link or the guard that was lost, another way of forwarding. */
  watch(listener: (change: DatapathChange) => void): () => void;
  /**
   * Gives the events of the datapath that is open, and of each that is opened, to the one who asked last, who may send
   * the source to another thread. While nobody takes them the ring fills up, and the kernel counts what it loses.
   */
  takeEvents(taker: (source: EventSource) => void): void;
  /**
   * Which events the kernel sends (D34); none at first. Holds across a datapath that dies and is opened again. Resolves
   * once the kernel knows, at once where none is open.
   */
  setEventsWanted(wanted: EventsWanted): Promise<void>;
  /** Lets go of everything; what is pinned goes on enforcing. */
  close(): Promise<void>;
};

/** `packets`: of single ones, and flows that pass under audit. `flows`: each that is opened and that ends. */
export type EventsWanted = { readonly packets: boolean; readonly flows: boolean };
export const ALL_EVENTS: EventsWanted = { packets: true, flows: true };
export const NO_EVENTS: EventsWanted = { packets: false, flows: false };

/** `probe`'s finding: what is missing, and the sentence that tells the operator. */
export type Missing = { readonly what: string; readonly sentence: string };

export type Adoption = {
  readonly adopted: boolean;
  /** Generation and SHA-256 (hex) of the image in force, when adopted and once activated. */
  readonly inForce: { readonly generation: number; readonly imageSha256: string } | null;
};
export type Attachment = {
  readonly interface: string;
  readonly ifindex: number;
  readonly by: 'tcx' | 'clsact';
};
/** Sentences, each with the name of an interface or a chain. */
export type Review = {
  /** Traffic of a policed interface is not policed as D17 says. */
  readonly faults: readonly string[];
  readonly warnings: readonly string[];
};
export type Staged = { readonly lines: number; readonly capacityLines: number };

/** The address of one grant lives on where it was granted for longer before. */
export type Grant = {
  /** The text of a `HostnamePattern`. */
  readonly pattern: string;
  readonly addresses: readonly number[];
  /** On the monotonic clock, as `process.hrtime.bigint()` tells it; kept to an eighth of a second, rounded down. */
  readonly expiresAtNs: bigint;
};
export type Learned = {
  readonly pattern: string;
  readonly addresses: Uint32Array;
  /** Of each address. */
  readonly expiresAtNs: BigUint64Array;
};

export type DatapathChange =
  | { readonly type: 'interface_appeared' | 'interface_vanished' | 'link_lost'; readonly interface: string }
  /** Names count: by a name that no pattern has, it is not policed any more. */
  | {
      readonly type: 'interface_renamed';
      readonly interface: string;
      readonly to: string;
      /** Whether the new name is configured. */
      readonly policed: boolean;
    }
  | { readonly type: 'guard_lost' }
  /** Pins of maps or programs were removed or replaced: without them the next process does not find what is in force. */
  | { readonly type: 'pins_lost'; readonly pins: readonly string[] }
  /** `review` answers something else now. */
  | { readonly type: 'review_changed' }
  /** Lookups that are diverted come to nobody until it was attached again. */
  | { readonly type: 'diversion_lost' }
  /** No free descriptor: interfaces, guard and third-party hooks are not looked at until the fault is null again. */
  | { readonly type: 'look_changed'; readonly fault: string | null }
  /** The reasons for which the flow table refuses new flows; empty: it refuses none. Nothing is attached anew. */
  | { readonly type: 'refusals_changed'; readonly refusing: readonly FlowRefusal[] }
  /** Nothing is to be done about it. */
  | ({ readonly type: 'forwarding_changed' } & ForwardingNow)
  | { readonly type: 'worker_died'; readonly reason: string };

/** The drop reasons of flows that were refused for want of room. */
export const FLOW_REFUSALS = ['flow_table_full', 'flow_share'] as const;
export type FlowRefusal = (typeof FLOW_REFUSALS)[number];

/** Which way the packets that pass go now, and why. */
export type ForwardingNow = { readonly way: 'stack' | 'direct'; readonly reason: string };

export type Counter = { readonly packets: bigint; readonly bytes: bigint };
export type DatapathStats = {
  readonly generation: number;
  readonly activeFlows: number;
  /** Flows besides whose opening was not answered yet. */
  readonly halfOpenFlows: number;
  /** The last sweep of the flow tables. */
  readonly sweep: { readonly agoMs: number; readonly tookMs: number };
  readonly verdicts: { readonly allow: Counter; readonly deny: Counter; readonly audit: Counter };
  /** Of connections that are inspected: handed to the service plane, and forwarded after it has left them. */
  readonly inspected: { readonly handed: Counter; readonly joined: Counter };
  /** Keyed by the name of the drop reason (`drop_reason` in `bpf/weir.h`). */
  readonly drops: Readonly<Record<string, Counter>>;
  /** Passed by `dataplane.non_ipv4`: forwarded IPv6, and what is neither IP nor ARP. No policy judges it. */
  readonly nonIpv4Passed: Counter;
  readonly flowsOpened: bigint;
  readonly flowsClosed: bigint;
  /** The reasons for which flows were refused in the last seconds. */
  readonly refusing: readonly FlowRefusal[];
  readonly forwarding: ForwardingNow;
  /** Whether packets that open a flow go by a copy of the routes, and the kernel is not asked for them. */
  readonly routesCopied: boolean;
  /** Addresses that were not learned because there was no room, since this process began. */
  readonly grantsRefused: number;
  /** Events that were not sent: `lost`, the ring was full; `suppressed`, the source had had its share. */
  readonly events: { readonly sent: bigint; readonly lost: bigint; readonly suppressed: bigint };
  readonly maps: Readonly<Record<string, { readonly entries: number; readonly capacity: number }>>;
};

export type HitQuery = {
  /** Ids; empty: any. */
  readonly groups: readonly string[];
  readonly rules: readonly string[];
  readonly unused: boolean | undefined;
  /** Where an earlier report stopped, else 0. */
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
/** Times are milliseconds since 1970. */
export type Hit = {
  readonly decider: Decider;
  readonly packets: bigint;
  readonly bytes: bigint;
  /** Null where it was never hit. */
  readonly lastMs: number | null;
  /** Since when it was never hit; null where it was. */
  readonly unusedSinceMs: number | null;
};

/** Each list is OR, and an empty one asks for nothing; they are ANDed. */
export type FlowFilter = {
  readonly sources: readonly Prefix[];
  readonly destinations: readonly Prefix[];
  /** Of either side. */
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
  /** Of both directions together. */
  readonly minBytes: number;
};
export type FlowVerdict = 'allow' | 'audit' | 'redirect';
export type FlowQuery = {
  readonly filter: FlowFilter;
  /** The key after which to go on, as an earlier page gave it. */
  readonly after: Uint8Array | null;
  readonly limit: number;
};
export type FlowPage = {
  /** All that match, on any page. */
  readonly matched: number;
  readonly items: readonly LiveFlow[];
  readonly next: Uint8Array | null;
};
/** Source is the side that opened it, and comes first in pairs. Addresses in host order, times in milliseconds since 1970. */
export type LiveFlow = {
  readonly source: number;
  readonly destination: number;
  readonly protocol: number;
  /** Null where the protocol has none. */
  readonly ports: readonly [number, number] | null;
  readonly icmpId: number | null;
  readonly state: FlowState;
  /** Null of a foreign flow, which nobody judged. */
  readonly verdict: FlowVerdict | null;
  /** Who judged it; null where nobody did, or where the policy that had them is gone. */
  readonly decider: Decider | null;
  readonly foreign: boolean;
  /** Of the policy that judged it; null where that was put in force by an earlier process. */
  readonly generation: number | null;
  /** Whether that policy is in force. */
  readonly current: boolean;
  readonly packets: readonly [bigint, bigint];
  readonly bytes: readonly [bigint, bigint];
  readonly openedMs: number;
  readonly lastSeenMs: number;
  readonly expiresInMs: number;
  /** Where packets of each side come in; null where none did yet, or it is not a policed interface. */
  readonly interfaces: readonly [string | null, string | null];
};

/** A limit of the dataplane would be passed (D7). */
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

/** What is staged does not judge a packet as the policy says (B5). */
export class ProofFailed extends Error {
  readonly code = 'proof_failed';
  constructor(readonly mismatch: ProofMismatch) {
    super('the compiled tables do not judge a packet as the policy says');
  }
}
