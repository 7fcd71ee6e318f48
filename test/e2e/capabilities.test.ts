import { afterEach, expect, test } from 'vitest';
import { SERVER_NAME } from '#test/service-plane/certificates.js';
import { createInspectedRig, type InspectedRig } from './inspected.js';
import { policyOf } from './rig.js';
import { Talkers, transferBoth } from './tcp-peers.js';

const PORT = 443;
const MB = 1_000_000;
let rig: InspectedRig;
afterEach(() => rig?.remove());

/** Returns the reports of readiness, stats and metrics on the splicing offload. */
async function told(): Promise<unknown> {
  const ready = (await rig.node.request('GET', '/ready')).body as {
    readonly checks: readonly { readonly name: string; readonly ok: boolean; readonly state: string }[];
  };
  const { ok, state } = ready.checks.find(({ name }) => name === 'service_plane') ?? {};
  const stats = (await rig.node.request('GET', '/api/v1/stats')).body as {
    readonly tls: { readonly join_fault: unknown };
  };
  const { text } = await rig.node.request('GET', '/metrics');
  const metric = /^weir_service_plane_join_fault (\d)$/m.exec(text)?.[1];
  return { ok, state, fault: stats.tls.join_fault, metric };
}

test('a node without CAP_NET_RAW inspects TLS connections, does not offload them to the datapath, and reports the missing capability', async () => {
  const fault = 'CAP_NET_RAW missing';
  rig = await createInspectedRig('capabilities', {}, { without: ['NET_RAW'] });
  await rig.put(policyOf([{ match: { proto: 'tcp', dst_ports: [PORT], tls: { sni: [SERVER_NAME] } } }]));
  await rig.node.ready();
  await expect
    .poll(told, { timeout: 5_000 })
    .toEqual({ ok: true, state: 'inspecting_without_joining', fault, metric: '1' });
  const talkers = await Talkers.at(rig, PORT);
  const ends = await talkers.connect();
  await transferBoth(ends, 10 * MB);
  expect(await talkers.isOffloaded()).toBe(false);
  await talkers.end();
});

test('a node with all capabilities offloads TLS connections to the datapath, and reports no missing capability', async () => {
  rig = await createInspectedRig('capabilities');
  await rig.put(policyOf([{ match: { proto: 'tcp', dst_ports: [PORT], tls: { sni: [SERVER_NAME] } } }]));
  await rig.node.ready();
  const talkers = await Talkers.at(rig, PORT);
  await talkers.offloaded();
  expect(await told()).toEqual({ ok: true, state: 'inspecting', fault: null, metric: '0' });
  await talkers.end();
});
