import { Registry } from 'prom-client';
import { RELOAD_RESULTS } from '#contracts/config/config-reload.js';
import { familiesOf } from './families.js';

/**
 * The phases of work on policies whose durations are measured. `write` is the whole time for which the
 * requester of a policy write waits; `compile`, `stage` (load into the kernel) and `flip` (activate) are
 * parts of this time. `locate` (find one source group) and `explain` belong to other requests.
 */
const PHASES = ['write', 'compile', 'stage', 'flip', 'locate', 'explain'] as const;
export type PolicyPhase = (typeof PHASES)[number];

type ServedRequest = {
  readonly method: string;
  /**
   * The pattern of the route, such as `/api/v1/policies/:id`. It is not the requested path, because the
   * number of label values would then be unlimited.
   */
  readonly route: string;
  readonly status: number;
  readonly seconds: number;
};

/** Metrics that callers update when an event happens. All other metrics get their values at a scrape. */
export type WorkMetrics = {
  readonly registry: Registry;
  served(request: ServedRequest): void;
  /**
   * Counts a connection that the API closed at once: a limit of connections was reached, or no file
   * descriptor was free.
   */
  refusedConnection(): void;
  /**
   * Counts a compiled policy that passed its proof before activation (B5); `checked` is the number of packets
   * in the proof. `disproved` counts a compiled policy that failed its proof.
   */
  proved(proof: { readonly checked: number; readonly complete: boolean }): void;
  disproved(): void;
  policyPhase(phase: PolicyPhase, seconds: number): void;
  /**
   * Counts a policy write. `outcome` is `written`, `deleted`, `checked` (dry run), or the error code of the
   * refusal.
   */
  policyWrite(outcome: string): void;
  /**
   * Counts a pending policy change that this node ended without a request: `complete` keeps the change,
   * `revert` undoes it.
   */
  changeEnded(outcome: 'complete' | 'revert'): void;
  /**
   * Counts a reload of the configuration. `needsRestart`: the number of changed fields that take effect only
   * after a restart of the node.
   */
  reloaded(result: string, needsRestart: number): void;
  /** Counts a store write. `outcome` is `written`, or the error code of the failure. */
  storeWrite(write: { readonly outcome: string; readonly seconds: number }): void;
};

export function createWorkMetrics(): WorkMetrics {
  const registry = new Registry();
  const { gauge, counter, histogram } = familiesOf(registry);
  const requests = counter(
    'weir_api_requests_total',
    'Requests answered by the management API, the peer listener or the metrics listener.',
    'route',
    'method',
    'status',
  );
  const seconds = histogram(
    'weir_api_request_duration_seconds',
    'Time from the request line to the last byte of the response.',
    [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10],
    'route',
    'method',
  );
  const refusedConnections = counter(
    'weir_api_connections_refused_total',
    'Connections to the management API, the peer listener or the metrics listener that were closed at once: too many in total, too many of one address, or no free file descriptor.',
  );
  const writes = counter(
    'weir_policy_writes_total',
    'Writes of policies, by outcome: `written`, `deleted`, `checked` (a dry run), or the code of the refusal.',
    'outcome',
  );
  for (const outcome of ['written', 'deleted', 'checked']) writes.inc({ outcome }, 0);
  const changes = counter(
    'weir_policy_changes_ended_total',
    'Pending policy changes that this node ended by itself, by outcome: `complete` (a roll-out reached all nodes) or `revert` (not confirmed in time, or a node failed).',
    'outcome',
  );
  for (const outcome of ['complete', 'revert']) changes.inc({ outcome }, 0);
  const reloads = counter(
    'weir_config_reloads_total',
    'Reloads of the configuration, by outcome: `applied`, `refused` (the file is not valid), `rolled_back` (a part could not apply it), or `rollback_failed`.',
    'outcome',
  );
  for (const outcome of RELOAD_RESULTS) reloads.inc({ outcome }, 0);
  const reloadSuccessful = gauge(
    'weir_config_last_reload_successful',
    '1 if the running configuration is that of the file since the last reload, or if there was no reload; 0 if the last reload failed.',
  );
  reloadSuccessful.set(1);
  const reloadedAt = gauge(
    'weir_config_last_reload_success_timestamp_seconds',
    'Unix time of the last successful reload, or of the start of the node.',
  );
  reloadedAt.set(Date.now() / 1_000);
  const awaitingRestart = gauge(
    'weir_config_fields_awaiting_restart',
    'Fields that the last read configuration file changes and that take effect at the next start of the node.',
  );
  const phases = histogram(
    'weir_policy_phase_duration_seconds',
    'Duration of work on policies. `write`: the whole write, which includes `compile` (read, validate, compile), `stage` (fill the idle tables and prove them) and `flip` (activate). Other phases: `locate` (find a group) and `explain`.',
    [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30],
    'phase',
  );
  for (const phase of PHASES) phases.zero({ phase });
  const proofs = counter(
    'weir_policy_proofs_total',
    'Compiled policies that were checked before their activation, by outcome.',
    'outcome',
  );
  for (const outcome of ['passed', 'failed']) proofs.inc({ outcome }, 0);
  const proofPackets = counter(
    'weir_policy_proof_packets_total',
    'Packets in passed proofs: the compiled policy gave the verdict that the policy specifies.',
  );
  const proofComplete = gauge(
    'weir_policy_proof_complete',
    '1 if the last passed proof had a packet for every class of its policy.',
  );
  const storeWrites = counter(
    'weir_store_writes_total',
    'Writes to the store of policies, settings and tokens, by outcome: `written`, or the code of the failure.',
    'outcome',
  );
  // Initialize these series with 0. If a series started at its first failure, the function `increase()` in a
  // Prometheus alert would miss that failure.
  for (const outcome of ['written', 'store_no_space', 'store_unavailable', 'store_read_only'])
    storeWrites.inc({ outcome }, 0);
  const storeSeconds = histogram(
    'weir_store_write_duration_seconds',
    'Duration of a write to the store, including the disk.',
    [0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5],
  );

  return {
    registry,
    served({ route, method, status, seconds: took }) {
      requests.inc({ route, method, status: `${Math.floor(status / 100)}xx` });
      seconds.observe({ route, method }, took);
    },
    refusedConnection: () => refusedConnections.inc(),
    proved({ checked, complete }) {
      proofs.inc({ outcome: 'passed' });
      proofPackets.inc(checked);
      proofComplete.set(complete ? 1 : 0);
    },
    disproved: () => proofs.inc({ outcome: 'failed' }),
    policyPhase: (phase, took) => phases.observe({ phase }, took),
    policyWrite: (outcome) => writes.inc({ outcome }),
    changeEnded: (outcome) => changes.inc({ outcome }),
    reloaded(result, needsRestart) {
      reloads.inc({ outcome: result });
      reloadSuccessful.set(result === 'applied' ? 1 : 0);
      if (result !== 'applied') return;
      reloadedAt.set(Date.now() / 1_000);
      awaitingRestart.set(needsRestart);
    },
    storeWrite({ outcome, seconds: took }) {
      storeWrites.inc({ outcome });
      storeSeconds.observe(took);
    },
  };
}
