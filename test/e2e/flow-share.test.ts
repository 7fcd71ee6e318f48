import { afterAll, beforeAll, expect, test } from 'vitest';
import { ADDRESSES } from '#cli/tour/topology.js';
import { createRig, type NodeRig, policyOf } from './rig.js';

/**
 * The smallest flow capacity that the configuration accepts. With it, one client soon reaches its flow limit.
 */
const CAPACITY = 1_024;
const PORT = 81;

let rig: NodeRig;
beforeAll(async () => {
  rig = await createRig('share', [80, PORT], { dataplane: { pickup: '0s', flow_capacity: CAPACITY } });
  const sources = { ips: [ADDRESSES.client, ADDRESSES.clientOther] };
  await rig.put(policyOf([{ match: {} }], { sources }));
});
afterAll(() => rig?.remove());

/**
 * Sends one datagram from each of up to `ports` source ports, and waits for each echo. Stops early when an
 * echo is missing after the flow limit. Returns the number of echoes.
 */
const flood = async (ports: number): Promise<number> => {
  const script = `
import socket
answered = 0
for port in range(20000, 20000 + ${ports}):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.bind(('${ADDRESSES.client}', port)); s.settimeout(0.3); s.sendto(b'x', ('${ADDRESSES.server}', ${PORT}))
    try: s.recv(100); answered += 1
    except socket.timeout:
        if port > 20000 + ${CAPACITY} / 2 + 5: break
    s.close()
print(answered)`;
  return Number(await rig.topology.client.must('/usr/bin/python3', '-c', script));
};
const running = async () => {
  const reply = await rig.node.request('GET', '/ready');
  const { ready, checks } = reply.body as { ready: boolean; checks: { name: string; detail: string }[] };
  return { ready, detail: checks.find(({ name }) => name === 'dataplane_running')?.detail };
};
const soon = { timeout: 10_000, interval: 100 };

test('a source at its flow limit gets no new flows; readiness, stats, metrics and findings report it, and other sources still connect', async () => {
  expect(await running()).toEqual({ ready: true, detail: 'enforcing' });
  expect(await flood(CAPACITY)).toBe(CAPACITY / 2 + 1);
  await expect.poll(running, soon).toEqual({
    ready: true,
    detail:
      'enforcing; warning: the flow table refuses new flows of sources that have used their share (dataplane.flow_share)',
  });
  expect(await rig.stats()).toMatchObject({ refusing: ['flow_share'] });
  const { text } = await rig.node.request('GET', '/metrics');
  expect(Number(/weir_dataplane_drops_total\{reason="flow_share"\} (\d+)/.exec(text)?.[1])).toBeGreaterThan(0);
  const finding = async () => {
    const reply = await rig.node.request('GET', '/api/v1/audit/findings?limit=1000');
    const { items } = reply.body as { items: Readonly<Record<string, unknown>>[] };
    return items
      .filter(({ drop_reason: reason }) => reason === 'flow_share')
      .map(({ finding_type: type, src_ip: src, dst_ip: dst, dst_port: port }) => ({ type, src, dst, port }));
  };
  await expect
    .poll(finding, soon)
    .toEqual([{ type: 'l4_deny', src: ADDRESSES.client, dst: ADDRESSES.server, port: PORT }]);
  expect(await rig.tcp(80, '--source', ADDRESSES.clientOther)).toBe('open');
});
