import {
  type AnyActorScope,
  type AnyMachineSnapshot,
  type AnyStateMachine,
  type AnyStateNode,
  createEmptyActor,
  type EventObject,
} from 'xstate';

const PROJECTION_SLOTS = new Set(['context', 'input', 'params', 'output']);

/**
 * Returns the paths of the inline functions that the configuration of a chart must not contain. Only
 * functions that compute a context, an input, parameters or an output may be inline, since XState cannot
 * refer to them by name.
 */
export function inlineBehaviour(machine: AnyStateMachine): string[] {
  const found: string[] = [];
  const visit = (value: unknown, path: string, slot: string): void => {
    if (typeof value === 'function') {
      if (!PROJECTION_SLOTS.has(slot)) found.push(path);
    } else if (typeof value === 'object' && value !== null) {
      for (const [key, child] of Object.entries(value)) visit(child, `${path}/${key}`, key);
    }
  };
  visit(machine.config, '', '');
  return found;
}

/**
 * Returns every `invoke` without its own id or without `onError`. Without `onError`, a rejection of the
 * invoked actor would stop the whole chart.
 */
export function unhandledInvokes(machine: AnyStateMachine): string[] {
  return nodesOf(machine).flatMap((node) =>
    [node.config.invoke ?? []]
      .flat()
      .filter((invoke: { id?: string; onError?: unknown }) => invoke.onError === undefined || invoke.id === undefined)
      .map((invoke: { src?: unknown }) => `${node.id}: ${String(invoke.src)}`),
  );
}

export function nodesOf(machine: AnyStateMachine): AnyStateNode[] {
  const under = (node: AnyStateNode): AnyStateNode[] => [node, ...Object.values(node.states).flatMap(under)];
  return under(machine.root);
}

export type Walk = {
  readonly machine: AnyStateMachine;
  readonly input?: unknown;
  readonly events: readonly (EventObject & Readonly<Record<string, unknown>>)[];
  /**
   * Possible outputs of each invoked actor, by the id of the actor. For an actor that is not listed, the only
   * output is `undefined`.
   */
  readonly outputs?: Readonly<Record<string, readonly unknown[]>>;
  readonly errors?: Readonly<Record<string, readonly unknown[]>>;
  /**
   * Returns those parts of the context that guards read. The walk treats two snapshots with the same state
   * and the same key as one snapshot.
   */
  readonly key?: (snapshot: AnyMachineSnapshot) => unknown;
  /**
   * Returns whether the walk continues from a snapshot. Without this limit a queue in the context could grow,
   * and the walk would not end.
   */
  readonly within?: (snapshot: AnyMachineSnapshot) => boolean;
};

/** Returns the active state nodes for the state value of a snapshot, the root included. */
function nodesAt(node: AnyStateNode, value: unknown): AnyStateNode[] {
  if (value === undefined) return [node];
  const children = typeof value === 'string' ? { [value]: undefined } : (value as Record<string, unknown>);
  return [
    node,
    ...Object.entries(children).flatMap(([key, child]) => {
      const next = node.states[key];
      return next === undefined ? [] : nodesAt(next, child);
    }),
  ];
}

/** Returns the internal events that can occur in a state: time-outs, and results of invoked actors. */
function ownEvents({ machine, outputs = {}, errors = {} }: Walk, value: unknown): EventObject[] {
  return nodesAt(machine.root, value).flatMap((node) => [
    ...[...node.transitions.keys()].filter((type) => type.startsWith('xstate.after.')).map((type) => ({ type })),
    ...node.invoke.flatMap(({ id }) => [
      ...(outputs[id] ?? [undefined]).map((output) => ({ type: `xstate.done.actor.${id}`, output, actorId: id })),
      ...(errors[id] ?? [new Error('EBUSY')]).map((error) => ({
        type: `xstate.error.actor.${id}`,
        error,
        actorId: id,
      })),
    ]),
  ]);
}

/** Returns the scope of an actor that computes snapshots and runs no effects. */
function inertScope(): AnyActorScope {
  const self = createEmptyActor();
  const ignore = (): void => {};
  return {
    self,
    system: self.system,
    id: '',
    sessionId: '',
    logger: ignore,
    defer: ignore,
    stopChild: ignore,
    emit: ignore,
    actionExecutor: ignore,
  };
}

/**
 * Returns every snapshot that the chart can reach by the events of the walk. Computes the snapshots without
 * running the effects of the chart.
 *
 * `getAdjacencyMap` of XState returns the same snapshots. It also keeps the target of every transition, and
 * takes several times as long for a chart of thousands of snapshots.
 */
export function reachable(walk: Walk): AnyMachineSnapshot[] {
  const { machine, events, key, within } = walk;
  const found: AnyMachineSnapshot[] = [];
  const keys = new Set<string>();
  const ownByValue = new Map<string, EventObject[]>();
  const add = (snapshot: AnyMachineSnapshot): void => {
    const serialized = JSON.stringify([snapshot.value, key?.(snapshot) ?? null]);
    if (keys.has(serialized)) return;
    keys.add(serialized);
    found.push(snapshot);
  };
  const scope = inertScope();
  add(machine.getInitialSnapshot(scope, walk.input));
  // The array grows during this loop.
  for (const snapshot of found) {
    if (within?.(snapshot) === false) continue;
    const value = JSON.stringify(snapshot.value);
    const own = ownByValue.get(value) ?? ownEvents(walk, snapshot.value);
    ownByValue.set(value, own);
    for (const event of [...events, ...own]) add(machine.transition(snapshot, event, scope));
  }
  return found;
}

/** Returns the path `a.b.c` of each active leaf state; a parallel chart has one path for each region. */
export function leavesOf(value: unknown, prefix = ''): string[] {
  if (typeof value === 'string') return [prefix + value];
  return Object.entries(value as Record<string, unknown>).flatMap(([key, child]) =>
    leavesOf(child, `${prefix}${key}.`),
  );
}

/** Returns the sorted paths of all leaf states in these snapshots, without duplicates. */
export function leavesIn(snapshots: readonly AnyMachineSnapshot[]): string[] {
  return [...new Set(snapshots.flatMap((snapshot) => leavesOf(snapshot.value)))].sort();
}

/**
 * Returns a text `event: leaf, leaf` for each public event that the chart ignores somewhere in the region.
 * The leaves are the leaf states in which the chart ignores the event.
 */
export function ignored(
  snapshots: readonly AnyMachineSnapshot[],
  region: string,
  events: readonly EventObject[],
): string[] {
  const found = new Map<string, Set<string>>();
  for (const snapshot of snapshots) {
    const active = leavesOf(snapshot.value).filter((leaf) => leaf.startsWith(region));
    for (const event of events) {
      const leaves = found.get(event.type) ?? new Set();
      const others = active.map((leaf) => leaf.slice(region.length)).filter((leaf) => !leaves.has(leaf));
      if (others.length === 0 || snapshot.can(event)) continue;
      for (const leaf of others) leaves.add(leaf);
      found.set(event.type, leaves);
    }
  }
  return [...found].map(([type, leaves]) => `${type}: ${[...leaves].sort().join(', ')}`).sort();
}
