import { itemAt } from '#arrays/read.js';
/**
 * The changes that turn one policy text into another. A change of the text does not always change a verdict.
 */
export type PolicyDifference = {
  /** Changed fields of the policy itself: `default_policy`, and for envelopes `mode`. */
  readonly fields: readonly FieldChange[];
  readonly groups: readonly GroupChange[];
};
export type FieldChange = {
  /** The dotted name of the field, such as `match.dst_ports`. */
  readonly field: string;
  /** The old value (`from`) and new value (`to`). Undefined if the field is absent. */
  readonly from: unknown;
  readonly to: unknown;
};
export type GroupChange = ItemChange & { readonly rules: readonly ItemChange[] };
export type ItemChange = {
  readonly id: string;
  readonly change: 'added' | 'removed' | 'changed';
  /**
   * The old and new position in the order of evaluation, from 1. Null if the group or rule did not move
   * relative to the others.
   */
  readonly moved: { readonly from: number; readonly to: number } | null;
  /** Changed fields of the group or rule. Empty for an added or removed group or rule. */
  readonly fields: readonly FieldChange[];
};

type Item = Readonly<Record<string, unknown>>;

/** Compares two policies in singleton form (without name and mode). */
export function differenceOf(before: Item, after: Item): PolicyDifference {
  const groups = compareItems(before.source_groups, after.source_groups, ['rules']);
  return {
    fields: compareFields(before, after, ['source_groups']),
    groups: groups.flatMap(({ was, is, ...change }) => {
      const rules = compareItems(was?.rules, is?.rules, [])
        .map(({ was: _, is: __, ...rule }) => rule)
        .filter(isChange);
      return isChange(change) || rules.length > 0 ? [{ ...change, rules }] : [];
    }),
  };
}

export const isSame = ({ fields, groups }: PolicyDifference): boolean => fields.length === 0 && groups.length === 0;

const isChange = ({ change, moved, fields }: ItemChange) => change !== 'changed' || moved !== null || fields.length > 0;

type Compared = ItemChange & { readonly was: Item | undefined; readonly is: Item | undefined };

function compareItems(before: unknown, after: unknown, leaveOut: readonly string[]): Compared[] {
  const [old, now] = [inOrder(before), inOrder(after)];
  const oldPlaces = placesOf(old);
  const newPlaces = placesOf(now);
  const moved = movedIds(
    old.map(idOf).filter((id) => newPlaces.has(id)),
    newPlaces,
  );
  const removed = old.filter((item) => !newPlaces.has(idOf(item)));
  return [
    ...now.map((is): Compared => {
      const id = idOf(is);
      const place = oldPlaces.get(id);
      const was = place === undefined ? undefined : old[place];
      if (place === undefined || was === undefined) return { id, change: 'added', moved: null, fields: [], was, is };
      const places = { from: place + 1, to: (newPlaces.get(id) ?? 0) + 1 };
      const fields = compareFields(was, is, ['id', ...leaveOut]);
      return { id, change: 'changed', moved: moved.has(id) ? places : null, fields, was, is };
    }),
    ...removed.map(
      (was): Compared => ({ id: idOf(was), change: 'removed', moved: null, fields: [], was, is: undefined }),
    ),
  ];
}

const idOf = ({ id }: Item): string => String(id);

/**
 * Sorts source groups or rules in the order of evaluation: by ascending priority. An item without a priority
 * has its position in the list as priority (D3).
 */
function inOrder(list: unknown): Item[] {
  const items = (Array.isArray(list) ? list : []) as Item[];
  const priority = items.map((item, place) => (typeof item.priority === 'number' ? item.priority : place));
  return items
    .map((item, place) => ({ item, place }))
    .sort((a, b) => itemAt(priority, a.place) - itemAt(priority, b.place) || a.place - b.place)
    .map(({ item }) => item);
}

const placesOf = (items: readonly Item[]) => new Map(items.map((item, place) => [idOf(item), place]));

/**
 * Returns the smallest set of ids that must move to change the old order into the new order. The ids that do
 * not move form a longest increasing subsequence.
 */
function movedIds(ids: readonly string[], newPlaces: ReadonlyMap<string, number>): Set<string> {
  const places = ids.map((id) => newPlaces.get(id) ?? 0);
  /**
   * `ends[n]` is an index into `places`. Of all increasing subsequences with n + 1 elements so far, the one
   * that ends at this index has the smallest last element.
   */
  const ends: number[] = [];
  const before: (number | undefined)[] = [];
  for (const [index, place] of places.entries()) {
    let [low, high] = [0, ends.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (itemAt(places, itemAt(ends, middle)) < place) low = middle + 1;
      else high = middle;
    }
    before[index] = low === 0 ? undefined : ends[low - 1];
    ends[low] = index;
  }
  const moved = new Set(ids);
  for (let at = ends.at(-1); at !== undefined; at = before[at]) moved.delete(ids[at] ?? '');
  return moved;
}

/** Fields whose values are compared without regard to letter case (D2). */
const WORDS = new Set(['action', 'default_action', 'default_policy', 'proto', 'tls13_uninspectable']);

function compareFields(
  before: Item,
  after: Item,
  leaveOut: readonly string[],
  path: readonly string[] = [],
): FieldChange[] {
  const names = new Set([...Object.keys(before), ...Object.keys(after)]);
  return [...names].flatMap((name) => {
    if (path.length === 0 && leaveOut.includes(name)) return [];
    const [from, to] = [before[name], after[name]];
    if (isItem(from) && isItem(to)) return compareFields(from, to, [], [...path, name]);
    return sameValue(from, to, WORDS.has(name)) ? [] : [{ field: [...path, name].join('.'), from, to }];
  });
}

const isItem = (value: unknown): value is Item => typeof value === 'object' && value !== null && !Array.isArray(value);

/**
 * Returns whether two field values mean the same. Lists are compared without their order, and an empty list
 * is equal to an absent list.
 */
function sameValue(from: unknown, to: unknown, isWord: boolean): boolean {
  if (Array.isArray(from) || Array.isArray(to)) {
    const [old, now] = [elementsOf(from), elementsOf(to)];
    return old.size === now.size && [...old.keys()].every((key) => now.has(key));
  }
  if (isWord) return String(from).toLowerCase() === String(to).toLowerCase();
  return JSON.stringify(from) === JSON.stringify(to);
}

/**
 * Returns the elements of a list by a normalized key. The number `443` and the text `"443"` have the same
 * key, because both are the same port.
 */
export function elementsOf(list: unknown): Map<string, unknown> {
  const elements: readonly unknown[] = Array.isArray(list) ? list : list === undefined ? [] : [list];
  return new Map(elements.map((one) => [typeof one === 'string' ? one : JSON.stringify(one), one]));
}
