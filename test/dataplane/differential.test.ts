import { expect, test } from 'vitest';
import { seedOf } from '#test/seed.js';
import { fuzz } from './fuzz/campaign.js';

const PACKETS = 300_000;

test('the datapath gives random frames the same verdict, mark and flow as a TypeScript model', () => {
  const seed = seedOf(31_337);
  const { packets, counted, failure } = fuzz(PACKETS, seed);
  if (failure !== undefined) expect.fail(JSON.stringify(failure, undefined, 1));
  console.log(`differential: ${packets} packets, seed ${seed}`);
  expect(Object.keys(counted).sort()).toEqual([
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
  ]);
  expect(Math.min(...Object.values(counted))).toBeGreaterThan(20);
});
