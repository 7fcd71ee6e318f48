import type { MessagePort } from 'node:worker_threads';
import type { MemberList, MembershipChange } from '#contracts/kubernetes/membership.js';
import type { Arrival } from '#contracts/policy/explain-facts.js';
import type { Address, Family, Packet, Prefix, Range, Verdict } from '#contracts/policy/policy-model.js';
import type { PolicyRecord } from '#contracts/policy/policy-record.js';
import type { Program } from '#contracts/policy/program.js';
import type { Proof, ProofMismatch, ProofSamples } from '#contracts/policy/proof-types.js';
import type { Decider } from '#contracts/policy/rule-names.js';
import type { FlowState } from './datapath-numbers.js';
import type { EventSource } from './event-source.js';
import type { RenamedPolicing } from './renamed-interface.js';
import type { SpliceOffload } from './splice-offload.js';
import type { DestinationTranslation, Translation } from './translation.js';
import type { KeptBase, Standing } from './unconfirmed.js';

/**
 * The operations on the kernel that the dataplane actor calls. A worker thread of `src/dataplane` implements
 * them.
 */
export type Datapath = {
  /**
   * Returns the features that the kernel does not have or that the user of this process may not use. Returns
   * an empty list if no feature is missing. Attaches no BPF program.
   */
  probe(): Promise<readonly Missing[]>;
  /**
   * Loads the BPF programs. If an earlier process left pinned maps and links of the same layout, takes them
   * over (D20).
   */
  open(): Promise<Adoption>;
  /**
   * Attaches the BPF programs to every interface that matches the configuration, and creates the guard,
   * Weir's nftables rules (D20a). If this is already done, does nothing.
   */
  attach(): Promise<readonly Attachment[]>;
  /**
   * Replaces the names of the policed interfaces. Attaches to added interfaces behind the guard, and
   * detaches from removed ones. Returns what `attach` returns; null if the datapath is not open, and then
   * the next `attach` uses the names. Rejects if an interface cannot be policed; the former names are then
   * in force.
   */
  police(interfaces: readonly string[], renamed: RenamedPolicing): Promise<readonly Attachment[] | null>;
  /**
   * Returns the faults that prevent the configured policing, and warnings. If the result changes later,
   * `watch` reports `review_changed`.
   */
  review(): Promise<Review>;
  /**
   * Writes a compiled policy to an idle program slot. If the policy is too large, throws `CapacityExceeded`
   * before it writes a byte to the slot. A slot with the base of an unconfirmed policy is not idle, unless
   * the policy is stored and not unconfirmed: then the base is removed, or if it has this generation, comes
   * in force at once. If the policy is unconfirmed and stored, rejects with the code `no_base` if its time
   * has passed, or if no slot has its base. `standing`: a stored, confirmed policy by default.
   */
  stage(program: Program, generation: number, standing?: Standing): Promise<Staged>;
  /**
   * Makes the datapath classify the packets of the samples by the compiled policy that `stage` wrote: one
   * sample for each family that the datapath enforces. If a verdict differs from the expected verdict,
   * discards this policy and throws `ProofFailed`.
   */
  prove(samples: ProofSamples): Promise<Proof>;
  /**
   * Puts the compiled policy that `stage` wrote in force by one store to the map `active`. Resolves after
   * the store; the RCU grace period continues in the background. If the policy is unconfirmed, the policy in
   * force becomes its base, or an earlier base stays: the kernel reverts to it at the deadline.
   */
  flip(standing?: Standing): Promise<Flipped>;
  /**
   * Removes the base (last confirmed policy) that would get this generation, because the policy after it was
   * confirmed. Does nothing if there is no such base, or if the kernel has already reverted to it.
   */
  confirm(generation: number): Promise<void>;
  /** Discards the compiled policy that `stage` wrote, so that it cannot be put in force any more. */
  unstage(): Promise<void>;
  /**
   * Adds grants: addresses that rules with a hostname pattern then match (D12). When the promise resolves,
   * the grants are in force, also for a compiled policy that is only staged. Returns the number of grants
   * that the datapath refused because the grant table was full. Ignores a pattern that no compiled policy
   * contains.
   */
  grant(grants: readonly Grant[]): Promise<{ readonly refused: number }>;
  revoke(grants: readonly Pick<Grant, 'pattern' | 'addresses'>[]): Promise<void>;
  /**
   * Changes which Kubernetes objects own addresses (D38a). The change needs no compilation of the policy. If
   * the set of selectors of an address is not in the compiled policy, the address is deny-only until a
   * policy with this set is in force: groups with selectors apply only their deny rules to it. When the
   * promise resolves, the next packet of each flow of a changed address classifies that flow again.
   */
  changeMembers(change: MembershipChange): Promise<MembersChanged>;
  /**
   * Replaces all members (addresses that Kubernetes objects own), for example those that an earlier process
   * has left in the kernel. The first call must precede the first compiled policy in which a selector is
   * resolved. Until this call, new maps treat each address as an address whose set is not in that policy.
   */
  replaceMembers(list: MemberList): Promise<MembersChanged>;
  /**
   * Returns a message port to the datapath thread. Through it, another thread requests new grants and looks
   * up grants. `#contracts/grant-messages.js` defines the messages. The port closes when the datapath
   * closes.
   */
  grantPort(): Promise<MessagePort>;
  /** Returns the BPF maps and program for splicing offload. They are valid while the datapath is open. */
  spliceOffload(): Promise<SpliceOffload>;
  /**
   * Returns the unexpired grants. After a restart, omits the grants of a pattern until a compiled policy
   * with the pattern is staged, because the kernel does not store the text of patterns.
   */
  learned(): Promise<readonly Learned[]>;
  /**
   * Returns the interface on which packets from `source` arrive, according to the routes of the node, and
   * the policed interfaces.
   */
  arrival(source: Address): Promise<Arrival>;
  /**
   * Returns how the node translates the destination of a packet; null if the node has no NAT rules, and for
   * IPv6.
   */
  destinationTranslation(packet: Packet): Promise<DestinationTranslation | null>;
  stats(): Promise<DatapathStats>;
  /**
   * Returns how many packets each rule and default of the policy in force has decided (hits), in the order
   * of evaluation. Returns null until this process has put a policy in force.
   */
  hits(query: HitQuery): Promise<HitReport | null>;
  /**
   * Returns the traffic of each source group. Returns null if `DatapathOptions.countedGroups` is 0, and
   * until this process has put a policy in force.
   */
  groupTraffic(): Promise<GroupTraffic | null>;
  /**
   * Returns live flows, ordered by their keys. If flows open or end between two pages, the order of the
   * other flows does not change.
   */
  flows(query: FlowQuery): Promise<FlowPage>;
  /**
   * Ends the flows that match the filter, and returns their number. The datapath then classifies the next
   * packet of an ended flow like the first packet of a new flow.
   */
  cutFlows(filter: FlowFilter): Promise<number>;
  /**
   * Calls the listener on every change that `DatapathChange` lists, such as a lost link. Returns a function
   * that removes the listener.
   */
  watch(listener: (change: DatapathChange) => void): () => void;
  /**
   * Calls the callback with the event source of each opened datapath. A later call of `onEventSource`
   * replaces the callback. The callback may send the source to another thread. While no thread reads the
   * events, the ring buffer fills up, and the datapath counts the lost events.
   */
  onEventSource(listener: (source: EventSource) => void): void;
  /**
   * Selects the kinds of events that the datapath reports; initially it reports none (D34). The selection
   * also applies to a datapath that is opened later. Resolves when the datapath has the selection, or
   * immediately if no datapath is open.
   */
  setEventsWanted(wanted: EventsWanted): Promise<void>;
  /** Closes all file descriptors of the datapath. Pinned BPF programs continue to enforce the policy. */
  close(): Promise<void>;
};

/**
 * The state after a change of members (addresses that Kubernetes objects own).
 * `members`: the addresses with an owner. `refused`: the addresses that are deny-only (groups with selectors
 * apply only deny rules to them) because the map of members is full. `uncompiled`: the addresses of the
 * change that are deny-only until the policy is compiled with the present members. `flows`: the flows that
 * are classified again.
 */
export type MembersChanged = Readonly<Record<'members' | 'refused' | 'uncompiled' | 'flows', number>>;

/**
 * `packets`: the datapath reports single packets, such as denied packets, and flows that pass only because
 * of audit mode. `flows`: the datapath reports the opening and the end of each flow.
 */
export type EventsWanted = { readonly packets: boolean; readonly flows: boolean };
export const NO_EVENTS: EventsWanted = { packets: false, flows: false };

/**
 * A feature that the kernel does not have, or that the user of this process may not use. `sentence` tells
 * the operator about it.
 */
export type Missing = { readonly what: string; readonly sentence: string };
/**
 * Whether a machine can enforce a configuration: the missing features, and the review of the interfaces. If
 * a feature is missing, the review is empty.
 */
export type MachineCheck = Review & { readonly missing: readonly Missing[] };

export type Adoption = {
  /**
   * The last confirmed policy, which the kernel keeps while the policy in force is unconfirmed; null if there
   * is none.
   */
  readonly base: KeptBase | null;
  readonly adopted: boolean;
  /**
   * Generation, time and SHA-256 (hex) of the compiled policy in force. Null if the datapath of an earlier
   * process was not taken over, or if no policy was ever in force in it.
   */
  readonly inForce: (Enforced & { readonly imageSha256: string }) | null;
};
/**
 * The generation in force, and the Unix time in milliseconds since when the kernel enforces it. The time is
 * null if the build that activated the generation did not record it.
 */
export type Enforced = { readonly generation: number; readonly sinceMs: number | null };
/**
 * The result of `Datapath.flip`. `sinceMs`: Unix time in milliseconds since when the kernel enforces the
 * generation. It is earlier than the flip if the generation was already in force. `uncompiled`: the number
 * of addresses that are deny-only (groups with selectors apply only deny rules to them) until the policy is
 * compiled again, because the members changed after the compilation.
 */
export type Flipped = { readonly epoch: number; readonly sinceMs: number; readonly uncompiled: number };
export type Attachment = {
  readonly interface: string;
  readonly ifindex: number;
  readonly by: 'tcx' | 'clsact';
  /** The former name by which the interface is policed; null if a configured name matches its name. */
  readonly renamedFrom: string | null;
};
/** The result of `Datapath.review`. Faults and warnings are sentences for the operator. */
export type Review = {
  /** Reasons why Weir does not police all traffic of an interface that it should police (D17). */
  readonly faults: readonly string[];
  readonly warnings: readonly string[];
};
export type Staged = { readonly lines: number; readonly capacityLines: number };

/**
 * Addresses that rules with a hostname pattern match until the expiry. If an address already has a grant for
 * the pattern, the later of the two expiries applies.
 */
export type Grant = {
  /** The text of a `HostnamePattern`, such as `*.example.com`. */
  readonly pattern: string;
  readonly addresses: readonly Address[];
  /**
   * The expiry in nanoseconds on the monotonic clock of `process.hrtime.bigint()`. The datapath rounds the
   * expiry down to units of 2^27 ns, which is about an eighth of a second.
   */
  readonly expiresAtNs: bigint;
};
/** The grants of the addresses of one family for one hostname pattern. */
export type Learned = {
  readonly pattern: string;
  readonly family: Family;
  /** The words of the addresses (`#addresses/memory-words.js`). */
  readonly addresses: Uint32Array;
  /**
   * For each address, the time until which it is allowed for a hostname pattern, in nanoseconds on the
   * monotonic clock.
   */
  readonly expiresAtNs: BigUint64Array;
};

export type DatapathChange =
  | { readonly type: 'interface_appeared' | 'interface_vanished' | 'link_lost'; readonly interface: string }
  /** A policed interface was renamed. It stays policed, even if no configured name matches the new name. */
  | { readonly type: 'interface_renamed'; readonly interface: string; readonly to: string }
  | { readonly type: 'guard_lost' }
  /**
   * Another process removed or replaced pins of BPF maps or programs. Without these pins, the next process
   * cannot adopt the policy in force.
   */
  | { readonly type: 'pins_lost'; readonly pins: readonly string[] }
  /** Reports that `Datapath.review` would now return another result than at its last call. */
  | { readonly type: 'review_changed' }
  /**
   * Weir's routing rule or routing table is missing. Redirected packets do not reach the DNS proxy or the
   * service plane (TLS and HTTP inspection) until the next call of `attach` makes the rule again.
   */
  | { readonly type: 'diversion_lost' }
  /**
   * The process has no free file descriptor, so the datapath thread cannot check interfaces, the guard and
   * third-party hooks. `fault` describes the failure; null means that the checks work again.
   */
  | { readonly type: 'watch_fault_changed'; readonly fault: string | null }
  /**
   * `refusing` lists the reasons why the flow table refuses new flows; the list is empty if it accepts new
   * flows. After this change, `attach` need not be called again.
   */
  | { readonly type: 'refusals_changed'; readonly refusing: readonly FlowRefusal[] }
  /**
   * The forwarding mode changed. This change only informs the operator; no part of the node reacts to it.
   */
  | ({ readonly type: 'forwarding_changed'; readonly family: Family } & ForwardingNow)
  | { readonly type: 'worker_died'; readonly reason: string };

/**
 * The drop reasons of a packet for which the datapath cannot open a new flow: the whole table is full, or
 * the source has used its share.
 */
export const FLOW_REFUSALS = ['flow_table_full', 'flow_share'] as const;
export type FlowRefusal = (typeof FLOW_REFUSALS)[number];

/** How the datapath forwards allowed packets of one IP family now, and a sentence with the reason. */
export type ForwardingNow = { readonly way: 'stack' | 'direct'; readonly reason: string };

export type Counter = { readonly packets: bigint; readonly bytes: bigint };
export type DatapathStats = {
  readonly generation: number;
  readonly activeFlows: number;
  /**
   * Number of half-open flows, which no reply has confirmed, and of suspended flows (denied by a later
   * policy). `activeFlows` includes neither.
   */
  readonly halfOpenFlows: number;
  /**
   * The last sweep (the periodic walk over the flow table, which ends expired flows). The sweep runs in
   * steps. `agoMs`: milliseconds since its last step began. `tookMs`: duration of all its steps, without the
   * pauses.
   */
  readonly sweep: { readonly agoMs: number; readonly tookMs: number };
  readonly verdicts: { readonly allow: Counter; readonly deny: Counter; readonly audit: Counter };
  /**
   * Packets of inspected connections. `handed`: packets that the datapath redirected to the service plane.
   * `joined`: packets of spliced connections that the datapath forwarded without the service plane.
   */
  readonly inspected: { readonly handed: Counter; readonly joined: Counter };
  /** Counters of dropped packets. The key is the name of the drop reason (`drop_reason` in `bpf/weir.h`). */
  readonly drops: Readonly<Record<string, Counter>>;
  /**
   * Packets that pass without classification: forwarded IPv6 packets if `dataplane.ipv6` is `pass`, and
   * frames that are neither IP nor ARP if `dataplane.non_ipv4` is `pass`.
   */
  readonly nonIpv4Passed: Counter;
  /**
   * DNS queries that `dns.transparent` did not divert, because their destination has neither a route nor a
   * socket of the node. The kernel dropped them.
   */
  readonly dnsUnroutable: Counter;
  readonly flowsOpened: bigint;
  /** Number of established flows that ended or were suspended. */
  readonly flowsClosed: bigint;
  /**
   * Number of flows that a later policy refused. They are kept, and pass nothing until a policy allows them.
   */
  readonly flowsSuspended: bigint;
  /** Number of suspended flows that a later policy resumed. */
  readonly flowsResumed: bigint;
  /** The reasons why the flow table refused new flows in the last seconds; empty if it refused none. */
  readonly refusing: readonly FlowRefusal[];
  readonly forwarding: ForwardingNow;
  /** Like `forwarding`, for IPv6; null unless `dataplane.ipv6` is `enforce`. */
  readonly ipv6Forwarding: ForwardingNow | null;
  /**
   * Whether the datapath looks up routes in its own copy of the node's routes, and not in the kernel's
   * routing tables.
   */
  readonly routesCopied: boolean;
  /**
   * Number of learned addresses that the datapath refused because the table of DNS grants was full, since the
   * datapath was opened.
   */
  readonly grantsRefused: number;
  /**
   * `lost`: events that the datapath could not send because the ring buffer was full. `suppressed`: events
   * that it did not send because their source had exceeded its limit of events.
   */
  readonly events: { readonly sent: bigint; readonly lost: bigint; readonly suppressed: bigint };
  readonly maps: Readonly<Record<string, { readonly entries: number; readonly capacity: number }>>;
};

export type HitQuery = {
  /**
   * Ids of source groups; the report has only hits (packets that a rule decided) of these groups. An empty
   * list selects all groups.
   */
  readonly groups: readonly string[];
  readonly rules: readonly string[];
  readonly unused: boolean | undefined;
  /** The rank (position in the policy) at which the report begins: 0, or `next` of the previous report. */
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
  /**
   * If the rule or default was never hit, the time when the node began to count its hits; otherwise null.
   */
  readonly unusedSinceMs: number | null;
};

/**
 * Packets and bytes by source group and verdict, counted since this process opened the datapath. No count
 * decreases. `groups`: ids of the groups with separate counts, at most `DatapathOptions.countedGroups`.
 * `unlisted`: the number of other groups in the policy in force. `counts`: rows of `GROUP_COUNTS` numbers:
 * the packets and the bytes of each verdict in `COUNTED_VERDICTS`. There is a row for each of `groups`, then
 * one for all other groups together, then one for the default of the policy.
 */
export type GroupTraffic = {
  readonly groups: readonly string[];
  readonly unlisted: number;
  readonly counts: Float64Array;
};
export const COUNTED_VERDICTS = ['allow', 'deny', 'audit'] as const satisfies readonly Verdict[];
export const GROUP_COUNTS = 2 * COUNTED_VERDICTS.length;

/**
 * A flow matches the filter if it matches an element of every non-empty list, and every other field that is
 * not undefined.
 */
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
  readonly suspended: boolean | undefined;
  /** The minimum number of bytes of a flow, both directions added. */
  readonly minBytes: number;
};
/**
 * The verdict of a flow. A flow with the verdict `deny` is suspended: a later policy denies it, and the
 * datapath keeps it without passing packets.
 */
export type FlowVerdict = Verdict;
export type FlowQuery = {
  readonly filter: FlowFilter;
  /**
   * The value `next` of the previous page: a flow key, after which this page begins. Null for the first
   * page.
   */
  readonly after: Uint8Array | null;
  readonly limit: number;
};
export type FlowPage = {
  /** The number of all flows that match the filter, also those on other pages. */
  readonly matched: number;
  readonly items: readonly LiveFlow[];
  readonly next: Uint8Array | null;
};
/**
 * A live flow. The source is the endpoint that opened the flow, and the first element of each pair belongs
 * to it. Addresses are in host byte order, times in milliseconds since 1970.
 */
export type LiveFlow = {
  /**
   * The key of the flow in the flow table of its family. Pages of flows are in the order of their keys, and
   * flows of IPv4 come first.
   */
  readonly key: Uint8Array;
  readonly source: Address;
  readonly destination: Address;
  readonly protocol: number;
  /** Source port and destination port; null if the protocol has no ports. */
  readonly ports: readonly [number, number] | null;
  readonly icmpId: number | null;
  readonly state: FlowState;
  /**
   * The verdict for the flow. Null if no policy decided the flow, because an interface that is not policed
   * received its first packet (`foreign`).
   */
  readonly verdict: FlowVerdict | null;
  /**
   * The rule or default that decided the flow. Null if no policy decided the flow, or if the node no longer
   * has the rule names of that policy.
   */
  readonly decider: Decider | null;
  /**
   * If the default of a policy decided: the ids of the first groups of this policy with a prefix that
   * contains the source. `hasSelectors`: whether the policy has Kubernetes selectors, whose members are not
   * considered. Null if something else decided.
   */
  readonly sourceGroups: { readonly ids: readonly string[]; readonly hasSelectors: boolean } | null;
  readonly foreign: boolean;
  /**
   * Whether a later policy refuses the flow. The datapath keeps such a flow: it passes nothing, and each
   * packet is classified again.
   */
  readonly suspended: boolean;
  /**
   * The generation of the policy that decided the flow; null if an earlier process activated that policy.
   */
  readonly generation: number | null;
  /** Whether the policy that decided the flow is still in force. */
  readonly current: boolean;
  readonly packets: readonly [bigint, bigint];
  readonly bytes: readonly [bigint, bigint];
  readonly openedMs: number;
  readonly lastSeenMs: number;
  readonly expiresInMs: number;
  /**
   * The interfaces on which packets of the source and of the destination arrive. An element is null until a
   * packet from that endpoint arrives on a policed interface.
   */
  readonly interfaces: readonly [string | null, string | null];
  /**
   * How the node translates the flow, according to conntrack. Null if the node does not translate the flow,
   * or if conntrack has no connection for it.
   */
  readonly translation: Translation | null;
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

/** The staged program (compiled policy) decides a packet differently from the reference evaluator (B5). */
export class ProofFailed extends Error {
  readonly code = 'proof_failed';
  constructor(readonly mismatch: ProofMismatch) {
    super('the compiled tables give a packet another verdict than the policy');
  }
}
