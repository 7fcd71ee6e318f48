import { z } from 'zod';
import { protocolName } from '#cli/observe/flow-words.js';
import type { Style } from '#cli/output/style.js';
import { addressText } from '#contracts/analysis/address-text.js';
import type { DiffCause } from '#contracts/analysis/diff-effect.js';
import type {
  FlowCondition,
  FlowDecider,
  FlowExample,
  FlowRegion,
  ServiceSet,
} from '#contracts/analysis/flow-region.js';
import type { DiffRegion, LookupChange, PolicyDiff } from '#contracts/analysis/policy-diff.js';
import { impactLines } from './impact-text.js';

/**
 * The response of the node to a comparison. The schema checks only what every version of the node responds;
 * the type describes the rest.
 */
export const diffSchema = z
  .looseObject({ verdict: z.string(), summary: z.string(), regions: z.array(z.looseObject({})) })
  .transform((diff) => diff as unknown as PolicyDiff);

/** The maximum number of causes that the text shows without `all`. */
const SHOWN = 10;

/**
 * Returns what a change does to flows as text: one sentence, the notices, and the largest region (set of
 * flows) that each cause opens or closes, and the seen flows that change. With `all`, shows every region,
 * lookup and seen flow of the response.
 */
export function flowDifferenceText(diff: PolicyDiff, style: Style, { all = false } = {}): string {
  const blocks = all
    ? diff.regions.map((region) => [region])
    : blocksOf(diff.regions.filter(({ effect }) => effect === 'opens' || effect === 'closes'));
  const shown = all ? blocks : blocks.slice(0, SHOWN);
  const others = blocks.length - shown.length;
  // Show less per region (set of flows) if there are notices, so that the output for a typical edit has at
  // most five lines.
  const ofOne = all || diff.notices.length < 2 ? 3 : 2;
  const lines = [
    diff.summary,
    ...diff.notices.map(({ text }) => style.warn(`note: ${text}`)),
    ...shown.flatMap((regions, at) =>
      blockLines(regions, style, all || blocks.length === 1 ? ofOne : at === 0 ? 2 : 1),
    ),
    ...(others > 0 ? [`and the effects of ${others} more causes`] : []),
    ...(all ? diff.lookups.map((change) => lookupLine(change, style)) : []),
    ...impactLines(diff, style, all),
  ];
  return lines.map((line) => `${line}\n`).join('');
}

const EFFECT = { opens: 'opens', closes: 'closes', inspection: 'inspection', audit: 'reports' } as const;

/** Groups regions (sets of flows) by effect, cause and IP family. */
function blocksOf(regions: readonly DiffRegion[]): DiffRegion[][] {
  const found = new Map<string, DiffRegion[]>();
  for (const region of regions) {
    const isIpv6 = region.example.src.includes(':');
    const key = `${region.effect} ${isIpv6} ${JSON.stringify(region.cause)}`;
    const known = found.get(key);
    if (known === undefined) found.set(key, [region]);
    else known.push(region);
  }
  return [...found.values()];
}

/**
 * Returns one, two or three lines about regions (sets of flows): the largest region, why it changes, and an
 * example.
 */
function blockLines(regions: readonly DiffRegion[], style: Style, lines: 1 | 2 | 3): string[] {
  const [first] = regions;
  if (first === undefined) return [];
  const { effect, before, after, cause, flows } = first;
  const paint = effect === 'opens' ? style.good : effect === 'closes' ? style.bad : style.warn;
  const others = regions.length - 1;
  const more = others === 0 ? '' : others === 1 ? ' and 1 more region' : ` and ${others} more regions`;
  const why = cause === null ? '' : `${causeText(cause)}: `;
  return [
    `${paint(EFFECT[effect])} ${flowsText(first)}${more}${lines === 1 && cause !== null ? ` (${causeText(cause)})` : ''}`,
    `  ${why}before ${decidedText(before)}, now ${decidedText(after)}   ${countText(flows)}`,
    `  ${style.dim(explainCommand(first.example))}`,
  ].slice(0, lines);
}

const PARTS = { rule: '', group: 'group ', group_default: 'default of ', policy_default: 'default_policy' } as const;

function causeText({ part, change, source_group: group, rule }: DiffCause): string {
  const name = [group, rule].filter((id) => id !== null).join('/');
  return `${PARTS[part]}${name} ${change === 'sources' ? 'has other sources' : change}`;
}

type Flows = Omit<FlowRegion, 'flows' | 'example'>;

/**
 * Returns the flows of a region (set of flows) as text, such as `10.1.0.0/24 → any except 10.0.0.0/8 tcp/22`.
 */
export function flowsText({ sources, destinations, services, source_ports: ports, conditions, unless }: Flows): string {
  const from = ports.length === 0 ? '' : ` from port ${ports.join(',')}`;
  const when = conditions.length === 0 ? '' : `, if ${conditions.map(conditionText).join(' and ')}`;
  const [exception] = unless;
  const but =
    exception === undefined
      ? ''
      : `, unless ${exception.map(conditionText).join(' and ')}${unless.length > 1 ? ` (and ${unless.length - 1} more)` : ''}`;
  const service = servicesText(services);
  return `${addressText(sources)} → ${addressText(destinations)}${service === 'any' ? '' : ` ${service}`}${from}${when}${but}`;
}

function servicesText({ services, except, omitted }: ServiceSet): string {
  const more = omitted > 0 ? ` and ${omitted} more` : '';
  const list = services.join(',');
  return except.length === 0 ? `${list}${more}` : `any protocol except ${except.join(',')}${more}`;
}

function conditionText(condition: FlowCondition): string {
  switch (condition.kind) {
    case 'hostname':
      return `the destination is granted for ${condition.pattern}`;
    case 'selected':
      return `the source is selected by ${JSON.stringify(condition.selector)}`;
    case 'unresolved':
      return `the selector ${JSON.stringify(condition.selector)} is not resolved`;
    case 'deny_only':
      return 'the source is deny-only';
    case 'tls':
      return `TLS ${condition.state === 'hidden' ? 'hides the certificate for' : condition.state === 'matches' ? 'matches' : 'may match'} ${JSON.stringify(condition.tls)}`;
  }
}

/** Returns the decider as text, such as `office/ssh (allow)`. */
export function decidedText({
  decision,
  mode,
  source_group: group,
  rule,
  ...more
}: FlowDecider & { readonly inspected?: boolean }): string {
  const name = group === null ? 'default_policy' : rule === null ? `default of ${group}` : `${group}/${rule}`;
  return `${name} (${decision}${mode === 'audit' ? ', audit' : ''}${more.inspected === true ? ', inspected' : ''})`;
}

function lookupLine({ effect, sources, names, before, after }: LookupChange, style: Style): string {
  const paint = effect === 'opens' ? style.good : effect === 'closes' ? style.bad : style.warn;
  return `${paint(effect)} lookup of ${names} by ${addressText(sources)}: before ${before.decision}, now ${after.decision}`;
}

/** Returns the command that explains a flow. */
export function explainCommand({ src, dst, proto, src_port, dst_port, icmp_type, hostname }: FlowExample): string {
  return [
    `weir policy explain --src ${src} --dst ${dst} --proto ${protocolName(proto)}`,
    ...(dst_port === undefined ? [] : [`--dst-port ${dst_port}`]),
    ...(src_port === undefined || src_port === 40_000 ? [] : [`--src-port ${src_port}`]),
    ...(icmp_type === undefined ? [] : [`--icmp-type ${icmp_type}`]),
    ...(hostname === undefined ? [] : [`--hostname ${hostname}`]),
  ].join(' ');
}

/** Returns a number of flows in few digits, such as `16.8 million flows`. */
export function countText(flows: string): string {
  const count = Number(flows);
  if (count === 1) return '1 flow';
  for (const [word, size] of SIZES)
    if (count >= 1_000 * size && word === SIZES[0][0]) return `${count.toExponential(1).replace('e+', 'e')} flows`;
    else if (count >= size) return `${(count / size).toPrecision(3)} ${word} flows`;
  return `${flows} flows`;
}

const SIZES = [
  ['trillion', 1e12],
  ['billion', 1e9],
  ['million', 1e6],
] as const;
