import type { Schemas } from '../../api/client.js';

export type Definition = Schemas['StatechartDefinition'];
export type Arrow = Definition['transitions'][number] & {
  /** The position in the definition of the chart. Recorded transitions refer to a transition by it. */
  readonly index: number;
};

export type State = Omit<Definition['states'][number], 'parent'> & {
  readonly parent: State | null;
  readonly children: readonly State[];
  /** The nesting depth; 0 for the root state. */
  readonly depth: number;
};

/** A statechart as a tree of states with its transitions. */
export type Chart = {
  readonly id: string;
  readonly root: State;
  readonly states: ReadonlyMap<string, State>;
  readonly arrows: readonly Arrow[];
};

export function chartOf({ id, states, transitions }: Definition): Chart {
  const all = new Map<string, State & { readonly children: State[] }>();
  for (const { parent: parentId, ...state } of states) {
    const parent = parentId === null ? null : (all.get(parentId) ?? null);
    const made = { ...state, parent, children: [], depth: parent === null ? 0 : parent.depth + 1 };
    parent?.children.push(made);
    all.set(state.id, made);
  }
  const root = all.values().next().value;
  if (root === undefined) throw new Error(`the statechart ${id} has no states`);
  return { id, root, states: all, arrows: transitions.map((arrow, index) => ({ ...arrow, index })) };
}

/** Returns the displayed name of a state: `backing_off` becomes "backing off", `dnsProxy` stays the same. */
export const nameOf = ({ key }: Pick<State, 'key'>): string => key.replaceAll('_', ' ');

/** Yields a state and then its outer states, from the inside to the outside. */
export function* outward(state: State | null): Generator<State> {
  for (let at = state; at !== null; at = at.parent) yield at;
}

/**
 * Returns the active states of a state value of XState (a name, or an object of names and inner values).
 * Outer states come before inner ones; the root state is first.
 */
export function activeIn({ root }: Chart, value: unknown): readonly State[] {
  const active: State[] = [];
  const add = (state: State, inner: unknown): void => {
    active.push(state);
    const values =
      typeof inner === 'string'
        ? [[inner, undefined] as const]
        : typeof inner === 'object' && inner !== null
          ? Object.entries(inner)
          : [];
    for (const [key, next] of values) {
      const child = state.children.find((each) => each.key === key);
      if (child !== undefined) add(child, next);
    }
  };
  add(root, value);
  return active;
}

/** Returns the active states that have no active inner states. */
export const innermost = (active: readonly State[]): readonly State[] =>
  active.filter((state) => !active.some(({ parent }) => parent === state));

/** Returns the transitions that can leave a state: its own, then those of its outer states. */
export function arrowsFrom({ arrows }: Chart, state: State): readonly Arrow[] {
  return [...outward(state)].flatMap(({ id }) => arrows.filter(({ source }) => source === id));
}

/**
 * Returns the transitions that enter a state: those to the state itself, and those to an outer state that
 * enters it by default.
 */
export function arrowsInto({ arrows }: Chart, state: State): readonly Arrow[] {
  const ids = new Set([state.id]);
  for (let at: State = state; at.parent?.initial === at.id; at = at.parent) ids.add(at.parent.id);
  return arrows.filter(({ targets }) => targets.some((target) => ids.has(target)));
}

/** State names, and the number of parallel regions that are in a state of this name. */
export type Summary = readonly { readonly name: string; readonly count: number }[];

/** Returns the innermost active states in short form: counts equal names of parallel regions. */
export function summaryOf(active: readonly State[]): Summary {
  const counts = new Map<string, number>();
  for (const state of innermost(active)) {
    const name = nameOf(state);
    counts.set(name, (counts.get(name) ?? 0) + 1);
  }
  return [...counts].map(([name, count]) => ({ name, count }));
}

/** Returns a readable text for an event type of XState. */
export function eventWords(event: string | null): string {
  if (event === null || event === '') return 'at once';
  const [, kind, rest] = /^xstate\.(done\.actor|error\.actor|done\.state|after|init|stop)\.?(.*)$/.exec(event) ?? [];
  const name = (rest ?? '').replaceAll('_', ' ');
  switch (kind) {
    case 'done.actor':
      return `${name} done`;
    case 'error.actor':
      return `${name} failed`;
    case 'done.state':
      return `${name.split('.').at(-1)} complete`;
    case 'after': {
      const delay = name.split('.')[0] ?? '';
      return /^\d+$/.test(delay) ? `after ${delay} ms` : `after ${delay}`;
    }
    case 'init':
      return 'start';
    case 'stop':
      return 'stop';
    default:
      return event === '*' ? 'any other event' : event;
  }
}

/** Returns a duration as text: "3 ms", "1.4 s", "2 min". */
export function duration(ms: number): string {
  if (ms < 1_000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1_000).toFixed(1)} s`;
  const minutes = Math.floor(ms / 60_000);
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} d`;
}
