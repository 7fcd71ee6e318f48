import { expect, test } from 'vitest';
import { seedOf } from '#test/seed.js';
import { fuzz, textOf } from './fuzz/campaign.js';

/** Counters that only frames of one family can increase. */
const OF_IPV4 = ['drop_ipv6'];

test.each([
  { family: 'ipv4', frames: 300_000 },
  { family: 'ipv6', frames: 100_000 },
] as const)(
  'the datapath of $family gives random frames the same verdict, mark and flow as a TypeScript model',
  (run) => {
    const seed = seedOf(31_337);
    const { packets, counted, failure } = fuzz(run.family, run.frames, seed);
    if (failure !== undefined) expect.fail(textOf(failure));
    console.log(`differential: ${packets} packets of ${run.family}, seed ${seed}`);
    const counters = [
      'allow',
      'arp',
      'audit',
      'drop_flow_table_full',
      'drop_fragment',
      'drop_fragment_overlap',
      'drop_fragment_tiny',
      'drop_icmp_redirect',
      'drop_ipv6',
      'drop_loopback',
      'drop_malformed',
      'drop_node_uninspected',
      'drop_non_ipv4',
      'drop_out_of_state',
      'drop_policy_deny',
      'drop_service_plane_absent',
      'drop_source_route',
      'drop_tcp_flags',
      'drop_tcp_sequence',
      'drop_vlan_tagged',
      'flows_closed',
      'flows_opened',
      'flows_rejudged',
      'flows_resumed',
      'flows_suspended',
      'foreign',
      'from_node',
      'half_opened',
      'icmp_related',
      'to_node',
    ];
    expect(Object.keys(counted).sort()).toEqual(
      counters.filter((name) => run.family === 'ipv4' || !OF_IPV4.includes(name)),
    );
    expect(Math.min(...Object.values(counted))).toBeGreaterThan(run.frames / 15_000);
  },
);
