import type { AddressSpace, Span } from '#analysis/engine/address-space.js';
import { mergedSpans } from '#analysis/engine/address-space.js';
import type { ConditionsOptions } from '#analysis/engine/conditions.js';
import type { Question } from '#analysis/engine/relevant-rules.js';
import type { FlowQuestion } from '#contracts/analysis/flow-question.js';
import {
  type Group,
  IPPROTO,
  PORT_PROTOCOLS,
  type Policy,
  type Range,
  type Rule,
} from '#contracts/policy/policy-model.js';
import { keyRanges } from '#policy/compile/rule-blocks/key-ranges.js';
import { parseIpv4Address, parseIpv4Cidr } from '#policy/model/ip-address.js';
import { parseProtocol } from '#policy/model/keywords.js';
import { canonicalName, matchesHostname } from '#policy/model/names/hostname.js';
import { parsePorts } from '#policy/model/parse-ports.js';

/** A problem of a question, with the JSON pointer of the field. */
export type QuestionProblem = { readonly pointer: string; readonly message: string };

/** A question in the form of the engine. */
export type ReadQuestion = {
  readonly question: Question;
  readonly known: NonNullable<ConditionsOptions['known']>;
  /** The flows of the question by protocol, ports and ICMP types, as the matchers of a rule. */
  readonly matchers: Rule;
};

/**
 * Reads a question about a policy. Returns the problems of a question that cannot be asked. `policy`: null to
 * find the problems that the question has for every policy.
 */
export function readQuestion(
  asked: FlowQuestion,
  policy: Policy | null,
  space: AddressSpace,
): ReadQuestion | readonly QuestionProblem[] {
  const problems: QuestionProblem[] = [];
  const named = askedGroup(asked);
  const group = named === null || policy === null ? undefined : groupNamed(policy, named);
  if (group === null)
    problems.push({ pointer: '/from/group', message: 'The policy has no source group with this id.' });
  const sources = Array.isArray(asked.from)
    ? spansOf(asked.from as string[], '/from', space, problems)
    : groupSpans(group, space);
  const destinations = asked.to === undefined ? null : spansOf(asked.to, '/to', space, problems);
  const matchers = matchersOf(asked, problems);
  if (problems.length > 0) return problems;
  const keys = keyRanges(matchers);
  if (keys.length === 0)
    return [{ pointer: '/proto', message: 'No flow has this protocol together with these ports or ICMP types.' }];
  const name = asked.name === undefined ? undefined : canonicalName(asked.name);
  const selectors = new Set(group?.selectors.map(({ key }) => key));
  return {
    question: {
      sources,
      destinations,
      keys,
      sourcePorts: matchers.sourcePorts.length === 0 ? null : matchers.sourcePorts,
    },
    known: (atom) => {
      if (atom.kind === 'name') return name === undefined ? undefined : matchesHostname(atom.pattern, name);
      if (atom.kind === 'selected' && selectors.has(atom.key) && sources === null) return true;
      return undefined;
    },
    matchers,
  };
}

/** Returns the source group that a question names; null if it names none. */
export function askedGroup({ from }: FlowQuestion): string | null {
  return from !== undefined && 'group' in from ? from.group : null;
}

const byId = new WeakMap<readonly Group[], ReadonlyMap<string, Group>>();

/** Returns the group of a policy with an id; null if there is none. */
export function groupNamed({ groups }: Policy, id: string): Group | null {
  let known = byId.get(groups);
  if (known === undefined) {
    known = new Map(groups.map((group) => [group.id, group]));
    byId.set(groups, known);
  }
  return known.get(id) ?? null;
}

/** Returns the sources of a group; null, which means every source, if a selector can select its sources. */
function groupSpans(group: Group | null | undefined, space: AddressSpace): readonly Span[] | null {
  if (group == null || group.selectors.length > 0) return null;
  return mergedSpans(group.sources.map((prefix) => space.spanOf(prefix)));
}

function spansOf(
  texts: readonly string[],
  pointer: string,
  space: AddressSpace,
  problems: QuestionProblem[],
): readonly Span[] {
  const spans = texts.flatMap((text, at) => {
    const address = parseIpv4Address(text);
    const prefix = address === undefined ? parseIpv4Cidr(text)?.prefix : { address, length: space.bits };
    if (prefix !== undefined) return [space.spanOf(prefix)];
    problems.push({
      pointer: `${pointer}/${at}`,
      message: 'This is neither an address nor a network in CIDR notation.',
    });
    return [];
  });
  if (texts.length === 0)
    problems.push({ pointer, message: 'The list is empty. Leave the field out to ask for every value.' });
  return mergedSpans(spans);
}

function matchersOf(asked: FlowQuestion, problems: QuestionProblem[]): Rule {
  const protocol = parseProtocol(asked.proto);
  if (protocol === undefined)
    problems.push({ pointer: '/proto', message: 'Must be tcp, udp, icmp, any, or a number.' });
  const ports = (list: FlowQuestion['ports'], pointer: string): Range[] =>
    (list ?? []).flatMap((spec, at) => {
      const parsed = parsePorts(spec);
      if ('range' in parsed) return [parsed.range];
      problems.push({ pointer: `${pointer}/${at}`, message: parsed.fault });
      return [];
    });
  const destinationPorts = ports(asked.ports, '/ports');
  const sourcePorts = ports(asked.src_ports, '/src_ports');
  const hasPorts = destinationPorts.length > 0 || sourcePorts.length > 0;
  if (hasPorts && typeof protocol === 'number' && !PORT_PROTOCOLS.includes(protocol))
    problems.push({ pointer: '/proto', message: 'This protocol has no ports.' });
  return {
    id: 'asked',
    pointer: '',
    action: 'allow',
    mode: 'enforce',
    destinations: [],
    hostname: undefined,
    // A port without a protocol means TCP, as in `weir policy explain`.
    protocol: asked.proto === undefined && hasPorts ? IPPROTO.tcp : (protocol ?? 'any'),
    sourcePorts,
    destinationPorts,
    icmpTypes: asked.icmp_types ?? [],
    icmpCodes: [],
    tls: undefined,
  };
}
