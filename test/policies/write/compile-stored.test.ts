import { describe, expect, test } from 'vitest';
import { NOTHING_LISTED } from '#contracts/kubernetes/membership.js';
import type { PolicyRecord } from '#contracts/policy/policy-record.js';
import { compileProposedGroup, compileStored, PROPOSAL_MEMBER_WAIT_MS } from '#policies/write/compile-stored.js';
import type { PrepareWritePorts } from '#policies/write/prepare-write.js';
import { writtenGroup } from '#policies/write/written-group.js';
import type { IntegrationStore, PolicyStore } from '#store/store-types.js';
import { openMemoryStore } from '#test/store/memory-store.js';
import { INTEGRATION } from '#test/store/sample-integration.js';
import { storedPolicy } from '#test/store/stored-policy.js';
import { threadHere, write } from '../../actors/running-system.js';

const group = (id: string, port: number): string =>
  JSON.stringify({
    id,
    mode: 'enforce',
    sources: { ips: [`10.0.0.${id.length}`] },
    rules: [{ id: 'r', action: 'allow', match: { dst_cidrs: ['10.1.0.0/16'], proto: 'tcp', dst_ports: [port] } }],
  });
const policy = (...groups: readonly string[]): string => `{"source_groups":[${groups.join(',')}]}`;
const stored = (revision: number, body: string, updated_at = `2026-01-02T03:04:0${revision}.000Z`) =>
  storedPolicy({ id: 'p', form: 'singleton', revision, updated_at }, body);

async function portsOf(): Promise<
  PrepareWritePorts & { readonly policies: PolicyStore; readonly integrations: IntegrationStore }
> {
  const { policies, integrations, assertions } = await openMemoryStore();
  return {
    policies,
    integrations,
    assertions,
    assertionBudgetMs: 1_000,
    thread: threadHere(),
    membership: async () => NOTHING_LISTED,
    surroundings: { fallback: 'deny', dns: false, servicePlane: false, policesNode: false, ipv6: false },
    enforced: false,
    now: () => new Date(),
    adoptedGeneration: () => 0,
    chooseNodes: null,
    hasInterceptCa: () => false,
    repeats: false,
  };
}

const { signal } = new AbortController();
const whole = async (ports: PrepareWritePorts, policy: ReturnType<typeof stored>) =>
  compileStored(ports, { stored: policy, generation: policy.record.revision, everActivated: true }, { signal });
const proposed = (record: PolicyRecord, id: string, body: string | null) => ({
  record,
  generation: record.revision,
  group: id,
  body: body === null ? null : Buffer.from(body),
});

describe('the write of one group at another node', () => {
  const first = stored(1, policy(group('a', 80), group('bb', 80)));

  test.each([
    ['replaces a group', 'bb', group('bb', 81), policy(group('a', 80), group('bb', 81))],
    ['adds a group', 'ccc', group('ccc', 81), policy(group('a', 80), group('bb', 80), group('ccc', 81))],
    ['removes a group', 'bb', null, policy(group('a', 80))],
  ])(
    'a write of one source group gives another node the same compiled policy as the whole policy text, if the write %s',
    async (_, id, body, after) => {
      const ports = await portsOf();
      await ports.policies.commit({ put: first, generation: 1 });
      await whole(ports, first);
      const second = stored(2, after);
      const compiled = await compileProposedGroup(ports, proposed(second.record, id, body), signal);
      expect(compiled).toEqual(await whole(await portsOf(), second));
    },
  );

  test('the compilation of a source group that another node proposes waits for the Kubernetes members of its selectors; a stored policy is compiled at once', async () => {
    const waits: [number, number][] = [];
    const membership: PrepareWritePorts['membership'] = async (selectors, { waitMs }) => {
      waits.push([selectors.length, waitMs]);
      return NOTHING_LISTED;
    };
    const ports = { ...(await portsOf()), membership };
    const selecting = JSON.parse(group('bb', 80)) as Record<string, unknown>;
    const pods = JSON.stringify({
      ...selecting,
      sources: { kubernetes: [{ integration: 'prod', pod_selector: {} }] },
    });
    const before = stored(1, policy(group('a', 80), pods));
    await ports.integrations.put(INTEGRATION, 'alice');
    await ports.policies.commit({ put: before, generation: 1 });
    expect((await whole(ports, before)).inForce.unresolved).toHaveLength(1);
    expect(
      await compileProposedGroup(ports, proposed(stored(2, '{}').record, 'a', group('a', 81)), signal),
    ).not.toBeNull();
    expect(waits).toEqual([
      [1, 0],
      [1, PROPOSAL_MEMBER_WAIT_MS],
    ]);
  });

  test('`compileProposedGroup` (a policy with the group that another node proposes) returns null if the policy thread does not have the text of the policy before the write', async () => {
    const ports = await portsOf();
    await ports.policies.commit({ put: first, generation: 1 });
    const { record } = stored(2, '{}');
    expect(await compileProposedGroup(ports, proposed(record, 'bb', group('bb', 81)), signal)).toBeNull();
  });

  test('`compileProposedGroup` (a policy with the group that another node proposes) returns null if the policy thread has only the text of a refused write with the same revision', async () => {
    const ports = await portsOf();
    await ports.policies.commit({ put: first, generation: 1 });
    await whole(ports, stored(2, policy(group('a', 8080)), '2026-01-02T03:04:59.000Z'));
    await ports.policies.commit({ put: stored(2, policy(group('a', 80), group('bb', 80))), generation: 2 });
    const { record } = stored(3, '{}');
    expect(await compileProposedGroup(ports, proposed(record, 'bb', group('bb', 81)), signal)).toBeNull();
  });

  test('`compileProposedGroup` (a policy with the group that another node proposes) returns null if the node does not have the revision before the write', async () => {
    const ports = await portsOf();
    await ports.policies.commit({ put: first, generation: 1 });
    await whole(ports, first);
    const { record } = stored(3, '{}');
    expect(await compileProposedGroup(ports, proposed(record, 'bb', group('bb', 81)), signal)).toBeNull();
  });
});

describe('the place of a written group', () => {
  const { record } = stored(2, '{}');
  const of = (from: number, to: number, text: string) =>
    writtenGroup(
      { put: { record, edit: { from, to, text: Buffer.from(text), revision: 1 } }, generation: 2 },
      { ...write('{}'), sourceGroup: 'g' },
    );

  test.each([
    ['of a replaced group is that of the edit', [18, 30, '{"id":"g"}'], { from: 18, to: 28 }],
    ['of a group after another excludes the comma', [28, 28, ',{"id":"g"}'], { from: 29, to: 39 }],
    ['of the first group excludes the list', [1, 1, '"source_groups":[{"id":"g"}]'], { from: 18, to: 28 }],
    ['of a removed group is empty', [18, 30, ''], { from: 18, to: 18 }],
  ] as const)(
    '`writtenGroup` returns the position of a written source group in the policy text: the position %s',
    (_, [from, to, text], place) => {
      expect(of(from, to, text)).toEqual({ id: 'g', ...place });
    },
  );

  test('`writtenGroup` returns no position of a source group for the write of a whole policy', () => {
    expect(writtenGroup({ put: stored(2, '{}'), generation: 2 }, write('{}'))).toBeUndefined();
  });
});
