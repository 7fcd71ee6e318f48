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
 * The conditions of a part that a state of a chart can report. The part is ready if its condition is `ready`
 * or `disabled`.
 */
export const CONDITIONS = ['ready', 'disabled', 'starting', 'degraded', 'failed', 'needed_but_absent'] as const;
export type ConditionName = (typeof CONDITIONS)[number];

/**
 * The names of the parts whose condition a chart reports. Performance mode is such a part, but the readiness
 * report has no check for it.
 */
export type PartName = CheckName | 'performance_mode';

/**
 * A readiness tag of a statechart state: the name of a part of the node and its condition. If a parallel
 * region of a chart reports a part, each state of the region must have exactly one tag of that part.
 */
export type ReadinessTag = `${PartName}:${ConditionName}`;

/**
 * The metadata of a state with a readiness tag: the text that the readiness report shows while the chart is
 * in the state.
 */
export type ReadinessMeta = { readonly part: PartName; readonly detail: string };

/** Returns tag and metadata of a state that reports a condition of a part to the readiness report. */
export const reports = <Name extends PartName, Condition extends ConditionName>(
  part: Name,
  condition: Condition,
  detail: string,
) => ({ tags: `${part}:${condition}`, meta: { part, detail } }) as const;

/** Returns the `types` of a chart whose states report readiness. XState uses only the type of the result. */
export const readinessTypes = <Context, Input, Event>() =>
  ({}) as {
    readonly context: Context;
    readonly input: Input;
    readonly events: Event;
    readonly tags: ReadinessTag;
    readonly meta: ReadinessMeta;
  };

/**
 * For each part, a text that the readiness report shows after the text of the state, such as the message of
 * the latest error.
 */
export type Troubles = Readonly<Partial<Record<PartName, string>>>;
