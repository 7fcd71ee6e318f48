import type { Steps } from '../../slices.js';

/** A part of a text, as character offsets. */
export type Place = { readonly from: number; readonly to: number };

/** Splits a JSON pointer (RFC 6901) into its keys. */
export const pathOf = (pointer: string): string[] =>
  pointer
    .split('/')
    .slice(1)
    .map((key) => key.replaceAll('~1', '/').replaceAll('~0', '~'));

const LONGEST_PLACE = 200;
/** The search can be interrupted after this number of items of a list. */
const PAUSE_EVERY = 64;

type Wanted = {
  readonly members: Map<string, Wanted>;
  readonly pointers: string[];
  /** The members to find in each item of a list. `found` is called before the search in the item. */
  readonly items?: Wanted & { readonly found: (place: Place) => void };
};

/** Finds the places of JSON pointers, or of their nearest parents, in a valid JSON text, in one pass. */
export function* jsonPlaces(text: string, pointers: readonly string[]): Steps<ReadonlyMap<string, Place>> {
  const root: Wanted = { members: new Map(), pointers: [] };
  for (const pointer of pointers) {
    let at = root;
    for (const key of pathOf(pointer)) {
      const next = at.members.get(key) ?? { members: new Map(), pointers: [] };
      at.members.set(key, next);
      at = next;
    }
    at.pointers.push(pointer);
  }
  return yield* placesIn(text, root);
}

/**
 * Finds the rules of each source group in a valid JSON text. `path`: the keys of the maps around the list of
 * groups.
 */
export function* jsonRulePlaces(text: string, path: readonly string[]): Steps<readonly (readonly Place[])[]> {
  const groups: Place[][] = [];
  const none = { members: new Map(), pointers: [] };
  const rules = { ...none, items: { ...none, found: (place: Place) => groups.at(-1)?.push(place) } };
  const group = { ...none, members: new Map([['rules', rules]]), found: () => groups.push([]) };
  const list: Wanted = { ...none, items: group };
  const root = [...path, 'source_groups'].reduceRight<Wanted>(
    (inner, key) => ({ ...none, members: new Map([[key, inner]]) }),
    list,
  );
  yield* placesIn(text, root);
  return groups;
}

function* placesIn(text: string, root: Wanted): Steps<ReadonlyMap<string, Place>> {
  const found = new Map<string, Place>();
  const note = (wanted: Wanted, place: Place) => {
    for (const pointer of wanted.pointers) found.set(pointer, place);
    // A member that does not exist gets the place of its nearest existing parent.
    for (const member of wanted.members.values()) note(member, place);
  };
  let at = 0;
  const blank = () => {
    while (' \n\r\t,:'.includes(text[at] ?? '#')) at++;
  };
  const string = (): string => {
    const from = at;
    at = text.indexOf('"', at + 1);
    while (isEscaped(text, at)) at = text.indexOf('"', at + 1);
    at++;
    return text.slice(from, at);
  };
  const bracket = /["{}[\]]/g;
  const end = /[\s,\]}]|$/g;
  const skip = () => {
    if (text[at] === '"') return void string();
    if (text[at] !== '{' && text[at] !== '[') {
      end.lastIndex = at;
      at = end.exec(text)?.index ?? text.length;
      return;
    }
    for (let depth = 0; ; ) {
      bracket.lastIndex = at;
      const found = bracket.exec(text);
      if (found === null) return;
      at = found.index;
      if (found[0] === '"') string();
      else {
        depth += found[0] === '{' || found[0] === '[' ? 1 : -1;
        at++;
        if (depth === 0) return;
      }
    }
  };
  const lineEnd = (from: number) => {
    const end = text.indexOf('\n', from);
    return end === -1 ? text.length : end;
  };
  function* value(wanted: Wanted | undefined, key: Place | undefined): Steps<void> {
    blank();
    const from = at;
    const open = text[at];
    if (wanted === undefined || (open !== '{' && open !== '[')) {
      skip();
      if (wanted !== undefined) note(wanted, { from, to: at });
      return;
    }
    note(wanted, key ?? { from, to: Math.min(lineEnd(from), from + LONGEST_PLACE) });
    if (wanted.members.size === 0 && wanted.items === undefined) return skip();
    at++;
    for (let index = 0; ; index++) {
      blank();
      if (at >= text.length || text[at] === '}' || text[at] === ']') break;
      if (index % PAUSE_EVERY === PAUSE_EVERY - 1) yield;
      if (open === '[') {
        wanted.items?.found({ from: at, to: Math.min(lineEnd(at), at + LONGEST_PLACE) });
        yield* value(wanted.members.get(String(index)) ?? wanted.items, undefined);
      } else {
        const keyFrom = at;
        const name = JSON.parse(string()) as string;
        yield* value(wanted.members.get(name), { from: keyFrom, to: at });
      }
    }
    at++;
  }
  yield* value(root, undefined);
  return found;
}

/** Whether an odd number of backslashes precedes an offset. */
function isEscaped(text: string, at: number): boolean {
  let from = at;
  while (text[from - 1] === '\\') from--;
  return (at - from) % 2 === 1;
}
