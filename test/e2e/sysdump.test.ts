import { createPrivateKey } from 'node:crypto';
import { readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { temporaryFolder } from '#cli/tour/topology.js';
import { FINDING_TYPES } from '#observe/findings/finding.js';
import type { Manifest } from '#observe/sysdump/manifest.js';
import { CERTIFICATE, KEY } from '#test/api/certificate.js';
import { openWebSocket } from '#test/api/websocket-client.js';
import { run } from '#test/cli/cli-run.js';
import { type UnpackedFile, unpacked } from '#test/observe/unpacked.js';
import { tracesOf } from '#test/service-plane/ca/traces.js';
import { readWiretap } from './reader.js';
import { createRig, type NodeRig, policyOf } from './rig.js';

const EVERY_TYPE = FINDING_TYPES.map((type) => `finding_type=${type}`).join('&');
const ENVIRONMENT = 'planted-in-the-environment';
const INTEGRATION = 'planted-in-an-integration';
const WEBHOOK = 'planted-secret-of-a-webhook';
const WEBHOOK_PATH = 'planted-path-of-a-webhook';
const PATH = '/api/v1/support/sysdump/cluster';

let rig: NodeRig;
/** Secrets that the test has given to the node. No dump, log, metric or statechart may contain a secret. */
let secrets: readonly string[];
beforeAll(async () => {
  process.env.PLANTED = ENVIRONMENT;
  const folder = await temporaryFolder('webhook');
  const secretFile = join(folder, 'secret');
  writeFileSync(secretFile, WEBHOOK, { mode: 0o600 });
  rig = await createRig('dump', [80, 81], {
    sections: {
      api: { listen: '127.0.0.1:8080', allowed_hosts: [`\${${'PLANTED'}}`, 'weir.example.com'] },
      // No server listens at the address of the webhook, so the log contains a failed delivery.
      findings: { webhook: { url: `https://127.0.0.1:9/${WEBHOOK_PATH}`, secret_file: secretFile } },
      dns: { listen: ['10.77.1.1:53'], upstreams: ['10.77.2.2:53'] },
    },
  });
  delete process.env.PLANTED;
  const { node } = rig;
  const data = join(node.folder, 'data');
  await rig.put(policy('web'));
  expect([await rig.tcp(80), await rig.tcp(81)]).toEqual(['open', 'refused ETIMEDOUT']);
  const noTelnet = { id: 'no-telnet', never: { from: ['10.77.1.0/24'], to: ['10.77.2.0/24'], ports: [23] } };
  expect((await node.request('PUT', '/api/v1/assertions', { assertions: [noTelnet] })).status).toBe(200);
  const integration = {
    name: 'prod',
    kind: 'kubernetes',
    api_server_url: 'https://10.0.0.1:6443',
    ca_cert_pem: CERTIFICATE,
    service_account_token: INTEGRATION,
  };
  expect((await node.request('POST', '/api/v1/integrations', integration)).status).toBe(201);
  const ca = { cert_pem: CERTIFICATE, key_pem: KEY };
  expect((await node.request('PUT', '/api/v1/settings/tls-intercept-ca', ca)).status).toBe(200);
  const issued = await node.request('POST', '/api/v1/tokens', { subject: 'ops', role: 'readonly' });
  const { token } = issued.body as { token: string };
  const sealKey = readFileSync(join(data, 'seal.key'), 'utf8').trim();
  // The test searches for the second line of the PEM file, because the first line (the header) is no secret.
  const tokenKey = readFileSync(join(data, 'token.key'), 'utf8').split('\n')[1] ?? '';
  const keys = [tokenKey, sealKey, ...tracesOf(createPrivateKey(KEY))];
  secrets = [ENVIRONMENT, INTEGRATION, WEBHOOK, WEBHOOK_PATH, await node.token(), token, ...keys];
  expect(secrets.map(({ length }) => length > 20)).toEqual(secrets.map(() => true));
});
afterAll(() => rig?.remove());

const policy = (rule: string): unknown =>
  policyOf([{ match: { proto: 'tcp', dst_ports: [80] } }, { match: { dns_hostname: 'api.example.com' } }], {
    id: rule,
  });

async function begin(signal?: AbortSignal): Promise<Response> {
  return fetch(rig.node.url + PATH, {
    method: 'POST',
    headers: { authorization: `Bearer ${await rig.node.token()}` },
    signal: signal ?? null,
  });
}

/** Unpacks a dump. Returns its files by path, relative to the folder of the node in the dump. */
async function filesOf(archive: Uint8Array): Promise<ReadonlyMap<string, UnpackedFile>> {
  const files = await unpacked(Readable.from([archive]));
  return new Map(
    [...files].map(([name, file]) => [name.replace(/^weir-sysdump-node-a-\d{8}T\d{6}Z\/(node-a\/)?/, ''), file]),
  );
}

const jsonIn = (files: ReadonlyMap<string, UnpackedFile>, name: string): unknown =>
  JSON.parse(files.get(name)?.text ?? 'null');
const linesIn = (files: ReadonlyMap<string, UnpackedFile>, name: string): unknown[] =>
  (files.get(name)?.text ?? '')
    .split('\n')
    .slice(0, -1)
    .map((line) => JSON.parse(line) as unknown);

/**
 * Returns the forms in which a text may contain the secret: plain, in hexadecimal, and in base64 at each of
 * the three offsets.
 */
function traces(secret: string): string[] {
  const bytes = Buffer.from(secret);
  const base64 = [0, 1, 2].map((shift) =>
    Buffer.concat([Buffer.alloc(shift), bytes])
      .toString('base64')
      .slice(shift === 0 ? 0 : 4, -4),
  );
  return [secret, bytes.toString('hex'), bytes.toString('hex').toUpperCase(), ...base64];
}

const COMPLETE = [
  'build.json',
  'configuration.json',
  'readiness.json',
  'statecharts.json',
  'statechart-events.jsonl',
  'stats.json',
  'stats-series.json',
  'metrics.txt',
  'policy/records.json',
  'policy/pending.json',
  'policy/assertions.json',
  'policy/active.json',
  'policy/warnings.json',
  'policy/program.txt',
  'dataplane/status.json',
  'dataplane/programs.json',
  'dataplane/hits.jsonl',
  'dataplane/flows.jsonl',
  'dataplane/grants.jsonl',
  'dns/names.jsonl',
  'findings.jsonl',
  'log.jsonl',
  'machine/system.json',
  'machine/process.json',
  'machine/settings.json',
  'machine/chains.json',
  'machine/links.json',
  'machine/addresses.json',
  'machine/routes.json',
  'machine/routes6.json',
  'machine/rules.json',
  'machine/neighbours.json',
  'machine/nftables-weir.txt',
];

test('`weir sysdump` writes a complete archive that only its owner can read, and does not overwrite a file', async () => {
  // The node records a finding some time after the packet.
  const findings = async () => (await rig.node.request('GET', '/api/v1/audit/findings')).text;
  await expect.poll(findings).toContain('10.77.2.2');
  const output = join(rig.node.folder, 'dump.tar.gz');
  const words = ['sysdump', '--server', rig.node.url, '--output', output];
  const environment = { WEIR_TOKEN: await rig.node.token() };
  const { code, err: said } = await run(words, environment);
  expect([code, statSync(output).mode & 0o777]).toEqual([0, 0o600]);
  const files = await filesOf(readFileSync(output));
  const { nodes } = jsonIn(files, 'manifest.json') as Manifest;
  expect(nodes[0]?.entries.map(({ name, outcome, error }) => [name, outcome, error])).toEqual(
    COMPLETE.map((name) => [name, 'complete', null]),
  );
  // The dump omits these two files, which are empty: no client has sent a DNS query yet.
  const empty = ['dataplane/grants.jsonl', 'dns/names.jsonl'];
  expect([...files.keys()]).toEqual([...COMPLETE.filter((name) => !empty.includes(name)), 'manifest.json']);
  expect(said).toMatch(/^ +\d+ B {2}node-a\/build[.]json\n/);
  expect(said).toMatch(/dump[.]tar[.]gz is complete: 31 files, [\d.]+ KiB\n$/);

  expect(jsonIn(files, 'policy/active.json')).toEqual(policy('web'));
  expect(jsonIn(files, 'policy/assertions.json')).toMatchObject({
    assertions: [expect.objectContaining({ id: 'no-telnet' })],
    results: [expect.objectContaining({ id: 'no-telnet', result: 'broken' })],
  });
  expect(jsonIn(files, 'stats-series.json')).toMatchObject({ series: { allow: expect.any(Array) as unknown[] } });
  expect(files.get('policy/program.txt')?.text).toContain('tcp/80 #0 allow');
  expect(jsonIn(files, 'readiness.json')).toEqual(expect.objectContaining({ ready: true }));
  expect(linesIn(files, 'dataplane/flows.jsonl')).toEqual([
    expect.objectContaining({ source: '10.77.1.2', destination: '10.77.2.2', protocol: 6, verdict: 'allow' }),
  ]);
  expect(linesIn(files, 'dataplane/hits.jsonl')).toHaveLength(3);
  const { owner, maps } = jsonIn(files, 'dataplane/status.json') as {
    owner: object;
    maps: { name: string; id: number }[];
  };
  expect([owner, maps.every(({ id }) => id > 0)]).toEqual([
    expect.objectContaining({ command: expect.any(String) as string }),
    true,
  ]);
  const configuration = jsonIn(files, 'configuration.json') as Record<string, unknown>;
  expect([configuration['api.allowed_hosts'], configuration['dns.upstreams']]).toEqual([
    { from: 'environment' },
    { from: 'file', value: ['10.77.2.2:53'] },
  ]);
  expect((jsonIn(files, 'machine/links.json') as { ifname: string }[]).map(({ ifname }) => ifname).sort()).toEqual([
    'lan0',
    'lo',
    'wan0',
  ]);
  expect((jsonIn(files, 'machine/settings.json') as Record<string, string>)['net/ipv4/ip_forward']).toBe('1');
  expect(linesIn(files, 'log.jsonl').map((line) => (line as { msg: string }).msg)).toContain('policy in force');

  const again = await run(words, environment);
  expect([again.code, again.err]).toEqual([
    1,
    `weir: ${output} cannot be written: the file exists already: remove it, or name another file with --output\n`,
  ]);
});

test('the support dump, the log, the metrics and the statecharts contain no secret', async () => {
  const { node } = rig;
  expect(
    (await node.request('GET', '/api/v1/policy', undefined, { authorization: 'Bearer eyJh.eyJz.c2ln' })).status,
  ).toBe(401);
  const client = await openWebSocket(`${node.url}/api/v1/debug/statecharts/stream`, { token: await node.token() });
  const tap = await readWiretap(node, '?replay=30s');
  await rig.put(policy('secrets'));
  await rig.tcp(81);
  await expect.poll(() => tap.messages.length).toBeGreaterThan(0);
  await expect
    .poll(async () => (await node.request('GET', '/api/v1/audit/findings?finding_type=auth_denied')).text)
    .toContain('invalid_token');
  await expect.poll(() => node.log()).toContain('findings_not_delivered');
  await expect.poll(() => client.messages.length).toBeGreaterThan(20);
  client.socket.destroy();
  const files = await filesOf(new Uint8Array(await (await begin()).arrayBuffer()));
  const texts: Record<string, string> = {
    ...Object.fromEntries([...files].map(([name, { text }]) => [name, text])),
    log: await node.log(),
    metrics: (await node.request('GET', '/metrics')).text,
    statecharts: (await node.request('GET', '/api/v1/debug/statecharts')).text,
    stream: JSON.stringify(client.messages),
    wiretap: JSON.stringify(tap.messages),
    findings: (await node.request('GET', `/api/v1/audit/findings?format=jsonl&${EVERY_TYPE}`)).text,
    configuration: (await node.request('GET', '/openapi/service-v1.json')).text,
    integrations: (await node.request('GET', '/api/v1/integrations')).text,
    ca: (await node.request('GET', '/api/v1/settings/tls-intercept-ca')).text,
  };
  const found = Object.entries(texts).flatMap(([name, text]) =>
    secrets.flatMap((secret, at) =>
      traces(secret).flatMap((trace, how) => (text.includes(trace) ? [[name, at, how]] : [])),
    ),
  );
  expect(found).toEqual([]);
  expect(Object.keys(texts).length).toBeGreaterThan(COMPLETE.length);
  // Checks that `traces` finds a secret that is in a base64 text.
  const planted = [`x${ENVIRONMENT}`, `xy${ENVIRONMENT}z`].map((text) => Buffer.from(text).toString('base64'));
  expect(planted.map((text) => traces(ENVIRONMENT).some((trace) => text.includes(trace)))).toEqual([true, true]);
});

test('the node refuses a second support dump while it creates one, and cancels a dump whose client disconnects', async () => {
  const [first, second] = await Promise.all([begin(), begin()]);
  const [made, refused] = first.status === 200 ? [first, second] : [second, first];
  expect([made.status, refused.status, ((await refused.json()) as { type: string }).type]).toEqual([
    200,
    409,
    'urn:weir:error:sysdump_running',
  ]);
  await made.arrayBuffer();

  const given = new AbortController();
  const begun = await begin(given.signal);
  await begun.body?.getReader().read();
  given.abort();
  const next = async (): Promise<number> => {
    const answer = await begin();
    if (answer.status !== 200) await answer.text();
    else expect((await filesOf(new Uint8Array(await answer.arrayBuffer()))).has('manifest.json')).toBe(true);
    return answer.status;
  };
  await expect.poll(next).toBe(200);
});

test('a client of the statechart stream receives every transition that the node records', async () => {
  const { node } = rig;
  const client = await openWebSocket(`${node.url}/api/v1/debug/statecharts/stream`, {
    token: await node.token(),
    protocol: 'weir.statecharts.v1',
  });
  await expect.poll(() => client.messages.length).toBeGreaterThanOrEqual(7);
  for (const rule of ['one', 'two', 'three']) await rig.put(policy(rule));
  type Chart = { name: string; session_id: string; recent: { time: string; event: string; value: unknown }[] };
  type Told = {
    type: string;
    sessionId: string;
    createdAt: string;
    event: { type: string };
    snapshot: { value: unknown };
  };
  const { charts } = (await node.request('GET', '/api/v1/debug/statecharts')).body as { charts: Chart[] };
  const seenOf = ({ session_id: session }: Chart) =>
    (client.messages as Told[])
      .filter(({ type, sessionId }) => type === '@xstate.snapshot' && sessionId === session)
      .map(({ createdAt, event, snapshot }) => ({
        time: new Date(Number(createdAt)).toISOString(),
        event: event.type,
        value: snapshot.value,
      }));
  const writing = charts.filter(({ name }) => name === 'policy' || name === 'dataplane');
  expect(writing.map((chart) => seenOf(chart).length > 5)).toEqual([true, true]);
  for (const chart of charts) {
    const seen = seenOf(chart);
    expect(seen).toEqual(seen.length === 0 ? [] : chart.recent.slice(-seen.length));
  }
  client.socket.destroy();
});
