import { afterEach, describe, expect, it, vi } from 'vitest';
import type { System } from '#actors/system-contract.js';
import { CapacityExceeded } from '#contracts/datapath/datapath.js';
import type { OwnerChanges } from '#contracts/kubernetes/address-owner.js';
import type {
  KubernetesListener,
  KubernetesSource,
  MembersMessage,
  ReflectorChange,
} from '#contracts/kubernetes/kubernetes-source.js';
import { type ListedMembership, NO_SELECTORS, NOTHING_LISTED } from '#contracts/kubernetes/membership.js';
import type { Address, Selector } from '#contracts/policy/policy-model.js';
import { MemberDistribution } from '#kubernetes/distribution/member-distribution.js';
import { MemberRecord } from '#policy/model/sources/member-record.js';
import { eventually } from '#test/eventually.js';
import { openMemoryStore } from '#test/store/memory-store.js';
import { INTEGRATION } from '#test/store/sample-integration.js';
import { type FakeDatapath, fakeDatapath } from './fake-datapath.js';
import { startSystem, stopSystems, write } from './running-system.js';

afterEach(stopSystems);

const SOURCE = { integration: 'prod', pod_selector: { match_labels: { app: 'web' } } };
const KEY = JSON.stringify(SOURCE);
const [WEB, BATCH] = [0x0a010101, 0x0a010102];
const POLICY = {
  mode: 'enforce',
  policy: {
    source_groups: [
      {
        id: 'web',
        sources: { kubernetes: [SOURCE] },
        rules: [{ id: 'out', action: 'allow', match: { proto: 'tcp' } }],
      },
    ],
  },
};
const RESOLVED = { ...NO_SELECTORS, resolved: new Set([KEY]) };

const message = (more: Partial<MembersMessage>): MembersMessage => ({
  replaces: null,
  changes: [],
  owners: [],
  scope: undefined,
  shared: [],
  stored: [],
  ...more,
});
const changeOf = (members: readonly (readonly [address: number, set: number])[], added: readonly string[][] = []) => ({
  added: added.map((keys, index) => ({ number: index + 1, keys })),
  addresses: members.map(([address]) => address),
  sets: Uint32Array.from(members, ([, set]) => set),
  dropped: [],
});

/** A fake Kubernetes thread, whose messages the test sends. */
function fakeSource() {
  let listener: KubernetesListener | undefined;
  const named: (readonly Selector[])[] = [];
  const source: KubernetesSource & { readonly log: string[]; membershipNow: ListedMembership } = {
    log: [],
    membershipNow: NOTHING_LISTED,
    open: async (restored, to) => {
      source.log.push(`open ${(await restored()).map(({ key }) => key).join()}`);
      listener = to;
    },
    setIntegrations: (integrations) =>
      void source.log.push(
        `use ${integrations.map(({ name, access: { by } }) => (by === 'token' ? name : `${name} by ${by}`)).join()}`,
      ),
    setSelectors: (selectors) => void named.push(selectors),
    membership: async (selectors, withinMs) => {
      source.log.push(`membership ${selectors.length} ${withinMs}`);
      return source.membershipNow;
    },
    release: () => void source.log.push('release'),
    facts: async () => ({ objects: { pods: 0, nodes: 0, namespaces: 0 }, selectors: [], warnings: [] }),
    objectCounts: async () => ({ pods: 0, nodes: 0, namespaces: 0 }),
    membersOf: async () => ({ networks: [], total: 0, members: [] }),
    close: async () => {},
  };
  const send = (of: Partial<MembersMessage>) => listener?.members(message(of));
  const reflect = (of: Omit<ReflectorChange, 'integration' | 'name'>) =>
    listener?.reflector({ integration: 'prod', name: 'pods', ...of });
  const fail = (reason: string) => listener?.failed(reason);
  return { source, named, send, reflect, fail };
}

/**
 * Begins a write, and returns when the datapath stages its program. The function in the result lets the stage
 * end, and waits for the write.
 */
async function beginWrite({ policies }: System, datapath: FakeDatapath): Promise<() => Promise<void>> {
  let isStaged: () => void = () => {};
  datapath.on.stage = () =>
    new Promise<void>((resolve) => {
      isStaged = resolve;
    });
  const writing = policies.write(write(POLICY));
  await eventually(() => expect(datapath.log).toContain('stage 1'));
  return async () => {
    isStaged();
    await writing;
  };
}

async function started({ releaseMs, ...ports }: { readonly inCluster?: string; readonly releaseMs?: number } = {}) {
  const store = await openMemoryStore();
  await store.integrations.put(INTEGRATION, 'alice');
  await store.kubernetesObjects.write([{ key: 'prod/pods/1', value: '{}' }]);
  const { source, named, send, reflect, fail } = fakeSource();
  const accessWarnings = async () => [];
  const kubernetes = {
    source,
    accessWarnings,
    record: new MemberRecord(),
    trouble: () => {},
    ...(releaseMs && { releaseMs }),
  };
  const running = await startSystem({ store, kubernetes, ...ports });
  await running.until('dataplane_running', 'enforcing');
  return { ...running, store, source, named, send, reflect, fail };
}

describe('the members of selectors in a running node', () => {
  it('a Kubernetes integration in the configuration file replaces a stored integration with the same name', async () => {
    const { source } = await started({ inCluster: 'prod' });
    await eventually(() => expect(source.log).toContain('use prod by in_cluster'));
  });

  it('when the Kubernetes selectors of the active policy are resolved, the node compiles the policy again with the same generation number and is ready', async () => {
    const { system, datapath, store, source, named, send, until } = await started();
    await eventually(() => expect(source.log).toEqual(['use prod', 'open prod/pods/1']));
    await send({ replaces: changeOf([]), stored: [] });
    const written = await system.policies.write(write(POLICY));
    expect(written).toMatchObject({ kind: 'written', generation: 1 });
    expect('warnings' in written && written.warnings.map(({ code }) => code)).toEqual([
      'selector_any_namespace',
      'selector_unresolved',
    ]);
    expect(source.log.slice(2)).toEqual(['membership 1 2000']);
    expect(named.at(-1)?.map(({ key }) => key)).toEqual([KEY]);
    await until('policy_ready', 'unresolved');
    expect(system.readiness().checks.find(({ name }) => name === 'policy_ready')?.detail).toContain('integration prod');

    source.membershipNow = { scope: RESOLVED, list: changeOf([[WEB, 1]], [[KEY]]) };
    datapath.log.length = 0;
    const read = vi.spyOn(store.policies, 'toEnforce');
    await send({ changes: [changeOf([[WEB, 1]], [[KEY]])], scope: RESOLVED });
    await until('policy_ready', 'active');
    expect(datapath.log).toEqual(['stage 1', 'prove 1', 'flip 1']);
    // The store is not read, because the policy thread still has the parsed policy.
    expect(read).not.toHaveBeenCalled();
    expect(system.policies.generation()).toBe(1);
    await new Promise((resolve) => setTimeout(resolve, 500));
    expect(datapath.log).toHaveLength(3);
  });

  it('several Kubernetes members (addresses that selectors select) that the compiled policy lacks cause one compilation, repeated if it fails', async () => {
    const { system, datapath, source, send, until } = await started();
    source.membershipNow = { scope: RESOLVED, list: changeOf([]) };
    await send({ replaces: changeOf([]), scope: RESOLVED });
    await system.policies.write(write(POLICY));
    await until('policy_ready', 'active');
    datapath.log.length = 0;
    datapath.changeMembers = async () => ({ members: 2, refused: 0, uncompiled: 1, flows: 0 });
    let isFirst = true;
    datapath.on.stage = () => {
      if (!isFirst) return;
      isFirst = false;
      throw new Error('EBUSY');
    };
    await send({ changes: [changeOf([[WEB, 1]], [[KEY]]), changeOf([[BATCH, 1]])] });
    await eventually(() => expect(datapath.log).toContain('stage 1'));
    await eventually(() =>
      expect(system.readiness().checks.find(({ name }) => name === 'policy_ready')?.detail).toContain('EBUSY'),
    );
    await eventually(() => expect(datapath.log).toContain('flip 1'));
    expect(datapath.log.filter((line) => line === 'stage 1')).toHaveLength(2);
    expect(system.readiness().checks.find(({ name }) => name === 'policy_ready')).toMatchObject({
      ok: true,
      detail: 'a policy is active',
    });
  });

  it('rules for former Kubernetes members (addresses no longer selected) are left out if the datapath lacks room, until another policy generation is in force', async () => {
    const { system, datapath, source, send, until } = await started();
    const former = { addresses: [BATCH], sets: Uint32Array.of(1) };
    source.membershipNow = { scope: RESOLVED, list: changeOf([], [[KEY]]), former };
    await send({ replaces: changeOf([], [[KEY]]), scope: RESOLVED });
    await system.policies.write(write(POLICY));
    await until('policy_ready', 'active');
    const pairs: (number | undefined)[] = [];
    const stage = datapath.stage.bind(datapath);
    datapath.stage = async (program, generation) => {
      pairs.push(program.members?.pairs.indexes.length);
      if (pairs.length === 1) throw new CapacityExceeded('program', 2, 1);
      return stage(program, generation);
    };
    datapath.log.length = 0;
    datapath.changeMembers = async () => ({ members: 1, refused: 0, uncompiled: 1, flows: 0 });
    await send({ changes: [changeOf([[WEB, 1]])] });
    await eventually(() => expect(datapath.log).toContain('flip 1'));
    expect(pairs).toEqual([1, 0]);
    // The first write still leaves out the former members, and the second tries them again.
    for (const author of ['alice', 'bob']) await system.policies.write(write(POLICY, { author }));
    expect(pairs).toEqual([1, 0, 0, 1]);
  });

  describe('former members for which the datapath has no room', () => {
    /**
     * Starts a node whose datapath has room for `room` pairs of static sources and a set of groups, as for
     * former members. `pairs` lists their number in each staged program.
     */
    async function withFormer(room: number) {
      const running = await started();
      const { datapath, source, send } = running;
      const former = { addresses: [BATCH], sets: Uint32Array.of(1) };
      source.membershipNow = { scope: RESOLVED, list: changeOf([], [[KEY]]), former };
      await send({ replaces: changeOf([], [[KEY]]), scope: RESOLVED });
      const pairs: (number | undefined)[] = [];
      const stage = datapath.stage.bind(datapath);
      datapath.stage = async (program, generation) => {
        const count = program.members?.pairs.indexes.length ?? 0;
        pairs.push(count);
        if (count > room) throw new CapacityExceeded('program', count, room);
        return stage(program, generation);
      };
      datapath.log.length = 0;
      return { ...running, pairs };
    }

    it('a policy write succeeds without rules for former Kubernetes members (addresses no longer selected) if the datapath has no room for them', async () => {
      const { system, datapath, pairs, until } = await withFormer(0);
      expect(await system.policies.write(write(POLICY))).toMatchObject({ kind: 'written', generation: 1 });
      expect([pairs, datapath.log]).toEqual([
        [1, 0],
        ['stage 1', 'prove 1', 'flip 1'],
      ]);
      await until('policy_ready', 'active');
    });

    it('a dry run and a write of one source group omit rules for former Kubernetes members (no longer selected) if the datapath has no room for them', async () => {
      const { system, pairs } = await withFormer(0);
      const tried = await system.policies.write(write(POLICY, { dryRun: true }));
      const first = await system.policies.write(write(POLICY));
      const id = 'stored' in first ? first.stored.record.id : '';
      const group = { ...POLICY.policy.source_groups[0], id: 'more' };
      const grown = await system.policies.write(write(group, { target: { by: 'id', id }, sourceGroup: 'more' }));
      expect([tried, first, grown].map(({ kind }) => kind)).toEqual(['checked', 'written', 'written']);
      // The dry run finds no room, so `first` omits former members. Its generation lets the next write try.
      expect(pairs).toEqual([1, 0, 0, 1, 0]);
    });

    it('a compilation after a change of Kubernetes members omits rules for addresses no longer selected, without an error, if there is no room for them', async () => {
      const { system, datapath, pairs, send } = await withFormer(0);
      await system.policies.write(write(POLICY));
      const details: string[] = [];
      system.bus.messages.subscribe(() => {
        details.push(
          ...system.readiness().checks.flatMap(({ name, detail }) => (name === 'policy_ready' ? detail : [])),
        );
      });
      datapath.changeMembers = async () => ({ members: 1, refused: 0, uncompiled: 1, flows: 0 });
      pairs.length = 0;
      datapath.log.length = 0;
      await send({ changes: [changeOf([[WEB, 1]])] });
      await eventually(() => expect(datapath.log).toContain('flip 1'));
      expect(pairs).toEqual([1, 0]);
      expect(details.filter((detail) => detail.includes('could not be compiled'))).toEqual([]);
    });

    it('a policy write that is too large even without rules for former Kubernetes members (no longer selected) is refused with capacity_exceeded', async () => {
      const { system, datapath, pairs } = await withFormer(-1);
      expect(await system.policies.write(write(POLICY))).toMatchObject({
        kind: 'refused',
        code: 'capacity_exceeded',
        detail: 'the policy needs 0 entries of program, and the limit is -1',
      });
      expect([pairs, datapath.log]).toEqual([[1, 0], []]);
    });
  });

  it('changed Kubernetes members are put in force even while policy writes follow each other without a pause', async () => {
    const { system, datapath, source, send } = await started();
    source.membershipNow = { scope: RESOLVED, list: changeOf([]) };
    await send({ replaces: changeOf([]), scope: RESOLVED });
    await system.policies.write(write(POLICY));
    datapath.changeMembers = async () => ({ members: 1, refused: 0, uncompiled: 1, flows: 0 });
    let isEnding = false;
    const tries = ['alice', 'bob'].map(async (author) => {
      while (!isEnding) await system.policies.write(write(POLICY, { author, dryRun: true }));
    });
    datapath.log.length = 0;
    try {
      await send({ changes: [changeOf([[WEB, 1]], [[KEY]])] });
      await eventually(() => expect(datapath.log).toContain('flip 1'));
    } finally {
      isEnding = true;
      await Promise.all(tries);
    }
  });

  it('the node stops watching the Kubernetes objects for a dry run some time after it, and watches those for a write until the write ends', async () => {
    const { system, datapath, source, send } = await started({ releaseMs: 20 });
    await send({ replaces: changeOf([]) });
    await system.policies.write(write(POLICY, { dryRun: true }));
    expect(source.log.at(-1)).toBe('membership 1 2000');
    await eventually(() => expect(source.log.at(-1)).toBe('release'));
    const finish = await beginWrite(system, datapath);
    await new Promise((resolve) => setTimeout(resolve, 100));
    expect(source.log.at(-1)).toBe('membership 1 2000');
    await finish();
    await eventually(() => expect(source.log.at(-1)).toBe('release'));
  });

  it('a dry run of a client that may not change the node uses only the Kubernetes members that the node already knows', async () => {
    const { system, source, send } = await started();
    await send({ replaces: changeOf([[WEB, 1]], [[KEY]]), scope: RESOLVED });
    const opened = [...source.log];
    const codes = async (policy: unknown): Promise<unknown> => {
      const checked = await system.policies.write(write(policy, { dryRun: true, mayWatch: false }));
      return 'warnings' in checked && checked.warnings.map(({ code }) => code);
    };
    expect(await codes(POLICY)).toEqual(['selector_any_namespace']);
    const other = JSON.stringify(POLICY).replace('"app":"web"', '"app":"batch"');
    expect(await codes(JSON.parse(other))).toEqual(['selector_any_namespace', 'selector_unresolved']);
    expect(source.log).toEqual(opened);
  });

  it('a Kubernetes integration cannot be deleted while a policy write that names the integration is put in force', async () => {
    const { system, datapath, send } = await started();
    await send({ replaces: changeOf([]) });
    const finish = await beginWrite(system, datapath);
    expect(await system.integrations.remove({ name: 'prod' })).toMatchObject({ code: 'change_pending' });
    await finish();
    expect(await system.integrations.remove({ name: 'prod' })).toMatchObject({ code: 'integration_in_use' });
  });

  it('a policy is compiled with the last known Kubernetes members while the Kubernetes thread fails', async () => {
    const { system, source, send, until } = await started();
    source.membership = async () => {
      throw new Error('the Kubernetes thread died');
    };
    await send({ replaces: changeOf([[WEB, 1]], [[KEY]]), scope: RESOLVED });
    const written = await system.policies.write(write(POLICY));
    expect('warnings' in written && written.warnings.map(({ code }) => code)).toEqual(['selector_any_namespace']);
    await until('policy_ready', 'active');
  });

  it('the check `policy_ready` reports that the Kubernetes thread is down until the thread has sent all Kubernetes members again', async () => {
    const { system, send, fail } = await started();
    await send({ replaces: changeOf([]) });
    const detail = () => system.readiness().checks.find(({ name }) => name === 'policy_ready')?.detail;
    fail('the heap is full');
    expect(detail()).toContain('the thread that watches Kubernetes is down');
    await new Promise((resolve) => setTimeout(resolve, 1_500));
    expect(detail()).toContain('the heap is full');
    await send({ replaces: changeOf([]) });
    expect(detail()).not.toContain('the heap is full');
  });

  it('the check `policy_ready` reports that the Kubernetes members are the last known ones while the API server refuses the token', async () => {
    const { system, send, reflect } = await started();
    await send({ replaces: changeOf([]) });
    const detail = () => system.readiness().checks.find(({ name }) => name === 'policy_ready')?.detail;
    const before = detail();
    reflect({ phase: 'unauthorized', reason: '401: Unauthorized', at: '2026-01-01T00:00:00.000Z' });
    expect(detail()).toBe(
      `${before}; warning: the members of integration prod are the last known since 2026-01-01T00:00:00.000Z: 401: Unauthorized`,
    );
    reflect({ phase: 'watching', reason: null, at: '2026-01-01T00:00:01.000Z' });
    expect(detail()).toBe(before);
  });

  it('an `explain` request evaluates the rules of the Kubernetes selectors that select the source address', async () => {
    const { system, source, send } = await started();
    source.membershipNow = { scope: RESOLVED, list: changeOf([[WEB, 1]], [[KEY]]) };
    await send({ replaces: changeOf([[WEB, 1]], [[KEY]]), scope: RESOLVED });
    await system.policies.write(write(POLICY));
    const packet = { destination: 0x08080808, protocol: 6, sourcePort: 4_000, destinationPort: 443 };
    const decisionFor = async (address: number) => {
      const explained = await system.policies.explain(
        { query: { packet: { ...packet, source: address } as never } },
        'alice',
      );
      return 'decision' in explained ? [explained.decision, explained.rule] : explained;
    };
    expect(await decisionFor(WEB)).toEqual(['allow', 'out']);
    expect(await decisionFor(BATCH)).toEqual(['deny', null]);
  });
});

describe('`MemberDistribution`', () => {
  const quiet = { store: async () => {}, trouble: () => {}, servicePlane: null };

  it('`MemberDistribution`, which sends Kubernetes members to the parts of a node, removes members from every part before it adds any, and stores the objects', async () => {
    const log: string[] = [];
    const sinkOf = (name: string, ms: number) => {
      const noted = async (change: { readonly addresses: readonly Address[] }) => {
        await new Promise((resolve) => setTimeout(resolve, ms));
        log.push(`${name} ${change.addresses.length}`);
        return { members: 0, refused: 0, uncompiled: 0, flows: 0 };
      };
      return { changeMembers: noted, replaceMembers: noted };
    };
    const stored: unknown[] = [];
    const store = async (objects: readonly unknown[]) => void stored.push(...objects);
    const ports = {
      ...quiet,
      record: new MemberRecord(),
      datapath: sinkOf('datapath', 20),
      dns: sinkOf('dns', 1),
      store,
    };
    const distribution = new MemberDistribution(ports);
    await distribution.apply(message({ replaces: changeOf([]) }));
    log.length = 0;
    const object = { key: 'a', value: null };
    await distribution.apply(
      message({
        changes: [
          changeOf([[WEB, 0]]),
          changeOf([
            [WEB, 0],
            [BATCH, 0],
          ]),
        ],
        stored: [object],
      }),
    );
    // The datapath receives both changes in one call, because it is slower than the DNS proxy.
    expect(log).toEqual(['dns 1', 'datapath 3', 'dns 2']);
    await distribution.close();
    expect(stored).toEqual([object]);
  });

  it('`MemberDistribution` sends all Kubernetes members again to a part of the node that failed, and to a datapath that was opened', async () => {
    const lists: number[] = [];
    const datapath = fakeDatapath();
    const result = { members: 1, refused: 0, uncompiled: 0, flows: 0 };
    datapath.replaceMembers = async ({ addresses }) => {
      lists.push(addresses.length);
      return result;
    };
    const record = new MemberRecord();
    const distribution = new MemberDistribution({ ...quiet, record, datapath, dns: null });
    await distribution.datapathOpened();
    expect(lists).toEqual([]);
    await distribution.apply(message({ replaces: changeOf([[WEB, 1]], [[KEY]]) }));
    datapath.changeMembers = async () => {
      throw new Error('the thread died');
    };
    await distribution.apply(message({ changes: [changeOf([[BATCH, 1]])] }));
    expect(lists).toEqual([1]);
    await eventually(() => expect(lists).toEqual([1, 2]));
    await distribution.datapathOpened();
    expect(lists).toEqual([1, 2, 2]);
    await distribution.close();
  });

  it('`MemberDistribution` publishes which Kubernetes objects gain or lose an address, and returns the current owner of each address', async () => {
    const distribution = new MemberDistribution({ ...quiet, record: new MemberRecord(), datapath: null, dns: null });
    const seen: OwnerChanges[] = [];
    distribution.ownersChanged.subscribe((changes) => seen.push(changes));
    const own = (name: string) => ({ integration: 'prod', kind: 'pod', namespace: 'shop', name }) as const;
    await distribution.apply(message({ replaces: changeOf([]) }));
    await distribution.apply(message({ changes: [changeOf([])] }));
    expect([seen, distribution.owners()]).toEqual([[], { replaces: true, changes: [], sinceMs: 0 }]);
    const first = [
      { address: WEB, owner: own('web') },
      { address: BATCH, owner: own('batch') },
    ];
    await distribution.apply(message({ replaces: changeOf([]), owners: first }));
    const second = [
      { address: WEB, owner: null },
      { address: BATCH, owner: own('next') },
    ];
    await distribution.apply(message({ owners: second }));
    expect(seen).toEqual([
      { replaces: true, changes: first, sinceMs: expect.any(Number) },
      { replaces: false, changes: second, sinceMs: expect.any(Number) },
    ]);
    expect([distribution.ownerOf(WEB), distribution.ownerOf(BATCH)]).toEqual([null, own('next')]);
    const left = [{ address: BATCH, owner: own('next') }];
    expect(distribution.owners()).toEqual({ replaces: true, changes: left, sinceMs: 0 });
    await distribution.apply(message({ replaces: changeOf([]) }));
    expect([seen.at(-1)?.replaces, seen.length, distribution.ownerOf(BATCH)]).toEqual([true, 3, null]);
    await distribution.close();
  });
});
