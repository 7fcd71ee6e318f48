import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { ADDRESSES } from '#cli/tour/topology.js';
import { SERVER_NAME } from '#test/service-plane/certificates.js';
import { createInspectedRig, type InspectedRig } from './inspected.js';
import { readWiretap, type WiretapReader } from './reader.js';
import { policyOf } from './rig.js';

const CA = '/api/v1/settings/tls-intercept-ca';
const EXPIRED_PORT = 4_431;
let rig: InspectedRig;
let caFile: string;
beforeAll(async () => {
  rig = await createInspectedRig('inspection-seen');
  const { good, broken } = rig.certificates;
  await rig.web(443, good);
  await rig.serve(EXPIRED_PORT, broken.expired, '-www');
  const made = await rig.node.request('POST', `${CA}/generate`);
  if (made.status !== 201) throw new Error(made.text);
  caFile = await rig.file('ca.pem', (await rig.node.request('GET', `${CA}/cert`)).text);
});
afterAll(() => rig?.remove());

type Finding = Readonly<Record<string, unknown>> & { readonly count: number };
let since: string;
beforeEach(() => {
  since = new Date().toISOString();
});
const find = async (from = since): Promise<readonly Finding[]> => {
  const query = `?finding_type=tls_deny&finding_type=http_deny&finding_type=l4_deny&since=${from}`;
  const reply = await rig.node.request('GET', `/api/v1/audit/findings${query}`);
  if (reply.status !== 200) throw new Error(`${reply.status} ${reply.text}`);
  return (reply.body as { items: Finding[] }).items;
};
const soon = { timeout: 10_000, interval: 50 };

const tls = (block: Readonly<Record<string, unknown>>, more: Readonly<Record<string, unknown>> = {}) => ({
  match: { proto: 'tcp', dst_ports: [443, EXPIRED_PORT], tls: block },
  ...more,
});
const intercepting = (http: Readonly<Record<string, unknown>>) => tls({ mode: 'intercept', http });
const fetch = async (path: string, port = 443): Promise<string> => {
  const at = `${SERVER_NAME}:${port}`;
  const words = ['--cacert', caFile, '--resolve', `${at}:${ADDRESSES.server}`, '-o', '/dev/null', '-w', '%{http_code}'];
  return (await rig.curl(...words, `https://${at}${path}`)).stdout;
};

const decided = {
  src: ADDRESSES.client,
  dst: ADDRESSES.server,
  dst_port: 443,
  proto: 6,
  source_group: 'clients',
  rule: 'r0',
  decided_by: 'rule',
  policy_id: expect.any(String),
  generation: expect.any(Number),
  reason: null,
  sni: SERVER_NAME,
};
/** Converts a wiretap message to the finding that the test expects for this message, with count 1. */
const findingOf = ({ type, src, dst, verdict, ...said }: Readonly<Record<string, unknown>>) => ({
  ...said,
  finding_type: `${String(type)}_deny`,
  src_ip: src,
  dst_ip: dst,
  http: said.http ?? null,
  effective_action: verdict === 'audit' ? 'allow' : 'deny',
  count: 1,
});
/** Connects a wiretap reader for TLS connections and HTTP requests with the verdict deny or audit. */
const reading = (): Promise<WiretapReader> =>
  readWiretap(rig.node, '?type=tls&type=http&verdict=deny&verdict=audit&proto=tcp');

/** Expects that the reader got exactly these messages, and that each message has one finding. */
async function expectSeen(reader: WiretapReader, messages: readonly Readonly<Record<string, unknown>>[]) {
  await expect.poll(() => reader.messages, soon).toMatchObject(messages);
  await expect.poll(() => find(), soon).toHaveLength(messages.length);
  expect(await find()).toEqual(
    expect.arrayContaining(messages.map((message) => expect.objectContaining(findingOf(message)))),
  );
  reader.socket.close();
}

test('a connection that a rule denies by its server name causes one finding and one wiretap message', async () => {
  await rig.put(policyOf([tls({ sni: [SERVER_NAME] }, { action: 'deny' })]));
  await rig.node.ready();
  const reader = await reading();
  expect((await rig.dial(443, [])).code).not.toBe(0);
  await expectSeen(reader, [{ ...decided, type: 'tls', verdict: 'deny' }]);
});

test('a connection that a rule denies in audit mode passes, and causes one finding and one wiretap message', async () => {
  await rig.put(policyOf([tls({ sni: [SERVER_NAME] }, { action: 'deny', mode: 'audit' })]));
  const reader = await reading();
  expect((await rig.dial(443, [])).text).toContain('HTTP/1.1 200 OK');
  await expectSeen(reader, [{ ...decided, type: 'tls', verdict: 'audit' }]);
});

test('a rule that denies a server name also denies a connection without a server name, with the reason no_server_name', async () => {
  await rig.put(policyOf([tls({ sni: [SERVER_NAME] }, { action: 'deny' })]));
  const reader = await reading();
  await rig.dial(443, ['-noservername']);
  await expectSeen(reader, [{ ...decided, type: 'tls', verdict: 'deny', sni: null, reason: 'no_server_name' }]);
});

test('a denied connection without a server name gets the reason no_server_name if an allow rule needs a server name', async () => {
  await rig.put(policyOf([tls({ sni: [SERVER_NAME] })], { default_action: 'deny' }));
  const reader = await reading();
  await rig.dial(443, ['-noservername']);
  const byDefault = { ...decided, rule: null, decided_by: 'group_default' };
  await expectSeen(reader, [{ ...byDefault, type: 'tls', verdict: 'deny', sni: null, reason: 'no_server_name' }]);
});

test('a denied HTTP request causes one finding without the query string, and an allowed request causes no finding', async () => {
  await rig.put(policyOf([intercepting({ request: { path: { prefix: ['/v1/'] } } })], { default_action: 'deny' }));
  const all = await readWiretap(rig.node, `?hostname=${SERVER_NAME}`);
  const reader = await reading();
  expect(await fetch('/v1/things?token=secret')).toBe('200');
  expect(await fetch('/other?token=secret')).toBe('403');
  const http = (path: string) => ({ method: 'GET', host: SERVER_NAME, path });
  const byDefault = { ...decided, rule: null, decided_by: 'group_default' };
  const denied = { ...byDefault, type: 'http', verdict: 'deny', http: http('/other') };
  await expectSeen(reader, [denied]);
  // Each request had its own connection, so different threads may report the requests in any order. The test
  // sorts the messages.
  await expect
    .poll(() => all.messages.toSorted(({ verdict }) => (verdict === 'allow' ? -1 : 1)), soon)
    .toMatchObject([{ ...decided, type: 'http', verdict: 'allow', http: http('/v1/things') }, denied]);
  expect(JSON.stringify([await find(), all.messages])).not.toContain('secret');
  all.socket.close();
});

test('a response that violates its rule causes one finding that names the violated matcher', async () => {
  await rig.put(policyOf([intercepting({ response: { headers: { deny_present: ['x-internal'] } } })]));
  const reader = await reading();
  expect(await fetch('/v1/things')).toBe('502');
  const http = { method: 'GET', host: SERVER_NAME, path: '/v1/things' };
  const reason = 'response/headers/deny_present/x-internal';
  await expectSeen(reader, [{ ...decided, type: 'http', verdict: 'deny', reason, http }]);
});

test('a connection to a server with an expired certificate causes one finding with the reason upstream_untrusted:expired', async () => {
  await rig.put(policyOf([intercepting({ request: { methods: ['GET'] } })]));
  const reader = await reading();
  expect(await fetch('/', EXPIRED_PORT)).toBe('000');
  const reason = 'upstream_untrusted:expired';
  await expectSeen(reader, [{ ...decided, type: 'tls', verdict: 'deny', dst_port: EXPIRED_PORT, reason }]);
});

test('a wiretap reader that requests a replay gets earlier messages that match its filter, over WebSocket and over Server-Sent Events', async () => {
  await rig.put(policyOf([tls({ sni: [SERVER_NAME] }, { action: 'deny' })]));
  await rig.dial(443, []);
  await expect.poll(() => find(), soon).toHaveLength(1);
  const later = await readWiretap(rig.node, '?replay=30s&type=http&verdict=deny');
  await expect.poll(() => later.messages.map(({ reason }) => reason), soon).toEqual([null, expect.any(String)]);
  later.socket.close();
  const headers = { authorization: `Bearer ${await rig.node.token()}`, accept: 'text/event-stream' };
  const end = new AbortController();
  const stream = `${rig.node.url}/api/v1/wiretap/stream?type=tls&rule=r0&replay=30s`;
  const response = await globalThis.fetch(stream, { headers, signal: end.signal });
  let text = '';
  const decoder = new TextDecoder();
  for await (const bytes of response.body ?? []) {
    text += decoder.decode(bytes as Uint8Array, { stream: true });
    if (text.includes('"verdict":"audit"')) break;
  }
  expect(text).toMatch(/^data: .*"type":"tls".*"verdict":"audit"/m);
  end.abort();
});

test('findings, stats and metrics agree on the counts of the decisions of all previous tests of this file', async () => {
  const shown = (await find('2026-01-01T00:00:00Z')).map(
    ({ finding_type: type, rule, effective_action: action, reason, count }) =>
      `${String(type)} ${String(rule)} ${String(action)} ${String(reason)} ${count}`,
  );
  expect(shown.toSorted()).toEqual([
    'http_deny null deny null 1',
    'http_deny r0 deny response/headers/deny_present/x-internal 1',
    'tls_deny null deny no_server_name 1',
    'tls_deny r0 allow null 1',
    'tls_deny r0 deny no_server_name 1',
    'tls_deny r0 deny null 2',
    'tls_deny r0 deny upstream_untrusted:expired 1',
  ]);
  const stats = (await rig.node.request('GET', '/api/v1/stats')).body as Record<string, Record<string, unknown>>;
  expect(stats.tls).toEqual({
    allow: 0,
    deny: 5,
    audit: 1,
    intercepted: 4,
    connections: expect.any(Number),
    suspended: 0,
    intercept_ca: true,
    refused: { response_denied: 1, 'upstream_untrusted:expired': 1 },
    upstream_ca_fault: null,
    join_fault: null,
  });
  expect(stats.http).toEqual({ allow: 2, deny: 1, audit: 0, responses_deny: 1, responses_audit: 0 });
  const { text } = await rig.node.request('GET', '/metrics');
  const lines = text.split('\n').filter((line) => /^weir_(tls|http|service_plane_refused)_/.test(line));
  expect(lines).toEqual([
    'weir_tls_connections_total{verdict="allow"} 0',
    'weir_tls_connections_total{verdict="deny"} 5',
    'weir_tls_connections_total{verdict="audit"} 1',
    'weir_tls_intercepted_total 4',
    'weir_http_requests_total{verdict="allow"} 2',
    'weir_http_requests_total{verdict="deny"} 1',
    'weir_http_requests_total{verdict="audit"} 0',
    'weir_http_responses_broken_total{verdict="deny"} 1',
    'weir_http_responses_broken_total{verdict="audit"} 0',
    'weir_service_plane_refused_total{reason="too_many_connections"} 0',
    'weir_service_plane_refused_total{reason="too_many_connections_of_source"} 0',
    'weir_service_plane_refused_total{reason="upstream_untrusted:unknown_issuer"} 0',
    expect.stringContaining('{reason="'),
    expect.stringContaining('{reason="'),
  ]);
});

describe('hits of the service plane', () => {
  type Hit = Readonly<Record<'source_group' | 'rule' | 'decided_by', string | null>> & { readonly packets: number };
  const hits = async (query = ''): Promise<Readonly<Record<string, number>>> => {
    const { items } = (await rig.node.request('GET', `/api/v1/policy/hits${query}`)).body as { items: Hit[] };
    return Object.fromEntries(items.map(({ rule, decided_by: by, packets }) => [rule ?? by, packets]));
  };
  const total = (counts: object): number =>
    Object.entries(counts).reduce((sum, [name, count]) => (/^(allow|deny|audit)$/.test(name) ? sum + count : sum), 0);
  /**
   * Returns the number of decisions: of the BPF program on packets, and of the service plane on connections
   * and requests.
   */
  const decisions = async (): Promise<number> => {
    const { dataplane, tls, http } = (await rig.node.request('GET', '/api/v1/stats')).body as {
      dataplane: { packets: object };
      tls: object;
      http: object;
    };
    return total(dataplane.packets) + total(tls) + total(http);
  };
  const named = (id: string, block: Readonly<Record<string, unknown>>, action: string) => tls(block, { id, action });

  test.each([
    [
      'the TLS rule that denies a connection, not for the TLS rule before it',
      [
        named('tls-before', { sni: ['other.example.net'] }, 'allow'),
        named('tls-denies', { sni: [SERVER_NAME] }, 'deny'),
        named('tls-behind', { sni: [SERVER_NAME] }, 'allow'),
      ],
      async () => (await rig.dial(443, [])).code === 0,
      false,
      { 'tls-before': 0, 'tls-denies': 1, 'tls-behind': 0, policy_default: 0 },
    ],
    [
      'the default that denies a connection which no TLS rule matches',
      [named('tls-other', { sni: ['other.example.net'] }, 'allow')],
      async () => (await rig.dial(443, [])).code === 0,
      false,
      { 'tls-other': 0, policy_default: 1 },
    ],
    [
      'the TLS rule that allows a connection',
      [
        named('tls-deny-other', { sni: ['other.example.net'] }, 'deny'),
        named('tls-allows', { sni: [SERVER_NAME] }, 'allow'),
      ],
      async () => (await rig.dial(443, [])).text.includes('HTTP/1.1 200 OK'),
      true,
      { 'tls-deny-other': 0, 'tls-allows': 1, policy_default: 0 },
    ],
    [
      'the HTTP rule that denies a request, not for the HTTP rule before it',
      [
        named('http-before', { mode: 'intercept', http: { request: { path: { prefix: ['/v1/'] } } } }, 'allow'),
        named('http-denies', { mode: 'intercept', http: { request: { path: { prefix: ['/v2/'] } } } }, 'deny'),
      ],
      () => fetch('/v2/things'),
      '403',
      { 'http-before': 0, 'http-denies': 1, policy_default: 0 },
    ],
    [
      'the HTTP rule that allows a request',
      [
        named('http-deny-other', { mode: 'intercept', http: { request: { path: { prefix: ['/v1/'] } } } }, 'deny'),
        named('http-allows', { mode: 'intercept', http: { request: { path: { prefix: ['/v2/'] } } } }, 'allow'),
      ],
      () => fetch('/v2/things'),
      '200',
      { 'http-deny-other': 0, 'http-allows': 1, policy_default: 0 },
    ],
  ])(
    'one TLS connection or HTTP request adds one hit to the rule or default that decided it: %s',
    async (_, rules, attempt, outcome, expected) => {
      await rig.put(policyOf(rules));
      const before = { hits: await hits(), decided: await decisions() };
      expect(await attempt()).toBe(outcome);
      const added = async () =>
        Object.fromEntries(
          Object.entries(await hits()).map(([name, packets]) => [name, packets - (before.hits[name] ?? 0)]),
        );
      await expect.poll(added, soon).toEqual(expected);
      expect((await decisions()) - before.decided).toBe(1);
      const unused = Object.entries(expected).flatMap(([name, packets]) => (packets === 0 ? [name] : []));
      expect(Object.keys(await hits('?unused=true&group=clients'))).toEqual(
        unused.filter((name) => name !== 'policy_default'),
      );
    },
  );
});
