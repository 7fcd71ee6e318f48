import { serviceText } from '#cli/observe/flow-words.js';
import { relativeTime } from '#cli/output/relative-time.js';
import type { Style } from '#cli/output/style.js';
import { visible } from '#cli/output/visible.js';
import type { PolicyDiff } from '#contracts/analysis/policy-diff.js';
import type { ImpactFlow } from '#contracts/analysis/policy-impact.js';

/** The maximum number of flows that the text shows without `all`. */
const SHOWN = 3;

/**
 * Returns lines about the recorded flows that a change affects: a sentence with the period of the record, the
 * first flows, and what is not recorded. Empty if the node has an older build and sends no such data.
 */
export function impactLines(diff: PolicyDiff, style: Style, all: boolean): string[] {
  const { impact, impact_unavailable: why } = diff as Partial<PolicyDiff>;
  if (diff.verdict === 'equal' || impact === undefined) return [];
  if (impact === null) return [style.dim(`seen flows: ${why ?? 'not known'}`)];
  const shown = all ? impact.flows : impact.flows.slice(0, SHOWN);
  const others = impact.flows.length - shown.length + impact.flows_omitted;
  const { events_lost: lost, events_not_recorded: left, folded } = impact.coverage;
  const limits = [
    ...(lost > 0 ? [`${counted(lost, 'event')} lost`] : []),
    ...(left > 0 ? [`${counted(left, 'event')} not recorded`] : []),
    ...(folded > 0 ? [`${counted(folded, 'row')} for several flows each`] : []),
  ];
  return [
    `${style.bold('seen')}: ${impact.summary}`,
    ...shown.map((flow) => flowLine(flow, style)),
    ...(others > 0 ? [`  and ${counted(others, 'more flow')}`] : []),
    ...(limits.length === 0 ? [] : [style.dim(`  record of ${impact.node}: ${limits.join(', ')}`)]),
  ];
}

const counted = (count: number, what: string): string =>
  `${count.toLocaleString('en-US')} ${what}${count === 1 ? '' : 's'}`;

const EFFECTS = { closes: 'close', opens: 'open', inspection: 'inspect otherwise', audit: 'report otherwise' } as const;

function flowLine(flow: ImpactFlow, style: Style): string {
  const { effect, depends, src_ip: from, dst_ip: to, hostname } = flow;
  const paint = effect === 'opens' ? style.good : effect === 'closes' ? style.bad : style.warn;
  const destination = hostname === null ? to : `${visible(hostname)} (${to})`;
  const times = effect === 'opens' ? counted(flow.denied, 'attempt') : counted(flow.connections, 'connection');
  return `  ${paint(`${depends ? 'may ' : ''}${EFFECTS[effect]}`)} ${from} → ${destination} ${serviceText(flow)}   ${times}, last ${relativeTime(flow.last_seen)}`;
}
