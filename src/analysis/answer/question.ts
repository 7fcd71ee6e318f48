import { familyOf, parseCidr } from '#addresses/ip-address.js';
import { type AddressSpace, spansIn, spansOf } from '#analysis/engine/address-space.js';
import type { ConditionsOptions } from '#analysis/engine/conditions.js';
import type { Question } from '#analysis/engine/relevant-rules.js';
import { keysOf } from '#analysis/engine/rule-shape.js';
import type { FlowQuestion } from '#contracts/analysis/flow-question.js';
import {
  type Group,
  IPPROTO,
  PORT_PROTOCOLS,
  type Policy,
  type Prefix,
  type Range,
  type Rule,
} from '#contracts/policy/policy-model.js';
import { mappedFault } from '#policy/check/validation/value-validation.js';
import { parseProtocol } from '#policy/model/keywords.js';
import { canonicalName, matchesHostname } from '#policy/model/names/hostname.js';
import { parsePorts } from '#policy/model/parse-ports.js';

/** A problem of a question, with the JSON pointer of the field. */
export type QuestionProblem = { readonly pointer: string; readonly message: string };

/** A question in the form of the engine. */
export type ReadQuestion = {
  /** For each family, the flows that the question is about. */
  readonly questions: ReadonlyMap<AddressSpace, Question>;
  readonly known: NonNullable<ConditionsOptions['known']>;
};

/**
 * Reads a question about a policy. Returns the problems of a question that cannot be asked. `policy`: null to
 * find the problems that the question has for every policy. `spaces`: the families of the flows that the
 * answer is about.
 */
export function readQuestion(
  asked: FlowQuestion,
  policy: Policy | null,
  spaces: readonly AddressSpace[],
): ReadQuestion | readonly QuestionProblem[] {
  const problems: QuestionProblem[] = [];
  const named = askedGroup(asked);
  const group = named === null || policy === null ? undefined : groupNamed(policy, named);
  if (group === null)
    problems.push({ pointer: '/from/group', message: 'The policy has no source group with this id.' });
  const from = Array.isArray(asked.from) ? prefixesOf(asked.from as string[], '/from', spaces, problems) : null;
  const to = asked.to === undefined ? null : prefixesOf(asked.to, '/to', spaces, problems);
  const matchers = matchersOf(asked, problems);
  if (problems.length > 0) return problems;
  const sources = from ?? groupSources(group);
  const questions = new Map(
    spaces.map((space): [AddressSpace, Question] => [
      space,
      {
        sources: sources === null ? null : spansOf(sources, space),
        destinations: to === null ? null : spansIn(to, space),
        keys: keysOf(matchers, space),
        sourcePorts: matchers.sourcePorts.length === 0 ? null : matchers.sourcePorts,
      },
    ]),
  );
  const problem = problemOfNoFlow(questions, from);
  if (problem !== null) return [problem];
  const name = asked.name === undefined ? undefined : canonicalName(asked.name);
  const selectors = new Set(group?.selectors.map(({ key }) => key));
  return {
    questions,
    known: (atom) => {
      if (atom.kind === 'name') return name === undefined ? undefined : matchesHostname(atom.pattern, name);
      if (atom.kind === 'selected' && selectors.has(atom.key) && sources === null) return true;
      return undefined;
    },
  };
}

/** Returns the problem of a question about no flow; null if it is about some. `from`: its listed sources. */
function problemOfNoFlow(
  questions: ReadonlyMap<AddressSpace, Question>,
  from: readonly Prefix[] | null,
): QuestionProblem | null {
  const all = [...questions.values()];
  if (all.every(({ keys }) => keys?.length === 0))
    return { pointer: '/proto', message: 'No flow has this protocol together with these ports or ICMP types.' };
  const between = all.filter(
    ({ sources, destinations }) => destinations?.length !== 0 && (from === null || sources?.length !== 0),
  );
  if (between.length === 0)
    return { pointer: '/to', message: 'The sources and the destinations are of different IP families.' };
  if (between.every(({ keys }) => keys?.length === 0))
    return {
      pointer: '/proto',
      message: 'No flow between these addresses has these ICMP types: IPv4 has icmp, and IPv6 has icmpv6.',
    };
  return null;
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
function groupSources(group: Group | null | undefined): readonly Prefix[] | null {
  return group == null || group.selectors.length > 0 ? null : group.sources;
}

function prefixesOf(
  texts: readonly string[],
  pointer: string,
  spaces: readonly AddressSpace[],
  problems: QuestionProblem[],
): readonly Prefix[] {
  const prefixes = texts.flatMap((text, at) => {
    const prefix = parseCidr(text)?.prefix;
    const problem = prefix === undefined ? NO_ADDRESS : problemOfPrefix(prefix, spaces);
    if (prefix !== undefined && problem === null) return [prefix];
    problems.push({ pointer: `${pointer}/${at}`, message: problem ?? NO_ADDRESS });
    return [];
  });
  if (texts.length === 0)
    problems.push({ pointer, message: 'The list is empty. Leave the field out to ask for every value.' });
  return prefixes;
}

const NO_ADDRESS = 'This is neither an address nor a network in CIDR notation.';

/** Returns why no answer is about the addresses of a prefix; null if an answer is. */
function problemOfPrefix(prefix: Prefix, spaces: readonly AddressSpace[]): string | null {
  if (!spaces.some(({ family }) => family === familyOf(prefix.address)))
    return 'Answers about IPv6 need dataplane.ipv6: enforce in the configuration of the node.';
  return mappedFault(prefix) ?? null;
}

function matchersOf(asked: FlowQuestion, problems: QuestionProblem[]): Rule {
  const protocol = parseProtocol(asked.proto);
  if (protocol === undefined)
    problems.push({ pointer: '/proto', message: 'Must be tcp, udp, icmp, icmpv6, any, or a number.' });
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
