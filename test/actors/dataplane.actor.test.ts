import { afterEach, describe, expect, test } from 'vitest';
import { withoutInterface } from '#actors/dataplane.actor.js';
import { ProofFailed } from '#contracts/datapath/datapath.js';
import { verdictWord } from '#contracts/policy/verdict-word.js';
import { flowtableFaults } from '#dataplane/review/review.js';
import { run, serverThatAnswers } from '#test/cli/cli-run.js';
import { FLIPPED_AT, fakeDatapath } from './fake-datapath.js';
import { singleton, startSystem, stopSystems } from './running-system.js';

afterEach(stopSystems);

const refusedAs = (code: string) => expect.objectContaining({ kind: 'refused', code });

const ADOPTED_SINCE = Date.UTC(2025, 11, 31);

/** The counts and results that a node without traffic, policies and reloads reports. */
const NO_VERDICTS = { allow: 0, deny: 0, audit: 0 };
const STATS = {
  generation: 0,
  dataplane: {
    ...{ active_flows: 0, flows_opened: 0, flows_closed: 0 },
    ...{ forwarding: null, packets: NO_VERDICTS, drops: {}, non_ipv4_passed: { packets: 0 }, maps: {} },
  },
  dns: { queries_allow: 0, queries_deny: 0, servfail: 0, grants: 0 },
  tls: { ...NO_VERDICTS, intercepted: 0, connections: 0 },
  http: { ...NO_VERDICTS, responses_deny: 0 },
};
const NO_POLICIES = { status: 200, body: { items: [] } };
const NO_RELOAD = { status: 200, body: { last_reload: null } };

const PING = {
  source: 1,
  destination: 2,
  protocol: 1,
  sourcePort: 0,
  destinationPort: 0,
  icmpType: 8,
  icmpCode: 0,
};

describe('dataplane actor', () => {
  test('the dataplane actor puts the configured fallback policy in force if no policy was ever written', async () => {
    const { datapath, until, system } = await startSystem();
    await until('policy_ready', 'never_activated');
    expect(datapath.log).toEqual(['open', 'attach', 'stage 0', 'prove 0', 'flip 0']);
    expect(system.readiness().checks.filter(({ ok }) => !ok)).toEqual([
      {
        name: 'policy_ready',
        ok: false,
        state: 'never_activated',
        detail: 'no policy was ever activated; policy.fallback decides',
        since: '2026-01-01T00:00:00.000Z',
      },
    ]);
  });

  test('the dataplane actor keeps the compiled policy of an earlier process in force, if its generation number is above the newest in the data folder, until a policy is activated', async () => {
    const datapath = fakeDatapath();
    datapath.left = { generation: 7, imageSha256: '', sinceMs: ADOPTED_SINCE };
    const { until, system, stateOf } = await startSystem({ datapath });
    await until('policy_ready', 'backing_off');
    await system.started;
    expect(datapath.log).toEqual(['open', 'attach']);
    expect(stateOf('dataplane_running')).toBe('keeping');
    expect(system.readiness().checks.filter(({ ok }) => !ok)).toEqual([
      {
        name: 'policy_ready',
        ok: false,
        state: 'backing_off',
        detail:
          'the stored policy could not be activated; the node tries again soon: the kernel enforces generation 7, but the newest generation in the data folder is 0: the data folder is another folder or an older copy. The kernel enforces its policy until a policy is written',
        since: '2026-01-01T00:00:00.000Z',
      },
    ]);
    expect(await system.policies.write({ ...singleton('lan'), activate: false })).toEqual(
      expect.objectContaining({ kind: 'written', generation: 0 }),
    );
    expect(await system.policies.write(singleton('lan'))).toEqual(
      expect.objectContaining({ kind: 'written', generation: 8 }),
    );
    await until('policy_ready', 'active');
    expect(datapath.log).toEqual(['open', 'attach', 'stage 8', 'prove 8', 'flip 8']);
    expect(stateOf('dataplane_running')).toBe('enforcing');
  });

  test('the dataplane actor reports the generation in force and since when: of its activation by an earlier process, or of the latest policy write; it does not know the generation after it has lost the datapath', async () => {
    const datapath = fakeDatapath();
    datapath.left = { generation: 7, imageSha256: '', sinceMs: ADOPTED_SINCE };
    const { until, system } = await startSystem({ datapath });
    const flipped = new Date(FLIPPED_AT).toISOString();
    expect(system.enforcement()).toEqual({ enforcing: null, generation: null, since: null });
    await until('policy_ready', 'backing_off');
    const adopted = { enforcing: true, generation: 7, since: '2025-12-31T00:00:00.000Z' };
    expect(system.enforcement()).toEqual(adopted);
    await system.policies.write(singleton('lan'));
    expect(system.enforcement()).toEqual({ enforcing: true, generation: 8, since: flipped });
    datapath.tell({ type: 'worker_died', reason: 'SIGSEGV' });
    expect(system.enforcement()).toEqual({ enforcing: null, generation: null, since: flipped });
  });

  test('the dataplane actor keeps the policy of an earlier process in force if a newly written policy fails its proof (a test run in the kernel)', async () => {
    const datapath = fakeDatapath();
    datapath.left = { generation: 7, imageSha256: '', sinceMs: ADOPTED_SINCE };
    datapath.on.prove = () => {
      throw new ProofFailed({ packet: PING, expected: verdictWord(0, 'deny', false), found: 0 });
    };
    const { until, system, stateOf } = await startSystem({ datapath });
    await until('policy_ready', 'backing_off');
    expect(await system.policies.write(singleton('lan'))).toEqual(refusedAs('proof_failed'));
    expect(datapath.log).toEqual(['open', 'attach', 'stage 8', 'prove 8']);
    expect(stateOf('dataplane_running')).toBe('keeping');
    expect(datapath.inForce).toBe(null);
  });

  test('the dataplane actor opens the datapath again after the datapath thread died, and puts the previous policy in force again', async () => {
    const { datapath, until, system, stateOf } = await startSystem();
    await until('policy_ready', 'never_activated');
    await system.policies.write(singleton('lan'));
    datapath.log.length = 0;
    datapath.tell({ type: 'worker_died', reason: 'SIGSEGV' });
    expect(system.readiness().checks[0]).toEqual({
      name: 'dataplane_running',
      ok: false,
      state: 'backing_off',
      detail: 'the datapath will be opened again soon; the pinned programs continue to enforce: SIGSEGV',
      since: '2026-01-01T00:00:00.000Z',
    });
    expect(stateOf('dataplane_config')).toBe('unresolved');
    expect(stateOf('policy_ready')).toBe('active');
    expect(await system.policies.write(singleton('wan'))).toEqual(refusedAs('dataplane_unavailable'));
    await until('dataplane_running', 'enforcing');
    expect(datapath.log).toEqual(['open', 'attach', 'stage 1', 'prove 1', 'flip 1']);
    expect((await system.policies.write(singleton('wan'))).kind).toBe('written');
  });

  test('the dataplane actor refuses a policy write without delay if the datapath thread dies while the policy is being loaded into the kernel', async () => {
    const { datapath, until, system } = await startSystem({ activationTimeoutMs: 60_000 });
    await until('policy_ready', 'never_activated');
    let staging = (): void => {};
    const isStaging = new Promise<void>((resolve) => {
      staging = resolve;
    });
    datapath.on.stage = () => {
      staging();
      return new Promise(() => {});
    };
    const written = system.policies.write(singleton('lan'));
    await isStaging;
    datapath.tell({ type: 'worker_died', reason: 'SIGSEGV' });
    expect(await written).toEqual({
      kind: 'refused',
      code: 'dataplane_unavailable',
      detail: 'the dataplane failed during the request',
    });
    expect(system.readiness().checks[0]?.state).toBe('backing_off');
  });

  test('the dataplane actor puts the fallback policy in force only after the proof (a test run in the kernel) of this policy has passed', async () => {
    const datapath = fakeDatapath();
    datapath.on.prove = () => {
      throw new ProofFailed({ packet: PING, expected: verdictWord(0, 'deny', false), found: 0 });
    };
    const { until, system } = await startSystem({ datapath });
    await until('policy_ready', 'backing_off');
    expect(datapath.log).toEqual(['open', 'attach', 'stage 0', 'prove 0']);
    expect(system.readiness().checks[2]?.detail).toBe(
      'the stored policy could not be activated; the node tries again soon: ICMP type 8 code 0 from 0.0.0.1 to 0.0.0.2: the policy gives deny by the default policy, and the compiled tables give an invalid verdict',
    );
    delete datapath.on.prove;
    await until('policy_ready', 'never_activated');
    expect(datapath.inForce).toBe(0);
  });

  test('the dataplane actor opens the datapath again after the first attempt to open the datapath has failed', async () => {
    const datapath = fakeDatapath();
    let attempts = 0;
    datapath.on.open = () => {
      if (++attempts < 2) throw new Error('open the programs: EBUSY');
    };
    const { until } = await startSystem({ datapath });
    await until('dataplane_running', 'backing_off');
    await until('dataplane_running', 'enforcing');
    expect(attempts).toBe(2);
  });

  test('the dataplane actor reports a missing capability such as CAP_BPF, and refuses each policy write without storing the policy', async () => {
    const datapath = fakeDatapath();
    datapath.missing = [{ what: 'CAP_BPF', sentence: 'Run as root, or grant CAP_BPF.' }];
    const { until, system, store } = await startSystem({ datapath });
    await until('policy_ready', 'unenforced');
    expect(
      system
        .readiness()
        .checks.slice(0, 3)
        .map(({ state, detail }) => [state, detail]),
    ).toEqual([
      ['unsupported', 'this machine does not meet the requirements of the dataplane: Run as root, or grant CAP_BPF.'],
      ['unresolved', 'the datapath is not attached yet'],
      ['unenforced', 'the stored policy waits for the dataplane: Run as root, or grant CAP_BPF.'],
    ]);
    expect(await system.policies.write(singleton('lan'))).toEqual(refusedAs('dataplane_unavailable'));
    expect(await store.policies.list()).toEqual([]);
    expect(datapath.log).toEqual([]);
  });

  test('the dataplane actor fails the check `dataplane_config` while a configured interface is missing, until that interface appears', async () => {
    const datapath = fakeDatapath();
    datapath.interfaces = ['wan0'];
    const { until, system } = await startSystem({ datapath });
    await until('dataplane_config', 'interface_missing');
    expect(system.readiness().checks[1]?.detail).toBe('no interface has this name: lan0');
    datapath.interfaces = ['lan0', 'wan0'];
    datapath.tell({ type: 'interface_appeared', interface: 'lan0' });
    await until('dataplane_config', 'configured');
  });

  test('the dataplane actor reports a configured interface pattern with `*` that matches no interface, while the check `dataplane_config` stays ok', async () => {
    const datapath = fakeDatapath();
    datapath.interfaces = ['lan0'];
    const { until, system } = await startSystem({ datapath });
    await until('dataplane_config', 'configured');
    expect(system.readiness().checks[1]).toMatchObject({
      ok: true,
      detail: expect.stringContaining('no interface has a name like wan* now'),
    });
    datapath.interfaces = ['lan0', 'wan0'];
    datapath.tell({ type: 'interface_appeared', interface: 'wan0' });
    await expect.poll(() => system.readiness().checks[1]?.detail).not.toContain('wan*');
  });

  test('the dataplane actor fails the check `dataplane_config` with both names of a renamed interface until a configured name matches, and then reports other missing interfaces', async () => {
    const datapath = fakeDatapath();
    const { until, system } = await startSystem({ datapath });
    await until('dataplane_config', 'configured');
    datapath.interfaces = ['old0', 'wan0'];
    datapath.renamedFrom = { old0: 'lan0' };
    datapath.tell({ type: 'interface_renamed', interface: 'lan0', to: 'old0' });
    await until('dataplane_config', 'interface_renamed');
    const renamed =
      'a policed interface has a name that dataplane.interfaces does not contain: lan0 is old0 now, and stays policed: put old0 into dataplane.interfaces, rename the interface back, or end its policing with weir config reload --allow-unpoliced';
    expect(system.readiness().checks[1]).toMatchObject({
      ok: false,
      detail: renamed,
    });
    datapath.interfaces = ['lan0', 'old0', 'wan0'];
    datapath.tell({ type: 'interface_appeared', interface: 'lan0' });
    await expect.poll(() => datapath.log.filter((name) => name === 'attach').length).toBe(3);
    await until('dataplane_config', 'interface_renamed');
    expect(system.readiness().checks[1]?.detail).toBe(renamed);
    datapath.interfaces = ['lan0', 'wan0'];
    datapath.renamedFrom = {};
    datapath.tell({ type: 'interface_vanished', interface: 'old0' });
    await until('dataplane_config', 'configured');
    datapath.interfaces = ['wan0'];
    datapath.tell({ type: 'interface_vanished', interface: 'lan0' });
    await until('dataplane_config', 'interface_missing');
    expect(system.readiness().checks[1]?.detail).toBe('no interface has this name: lan0');
  });

  test('the dataplane actor reports that the flow table refuses new flows, but stays ready and does not attach the datapath again', async () => {
    const { datapath, until, system } = await startSystem();
    await until('dataplane_running', 'enforcing');
    const running = () => system.readiness().checks[0];
    datapath.log.length = 0;
    datapath.tell({ type: 'refusals_changed', refusing: ['flow_share'] });
    const share =
      'warning: the flow table refuses new flows of sources that have used their share (dataplane.flow_share)';
    expect(running()).toMatchObject({ ok: true, state: 'enforcing', detail: `enforcing; ${share}` });
    datapath.tell({ type: 'refusals_changed', refusing: ['flow_table_full', 'flow_share'] });
    expect(running()?.detail).toBe(
      `enforcing; warning: the flow table is full and refuses new flows (dataplane.flow_capacity); ${share}`,
    );
    expect(system.readiness().checks[1]?.state).toBe('configured');
    datapath.tell({ type: 'link_lost', interface: 'lan0' });
    await until('dataplane_config', 'configured');
    expect(running()?.detail).toContain(share);
    datapath.tell({ type: 'refusals_changed', refusing: [] });
    expect(running()?.detail).toBe('enforcing');
    expect(datapath.log).toEqual(['attach']);
    datapath.tell({ type: 'refusals_changed', refusing: ['flow_share'] });
    datapath.tell({ type: 'worker_died', reason: 'SIGSEGV' });
    await until('dataplane_running', 'enforcing');
    expect(running()?.detail).toBe('enforcing');
  });

  test('the dataplane actor attaches the datapath again after a BPF link was lost, and fails the check `dataplane_config` if attaching fails', async () => {
    const { datapath, until, system } = await startSystem();
    await until('dataplane_running', 'enforcing');
    datapath.on.attach = () => {
      throw new Error('attach to lan0: EPERM');
    };
    datapath.tell({ type: 'link_lost', interface: 'lan0' });
    await until('dataplane_config', 'reattach_failed');
    expect(system.readiness().checks[1]?.detail).toBe(
      'attaching again failed; the node tries again soon: attach to lan0: EPERM',
    );
    expect(system.readiness().checks[0]?.state).toBe('enforcing');
  });

  test('the check `dataplane_config` fails for a flowtable with hardware offload, and `weir status` shows the whole reason', async () => {
    const { datapath, until, system } = await startSystem();
    await until('dataplane_config', 'configured');
    const flowtable = { family: 'inet', table: 'fw', name: 'fast', offloads: true, devices: ['lan0', 'wan0'] } as const;
    const faults = flowtableFaults([{ name: 'lan0' }, { name: 'wan0' }], [flowtable]);
    datapath.reviewed = { faults: [...faults, 'eth1 is a port of bond0'], warnings: [] };
    datapath.tell({ type: 'review_changed' });
    await until('dataplane_config', 'refused');
    const report = { status: 503, body: system.readiness() };
    const { url } = await serverThatAnswers(report, { status: 200, body: STATS }, NO_POLICIES, NO_RELOAD);
    const { code, out } = await run(['status', '--server', url], { WEIR_TOKEN: 't' });
    expect(code).toBe(3);
    expect(out).toMatch(
      /^FAILS {2}dataplane_config +refused .* a configured interface cannot be policed: flowtable inet fw fast has the flag offload, so the network card forwards flows of lan0, wan0 without the datapath: remove the flag, or remove lan0, wan0 from the flowtable; eth1 is a port of bond0$/m,
    );
    datapath.reviewed = { faults: [], warnings: [] };
    datapath.tell({ type: 'review_changed' });
    await until('dataplane_config', 'configured');
  });

  test('the dataplane actor names removed BPF pins in the check `dataplane_config` until the pins are restored', async () => {
    const { datapath, until, system } = await startSystem();
    await until('dataplane_config', 'configured');
    let restore = (): void => {};
    const restored = new Promise<void>((resolve) => {
      restore = resolve;
    });
    datapath.on.attach = () => restored;
    datapath.tell({ type: 'pins_lost', pins: ['flows', 'weir_ingress'] });
    await until('dataplane_config', 'reattaching');
    expect(system.readiness().checks[1]).toMatchObject({
      ok: false,
      detail:
        'interfaces, the guard or pins changed; attaching again: pins were removed or replaced: flows, weir_ingress',
    });
    restore();
    await until('dataplane_config', 'configured');
    expect(system.readiness().checks[1]).toMatchObject({
      ok: true,
      detail: 'the datapath is attached to every configured interface',
    });
  });
});

test('the configured interface name `wan*` matches every interface whose name begins with `wan`', () => {
  const attachment = (name: string) => ({ interface: name, ifindex: 1, by: 'tcx' as const, renamedFrom: null });
  const attachments = [attachment('lan0'), attachment('wan7'), { ...attachment('lanX'), renamedFrom: 'lan1' }];
  expect(withoutInterface(['lan0', 'lan1', 'wan*', 'lan', 'dmz*'], attachments)).toEqual({
    renamed: [{ from: 'lan1', to: 'lanX' }],
    missing: ['lan'],
    unmatched: ['dmz*'],
  });
});
