import { NEVER, Subject } from 'rxjs';
import { describe, expect, it } from 'vitest';
import { createActor, fromEventObservable } from 'xstate';
import { INTEGRATION_STATES } from '#contracts/kubernetes/integration-status.js';
import type { IntegrationFacts, MemberPage } from '#contracts/kubernetes/kubernetes-source.js';
import type { Warning } from '#contracts/policy/policy-problem.js';
import { stateOf } from '#kubernetes/operations/integration-status.js';
import { integrationsOver } from '#kubernetes/operations/integrations.js';
import { type KubernetesParts, kubernetesOperations } from '#kubernetes/operations/operations.js';
import { selectorOf } from '#policy/model/sources/selector.js';
import { type KubernetesEvent, type KubernetesInput, kubernetesChart } from '#statecharts/kubernetes.chart.js';
import type { IntegrationRecord, IntegrationStore } from '#store/store-types.js';
import { RECORD } from '#test/api/fake-management.js';

const NOW = Date.parse('2026-02-01T12:00:00.000Z');
const AT = '2026-02-01T11:59:00.000Z';
const tokenUntil = (expiryMs: number) =>
  `e30.${Buffer.from(JSON.stringify({ exp: expiryMs / 1_000 })).toString('base64url')}.c2ln`;
const stored = (name: string, token = 'opaque'): IntegrationRecord => ({
  ...{ name, kind: 'kubernetes', api_server_url: 'https://kube.example.com', ca_cert_pem: 'pem' },
  service_account_token: token,
  ...{ revision: 1, created_at: AT, updated_at: AT, updated_by: 'alice' },
});
const SOURCE = { integration: 'prod', pod_selector: { namespace: 'shop', match_labels: { b: '2', a: '1' } } };
const KEY = selectorOf(SOURCE).key;
const FACTS: IntegrationFacts = {
  objects: { pods: 3, nodes: 1, namespaces: 2 },
  selectors: [{ key: KEY, resolved: true, addresses: 2, networks: 0 }],
  warnings: [{ code: 'pods_not_closed', message: 'New pods are not deny-only.' }],
};

function storeOf(records: readonly IntegrationRecord[]): IntegrationStore {
  return {
    list: async () => [...records],
    unreadable: new Set(),
    get: async (name) => records.find((record) => record.name === name) ?? null,
    put: async (integration) => stored(integration.name, integration.service_account_token),
    remove: async () => true,
    changed: NEVER,
  };
}

function integration() {
  const events = new Subject<KubernetesEvent>();
  const watch = fromEventObservable<KubernetesEvent, KubernetesInput>(() => events);
  const chart = kubernetesChart.provide({ actors: { watch } });
  const actor = createActor(chart, { input: { name: 'prod' } }).start();
  const enter = (phase: 'watching' | 'forbidden' | 'backing_off', at: string, reason: string | null = null) =>
    events.next({ type: 'reflector.changed', name: 'pods', phase, reason, at });
  return { actor, enter };
}

const CONNECTION_FAILED: Warning = { pointer: '/api_server_url', code: 'connection_failed', message: 'No route.' };
const over = (store: IntegrationStore, inCluster: string | null) =>
  integrationsOver({
    store,
    inUse: () => [],
    isChangePending: async () => false,
    inCluster,
    accessWarnings: async () => [CONNECTION_FAILED],
  });

const GROUP = { id: 'web', sources: { ips: ['10.0.0.7'], kubernetes: [SOURCE, SOURCE] } };
const group =
  (body: object, active = true) =>
  async () => ({ record: { ...RECORD, active }, body: Buffer.from(JSON.stringify(body)) });

function requests(
  parts: Partial<KubernetesParts> & Partial<KubernetesParts['source']> = {},
  records = [stored('prod')],
  readGroup: Parameters<typeof kubernetesOperations>[1] = group(GROUP),
) {
  const { facts = async () => FACTS, objectCounts = async () => FACTS.objects, ...rest } = parts;
  const { membersOf = async () => ({ networks: [], total: 0, members: [] }), ...others } = rest;
  const store = storeOf(records);
  return kubernetesOperations(over(store, 'local'), readGroup, {
    source: { facts, objectCounts, membersOf },
    store,
    snapshotOf: () => undefined,
    members: () => null,
    now: () => new Date(NOW),
    ...others,
  });
}

describe('status of an integration', () => {
  it('the status of a Kubernetes integration has the state of its actor, its objects, and its selectors in the form of the policy', async () => {
    const { actor, enter } = integration();
    enter('watching', '2026-02-01T11:00:00.000Z');
    const { status } = requests({ snapshotOf: (name) => (name === 'prod' ? actor.getSnapshot() : undefined) });
    const watched = {
      name: 'prod',
      state: 'watching',
      since: '2026-02-01T11:00:00.000Z',
      lastError: null,
      objects: FACTS.objects,
      selectors: [{ selector: SOURCE, resolved: true, addresses: 2, networks: 0 }],
      warnings: FACTS.warnings,
      stale: false,
    };
    expect(await status('prod')).toEqual(watched);
    enter('forbidden', AT, '403: pods is forbidden');
    expect(await status('prod')).toEqual({
      ...watched,
      state: 'refused.forbidden',
      since: AT,
      lastError: { reflector: 'pods', reason: '403: pods is forbidden', at: AT },
      stale: true,
    });
    expect(await status('local')).toEqual({ ...watched, name: 'local', state: 'unused', since: null });
    expect(await status('other')).toBeNull();
    actor.stop();
  });

  it('the status of a Kubernetes integration is not stale while the node knows no object', async () => {
    const { actor, enter } = integration();
    enter('backing_off', AT, 'connection refused');
    const facts = async () => ({ ...FACTS, objects: { pods: 0, nodes: 0, namespaces: 0 } });
    const { status } = requests({ snapshotOf: () => actor.getSnapshot(), facts });
    expect(await status('prod')).toMatchObject({ state: 'backing_off', stale: false });
    actor.stop();
  });

  it.each([
    [tokenUntil(NOW + 86_400_001), []],
    [tokenUntil(NOW + 86_400_000), ['token_expires']],
    [tokenUntil(NOW), ['token_expired']],
    ['an.opaque.token', []],
    [`e30.${Buffer.from('{"exp":1e300}').toString('base64url')}.x`, []],
  ])(
    'the status of a Kubernetes integration has a warning one day before a stored token expires (token: %s)',
    async (token, codes) => {
      const { status } = requests({ facts: async () => ({ ...FACTS, warnings: [] }) }, [stored('prod', token)]);
      expect(await status('prod')).toMatchObject({ warnings: codes.map((code) => ({ code })) });
    },
  );

  it('the status of a Kubernetes integration is refused if the Kubernetes thread fails, or if the node does not watch Kubernetes', async () => {
    const facts = () => Promise.reject(new Error('the thread died'));
    expect(await requests({ facts }).status('prod')).toEqual({
      kind: 'refused',
      code: 'feature_unavailable',
      detail: 'the Kubernetes thread does not respond: the thread died',
    });
    const without = kubernetesOperations(over(storeOf([]), null), group(GROUP), null);
    expect(await without.status('prod')).toMatchObject({ code: 'feature_unavailable' });
    expect(await without.members({ policy: 'p', group: 'web', after: null, limit: 1 })).toMatchObject({
      code: 'feature_unavailable',
    });
    expect(await without.stats()).toBeNull();
  });

  it('the status of a Kubernetes integration has a name for each state of the statechart, and `failed` for an actor that died', () => {
    const states = ['unused', 'connecting', 'listing', 'watching', 'silent', 'backing_off']
      .map((value) => stateOf({ status: 'active', value }))
      .concat(['unauthorized', 'forbidden'].map((refused) => stateOf({ status: 'active', value: { refused } })));
    expect([...states, stateOf({ status: 'error', value: 'watching' })]).toEqual(INTEGRATION_STATES);
    const leaves = Object.entries(kubernetesChart.config.states ?? {}).flatMap(([name, { states: inner }]) =>
      inner === undefined ? [name] : Object.keys(inner).map((child) => `${name}.${child}`),
    );
    // The chart leaves the state `deciding` immediately, so it is no state of an integration in the API.
    expect(leaves.filter((name) => name !== 'deciding').sort()).toEqual(
      INTEGRATION_STATES.filter((name) => name !== 'failed').sort(),
    );
  });
});

describe('members of a source group', () => {
  const owner = (name: string) => ({ integration: 'prod', kind: 'pod', namespace: 'shop', name }) as const;
  const ALL = [1, 2, 3].map((address) => ({ address, owner: owner(`web-${address}`) }));
  const ofNode = { integration: 'prod', kind: 'node', namespace: null, name: 'n1' } as const;
  const NETWORKS = [{ prefix: { address: 256, length: 24 }, owner: ofNode }];
  const asked: unknown[] = [];
  const membersOf = async (keys: readonly string[], after: number | null, limit: number): Promise<MemberPage> => {
    asked.push(keys);
    const rest = ALL.filter(({ address }) => address > (after ?? 0));
    return { networks: after === null ? NETWORKS : [], total: ALL.length, members: rest.slice(0, limit) };
  };

  it('the Kubernetes members of a source group are returned in pages, and the last page has no next address', async () => {
    const { members } = requests({ membersOf });
    const page = (after: number | null) => members({ policy: 'p', group: 'web', after, limit: 2 });
    expect(await page(null)).toEqual({ networks: NETWORKS, total: 3, members: ALL.slice(0, 2), next: 2 });
    expect(await page(2)).toEqual({ networks: [], total: 3, members: ALL.slice(2), next: null });
    expect(await page(1)).toEqual({ networks: [], total: 3, members: ALL.slice(1), next: null });
    expect(asked).toEqual([[KEY], [KEY], [KEY]]);
  });

  it('a source group without Kubernetes selectors has no members, and a request for members of an inactive policy is refused', async () => {
    const query = { policy: 'p', group: 'web', after: null, limit: 2 };
    const none = { networks: [], total: 0, members: [], next: null };
    expect(await requests({ membersOf }, [], group({ sources: { ips: ['10.0.0.7'] } })).members(query)).toEqual(none);
    expect(await requests({ membersOf }, [], group(GROUP, false)).members(query)).toMatchObject({
      code: 'policy_not_active',
    });
    expect(await requests({ membersOf }, [], async () => null).members(query)).toBeNull();
    const broken = requests({ membersOf: () => Promise.reject(new Error('the thread died')) });
    expect(await broken.members(query)).toMatchObject({ code: 'feature_unavailable' });
  });
});

describe('integrations', () => {
  it('the list of Kubernetes integrations contains the integration of the configuration file in place of a stored one with the same name', async () => {
    const store = storeOf([stored('a'), stored('local'), stored('z')]);
    const integrations = over(store, 'local');
    const listed = await integrations.list();
    expect(listed.map(({ name, in_cluster }) => [name, in_cluster])).toEqual([
      ['a', false],
      ['local', true],
      ['z', false],
    ]);
    expect(await integrations.read('local')).toEqual({ name: 'local', kind: 'kubernetes', in_cluster: true });
    expect(JSON.stringify(listed)).not.toContain('opaque');
  });

  it('a request to write or remove the Kubernetes integration of the configuration file is refused', async () => {
    const integrations = over(storeOf([stored('local')]), 'local');
    const written = await integrations.write({ integration: stored('local'), author: 'alice', tryAccess: true });
    const removed = await integrations.remove({ name: 'local' });
    for (const outcome of [written, removed]) expect(outcome).toMatchObject({ code: 'integration_read_only' });
  });

  it('a write and a dry run of a Kubernetes integration return warnings about the token and the connection', async () => {
    const integrations = over(storeOf([]), null);
    const write = { integration: stored('prod', tokenUntil(Date.now() + 3_600_000)), author: 'alice' };
    const expires = { code: 'token_expires', pointer: '/service_account_token' };
    for (const dryRun of [false, true]) {
      const written = await integrations.write({ ...write, dryRun, tryAccess: true });
      expect(written).toMatchObject({ kind: 'written', warnings: [expires, CONNECTION_FAILED] });
    }
    expect(await integrations.write({ ...write, dryRun: true, tryAccess: false })).toMatchObject({
      warnings: [expires],
    });
  });
});

describe('stats of integrations', () => {
  it('the statistics of Kubernetes integrations have the state, objects and age of each integration, and the number of members in the kernel', async () => {
    const { actor, enter } = integration();
    enter('backing_off', AT, 'connection refused');
    const objectCounts = async (name: string) =>
      name === 'prod' ? FACTS.objects : Promise.reject(new Error('the thread does not run'));
    // The facts look at all objects, which is too much for each scrape.
    const facts = () => Promise.reject(new Error('not for metrics'));
    const snapshotOf = (name: string) => (name === 'prod' ? actor.getSnapshot() : undefined);
    const { stats } = requests({ facts, objectCounts, snapshotOf, members: () => ({ members: 5, refused: 1 }) });
    expect(await stats()).toEqual({
      integrations: [
        { name: 'local', state: 'unused', objects: null, staleSeconds: 0 },
        { name: 'prod', state: 'backing_off', objects: FACTS.objects, staleSeconds: 60 },
      ],
      members: 5,
      membersRefused: 1,
    });
    actor.stop();
  });
});
