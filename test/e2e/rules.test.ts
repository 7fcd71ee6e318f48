import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { firstLine, program } from '#cli/tour/node-process.js';
import { ADDRESSES } from '#cli/tour/topology.js';
import { createRig, type NodeRig, policyOf } from './rig.js';

const NO_ANSWER = 'refused ETIMEDOUT';
let rig: NodeRig;
beforeAll(async () => {
  rig = await createRig('rules', [80, 81, 82, 90]);
});
afterAll(() => rig?.remove());

describe('policies on real traffic', () => {
  test('no packet passes before the node has received a policy', async () => {
    expect(await Promise.all([rig.tcp(80), rig.udp(80), rig.ping()])).toEqual([NO_ANSWER, 'silent 1', false]);
  });

  test('an allow rule passes packets that match the rule, and no packet of another protocol or port', async () => {
    await rig.put(policyOf([{ match: { dst_ips: [ADDRESSES.server], proto: 'tcp', dst_ports: [80] } }]));
    const seen = await Promise.all([rig.tcp(80), rig.tcp(81), rig.udp(80), rig.ping()]);
    expect(seen).toEqual(['open', NO_ANSWER, 'silent 1', false]);
  });

  test('the first rule that matches decides: a deny rule drops packets only if it comes before the allow rule', async () => {
    const deny = { action: 'deny', match: { proto: 'tcp', dst_ports: [81] } } as const;
    const allow = { match: { proto: 'tcp' } };
    await rig.put(policyOf([deny, allow]));
    expect(await Promise.all([rig.tcp(80), rig.tcp(81)])).toEqual(['open', NO_ANSWER]);
    await rig.put(policyOf([allow, deny]));
    expect(await Promise.all([rig.tcp(80), rig.tcp(81)])).toEqual(['open', 'open']);
  });

  test('rules apply in the order of their priorities, lowest number first, whatever their positions in the list', async () => {
    await rig.put(
      policyOf([
        { priority: 20, match: { proto: 'tcp' } },
        { priority: 10, action: 'deny', match: { proto: 'tcp', dst_ports: [81] } },
      ]),
    );
    expect(await Promise.all([rig.tcp(80), rig.tcp(81)])).toEqual(['open', NO_ANSWER]);
  });

  test('a port range in a rule includes the first and the last port of the range', async () => {
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

  test('a UDP answer of the server passes as part of the flow, although no rule allows packets of the server', async () => {
    await rig.put(policyOf([{ match: { proto: 'udp', dst_ports: [80] } }]));
    expect(await Promise.all([rig.udp(80), rig.udp(81)])).toEqual(['pong 1', 'silent 1']);
  });

  test('an ICMP rule matches only packets of its ICMP type; without a type it matches echo, but not timestamp requests', async () => {
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

  test('the first source group that contains the source decides a packet; the default action of the group applies if no rule matches', async () => {
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

  test('the default policy decides packets that no source group contains; without a default policy, policy.fallback decides', async () => {
    await rig.put({ default_policy: 'allow', source_groups: [] });
    expect(await rig.tcp(80)).toBe('open');
    await rig.put({ source_groups: [] });
    expect(await rig.tcp(80)).toBe(NO_ANSWER);
  });

  test('a packet that a rule denies in audit mode passes, and increases the audit counter but no drop counter', async () => {
    await rig.put(policyOf([{ action: 'deny', mode: 'audit', match: { proto: 'tcp', dst_ports: [80] } }]));
    const before = await rig.stats();
    expect(await rig.tcp(80)).toBe('open');
    const after = await rig.stats();
    expect(after.packets.audit).toBeGreaterThan(before.packets.audit);
    expect(after.drops).toEqual(before.drops);
    expect(await rig.tcp(81)).toBe(NO_ANSWER);
    expect((await rig.stats()).packets.deny).toBeGreaterThan(after.packets.deny);
  });

  test('a policy change ends the flow that the new policy denies, and an allowed flow continues', async () => {
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
      await expect.poll(check, { interval: 20 }).toBe(true);
    };
    await until(() => lines.every((seen) => seen.includes('pong 5')));
    await rig.put(policyOf([{ match: { proto: 'tcp', dst_ports: [81] } }]));
    const answered = lines[0]?.length ?? 0;
    await until(() => lines[0]?.at(-1)?.startsWith('silent') === true);
    // One answer of the server may already be on its way to the client when the new policy takes effect.
    expect((lines[0]?.filter((line) => line.startsWith('pong')).length ?? 0) - answered).toBeLessThanOrEqual(1);
    const alive = lines[1]?.length ?? 0;
    await until(() => (lines[1]?.length ?? 0) > alive + 5);
    expect(lines[1]?.some((line) => line.startsWith('silent'))).toBe(false);
    for (const flow of flows) flow.kill('SIGKILL');
  });

  test('packets of a rule that needs the service plane or DNS proxy are dropped while it is not configured; GET /ready names the part', async () => {
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

  test('without a service plane, a TLS rule in audit mode passes connections', async () => {
    await rig.put(policyOf([{ mode: 'audit', match: { proto: 'tcp', tls: { sni: ['good.test'] } } }]));
    expect(await rig.tcp(80)).toBe('open');
  });

  test('an inactive policy has no effect, and policy.fallback decides after the active policy is disabled', async () => {
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

  test('`tour-traffic serve` prints `ready` as its first line', async () => {
    expect(await firstLine(rig.topology.server.start(process.execPath, [program('tour-traffic'), 'serve', '99']))).toBe(
      'ready',
    );
  });
});
