import { of } from 'rxjs';
import { afterEach, describe, expect, test } from 'vitest';
import type { SystemPorts } from '#actors/system-contract.js';
import { CapacityExceeded, ProofFailed } from '#contracts/datapath/datapath.js';
import type { PolicyWrite, PolicyWritten } from '#contracts/policy/policy-write.js';
import { verdictWord } from '#contracts/policy/verdict-word.js';
import type { Store } from '#store/store.js';
import { StoreError } from '#store/store-error.js';
import { RECORD } from '#test/statecharts/sample.js';
import { openMemoryStore } from '#test/store/memory-store.js';
import {
  codesOf,
  envelope,
  INTEGRATION,
  type Running,
  removal,
  SELECTING,
  singleton,
  startSystem,
  stopSystems,
  textOf,
  threadHere,
  write,
  written,
} from '../../actors/running-system.js';

afterEach(stopSystems);

async function withPolicy(
  options: Parameters<typeof startSystem>[0] = {},
): Promise<Running & { first: PolicyWritten }> {
  const running = await startSystem(options);
  await running.until('policy_ready', 'never_activated');
  const first = written(await running.system.policies.write(write(envelope('first', { name: 'Edge' }))));
  running.datapath.log.length = 0;
  return { ...running, first };
}

/**
 * Checks the state that a failed policy write must not change: the program in force, the generation, and the
 * stored records.
 */
async function expectUntouched({ system, store, datapath, first }: Running & { first: PolicyWritten }): Promise<void> {
  expect(datapath.inForce).toBe(1);
  expect(system.policies.generation()).toBe(1);
  expect((await store.policies.active())?.record).toEqual(first.stored.record);
  expect(await store.policies.list()).toEqual([first.stored.record]);
  expect(await store.policies.generation()).toBe(1);
}

describe('a successful policy write', () => {
  test('a successful policy write is loaded into the kernel, proved (tested there), stored and put in force before the caller receives the outcome', async () => {
    const { system, datapath, store, until, stateOf } = await startSystem();
    await until('policy_ready', 'never_activated');
    const outcome = written(await system.policies.write(singleton('lan')));
    expect(datapath.log).toEqual(['open', 'attach', 'stage 0', 'prove 0', 'flip 0', 'stage 1', 'prove 1', 'flip 1']);
    const { id } = outcome.stored.record;
    const record = { ...RECORD, id, name: 'default', form: 'singleton' };
    expect({ ...outcome, stored: outcome.stored.record }).toEqual({
      kind: 'written',
      created: true,
      stored: record,
      generation: 1,
      warnings: [],
      proof: { classes: 7, checked: 58, complete: true },
    });
    const stored = await store.policies.active();
    expect(stored?.record).toEqual(record);
    expect(textOf(stored?.body ?? new Uint8Array())).toMatchObject({ source_groups: [{ id: 'lan', mode: 'enforce' }] });
    expect(stateOf('policy_ready')).toBe('active');
    expect(system.readiness().ready).toBe(true);
  });

  test('a successful policy write leaves the node ready during the whole write', async () => {
    const running = await withPolicy();
    const seen = new Set<boolean>();
    running.system.bus.messages.subscribe(() => seen.add(running.system.readiness().ready));
    await running.system.policies.write(singleton('lan'));
    expect([...seen]).toEqual([true]);
  });

  test('a successful policy write starts only after the previous write has ended, in the order of the requests', async () => {
    const { system, datapath } = await withPolicy();
    const outcomes = await Promise.all(['a', 'b', 'c'].map((id) => system.policies.write(singleton(id))));
    expect(outcomes.map((outcome) => written(outcome).generation)).toEqual([2, 3, 4]);
    expect(datapath.log).toEqual([
      'stage 2',
      'prove 2',
      'flip 2',
      'stage 3',
      'prove 3',
      'flip 3',
      'stage 4',
      'prove 4',
      'flip 4',
    ]);
  });

  test('a successful policy write puts a policy in force that is in force again after a restart of the node, with the same generation number', async () => {
    const { store, system } = await withPolicy();
    await system.shutdown();
    const again = await startSystem({ store });
    await again.until('policy_ready', 'active');
    expect(again.datapath.log).toEqual(['open', 'attach', 'stage 1', 'prove 1', 'flip 1']);
    expect(again.system.policies.generation()).toBe(1);
  });
});

describe('datapath and store after a failed policy write or a dry run', () => {
  test('a policy write changes neither datapath nor store if its body is invalid', async () => {
    const running = await withPolicy();
    expect(await running.system.policies.write(singleton(''))).toEqual({
      kind: 'refused',
      code: 'invalid_policy',
      detail: expect.stringContaining('/source_groups/0/id'),
      problems: [{ pointer: '/source_groups/0/id', code: 'empty_id', message: expect.any(String) }],
    });
    expect(running.datapath.log).toEqual([]);
    await expectUntouched(running);
  });

  const OUT_OF_MEMORY = new Error('out of memory');
  test.each([
    ['while it compiles the policy', async () => Promise.reject(OUT_OF_MEMORY)],
    [
      'while it computes the test packets of the proof',
      async <T>(answered: Promise<T>): Promise<T> => ({ ...(await answered), samples: Promise.reject(OUT_OF_MEMORY) }),
    ],
  ])('a policy write changes neither datapath nor store if the policy thread dies %s', async (_, dies) => {
    let dead = false;
    const thread = threadHere();
    const running = await withPolicy({
      createThread: () => ({
        ...thread,
        perform: (work) => (dead ? dies(thread.perform(work)) : thread.perform(work)),
      }),
    });
    dead = true;
    expect(await running.system.policies.write(singleton('lan'))).toEqual({
      kind: 'refused',
      code: 'feature_unavailable',
      detail: 'out of memory',
    });
    await expectUntouched(running);
    dead = false;
    expect((await running.system.policies.write(singleton('lan'))).kind).toBe('written');
  });

  test('a policy write changes neither datapath nor store if the compiled policy exceeds the capacity of a datapath map', async () => {
    const running = await withPolicy();
    running.datapath.on.stage = () => {
      throw new CapacityExceeded('program', 2_000, 1_000);
    };
    expect(await running.system.policies.write(singleton('lan'))).toEqual({
      kind: 'refused',
      code: 'capacity_exceeded',
      detail: 'the policy needs 2000 entries of program, and the limit is 1000',
    });
    expect(running.datapath.log).toEqual(['stage 2']);
    await expectUntouched(running);
  });

  test('a policy write changes neither datapath nor store if the datapath returns an error while it loads the compiled policy into the kernel', async () => {
    const running = await withPolicy();
    running.datapath.on.stage = () => {
      throw new Error('update program: ENOMEM');
    };
    expect(await running.system.policies.write(singleton('lan'))).toEqual({
      kind: 'refused',
      code: 'dataplane_unavailable',
      detail: 'update program: ENOMEM',
    });
    await expectUntouched(running);
  });

  test('a policy write changes neither datapath nor store if the proof (test run in the kernel) fails, and its error names the packet and the two rules', async () => {
    const running = await withPolicy();
    const packet = {
      source: 0x0a00_0001,
      destination: 0xc000_0201,
      protocol: 6,
      sourcePort: 40_000,
      destinationPort: 443,
      icmpType: 0,
      icmpCode: 0,
    };
    const facts: unknown[] = [];
    running.system.bus.messages.subscribe((message) => {
      if (message.type === 'program.disproved') facts.push(message);
    });
    running.datapath.on.prove = () => {
      throw new ProofFailed({ packet, expected: verdictWord(0, 'allow', false), found: verdictWord(1, 'deny', false) });
    };
    const detail =
      'TCP from 10.0.0.1:40000 to 192.0.2.1:443: the policy gives allow by rule web of group lan, and the compiled tables give deny by the default policy';
    expect(await running.system.policies.write(singleton('lan'))).toEqual({
      kind: 'refused',
      code: 'proof_failed',
      detail,
    });
    expect(facts).toEqual([{ type: 'program.disproved', generation: 2, detail }]);
    expect(running.datapath.log).toEqual(['stage 2', 'prove 2']);
    await expectUntouched(running);
    delete running.datapath.on.prove;
    expect((await running.system.policies.write(singleton('lan'))).kind).toBe('written');
  });

  test('a policy write changes neither datapath nor store if the datapath returns an error during the proof (test run in the kernel)', async () => {
    const running = await withPolicy();
    running.datapath.on.prove = () => {
      throw new Error('run program: ENOMEM');
    };
    expect(await running.system.policies.write(singleton('lan', { dryRun: true }))).toEqual({
      kind: 'refused',
      code: 'dataplane_unavailable',
      detail: 'run program: ENOMEM',
    });
    await expectUntouched(running);
  });

  test('a policy write changes neither datapath nor store if the store cannot commit the policy', async () => {
    let full = false;
    const memory = await openMemoryStore();
    const policies: Store['policies'] = Object.create(memory.policies, {
      commit: {
        value: async (change: never) => {
          if (full) throw new StoreError('store_no_space', 'write the policy: ENOSPC');
          await memory.policies.commit(change);
        },
      },
    });
    const running = await withPolicy({ store: { ...memory, policies: bound(policies, memory.policies) } });
    full = true;
    expect(await running.system.policies.write(singleton('lan'))).toEqual({
      kind: 'refused',
      code: 'store_unavailable',
      detail: 'write the policy: ENOSPC',
    });
    full = false;
    await running.system.policies.write(singleton('lan', { dryRun: true }));
    expect(running.datapath.log).toEqual(['stage 2', 'prove 2', 'unstage', 'stage 2', 'prove 2', 'unstage']);
    await expectUntouched(running);
  });

  test('a policy write changes neither datapath nor store if it exceeds the activation timeout', async () => {
    const running = await withPolicy({ activationTimeoutMs: 50 });
    let release = (): void => {};
    running.datapath.on.stage = () =>
      new Promise((resolve) => {
        release = resolve;
      });
    const [first, second] = await Promise.all([
      running.system.policies.write(singleton('lan')),
      running.system.policies.write(singleton('wan')),
    ]);
    const late = {
      kind: 'refused',
      code: 'activation_timeout',
      detail: 'the policy could not be activated within 50 ms; nothing was changed',
    };
    expect(first).toEqual(late);
    expect(second).toEqual(late);
    delete running.datapath.on.stage;
    release();
    await expectUntouched(running);
    expect((await running.system.policies.write(singleton('lan'))).kind).toBe('written');
  });

  test('a dry run changes neither datapath nor store, and returns the size of the compiled policy in cache lines', async () => {
    const running = await withPolicy();
    const outcome = await running.system.policies.write(singleton('lan', { dryRun: true }));
    expect(outcome).toMatchObject({ kind: 'checked', programLines: 2, warnings: [], proof: { complete: true } });
    await running.system.policies.write(singleton('', { dryRun: true }));
    expect(running.datapath.log).toEqual(['stage 2', 'prove 2', 'unstage']);
    await expectUntouched(running);
  });
});

/**
 * Returns a policy store that calls `commit` of `policies`, and every other method of `target`. The other
 * methods of `policies` would fail, because `target` has private members that no other object can access.
 */
function bound(policies: Store['policies'], target: Store['policies']): Store['policies'] {
  return {
    list: () => target.list(),
    get: (id) => target.get(id),
    findByName: (name) => target.findByName(name),
    active: () => target.active(),
    history: (id) => target.history(id),
    revision: (id, revision) => target.revision(id, revision),
    slice: (...place) => target.slice(...place),
    generation: () => target.generation(),
    everActivated: () => target.everActivated(),
    reservedGeneration: () => target.reservedGeneration(),
    toEnforce: () => target.toEnforce(),
    enforced: () => target.enforced(),
    settle: (end) => target.settle(end),
    revertHere: (change) => target.revertHere(change),
    headCommit: () => target.headCommit(),
    followed: target.followed,
    pending: target.pending,
    deadline: target.deadline,
    correctDeadline: (...at) => target.correctDeadline(...at),
    reverted: target.reverted,
    plan: (change) => target.plan(change),
    bodySha256: (id, plan) => target.bodySha256(id, plan),
    commit: (change) => policies.commit(change),
  };
}

describe('a policy with an intercept rule', () => {
  const plane: SystemPorts['servicePlane'] & object = {
    plane: {
      threads: 1,
      begin: () => {},
      open: async () => {},
      change: async () => {},
      use: () => {},
      accept: () => {},
      changeMembers: async () => {},
      decided: async () => {},
      replaceMembers: async () => {},
      useCa: () => {},
      setGrantPorts: () => {},
      spliceBy: () => {},
      stats: () => Promise.reject(new Error('not asked')),
      watch: () => () => {},
      observe: () => () => {},
      setAllowedWanted: () => {},
      close: async () => {},
    },
    interceptCa: { changed: of(null) },
  };
  const tls = { mode: 'intercept', http: { request: { methods: ['GET'] } } };
  const rules = [{ id: 'web', action: 'allow', match: { proto: 'tcp', dst_ports: [443], tls } }];
  const groups = [{ id: 'lan', sources: { cidrs: ['10.0.0.0/8'] }, rules }];
  const intercepting = { name: 'web', mode: 'enforce', policy: { source_groups: groups } };

  test('a policy with an intercept rule can be written, activated and tried in a dry run without an intercept CA, with the warning no_intercept_ca', async () => {
    const { system } = await startSystem({ servicePlane: plane });
    const warnings = async (of: PolicyWrite): Promise<string[]> => codesOf(await system.policies.write(of));
    expect(await warnings(write(intercepting, { dryRun: true }))).toEqual(['no_intercept_ca']);
    const first = await system.policies.write(write(intercepting));
    expect(codesOf(first)).toEqual(['no_intercept_ca']);
    const { id } = written(first).stored.record;
    await system.policies.write(write(envelope('other')));
    const activation = { operation: 'activate', target: { by: 'id', id }, body: new Uint8Array() } as const;
    for (const dryRun of [true, false])
      expect(await warnings(write(null, { ...activation, dryRun }))).toEqual(['activity_taken', 'no_intercept_ca']);
    const group = {
      target: { by: 'id', id },
      sourceGroup: 'lan',
      body: Buffer.from(JSON.stringify(groups[0])),
    } as const;
    for (const dryRun of [true, false])
      expect(await warnings(write(null, { ...group, dryRun }))).toEqual(['no_intercept_ca']);
  });

  test('a policy with an intercept rule causes no warning while the node has an intercept CA, or if the policy is stored as disabled', async () => {
    const material = { kind: 'ca', ca: {} as never } as const;
    const signing = await startSystem({ servicePlane: { ...plane, interceptCa: { changed: of(material) } } });
    expect(codesOf(await signing.system.policies.write(write(intercepting)))).toEqual([]);
    const { system } = await startSystem({ servicePlane: plane });
    expect(codesOf(await system.policies.write(write({ ...intercepting, mode: 'disabled' })))).toEqual([]);
    expect(codesOf(await system.policies.write(write(envelope('lan'))))).toEqual([]);
  });
});

describe('a policy write whose store commit has succeeded', () => {
  test('if the datapath thread dies while a stored policy is put in force, the write puts the policy in force before the caller gets the outcome', async () => {
    const running = await withPolicy();
    let deaths = 0;
    running.datapath.on.flip = () => {
      if (deaths++ === 0) {
        running.datapath.tell({ type: 'worker_died', reason: 'SIGSEGV' });
        throw new Error('the worker died');
      }
    };
    const outcome = written(await running.system.policies.write(singleton('lan')));
    expect(outcome.generation).toBe(2);
    expect(running.datapath.log).toEqual([
      'stage 2',
      'prove 2',
      'flip 2',
      'open',
      'attach',
      'stage 2',
      'prove 2',
      'flip 2',
    ]);
    expect(running.datapath.inForce).toBe(2);
    expect(running.stateOf('policy_ready')).toBe('active');
  });
});

describe('the active policy record', () => {
  test('the active policy record is the last record written, and the outcome of the write warns that the previous record is no longer active', async () => {
    const { system, first, store } = await withPolicy();
    const second = await system.policies.write(write(envelope('second', { name: 'other' })));
    expect(codesOf(second)).toEqual(['activity_taken']);
    expect((await store.policies.get(first.stored.record.id))?.record).toEqual({
      ...first.stored.record,
      active: false,
    });
    expect((await store.policies.active())?.record).toEqual(written(second).stored.record);
  });

  test('the active policy record keeps its mode after a write without a mode (singleton form) replaces the policy, with a warning if it is audit', async () => {
    const running = await startSystem();
    await running.until('policy_ready', 'never_activated');
    written(await running.system.policies.write(write(envelope('first', { mode: 'audit' }))));
    expect(codesOf(await running.system.policies.write(singleton('lan')))).toEqual(['audit_kept']);
    expect((await running.store.policies.active())?.record.mode).toBe('audit');
  });

  test('a write that enforces the active policy causes the warning `fallback_allows` if policy.fallback is allow', async () => {
    const running = await startSystem({ fallback: 'allow' });
    await running.until('policy_ready', 'never_activated');
    const put = async (mode: string, name = 'first', options = {}) =>
      running.system.policies.write(
        write(envelope(name, { mode, name }), { target: { by: 'name', name }, ...options }),
      );
    expect(codesOf(await put('audit'))).toEqual([]);
    expect(codesOf(await put('enforce', 'first', { dryRun: true }))).toEqual(['fallback_allows']);
    const enforced = await put('enforce');
    expect(codesOf(enforced)).toEqual(['fallback_allows']);
    expect(codesOf(await put('audit', 'second'))).toEqual(['activity_taken']);
    const { id } = written(enforced).stored.record;
    const activation = write({}, { operation: 'activate', target: { by: 'id', id } });
    expect(codesOf(await running.system.policies.write(activation))).toEqual(['activity_taken', 'fallback_allows']);
  });

  test('the active policy record is absent after a write stores the active record as disabled, and the fallback policy is in force', async () => {
    const { system, first, datapath, stateOf } = await withPolicy();
    const { id } = first.stored.record;
    const outcome = await system.policies.write(
      write(envelope('first', { mode: 'disabled' }), { target: { by: 'id', id } }),
    );
    expect(codesOf(outcome)).toEqual(['none_active']);
    expect(written(outcome).stored.record).toMatchObject({
      id,
      name: 'Edge',
      mode: 'disabled',
      revision: 2,
      active: false,
    });
    expect(datapath.log).toEqual(['stage 2', 'prove 2', 'flip 2']);
    expect(stateOf('policy_ready')).toBe('none_active');
    expect(system.readiness().ready).toBe(true);
  });

  test('the active policy record is absent after the active record is deleted', async () => {
    const { system, first, datapath, stateOf, store } = await withPolicy();
    expect(await system.policies.write(removal(first.stored.record.id))).toEqual({
      kind: 'deleted',
      generation: 2,
      warnings: [expect.objectContaining({ code: 'none_active' })],
    });
    expect(datapath.inForce).toBe(2);
    expect(await store.policies.list()).toEqual([]);
    expect(stateOf('policy_ready')).toBe('none_active');
  });

  test('the active policy record is unchanged if another record is stored with `activate: false`', async () => {
    const { system, datapath, first, store } = await withPolicy();
    const outcome = written(await system.policies.write(write(envelope('idle'), { activate: false })));
    expect(outcome.stored.record.active).toBe(false);
    expect(outcome.generation).toBe(1);
    expect(datapath.log).toEqual([]);
    expect((await store.policies.active())?.record).toEqual(first.stored.record);
  });

  test('the active policy record keeps its mode and name, but gets the singleton form, after a write without name and mode replaces the policy', async () => {
    const { system, first } = await withPolicy();
    const outcome = written(await system.policies.write(singleton('lan')));
    expect(outcome.created).toBe(false);
    expect(outcome.stored.record).toEqual({ ...first.stored.record, form: 'singleton', revision: 2 });
  });
});

test('a stored policy write begins before the dry runs that wait in the queue', async () => {
  const { system } = await withPolicy();
  const answered: string[] = [];
  const ask = async (id: string, dryRun: boolean): Promise<void> => {
    await system.policies.write(singleton(id, { dryRun }));
    answered.push(id);
  };
  await Promise.all([ask('first-dry', true), ask('second-dry', true), ask('third-dry', true), ask('stored', false)]);
  expect(answered).toEqual(['first-dry', 'stored', 'second-dry', 'third-dry']);
});

describe('a policy write is refused', () => {
  test('a policy write is refused if another policy has the same name, ignoring case', async () => {
    const { system } = await withPolicy();
    expect(codesOf(await system.policies.write(write(envelope('second', { name: ' EDGE ' }))))).toEqual(['name_taken']);
  });

  test('a policy write is refused if the ETag in If-Match does not match, or if If-None-Match is `*` and the record exists', async () => {
    const { system, first } = await withPolicy();
    const { id, revision } = first.stored.record;
    const stale = await system.policies.write(singleton('lan', { ifMatch: `"${id}.${revision + 1}"` }));
    expect(codesOf(stale)).toEqual(['precondition_failed']);
    const created = await system.policies.write(
      write(envelope('x'), { target: { by: 'name', name: 'edge' }, ifNoneMatch: '*' }),
    );
    expect(codesOf(created)).toEqual(['precondition_failed']);
    expect(written(await system.policies.write(singleton('lan', { ifMatch: `"${id}.${revision}"` }))).generation).toBe(
      2,
    );
  });

  test('a policy write is refused if If-None-Match is `*`, no record is active, and the record named default exists', async () => {
    const { system, until } = await startSystem();
    await until('policy_ready', 'never_activated');
    written(await system.policies.write(write(envelope('idle', { name: 'default' }), { activate: false })));
    expect(codesOf(await system.policies.write(singleton('lan', { ifNoneMatch: '*' })))).toEqual([
      'precondition_failed',
    ]);
  });

  test('a policy write is refused if no record has the given id', async () => {
    const { system } = await withPolicy();
    const target = { by: 'id', id: 'nowhere' } as const;
    expect(codesOf(await system.policies.write(write(envelope('x'), { target })))).toEqual(['not_found']);
    expect(codesOf(await system.policies.write(removal('nowhere')))).toEqual(['not_found']);
  });

  test('a policy write is refused if the envelope has another name than the new policy in the URL path', async () => {
    const { system } = await withPolicy();
    const target = { by: 'name', name: 'new' } as const;
    expect(codesOf(await system.policies.write(write(envelope('x', { name: 'other' }), { target })))).toEqual([
      'invalid_policy',
    ]);
    expect(written(await system.policies.write(write(envelope('x'), { target }))).stored.record.name).toBe('new');
  });

  test('a policy write is refused if the envelope has another name than the existing policy in the URL path, also in a dry run', async () => {
    const running = await withPolicy();
    const target = { by: 'name', name: ' edge ' } as const;
    const put = (name: string, dryRun = false) =>
      running.system.policies.write(write(envelope('x', { name }), { target, dryRun }));
    for (const name of ['other', 'edges', 'edge2', 'éedge']) {
      expect(await put(name)).toMatchObject({ code: 'invalid_policy', problems: [{ pointer: '/name' }] });
      expect(await put(name, true)).toMatchObject({ code: 'invalid_policy', problems: [{ pointer: '/name' }] });
    }
    await expectUntouched(running);
    expect(written(await put(' EDGE ')).stored.record).toMatchObject({ name: 'EDGE', revision: 2 });
  });

  test.each([
    ['the singleton resource', (_: string) => singleton('lan', { activate: false })],
    ['the id of the record', (id: string) => write(envelope('x'), { target: { by: 'id', id }, activate: false })],
    [
      'the name of the record',
      (_: string) => write(envelope('x'), { target: { by: 'name', name: 'EDGE' }, activate: false }),
    ],
    [
      'the id of the record, in mode disabled',
      (id: string) => write(envelope('x', { mode: 'disabled' }), { target: { by: 'id', id }, activate: false }),
    ],
    [
      'a write of one source group',
      (id: string) => write({}, { target: { by: 'id', id }, sourceGroup: 'first', activate: false }),
    ],
    ['a removal of one source group', (id: string) => removal(id, { sourceGroup: 'first', activate: false })],
    ['a dry run on the singleton resource', (_: string) => singleton('lan', { activate: false, dryRun: true })],
  ])(
    'a policy write is refused if the request has `activate: false` and addresses the active record through %s',
    async (_, request) => {
      const running = await withPolicy();
      const outcome = await running.system.policies.write(request(running.first.stored.record.id));
      expect(codesOf(outcome)).toEqual(['would_deactivate']);
      await expectUntouched(running);
    },
  );
});

describe('the activation of a stored policy', () => {
  const activation = (id: string, more: Partial<PolicyWrite> = {}) =>
    write(null, { operation: 'activate', target: { by: 'id', id }, body: new Uint8Array(), ...more });
  const stored = async ({ system }: Running, body: unknown) =>
    written(await system.policies.write(write(body, { activate: false, author: 'bob' }))).stored;

  test.each(['enforce', 'audit'])(
    'the activation of a stored policy puts the stored record in force without a new revision, mode %s',
    async (mode) => {
      const running = await withPolicy();
      const { system, datapath, store, first } = running;
      const { record, body } = await stored(running, envelope('second', { name: 'other', mode }));
      const outcome = written(await system.policies.write(activation(record.id)));
      expect({ ...outcome, stored: { ...outcome.stored, body: textOf(outcome.stored.body) } }).toEqual({
        kind: 'written',
        created: false,
        stored: { record: { ...record, active: true }, body: textOf(body) },
        generation: 2,
        warnings: [expect.objectContaining({ code: 'activity_taken', message: expect.stringContaining('Edge') })],
        proof: expect.objectContaining({ complete: true }),
      });
      expect([datapath.log, datapath.inForce]).toEqual([['stage 2', 'prove 2', 'flip 2'], 2]);
      expect((await store.policies.active())?.record).toEqual({ ...record, active: true });
      expect((await store.policies.history(record.id)).map(({ revision }) => revision)).toEqual([1]);
      expect((await store.policies.get(first.stored.record.id))?.record.active).toBe(false);
    },
  );

  test('the activation of a stored policy puts a policy in force that is in force again after a restart of the node', async () => {
    const running = await withPolicy();
    const { record } = await stored(running, envelope('second'));
    written(await running.system.policies.write(activation(record.id)));
    await running.system.shutdown();
    const again = await startSystem({ store: running.store });
    await again.until('policy_ready', 'active');
    expect((await again.store.policies.active())?.record.id).toBe(record.id);
    expect(again.datapath.inForce).toBe(2);
  });

  test('the activation of a stored policy keeps the singleton form (without name and mode), and a repeated activation loads nothing into the kernel', async () => {
    const running = await withPolicy();
    const { system, datapath, first } = running;
    written(await system.policies.write(singleton('lan')));
    written(await system.policies.write(write(envelope('second', { name: 'other' }))));
    datapath.log.length = 0;
    const { id } = first.stored.record;
    const outcome = written(await system.policies.write(activation(id)));
    expect(outcome.stored.record).toMatchObject({ id, form: 'singleton', revision: 2, active: true });
    expect(datapath.log).toEqual(['stage 4', 'prove 4', 'flip 4']);
    const again = written(await system.policies.write(activation(id)));
    expect([again.generation, again.warnings, again.stored.record]).toEqual([4, [], outcome.stored.record]);
    expect(datapath.log).toEqual(['stage 4', 'prove 4', 'flip 4']);
  });

  test('the activation of a stored policy loads the policy into the kernel and tests it there in a dry run, and changes neither datapath nor store', async () => {
    const running = await withPolicy();
    const { record } = await stored(running, envelope('second', { name: 'other' }));
    const outcome = await running.system.policies.write(activation(record.id, { dryRun: true }));
    expect(outcome).toMatchObject({
      kind: 'checked',
      stored: { record: { id: record.id, active: true } },
      warnings: [{ code: 'activity_taken' }],
      proof: { complete: true },
    });
    expect(running.datapath.log).toEqual(['stage 2', 'prove 2', 'unstage']);
    expect(running.datapath.inForce).toBe(1);
    expect((await running.store.policies.active())?.record).toEqual(running.first.stored.record);
  });

  test('the activation of a stored policy is refused for a disabled record, a missing integration, an unknown id, or an ETag that does not match', async () => {
    const running = await withPolicy();
    const { system, store } = running;
    const disabled = await stored(running, envelope('second', { mode: 'disabled' }));
    expect(await system.policies.write(activation(disabled.record.id))).toMatchObject({
      code: 'cannot_activate',
      detail: expect.stringContaining('disabled'),
    });
    await store.integrations.put(INTEGRATION, 'bob');
    const { record } = await stored(running, SELECTING);
    await store.integrations.remove('prod');
    expect(await system.policies.write(activation(record.id))).toMatchObject({
      code: 'cannot_activate',
      problems: [{ pointer: expect.stringMatching(/^\/policy\/source_groups\/0\//), code: 'unknown_integration' }],
    });
    expect(codesOf(await system.policies.write(activation('nowhere')))).toEqual(['not_found']);
    expect(codesOf(await system.policies.write(activation(record.id, { ifMatch: '"x.1"' })))).toEqual([
      'precondition_failed',
    ]);
    expect(codesOf(await system.policies.write(activation(record.id, { ifNoneMatch: '*' })))).toEqual([
      'precondition_failed',
    ]);
    expect(running.datapath.inForce).toBe(1);
    expect((await store.policies.active())?.record).toEqual(running.first.stored.record);
  });

  test('the activation of a stored policy leaves datapath and store unchanged if the compiled policy exceeds the capacity of a datapath map', async () => {
    const running = await withPolicy();
    const { record } = await stored(running, envelope('second', { name: 'other' }));
    const { datapath, system, store, first } = running;
    datapath.on.stage = () => {
      throw new CapacityExceeded('program', 2_000, 1_000);
    };
    expect(codesOf(await system.policies.write(activation(record.id)))).toEqual(['capacity_exceeded']);
    expect(datapath.inForce).toBe(1);
    expect((await store.policies.active())?.record).toEqual(first.stored.record);
  });
});

describe('a write of one source group', () => {
  const group = (id: string, port: number) => ({
    id,
    sources: { cidrs: ['10.0.0.0/8'] },
    rules: [{ id: 'web', action: 'allow', match: { proto: 'tcp', dst_ports: [port] } }],
  });
  const groupWrite = (id: string, sourceGroup: string, body: unknown, more = {}) =>
    write(body, { target: { by: 'id', id }, sourceGroup, ...more });
  const groupRemoval = (id: string, sourceGroup: string, more = {}) => removal(id, { sourceGroup, ...more });

  test('a write of one source group loads the whole policy into the kernel, puts it in force, stores a new revision, and returns the written group', async () => {
    const { system, datapath, store, first } = await withPolicy();
    const { record } = first.stored;
    const outcome = written(
      await system.policies.write(groupWrite(record.id, 'lan', group('lan', 80), { author: 'bob' })),
    );
    expect(datapath.log).toEqual(['stage 2', 'prove 2', 'flip 2']);
    expect({ ...outcome, stored: { ...outcome.stored, body: textOf(outcome.stored.body) } }).toEqual({
      kind: 'written',
      created: true,
      stored: { record: { ...record, revision: 2, updated_by: 'bob' }, body: group('lan', 80) },
      generation: 2,
      warnings: [],
      proof: expect.objectContaining({ complete: true }),
    });
    const stored = await store.policies.active();
    expect(textOf(stored?.body ?? new Uint8Array())).toMatchObject({ source_groups: [{ id: 'first' }, { id: 'lan' }] });
    expect((await store.policies.history(record.id)).map(({ revision }) => revision)).toEqual([2, 1]);
    expect(await system.policies.readGroup(record.id, 'lan')).toEqual({
      record: outcome.stored.record,
      body: Buffer.from(outcome.stored.body),
    });
  });

  test('a write of one source group replaces or removes the named group, and leaves the other groups unchanged', async () => {
    const { system, store, first } = await withPolicy();
    const { id } = first.stored.record;
    const before = textOf(first.stored.body) as { source_groups: unknown[] };
    await system.policies.write(groupWrite(id, 'lan', group('lan', 80)));
    const replaced = written(await system.policies.write(groupWrite(id, 'lan', group('lan', 81))));
    expect(replaced.created).toBe(false);
    const read = async () => textOf((await store.policies.active())?.body ?? new Uint8Array());
    expect(await read()).toEqual({ source_groups: [...before.source_groups, group('lan', 81)] });
    const removed = written(await system.policies.write(groupRemoval(id, 'lan')));
    expect([removed.stored.record.revision, removed.generation, removed.stored.body.length]).toEqual([4, 4, 0]);
    expect(await read()).toEqual(before);
    expect(await system.policies.readGroup(id, 'lan')).toBeNull();
  });

  test('a write of one source group loads the policy from the store if the policy thread has no copy, for example after a restart', async () => {
    const { store, system, first } = await withPolicy();
    const { id } = first.stored.record;
    await system.policies.write(write(envelope('second', { name: 'other' })));
    await system.policies.write(write(envelope('third', { name: 'more' })));
    await system.shutdown();
    const again = await startSystem({ store });
    await again.until('policy_ready', 'active');
    expect(await again.system.policies.readGroup(id, 'first')).toMatchObject({ record: { id } });
    const outcome = written(await again.system.policies.write(groupWrite(id, 'lan', group('lan', 80))));
    expect(outcome.warnings.map(({ code }) => code)).toEqual(['activity_taken']);
    expect((await store.policies.active())?.record).toEqual(outcome.stored.record);
  });

  test('a write of one source group keeps form and mode of the policy record, and is refused if the group lacks a mode in singleton form', async () => {
    const running = await startSystem();
    await running.until('policy_ready', 'never_activated');
    const { stored } = written(await running.system.policies.write(singleton('lan')));
    const { id } = stored.record;
    expect(codesOf(await running.system.policies.write(groupWrite(id, 'wan', group('wan', 80))))).toEqual([
      'invalid_policy',
    ]);
    const audited = { ...group('wan', 80), mode: 'audit' };
    const outcome = written(await running.system.policies.write(groupWrite(id, 'wan', audited)));
    expect(outcome.stored.record).toEqual({ ...stored.record, revision: 2 });
  });

  test.each<[string, (id: string) => PolicyWrite, string]>([
    ['an unknown policy id', () => groupWrite('nowhere', 'lan', group('lan', 80)), 'not_found'],
    ['the removal of an unknown group', (id) => groupRemoval(id, 'lan'), 'not_found'],
    ['a group id that differs from the path', (id) => groupWrite(id, 'lan', group('wan', 80)), 'invalid_policy'],
    ['a stale ETag', (id) => groupWrite(id, 'lan', group('lan', 80), { ifMatch: '"x"' }), 'precondition_failed'],
    [
      'an existing group with If-None-Match: *',
      (id) => groupWrite(id, 'first', group('first', 80), { ifNoneMatch: '*' }),
      'precondition_failed',
    ],
    [
      'a missing group with If-Match: *',
      (id) => groupWrite(id, 'lan', group('lan', 80), { ifMatch: '*' }),
      'precondition_failed',
    ],
    [
      'activate: false for the active record',
      (id) => groupRemoval(id, 'first', { activate: false }),
      'would_deactivate',
    ],
  ])(
    'a write of one source group is refused if it does not fit the stored policy (%s), and changes neither datapath nor store',
    async (_, make, code) => {
      const running = await withPolicy();
      const { id } = running.first.stored.record;
      expect(codesOf(await running.system.policies.write(make(id)))).toEqual([code]);
      expect(running.datapath.log).toEqual([]);
      await expectUntouched(running);
    },
  );

  test('a write of one source group succeeds if the conditions of If-Match and If-None-Match are true', async () => {
    const { system, first } = await withPolicy();
    const { id } = first.stored.record;
    const created = groupWrite(id, 'lan', group('lan', 80), { ifNoneMatch: '*', ifMatch: `"${id}.1"` });
    expect(written(await system.policies.write(created)).created).toBe(true);
    expect(written(await system.policies.write(groupRemoval(id, 'lan', { ifMatch: `"${id}.2"` }))).generation).toBe(3);
  });

  test('a write of one source group changes nothing in the policy thread if staging fails or if the write is a dry run', async () => {
    const running = await withPolicy();
    const { id } = running.first.stored.record;
    running.datapath.on.stage = () => {
      throw new Error('update program: ENOMEM');
    };
    expect(codesOf(await running.system.policies.write(groupWrite(id, 'lost', group('lost', 80))))).toEqual([
      'dataplane_unavailable',
    ]);
    await expectUntouched(running);
    delete running.datapath.on.stage;
    const dry = await running.system.policies.write(groupWrite(id, 'dry', group('dry', 80), { dryRun: true }));
    expect(dry).toMatchObject({ kind: 'checked', stored: { record: { revision: 2 } } });
    await expectUntouched(running);
    written(await running.system.policies.write(groupWrite(id, 'lan', group('lan', 80))));
    const stored = await running.store.policies.active();
    expect(textOf(stored?.body ?? new Uint8Array())).toMatchObject({ source_groups: [{ id: 'first' }, { id: 'lan' }] });
    expect(running.datapath.inForce).toBe(2);
  });
});
