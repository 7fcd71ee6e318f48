import { isDeepStrictEqual } from 'node:util';
import type { Operation } from './history-checker.js';

/** The counters of one node at one time, which is in ms of a monotonic clock. */
export type Observation = { readonly at: number; readonly generation: number; readonly sequence: number };

/** A counter of a node that fell from `from` to `to`. `at` is the time of the observation of `to`, in ms. */
export type Fall = {
  readonly node: string;
  readonly counter: 'generation' | 'sequence';
  readonly at: number;
  readonly from: number;
  readonly to: number;
};

/** The state of a node, by field. The values of fields are compared as a whole. */
export type NodeState = Readonly<Record<string, unknown>>;

/** A field that is not equal in all nodes, with its value by node. A node without the field has no value. */
export type Difference = { readonly field: string; readonly values: ReadonlyMap<string, unknown> };

/** Returns the writes that succeeded and whose values are not in the final history of the store. */
export function acknowledgedLost(writes: readonly Operation[], finalHistory: Iterable<string>): Operation[] {
  const kept = new Set(finalHistory);
  return writes.filter(({ kind, outcome, value }) => kind === 'write' && outcome === 'ok' && !kept.has(value));
}

/** Returns the writes that were refused, although their values are in the final history of the store. */
export function refusedApplied(writes: readonly Operation[], finalHistory: Iterable<string>): Operation[] {
  const kept = new Set(finalHistory);
  return writes.filter(({ kind, outcome, value }) => kind === 'write' && outcome === 'failed' && kept.has(value));
}

/**
 * Returns each fall of a generation or a sequence between two consecutive observations of a node. The
 * observations of a node must be in the order in which they were made.
 */
export function wentBack(observationsPerNode: ReadonlyMap<string, readonly Observation[]>): Fall[] {
  return [...observationsPerNode].flatMap(([node, observations]) =>
    observations.flatMap((now, index) => {
      const before = observations[index - 1];
      if (before === undefined) return [];
      return (['generation', 'sequence'] as const)
        .filter((counter) => now[counter] < before[counter])
        .map((counter) => ({ node, counter, at: now.at, from: before[counter], to: now[counter] }));
    }),
  );
}

/** Returns the fields that differ between the final states of the nodes, in the order of their names. */
export function unequal(nodes: ReadonlyMap<string, NodeState>): Difference[] {
  const fields = new Set([...nodes.values()].flatMap((state) => Object.keys(state)));
  return [...fields].sort().flatMap((field) => {
    const values = new Map([...nodes].flatMap(([node, state]) => (field in state ? [[node, state[field]]] : [])));
    const [first] = values.values();
    const isEqual = values.size === nodes.size && [...values.values()].every((each) => isDeepStrictEqual(each, first));
    return isEqual ? [] : [{ field, values }];
  });
}
