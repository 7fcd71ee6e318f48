import { formatPrefix, parseCidr } from '#addresses/ip-address.js';
import { type AddressSpace, type FamilySpans, joinedFamilies, spansOf } from '#analysis/engine/address-space.js';
import { type Compared, compare, type Region } from '#analysis/engine/comparison.js';
import { type Change, type Entry, passes } from '#analysis/engine/decision-lists.js';
import { addressText } from '#contracts/analysis/address-text.js';
import type {
  AskAnswer,
  DecidedRegion,
  FlowAnswer,
  FlowQuestion,
  Obstacle,
  Remedy,
} from '#contracts/analysis/flow-question.js';
import type { AddressSet, FlowDecider } from '#contracts/analysis/flow-region.js';
import type { Group, Policy } from '#contracts/policy/policy-model.js';
import { addressSet } from './address-set.js';
import { flowCount, flowRegion } from './flow-region.js';
import { inTurn } from './in-turn.js';
import { type QuestionProblem, type ReadQuestion, readQuestion } from './question.js';
import { serviceText } from './service-set.js';

export type AskOptions = {
  /** The families of the flows that the answer is about. */
  readonly spaces: readonly AddressSpace[];
  readonly limit: number;
  readonly steps: number;
};

const OBSTACLES = 5;

/**
 * Answers whether flows pass: never, always or sometimes. Returns the problems of a question that is not
 * valid.
 */
export function askPolicy(
  policy: Policy,
  asked: FlowQuestion,
  options: AskOptions,
): AskAnswer | readonly QuestionProblem[] {
  const { spaces, limit, steps } = options;
  const read = readQuestion(asked, policy, spaces);
  if (!('questions' in read)) return read;
  const passing = flowsThat('pass', policy, read, { spaces, steps });
  const denied = flowsThat('are_denied', policy, read, { spaces, steps });
  const left = [passing, denied].map(({ compared }) => compared.left).find(({ length }) => length > 0);
  const isComplete = left === undefined;
  // Sources that were not compared can have flows of either kind.
  const isNone = ({ parts, compared }: Side) => parts.length === 0 && compared.left.length === 0;
  const answer: FlowAnswer = isNone(passing) ? 'never' : isNone(denied) ? 'always' : 'sometimes';
  const list = ({ parts, compared }: Side) => parts.slice(0, limit).map((part) => formatted(part, compared));
  const sources = sourcesOf(passing.parts, spaces);
  const passingSources = sources.length === 0 ? null : addressSet(sources);
  return {
    answer,
    summary: summaryOf(answer, asked, { passing, denied, passingSources, isComplete }),
    complete: isComplete,
    left: left === undefined ? null : addressSet(left),
    flows: { passing: total(passing.parts), denied: total(denied.parts) },
    passing: list(passing),
    passing_omitted: Math.max(0, passing.parts.length - limit),
    passing_sources: passingSources,
    denied: list(denied),
    denied_omitted: Math.max(0, denied.parts.length - limit),
    obstacles: obstaclesOf(denied.parts, policy, asked, spaces),
  };
}

/** Returns the sources of parts of an answer, for each family that has some. */
function sourcesOf(parts: readonly Part[], spaces: readonly AddressSpace[]): readonly FamilySpans[] {
  const sets = parts.map(({ region: { space, sources } }) => ({ space, spans: sources }));
  return joinedFamilies(sets, spaces);
}

/**
 * Returns the flows of a question that pass, or those that are denied; the largest part of each family first.
 */
export function flowsThat(
  wanted: 'pass' | 'are_denied',
  policy: Policy,
  { questions, known }: ReadQuestion,
  { spaces, steps }: Pick<AskOptions, 'spaces' | 'steps'>,
): Side {
  const other = constant(wanted === 'pass' ? 'deny' : 'allow');
  return sideOf(compare(policy, other, { spaces, steps, questions, known, byRule: true }), wanted === 'pass', spaces);
}

const constant = (action: 'allow' | 'deny'): Policy => ({
  groups: [],
  default: { action, mode: 'enforce', from: 'fallback' },
});

/** A set of flows in the answer, before it is converted to JSON. */
export type Part = {
  readonly region: Region;
  readonly change: Change;
  readonly flows: bigint;
  readonly decider: FlowDecider;
};
export type Side = { readonly parts: readonly Part[]; readonly compared: Compared };

function sideOf(compared: Compared, isPassing: boolean, spaces: readonly AddressSpace[]): Side {
  const parts = compared.regions.flatMap((region) => {
    const flows = flowCount(region);
    return region.changes
      .filter(({ attribute, from }) => attribute === 'verdict' && passes(from.outcome) === isPassing)
      .map((change) => ({ region, change, flows, decider: deciderOf(change.from, compared) }));
  });
  parts.sort((one, other) => (one.flows < other.flows ? 1 : -1));
  return { parts: inTurn(parts, spaces, ({ region }) => region.space), compared };
}

function deciderOf({ outcome, tag }: Entry, compared: Compared): FlowDecider {
  const cause = compared.causeOf(tag);
  return {
    decision: outcome === 'allow' || outcome === 'allow_audited' ? 'allow' : 'deny',
    mode: outcome === 'audit' || outcome === 'allow_audited' ? 'audit' : 'enforce',
    source_group: 'group' in cause ? cause.group : null,
    rule: 'rule' in cause ? cause.rule : null,
  };
}

export function formatted({ region, change, flows, decider }: Part, compared: Compared): DecidedRegion {
  return { ...flowRegion(region, change, flows, compared), decider };
}

const total = (parts: readonly Part[]): string => parts.reduce((sum, { flows }) => sum + flows, 0n).toString();

/** Returns what denies the flows, the decider of most flows first. */
function obstaclesOf(
  denied: readonly Part[],
  policy: Policy,
  asked: FlowQuestion,
  spaces: readonly AddressSpace[],
): Obstacle[] {
  const found = new Map<string, { readonly decider: FlowDecider; readonly parts: Part[]; flows: bigint }>();
  for (const part of denied) {
    const key = JSON.stringify(part.decider);
    const known = found.get(key);
    if (known === undefined) {
      found.set(key, { decider: part.decider, parts: [part], flows: part.flows });
      continue;
    }
    known.flows += part.flows;
    known.parts.push(part);
  }
  return [...found.values()]
    .sort((one, other) => (one.flows < other.flows ? 1 : -1))
    .slice(0, OBSTACLES)
    .map(({ decider, parts, flows }) => ({
      decider,
      flows: flows.toString(),
      remedy:
        asked.to === undefined && asked.name === undefined
          ? null
          : remedyOf(decider, largestOf(parts, spaces), policy, asked),
    }));
}

/**
 * Returns the rule that lets the flows of an obstacle pass: before the rule that denies them, or at the end
 * of a group that contains the sources.
 */
function remedyOf(decider: FlowDecider, sources: readonly FamilySpans[], policy: Policy, asked: FlowQuestion): Remedy {
  const { to, name, proto, ports, src_ports, icmp_types } = asked;
  const match = {
    dst_cidrs: to?.map((text) => networkText(text)),
    dns_hostname: name,
    proto: proto ?? (ports === undefined && src_ports === undefined ? undefined : 'tcp'),
    dst_ports: ports,
    src_ports,
    icmp_types,
  };
  const rule = {
    id: 'allow-asked',
    action: 'allow',
    match: Object.fromEntries(Object.entries(match).filter(([, value]) => value !== undefined)),
  };
  if (decider.source_group !== null) return { source_group: decider.source_group, before: decider.rule, rule };
  const containing = policy.groups.find((group) => sources.every((some) => contains(group, some)));
  return { source_group: containing?.id ?? null, before: null, rule };
}

/** Returns the sources of the largest part of each family. */
const largestOf = (parts: readonly Part[], spaces: readonly AddressSpace[]): readonly FamilySpans[] =>
  spaces.flatMap((space) => {
    const largest = parts.find(({ region }) => region.space === space);
    return largest === undefined ? [] : { space, spans: largest.region.sources };
  });

/** Whether a group has all these addresses as sources. */
const contains = (group: Group, { space, spans }: FamilySpans): boolean =>
  spans.every(({ start, end }) => spansOf(group.sources, space).some((own) => own.start <= start && end <= own.end));

/** Returns an address or a network as a network. */
function networkText(text: string): string {
  const parsed = text.includes('/') ? undefined : parseCidr(text);
  return parsed === undefined ? text : formatPrefix(parsed.prefix);
}

type Sides = {
  readonly passing: Side;
  readonly denied: Side;
  readonly passingSources: AddressSet | null;
  readonly isComplete: boolean;
};

/** The maximum number of rules and defaults that a summary names. */
const NAMED = 2;

function summaryOf(answer: FlowAnswer, asked: FlowQuestion, sides: Sides): string {
  const { passing, denied, passingSources, isComplete } = sides;
  const end = isComplete ? '' : '; the answer is not complete';
  const none = 'there are no such flows';
  if (answer === 'always') return `always: ${decidedBy(passing, 'allow', 'them') ?? none}${end}`;
  if (answer === 'never') return `never: ${decidedBy(denied, 'deny', 'them') ?? none}${end}`;
  const [first] = passing.parts;
  if (first === undefined || denied.parts.length === 0) return `sometimes${end}`;
  const who = asked.from === undefined && passingSources !== null ? `from ${addressText(passingSources)}` : '';
  const region = formatted(first, passing.compared);
  const isOne = passing.parts.length === 1;
  const what =
    asked.to === undefined && isOne ? `to ${addressText(region.destinations)} ${serviceText(region.services)}` : '';
  const where = [who, what].filter((text) => text !== '').join(' ');
  return `sometimes: ${decidedBy(passing, 'allow', where === '' ? 'a part' : where)}; ${decidedBy(denied, 'deny', 'the rest')}${end}`;
}

/** Returns for example "lan/web and lan/dns allow them", with the decider of most flows first. */
function decidedBy({ parts }: Side, verb: 'allow' | 'deny', flows: string): string | null {
  const deciders = [...new Set(parts.map(({ decider }) => deciderText(decider)))];
  if (deciders.length === 0) return null;
  const rest = deciders.length - NAMED;
  const names = `${deciders.slice(0, NAMED).join(rest > 0 ? ', ' : ' and ')}${rest > 0 ? ` and ${rest} more` : ''}`;
  const plural = verb === 'allow' ? 'allows' : 'denies';
  return `${names} ${deciders.length === 1 ? plural : verb} ${flows}`;
}

export function deciderText({ source_group, rule }: Pick<FlowDecider, 'source_group' | 'rule'>): string {
  if (source_group === null) return 'default_policy';
  return rule === null ? `the default of ${source_group}` : `${source_group}/${rule}`;
}
