import type { AddressSpace } from '#analysis/engine/address-space.js';
import type { Cause } from '#analysis/engine/alignment.js';
import { type Compared, compare, type Region } from '#analysis/engine/comparison.js';
import { DeciderFinder } from '#analysis/engine/decider.js';
import { type Change, passes } from '#analysis/engine/decision-lists.js';
import { type LostRule, lostRules } from '#analysis/lint/lost-rules.js';
import type { SeenByNode } from '#contracts/analysis/analysis.js';
import type { DiffCause, DiffEffect } from '#contracts/analysis/diff-effect.js';
import type { FlowCondition } from '#contracts/analysis/flow-region.js';
import type { CauseCount, DiffNotice, DiffRegion, DiffVerdict, PolicyDiff } from '#contracts/analysis/policy-diff.js';
import type { Policy } from '#contracts/policy/policy-model.js';
import { addressSet, isEverything } from './address-set.js';
import { deciderText } from './ask.js';
import { deciderName } from './decider-name.js';
import { exampleOf } from './example-flow.js';
import { flowCount, flowRegion } from './flow-region.js';
import { policyImpact } from './impact.js';
import { inTurn } from './in-turn.js';
import { lookupChanges } from './lookup-changes.js';
import { summaryOf } from './summary.js';

export type DiffOptions = {
  /** The families of the flows that the answer is about. */
  readonly spaces: readonly AddressSpace[];
  /** The maximum number of regions in the answer. */
  readonly limit: number;
  readonly steps: number;
  /** The seen flows whose change the answer tells. */
  readonly seen?: SeenByNode | undefined;
};

/** A change of a region, before it is formatted. */
type Item = {
  readonly region: Region;
  readonly change: Change;
  readonly effect: DiffEffect;
  readonly flows: bigint;
  readonly cause: Cause | null;
};

const CAUSES = 50;
const EFFECTS: readonly DiffEffect[] = ['opens', 'closes', 'inspection', 'audit'];

/** Returns what a change of a policy does to flows and lookups. */
export function policyDiff(before: Policy, after: Policy, options: DiffOptions): PolicyDiff {
  const { spaces, limit } = options;
  const compared = compare(before, after, options);
  const sorted = compared.regions.flatMap((region) => itemsOf(region, compared)).sort(byFlows);
  const items = EFFECTS.flatMap((effect) =>
    inTurn(
      sorted.filter((item) => item.effect === effect),
      spaces,
      ({ region }) => region.space,
    ),
  );
  const flows = Object.fromEntries(
    EFFECTS.map((effect) => [effect, sum(items.filter((item) => item.effect === effect)).toString()]),
  );
  const totals = Object.fromEntries(
    EFFECTS.map((effect) => [effect, items.filter((item) => item.effect === effect).length]),
  ) as Record<DiffEffect, number>;
  const causes = causesOf(items);
  const finders = new Map(
    spaces.map((space): [AddressSpace, Finders] => [
      space,
      [new DeciderFinder(before, space, compared.conditions), new DeciderFinder(after, space, compared.conditions)],
    ]),
  );
  const regions = items.slice(0, limit).map((item) => regionOf(item, compared, finders));
  const lookups = lookupChanges(compared, spaces);
  const verdict = verdictOf(items.map(({ effect }) => effect).concat(lookups.map(({ effect }) => effect)));
  const isComplete = compared.left.length === 0;
  return {
    verdict,
    summary: summaryOf(verdict, regions, { totals, lookups, isComplete, spaces }),
    complete: isComplete,
    left: compared.left.length === 0 ? null : addressSet(compared.left),
    flows: flows as PolicyDiff['flows'],
    notices: [...noticesOf(regions, spaces), ...noticeOfLost(lostRules(before, after, compared, spaces))],
    causes: causes.slice(0, CAUSES),
    causes_omitted: Math.max(0, causes.length - CAUSES),
    regions,
    regions_omitted: items.length - regions.length,
    flows_omitted: sum(items.slice(limit)).toString(),
    lookups: lookups.slice(0, limit),
    lookups_omitted: Math.max(0, lookups.length - limit),
    ...impactOf(compared, finders, options),
  };
}

type Finders = readonly [before: DeciderFinder, after: DeciderFinder];
type FindersOf = ReadonlyMap<AddressSpace, Finders>;

function impactOf(
  compared: Compared,
  finders: FindersOf,
  { limit, seen = NOT_SEEN }: DiffOptions,
): Pick<PolicyDiff, 'impact' | 'impact_unavailable'> {
  if ('unavailable' in seen) return { impact: null, impact_unavailable: seen.unavailable };
  const causeOf = (change: Change): DiffCause | null => {
    const cause = causeOfChange(change, compared);
    return cause === null ? null : causeName(cause);
  };
  const { regions, conditions } = compared;
  const changes = [...finders].map(([space, ofSpace]) => ({
    ...{ space, conditions, finders: ofSpace },
    regions: regions.filter((region) => region.space === space),
  }));
  const isComplete = compared.left.length === 0;
  const impact = policyImpact(changes, seen.flows, { limit, node: seen.node, isComplete, effectOf, causeOf });
  return { impact, impact_unavailable: null };
}

const NOT_SEEN: SeenByNode = { unavailable: 'no flows were looked at' };

function causeOfChange({ from, to }: Change, compared: Compared): Cause | null {
  const tag = to.tag === 0 ? from.tag : to.tag;
  return tag === 0 ? null : compared.causeOf(tag);
}

function itemsOf(region: Region, compared: Compared): Item[] {
  const flows = flowCount(region);
  return statedOnce(region.changes, compared).map((change) => ({
    ...{ region, change, flows },
    effect: effectOf(change),
    cause: causeOfChange(change, compared),
  }));
}

/**
 * Leaves out changes that say the same for a source that is deny-only, or whose selector is not resolved, as
 * another change says for a selected source. Leaves out the inspection where the verdict changes too.
 */
function statedOnce(changes: readonly Change[], { conditions }: Compared): readonly Change[] {
  const opensOrCloses = changes.some((change) => effectOf(change) === 'opens' || effectOf(change) === 'closes');
  const seen = new Set<string>();
  return changes.filter((change) => {
    if (change.attribute === 'inspection' && opensOrCloses) return false;
    const others = conditions
      .describe(change.condition)
      .filter(({ kind }) => kind !== 'selected' && kind !== 'unresolved' && kind !== 'deny_only');
    const isScoped = others.length < conditions.atomsOf(change.condition).length;
    const key = JSON.stringify([change.attribute, change.from.outcome, change.to.outcome, others, isScoped]);
    const isTransitional = conditions
      .describe(change.condition)
      .some(({ kind }) => kind === 'unresolved' || kind === 'deny_only');
    if (isTransitional && seen.has(key)) return false;
    seen.add(key);
    return true;
  });
}

function effectOf({ attribute, from, to }: Change): DiffEffect {
  if (attribute === 'inspection') return 'inspection';
  if (passes(from.outcome) === passes(to.outcome)) return 'audit';
  return passes(to.outcome) ? 'opens' : 'closes';
}

function byFlows(one: Item, other: Item): number {
  return one.flows === other.flows ? 0 : one.flows > other.flows ? -1 : 1;
}

function sum(items: readonly Item[]): bigint {
  return items.reduce((total, { flows }) => total + flows, 0n);
}

function verdictOf(effects: readonly DiffEffect[]): DiffVerdict {
  const opens = effects.includes('opens');
  const closes = effects.includes('closes');
  if (opens && closes) return 'both';
  if (opens) return 'opens';
  if (closes) return 'closes';
  return effects.length === 0 ? 'equal' : 'neither';
}

function causeName(cause: Cause): DiffCause {
  return {
    part: cause.part,
    change: cause.change,
    source_group: 'group' in cause ? cause.group : null,
    rule: 'rule' in cause ? cause.rule : null,
  };
}

function causesOf(items: readonly Item[]): CauseCount[] {
  const found = new Map<string, Item[]>();
  for (const item of items) {
    if (item.cause === null) continue;
    const key = JSON.stringify(item.cause);
    const known = found.get(key);
    if (known === undefined) found.set(key, [item]);
    else known.push(item);
  }
  return [...found.values()].flatMap((own) => {
    const cause = own[0]?.cause;
    if (cause == null) return [];
    const of = (wanted: (effect: DiffEffect) => boolean) => sum(own.filter(({ effect }) => wanted(effect))).toString();
    return [
      {
        ...causeName(cause),
        opens: of((effect) => effect === 'opens'),
        closes: of((effect) => effect === 'closes'),
        others: of((effect) => effect !== 'opens' && effect !== 'closes'),
        regions: own.length,
      },
    ];
  });
}

function regionOf({ region, change, effect, flows, cause }: Item, compared: Compared, finders: FindersOf): DiffRegion {
  const { conditions } = compared;
  const [before, after] = finders.get(region.space) ?? [];
  if (before === undefined || after === undefined) throw new RangeError('a region is of no compared family');
  const flow = exampleOf(region);
  const holding = conditions.closure(conditions.atomsOf(change.condition)) ?? new Set();
  return {
    effect,
    ...flowRegion(region, change, flows, compared),
    before: deciderName(before.decide(flow, holding)),
    after: deciderName(after.decide(flow, holding)),
    cause: cause === null ? null : causeName(cause),
  };
}

/** Answers the questions that operators ask most often about a change. */
function noticesOf(regions: readonly DiffRegion[], spaces: readonly AddressSpace[]): DiffNotice[] {
  const edited = new Set(regions.flatMap(({ cause }) => (cause === null ? [] : [cause.source_group])));
  const found = new Map<DiffNotice['code'], string>();
  const note = (code: DiffNotice['code'], text: string): void => {
    if (!found.has(code)) found.set(code, text);
  };
  const wholeOf = (field: 'sources' | 'destinations', kind: FlowCondition['kind']): string | null => {
    const whole = spaces.filter((space) =>
      regions.some(
        ({ effect, conditions, [field]: addresses }) =>
          effect === 'opens' && isEverything(addresses, space) && !conditions.some((one) => one.kind === kind),
      ),
    );
    if (whole.length === 0) return null;
    return whole.length === spaces.length ? 'every' : `every ${whole.map(({ name }) => name).join()}`;
  };
  const sources = wholeOf('sources', 'selected');
  const destinations = wholeOf('destinations', 'hostname');
  if (sources !== null) note('opened_to_any_source', `flows from ${sources} source open`);
  if (destinations !== null) note('opened_to_any_destination', `flows to ${destinations} destination open`);
  for (const { effect, conditions, before, after } of regions) {
    if (effect === 'opens') {
      const name = conditions.find((condition) => condition.kind === 'hostname');
      if (name !== undefined && !conditions.some(({ kind }) => kind === 'tls'))
        note(
          'opened_by_name',
          `flows to the addresses of ${name.pattern} open, and so do flows to all other names with the same addresses`,
        );
    }
    for (const { source_group, rule } of [before, after])
      if (source_group !== null && rule !== null && !edited.has(source_group))
        note('other_group', `flows that ${source_group}/${rule} decides change, and ${source_group} was not edited`);
  }
  return [...found].map(([code, text]) => ({ code, text }));
}

/**
 * The maximum number of rules in a notice about rules that decide nothing, and of the rules that cover one.
 */
const NAMED = 3;

function noticeOfLost(lost: readonly LostRule[]): DiffNotice[] {
  const [first] = lost;
  if (first === undefined) return [];
  const { by, isNew } = first;
  const names = by
    .slice(0, NAMED)
    .map(({ group, rule }) => deciderText({ source_group: group?.id ?? null, rule: rule?.id ?? null }));
  const others = by.length - names.length;
  const covers = `${names.join(' and ')}${others > 0 ? ` and ${others} more` : ''}`;
  const why = by.length === 0 ? '' : `: ${covers} ${by.length === 1 ? 'decides' : 'decide'} all its flows`;
  const more = lost.length === 1 ? '' : `; ${lost.length - 1} more such ${lost.length === 2 ? 'rule' : 'rules'}`;
  const name = deciderText({ source_group: first.group.id, rule: first.rule.id });
  const what = isNew ? `no flow reaches the new rule ${name}` : `no flow reaches ${name} any more`;
  return [{ code: 'unreachable_rule', text: `${what}${why}${more}` }];
}
