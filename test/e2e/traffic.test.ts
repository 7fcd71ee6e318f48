import { afterAll, beforeAll, expect, test } from 'vitest';
import { program } from '#cli/tour/node-process.js';
import { ADDRESSES } from '#cli/tour/topology.js';
import { run } from '#test/cli/cli-run.js';
import { createRig, type NodeRig, policyOf } from './rig.js';

let rig: NodeRig;
beforeAll(async () => {
  rig = await createRig('traffic', [80, 81], { dataplane: { pickup: '0s' } });
});
afterAll(() => rig?.remove());

type Hit = { readonly source_group: string | null; readonly rule: string | null; readonly packets: number };
type Hits = { readonly policy_id: string; readonly generation: number; readonly since: string; readonly items: Hit[] };

const policy = (first: string): unknown => ({
  default_policy: 'deny',
  source_groups: [
    {
      id: 'clients',
      mode: 'enforce',
      sources: { ips: [ADDRESSES.client] },
      rules: [
        { id: first, action: 'allow', match: { proto: 'tcp', dst_ports: [80] } },
        { id: 'no-udp', action: 'deny', match: { proto: 'udp' } },
        { id: 'never', action: 'allow', match: { proto: 'tcp', dst_ports: [4444] } },
      ],
    },
  ],
});

const hits = async (): Promise<Hits> => (await rig.node.request('GET', '/api/v1/policy/hits')).body as Hits;
const packetsOf = ({ items }: Hits, rule: string): number => items.find((item) => item.rule === rule)?.packets ?? -1;

async function cli(...words: string[]): Promise<{ code: number; out: string }> {
  const { code, out, err } = await run([...words, '--server', rig.node.url], { WEIR_TOKEN: await rig.node.token() });
  return { code, out: out + err };
}

test('every packet counts as a hit of the rule that decided the packet; the hits survive policy changes and kill -9 of the node', async () => {
  await rig.put(policy('web'));
  expect(await Promise.all([rig.tcp(80), rig.udp(80), rig.udp(81), rig.ping()])).toEqual([
    'open',
    'silent 1',
    'silent 1',
    false,
  ]);
  const first = await hits();
  expect(first.items.map(({ source_group, rule }) => [source_group, rule])).toEqual([
    ['clients', 'web'],
    ['clients', 'no-udp'],
    ['clients', 'never'],
    [null, null],
  ]);
  expect(first.items.map(({ packets }) => packets).slice(1)).toEqual([2, 0, 1]);
  expect(packetsOf(first, 'web')).toBeGreaterThanOrEqual(3);
  const sum = (found: Hits): number => found.items.reduce((total, { packets }) => total + packets, 0);
  const { packets } = await rig.stats();
  expect(sum(await hits())).toBe(packets.allow + packets.deny + packets.audit);

  await rig.put(policy('other'));
  expect(await rig.tcp(80)).toBe('open');
  expect([packetsOf(await hits(), 'other') >= 3, packetsOf(await hits(), 'no-udp')]).toEqual([true, 2]);

  await rig.node.end('SIGKILL');
  expect(await rig.udp(80)).toBe('silent 1');
  await rig.node.restart();
  await rig.node.ready();
  await rig.put(policy('web'));
  const last = await hits();
  expect([packetsOf(last, 'web') >= packetsOf(first, 'web'), packetsOf(last, 'no-udp')]).toEqual([true, 3]);
  expect(Math.abs(Date.parse(last.since) - Date.parse(first.since))).toBeLessThan(1_000);
  expect(last.policy_id).toBe(first.policy_id);
  expect((await cli('hits', '--unused')).out).toMatch(/^GROUP +RULE .*\nclients +never +0 +0 +never, since [^\n]+\n$/);
});

test('GET /api/v1/flows lists an open flow with the deciding rule and the interfaces, and `weir flows cut` ends the flow', async () => {
  await rig.put(policyOf([{ match: { proto: 'tcp', dst_ports: [80] } }]));
  const child = rig.topology.client.start(process.execPath, [
    program('tour-traffic'),
    ...['connect', ADDRESSES.server, '80', '--source-port', '45678', '--every', '20', '--timeout', '500'],
  ]);
  const lines: string[] = [];
  child.stdout?.setEncoding('utf8').on('data', (text: string) => lines.push(...text.split('\n')));
  await expect.poll(() => lines.includes('pong 5')).toBe(true);

  const path = `/api/v1/flows?src=${ADDRESSES.client}&src_port=45678`;
  const { matched, items } = (await rig.node.request('GET', path)).body as { matched: number; items: unknown[] };
  expect([matched, items]).toEqual([
    1,
    [
      expect.objectContaining({
        src: ADDRESSES.client,
        dst: ADDRESSES.server,
        proto: 6,
        src_port: 45_678,
        dst_port: 80,
        state: 'tcp_established',
        verdict: 'allow',
        decided_by: 'rule',
        source_group: 'clients',
        rule: 'r0',
        current: true,
        interfaces: { in: 'lan0', out: 'wan0' },
      }),
    ],
  ]);
  const explained = async (question: object) => {
    const packet = { src: ADDRESSES.client, dst: ADDRESSES.server, proto: 'tcp', src_port: 45_678, dst_port: 80 };
    const { body } = await rig.node.request('POST', '/api/v1/policy/explain', { ...packet, ...question });
    const { decision, reason } = body as { readonly decision: string; readonly reason: string };
    return [decision, reason];
  };
  const open = expect.stringContaining('that is open: rule r0 of source group clients allowed it') as string;
  expect(await explained({})).toEqual(['allow', open]);
  const back = { src: ADDRESSES.server, dst: ADDRESSES.client, src_port: 80, dst_port: 45_678 };
  expect(await explained(back)).toEqual(['allow', open]);
  expect((await explained({ ...back, dst_port: 45_679 }))[0]).toBe('deny');
  expect(await explained({ src_port: 5, interface: 'wan0' })).toEqual([
    'deny',
    expect.stringContaining('arrive on lan0, not on wan0'),
  ]);
  expect((await explained({ src_port: 5, interface: 'lan0' }))[0]).toBe('allow');
  expect(await explained({ src: '198.51.100.7' })).toEqual(['deny', expect.stringContaining('no route leads to')]);

  const select = ['--src', ADDRESSES.client, '--src-port', '45678'];
  expect(await cli('flows', 'cut', ...select, '--dry-run')).toEqual({ code: 0, out: '1 flow would be cut\n' });
  expect((await cli('flows', ...select)).out).toContain(`tcp    ${ADDRESSES.client}:45678`);

  expect(await cli('flows', 'cut', ...select)).toEqual({ code: 0, out: '1 flow cut\n' });
  await expect.poll(() => lines.some((line) => line.startsWith('silent'))).toBe(true);
  child.kill('SIGKILL');
  expect((await rig.stats()).drops.out_of_state).toBeGreaterThan(0);
  expect(await rig.node.log()).toContain('"msg":"flows cut"');
});
