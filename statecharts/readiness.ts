/** The names of the checks of the readiness report, in the order of the report. */
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

/**
 * The conditions that a state of a chart can report. A part is ready if its condition is `ready` or
 * `disabled`.
 */
export const CONDITIONS = ['ready', 'disabled', 'starting', 'degraded', 'failed', 'needed_but_absent'] as const;
export type Standing = (typeof CONDITIONS)[number];

/**
 * The names of the parts whose condition a region of a chart reports. Performance mode has such a region, but
 * no check in the readiness report.
 */
export type PartName = CheckName | 'performance_mode';

/**
 * A readiness tag of a state: the name of a part and its condition. If a region reports a part, each state of
 * the region must have exactly one tag of that part.
 */
export type ReadinessTag = `${PartName}:${Standing}`;

/**
 * The metadata of a state with a readiness tag: the text that the readiness report shows while the chart is
 * in the state.
 */
export type ReadinessMeta = { readonly part: PartName; readonly detail: string };

/**
 * Texts that the readiness report shows after the detail of a state, by part. An example is the message of
 * the latest error.
 */
export type Troubles = Readonly<Partial<Record<PartName, string>>>;
