import { generateKeyPairSync } from 'node:crypto';
import { NEVER } from 'rxjs';
import type { Enforcement } from '#actors/operations.js';
import type { Management } from '#api/management.js';
import type { PerformanceMode } from '#bus/bus-messages.js';
import { NO_PEERS } from '#cluster/operations.js';
import type { IntegrationStatus } from '#contracts/kubernetes/integration-status.js';
import type { Packet } from '#contracts/policy/policy-model.js';
import type { PolicyRecord, PolicyRevision, StoredPolicy } from '#contracts/policy/policy-record.js';
import type { PolicyChecked, PolicyOutcome, PolicyWrite } from '#contracts/policy/policy-write.js';
import type { ReadinessReport } from '#contracts/readiness.js';
import type { StoredIntegrationView } from '#kubernetes/operations/integrations.js';
import type { AuditEvent } from '#observe/findings/audit-event.js';
import { createMetrics } from '#observe/metrics/metrics.js';
import type { NodeStats } from '#observe/metrics/stats.js';
import { assertionsOver } from '#policies/assertions.js';
import { explainLane } from '#policies/explain.js';
import type { ChangeView } from '#policies/pending-changes.js';
import type { InterceptCaView } from '#service-plane/ca/intercept-ca-setting.js';
import { createAssertionStore } from '#store/settings/assertion-store.js';
import type { PolicyStore } from '#store/store-types.js';
import { EndedSessions } from '#store/tokens/ended-sessions.js';
import { createSessions } from '#store/tokens/sessions.js';
import { createMemoryStore } from '#test/store/memory-store.js';
import { threadHere } from '../actors/running-system.js';
import { CERTIFICATE } from './certificate.js';

export const TOKENS = { admin: 'admin-token', readonly: 'readonly-token', expired: 'expired-token' } as const;
/** The clients of the valid tokens. */
const IDENTITIES = [
  { id: 'admin', keyId: null, subject: 'alice', role: 'admin' },
  { id: 'readonly', keyId: null, subject: 'rita', role: 'readonly' },
] as const;
const KEYS = generateKeyPairSync('ed25519');
export const SINCE = '2026-01-31T12:00:00.000Z';

export const RECORD: PolicyRecord = {
  id: '0b9ff3a1-66a6-4a54-9c61-3d7b3a7c2f10',
  name: 'office',
  form: 'envelope',
  mode: 'enforce',
  revision: 3,
  created_at: SINCE,
  updated_at: SINCE,
  updated_by: 'admin',
  active: true,
};
export const GROUP = '{"id":"lan","sources":{"ips":["10.0.0.7"]}}';
export const BODY = `{"default_policy":"deny","source_groups":[${GROUP}]}`;
export const STORED: StoredPolicy = { record: RECORD, body: Buffer.from(BODY) };
/** Three revisions: a write of an older build, a group write, and a rollback. The last one is active. */
export const REVISIONS: readonly PolicyRevision[] = [
  {
    ...RECORD,
    facts: {
      via: 'rollback',
      of_revision: 1,
      overrides: ['web'],
      generation: 7,
      bytes: 0,
      activated: { by: 'ann', at: SINCE, overrides: ['no-ssh'] },
    },
  },
  {
    ...RECORD,
    revision: 2,
    active: false,
    facts: {
      via: 'group_write',
      source_group: 'lan',
      comment: 'CHG-1042',
      generation: 5,
      bytes: 120,
      size: {
        groups: { added: 0, changed: 1, removed: 0 },
        rules: { added: 2, changed: 0, removed: 1 },
        other: false,
      },
    },
  },
  { ...RECORD, revision: 1, active: false, facts: {} },
];
export const ETAG = `"${RECORD.id}.3"`;

export const READY: ReadinessReport = {
  ready: true,
  checks: [
    { name: 'dataplane_running', ok: true, state: 'enforcing', detail: '', since: SINCE },
    { name: 'policy_ready', ok: true, state: 'active', detail: 'generation 7', since: SINCE },
  ],
};
export const PROOF = { classes: 6, checked: 24, complete: true } as const;
/** The outcome of a dry run of a policy write. */
export const CHECKED: PolicyChecked = {
  kind: 'checked',
  stored: STORED,
  warnings: [],
  programLines: 3,
  change: { generation: 0 },
  diff: null,
  assertions: [],
  proof: PROOF,
};
export const STATS: NodeStats = {
  generation: 7,
  dataplane: {
    generation: 7,
    activeFlows: 2,
    halfOpenFlows: 1,
    sweep: { agoMs: 500, tookMs: 0.25 },
    forwarding: { way: 'stack', reason: 'nftables chain inet filter forward' },
    ipv6Forwarding: null,
    verdicts: {
      allow: { packets: 10n, bytes: 1_000n },
      deny: { packets: 3n, bytes: 180n },
      audit: { packets: 1n, bytes: 60n },
    },
    inspected: { handed: { packets: 20n, bytes: 2_000n }, joined: { packets: 30n, bytes: 30_000n } },
    drops: { policy: { packets: 3n, bytes: 180n } },
    nonIpv4Passed: { packets: 6n, bytes: 600n },
    dnsUnroutable: { packets: 7n, bytes: 700n },
    flowsOpened: 5n,
    flowsClosed: 3n,
    flowsSuspended: 2n,
    flowsResumed: 1n,
    refusing: ['flow_share'],
    routesCopied: true,
    grantsRefused: 2,
    events: { sent: 90n, lost: 5n, suppressed: 4n },
    maps: { flows: { entries: 2, capacity: 131_072 } },
  },
  dns: null,
  servicePlane: null,
  kubernetes: null,
  cluster: null,
  observer: null,
};

/** `10.0.0.7`, the address that `OWNER` owns. */
export const OWNED = 0x0a000007;
export const OWNER = { integration: 'prod', kind: 'pod', namespace: 'shop', name: 'web-5d4f' } as const;
const SELECTOR = { integration: 'prod', pod_selector: { match_labels: { app: 'web' } } } as const;
/** The response of `explain`, without the state of the datapath for the packet. */
export const EXPLANATION = {
  decision: 'deny',
  effective_action: 'deny',
  mode: 'enforce',
  source_group: null,
  rule: null,
  reason: 'default_policy is deny',
  owners: { source: OWNER, destination: null },
  selected_by: SELECTOR,
  walk: [{ source_group: 'lan', rule: null, matched: false, why: 'the source is not in the group' }],
  walk_omitted: 0,
  unknown: [],
} as const;
/** The integration that the setting `kubernetes.in_cluster` adds. */
const IN_CLUSTER = { name: 'local', kind: 'kubernetes', in_cluster: true } as const;
export const STATUS: IntegrationStatus = {
  name: 'local',
  state: 'refused.forbidden',
  since: SINCE,
  lastError: { reflector: 'nodes', reason: '403: nodes is forbidden', at: SINCE },
  objects: { pods: 3, nodes: 0, namespaces: 2 },
  selectors: [
    {
      selector: { integration: 'local', pod_selector: { match_labels: { app: 'web' } } },
      resolved: true,
      addresses: 2,
      networks: 0,
    },
  ],
  warnings: [{ code: 'pods_not_closed', message: 'New pods are not deny-only.' }],
  stale: true,
};

const CHANGE: NonNullable<ChangeView['pending']> = {
  id: 'c0ffee00-0000-4000-8000-000000000002',
  generation: 42,
  before: { generation: 41 },
  at: SINCE,
  by: 'admin',
  terms: { kind: 'rollout', share: 10, hold_ms: 300_000, nodes: ['node-a'] },
  nodes: [{ node: 'node-a', fault: null }],
};

export type FakeManagement = Management & {
  /** All calls that could change the node, in order of arrival. */
  readonly changes: { readonly call: string; readonly with: unknown }[];
  readonly reads: {
    stored: StoredPolicy | null;
    performanceMode: PerformanceMode;
    readiness: ReadinessReport;
    enforcement: Enforcement;
    enforcedInstead: number | null;
    replyTo: Packet<number> | null;
    hits: Awaited<ReturnType<Management['traffic']['hits']>>;
    flows: Awaited<ReturnType<Management['traffic']['flows']>>;
    seenFlows: Awaited<ReturnType<Management['seenFlows']>>;
    /** The arguments of the queries for hits, flows and findings, in order of arrival. */
    readonly asked: unknown[];
    members: Awaited<ReturnType<Management['kubernetes']['members']>>;
    names: Awaited<ReturnType<Management['lookups']['names']>>;
    /** Results of `findings.query`, one for each call. The last result is repeated. */
    findings: Awaited<ReturnType<Management['findings']['query']>>[];
    /** The ids of revoked tokens: `admin` and `readonly` are those of `TOKENS`. */
    readonly revoked: Set<string>;
  };
  /** The audit events that the API recorded, in order of arrival. */
  readonly recorded: AuditEvent[];
  answer: { policyWrite: (write: PolicyWrite) => PolicyOutcome | Promise<PolicyOutcome> };
};

/**
 * A fake node for API tests. It records the calls that could change a node, and returns the results that a
 * test sets in `reads` and `answer`.
 */
export function fakeManagement(overrides: Partial<Management> = {}): FakeManagement {
  const changes: FakeManagement['changes'] = [];
  const reads: FakeManagement['reads'] = {
    stored: STORED,
    performanceMode: { enabled: true, source: null, revision: 0 },
    readiness: READY,
    enforcement: { enforcing: true, generation: 7, since: SINCE },
    enforcedInstead: null,
    replyTo: null,
    revoked: new Set(),
    hits: { policy: RECORD, generation: 7, sinceMs: Date.parse(SINCE), items: [], next: null },
    flows: { matched: 0, items: [], next: null },
    seenFlows: null,
    asked: [],
    members: { networks: [], total: 0, members: [], next: null },
    findings: [{ items: [], next: null }],
    names: { kind: 'refused', code: 'feature_unavailable', detail: 'no name is looked up on this node' },
  };
  const recorded: FakeManagement['recorded'] = [];
  const answer: FakeManagement['answer'] = {
    policyWrite: (write) =>
      write.operation === 'delete'
        ? { kind: 'deleted', generation: 8, warnings: [] }
        : {
            kind: 'written',
            created: write.target.by === 'new',
            stored: { record: { ...RECORD, form: write.form }, body: STORED.body },
            generation: 8,
            warnings: [],
            proof: PROOF,
          },
  };
  const changed = (call: string, argument: unknown) => {
    changes.push({ call, with: argument });
  };
  const integrations = new Map<string, { readonly secret: string; readonly view: StoredIntegrationView }>();
  let ca: InterceptCaView | null = null;
  let caWrites = 0;
  const writeCa = (subject: string, cert_pem: string, updated_by: string) => {
    caWrites += 1;
    const times = { not_before: SINCE, not_after: SINCE, updated_at: SINCE };
    ca = { subject, fingerprint_sha256: 'ab'.repeat(32), ...times, cert_pem, revision: caWrites, updated_by };
    return { kind: 'written', ca, warnings: [] } as const;
  };
  const noPolicies = { active: async () => reads.stored, findByName: async () => null, revision: async () => null };
  const assertions = assertionsOver({
    store: createAssertionStore(createMemoryStore(), { now: () => new Date(SINCE) }),
    analysis: {
      policies: noPolicies as unknown as PolicyStore,
      lane: explainLane(threadHere(), 5_000),
      surroundings: { fallback: 'deny', dns: false, servicePlane: false, policesNode: false, ipv6: false },
      seen: null,
    },
  });
  const tokens = [
    { id: 't-1', subject: 'ops', role: 'admin' as const, created_at: SINCE, expires_at: null, revoked_at: null },
  ];

  return {
    changes,
    reads,
    recorded,
    answer,
    ownerOf: (address) => (address === OWNED ? OWNER : null),
    lookups: { names: async () => reads.names, stats: unused, seen: NEVER, setWanted: unused },
    wiretap: { replayMs: 30_000, read: () => ({ close: () => {} }) },
    policies: {
      async write(write) {
        changed('policies.write', write);
        return answer.policyWrite(write);
      },
      read: async () => reads.stored,
      readGroup: async () => (reads.stored === null ? null : { ...reads.stored, body: Buffer.from(GROUP) }),
      list: async () => (reads.stored === null ? [] : [reads.stored.record]),
      generation: () => 7,
      reaches: async (wanted) => wanted <= 7,
      history: async (_, { before = 4, limit = 0 }) =>
        REVISIONS.filter(({ revision }) => revision < before).slice(0, limit),
      revision: async (_, wanted) => {
        const record = REVISIONS.find(({ revision }) => revision === wanted);
        return record === undefined ? null : { record, body: STORED.body };
      },
      describe: unused,
      analyse: unused,
      explain: async () => ({
        ...EXPLANATION,
        enforced_instead: reads.enforcedInstead,
        reply_to: reads.replyTo,
      }),
    },
    assertions: {
      ...assertions,
      async write(write) {
        if (!write.dryRun) changed('assertions.write', write);
        return assertions.write(write);
      },
    },
    configuration: {
      reload: async (request) => {
        if (!request.dryRun) changed('configuration.reload', request);
        return {
          kind: 'reloaded',
          applied: ['/log/level'],
          unchanged: ['/version', '/node/id'],
          needsRestart: ['/dataplane/mark_mask'],
        };
      },
      lastReload: () => null,
    },
    performanceMode: {
      source: 'local',
      read: async () => reads.performanceMode,
      async write(write) {
        changed('performanceMode.write', write);
        const { revision } = reads.performanceMode;
        reads.performanceMode = { enabled: write.enabled, source: 'local', revision: revision + 1 };
        return reads.performanceMode;
      },
    },
    pendingChange: {
      read: async () => ({ pending: CHANGE, reverted: null }),
      async end(write) {
        if (!write.dryRun) changed('pendingChange.end', write);
        return { kind: 'ended', generation: 42, isEnforced: true };
      },
      isPending: unused,
      adopted: unused,
    },
    cluster: {
      status: async () => ({
        enabled: true,
        nodeId: 'node-a',
        clusterId: 'c0ffee00-0000-4000-8000-000000000001',
        connected: true,
        leader: 'node-a',
        generation: 7,
        revision: 42,
        seen: 42,
        contradiction: null,
        isFull: false,
        unreadable: [{ key: '/weir/shared/policy/zzz', reason: 'it is not JSON' }],
        members: [{ id: 'node-a', address: '10.0.0.1:7443', version: '1.0.0', generation: 7, since: SINCE }],
      }),
      async init(write) {
        if (!write.dryRun) changed('cluster.init', write);
        return null;
      },
      async recover(write) {
        if (!write.dryRun) changed('cluster.recover', write);
        return null;
      },
      nodes: async () => [
        {
          id: 'node-a',
          address: '10.0.0.1:7443',
          version: '1.0.0',
          joinedAt: SINCE,
          member: { generation: 7, since: SINCE },
        },
      ],
      async remove(removal) {
        if (!removal.dryRun) changed('cluster.remove', removal);
        return null;
      },
      issueJoinToken() {
        changed('cluster.issueJoinToken', null);
        return { token: 'weir-join.x', expiresAt: new Date(SINCE) };
      },
      redeemJoinToken: async () => null,
    },
    peers: NO_PEERS,
    integrations: {
      list: async () => [IN_CLUSTER, ...[...integrations.values()].map(({ view }) => view)],
      read: async (name) => (name === IN_CLUSTER.name ? IN_CLUSTER : (integrations.get(name)?.view ?? null)),
      async write(write) {
        changed('integrations.write', write);
        const { service_account_token: secret, ...shown } = write.integration;
        const before = integrations.get(shown.name);
        const revision = (before?.view.revision ?? 0) + 1;
        const view = {
          ...shown,
          in_cluster: false as const,
          revision,
          created_at: SINCE,
          updated_at: SINCE,
          updated_by: write.author,
        };
        integrations.set(shown.name, { secret, view });
        return { kind: 'written', created: before === undefined, integration: view, warnings: [] };
      },
      async remove(removal) {
        changed('integrations.remove', removal);
        integrations.delete(removal.name);
        return { kind: 'deleted' };
      },
    },
    kubernetes: {
      status: async (name) => (name === STATUS.name ? STATUS : null),
      async members(query) {
        reads.asked.push(query);
        return reads.members;
      },
      stats: unused,
    },
    interceptCa: {
      read: async () => ca,
      isStored: () => ca !== null,
      async put(write) {
        changed('interceptCa.put', write);
        return writeCa('CN=given', write.certPem, write.author);
      },
      async generate(write) {
        changed('interceptCa.generate', write);
        return writeCa('CN=made', CERTIFICATE, write.author);
      },
      async remove(removal) {
        changed('interceptCa.remove', removal);
        ca = null;
        return { kind: 'deleted' };
      },
    },
    tokens: {
      async verify(token) {
        const identity = IDENTITIES.find(({ id }) => token === TOKENS[id]);
        if (identity === undefined)
          return { kind: 'refused', reason: token === TOKENS.expired ? 'expired' : 'malformed' };
        if (reads.revoked.has(identity.id)) return { kind: 'refused', reason: 'revoked' };
        return { kind: 'accepted', identity };
      },
      async issue(request) {
        changed('tokens.issue', request);
        const { subject, role } = request;
        const record = { id: 't-2', subject, role, created_at: SINCE, expires_at: null, revoked_at: null };
        return { record, token: 'eyJ.issued.token' };
      },
      list: () => tokens,
      async revoke(id) {
        changed('tokens.revoke', id);
        return tokens.some((token) => token.id === id);
      },
    },
    sessions: createSessions({
      node: 'node-a',
      ...KEYS,
      now: () => new Date(),
      ended: new EndedSessions(
        [],
        async () => {},
        () => new Date(),
      ),
      validToken({ id }) {
        const identity = IDENTITIES.find((known) => known.id === id);
        if (identity === undefined || reads.revoked.has(id)) return { reason: 'revoked' };
        return { identity, expiresMs: Number.POSITIVE_INFINITY };
      },
    }),
    traffic: {
      async hits(query) {
        reads.asked.push(query);
        return reads.hits;
      },
      async flows(query) {
        reads.asked.push(query);
        return reads.flows;
      },
      async cutFlows(filter) {
        changed('traffic.cutFlows', filter);
        return { cut: 3 };
      },
      groupTraffic: unused,
      learned: unused,
      arrival: unused,
      destinationTranslation: unused,
    },
    seenFlows: async (query) => {
      reads.asked.push(query);
      return reads.seenFlows;
    },
    findings: {
      nodeId: 'node-a',
      async query(query) {
        reads.asked.push(query);
        const [next = { items: [], next: null }, ...rest] = reads.findings;
        if (rest.length > 0) reads.findings = rest;
        return next;
      },
    },
    record: (event) => {
      recorded.push(event);
    },
    readiness: () => reads.readiness,
    enforcement: () => reads.enforcement,
    node: { id: 'node-a', version: '0.1.0', kernel: '6.12.0', startedAt: SINCE, clusterEnabled: true },
    enforcedInstead: async () => reads.enforcedInstead,
    debug: {
      charts: () => [],
      definitions: () => [],
      actors: () => [],
      recent: () => [],
      transitions: () => [],
      watch: () => () => {},
    },
    support: { begin: () => 'closed' },
    stats: async () => STATS,
    statsSeries: () => {
      throw new Error('a test of this route gives the series');
    },
    metrics: createMetrics({ version: '0.1.0', stats: async () => STATS, readiness: () => reads.readiness }),
    ...overrides,
  };
}

/** Replaces an operation of the node that no route of the API calls. */
function unused(): never {
  throw new Error('no route calls this operation');
}
