import { describe, expect, test } from 'vitest';
import { refusal } from '#contracts/refusal.js';
import { anyFlow } from '#dataplane/flows/listing/flow-filter.js';
import { OWNED, OWNER, RECORD, SINCE, TOKENS } from './fake-management.js';
import { LIVE_FLOW as flow, LISTED_FLOW as shown } from './listed-flow.js';
import { rig } from './rig.js';

const SINCE_MS = Date.parse(SINCE);
const NO_FILTER = anyFlow();
const readonly = { token: TOKENS.readonly };

describe('GET /api/v1/policy/hits', () => {
  test('GET /api/v1/policy/hits returns each rule and each default with its hits to the role readonly', async () => {
    const { ask, node } = await rig();
    const used = { packets: 5n, bytes: 500n, lastMs: SINCE_MS + 1_000, unusedSinceMs: null };
    const unused = { packets: 0n, bytes: 0n, lastMs: null, unusedSinceMs: SINCE_MS };
    node.reads.hits = {
      policy: RECORD,
      generation: 7,
      sinceMs: SINCE_MS,
      items: [
        { decider: { kind: 'rule', group: 'lan', rule: 'web' }, ...used },
        { decider: { kind: 'group_default', group: 'lan' }, ...unused },
        { decider: { kind: 'policy_default' }, ...used },
      ],
      next: 3,
    };
    const answer = await ask('GET', '/api/v1/policy/hits', readonly);
    expect([answer.statusCode, answer.json()]).toEqual([
      200,
      {
        policy_id: RECORD.id,
        revision: 3,
        generation: 7,
        since: SINCE,
        items: [
          {
            decided_by: 'rule',
            source_group: 'lan',
            rule: 'web',
            packets: 5,
            bytes: 500,
            last_hit: '2026-01-31T12:00:01.000Z',
            unused: false,
            unused_since: null,
          },
          {
            decided_by: 'group_default',
            source_group: 'lan',
            rule: null,
            packets: 0,
            bytes: 0,
            last_hit: null,
            unused: true,
            unused_since: SINCE,
          },
          {
            decided_by: 'policy_default',
            source_group: null,
            rule: null,
            packets: 5,
            bytes: 500,
            last_hit: '2026-01-31T12:00:01.000Z',
            unused: false,
            unused_since: null,
          },
        ],
        next_cursor: '7.3',
        partial: false,
        node_errors: [],
        nodes_queried: 1,
        nodes_responded: 1,
      },
    ]);
  });

  test('GET /api/v1/policy/hits passes the filters and the cursor in the query string to the node', async () => {
    const { ask, node } = await rig();
    await ask('GET', '/api/v1/policy/hits?group=a&group=b&rule=web&unused&limit=10&cursor=7.20');
    await ask('GET', '/api/v1/policy/hits?unused=false');
    expect(node.reads.asked).toEqual([
      { groups: ['a', 'b'], rules: ['web'], unused: true, from: 20, limit: 10 },
      { groups: [], rules: [], unused: false, from: 0, limit: 1_000 },
    ]);
  });

  test.each([
    ['?cursor=6.20', 'Another policy was activated after this cursor was issued: begin again without a cursor.'],
    ['?cursor=x', '?cursor: Must be the `next_cursor` of a response.'],
    ['?limit=1001', '?limit: Must be a whole number from 1 to 1000.'],
    ['?grup=x', '?grup: There is no parameter "grup" here (did you mean "group"?).'],
  ])('GET /api/v1/policy/hits refuses the query %s with 400', async (query, detail) => {
    const { ask } = await rig();
    const answer = await ask('GET', `/api/v1/policy/hits${query}`);
    expect([answer.statusCode, answer.json().detail]).toEqual([400, detail]);
  });

  test('GET /api/v1/policy/hits returns 503 while no dataplane runs', async () => {
    const { ask, node } = await rig();
    node.reads.hits = refusal('dataplane_unavailable', 'the dataplane is not running; see /ready');
    const answer = await ask('GET', '/api/v1/policy/hits');
    expect([answer.statusCode, answer.json().type]).toEqual([503, 'urn:weir:error:dataplane_unavailable']);
  });
});

describe('GET /api/v1/flows', () => {
  test('GET /api/v1/flows returns flows and a cursor, and passes a cursor of the query to the node as a flow key', async () => {
    const { ask, node } = await rig();
    const key = Uint8Array.from({ length: 16 }, (_, at) => 250 - at);
    const echo = { ...flow, protocol: 1, ports: null, icmpId: 77, state: 'icmp_opened' } as const;
    node.reads.flows = {
      matched: 40,
      items: [
        flow,
        { ...echo, decider: { kind: 'policy_default' }, sourceGroups: { ids: ['lan', 'nas'], hasSelectors: true } },
        { ...flow, foreign: true, decider: null, verdict: null, generation: null },
        { ...flow, decider: null, current: false },
        { ...flow, verdict: 'deny', suspended: true },
        { ...flow, source: OWNED },
        { ...flow, destination: OWNED },
      ],
      next: key,
    };
    const answer = await ask('GET', '/api/v1/flows', readonly);
    const nobody = { source_group: null, rule: null };
    expect([answer.statusCode, answer.json()]).toEqual([
      200,
      {
        matched: 40,
        items: [
          shown,
          {
            ...shown,
            ...nobody,
            proto: 1,
            src_port: null,
            dst_port: null,
            icmp_id: 77,
            state: 'icmp_opened',
            decided_by: 'policy_default',
            source_groups: ['lan', 'nas'],
          },
          { ...shown, ...nobody, foreign: true, decided_by: 'nobody', verdict: null, generation: null },
          { ...shown, ...nobody, decided_by: 'policy_gone', current: false },
          { ...shown, verdict: 'deny', suspended: true },
          { ...shown, src: '10.0.0.7', src_owner: OWNER },
          { ...shown, dst: '10.0.0.7', dst_owner: OWNER },
        ],
        next_cursor: expect.any(String),
        partial: false,
        node_errors: [],
        nodes_queried: 1,
        nodes_responded: 1,
      },
    ]);
    await ask('GET', `/api/v1/flows?limit=5&cursor=${answer.json().next_cursor}`);
    expect(node.reads.asked).toEqual([
      { filter: NO_FILTER, after: null, limit: 100 },
      { filter: NO_FILTER, after: key, limit: 5 },
    ]);
  });

  test('GET /api/v1/flows shows the groups of an owned source only if the policy has no Kubernetes selectors', async () => {
    const { ask, node } = await rig();
    const owned = { ...flow, source: OWNED, decider: { kind: 'policy_default' } } as const;
    node.reads.flows = {
      matched: 2,
      items: [
        { ...owned, sourceGroups: { ids: ['lan'], hasSelectors: false } },
        { ...owned, sourceGroups: { ids: ['lan'], hasSelectors: true } },
      ],
      next: null,
    };
    const { items } = (await ask('GET', '/api/v1/flows')).json<{ items: { source_groups: unknown }[] }>();
    expect(items.map(({ source_groups: groups }) => groups)).toEqual([['lan'], null]);
  });

  test('GET /api/v1/flows shows the addresses that a flow with NAT has on the wire', async () => {
    const { ask, node } = await rig();
    const translation = {
      source: { address: 0xcb00_7101, port: 1_024 },
      destination: { address: 0xcb00_7102, port: 80 },
    };
    const echo = { ...flow, protocol: 1, ports: null, icmpId: 77 } as const;
    node.reads.flows = {
      matched: 2,
      items: [
        { ...flow, translation },
        { ...echo, translation },
      ],
      next: null,
    };
    const { items } = (await ask('GET', '/api/v1/flows', readonly)).json();
    expect(items.map(({ translation }: { translation: unknown }) => translation)).toEqual([
      { src: '203.0.113.1', dst: '203.0.113.2', src_port: 1_024, dst_port: 80, icmp_id: null },
      { src: '203.0.113.1', dst: '203.0.113.2', src_port: null, dst_port: null, icmp_id: 1_024 },
    ]);
  });

  test('GET /api/v1/flows accepts every filter, and passes all filters to the node', async () => {
    const { ask, node } = await rig();
    const words = [
      'src=10.0.0.1&src=10.1.2.3/8&dst=192.0.2.0/24&port=53&src_port=1-2&dst_port=443&proto=TCP&proto=47',
      'group=lan&rule=web&rule=dns&verdict=audit&state=tcp_reset&foreign&current=false&suspended&min_bytes=1000',
    ];
    expect((await ask('GET', `/api/v1/flows?${words.join('&')}`)).statusCode).toBe(200);
    expect(node.reads.asked).toEqual([
      {
        filter: {
          sources: [
            { address: 0x0a00_0001, length: 32 },
            { address: 0x0a00_0000, length: 8 },
          ],
          destinations: [{ address: 0xc000_0200, length: 24 }],
          ports: [{ low: 53, high: 53 }],
          sourcePorts: [{ low: 1, high: 2 }],
          destinationPorts: [{ low: 443, high: 443 }],
          protocols: [6, 47],
          groups: ['lan'],
          rules: ['web', 'dns'],
          verdicts: ['audit'],
          states: ['tcp_reset'],
          foreign: true,
          current: false,
          suspended: true,
          minBytes: 1_000,
        },
        after: null,
        limit: 100,
      },
    ]);
  });

  test.each([
    ['src=10.0.0', '?src: Must be an IP address, or a CIDR such as 10.0.0.0/8 or 2001:db8::/32.'],
    ['port=https', '?port: Must be a port, or a range such as 8000-8100.'],
    ['proto=any', '?proto: Must be tcp, udp, icmp, or a number from 0 to 255.'],
    ['proto=256', '?proto: Must be tcp, udp, icmp, or a number from 0 to 255.'],
    ['verdict=drop', '?verdict: Must be one of allow, deny, audit, redirect.'],
    ['min_bytes=many', '?min_bytes: Must be a whole number in decimal digits.'],
    ['cursor=abc', '?cursor: Must be the `next_cursor` of a response.'],
  ])('GET /api/v1/flows refuses the query %s with 400', async (query, detail) => {
    const { ask } = await rig();
    const answer = await ask('GET', `/api/v1/flows?${query}`);
    expect([answer.statusCode, answer.json().detail]).toEqual([400, detail]);
  });
});

describe('DELETE /api/v1/flows', () => {
  test('DELETE /api/v1/flows removes the flows that match the filters, or all flows if the query is ?all', async () => {
    const { ask, node } = await rig();
    const answers = [await ask('DELETE', '/api/v1/flows?src=10.0.0.1'), await ask('DELETE', '/api/v1/flows?all')];
    expect(answers.map((answer) => [answer.statusCode, answer.json()])).toEqual([
      [200, { cut: 3, dry_run: false }],
      [200, { cut: 3, dry_run: false }],
    ]);
    expect(node.changes).toEqual([
      { call: 'traffic.cutFlows', with: { ...NO_FILTER, sources: [{ address: 0x0a00_0001, length: 32 }] } },
      { call: 'traffic.cutFlows', with: NO_FILTER },
    ]);
  });

  test('DELETE /api/v1/flows returns in a dry run the number of flows that the real request would remove, and removes no flow', async () => {
    const { ask, node } = await rig();
    node.reads.flows = { matched: 12, items: [], next: null };
    const answer = await ask('DELETE', '/api/v1/flows?proto=udp&dry_run');
    expect([answer.statusCode, answer.json(), node.changes]).toEqual([200, { cut: 12, dry_run: true }, []]);
  });

  test.each([
    ['', '?all: Required if no other parameter selects flows.'],
    ['?dry_run', '?all: Required if no other parameter selects flows.'],
    ['?all=false', '?all: Required if no other parameter selects flows.'],
    ['?all&src=10.0.0.1', '?all: Not allowed together with parameters that select flows.'],
    ['?srk=10.0.0.1', '?srk: There is no parameter "srk" here (did you mean "src"?).'],
  ])('DELETE /api/v1/flows removes no flow and returns 400 if the query is %j', async (query, detail) => {
    const { ask, node } = await rig();
    const answer = await ask('DELETE', `/api/v1/flows${query}`);
    expect([answer.statusCode, answer.json().detail, node.changes]).toEqual([400, detail, []]);
  });

  test('DELETE /api/v1/flows requires the role admin', async () => {
    const { ask, node } = await rig();
    const answer = await ask('DELETE', '/api/v1/flows?all', readonly);
    expect([answer.statusCode, node.changes]).toEqual([403, []]);
  });
});

describe('GET /api/v1/flows/seen', () => {
  const coverage = {
    ...{ since: SINCE, denied_since: SINCE, until: SINCE, recorded_minutes: 3, recording: true },
    ...{ flows: 9, folded: 0, events_lost: 0, events_not_recorded: 0 },
  };
  const seenFlow = {
    ...{ folded: false, src_ip: '10.0.0.7', dst_ip: '192.0.2.1', hostname: 'www.example.com', proto: 6, dst_port: 443 },
    ...{ icmp_type: null, icmp_code: null, connections: 4, denied: 2, first_seen: SINCE, last_seen: SINCE },
    last_verdict: 'allow' as const,
  };

  test('GET /api/v1/flows/seen returns the recorded flows that match its filter, and the period that the record covers', async () => {
    const { ask, node } = await rig();
    node.reads.seenFlows = { matched: 5, connections: 7, denied: 3, flows: [seenFlow], coverage };
    const query =
      'src=10.0.0.0/8&dst=192.0.2.1&dst_port=443&proto=tcp&hostname=*.Example.com.&verdict=allow&order=count&limit=1';
    const answer = await ask('GET', `/api/v1/flows/seen?${query}&since=${SINCE}`, readonly);
    expect([answer.statusCode, answer.json()]).toEqual([
      200,
      { node_id: expect.any(String), matched: 5, connections: 7, denied: 3, items: [seenFlow], coverage },
    ]);
    expect(node.reads.asked).toEqual([
      {
        sources: [{ address: 0x0a000000, length: 8 }],
        destinations: [{ address: 0xc0000201, length: 32 }],
        ports: [{ low: 443, high: 443 }],
        protocols: [6],
        hostnames: ['*.example.com'],
        verdicts: ['allow'],
        sinceS: SINCE_MS / 1_000,
        order: 'count',
        limit: 1,
      },
    ]);
  });

  test('GET /api/v1/flows/seen is 503 on a node that records no flows', async () => {
    const { ask } = await rig();
    const answer = await ask('GET', '/api/v1/flows/seen', readonly);
    expect([answer.statusCode, answer.json().detail]).toEqual([
      503,
      'this node records no flows: flow_history.retention is 0s',
    ]);
  });
});
