import { afterAll, beforeAll, expect, test } from 'vitest';
import { firstLine, program } from '#cli/tour/node-process.js';
import { ADDRESSES } from '#cli/tour/topology.js';
import { hasNetfilterPrograms } from '#dataplane/loader/kernel-functions.js';
import { run } from '#test/cli/cli-run.js';
import { LACKS, skipUnless } from '#test/skip-unless.js';
import { createRig, type NodeRig, policyOf } from './rig.js';

const SERVER_PORT = 80;
/** The port of the node at which it forwards to port CLIENT_PORT of the client. */
const [PUBLIC, CLIENT_PORT] = [9_000, 8_080];
const NAT = `add table ip mine
add chain ip mine pre { type nat hook prerouting priority -100; }
add chain ip mine post { type nat hook postrouting priority 100; }
add rule ip mine pre ip daddr ${ADDRESSES.nodeWan} udp dport ${PUBLIC} dnat to ${ADDRESSES.client}:${CLIENT_PORT}
add rule ip mine post oifname "wan0" masquerade`;

let rig: NodeRig;
beforeAll(async () => {
  rig = await createRig('translation', [SERVER_PORT], { dataplane: { pickup: '0s' } });
  const { client, node } = rig.topology;
  await firstLine(client.start(process.execPath, [program('tour-traffic'), 'serve', String(CLIENT_PORT)]));
  await node.must('nft', NAT);
  const rules = [
    { id: 'out', match: { proto: 'udp', dst_ports: [SERVER_PORT] } },
    { id: 'in', match: { proto: 'udp', dst_ports: [CLIENT_PORT] } },
  ];
  await rig.put(policyOf(rules, { sources: { ips: [ADDRESSES.client, ADDRESSES.server] } }));
});
afterAll(() => rig?.remove());

async function cli(...words: string[]): Promise<string> {
  const { out, err } = await run([...words, '--server', rig.node.url], { WEIR_TOKEN: await rig.node.token() });
  return out + err;
}

/** Sends a datagram from a port until an answer comes. The node sees new NAT rules within a second. */
async function converse(from: 'client' | 'server', to: string, port: number, sourcePort: number): Promise<void> {
  const words = ['datagram', to, String(port), '--timeout', '300', '--source-port', String(sourcePort)];
  const ask = async () =>
    (await rig.topology[from].run(process.execPath, program('tour-traffic'), ...words)).stdout.trim();
  await expect.poll(ask).toBe('pong 1');
}

test('the list of flows shows the source address after SNAT beside the original client address, by which the policy decides', async () => {
  await converse('client', ADDRESSES.server, SERVER_PORT, 40_000);
  const [titles, ...rows] = (await cli('flows', '--src', ADDRESSES.client)).trim().split('\n');
  expect(titles).toMatch(/TRANSLATION$/);
  const [flow, ...more] = rows.map((line) => line.split(/ {2,}/));
  expect([flow?.slice(1, 3), flow?.at(-1), more]).toEqual([
    [`${ADDRESSES.client}:40000`, `${ADDRESSES.server}:${SERVER_PORT}`],
    `snat ${ADDRESSES.nodeWan}:40000`,
    [],
  ]);
});

skipUnless(hasNetfilterPrograms(), LACKS.netfilterPrograms).test(
  '`explain` accepts the address before DNAT, and decides by the real server',
  async () => {
    await converse('server', ADDRESSES.nodeWan, PUBLIC, 41_000);
    const { body } = await rig.node.request('GET', `/api/v1/flows?src=${ADDRESSES.server}`);
    expect((body as { items: { dst: string; translation: unknown }[] }).items).toMatchObject([
      {
        dst: ADDRESSES.client,
        dst_port: CLIENT_PORT,
        translation: {
          src: ADDRESSES.server,
          src_port: 41_000,
          dst: ADDRESSES.nodeWan,
          dst_port: PUBLIC,
          icmp_id: null,
        },
      },
    ]);
    const question = ['--src', ADDRESSES.server, '--dst', ADDRESSES.nodeWan, '--proto', 'udp', '--dst-port', '9000'];
    const known = await cli('policy', 'explain', ...question, '--src-port', '41000');
    expect(known).toContain(
      `conntrack translates ${ADDRESSES.nodeWan}:${PUBLIC} to ${ADDRESSES.client}:${CLIENT_PORT}`,
    );
    expect(known).toMatch(/^allow by group clients, rule in\n/);
    const unknown = await cli('policy', 'explain', ...question);
    expect(unknown).toContain('ask with the address of the server');
    expect(unknown).toContain('can change the decision: translation');
  },
);
