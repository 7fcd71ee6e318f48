import { formatAddress } from '#addresses/ip-address.js';
import { type OwnerChange, type OwnerName, ownerText } from '#contracts/kubernetes/address-owner.js';
import { type Membership, NO_MEMBERSHIP } from '#contracts/kubernetes/membership.js';
import type { ExplainNode, UnforwardedReason } from '#contracts/policy/explain-facts.js';
import type { KubernetesSource, TlsMatchConfig } from '#contracts/policy/policy-document.js';
import type {
  Action,
  Address,
  Grants,
  Group,
  Mode,
  Packet,
  Policy,
  Rule,
  Verdict,
} from '#contracts/policy/policy-model.js';
import type { Decider } from '#contracts/policy/rule-names.js';
import { decidingMatcher } from '#policy/evaluate/connection/http-block.js';
import { matchTlsBlock } from '#policy/evaluate/connection/tls-block.js';
import { evaluate } from '#policy/evaluate/evaluate.js';
import { evaluateLookup, type LookupMismatch, lookupMismatch } from '#policy/evaluate/lookup/evaluate-lookup.js';
import { type Mismatch, mismatch } from '#policy/evaluate/mismatch.js';
import { matchesHostname } from '#policy/model/names/hostname.js';
import type { RankOwner } from '#policy/model/rules/rank.js';
import { areResolved, isInScope, ruleScopeOf, selectorFor } from '#policy/model/sources/rule-scope.js';
import { type ConnectionFacts, causeText, explainConnection, factsOf, requestOf } from './explain-connection.js';
import { explainTranslated } from './explain-translated.js';
import { protocolText } from './listing.js';
import { decideByNode, decideUnforwarded, NO_NODE, type NodeDecision, nodeEffects } from './node-effects.js';

/**
 * The subject of an explain request: a packet or a DNS lookup. `hostname`: the explanation assumes that the
 * destination of the packet has a grant for this name. `owners`: the Kubernetes objects that own the
 * addresses.
 */
export type ExplainQuery = { readonly owners?: readonly OwnerChange[] } & (
  | {
      readonly packet: Packet;
      readonly hostname?: string | undefined;
      /**
       * Whether the request omits the source port, so that `packet` contains an assumed port. If the decision
       * depends on the source port, the explanation lists `src_port` as unknown.
       */
      readonly sourcePortAssumed?: boolean;
      readonly connection?: ConnectionFacts;
      /**
       * The name of the interface on which the packet arrives; undefined if the request omits the interface.
       */
      readonly ingress?: string | undefined;
      readonly node?: ExplainNode;
      /**
       * The packet with its real destination, if the node translates it (D17b), and the state of the node for
       * this packet.
       */
      readonly real?: { readonly packet: Packet; readonly node: ExplainNode } | undefined;
    }
  | {
      readonly source: Address;
      readonly query: string;
      /** Why the DNS proxy of the node answers the lookup itself. Null or omitted: the policy decides it. */
      readonly unforwarded?: UnforwardedReason | null;
    }
);

export type PacketQuery = Extract<ExplainQuery, { packet: Packet }>;

export type Explanation = {
  readonly decision: 'allow' | 'deny';
  readonly effective_action: 'allow' | 'deny';
  readonly mode: Mode;
  /**
   * The id of the group that decided; null if the policy default decided. `rule` is null if the default of
   * the policy or of a group decided.
   */
  readonly source_group: string | null;
  readonly rule: string | null;
  readonly reason: string;
  /**
   * The Kubernetes objects that own the addresses; null for an address without an owner. `destination`: the
   * owner of the destination address after DNAT, which the rules see; null for a lookup.
   */
  readonly owners: { readonly source: OwnerName | null; readonly destination: OwnerName | null };
  /**
   * The first selector of the deciding group that selects the source; null if no selector selects it, or if
   * no group decided.
   */
  readonly selected_by: KubernetesSource | null;
  /** The steps of the evaluation in order. The last step is the step that decided. */
  readonly walk: readonly WalkStep[];
  /** The number of evaluation steps that are omitted just before the last one. */
  readonly walk_omitted: number;
  /**
   * The names of properties that the request omits and that can change the decision. `grants` means that the
   * node does not know which addresses hostname patterns match.
   */
  readonly unknown: readonly string[];
};

/**
 * `enforced_instead`: the generation that the kernel enforces instead of the active policy. Null if the
 * active policy is in force, and for a draft. `reply_to`: the first packet of the flow in which the denied
 * packet would be a reply, if the policy can allow that flow; otherwise null. Replies of an allowed flow
 * pass.
 */
export type Explained = Explanation & {
  readonly enforced_instead: number | null;
  readonly reply_to: Packet | null;
};

type WalkStep = {
  /** The id of the group in this step; null for the default of the policy. */
  readonly source_group: string | null;
  /**
   * The id of the rule in this step. Null for a default, and for a group that does not contain the source.
   */
  readonly rule: string | null;
  readonly matched: boolean;
  readonly why: string;
};

/** `steps`: the maximum number of evaluation steps that an explanation lists. */
type ExplainOptions = { readonly steps?: number; readonly membership?: Membership };
type ExplainContext = {
  readonly policy: Policy;
  readonly ownerOf: (address: Address) => OwnerName | null;
} & Required<ExplainOptions>;
type Decision = Omit<Explanation, 'owners'>;

/**
 * Explains how the policy decides the packet or DNS lookup. Names in `query` must be in lower case, without a
 * final dot.
 */
export function explain(
  policy: Policy,
  query: ExplainQuery,
  { steps = 1_000, membership = NO_MEMBERSHIP }: ExplainOptions = {},
): Explanation {
  const ownerOf = (address: Address) => query.owners?.find((known) => known.address === address)?.owner ?? null;
  const context: ExplainContext = { policy, steps, membership, ownerOf };
  if ('packet' in query) {
    return explainTranslated(query, (asked) => {
      const found = decideByNode(asked.packet, asked.ingress, asked.node ?? NO_NODE);
      const { source, destination } = asked.packet;
      const owners = { source: ownerOf(source), destination: ownerOf(destination) };
      return selected({ ...(found === null ? explainPacket(context, asked) : withoutWalk(found)), owners });
    });
  }
  const owners = { source: ownerOf(query.source), destination: null };
  if (query.unforwarded != null) return { ...withoutWalk(decideUnforwarded(query.unforwarded)), owners };
  const { place, verdict } = evaluateLookup(policy, query.source, query.query, membership);
  const decision = explanation(context, place, verdict, query.source, (rule) => {
    const found = lookupMismatch(rule, query.query);
    return found === undefined ? 'it decides lookups of this name' : lookupSentence(found, rule, query.query);
  });
  return selected({ ...decision, owners });
}

/**
 * Use the integration of the selector in the name of the source, because two integrations can contain the
 * same object.
 */
function selected(explanation: Explanation): Explanation {
  const { selected_by: by, owners } = explanation;
  if (by === null || owners.source === null) return explanation;
  return { ...explanation, owners: { ...owners, source: { ...owners.source, integration: by.integration } } };
}

function withoutWalk({ decision, reason, mode, group, rule, unknown }: NodeDecision): Decision {
  return {
    ...{ decision: mode === 'audit' ? 'deny' : decision, effective_action: decision, mode, reason },
    ...{ source_group: group, rule, selected_by: null, walk: [], walk_omitted: 0, unknown },
  };
}

function explainPacket(context: ExplainContext, query: PacketQuery): Decision {
  const { policy, membership } = context;
  const { packet, hostname, connection: question = {}, node = NO_NODE } = query;
  const unknown = new Set<string>();
  const grants: Grants = {
    has: (pattern, address) => {
      if (address !== packet.destination) return false;
      if (hostname !== undefined && matchesHostname(pattern, hostname)) return true;
      if (node.granted === null) unknown.add('grants');
      return node.granted?.includes(pattern.text) === true;
    },
  };
  const { place: first, verdict: opened } = evaluate(policy, packet, grants, membership);
  const isRedirected = opened === 'redirect';
  const isOfNode = node.own.includes(packet.source) || node.own.includes(packet.destination);
  const plane = isOfNode ? 'absent' : node.plane;
  const connection = isRedirected ? explainConnection(policy, packet, grants, question, plane, membership) : null;
  const place = connection === null ? first : rankOwnerOf(policy, connection.step.decider);
  const verdict = connection?.verdict ?? opened;
  for (const member of connection?.unknown ?? []) unknown.add(member);
  const destination = addressText(context, packet.destination);
  const explained = explanation(context, place, verdict, packet.source, (rule, decides) => {
    const found = mismatch(rule, packet, grants);
    if (found !== undefined) return packetSentence(found, rule, packet, destination, hostname);
    if (rule.tls === undefined || decides) return 'all its matchers match';
    return tlsSentence(rule.tls, rule.action, question);
  });
  const effects = nodeEffects(packet, query.ingress, node);
  const assumed = query.sourcePortAssumed === true && looksAtSourcePort(context, place, packet, grants);
  if (assumed) unknown.add('src_port');
  const reasons = [
    explained.reason,
    ...(connection?.special == null ? [] : [connection.special]),
    ...(assumed ? [`source port ${packet.sourcePort} was assumed`] : []),
    ...effects.reasons,
  ];
  const passes = node.dataplane === 'absent' ? ({ effective_action: 'allow' } as const) : {};
  return { ...explained, ...passes, reason: reasons.join('; '), unknown: [...unknown, ...effects.unknown] };
}

function rankOwnerOf({ groups }: Policy, decider: Decider): RankOwner {
  if (decider.kind === 'policy_default') return decider;
  const group = groups.findIndex(({ id }) => id === decider.group);
  if (decider.kind === 'group_default') return { kind: 'group_default', group };
  return { kind: 'rule', group, rule: groups[group]?.rules.findIndex(({ id }) => id === decider.rule) ?? -1 };
}

/**
 * Returns a sentence that explains why the TLS matchers of a rule do not match. The other matchers of the
 * rule match.
 */
function tlsSentence(tls: TlsMatchConfig, action: Action, question: ConnectionFacts): string {
  const facts = factsOf(question);
  if (tls.mode === 'intercept' && facts.hello.kind === 'hello') {
    const decisive = decidingMatcher(tls.http?.request, requestOf(question), action);
    if (decisive === null) return 'its HTTP matchers match the request';
    const { matcher, view } = decisive;
    if (view === 'unreadable')
      return `its matcher request.${matcher} does not match: servers read the path in different ways`;
    const form = view === null || view === 'raw' ? 'the request' : `the ${view} form of the path`;
    return `its matcher request.${matcher} does not match ${form}`;
  }
  const match = matchTlsBlock(tls, facts);
  switch (match) {
    case 'yes':
      return 'its TLS matchers match the connection';
    case 'no':
      return 'its TLS matchers do not match the connection';
    case 'hidden':
    case 'needs_certificate':
      return 'its TLS matchers need a certificate that is not visible';
    default:
      return `its TLS matchers cannot be decided, and an allow then does not match: ${causeText(match)}`;
  }
}

/**
 * Whether the decision depends on the source port of the packet: a rule up to the deciding rule compares the
 * source port.
 */
function looksAtSourcePort(
  { policy, membership }: ExplainContext,
  place: RankOwner,
  packet: Packet,
  grants: Grants,
): boolean {
  const last = place.kind === 'policy_default' ? policy.groups.length - 1 : place.group;
  return policy.groups.slice(0, last + 1).some((group, index) => {
    const scope = ruleScopeOf(group, packet.source, membership);
    const rules = index === last && place.kind === 'rule' ? group.rules.slice(0, place.rule + 1) : group.rules;
    return rules.some((rule) => {
      if (rule.sourcePorts.length === 0 || !isInScope(scope, rule.action)) return false;
      const found = mismatch(rule, packet, grants);
      return found === undefined || found === 'source_port' || found === 'destination_port';
    });
  });
}

function explanation(
  context: ExplainContext,
  place: RankOwner,
  verdict: Verdict,
  source: Address,
  why: (rule: Rule, decides: boolean) => string,
): Decision {
  const { policy, membership } = context;
  const { walk, omitted } = walkTo(context, place, source, why);
  const group = place.kind === 'policy_default' ? undefined : policy.groups[place.group];
  const rule = place.kind === 'rule' ? group?.rules[place.rule] : undefined;
  const mode = rule?.mode ?? group?.mode ?? policy.default.mode;
  return {
    decision: verdict === 'allow' ? 'allow' : 'deny',
    effective_action: verdict === 'deny' ? 'deny' : 'allow',
    mode,
    source_group: group?.id ?? null,
    rule: rule?.id ?? null,
    reason: `${decider(policy, place, group, rule)} ${consequence(verdict)}`,
    selected_by: (group && selectorFor(group, source, membership))?.source ?? null,
    walk,
    walk_omitted: omitted,
    unknown: [],
  };
}

function decider(policy: Policy, place: RankOwner, group: Group | undefined, rule: Rule | undefined): string {
  switch (place.kind) {
    case 'rule':
      return `rule ${rule?.id} of source group ${group?.id} is the first that matches:`;
    case 'group_default':
      return `no rule matches before the default action of source group ${group?.id}:`;
    case 'policy_default':
      return policy.default.from === 'default_policy'
        ? 'no rule and no default action matches, so default_policy decides:'
        : 'no rule and no default action matches, and default_policy is not set, so policy.fallback decides:';
  }
}

function consequence(verdict: Verdict): string {
  switch (verdict) {
    case 'allow':
      return 'allowed';
    case 'deny':
      return 'denied';
    case 'audit':
      return 'denied in audit mode, so it passes and a finding is recorded';
    case 'redirect':
      throw new Error(
        'explain a packet: the datapath redirects it, and the service plane (TLS and HTTP inspection) decides its connection',
      );
  }
}

function walkTo(
  context: ExplainContext,
  place: RankOwner,
  source: Address,
  why: (rule: Rule, decides: boolean) => string,
): { walk: readonly WalkStep[]; omitted: number } {
  const { policy, steps: limit, membership } = context;
  const walk: WalkStep[] = [];
  let omitted = 0;
  const pass = (source_group: string, rule: string | null, reason: () => string): void => {
    if (walk.length + 1 < limit) walk.push({ source_group, rule, matched: false, why: reason() });
    else omitted += 1;
  };
  const finish = (source_group: string | null, rule: string | null, reason: string) => {
    walk.push({ source_group, rule, matched: true, why: reason });
    return { walk, omitted };
  };
  for (const [index, group] of policy.groups.entries()) {
    const scope = ruleScopeOf(group, source, membership);
    if (scope === null) {
      pass(group.id, null, () => `source ${addressText(context, source)} is not among its sources`);
      continue;
    }
    const decides = place.kind !== 'policy_default' && place.group === index;
    for (const [number, rule] of group.rules.entries()) {
      if (decides && place.kind === 'rule' && place.rule === number) return finish(group.id, rule.id, why(rule, true));
      pass(group.id, rule.id, () =>
        isInScope(scope, rule.action) ? why(rule, false) : onlyDenies(group, source, membership),
      );
    }
    if (decides)
      return finish(group.id, null, `no rule of the group matches, and its default action is ${group.defaultAction}`);
    if (group.rules.length === 0) pass(group.id, null, () => 'it has neither rules nor a default action');
  }
  return finish(null, null, `no group decides, and the default is ${policy.default.action}`);
}

function onlyDenies({ selectors }: Group, source: Address, { resolution, members }: Membership): string {
  if (!areResolved(selectors, resolution))
    return 'the selectors of its group were never resolved, so it allows nothing from this source';
  return members.setOf(source) === undefined
    ? 'no object owns this source in a network of pods, so it allows nothing from this source'
    : 'no selector can be decided for the owner of this source, so it allows nothing from this source';
}

/** Returns an address with its Kubernetes object, such as `10.244.1.7 (pod shop/web-5d4f of prod)`. */
function addressText({ ownerOf }: ExplainContext, address: Address): string {
  const owner = ownerOf(address);
  return owner === null ? formatAddress(address) : `${formatAddress(address)} (${ownerText(owner)})`;
}

function packetSentence(
  found: Mismatch,
  rule: Rule,
  packet: Packet,
  destination: string,
  hostname: string | undefined,
): string {
  switch (found) {
    case 'destination':
      return `destination ${destination} is not among its destinations`;
    case 'hostname':
      return hostname === undefined
        ? `destination ${destination} is not granted for ${rule.hostname?.text}`
        : `${hostname} does not match ${rule.hostname?.text}`;
    case 'protocol':
      return `it is for ${protocolText(Number(rule.protocol))}, and the packet is ${protocolText(packet.protocol)}`;
    case 'tls_needs_tcp':
      return `a TLS rule matches TCP only, and the packet is ${protocolText(packet.protocol)}`;
    case 'ports_need_a_protocol_with_ports':
      return `it has ports, and ${protocolText(packet.protocol)} has none`;
    case 'source_port':
      return `source port ${packet.sourcePort} is not among its source ports`;
    case 'destination_port':
      return `destination port ${packet.destinationPort} is not among its destination ports`;
    case 'icmp_needed':
      return `it has ICMP types or codes, and the packet is ${protocolText(packet.protocol)}`;
    case 'icmp_type':
      return `ICMP type ${packet.icmpType} is not among its types`;
    case 'icmp_code':
      return `ICMP code ${packet.icmpCode} is not among its codes`;
  }
}

function lookupSentence(found: LookupMismatch, rule: Rule, name: string): string {
  switch (found) {
    case 'hostname':
      return `${name} does not match ${rule.hostname?.text}`;
    case 'destination_without_hostname':
      return 'it has destinations and no hostname, so it does not decide lookups';
    case 'deny_has_other_matchers':
      return 'it denies only a part of the traffic to the name, so it does not deny the lookup';
    case 'neither_tcp_nor_udp_port_53':
      return 'it has no hostname and allows neither TCP nor UDP port 53';
  }
}
