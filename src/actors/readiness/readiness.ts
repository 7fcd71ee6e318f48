import type { Check, ReadinessReport } from '#contracts/readiness.js';
import type { KubernetesContext } from '#statecharts/kubernetes.chart.js';
import type { Part } from '#statecharts/node.chart.js';
import {
  CHECKS,
  type CheckName,
  CONDITIONS,
  type ConditionName,
  type PartName,
  type ReadinessMeta,
  type Troubles,
} from '#statecharts/readiness.js';

export type Condition = Omit<Check<CheckName>, 'since'>;

export type PartSnapshot = {
  readonly status: 'active' | 'done' | 'error' | 'stopped';
  readonly hasTag: (tag: never) => boolean;
  readonly getMeta: () => Readonly<Record<string, unknown>>;
  readonly matches?: (value: never) => boolean;
  /**
   * Sentences for the readiness report. `trouble`: why a check is not ready. `notices`: remarks on a
   * part in each state. `failure`: why a supervised part is down.
   */
  readonly context: { readonly trouble?: Troubles; readonly notices?: Troubles; readonly failure?: string | null };
  readonly children?: Readonly<Record<string, { getSnapshot(): unknown } | undefined>>;
};

/**
 * The state of all actors of the node. `snapshots`: undefined for an actor that does not run. `ended`: the
 * reason why each ended actor has ended.
 */
export type NodeView = {
  readonly snapshots: Readonly<Record<Part | 'node', PartSnapshot | undefined>>;
  readonly ended: Readonly<Partial<Record<Part, string>>>;
};

/**
 * The actor from whose statechart each check is computed. With `child`, the check is computed from the
 * statechart of this child actor instead.
 */
const CHECK_SOURCE: Readonly<Record<CheckName, { readonly actor: Part | 'node'; readonly child?: string }>> = {
  dataplane_running: { actor: 'dataplane' },
  dataplane_config: { actor: 'dataplane', child: 'interfaces' },
  policy_ready: { actor: 'policy' },
  dns_allowlist: { actor: 'dnsProxy' },
  service_plane: { actor: 'servicePlane' },
  draining: { actor: 'node' },
  cluster: { actor: 'cluster' },
  policy_replication: { actor: 'cluster' },
};

/**
 * The states of a check, such as `ready` or `failed`, from the worst to the best. If a statechart has tags
 * for two states of a check, the check has the worse state.
 */
const WORST_FIRST: readonly ConditionName[] = [...CONDITIONS].reverse();

/** Returns the results of the eight readiness checks in the order of the specification. */
export function conditionsOf(view: NodeView): Condition[] {
  return CHECKS.map((name) => {
    const { actor, child } = CHECK_SOURCE[name];
    const ended = actor === 'node' ? undefined : view.ended[actor];
    const snapshot = view.snapshots[actor];
    return conditionOf(name, child === undefined ? snapshot : childOf(snapshot, child), ended);
  });
}

/**
 * Returns the snapshot of a child actor; undefined if its parent does not run. The parent must be checked
 * first, because a child of a dead actor still has its last snapshot.
 */
function childOf(snapshot: PartSnapshot | undefined, child: string): PartSnapshot | undefined {
  if (snapshot?.status !== 'active') return undefined;
  return snapshot.children?.[child]?.getSnapshot() as PartSnapshot | undefined;
}

/**
 * Computes one check from the snapshot of its actor. The status must be read before the tags, because a dead
 * actor keeps the tags of its last state.
 */
export function conditionOf(name: CheckName, snapshot: PartSnapshot | undefined, ended?: string): Condition {
  if (snapshot === undefined || snapshot.status !== 'active') {
    const reason = ended === undefined ? '' : `: ${ended}`;
    return { name, ok: false, state: 'down', detail: `the actor of this part failed and is restarted${reason}` };
  }
  const description = Object.entries(snapshot.getMeta()).find(
    ([, meta]) => (meta as ReadinessMeta | undefined)?.part === name,
  );
  const condition = conditionNameOf(name, snapshot);
  if (description === undefined || condition === undefined)
    throw new Error(`read the readiness check ${name}: no state of the statechart describes it`);
  const [path, meta] = description as [string, ReadinessMeta];
  const ok = condition === 'ready' || condition === 'disabled';
  const { trouble, notices } = snapshot.context;
  const reason = ok || trouble?.[name] === undefined ? '' : `: ${trouble[name]}`;
  const notice = notices?.[name] === undefined ? '' : `; ${notices[name]}`;
  return { name, ok, state: path.slice(path.lastIndexOf('.') + 1), detail: `${meta.detail}${reason}${notice}` };
}

function conditionNameOf(part: PartName, snapshot: PartSnapshot): ConditionName | undefined {
  return WORST_FIRST.find((condition) => snapshot.hasTag(`${part}:${condition}` as never));
}

/**
 * The supervised parts of the node. `check`: the check whose detail reports the part while the part is down.
 * `what`: the name of the part in this detail.
 */
const SUPERVISED = [
  { name: 'observer', check: 'dataplane_running', what: 'the observer (findings, wiretap)' },
  { name: 'policyFile', check: 'policy_ready', what: 'policy.file' },
  { name: 'writeThread', check: 'policy_ready', what: 'the thread for writes of policies' },
  { name: 'explainThread', check: 'policy_ready', what: 'the thread that explains the active policy' },
  { name: 'draftThread', check: 'policy_ready', what: 'the thread that explains drafts' },
  { name: 'kubernetesThread', check: 'policy_ready', what: 'the thread that watches Kubernetes' },
] as const satisfies readonly { name: Part; check: CheckName; what: string }[];

/** The state of a supervised part. A part that is down does not make the node unready. */
type PartState = {
  readonly name: (typeof SUPERVISED)[number]['name'];
  readonly check: CheckName;
  readonly what: string;
  readonly state: 'up' | 'down';
  readonly failure: string;
};

export function supervisedPartsOf({ snapshots, ended }: NodeView): PartState[] {
  return SUPERVISED.map((part) => {
    const snapshot = snapshots[part.name];
    if (snapshot?.status !== 'active')
      return { ...part, state: 'down', failure: ended[part.name] ?? 'its actor ended' };
    const isDown = snapshot.matches?.('down' as never) === true;
    return { ...part, state: isDown ? 'down' : 'up', failure: snapshot.context.failure ?? '' };
  });
}

/**
 * An integration whose Kubernetes API server sends no data now. The last members (addresses of pods and
 * nodes) stay in force (D19a).
 */
export type StaleIntegration = { readonly name: string; readonly since: string; readonly reason: string };

export function staleIntegrationsOf({ snapshots: { integrations } }: NodeView): StaleIntegration[] {
  if (integrations?.status !== 'active') return [];
  return Object.keys(integrations.children ?? {}).flatMap((name) => {
    const context = childOf(integrations, name)?.context as KubernetesContext | undefined;
    const { staleSince = null, lastError = null } = context ?? {};
    return staleSince === null || lastError === null ? [] : [{ name, since: staleSince, reason: lastError.reason }];
  });
}

export function reportOf(
  conditions: readonly Condition[],
  parts: readonly PartState[],
  integrations: readonly StaleIntegration[],
  sinceOf: (name: CheckName | Part) => string,
): ReadinessReport {
  const stale = integrations.map(
    ({ name, since, reason }) =>
      `; warning: the members of integration ${name} are the last known since ${since}: ${reason}`,
  );
  return {
    ready: conditions.every(({ ok }) => ok),
    checks: conditions.map((condition) => {
      const downParts = parts
        .filter(({ check, state }) => check === condition.name && state === 'down')
        .map(({ name, what, failure }) => `; warning: ${what} is down since ${sinceOf(name)}: ${failure}`);
      const notes = condition.name === 'policy_ready' ? [...downParts, ...stale] : downParts;
      return { ...condition, detail: condition.detail + notes.join(''), since: sinceOf(condition.name) };
    }),
  };
}

type Name = CheckName | Part;

/** Records the time when each check and each supervised part entered its present state. */
type StateTimes = {
  note(states: readonly { readonly name: Name; readonly state: string }[]): void;
  /** Returns the time when the check or part entered its present state, in ISO 8601, UTC. */
  since(name: Name): string;
};

export function createStateTimes(now: () => Date): StateTimes {
  const began = now().toISOString();
  const entered = new Map<Name, { readonly state: string; readonly at: string }>();
  return {
    note(states) {
      for (const { name, state } of states) {
        if (entered.get(name)?.state !== state) entered.set(name, { state, at: now().toISOString() });
      }
    },
    since: (name) => entered.get(name)?.at ?? began,
  };
}
