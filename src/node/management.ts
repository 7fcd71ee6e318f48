import { release } from 'node:os';
import { timeExchanges } from '#actors/readiness/exchange-times.js';
import type { System } from '#actors/system-contract.js';
import type { Management } from '#api/management.js';
import type { Fact } from '#bus/bus-messages.js';
import type { Cluster } from '#cluster/cluster.js';
import { NO_PEERS } from '#cluster/operations.js';
import type { RunningConfig } from '#config/reload/running-config.js';
import type { GroupTraffic } from '#contracts/datapath/datapath.js';
import type { Refusal } from '#contracts/refusal.js';
import { type AuditEvent, auditDelta } from '#observe/findings/audit-event.js';
import type { LogRing } from '#observe/log/log-ring.js';
import { createMetrics } from '#observe/metrics/metrics.js';
import type { NodeStats } from '#observe/metrics/stats.js';
import { StatsSeries } from '#observe/metrics/stats-series.js';
import type { PolicyPhase, WorkMetrics } from '#observe/metrics/work-metrics.js';
import type { Observer } from '#observe/observer.js';
import type { Sysdumps } from '#observe/sysdump/sysdump.js';
import type { InterceptCaSetting } from '#service-plane/ca/intercept-ca-setting.js';
import type { Authority } from '#store/tokens/authority.js';
import { createSupport } from './support.js';

export type NodeParts = {
  readonly version: string;
  readonly system: System;
  readonly cluster: Cluster | null;
  readonly interceptCa: InterceptCaSetting;
  readonly authority: Authority;
  readonly work: WorkMetrics;
  readonly observer: Observer;
  readonly running: RunningConfig;
  readonly log: LogRing;
};

export function managementOf(
  parts: NodeParts,
): Management & { readonly support: Sysdumps; readonly series: StatsSeries } {
  const { version, system, cluster, interceptCa, authority, work, observer, running, log } = parts;
  const { config } = running;
  const stats = async (): Promise<NodeStats> => ({
    generation: system.policies.generation(),
    dataplane: await system.datapathStats(),
    dns: await system.lookups.stats(),
    servicePlane: await system.inspecting.stats(),
    kubernetes: await system.kubernetes.stats(),
    cluster: await clusterStats(system),
    observer: await observer.stats().catch(() => null),
  });
  const series = new StatsSeries(async () => {
    const [dataplane, dns, servicePlane] = await Promise.all([
      system.datapathStats(),
      system.lookups.stats(),
      system.inspecting.stats(),
    ]);
    return { dataplane, dns, servicePlane };
  });
  series.start();
  const readiness = () => system.readiness();
  const groupTraffic = async (): Promise<GroupTraffic | null> => {
    const found = await system.traffic.groupTraffic();
    return found === null || 'kind' in found ? null : found;
  };
  const metrics = createMetrics({ version, stats, readiness, groupTraffic }, work);
  timeExchanges(system.bus, ({ exchange, outcome, seconds }) => {
    timePhase(work, exchange, seconds);
    if (exchange === 'policy.write') work.policyWrite(outcome);
  });
  system.bus.messages.subscribe((message) => {
    if (message.type === 'policy.change_ended') {
      work.changeEnded(message.outcome);
      observer.record(auditDelta(endOfChange(message), Date.now()));
    }
    if (message.type === 'config.reloaded') {
      work.reloaded(message.result, message.needsRestart.length);
      const { by, result } = message;
      if (result === 'rollback_failed')
        observer.record(auditDelta({ ...BY_SIGNAL, actor: by, target: 'rollback_failed', status: 503 }, Date.now()));
      else if (by === 'SIGHUP' && result === 'applied') observer.record(auditDelta(BY_SIGNAL, Date.now()));
    }
    if (message.type === 'program.proved') metrics.proved(message.proof);
    else if (message.type === 'program.disproved') metrics.disproved();
  });
  return {
    ...system,
    node: {
      id: config.node.id,
      version,
      kernel: release(),
      startedAt: new Date(performance.timeOrigin).toISOString(),
      clusterEnabled: cluster !== null,
    },
    interceptCa,
    peers: cluster?.peers ?? NO_PEERS,
    wiretap: {
      replayMs: config.wiretap.replayMs,
      read: (filter, times, sink) => observer.read(filter, times, sink),
    },
    tokens: authority,
    sessions: authority.sessions,
    findings: { nodeId: config.node.id, query: (query) => observer.findings(query).catch(unread) },
    seenFlows: (query) => observer.listSeenFlows(query),
    record: (event) => observer.record(auditDelta(event, Date.now())),
    stats,
    series,
    statsSeries: (steps) => series.view(steps),
    metrics,
    support: createSupport({
      version,
      running,
      system,
      stats,
      series,
      metrics,
      log,
      findings: (query) => observer.findings(query),
    }),
  };
}

/**
 * The audit event of a reload by a signal. A reload by the API has the audit event of its request if it
 * succeeds.
 */
const BY_SIGNAL = {
  type: 'config_change',
  actor: 'SIGHUP',
  operation: 'reloadConfiguration',
  target: 'SIGHUP',
  remote: '',
  status: 200,
  etag: null,
} as const satisfies AuditEvent;

/** Returns the audit event of a pending change that Weir itself ended. */
function endOfChange({ generation, outcome, reason }: Extract<Fact, { type: 'policy.change_ended' }>): AuditEvent {
  return {
    type: 'config_change',
    actor: 'weir',
    operation: outcome === 'revert' ? 'revertPendingChange' : 'confirmPendingChange',
    target: `generation ${generation}: ${reason}`,
    remote: '',
    status: 200,
    etag: null,
  };
}

async function clusterStats({ cluster }: System): Promise<NodeStats['cluster']> {
  const { enabled, nodeId, leader, members, revision, seen, unreadable, ...status } = await cluster.status();
  if (!enabled) return null;
  const applied = revision ?? 0;
  const newest = seen ?? applied;
  const ids = (members ?? []).map(({ id }) => id);
  return {
    isLeader: leader === nodeId,
    leader,
    members: ids,
    revision: newest,
    appliedRevision: applied,
    lag: newest - applied,
    connected: status.connected,
    isContradicted: status.contradiction !== null,
    isFull: status.isFull,
    unreadable: unreadable.length,
  };
}

/**
 * The phase of a policy write to which a job of the policy thread or a request on the bus belongs. Metrics
 * report the duration of each phase.
 */
const PHASE_OF: Readonly<Record<string, PolicyPhase>> = {
  prepare: 'compile',
  prepare_group: 'compile',
  locate_group: 'locate',
  explain: 'explain',
  'policy.write': 'write',
  'program.stage': 'stage',
  'program.flip': 'flip',
};

export function timePhase(work: WorkMetrics, name: string, seconds: number): void {
  const phase = PHASE_OF[name];
  if (phase !== undefined) work.policyPhase(phase, seconds);
}

function unread(failure: unknown): Refusal {
  const reason = failure instanceof Error ? failure.message : String(failure);
  return { kind: 'refused', code: 'store_unavailable', detail: `the findings cannot be read: ${reason}` };
}
