/**
 * An operation that takes effect at one moment from `call` to `due`, both in ms. `observes` is the value that
 * the register must have at that moment, and null for any value. `leaves` is the value that the register has
 * afterwards, and null if the operation does not change it.
 */
export type Step = {
  readonly call: number;
  readonly due: number;
  readonly observes: string | null;
  readonly leaves: string | null;
};

/** The call or the end of a step, in a list in the order of time. The list is a ring around a `null` step. */
type Entry<S> = {
  readonly step: S | null;
  /** The position of the step in the order of calls. */
  readonly number: number;
  /** The entry of the end of the step, or null if this entry is itself an end. */
  readonly end: Entry<S> | null;
  before: Entry<S>;
  after: Entry<S>;
};

/** A step that was linearised, with the value of the register before it. */
type Taken<S> = { readonly entry: Entry<S>; readonly state: string; readonly frontier: number };

/**
 * Returns the steps in an order in which each step observes the value that the steps before it leave, and in
 * which a step that is due before the call of another step precedes it. Returns null if there is no such
 * order. No two steps may leave the same value, and no step may leave the value `initial`.
 *
 * The search is that of Wing and Gong with the memory of Lowe (Testing for linearizability, 2017): it takes
 * any step that no other step must precede, and goes back if the end of a step comes before the step was
 * taken. It searches no set of steps with the same value of the register twice.
 */
export function linearisation<S extends Step>(steps: readonly S[], initial: string): S[] | null {
  const ring = ringOf(steps);
  /** For each value, the number of steps that observe it and were not taken yet. */
  const observers = new Map<string, number>();
  const count = (value: string | null, change: number): void => {
    if (value !== null) observers.set(value, (observers.get(value) ?? 0) + change);
  };
  for (const { observes } of steps) count(observes, 1);

  const seen = new Set<string>();
  const taken: Taken<S>[] = [];
  let state = initial;
  let frontier = -1;
  let entry = ring.after;
  while (ring.after !== ring) {
    const { step, end, number } = entry;
    if (step !== null && end !== null) {
      if (isPossible(step, state, observers)) {
        remove(entry);
        remove(end);
        const next = { state: step.leaves ?? state, frontier: Math.max(frontier, number) };
        const key = keyOf(ring, next);
        if (!seen.has(key)) {
          seen.add(key);
          taken.push({ entry, state, frontier });
          count(step.observes, -1);
          ({ state, frontier } = next);
          entry = ring.after;
          continue;
        }
        restore(end);
        restore(entry);
      }
      entry = entry.after;
      continue;
    }
    let last: Taken<S> | undefined;
    do {
      last = taken.pop();
      if (last === undefined) return null;
      ({ state, frontier } = last);
      if (last.entry.end !== null) restore(last.entry.end);
      restore(last.entry);
      count(last.entry.step?.observes ?? null, 1);
    } while (last.entry.step === null || isFree(last.entry.step, observers));
    entry = last.entry.after;
  }
  return taken.flatMap(({ entry: { step } }) => (step === null ? [] : [step]));
}

/** Values are unique: a value that other steps must still observe does not come back after a change. */
function isPossible({ observes, leaves }: Step, state: string, observers: ReadonlyMap<string, number>): boolean {
  if (observes !== null && observes !== state) return false;
  return leaves === null || (observers.get(state) ?? 0) === (observes === null ? 0 : 1);
}

/**
 * Tells whether a possible step can come first in every order of the remaining steps. If the search fails
 * after such a step, no other choice needs to be tried. A read changes nothing. A possible compare-and-swap
 * is the last observer of the present value, so nothing else is possible. An unconditional write of a value
 * that no step observes changes nothing for the next step, which is an unconditional write too.
 */
function isFree({ observes, leaves }: Step, observers: ReadonlyMap<string, number>): boolean {
  return observes !== null || leaves === null || (observers.get(leaves) ?? 0) === 0;
}

/**
 * Returns a text that is the same for the same set of taken steps and the same value. The set is given by the
 * last call among the taken steps (the frontier) and by the steps before it that were not taken. These are at
 * the front of the list, before the end of any step, and they are as few as the operations at one moment.
 */
function keyOf<S>(ring: Entry<S>, { state, frontier }: { readonly state: string; readonly frontier: number }): string {
  let key = `${frontier}`;
  for (let entry = ring.after; entry.end !== null && entry.number < frontier; entry = entry.after)
    key += `,${entry.number}`;
  return `${key} ${state}`;
}

function ringOf<S extends Step>(steps: readonly S[]): Entry<S> {
  const entries = steps
    .toSorted((left, right) => left.call - right.call)
    .flatMap((step, number) => {
      const end = entryOf(step, number, null);
      return [entryOf(step, number, end), end];
    });
  const timeOf = ({ step, end }: Entry<S>): number => (end === null ? step?.due : step?.call) ?? Number.NaN;
  // Operations that touch in one moment are concurrent, so calls come before ends. The sort is stable, so
  // calls at the same time stay in the order of their numbers.
  entries.sort((left, right) => timeOf(left) - timeOf(right) || Number(left.end === null) - Number(right.end === null));
  const ring = entryOf<S>(null, -1, null);
  for (const entry of entries) {
    entry.before = ring.before;
    entry.after = ring;
    restore(entry);
  }
  return ring;
}

function entryOf<S>(step: S | null, number: number, end: Entry<S> | null): Entry<S> {
  const entry = { step, number, end } as Entry<S>;
  entry.before = entry;
  entry.after = entry;
  return entry;
}

function remove<S>({ before, after }: Entry<S>): void {
  before.after = after;
  after.before = before;
}

/** Puts back an entry. Entries must be put back in the reverse order of their removal. */
function restore<S>(entry: Entry<S>): void {
  entry.before.after = entry;
  entry.after.before = entry;
}
