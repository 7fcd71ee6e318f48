import { once } from 'node:events';
import { request } from 'node:http';
import { describe, expect, test } from 'vitest';
import type { Finding } from '#observe/findings/finding.js';
import { EVERY_FINDING } from '#observe/findings/finding-filter.js';
import { seen } from '#test/observe/findings/seen.js';
import { TOKENS } from './fake-management.js';
import { listening, rig } from './rig.js';

const PATH = '/api/v1/audit/findings';
const LISTED = ['l4_deny', 'icmp_deny', 'dns_deny', 'tls_deny', 'http_deny', 'auth_denied', 'address_shared'];
const CURSOR = 'A'.repeat(30);
const found = (of: Partial<Finding> = {}): Finding => ({
  ...seen({ firstMs: Date.parse('2026-01-31T12:00:00Z'), lastMs: Date.parse('2026-01-31T12:00:01.5Z'), count: 3 }),
  id: 'ab'.repeat(16),
  ...of,
});
const SHOWN = {
  id: 'ab'.repeat(16),
  finding_type: 'l4_deny',
  policy_id: '0b9ff3a1-66a6-4a54-9c61-3d7b3a7c2f10',
  generation: 7,
  source_group: 'lan',
  source_groups: null,
  rule: 'web',
  decided_by: 'rule',
  src_ip: '10.0.0.7',
  dst_ip: '192.0.2.1',
  src_owner: null,
  dst_owner: null,
  dst_port: 443,
  translation: null,
  proto: 6,
  hostname: null,
  sni: null,
  http: null,
  icmp_type: null,
  icmp_code: null,
  drop_reason: 'policy_deny',
  reason: null,
  effective_action: 'deny',
  actor: null,
  operation: null,
  target: null,
  remote: null,
  status: null,
  etag: null,
  first_seen: '2026-01-31T12:00:00.000Z',
  last_seen: '2026-01-31T12:00:01.500Z',
  count: 3,
  node_ids: ['node-a'],
};
const linesOf = (body: string) =>
  body
    .split('\n')
    .slice(0, -1)
    .map((line) => JSON.parse(line) as { rule: string });

describe.each([PATH, `${PATH}/local`])('GET %s', (path) => {
  test('the findings route returns one page of findings to the role readonly, without a query to other nodes', async () => {
    const { ask, node } = await rig();
    node.reads.findings = [{ items: [found()], next: CURSOR }];
    const answer = await ask('GET', path, { token: TOKENS.readonly });
    expect([answer.statusCode, answer.json()]).toEqual([
      200,
      {
        items: [SHOWN],
        next_cursor: CURSOR,
        partial: false,
        node_errors: [],
        nodes_queried: 1,
        nodes_responded: 1,
      },
    ]);
    expect(node.reads.asked).toEqual([{ filter: { ...EVERY_FINDING, types: LISTED }, limit: 100, cursor: null }]);
  });

  test('the findings route passes all filters of the query to the node, with the values of a repeated filter as alternatives', async () => {
    const { ask, node } = await rig();
    const query =
      'finding_type=l4_deny&finding_type=gap&source_group=lan&rule=web&rule=dns&policy_id=p&src=10.0.0.7&src=10.1.2.3/8' +
      `&dst=192.0.2.1&since=2026-01-31T12:00:00Z&until=2026-01-31T13:00:00.5Z&limit=5&cursor=${CURSOR}`;
    expect((await ask('GET', `${path}?${query}`)).statusCode).toBe(200);
    expect(node.reads.asked).toEqual([
      {
        filter: {
          ids: [],
          types: ['l4_deny', 'gap'],
          policyIds: ['p'],
          sourceGroups: ['lan'],
          rules: ['web', 'dns'],
          sources: [
            { address: 0x0a00_0007, length: 32 },
            { address: 0x0a00_0000, length: 8 },
          ],
          destinations: [{ address: 0xc000_0201, length: 32 }],
          sinceMs: Date.parse('2026-01-31T12:00:00Z'),
          untilMs: Date.parse('2026-01-31T13:00:00.5Z'),
        },
        limit: 5,
        cursor: CURSOR,
      },
    ]);
  });
});

test('the findings route accepts IPv6 addresses and networks in short, long, upper-case and IPv4-mapped notation', async () => {
  const { ask, node } = await rig();
  const forms = ['2001:DB8:0:0::0001', '2001:db8::/32', '::', '::/0', 'fe80::ffff/10', '::ffff:10.0.0.7'];
  const query = forms.map((text) => `src=${encodeURIComponent(text)}`).join('&');
  expect((await ask('GET', `${PATH}?${query}`)).statusCode).toBe(200);
  expect(node.reads.asked).toMatchObject([
    {
      filter: {
        sources: [
          { address: 0x2001_0db8_0000_0000_0000_0000_0000_0001n, length: 128 },
          { address: 0x2001_0db8n << 96n, length: 32 },
          { address: 0n, length: 128 },
          { address: 0n, length: 0 },
          { address: 0xfe80n << 112n, length: 10 },
          { address: 0xffff_0a00_0007n, length: 128 },
        ],
      },
    },
  ]);
});

test.each([
  ...[
    '10.0.0',
    '2001:db8::/129',
    '2001:db8::/01',
    'fe80::1%eth0',
    '2001:db8',
    '::g',
    '10.0.0.1/33',
    '::/',
    '[::1]',
  ].map((text) => [
    `src=${encodeURIComponent(text)}`,
    '?src: Must be an address or a CIDR such as 10.0.0.0/8 or 2001:db8::/32.',
  ]),
  ['cursor=x', '?cursor: Must be the `next_cursor` of a response.'],
  [`cursor=${'_'.repeat(31)}`, '?cursor: Must be the `next_cursor` of a response.'],
  ['format=csv', '?format: Must be json or jsonl.'],
  ['since=2026-01-31', '?since: Must be a time in UTC such as 2026-01-31T12:00:00Z.'],
  [Array.from({ length: 65 }, (_, at) => `rule=${at}`).join('&'), '?rule: Must be given at most 64 times.'],
])(
  'the findings route refuses an invalid query (row %#) with a problem that names the query parameter',
  async (query, problem) => {
    const { ask, node } = await rig();
    const { problems } = (await ask('GET', `${PATH}?${query}`)).json<{
      problems: { pointer: string; message: string }[];
    }>();
    expect(problems.map(({ pointer, message }) => `${pointer}: ${message}`)).toEqual([problem]);
    expect(node.reads.asked).toEqual([]);
  },
);

test('findings about refused requests and successful writes show the author, the client address and the ETag', async () => {
  const { ask, node } = await rig();
  const nobody = { policyId: null, sourceGroup: null, rule: null, decidedBy: null, destination: null, protocol: null };
  const api = { ...nobody, destinationPort: null, generation: null, actor: 'alice', operation: 'putPolicy' };
  node.reads.findings = [
    {
      items: [
        found({
          ...api,
          type: 'config_change',
          source: '::1',
          target: '/api/v1/policy',
          dropReason: null,
          effectiveAction: 'allow',
          written: { status: 200, etag: '"a.1"' },
        }),
        found({ ...api, type: 'auth_denied', source: '10.0.0.9', dropReason: 'forbidden' }),
      ],
      next: null,
    },
  ];
  const { items } = (await ask('GET', PATH)).json<{ items: Record<string, unknown>[] }>();
  expect(
    items.map((item) => [item.finding_type, item.src_ip, item.remote, item.actor, item.target, item.status, item.etag]),
  ).toEqual([
    ['config_change', null, '::1', 'alice', '/api/v1/policy', 200, '"a.1"'],
    ['auth_denied', '10.0.0.9', '10.0.0.9', 'alice', null, null, null],
  ]);
});

test('the findings route returns 503 in both formats, json and jsonl, if the findings cannot be read', async () => {
  const { ask, node } = await rig();
  node.reads.findings = [{ kind: 'refused', code: 'store_unavailable', detail: 'the findings cannot be read now' }];
  for (const format of ['json', 'jsonl']) {
    const answer = await ask('GET', `${PATH}?format=${format}`);
    expect([answer.statusCode, answer.json().type]).toEqual([503, 'urn:weir:error:store_unavailable']);
  }
});

describe('findings in the format jsonl', () => {
  const pages = [
    { items: [found({ rule: 'a' }), found({ rule: 'b' })], next: CURSOR },
    { items: [], next: 'B'.repeat(30) },
    { items: [found({ rule: 'c' })], next: null },
  ];

  test('the response with findings in the format jsonl contains the matching findings of all pages, although some pages are empty', async () => {
    const { ask, node } = await rig();
    node.reads.findings = pages;
    const answer = await ask('GET', `${PATH}?format=jsonl&rule=x`);
    expect(answer.headers['content-type']).toBe('application/x-ndjson');
    expect(linesOf(answer.body)).toEqual(['a', 'b', 'c'].map((rule) => ({ ...SHOWN, rule })));
    expect(node.reads.asked).toEqual(
      [null, CURSOR, 'B'.repeat(30)].map((cursor) => ({
        filter: { ...EVERY_FINDING, types: LISTED, rules: ['x'] },
        limit: 1_000,
        cursor,
      })),
    );
  });

  test('the response with findings in the format jsonl ends when the number of findings reaches the query parameter `limit`', async () => {
    const { ask, node } = await rig();
    node.reads.findings = pages;
    await ask('GET', `${PATH}?format=jsonl&limit=3`);
    expect(node.reads.asked.map((asked) => (asked as { limit: number }).limit)).toEqual([3, 1, 1]);
  });

  test('the response with findings in the format jsonl has an empty body if no finding matches', async () => {
    const { ask } = await rig();
    expect((await ask('GET', `${PATH}?format=jsonl`)).body).toBe('');
  });

  test('findings in the format jsonl are not read from the store while the client reads nothing, or after the client has disconnected', async () => {
    const { api, node } = await rig();
    const page = { items: Array.from({ length: 1_000 }, () => found({ hostname: 'x'.repeat(200) })), next: CURSOR };
    node.reads.findings = [page];
    const port = await listening(api);
    const asking = request({ port, host: '127.0.0.1', path: `${PATH}?format=jsonl`, agent: false });
    asking.setHeader('authorization', `Bearer ${TOKENS.admin}`);
    asking.end();
    const [answer] = await once(asking, 'response');
    // When the socket buffers are full, the route must stop reading pages. The number of page reads then
    // stays constant.
    let before = -1;
    await expect
      .poll(
        () => {
          const grown = node.reads.asked.length > before;
          before = node.reads.asked.length;
          return grown;
        },
        { interval: 300, timeout: 20_000 },
      )
      .toBe(false);
    expect(node.reads.asked.length).toBeLessThan(100);
    answer.destroy();
    await expect.poll(() => new Promise((resolve) => api.server.getConnections((_, open) => resolve(open)))).toBe(0);
    expect(node.reads.asked.length).toBeLessThan(before + 3);
  });

  test('the response with findings in the format jsonl ends with a broken connection if a later page cannot be read', async () => {
    const { api, node } = await rig();
    node.reads.findings = [
      { items: [found()], next: CURSOR },
      { kind: 'refused', code: 'store_unavailable', detail: 'the findings cannot be read now' },
    ];
    const port = await listening(api);
    const whole = fetch(`http://127.0.0.1:${port}${PATH}?format=jsonl`, {
      headers: { authorization: `Bearer ${TOKENS.admin}` },
    }).then((answer) => answer.text());
    await expect(whole).rejects.toThrow('terminated');
  });
});
