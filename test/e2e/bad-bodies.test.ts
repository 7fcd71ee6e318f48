import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createRig, type NodeRig, policyOf } from './rig.js';

let rig: NodeRig;
let etag: string | null;
beforeAll(async () => {
  rig = await createRig('bodies', [80, 81]);
  await rig.put(policyOf([{ match: { proto: 'tcp', dst_ports: [80] } }]));
  etag = (await rig.node.request('GET', '/api/v1/policy')).headers.get('etag');
});
afterAll(() => rig?.remove());

type Case = {
  readonly name: string;
  readonly body: string;
  readonly status: number;
  /**
   * The expected JSON pointers of the problems, in any order. If undefined, the test does not compare
   * pointers.
   */
  readonly pointers?: readonly string[];
};

const text = (value: unknown): string => JSON.stringify(value);
const rule = (match: Readonly<Record<string, unknown>>, more: object = {}): string =>
  text(policyOf([{ match, ...more }]));
const at = (member: string): string => `/source_groups/0/rules/0/match/${member}`;
const sources = (value: unknown): string => text(policyOf([], { sources: value }));

const cases: readonly Case[] = [
  { name: 'nothing', body: '', status: 400 },
  { name: 'truncated JSON', body: text(policyOf([])).slice(0, -3), status: 400 },
  { name: 'not JSON', body: 'default_policy: allow', status: 400 },
  { name: 'a scalar', body: '"allow"', status: 400, pointers: [''] },
  { name: 'an array', body: '[]', status: 400, pointers: [''] },
  { name: 'null', body: 'null', status: 400, pointers: [''] },
  { name: 'deep nesting', body: `{"source_groups":${'['.repeat(200_000)}${']'.repeat(200_000)}}`, status: 400 },
  {
    name: 'duplicate keys',
    body: '{"default_policy":"deny","default_policy":"allow"}',
    status: 400,
    pointers: ['/default_policy'],
  },
  {
    name: 'duplicate keys behind escapes',
    body: '{"default_policy":"deny","default\\u005fpolicy":"allow"}',
    status: 400,
    pointers: ['/default_policy'],
  },
  {
    name: '__proto__',
    body: '{"default_policy":"deny","__proto__":{"default_policy":"allow"}}',
    status: 400,
    pointers: ['/__proto__'],
  },
  { name: 'constructor', body: '{"constructor":{"prototype":{"x":1}}}', status: 400, pointers: ['/constructor'] },
  { name: 'an unknown field', body: '{"default_polcy":"deny"}', status: 400, pointers: ['/default_polcy'] },
  { name: 'an unknown field of a match', body: rule({ dst_port: [80] }), status: 400, pointers: [at('dst_port')] },
  { name: 'a wrong type', body: '{"source_groups":{}}', status: 400, pointers: ['/source_groups'] },
  { name: 'a wrong action', body: '{"default_policy":"drop"}', status: 400, pointers: ['/default_policy'] },
  {
    name: 'a wrong mode',
    body: text(policyOf([], { mode: 'disabled' })),
    status: 400,
    pointers: ['/source_groups/0/mode'],
  },
  {
    name: 'a singleton group without mode',
    body: text(policyOf([], { mode: undefined })),
    status: 400,
    pointers: ['/source_groups/0/mode'],
  },
  { name: 'an empty source set', body: sources({}), status: 400, pointers: ['/source_groups/0/sources'] },
  {
    name: 'a source that is no address',
    body: sources({ ips: ['10.0.0.256', '010.0.0.1'] }),
    status: 400,
    pointers: ['/source_groups/0/sources/ips/0', '/source_groups/0/sources/ips/1'],
  },
  {
    name: 'a source that is IPv6',
    body: sources({ cidrs: ['::/0'] }),
    status: 400,
    pointers: ['/source_groups/0/sources/cidrs/0'],
  },
  { name: 'a selector of nothing', body: sources({ kubernetes: [{ integration: 'k' }] }), status: 400 },
  {
    name: 'an integration that does not exist',
    body: sources({ kubernetes: [{ integration: 'k', node_selector: { match_labels: { a: 'b' } } }] }),
    status: 400,
    pointers: ['/source_groups/0/sources/kubernetes/0/integration'],
  },
  { name: 'tls with udp', body: rule({ proto: 'udp', tls: {} }), status: 400 },
  { name: 'icmp types with tcp', body: rule({ proto: 'tcp', icmp_types: [8] }), status: 400 },
  { name: 'icmp with ports', body: rule({ proto: 'icmp', dst_ports: [80] }), status: 400 },
  { name: 'an empty http block', body: rule({ tls: { mode: 'intercept', http: {} } }), status: 400 },
  { name: 'http without intercept', body: rule({ tls: { http: { request: { methods: ['GET'] } } } }), status: 400 },
  { name: 'intercept without http', body: rule({ tls: { mode: 'intercept' } }), status: 400 },
  { name: 'a port out of range', body: rule({ dst_ports: [65536] }), status: 400, pointers: [`${at('dst_ports')}/0`] },
  { name: 'a reversed range', body: rule({ dst_ports: ['90-80'] }), status: 400, pointers: [`${at('dst_ports')}/0`] },
  {
    name: 'a port that is an object',
    body: rule({ dst_ports: [{}] }),
    status: 400,
    pointers: [`${at('dst_ports')}/0`],
  },
  {
    name: 'a regex with look-ahead',
    body: rule({ dns_hostname: '(?=a)b' }),
    status: 400,
    pointers: [at('dns_hostname')],
  },
  {
    name: 'a star in the middle of a name',
    body: rule({ dns_hostname: 'a.*.test' }),
    status: 400,
    pointers: [at('dns_hostname')],
  },
  {
    name: 'a short fingerprint',
    body: rule({ tls: { fingerprint_sha256: ['abcd'] } }),
    status: 400,
    pointers: [`${at('tls')}/fingerprint_sha256/0`],
  },
  {
    name: 'a trust anchor that is none',
    body: rule({ tls: { trust_anchors_pem: ['-----BEGIN'] } }),
    status: 400,
    pointers: [`${at('tls')}/trust_anchors_pem/0`],
  },
  {
    name: 'a negative priority',
    body: rule({}, { priority: -1 }),
    status: 400,
    pointers: ['/source_groups/0/rules/0/priority'],
  },
  {
    name: 'a priority that is a fraction',
    body: rule({}, { priority: 1.5 }),
    status: 400,
    pointers: ['/source_groups/0/rules/0/priority'],
  },
  {
    name: 'duplicate rule ids',
    body: text(policyOf([{ match: {} }, { match: {} }])).replace('"r1"', '"r0"'),
    status: 400,
    pointers: ['/source_groups/0/rules/1/id'],
  },
  {
    name: 'an empty id',
    body: text(policyOf([{ match: {} }])).replace('"r0"', '""'),
    status: 400,
    pointers: ['/source_groups/0/rules/0/id'],
  },
  { name: 'more than 64 MiB', body: `{"default_policy":"deny"${' '.repeat(65 << 20)}}`, status: 413 },
  {
    name: 'many problems at once',
    body: text({ default_policy: 'x', source_groups: [{ id: '', mode: 'enforce', sources: {}, priority: -1 }] }),
    status: 400,
    pointers: ['/default_policy', '/source_groups/0/id', '/source_groups/0/priority', '/source_groups/0/sources'],
  },
];

type ProblemDocument = {
  status: number;
  error: string;
  problems?: { pointer: string; code: string; message: string }[];
};

describe.each(cases)('PUT /api/v1/policy with an invalid body ($name)', ({ body, status, pointers }) => {
  test('PUT /api/v1/policy with an invalid body returns an error document (application/problem+json), and does not change the stored policy', async () => {
    const reply = await rig.node.request('PUT', '/api/v1/policy', body);
    expect({ status: reply.status, text: reply.text.slice(0, 500) }).toEqual({
      status,
      text: reply.text.slice(0, 500),
    });
    expect(reply.headers.get('content-type')).toMatch(/^application\/problem\+json/);
    const document = reply.body as ProblemDocument;
    expect(document.status).toBe(status);
    expect(document.error).toMatch(/\.$/);
    expect(reply.text).not.toMatch(/node_modules|\.[jt]s:\d/);
    if (pointers !== undefined)
      expect(document.problems?.map((problem) => problem.pointer).sort()).toEqual([...pointers].sort());
    const read = await rig.node.request('GET', '/api/v1/policy');
    expect(read.headers.get('etag')).toBe(etag);
  });
});

test('a node that has refused invalid policies still enforces its last valid policy: TCP port 80 is open, port 81 is not', async () => {
  expect([await rig.tcp(80), await rig.tcp(81)]).toEqual(['open', 'refused ETIMEDOUT']);
});
