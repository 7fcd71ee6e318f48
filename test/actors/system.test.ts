import { afterEach, describe, expect, test } from 'vitest';
import { NO_EVENTS } from '#contracts/datapath/datapath.js';
import { ALL_EVENTS } from '#test/dataplane/all-events.js';
import { openMemoryStore } from '#test/store/memory-store.js';
import { config, envelope, removal, singleton, startSystem, stopSystems, write, written } from './running-system.js';

afterEach(stopSystems);

describe('a node whose configuration has no `dataplane` section', () => {
  test('a node whose configuration has no `dataplane` section stores a policy with the warning `not_enforced`, and is not ready', async () => {
    const { system, store, until } = await startSystem({ dataplane: null });
    await until('policy_ready', 'never_activated');
    const outcome = await system.policies.write(singleton('lan'));
    expect(outcome.kind === 'written' && outcome.warnings.map(({ code }) => code)).toEqual(['not_enforced']);
    expect((await store.policies.active())?.record.active).toBe(true);
    const report = system.readiness();
    expect(report.ready).toBe(false);
    expect(report.checks.map(({ name, ok, state }) => [name, ok, state])).toEqual([
      ['dataplane_running', false, 'needed_but_absent'],
      ['dataplane_config', false, 'no_section'],
      ['policy_ready', true, 'active'],
      ['dns_allowlist', true, 'disabled'],
      ['service_plane', true, 'disabled'],
      ['draining', true, 'running'],
      ['cluster', true, 'alone'],
      ['policy_replication', true, 'alone'],
    ]);
    expect(await system.datapathStats()).toBeNull();
  });
});

describe('a part that is not running', () => {
  const rules = [
    { id: 'name', action: 'allow', match: { dns_hostname: 'example.com' } },
    { id: 'tls', action: 'allow', match: { proto: 'tcp', dst_ports: [443], tls: { sni: ['example.com'] } } },
  ];
  const needy = {
    mode: 'enforce',
    policy: { source_groups: [{ id: 'lan', sources: { ips: ['10.0.0.1'] }, rules }] },
  };

  test('a part that is not running has the readiness state `needed_but_absent` while the active policy needs the part', async () => {
    const { system, until, stateOf } = await startSystem();
    await until('policy_ready', 'never_activated');
    const outcome = written(await system.policies.write(write(needy)));
    expect([stateOf('dns_allowlist'), stateOf('service_plane')]).toEqual(['needed_but_absent', 'needed_but_absent']);
    await system.policies.write(removal(outcome.stored.record.id));
    expect([stateOf('dns_allowlist'), stateOf('service_plane')]).toEqual(['disabled', 'disabled']);
  });
});

describe('a stored policy that is invalid', () => {
  test('a stored policy that is invalid is not put in force at startup, and is replaced by the next policy write', async () => {
    const store = await openMemoryStore();
    await store.policies.commit({
      generation: 7,
      put: {
        body: new TextEncoder().encode('{"source_groups":[{"id":""}]}'),
        record: {
          id: 'old',
          name: 'old',
          form: 'envelope',
          mode: 'enforce',
          revision: 1,
          created_at: '2025-01-01T00:00:00.000Z',
          updated_at: '2025-01-01T00:00:00.000Z',
          updated_by: 'alice',
          active: true,
        },
      },
    });
    const { system, datapath, until } = await startSystem({ store });
    await until('policy_ready', 'backing_off');
    await until('dataplane_running', 'attached');
    expect(system.readiness().checks[2]?.detail).toContain('read the stored policy: /policy/source_groups/0');
    expect(datapath.log).toEqual(['open', 'attach']);
    expect((await system.policies.write(singleton('lan'))).kind).toBe('written');
    expect(datapath.log).toEqual(['open', 'attach', 'stage 8', 'prove 8', 'flip 8']);
    expect(system.readiness().ready).toBe(true);
  });
});

describe('shutdown of a node', () => {
  test('the shutdown of a node completes the current policy write, refuses later policy writes, and keeps the compiled policy in the kernel in force', async () => {
    const { system, datapath, until } = await startSystem();
    await until('policy_ready', 'never_activated');
    let release = (): void => {};
    const staging = new Promise<void>((began) => {
      datapath.on.stage = () => {
        began();
        return new Promise((resolve) => {
          release = resolve;
        });
      };
    });
    const underWay = system.policies.write(singleton('lan'));
    await staging;
    const stopped = system.shutdown();
    const draining = system.readiness().checks[5];
    expect(draining).toMatchObject({ name: 'draining', ok: false, state: 'draining' });
    const next = system.policies.write(singleton('wan'));
    release();
    expect((await underWay).kind).toBe('written');
    expect(await next).toMatchObject({ kind: 'refused', code: 'draining' });
    await stopped;
    expect(datapath.log.slice(-4)).toEqual(['stage 1', 'prove 1', 'flip 1', 'close']);
    expect(datapath.inForce).toBe(1);
  });

  test('a shutdown that is requested twice closes the datapath once, and refuses later policy writes', async () => {
    const { system, datapath } = await startSystem();
    await Promise.all([system.shutdown(), system.shutdown()]);
    expect(await system.policies.write(singleton('lan'))).toMatchObject({ kind: 'refused', code: 'draining' });
    expect(datapath.log.filter((step) => step === 'close')).toEqual(['close']);
  });
});

describe('performance mode', () => {
  test('performance mode is enabled by default, and keeps a written value after a restart of the node', async () => {
    const { system, store } = await startSystem();
    expect(await system.performanceMode.read()).toEqual({ enabled: true, source: null, revision: 0 });
    const written = { enabled: false, source: 'local', revision: 1 };
    expect(await system.performanceMode.write({ enabled: false, author: 'alice' })).toEqual(written);
    expect(await system.performanceMode.read()).toEqual(written);
    await system.shutdown();
    const again = await startSystem({ store });
    expect(await again.system.performanceMode.read()).toEqual(written);
  });

  test('performance mode makes the datapath send all events if enabled and no events if disabled, also after a restart of the node', async () => {
    const { system, store, datapath, until } = await startSystem();
    await until('dataplane_running', 'enforcing');
    expect(datapath.eventsWanted).toEqual(ALL_EVENTS);
    await system.performanceMode.write({ enabled: false, author: 'alice' });
    expect(datapath.eventsWanted).toEqual(NO_EVENTS);
    await system.shutdown();
    const again = await startSystem({ store });
    await again.system.performanceMode.read();
    expect(again.datapath.eventsWanted).toEqual(NO_EVENTS);
    await again.system.performanceMode.write({ enabled: true, author: 'alice' });
    expect(again.datapath.eventsWanted).toEqual(ALL_EVENTS);
  });

  test('performance mode is not written if the expected revision is outdated, and concurrent writes run in their order', async () => {
    const { system } = await startSystem();
    const outcomes = await Promise.all([
      system.performanceMode.write({ enabled: false, author: 'alice', expectedRevision: 0 }),
      system.performanceMode.write({ enabled: true, author: 'bob', expectedRevision: 0 }),
      system.performanceMode.write({ enabled: true, author: 'bob', expectedRevision: 1 }),
    ]);
    expect(outcomes).toEqual([
      { enabled: false, source: 'local', revision: 1 },
      { kind: 'refused', code: 'precondition_failed', detail: 'the stored revision is 1' },
      { enabled: true, source: 'local', revision: 2 },
    ]);
  });
});

describe('Kubernetes integrations', () => {
  const integration = {
    name: 'prod',
    kind: 'kubernetes' as const,
    api_server_url: 'https://10.0.0.1:6443',
    ca_cert_pem: 'PEM',
    service_account_token: 'secret',
  };
  const policy = {
    source_groups: [
      {
        id: 'pods',
        sources: { kubernetes: [{ integration: 'prod', pod_selector: { match_labels: { app: 'web' } } }] },
      },
    ],
  };

  const firstWrite = { integration, author: 'alice', tryAccess: true, expectedRevision: 0 };

  test('Kubernetes integrations are returned by `list`, `read` and `write` without their service account token', async () => {
    const { system } = await startSystem();
    const outcome = await system.integrations.write(firstWrite);
    expect(outcome).toMatchObject({ kind: 'written', created: true });
    expect(
      JSON.stringify([outcome, await system.integrations.list(), await system.integrations.read('prod')]),
    ).not.toContain('secret');
    expect(await system.integrations.write(firstWrite)).toMatchObject({
      kind: 'refused',
      code: 'precondition_failed',
    });
  });

  test('a dry run changes no Kubernetes integration, and returns the answer of the real write', async () => {
    const { system } = await startSystem();
    const dry = await system.integrations.write({ ...firstWrite, dryRun: true });
    expect(dry).toMatchObject({ kind: 'written', created: true, integration: { name: 'prod', revision: 1 } });
    expect([JSON.stringify(dry).includes('secret'), await system.integrations.list()]).toEqual([false, []]);
    await system.integrations.write({ integration, author: 'alice', tryAccess: true });
    const again = await system.integrations.write({ integration, author: 'rita', tryAccess: true, dryRun: true });
    expect(again).toMatchObject({ created: false, integration: { revision: 2, updated_by: 'rita' } });
    expect(await system.integrations.remove({ name: 'prod', dryRun: true })).toEqual({ kind: 'deleted' });
    expect(await system.integrations.remove({ name: 'other', dryRun: true })).toMatchObject({ code: 'not_found' });
    expect(await system.integrations.read('prod')).toMatchObject({ revision: 1, updated_by: 'alice' });
  });

  test('the check `policy_ready` fails while the pod selectors of the active policy are not resolved to addresses', async () => {
    const { system, until, stateOf } = await startSystem();
    await until('policy_ready', 'never_activated');
    await system.integrations.write({ integration, author: 'alice', tryAccess: true });
    await system.policies.write(write({ mode: 'enforce', policy }));
    await until('policy_ready', 'unresolved');
    const check = system.readiness().checks.find(({ name }) => name === 'policy_ready');
    expect(check).toMatchObject({ ok: false, detail: expect.stringContaining('integration prod') });
    await system.policies.write(write(envelope('other')));
    expect(stateOf('policy_ready')).toBe('active');
  });

  test('a Kubernetes integration cannot be deleted while the active policy names it', async () => {
    const { system, until } = await startSystem();
    await until('policy_ready', 'never_activated');
    await system.integrations.write({ integration, author: 'alice', tryAccess: true });
    expect((await system.policies.write(write({ mode: 'enforce', policy }))).kind).toBe('written');
    expect(await system.integrations.remove({ name: 'prod' })).toMatchObject({ code: 'integration_in_use' });
    expect(await system.integrations.remove({ name: 'prod', dryRun: true })).toMatchObject({
      code: 'integration_in_use',
    });
    await system.policies.write(write(envelope('other')));
    expect(await system.integrations.remove({ name: 'prod' })).toEqual({ kind: 'deleted' });
    expect(await system.integrations.remove({ name: 'prod' })).toMatchObject({ code: 'not_found' });
  });
});

describe('`explain` function of the node', () => {
  const query = {
    packet: {
      source: 0x0a000001,
      destination: 0xc0000201,
      protocol: 6,
      sourcePort: 40_000,
      destinationPort: 443,
      icmpType: 0,
      icmpCode: 0,
    },
  };

  test('the `explain` function of the node evaluates the draft in the request, or the active policy, or the fallback if no policy is active', async () => {
    const { system, until } = await startSystem();
    await until('policy_ready', 'never_activated');
    expect(await system.policies.explain({ query }, 'alice')).toMatchObject({ decision: 'deny', source_group: null });
    await system.policies.write(write(envelope('lan')));
    for (let again = 0; again < 2; again++) {
      expect(await system.policies.explain({ query }, 'alice')).toMatchObject({
        decision: 'allow',
        source_group: 'lan',
        rule: 'web',
      });
    }
    const draft = config('draft', 'enforce') as never;
    expect(await system.policies.explain({ policy: draft, query }, 'alice')).toMatchObject({
      decision: 'allow',
      source_group: 'draft',
    });
  });

  test('the `explain` function of the node refuses an invalid draft policy, with a JSON pointer into the request for each problem', async () => {
    const { system } = await startSystem();
    expect(await system.policies.explain({ policy: config('') as never, query }, 'alice')).toMatchObject({
      kind: 'refused',
      code: 'invalid_policy',
      problems: expect.arrayContaining([expect.objectContaining({ pointer: '/policy/source_groups/0/id' })]),
    });
  });
});
