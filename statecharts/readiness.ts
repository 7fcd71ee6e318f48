/** The checks of the readiness report, in its order. */
export const CHECKS = [
  'dataplane_running',
  'dataplane_config',
  'policy_ready',
  'dns_allowlist',
  'service_plane',
  'draining',
  'cluster',
  'policy_replication',
] as const;
export type CheckName = (typeof CHECKS)[number];

/** The conditions that a state can report about its part. Only `ready` and `disabled` count as ready. */
export const STANDINGS = ['ready', 'disabled', 'starting', 'degraded', 'failed', 'needed_but_absent'] as const;
export type Standing = (typeof STANDINGS)[number];

/** A part whose condition is a region of a chart; performance mode has no check in the report. */
export type PartName = CheckName | 'performance_mode';

/** Each region that reports a part has exactly one such tag in each of its states. */
export type ReadinessTag = `${PartName}:${Standing}`;

/** Beside the tag: the detail that the report shows while the chart is in this state. */
export type ReadinessMeta = { readonly part: PartName; readonly detail: string };

/** In the context of a chart: facts beyond the detail of the state, such as the failure that led to it. */
export type Troubles = Readonly<Partial<Record<PartName, string>>>;
