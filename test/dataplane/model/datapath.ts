import type { FlowState } from '#contracts/datapath/datapath-numbers.js';
import { type Address, type Grants, IPPROTO, type Packet, type Policy } from '#contracts/policy/policy-model.js';
import { isAudited, verdictOf, verdictWord } from '#contracts/policy/verdict-word.js';
import { evaluate } from '#policy/evaluate/evaluate.js';
import { EXEMPT_BIT, GUARD_BIT, MARK_MASK } from '../marks.js';
import { Datagrams } from './datagrams.js';
import { FAMILY_MODELS, type FamilyModel } from './family-models.js';
import {
  acknowledgedBy,
  follow,
  isOver,
  isStrayReset,
  type ModelFlow,
  openingState,
  opensTcp,
  type Place,
  placeOf,
} from './flows.js';
import type { DropReason, Headers } from './headers.js';
import { isDiscovery } from './ipv6-headers.js';

/**
 * The hook that handles a frame, and the sender of the packet. `in` is the ingress hook. `out_of_node` and
 * `out_foreign` are the egress hook with a packet of the node and from an unpoliced interface.
 */
export type Seen = 'in' | 'out_of_node' | 'out_foreign';
export type Frame = {
  readonly bytes: DataView;
  readonly length: number;
  readonly mark: number;
  readonly seen: Seen;
  /**
   * Number of packets on the wire that the frame contains. `merged` is true for a frame of merged segments.
   */
  readonly segments: number;
  readonly merged: boolean;
};
/** `word` is the verdict word of the packet; 0 if the policy did not classify the packet. */
export type Answer = { readonly passes: boolean; readonly word: number; readonly mark: number };

const VLAN = [0x8100, 0x88a8, 0x9100, 0x9200, 0x9300];

/**
 * A model of the datapath of one IP family that follows the decisions D4 and D17 to D19. The model has no
 * clock, so its flows and fragments do not expire. It treats every packet as forwarded, with a valid source
 * address. The model of IPv4 drops IPv6 as a whole.
 */
export class Model<A extends Address> {
  readonly flows = new Map<string, ModelFlow<A>>();
  readonly counters = new Map<string, number>();
  readonly #datagrams: Datagrams<A>;
  readonly #words = new Map<string, number>();
  #policy: Policy;
  #epoch = 0;
  pickup = false;

  /**
   * `grants` are the grants that have not expired; `ever` includes the expired grants (D12). `makesRoom`
   * selects the half-open flow that a full flow table evicts: without a clock, the model cannot find the
   * flow that was idle for the longest time.
   */
  constructor(
    readonly family: FamilyModel<A>,
    policy: Policy,
    readonly flowCapacity: number,
    readonly makesRoom: (halfOpen: readonly ModelFlow<A>[]) => ModelFlow<A>,
    readonly grants: Grants,
    readonly ever: Grants,
  ) {
    this.#datagrams = new Datagrams(family);
    this.#policy = policy;
  }

  activate(policy: Policy): void {
    if (policy !== this.#policy) this.#words.clear();
    this.#policy = policy;
    this.#epoch++;
  }

  /** Discards the cached verdict words. Call this method after each change of the grants. */
  learned(): void {
    this.#words.clear();
  }

  forget(): void {
    this.flows.clear();
    this.#datagrams.clear();
    this.pickup = false;
    this.#epoch++;
  }

  see(frame: Frame): Answer {
    return new FrameRun(this, this.#datagrams, frame).answer();
  }

  get epoch(): number {
    return this.#epoch;
  }

  /**
   * Returns the verdict word for a packet of an open flow under the policy in force. Expired grants still
   * count for an open flow.
   */
  reclassify(packet: Headers<A>, asReply: boolean): number {
    const decided = this.classify(packet, asReply);
    if (refusal(decided) === undefined) return decided;
    const kept = this.classify(packet, asReply, this.ever);
    return refusal(kept) === undefined ? kept : decided;
  }

  /**
   * Returns the verdict word for `packet`; with `asReply`, the word for the packet that `packet` answers.
   */
  classify(packet: Headers<A>, asReply: boolean, grants = this.grants): number {
    const asked = asReply ? this.#askedBy(packet) : packet;
    const { source, destination, protocol, sourcePort, destinationPort, icmpType, icmpCode } = asked;
    const ports = `${sourcePort} ${destinationPort} ${icmpType} ${icmpCode}`;
    const key = `${source} ${destination} ${protocol} ${ports} ${grants === this.grants}`;
    let found = this.#words.get(key);
    if (found === undefined) {
      const { rank, verdict, audited } = evaluate(this.#policy, asked, grants);
      found = verdictWord(rank, verdict, audited);
      this.#words.set(key, found);
    }
    return found;
  }

  #askedBy(answer: Headers<A>): Packet<A> {
    const { protocol, queries } = this.family.icmp;
    return {
      source: answer.destination,
      destination: answer.source,
      protocol: answer.protocol,
      sourcePort: answer.destinationPort,
      destinationPort: answer.sourcePort,
      icmpType: answer.protocol === protocol ? (queries[answer.icmpType] ?? 0) : 0,
      icmpCode: 0,
    };
  }

  count(name: string, packets: number): void {
    this.counters.set(name, (this.counters.get(name) ?? 0) + packets);
  }
}

function refusal(decided: number): DropReason | undefined {
  const verdict = verdictOf(decided);
  if (verdict === 'deny') return 'policy_deny';
  return verdict === 'redirect' && !isAudited(decided) ? 'service_plane_absent' : undefined;
}

/**
 * Handles one frame: returns the verdict and the packet mark, and updates flows and counters of the model.
 */
class FrameRun<A extends Address> {
  #mark: number;
  #word = 0;

  constructor(
    readonly model: Model<A>,
    readonly datagrams: Datagrams<A>,
    readonly frame: Frame,
  ) {
    this.#mark = frame.mark;
  }

  answer(): Answer {
    const passes = this.#look();
    return { passes, word: this.#word, mark: this.#mark >>> 0 };
  }

  #look(): boolean {
    const { bytes, length, seen } = this.frame;
    const { family } = this.model;
    const etherType = bytes.getUint16(12);
    if (etherType === FAMILY_MODELS.ipv4.etherType && etherType !== family.etherType)
      throw new RangeError('the model of IPv6 got a packet of IPv4');
    if (seen === 'in') {
      this.#mark &= ~MARK_MASK;
      if (VLAN.includes(etherType)) return this.#drop('vlan_tagged');
      if (etherType === family.etherType) return this.#police();
      if (isDiscovery(bytes, length)) return this.#leave('to_node');
      return etherType === 0x0806 ? this.#leave('arp') : this.#dropOther(etherType);
    }
    // The guard bit in the mark shows that the ingress hook has already classified and passed the packet.
    if (seen === 'out_foreign' && this.#mark & GUARD_BIT) return true;
    const exempt = (this.#mark & EXEMPT_BIT) !== 0;
    if (etherType === family.etherType) {
      if (seen === 'out_foreign') return this.#followForeign('foreign');
      return exempt ? this.#followForeign('from_node') : this.#police();
    }
    if (etherType === 0x0806) return this.#leave('arp');
    if (seen === 'out_foreign') return this.#leave('foreign');
    return isDiscovery(bytes, length) ? this.#leave('from_node') : this.#dropOther(etherType);
  }

  #dropOther(etherType: number): boolean {
    return this.#drop(etherType === FAMILY_MODELS.ipv6.etherType ? 'ipv6' : 'non_ipv4');
  }

  #police(): boolean {
    const { bytes, length, merged, seen } = this.frame;
    if (this.model.family.isOfLink(bytes, length)) return this.#leave(seen === 'in' ? 'to_node' : 'from_node');
    const packet = this.model.family.readHeaders(bytes, length, merged);
    if (typeof packet === 'string') return this.#drop(packet);
    if (this.#hasLoopback(packet)) return this.#drop('loopback');
    if (packet.part === 'whole') return this.#classify(packet);
    if (packet.part === 'later') {
      const wrong = this.datagrams.continued(packet, seen);
      return wrong === undefined ? this.#classify(packet) : this.#drop(wrong);
    }
    const passes = this.#classify(packet);
    if (passes) this.datagrams.opened(packet, seen);
    else this.datagrams.refused(packet, seen);
    return passes;
  }

  #classify(packet: Headers<A>): boolean {
    const { icmp } = this.model.family;
    const place = placeOf(packet, icmp);
    const flow = place === undefined ? undefined : this.#find(place, packet);
    if (place !== undefined && flow !== undefined) {
      const side = sideOf(flow, place);
      const begins = side === 1 && packet.protocol === IPPROTO.tcp && opensTcp(packet) && isStanding(flow);
      const unasked = flow.foreign && (side === 0 || this.frame.seen !== 'in');
      if (!begins && !unasked) return this.#continue(flow, packet, side);
    }
    const isIcmp = packet.protocol === icmp.protocol;
    if (isIcmp && packet.icmpType === icmp.redirect && this.frame.seen === 'in') return this.#drop('icmp_redirect');
    if (isIcmp && icmp.errors.includes(packet.icmpType)) {
      const related = this.#classifyIcmpError(packet);
      if (related !== undefined) return related;
    }
    return this.#begin(packet, flow === undefined ? place : undefined);
  }

  #find(place: Place, packet: Headers<A>): ModelFlow<A> | undefined {
    const flow = this.model.flows.get(place.key);
    if (flow === undefined || !isOver(flow) || packet.protocol !== IPPROTO.tcp || !opensTcp(packet)) return flow;
    this.#end(flow);
    return undefined;
  }

  #end(flow: ModelFlow<A>): void {
    this.model.flows.delete(flow.key);
    if (flow.confirmed) this.model.count('flows_closed', 1);
  }

  #continue(flow: ModelFlow<A>, packet: Headers<A>, side: 0 | 1): boolean {
    if (isStrayReset(flow, packet, side)) return this.#drop('tcp_sequence');
    if (!flow.foreign && (flow.suspended || flow.epoch !== this.model.epoch)) {
      const decided = this.model.reclassify(packet, side === 1);
      const refused = refusal(decided);
      if (refused !== undefined) {
        if (OPENING.includes(flow.state)) this.#end(flow);
        else this.#suspend(flow, decided);
        return this.#refuse(decided, refused);
      }
      this.model.count('flows_rejudged', 1);
      if (flow.suspended) this.model.count('flows_resumed', 1);
      flow.suspended = false;
      flow.epoch = this.model.epoch;
      flow.word = decided;
    }
    this.#follow(flow, packet, side);
    return flow.foreign ? this.#pass('foreign') : this.#passBy(flow.word);
  }

  #suspend(flow: ModelFlow<A>, decided: number): void {
    flow.epoch = this.model.epoch;
    flow.word = decided;
    if (flow.suspended) return;
    this.model.count('flows_suspended', 1);
    if (flow.confirmed) this.model.count('flows_closed', 1);
    flow.suspended = true;
    flow.confirmed = false;
  }

  #follow(flow: ModelFlow<A>, packet: Headers<A>, side: 0 | 1): void {
    if (follow(flow, packet, side)) {
      flow.confirmed = true;
      this.model.count('flows_opened', 1);
    }
    flow.packets[side] += this.frame.segments;
    flow.bytes[side] += this.frame.length;
  }

  #begin(packet: Headers<A>, place: Place | undefined): boolean {
    const decided = this.model.classify(packet, false);
    if (packet.protocol === IPPROTO.tcp && !opensTcp(packet)) return this.#stray(packet, place, decided);
    const refused = refusal(decided);
    // At the egress hook, this packet comes from the node itself. The service plane does not inspect
    // connections of the node, so the drop reason is `node_uninspected`.
    const isOwn = refused === 'service_plane_absent' && this.frame.seen !== 'in';
    if (refused !== undefined) return this.#refuse(decided, isOwn ? 'node_uninspected' : refused);
    if (place !== undefined && !place.isAnswer && packet.part !== 'later' && !this.#open(packet, place, 0, decided))
      return this.#drop('flow_table_full');
    return this.#passBy(decided);
  }

  #stray(packet: Headers<A>, place: Place | undefined, decided: number): boolean {
    if (!this.model.pickup || packet.part === 'later') {
      if (isAudited(decided)) return this.#passBy(decided);
    }
    const refused = refusal(decided);
    const reply = refused === undefined ? 0 : this.model.classify(packet, true);
    const by = refused === undefined || refusal(reply) !== undefined ? decided : reply;
    if (!this.model.pickup || packet.part === 'later') return this.#refuse(by, 'out_of_state');
    if (refused !== undefined && by === decided) return this.#refuse(decided, refused);
    if (place !== undefined && !this.#open(packet, place, refused === undefined ? 0 : 1, by))
      return this.#drop('flow_table_full');
    return this.#passBy(by);
  }

  /**
   * Returns whether the flow table has room for one more flow. Evicts a half-open flow from a full table.
   */
  #makeRoom(): boolean {
    const { flows, flowCapacity, makesRoom } = this.model;
    if (flows.size < flowCapacity) return true;
    const halfOpen = [...flows.values()].filter(({ confirmed }) => !confirmed);
    if (halfOpen.length === 0) return false;
    this.#end(makesRoom(halfOpen));
    return true;
  }

  /**
   * Opens a flow. `side` is the side that sent the packet: 0 for the opener. `by` is the verdict word,
   * undefined for a packet from an unpoliced interface. Returns false if the flow table is full.
   */
  #open(packet: Headers<A>, place: Place, side: 0 | 1, by: number | undefined): boolean {
    if (!this.#makeRoom()) return false;
    const { icmp } = this.model.family;
    const isIcmp = packet.protocol === icmp.protocol;
    const ends = [
      { address: packet.source, port: isIcmp ? packet.icmpId : packet.sourcePort },
      { address: packet.destination, port: isIcmp ? packet.icmpId : packet.destinationPort },
    ];
    const [opener, other] = side === 0 ? ends : ends.reverse();
    if (opener === undefined || other === undefined) return false;
    const state = openingState(packet, icmp);
    const mine = (value: number): [number, number] => (side === 0 ? [value, 0] : [0, value]);
    this.model.flows.set(place.key, {
      key: place.key,
      source: opener.address,
      sourcePort: opener.port,
      destination: other.address,
      destinationPort: other.port,
      protocol: packet.protocol,
      foreign: by === undefined,
      confirmed: false,
      suspended: false,
      state,
      epoch: by === undefined ? 0 : this.model.epoch,
      word: by ?? 0,
      closed: [state === 'tcp_half_closed' && side === 0, state === 'tcp_half_closed' && side === 1],
      resetBy: side,
      acknowledged: mine(acknowledgedBy(packet)),
      awaits: [false, false],
      packets: mine(this.frame.segments),
      bytes: mine(this.frame.length),
    });
    this.model.count('half_opened', 1);
    return true;
  }

  /**
   * Returns whether the ICMP error passes because of the flow that the error quotes. Returns undefined if no
   * such flow exists: the policy must then classify the error like any other packet.
   */
  #classifyIcmpError(error: Headers<A>): boolean | undefined {
    const { icmp, readQuoted } = this.model.family;
    const quoted = readQuoted(this.frame.bytes, error);
    if (quoted === undefined || quoted.source !== error.destination) return undefined;
    const place = placeOf(quoted, icmp);
    const flow = place === undefined ? undefined : this.model.flows.get(place.key);
    if (place === undefined || flow === undefined) return undefined;
    const isOfThisEpoch = !flow.suspended && flow.epoch === this.model.epoch;
    const decided =
      isOfThisEpoch || flow.foreign ? flow.word : this.model.reclassify(quoted, sideOf(flow, place) === 1);
    const refused = flow.foreign ? undefined : refusal(decided);
    if (refused !== undefined) return this.#refuse(decided, refused);
    this.model.count('icmp_related', 1);
    return flow.foreign ? this.#pass('foreign') : this.#passBy(decided);
  }

  #hasLoopback({ source, destination }: Headers<A>): boolean {
    const { isLoopback } = this.model.family;
    return isLoopback(source) || isLoopback(destination);
  }

  #followForeign(counter: string): boolean {
    const { bytes, length, merged } = this.frame;
    const packet = this.model.family.readHeaders(bytes, length, merged);
    if (typeof packet === 'string' || packet.part === 'later' || this.#hasLoopback(packet)) return this.#leave(counter);
    const place = placeOf(packet, this.model.family.icmp);
    if (place !== undefined) {
      const flow = this.#find(place, packet);
      if (flow === undefined) {
        if (!place.isAnswer) this.#open(packet, place, 0, undefined);
      } else if (flow.foreign || sideOf(flow, place) === 1) {
        const side = sideOf(flow, place);
        if (!flow.suspended && !isStrayReset(flow, packet, side)) this.#follow(flow, packet, side);
      }
    }
    return this.#leave(counter);
  }

  #count(name: string): void {
    this.model.count(name, this.frame.segments);
  }

  #leave(counter: string): boolean {
    this.#count(counter);
    return true;
  }

  #pass(counter: string): boolean {
    this.#mark |= GUARD_BIT;
    return this.#leave(counter);
  }

  #passBy(decided: number): boolean {
    this.#word = decided;
    return this.#pass(verdictOf(decided) === 'allow' ? 'allow' : 'audit');
  }

  #drop(reason: DropReason): boolean {
    this.#count(`drop_${reason}`);
    return false;
  }

  #refuse(decided: number, reason: DropReason): boolean {
    this.#word = decided;
    return this.#drop(reason);
  }
}

/** The states of a flow that never was established. Such a flow ends when a later policy refuses it. */
const OPENING: readonly FlowState[] = ['tcp_syn_sent', 'tcp_syn_received', 'udp_opened', 'icmp_opened', 'other_opened'];

function isStanding(flow: ModelFlow<Address>): boolean {
  return flow.state === 'tcp_established' || flow.state === 'tcp_half_closed';
}

function sideOf(flow: ModelFlow<Address>, place: Place): 0 | 1 {
  return place.sender === `${flow.source}:${flow.sourcePort}` ? 0 : 1;
}
