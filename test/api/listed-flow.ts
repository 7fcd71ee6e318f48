import type { LiveFlow } from '#contracts/datapath/datapath.js';
import { SINCE } from './fake-management.js';

const SINCE_MS = Date.parse(SINCE);

/**
 * A TCP connection from 10.0.0.1:40000 to 192.0.2.1:443 in the flow table, which rule `web` of source group
 * `lan` allows.
 */
export const LIVE_FLOW = {
  key: new Uint8Array(16).fill(1),
  source: 0x0a00_0001,
  destination: 0xc000_0201,
  protocol: 6,
  ports: [40_000, 443],
  icmpId: null,
  state: 'tcp_established',
  verdict: 'allow',
  decider: { kind: 'rule', group: 'lan', rule: 'web' },
  sourceGroups: null,
  foreign: false,
  suspended: false,
  generation: 7,
  current: true,
  packets: [3n, 2n],
  bytes: [300n, 200n],
  openedMs: SINCE_MS,
  lastSeenMs: SINCE_MS + 2_500,
  expiresInMs: 59_001,
  interfaces: ['lan0', null],
  translation: null,
} as const satisfies LiveFlow;

/** `LIVE_FLOW` as `GET /api/v1/flows` of the node `node-a` shows it. */
export const LISTED_FLOW = {
  id: Buffer.alloc(16, 1).toString('base64url'),
  node_id: 'node-a',
  src: '10.0.0.1',
  dst: '192.0.2.1',
  src_owner: null,
  dst_owner: null,
  proto: 6,
  src_port: 40_000,
  dst_port: 443,
  icmp_id: null,
  state: 'tcp_established',
  verdict: 'allow',
  decided_by: 'rule',
  source_group: 'lan',
  source_groups: null,
  rule: 'web',
  foreign: false,
  suspended: false,
  generation: 7,
  current: true,
  packets: { forward: 3, reply: 2 },
  bytes: { forward: 300, reply: 200 },
  opened: SINCE,
  last_seen: '2026-01-31T12:00:02.500Z',
  expires_in: 60,
  interfaces: { in: 'lan0', out: null },
  translation: null,
};
