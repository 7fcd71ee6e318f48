import type { AddressSpace } from '#analysis/engine/address-space.js';
import { addressText } from '#contracts/analysis/address-text.js';
import type { DiffRegion, DiffVerdict, LookupChange } from '#contracts/analysis/policy-diff.js';
import { isEverything } from './address-set.js';
import { serviceText } from './service-set.js';

/** The verbs after one source. */
const VERB_OF_ONE: Readonly<Record<string, string>> = { gain: 'gains', lose: 'loses' };

type SummaryContext = {
  readonly totals: Total;
  readonly lookups: readonly LookupChange[];
  readonly isComplete: boolean;
  readonly spaces: readonly AddressSpace[];
};
type Total = Readonly<Record<DiffRegion['effect'], number>>;

/**
 * Returns one sentence about a change, such as "8 sources of office lose 10.3.0.0/24 tcp/445; no source
 * gains a flow". `regions`: the listed regions; `totals`: the number of all regions of each effect.
 */
export function summaryOf(
  verdict: DiffVerdict,
  regions: readonly DiffRegion[],
  { totals, lookups, isComplete, spaces }: SummaryContext,
): string {
  const part = (effect: DiffRegion['effect'], verb: string): string | null => {
    const first = regions.find((region) => region.effect === effect);
    if (first === undefined) return totals[effect] === 0 ? null : `sources ${verb} flows`;
    const more = totals[effect] === 1 ? '' : ` and ${totals[effect] - 1} more`;
    const one = first.sources.addresses === '1' ? VERB_OF_ONE[verb] : verb;
    return `${sourcesText(first, spaces)} ${one ?? verb} ${flowsText(first, spaces)}${more}`;
  };
  const end = isComplete ? '' : '; the comparison is not complete';
  if (verdict === 'equal') return isComplete ? 'every flow is decided alike' : `no change was found${end}`;
  const opens = part('opens', 'gain');
  const closes = part('closes', 'lose');
  if (opens === null && closes === null) {
    const others = part('inspection', 'are inspected otherwise for') ?? part('audit', 'are reported otherwise for');
    return (
      ['no source gains or loses a flow', ...(others === null ? [] : [others]), ...lookupsText(lookups)].join('; ') +
      end
    );
  }
  const { inspection, audit } = totals;
  const parts = [
    opens ?? 'no source gains a flow',
    closes ?? 'no source loses a flow',
    ...(inspection > 0 ? [`${regionsText(inspection)} inspected otherwise`] : []),
    ...(audit > 0 ? [`${regionsText(audit)} reported otherwise`] : []),
    ...lookupsText(lookups),
  ];
  return parts.join('; ') + end;
}

const regionsText = (count: number): string => (count === 1 ? '1 region is' : `${count} regions are`);

function lookupsText(lookups: readonly LookupChange[]): string[] {
  const [first] = lookups;
  if (first === undefined) return [];
  const verb = first.effect === 'opens' ? 'open' : first.effect === 'closes' ? 'close' : 'are reported otherwise';
  return [`lookups of ${first.names} ${verb}${lookups.length === 1 ? '' : `, and ${lookups.length - 1} more change`}`];
}

function flowsText({ destinations, services, conditions }: DiffRegion, spaces: readonly AddressSpace[]): string {
  const to = addressText(destinations);
  const with_ = serviceText(services);
  const flows =
    with_ !== 'any' ? `${to} ${with_}` : spaces.some((space) => isEverything(destinations, space)) ? 'everything' : to;
  return conditions.length === 0 ? flows : `${flows} under conditions`;
}

function sourcesText({ sources, effect, before, after, cause }: DiffRegion, spaces: readonly AddressSpace[]): string {
  const whole = spaces.find((space) => isEverything(sources, space));
  if (whole !== undefined) return spaces.length === 1 ? 'all sources' : `all ${whole.name} sources`;
  const own = effect === 'closes' ? before.source_group : after.source_group;
  const group = own ?? cause?.source_group ?? null;
  const count = sources.addresses === '1' ? '1 source' : `${thousands(sources.addresses)} sources`;
  return group === null ? count : `${count} of ${group}`;
}

const thousands = (digits: string): string => digits.replace(/\B(?=(\d{3})+$)/g, ',');
