import type { DiffEffect } from '#contracts/analysis/diff-effect.js';
import type { ImpactCount } from '#contracts/analysis/policy-impact.js';
import type { SeenCoverage } from '#contracts/analysis/seen-flows.js';

type Effects = Readonly<Record<DiffEffect, ImpactCount & { readonly depends: ImpactCount }>>;

const PARTS: readonly {
  readonly effect: DiffEffect;
  readonly certain: (flows: string) => string;
  readonly possible: (flows: string) => string;
  readonly counted: readonly [one: string, many: string];
}[] = [
  {
    effect: 'closes',
    certain: (flows) => `closes ${flows}`,
    possible: (flows) => `may close ${flows}`,
    counted: ['connection', 'connections'],
  },
  {
    effect: 'opens',
    certain: (flows) => `opens ${flows}`,
    possible: (flows) => `may open ${flows}`,
    counted: ['attempt', 'attempts'],
  },
  {
    effect: 'inspection',
    certain: (flows) => `changes the inspection of ${flows}`,
    possible: (flows) => `may change the inspection of ${flows}`,
    counted: ['connection', 'connections'],
  },
  {
    effect: 'audit',
    certain: (flows) => `reports ${flows} otherwise`,
    possible: (flows) => `may report ${flows} otherwise`,
    counted: ['connection', 'connections'],
  },
];

/**
 * Returns one sentence, such as "closes 3 flows seen in the last 2 days (1,204 connections)". The sentence
 * always contains the period of the record.
 */
export function impactSummary(effects: Effects, coverage: SeenCoverage, isComplete: boolean): string {
  const { sinceS, deniedSinceS, untilS, recordedS, isRecording } = coverage;
  const spanS = untilS - Math.max(sinceS, deniedSinceS);
  const period = `the last ${durationText(spanS)}`;
  const parts = PARTS.flatMap(({ effect, certain, possible, counted }) => {
    const { depends, ...sure } = effects[effect];
    return [
      ...(sure.flows > 0 ? [{ text: certain, count: sure, counted }] : []),
      ...(depends.flows > 0 ? [{ text: possible, count: depends, counted }] : []),
    ];
  });
  const [first, ...others] = parts.map(
    ({ text, count: { flows, connections }, counted: [one, many] }, at) =>
      `${text(counted(flows, 'flow', 'flows'))}${at === 0 ? ` seen in ${period}` : ''} (${counted(connections, one, many)})`,
  );
  const said = first === undefined ? `no flow seen in ${period} changes` : [first, ...others].join(', ');
  const limits = [
    // Allow a difference of five minutes, because no flows are recorded during a restart of the node.
    ...(recordedS < spanS * 0.95 - 300 ? [`recorded were ${durationText(recordedS)} of it`] : []),
    ...(isRecording ? [] : ['flows are not recorded now, because performance mode is disabled']),
    ...(isComplete ? [] : ['the comparison is not complete']),
  ];
  return [said, ...limits].join('; ');
}

const counted = (count: number, one: string, many: string): string =>
  `${count.toLocaleString('en-US')} ${count === 1 ? one : many}`;

const UNITS: readonly (readonly [seconds: number, one: string, many: string])[] = [
  [86_400, 'day', 'days'],
  [3_600, 'hour', 'hours'],
  [60, 'minute', 'minutes'],
  [1, 'second', 'seconds'],
];

/** Returns a duration in whole units, such as "2 days". Rounds down. */
function durationText(seconds: number): string {
  const [size, one, many] = UNITS.find(([unit]) => seconds >= 2 * unit) ?? [1, 'second', 'seconds'];
  return counted(Math.max(0, Math.floor(seconds / size)), one, many);
}
