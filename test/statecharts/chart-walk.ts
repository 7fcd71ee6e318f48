import type { AnyMachineSnapshot, AnyStateMachine, AnyStateNode, EventObject } from 'xstate';
import { getShortestPaths } from 'xstate/graph';

const PROJECTION_SLOTS = new Set(['context', 'input', 'params', 'output']);

/** Paths of inline behaviour in a chart's config, other than the pure projections that XState has no names for. */
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

/** Every `invoke` that lacks an id of its own or `onError`: its rejection would stop the whole chart. */
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
  /** By id of the invoked actor: outputs it may end with; left out: `undefined`. */
  readonly outputs?: Readonly<Record<string, readonly unknown[]>>;
  readonly errors?: Readonly<Record<string, readonly unknown[]>>;
  /** What else tells two states apart, where guards look at the context. */
  readonly key?: (snapshot: AnyMachineSnapshot) => unknown;
  /** Where the walk goes on; a queue that grows must not make it endless. */
  readonly within?: (snapshot: AnyMachineSnapshot) => boolean;
};

/** The state nodes that a value of the machine stands for, the root included. */
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

/** Events of XState's own that can happen in a state: timers, and the outcomes of what is invoked there. */
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

/** Every snapshot that the chart can reach, by walking it without running an effect. */
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

/** `a.b.c` of each state in force; regions of a parallel chart side by side. */
export function leavesOf(value: unknown, prefix = ''): string[] {
  if (typeof value === 'string') return [prefix + value];
  return Object.entries(value as Record<string, unknown>).flatMap(([key, child]) =>
    leavesOf(child, `${prefix}${key}.`),
  );
}

/** The sorted leaves that any of these snapshots is in. */
export function leavesIn(snapshots: readonly AnyMachineSnapshot[]): string[] {
  return [...new Set(snapshots.flatMap((snapshot) => leavesOf(snapshot.value)))].sort();
}

/** `leaf: event` for every public event that is not handled anywhere while the chart is in this leaf. */
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
