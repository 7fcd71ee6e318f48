import type { AnyMachineSnapshot, AnyStateMachine, AnyStateNode, EventObject } from 'xstate';
import { getShortestPaths } from 'xstate/graph';

const PROJECTION_SLOTS = new Set(['context', 'input', 'params', 'output']);

/**
 * Paths of inline behaviour in the configuration of a chart, except pure projections, which XState cannot
 * name.
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

/** Every `invoke` without an id of its own or without `onError`. Its rejection would stop the whole chart. */
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
  /** By id of the invoked actor: its possible outputs; omitted: `undefined`. */
  readonly outputs?: Readonly<Record<string, readonly unknown[]>>;
  readonly errors?: Readonly<Record<string, readonly unknown[]>>;
  /** The parts of the context that guards read; they distinguish two states. */
  readonly key?: (snapshot: AnyMachineSnapshot) => unknown;
  /**
   * The snapshots from which the walk continues. Without this limit a growing queue would make the walk
   * endless.
   */
  readonly within?: (snapshot: AnyMachineSnapshot) => boolean;
};

/** The state nodes of a value of the machine, the root included. */
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

/** Internal events that can occur in a state: timers, and results of invoked actors. */
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

/** Every snapshot that the chart can reach, found without running an effect. */
export function reachable(walk: Walk): AnyMachineSnapshot[] {
  const paths = getShortestPaths(walk.machine, {
    events: (snapshot) => [...walk.events, ...ownEvents(walk, snapshot.value)] as never[],
    input: walk.input as never,
    limit: 200_000,
    ...(walk.within === undefined
      ? {}
      : { stopWhen: (snapshot: unknown) => walk.within?.(snapshot as AnyMachineSnapshot) === false }),
    serializeState: (snapshot) =>
      JSON.stringify([snapshot.value, walk.key?.(snapshot as unknown as AnyMachineSnapshot) ?? null]),
    serializeEvent: (event: EventObject) =>
      JSON.stringify(event, (_, value: unknown) => (value instanceof Error ? value.message : value)),
  });
  return paths.map((path) => path.state as unknown as AnyMachineSnapshot);
}

/** `a.b.c` for each active state; the regions of a parallel chart are separated. */
export function leavesOf(value: unknown, prefix = ''): string[] {
  if (typeof value === 'string') return [prefix + value];
  return Object.entries(value as Record<string, unknown>).flatMap(([key, child]) =>
    leavesOf(child, `${prefix}${key}.`),
  );
}

/** The sorted leaf states of these snapshots. */
export function leavesIn(snapshots: readonly AnyMachineSnapshot[]): string[] {
  return [...new Set(snapshots.flatMap((snapshot) => leavesOf(snapshot.value)))].sort();
}

/** `leaf: event` for every public event that the chart does not handle in this leaf state. */
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
