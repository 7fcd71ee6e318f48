import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { firstLine, program } from '#cli/node-process.js';
import { ADDRESSES } from '#cli/topology.js';
import { createRig, policyOf, type Rig } from './rig.js';

const NO_ANSWER = 'refused ETIMEDOUT';
let rig: Rig;
beforeAll(async () => {
  rig = await createRig('rules', [80, 81, 82, 90]);
}, 120_000);
afterAll(() => rig?.remove());

describe('policies on real traffic', () => {
  test('no packet passes before the first policy', async () => {
    expect(await Promise.all([rig.tcp(80), rig.udp(80), rig.ping()])).toEqual([NO_ANSWER, 'silent 1', false]);
  });

  test('an allow rule passes only packets that it matches', async () => {
    await rig.put(policyOf([{ match: { dst_ips: [ADDRESSES.server], proto: 'tcp', dst_ports: [80] } }]));
    const seen = await Promise.all([rig.tcp(80), rig.tcp(81), rig.udp(80), rig.ping()]);
    expect(seen).toEqual(['open', NO_ANSWER, 'silent 1', false]);
  });

  test('a deny rule before an allow rule decides; a deny rule after the allow rule has no effect', async () => {
    const deny = { action: 'deny', match: { proto: 'tcp', dst_ports: [81] } } as const;
    const allow = { match: { proto: 'tcp' } };
    await rig.put(policyOf([deny, allow]));
    expect(await Promise.all([rig.tcp(80), rig.tcp(81)])).toEqual(['open', NO_ANSWER]);
    await rig.put(policyOf([allow, deny]));
    expect(await Promise.all([rig.tcp(80), rig.tcp(81)])).toEqual(['open', 'open']);
  });

  test('the priority of a rule overrides its position in the list', async () => {
    await rig.put(
      policyOf([
        { priority: 20, match: { proto: 'tcp' } },
        { priority: 10, action: 'deny', match: { proto: 'tcp', dst_ports: [81] } },
      ]),
    );
    expect(await Promise.all([rig.tcp(80), rig.tcp(81)])).toEqual(['open', NO_ANSWER]);
  });

  test('a port range includes its first and its last port', async () => {
    await rig.put(policyOf([{ match: { proto: 'tcp', dst_ports: ['81-82'] } }]));
    expect(await Promise.all([rig.tcp(80), rig.tcp(81), rig.tcp(82), rig.tcp(90)])).toEqual([
      NO_ANSWER,
      'open',
      'open',
      NO_ANSWER,
    ]);
  });

  test('a rule with source ports matches only packets from these ports', async () => {
    await rig.put(policyOf([{ match: { proto: 'any', src_ports: ['40000-40010'], dst_ports: [80] } }]));
    const from = (port: number): readonly string[] => ['--source-port', `${port}`];
    expect(await Promise.all([40_010, 40_011].map((port) => rig.tcp(80, ...from(port))))).toEqual(['open', NO_ANSWER]);
    expect(await Promise.all([40_000, 39_999].map((port) => rig.udp(80, ...from(port))))).toEqual([
      'pong 1',
      'silent 1',
    ]);
  });

  test('a UDP answer passes as a reply of the flow', async () => {
    await rig.put(policyOf([{ match: { proto: 'udp', dst_ports: [80] } }]));
    expect(await Promise.all([rig.udp(80), rig.udp(81)])).toEqual(['pong 1', 'silent 1']);
  });

  test('a rule with an ICMP type matches only packets of this type', async () => {
    const timestamp = async (): Promise<boolean> => {
      const { stdout } = await rig.topology.client.run(
        'hping3',
        '-1',
        '--icmptype',
        '13',
        '-c',
        '1',
        '-n',
        ADDRESSES.server,
      );
      return /ICMP timestamp/.test(stdout);
    };
    await rig.put(policyOf([{ match: { proto: 'icmp', icmp_types: [8] } }]));
    expect(await Promise.all([rig.ping(), timestamp()])).toEqual([true, false]);
    await rig.put(policyOf([{ match: { proto: 'icmp', icmp_types: [13] } }]));
    expect(await Promise.all([rig.ping(), timestamp()])).toEqual([false, true]);
    await rig.put(policyOf([{ match: { proto: 'icmp' } }]));
    expect(await Promise.all([rig.ping(), timestamp()])).toEqual([true, false]);
  });

  test('a group decides packets of its sources, and its default action decides the packets that no rule matches', async () => {
    await rig.put({
      default_policy: 'allow',
      source_groups: [
        { id: 'first', mode: 'enforce', sources: { ips: [ADDRESSES.client] }, default_action: 'deny' },
        { id: 'second', mode: 'enforce', sources: { cidrs: ['10.77.0.0/16'] }, rules: [], default_action: 'allow' },
      ],
    });
    const sources = [ADDRESSES.client, ADDRESSES.clientOther];
    const seen = await Promise.all(sources.map((source) => rig.tcp(80, '--source', source)));
    expect(seen).toEqual([NO_ANSWER, 'open']);
  });

  test('the default policy decides after the last group; without a default policy the fallback decides', async () => {
    await rig.put({ default_policy: 'allow', source_groups: [] });
    expect(await rig.tcp(80)).toBe('open');
    await rig.put({ source_groups: [] });
    expect(await rig.tcp(80)).toBe(NO_ANSWER);
  });

  test('a packet that a rule denies in audit mode passes and is counted', async () => {
    await rig.put(policyOf([{ action: 'deny', mode: 'audit', match: { proto: 'tcp', dst_ports: [80] } }]));
    const before = await rig.stats();
    expect(await rig.tcp(80)).toBe('open');
    const after = await rig.stats();
    expect(after.packets.audit).toBeGreaterThan(before.packets.audit);
    expect(after.drops).toEqual(before.drops);
    expect(await rig.tcp(81)).toBe(NO_ANSWER);
    expect((await rig.stats()).packets.deny).toBeGreaterThan(after.packets.deny);
  });

  test('a policy change ends the flow that the new policy denies, and no other flow', async () => {
    const both = [{ match: { proto: 'tcp', dst_ports: [80, 81] } }];
    await rig.put(policyOf(both));
    const flows = [80, 81].map((port) =>
      rig.topology.client.start(process.execPath, [
        program('tour-traffic'),
        ...['connect', ADDRESSES.server, String(port), '--every', '20', '--timeout', '600'],
      ]),
    );
    const lines = flows.map((flow) => {
      const seen: string[] = [];
      flow.stdout
        ?.setEncoding('utf8')
        .on('data', (text: string) => seen.push(...text.split('\n').filter((l) => l !== '')));
      return seen;
    });
    const until = async (check: () => boolean): Promise<void> => {
      await expect.poll(check, { timeout: 10_000, interval: 20 }).toBe(true);
    };
    await until(() => lines.every((seen) => seen.includes('pong 5')));
    await rig.put(policyOf([{ match: { proto: 'tcp', dst_ports: [81] } }]));
    const answered = lines[0]?.length ?? 0;
    await until(() => lines[0]?.at(-1)?.startsWith('silent') === true);
    // One answer of the server may still be on its way when the new policy takes effect.
    expect((lines[0]?.filter((line) => line.startsWith('pong')).length ?? 0) - answered).toBeLessThanOrEqual(1);
    const alive = lines[1]?.length ?? 0;
    await until(() => (lines[1]?.length ?? 0) > alive + 5);
    expect(lines[1]?.some((line) => line.startsWith('silent'))).toBe(false);
    for (const flow of flows) flow.kill('SIGKILL');
  });

  test('a rule that needs an absent service plane or DNS proxy fails closed, and readiness names the absent part', async () => {
    await rig.put(
      policyOf([
        { match: { proto: 'tcp', dst_ports: [80], tls: { sni: ['good.test'] } } },
        { match: { proto: 'tcp', dst_ports: [81], dns_hostname: 'good.test' } },
        { match: { proto: 'tcp', dst_ports: [82] } },
      ]),
    );
    expect(await Promise.all([rig.tcp(80), rig.tcp(81), rig.tcp(82)])).toEqual([NO_ANSWER, NO_ANSWER, 'open']);
    const report = (await rig.node.request('GET', '/ready')).body as {
      checks: { name: string; ok: boolean; state: string }[];
    };
    const states = report.checks.filter((check) => !check.ok).map(({ name, state }) => ({ name, state }));
    expect(states).toEqual([
      { name: 'dns_allowlist', state: 'needed_but_absent' },
      { name: 'service_plane', state: 'needed_but_absent' },
    ]);
  });

  test('a TLS rule in audit mode never cuts a connection', async () => {
    await rig.put(policyOf([{ mode: 'audit', match: { proto: 'tcp', tls: { sni: ['good.test'] } } }]));
    expect(await rig.tcp(80)).toBe('open');
  });

  test('a disabled policy leaves the fallback in force, and an inactive policy has no effect', async () => {
    const created = await rig.node.request('POST', '/api/v1/policies?activate=false', {
      mode: 'enforce',
      name: 'open',
      policy: { default_policy: 'allow' },
    });
    expect(created.status).toBe(201);
    await rig.put(policyOf([{ match: { proto: 'tcp', dst_ports: [80] } }]));
    expect(await Promise.all([rig.tcp(80), rig.tcp(81)])).toEqual(['open', NO_ANSWER]);
    const activated = await rig.node.request('PUT', '/api/v1/policies/by-name/open', {
      mode: 'enforce',
      policy: { default_policy: 'allow' },
    });
    expect(activated.status).toBe(200);
    expect(await rig.tcp(81)).toBe('open');
    const disabled = await rig.node.request('PUT', '/api/v1/policies/by-name/open', {
      mode: 'disabled',
      policy: { default_policy: 'allow' },
    });
    expect(disabled.status).toBe(200);
    expect(await rig.tcp(81)).toBe(NO_ANSWER);
  });

  test('the server of the traffic program prints `ready`', async () => {
    expect(await firstLine(rig.topology.server.start(process.execPath, [program('tour-traffic'), 'serve', '99']))).toBe(
      'ready',
    );
  });
});
