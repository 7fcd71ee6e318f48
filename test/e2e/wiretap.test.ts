import { afterAll, beforeAll, expect, test } from 'vitest';
import { ADDRESSES } from '#cli/tour/topology.js';
import { readWiretap, type WiretapMessage } from './reader.js';
import { createRig, type NodeRig, policyOf } from './rig.js';

let rig: NodeRig;
beforeAll(async () => {
  rig = await createRig('wiretap', [80, 81], { dataplane: { pickup: '0s' } });
  await rig.put(
    policyOf([
      { match: { proto: 'tcp', dst_ports: [80] } },
      { action: 'deny', mode: 'audit', match: { proto: 'udp', dst_ports: [81] } },
    ]),
  );
});
afterAll(() => rig?.remove());

const soon = { timeout: 5_000, interval: 20 };
const ofClient = (messages: readonly WiretapMessage[]) =>
  messages
    .filter(({ src }) => src === ADDRESSES.client)
    .map(({ type, dst_port, rule }) => JSON.stringify([type, dst_port, rule]));

test('a wiretap reader gets a message for an allowed flow and for a denied packet, with the deciding rule', async () => {
  const { messages, socket } = await readWiretap(rig.node);
  expect(await rig.tcp(80)).toBe('open');
  await rig.tcp(443);
  await expect
    .poll(() => ofClient(messages), soon)
    .toEqual(expect.arrayContaining(['["flow",80,"r0"]', '["verdict",443,null]']));
  const flow = messages.find(({ type }) => type === 'flow');
  expect(flow).toEqual({
    type: 'flow',
    time: expect.stringMatching(/^\d{4}-\d\d-\d\dT[\d:.]+Z$/),
    src: ADDRESSES.client,
    src_port: expect.any(Number),
    dst: ADDRESSES.server,
    dst_port: 80,
    proto: 6,
    icmp_id: null,
    src_names: [],
    dst_names: [],
    verdict: 'allow',
    effective_action: 'allow',
    source_group: 'clients',
    rule: 'r0',
    decided_by: 'rule',
    policy_id: expect.any(String),
    generation: expect.any(Number),
    interface: 'lan0',
    state: 'tcp_syn_sent',
    foreign: false,
    translation: null,
  });
  expect(messages.find(({ type }) => type === 'verdict')).toMatchObject({
    verdict: 'deny',
    effective_action: 'deny',
    drop_reason: 'policy_deny',
    source_group: null,
    decided_by: 'policy_default',
    source_groups: ['clients'],
  });
  socket.close();
});

test('a wiretap reader that requests a replay gets the recent messages that its filter matches', async () => {
  await rig.udp(81);
  const { messages, socket } = await readWiretap(rig.node, '?replay=30s&proto=udp');
  await expect.poll(() => ofClient(messages), soon).toEqual(['["flow",81,"r1"]']);
  expect(messages[0]).toMatchObject({ verdict: 'audit', effective_action: 'allow' });
  socket.close();
});

test('a wiretap reader over Server-Sent Events gets the messages that its filter matches', async () => {
  const headers = { authorization: `Bearer ${await rig.node.token()}`, accept: 'text/event-stream' };
  const end = new AbortController();
  const response = await fetch(`${rig.node.url}/api/v1/wiretap/stream?type=verdict`, { headers, signal: end.signal });
  expect([response.status, response.headers.get('content-type')]).toEqual([200, 'text/event-stream; charset=utf-8']);
  await rig.tcp(444);
  let text = '';
  const decoder = new TextDecoder();
  for await (const bytes of response.body ?? []) {
    text += decoder.decode(bytes as Uint8Array, { stream: true });
    if (text.includes('"dst_port":444')) break;
  }
  expect(text).toMatch(/^data: .*"type":"verdict".*"dst_port":444/m);
  end.abort();
});

/** Returns the number of events that the BPF program has sent to the node. */
async function sent(): Promise<number> {
  const { text } = await rig.node.request('GET', '/metrics');
  return Number(/^weir_events_sent_total (\d+)$/m.exec(text)?.[1]);
}

test('performance mode off disconnects wiretap readers and stops events of the BPF program; performance mode on starts the events again', async () => {
  const { closed } = await readWiretap(rig.node);
  await rig.node.request('PUT', '/api/v1/settings/performance-mode', { enabled: false });
  expect(await closed).toBe(4_503);
  expect((await rig.node.request('GET', '/api/v1/wiretap/stream')).status).toBe(503);
  await expect(readWiretap(rig.node)).rejects.toThrow('503');
  const before = await sent();
  await rig.tcp(446);
  expect(await sent()).toBe(before);
  await rig.node.request('PUT', '/api/v1/settings/performance-mode', { enabled: true });
  const { messages, socket } = await readWiretap(rig.node);
  const enabled = await sent();
  await rig.tcp(445);
  await expect.poll(() => ofClient(messages), soon).toContain('["verdict",445,null]');
  expect(await sent()).toBeGreaterThan(enabled);
  socket.close();
});
