import { expect, test } from 'vitest';
import { styleOf } from '#cli/output/style.js';
import { visible } from '#cli/output/visible.js';
import { impactLines } from '#cli/policy/impact-text.js';
import type { PolicyDiff } from '#contracts/analysis/policy-diff.js';
import type { ImpactFlow, PolicyImpact } from '#contracts/analysis/policy-impact.js';
import { clockAt } from './cli-run.js';

const flow = {
  ...{ effect: 'closes', depends: false, folded: false, src_ip: '10.0.0.7', dst_ip: '192.0.2.1', hostname: null },
  ...{ proto: 6, dst_port: 443, icmp_type: null, icmp_code: null, connections: 1_204, denied: 2 },
  last_seen: '2026-02-05T19:55:00.000Z',
} as ImpactFlow;
const coverage = { events_lost: 0, events_not_recorded: 0, folded: 0 } as PolicyImpact['coverage'];
const impact = {
  node: 'a',
  summary: 'closes 1 flow',
  coverage,
  flows: [flow],
  flows_omitted: 0,
} as Partial<PolicyImpact> as PolicyImpact;
const linesOf = (given: Partial<PolicyDiff>, all = false): string[] =>
  impactLines({ verdict: 'closes', ...given } as PolicyDiff, styleOf({ colours: false }), all);

test('the text of a policy diff shows up to three recorded flows that change, with service, count and time, and the number of further ones', () => {
  clockAt('2026-02-05T20:00:00Z');
  const named = { ...flow, effect: 'opens', depends: true, hostname: 'a\u001b[2J.example', denied: 1 } as const;
  const ping = { ...flow, proto: 1, dst_port: null, icmp_type: 8, icmp_code: 0 };
  const folded = { ...flow, folded: true, dst_ip: '192.0.0.0/16', dst_port: null };
  const six = { src_ip: '2001:db8:0:1::/64', dst_ip: '2001:db8:f::1' };
  const of = (flows: readonly ImpactFlow[]) => ({ impact: { ...impact, flows, flows_omitted: 4 } });
  expect(linesOf(of([flow, named, ping, folded]))).toEqual([
    'seen: closes 1 flow',
    '  close 10.0.0.7 → 192.0.2.1 tcp/443   1,204 connections, last 5 min ago',
    `  may open 10.0.0.7 → ${visible('a\u001b[2J.example')} (192.0.2.1) tcp/443   1 attempt, last 5 min ago`,
    '  close 10.0.0.7 → 192.0.2.1 icmp/8   1,204 connections, last 5 min ago',
    '  and 5 more flows',
  ]);
  const others = [folded, { ...folded, ...six }, { ...ping, ...six, proto: 58, icmp_type: 128 }];
  expect(linesOf(of([flow, named, ping, ...others]), true).slice(4)).toEqual([
    '  close 10.0.0.7 → 192.0.0.0/16 tcp   1,204 connections, last 5 min ago',
    '  close 2001:db8:0:1::/64 → 2001:db8:f::1 tcp   1,204 connections, last 5 min ago',
    '  close 2001:db8:0:1::/64 → 2001:db8:f::1 icmpv6/128   1,204 connections, last 5 min ago',
    '  and 4 more flows',
  ]);
});

test('the text of a policy diff says which recorded flows are missing, or why no flows are recorded', () => {
  const lacking = { ...coverage, events_lost: 412, events_not_recorded: 1, folded: 2 };
  expect(linesOf({ impact: { ...impact, flows: [], coverage: lacking } })).toEqual([
    'seen: closes 1 flow',
    '  record of a: 412 events lost, 1 event not recorded, 2 rows for several flows each',
  ]);
  expect(linesOf({ impact: null, impact_unavailable: 'this node records no flows' })).toEqual([
    'seen flows: this node records no flows',
  ]);
  // A node of an older version.
  expect(linesOf({})).toEqual([]);
  expect(linesOf({ verdict: 'equal', impact })).toEqual([]);
});
