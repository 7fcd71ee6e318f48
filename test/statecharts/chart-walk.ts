import type { AnyMachineSnapshot, AnyStateMachine, AnyStateNode, EventObject } from 'xstate';
import { getAdjacencyMap } from 'xstate/graph';

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

/**
 * Returns every snapshot that the chart can reach by the events of the walk. Computes the snapshots without
 * running the effects of the chart.
 */
export function reachable(walk: Walk): AnyMachineSnapshot[] {
  const states = getAdjacencyMap(walk.machine, {
    events: (snapshot) => [...walk.events, ...ownEvents(walk, snapshot.value)] as never[],
    input: walk.input,
    limit: 200_000,
    ...(walk.within === undefined
      ? {}
      : { stopWhen: (snapshot: unknown) => walk.within?.(snapshot as AnyMachineSnapshot) === false }),
    serializeState: (snapshot) =>
      JSON.stringify([snapshot.value, walk.key?.(snapshot as unknown as AnyMachineSnapshot) ?? null]),
    serializeEvent: (event: EventObject) =>
      JSON.stringify(event, (_, value: unknown) => (value instanceof Error ? value.message : value)),
  });
  return Object.values(states).map(({ state }) => state as unknown as AnyMachineSnapshot);
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
    for (const leaf of leavesOf(snapshot.value)) {
      if (!leaf.startsWith(region)) continue;
      for (const event of events) {
        if (snapshot.can(event)) continue;
        const leaves = found.get(event.type) ?? new Set();
        found.set(event.type, leaves.add(leaf.slice(region.length)));
      }
    }
  }
  return [...found].map(([type, leaves]) => `${type}: ${[...leaves].sort().join(', ')}`).sort();
}
