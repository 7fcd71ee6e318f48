/** One check of the readiness report (D27). `Name`: the names of the checks. */
export type Check<Name extends string = string> = {
  readonly name: Name;
  readonly ok: boolean;
  /** The name of the statechart state from which the check is computed. */
  readonly state: string;
  readonly detail: string;
  /** When the statechart of the check entered its current state: ISO 8601, UTC. */
  readonly since: string;
};
export type ReadinessReport = { readonly ready: boolean; readonly checks: readonly Check[] };
