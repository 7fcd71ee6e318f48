import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { ADDRESSES, type Topology } from '#cli/tour/topology.js';
import { SERVER_NAME } from '#test/service-plane/certificates.js';
import { createInspectedRig, type InspectedRig } from './inspected.js';

const PORT = 443;
let rig: InspectedRig;
beforeAll(async () => {
  rig = await createInspectedRig('own-inspected', {}, { dataplane: { police_local: true } });
  const { good } = rig.certificates;
  await rig.web(PORT, good);
  const [cert, key] = [await rig.file('own.pem', good.certPem), await rig.file('own.key', good.keyPem)];
  const shown = ['-cert', cert, '-cert_chain', cert, '-key', key, '-www'];
  const own = rig.topology.node.start('openssl', ['s_server', '-accept', String(PORT), ...shown]);
  await new Promise((resolve) => own.stdout?.once('data', resolve));
});
afterAll(() => rig?.remove());

let since: string;
beforeEach(() => {
  since = new Date().toISOString();
});

const named = { proto: 'tcp', dst_ports: [PORT], tls: { sni: [SERVER_NAME] } };
const put = (mode: 'enforce' | 'audit'): Promise<void> =>
  rig.put({
    default_policy: 'deny',
    source_groups: [
      {
        id: 'all',
        mode: 'enforce',
        sources: { ips: [ADDRESSES.client, ADDRESSES.nodeWan] },
        rules: [{ id: 'named', action: 'allow', mode, match: named }],
      },
    ],
  });

type Inside = Topology['client'];
const fetched = async (inside: Inside, address: string): Promise<boolean> => {
  const at = `${SERVER_NAME}:${PORT}:${address}`;
  const { code } = await inside.run('curl', '-ksS', '--max-time', '2', '--resolve', at, `https://${SERVER_NAME}/`);
  return code === 0;
};
/**
 * Connections from the node and to the node. The service plane inspects only forwarded connections, so it
 * cannot inspect these connections.
 */
const own = (): readonly (readonly [string, Inside, string, string])[] => [
  ['from', rig.topology.node, ADDRESSES.nodeWan, ADDRESSES.server],
  ['to', rig.topology.client, ADDRESSES.client, ADDRESSES.nodeLan],
];
const findings = async (): Promise<unknown> => {
  const { body } = await rig.node.request('GET', `/api/v1/audit/findings?finding_type=l4_deny&since=${since}`);
  const { items } = body as { readonly items: readonly Readonly<Record<string, unknown>>[] };
  return items
    .map((item) => [item.src_ip, item.dst_ip, item.rule, item.effective_action, item.drop_reason])
    .toSorted((a, b) => String(a).localeCompare(String(b)));
};
const soon = { timeout: 10_000, interval: 50 };

test('connections from and to the node itself that match a TLS rule are dropped with the drop reason node_uninspected', async () => {
  await put('enforce');
  await rig.node.ready();
  for (const [, inside, , to] of own()) expect(await fetched(inside, to)).toBe(false);
  await expect.poll(findings, soon).toEqual(
    own()
      .map(([, , from, to]) => [from, to, 'named', 'deny', 'node_uninspected'])
      .toSorted(),
  );
  const { drops, packets } = await rig.stats();
  expect(drops.node_uninspected).toBeGreaterThan(1);
  expect([drops.not_inspected, drops.service_plane_absent]).toEqual([0, 0]);
  expect(packets.deny).toBe(drops.node_uninspected);
  const { body } = await rig.node.request('GET', '/api/v1/stats');
  expect((body as { readonly tls: unknown }).tls).toMatchObject({ allow: 0, connections: 0 });
  expect(await fetched(rig.topology.client, ADDRESSES.server)).toBe(true);
});

test('a policy write returns a warning for a TLS rule that can match only connections of the node itself', async () => {
  const rule = { id: 'named', action: 'allow', match: named };
  const groups = [
    { id: 'own', mode: 'enforce', sources: { ips: [ADDRESSES.nodeWan] }, rules: [rule] },
    { id: 'clients', mode: 'enforce', sources: { ips: [ADDRESSES.client] }, rules: [rule] },
  ];
  const policy = { default_policy: 'deny', source_groups: groups };
  const written = await rig.node.request('PUT', '/api/v1/policy', policy);
  expect(written.headers.get('weir-warnings')).toBe('node_uninspected');
  const { body } = await rig.node.request('PUT', '/api/v1/policy?dry_run=true', policy);
  const { warnings } = body as { readonly warnings: readonly { readonly code: string; readonly pointer: string }[] };
  expect(warnings.map(({ code, pointer }) => `${code} ${pointer}`)).toEqual([
    'node_uninspected /source_groups/0/rules/0/match/tls',
  ]);
});

test('connections from and to the node itself pass a TLS rule in audit mode, and cause findings', async () => {
  await put('audit');
  for (const [, inside, , to] of own()) expect(await fetched(inside, to)).toBe(true);
  await expect.poll(findings, soon).toEqual(
    own()
      .map(([, , from, to]) => [from, to, 'named', 'allow', null])
      .toSorted(),
  );
});
