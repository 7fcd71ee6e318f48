import { GrowingUint32Array } from '#arrays/growing-uint32-array.js';
import { itemAt, u32At } from '#arrays/read.js';
import type { Action, Mode } from '#contracts/policy/policy-model.js';
import { Sequences } from '#policy/compile/sequences.js';
import type { Budget } from '#policy/model/budget.js';
import { ALWAYS, type Conditions } from './conditions.js';

/**
 * The result for a flow. `audit`: a deny in audit mode, which passes the flow. `allow_audited`: an allow in
 * audit mode (D4). `outside`: the flow is outside of the question.
 */
export type Outcome = 'deny' | 'audit' | 'allow' | 'allow_audited' | 'outside';

export function outcomeFor(action: Action, mode: Mode): Outcome {
  if (action === 'allow') return mode === 'audit' ? 'allow_audited' : 'allow';
  return mode === 'audit' ? 'audit' : 'deny';
}

export function passes(outcome: Outcome): boolean {
  return outcome !== 'deny';
}

/**
 * One entry of a decision list: its outcome applies if its condition holds. `tag` is a number for the changed
 * rule or default that the entry comes from; 0 means that both compared policies have this entry.
 */
export type Entry = { readonly condition: number; readonly outcome: Outcome; readonly tag: number };

/**
 * A difference between two decision lists for the flows for which `condition` holds. `verdict`: the entries
 * `from` and `to` decide, and their outcomes differ. `inspection`: the service plane inspects the flows on
 * one side only, because exactly one of `from` and `to`, the first entries that the kernel finds, has a TLS
 * block. `unless`: conditions that, if they hold too, undo the change. At most `MAX_UNLESS` of them are
 * listed.
 */
export type Change = {
  readonly attribute: 'verdict' | 'inspection';
  readonly condition: number;
  readonly from: Entry;
  readonly to: Entry;
  readonly unless: readonly number[];
};

const MAX_UNLESS = 8;

/** The number of the empty decision list, which decides no flow. */
export const OPEN = 0;

/**
 * Gives numbers to decision lists. The first entry whose condition is fulfilled decides. A list whose last
 * entry has no condition is closed: it decides every flow.
 */
export class DecisionLists {
  readonly #entries: Entry[] = [];
  readonly #entryNumbers = new Map<string, number>();
  readonly #lists: Sequences;
  readonly #memo = new Map<number, number>();
  readonly #differences = new Map<number, readonly number[]>();
  readonly #changes: (readonly Change[])[] = [[]];
  readonly #changeNumbers = new Map<string, number>([['', 0]]);
  readonly #work = new GrowingUint32Array();

  constructor(
    private readonly conditions: Conditions,
    private readonly budget: Budget,
  ) {
    this.#lists = new Sequences(budget, 'lists', 1);
    this.#lists.intern(this.#work.array, 0, 0);
  }

  /** Returns the number of the decision list with these entries. */
  of(entries: readonly Entry[]): number {
    this.#work.length = 0;
    for (const entry of entries) this.#work.push(this.#number(entry));
    return this.#lists.intern(this.#work.array, 0, this.#work.length);
  }

  entriesOf(list: number): readonly Entry[] {
    const { cells } = this.#lists;
    const found: Entry[] = [];
    for (let at = this.#lists.start(list); at < this.#lists.end(list); at++)
      found.push(itemAt(this.#entries, u32At(cells.array, at)));
    return found;
  }

  isClosed(list: number): boolean {
    const end = this.#lists.end(list);
    return list !== OPEN && itemAt(this.#entries, u32At(this.#lists.cells.array, end - 1)).condition === ALWAYS;
  }

  /** Returns the decision list that decides by `first`, and by `second` where `first` decides nothing. */
  orElse(first: number, second: number): number {
    if (first === OPEN) return second;
    if (second === OPEN || first === second || this.isClosed(first)) return first;
    const key = first * PAIR + second;
    const known = this.#memo.get(key);
    if (known !== undefined) return known;
    const list = this.#joined(this.entriesOf(first), this.entriesOf(second));
    this.#memo.set(key, list);
    return list;
  }

  #joined(first: readonly Entry[], second: readonly Entry[]): number {
    const conditions = new Set(first.map(({ condition }) => condition));
    const entries = [...first, ...second.filter(({ condition }) => !conditions.has(condition))];
    const last = itemAt(entries, entries.length - 1);
    if (last.condition !== ALWAYS) return this.of(entries);
    // Remove an entry before the last one if it has the same outcome: the last entry decides its flows in the
    // same way. Keep an entry about TLS, because it makes the service plane (TLS and HTTP inspection) inspect
    // the flow.
    while (entries.length > 1) {
      const before = itemAt(entries, entries.length - 2);
      if (before.outcome !== last.outcome || before.tag !== last.tag || this.conditions.isTls(before.condition)) break;
      entries.splice(entries.length - 2, 1);
    }
    return this.of(entries);
  }

  /**
   * Returns the number that stands for the changes from one decision list to another, as a list; an empty
   * list if both decide every flow in the same way.
   */
  differences(one: number, other: number): readonly number[] {
    if (one === other) return [];
    const key = one * PAIR + other;
    const known = this.#differences.get(key);
    if (known !== undefined) return known;
    const changes = this.#compare(this.entriesOf(one), this.entriesOf(other));
    const numbers = changes.length === 0 ? [] : [this.#numberOfChanges(changes)];
    this.#differences.set(key, numbers);
    return numbers;
  }

  changesOf(number: number): readonly Change[] {
    return itemAt(this.#changes, number);
  }

  /**
   * Compares two decision lists. They decide a flow differently only if one of the two deciding entries comes
   * from a changed rule (has a tag), because the other entries have the same order in both lists. So it is
   * sufficient to compare the flows that fulfil the conditions of two entries, one of them with a tag.
   */
  #compare(one: readonly Entry[], other: readonly Entry[]): Change[] {
    const found: Change[] = [];
    const seen = new Set<number>();
    const look = (attribute: Change['attribute'], atoms: readonly number[]): void => {
      const condition = this.conditions.allOf(atoms);
      const key = 2 * condition + (attribute === 'verdict' ? 0 : 1);
      if (seen.has(key)) return;
      seen.add(key);
      const holding = this.conditions.closure(atoms);
      if (holding === null) return;
      this.budget.steps(one.length + other.length);
      const from = this.#first(attribute, one, holding);
      const to = this.#first(attribute, other, holding);
      if (from === undefined || to === undefined) return;
      if (this.#valueOf(attribute, from) !== this.#valueOf(attribute, to)) {
        const unless = this.#exceptions(attribute, condition, [one, other]);
        found.push({ attribute, condition, from, to, unless });
      }
    };
    for (const { tag, condition: first } of one) {
      for (const { tag: otherTag, condition: second } of other) {
        if (tag === 0 && otherTag === 0) continue;
        look('verdict', [...this.conditions.atomsOf(first), ...this.conditions.atomsOf(second)]);
        if (!this.conditions.isTls(first) && !this.conditions.isTls(second)) continue;
        look('inspection', [...this.conditions.kernelAtoms(first), ...this.conditions.kernelAtoms(second)]);
      }
    }
    return this.#withoutRepeated(found);
  }

  /**
   * Returns the conditions of other entries that cancel a change if they are fulfilled in addition to its own
   * condition.
   */
  #exceptions(attribute: Change['attribute'], condition: number, lists: readonly (readonly Entry[])[]): number[] {
    const own = this.conditions.atomsOf(condition);
    const found: number[] = [];
    const candidates = new Set(lists.flatMap((list) => list.map((entry) => entry.condition)));
    for (const candidate of candidates) {
      if (found.length === MAX_UNLESS) break;
      const atoms = this.conditions.atomsOf(candidate);
      const holding = this.conditions.closure([...own, ...atoms]);
      if (atoms.length === 0 || holding === null || atoms.every((atom) => own.includes(atom))) continue;
      this.budget.steps(lists.reduce((sum, list) => sum + list.length, 0));
      const values = lists.map((list) => {
        const first = this.#first(attribute, list, holding);
        return first === undefined ? undefined : this.#valueOf(attribute, first);
      });
      if (values[0] === values[1]) found.push(candidate);
    }
    return found;
  }

  /** Removes each change that another change with a weaker condition already includes. */
  #withoutRepeated(found: readonly Change[]): Change[] {
    return found.filter((change) => {
      const atoms = new Set(this.conditions.atomsOf(change.condition));
      return !found.some(
        (other) =>
          other.attribute === change.attribute &&
          this.#valueOf(other.attribute, other.from) === this.#valueOf(change.attribute, change.from) &&
          this.#valueOf(other.attribute, other.to) === this.#valueOf(change.attribute, change.to) &&
          this.conditions.atomsOf(other.condition).length < atoms.size &&
          this.conditions.holds(other.condition, atoms),
      );
    });
  }

  /**
   * Returns the first entry of a decision list that applies if the facts `holding` are true. `attribute`:
   * whether the verdict is asked, or the first entry that the kernel would find.
   */
  #first(attribute: Change['attribute'], list: readonly Entry[], holding: ReadonlySet<number>): Entry | undefined {
    return list.find(({ condition }) =>
      attribute === 'verdict'
        ? this.conditions.holds(condition, holding)
        : this.conditions.kernelAtoms(condition).every((atom) => holding.has(atom)),
    );
  }

  #valueOf(attribute: Change['attribute'], { outcome, condition }: Entry): Outcome | boolean {
    return attribute === 'verdict' ? outcome : this.conditions.isTls(condition);
  }

  #numberOfChanges(changes: readonly Change[]): number {
    const key = changes.map((change) => JSON.stringify(change)).join('\n');
    const known = this.#changeNumbers.get(key);
    if (known !== undefined) return known;
    this.#changeNumbers.set(key, this.#changes.length);
    return this.#changes.push(changes) - 1;
  }

  #number(entry: Entry): number {
    const key = `${entry.condition} ${entry.outcome} ${entry.tag}`;
    const known = this.#entryNumbers.get(key);
    if (known !== undefined) return known;
    this.#entryNumbers.set(key, this.#entries.length);
    return this.#entries.push(entry) - 1;
  }
}

const PAIR = 2 ** 26;
