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

/** What a state can say about its part. Only `ready` and `disabled` are good enough to be ready. */
export const STANDINGS = ['ready', 'disabled', 'starting', 'degraded', 'failed', 'needed_but_absent'] as const;
export type Standing = (typeof STANDINGS)[number];

/** A part whose standing is told by a region of a chart; performance mode has no check in the report. */
export type PartName = CheckName | 'performance_mode';

/** Every region that speaks for a part carries exactly one such tag in each of its states. */
export type ReadinessTag = `${PartName}:${Standing}`;

/** Lies beside the tag: the state that carries it is the one that the report shows. */
export type ReadinessMeta = { readonly part: PartName; readonly detail: string };

/** In a chart's context: what is known beyond the detail of the state, such as the failure that led into it. */
export type Troubles = Readonly<Partial<Record<PartName, string>>>;
